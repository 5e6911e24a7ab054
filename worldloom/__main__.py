"""``python -m worldloom`` is the command ``worldloom``."""

from worldloom.cli import main

main()
