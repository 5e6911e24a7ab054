"""Secrets and personal data out of trajectories, before anything is written or learnt."""
