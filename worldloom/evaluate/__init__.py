"""Stage 3: how far a world model can be trusted."""
