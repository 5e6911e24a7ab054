"""What is wrong with files of trajectories, line by line, before anything is trained on them."""
