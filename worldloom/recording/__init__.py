"""Record what an agent does where it works: around its functions and environments, or between it and its model."""
