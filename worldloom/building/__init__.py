"""Logs in, a world package out: the stages of ``worldloom build``, and what is written about the result."""
