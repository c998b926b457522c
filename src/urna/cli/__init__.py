"""The command line. A command parses, calls one library function and prints."""

import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Run a command; Ctrl-C ends it in one line, while packages are still imported as well."""
    try:
        from urna.cli.app import run  # noqa: PLC0415 - takes a second, in which people press keys

        code = run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped; no half-written file is left\n")
        code = 128 + signal.SIGINT  # what a shell reports for Ctrl-C
    sys.exit(code)
