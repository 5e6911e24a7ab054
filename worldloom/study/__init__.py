"""Studies: what a world model's fidelity depends on, each a config and one command."""
