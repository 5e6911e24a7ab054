"""Stage 1': somebody's logs -> trajectories.

``run.ingest`` does it; ``detect`` says what a file holds; ``source`` and ``records`` stream it; each format has one
module, which says what of a record is the agent's and what is the world's (``turns``); ``turns`` makes the trajectory.
"""
