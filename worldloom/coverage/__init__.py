"""What a file of episodes covers, and what a world model learnt from it would not know."""
