"""The commands together, and what becomes of errors: exit 0 done, 1 could not, 2 wrong use."""

import sys

import click
import typer
from rich.text import Text

import urna
from urna.cli.data import data
from urna.cli.keys import keys
from urna.cli.ledger import ledger
from urna.cli.output import errors
from urna.cli.plan import plan
from urna.cli.replay import replay
from urna.cli.search import search
from urna.cli.simulate import simulate
from urna.errors import UrnaError

__all__ = ["app", "main"]

_STOPPED = 130  # what a shell reports for Ctrl-C

app = typer.Typer(
    name="urna",
    help="Agree on hyperparameters by secret ballot, under one privacy budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(search)
app.command()(plan)
app.command()(replay)
app.command()(simulate)
app.command()(data)
app.add_typer(ledger, name="ledger")
app.add_typer(keys, name="keys")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"urna {urna.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_print_version, is_eager=True
    ),
) -> None:
    """Agree on hyperparameters by secret ballot, under one privacy budget."""


def main() -> None:
    """Run a command; a user's mistake ends in one line and an exit code, not in a trace."""
    try:
        code = app(standalone_mode=False)
    except UrnaError as error:
        _tell(str(error))
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        code = 2
    except click.ClickException as error:
        _tell(error.format_message())
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _STOPPED
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away: nobody is left to tell
        code = 1
    if code == _STOPPED:  # Typer turns Ctrl-C into this code, older ones into an exception
        errors.print("stopped; no half-written file is left")
    sys.exit(code or 0)


def _tell(message: str) -> None:
    errors.print(Text.assemble(("error: ", "bold red"), message))
