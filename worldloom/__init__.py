"""Turn interaction logs into an LLM world model, and measure how far to trust it."""
