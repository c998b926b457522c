"""The command line. A command parses, calls one library function and prints."""

from urna.cli.app import main

__all__ = ["main"]
