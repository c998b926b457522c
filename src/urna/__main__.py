"""Run the command line as `python -m urna`."""

from urna.cli import main

if __name__ == "__main__":
    main()
