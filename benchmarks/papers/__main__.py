"""What a study of the papers needs from a terminal: `python -m benchmarks.papers --help`."""

import sys

import typer
from benchmarks.papers.replay_command import replay
from benchmarks.papers.simulate_command import simulate

from urna.cli.output import errors
from urna.errors import UrnaError

app = typer.Typer(name="papers", help="Votes on recorded losses and on synthetic loss surfaces.")
app.command()(replay)
app.command()(simulate)

if __name__ == "__main__":
    try:
        app()
    except UrnaError as error:
        errors.print(f"error: {error}")
        sys.exit(error.exit_code)
