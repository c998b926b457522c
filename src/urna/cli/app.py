"""The commands together, and what becomes of errors: exit 0 done, 1 could not, 2 wrong use."""

import contextlib
import errno
import os
import re
import signal
import sys
from typing import TextIO

import click
import typer
from rich.text import Text

import urna
from urna.cli.combine import combine
from urna.cli.data import data
from urna.cli.init import init
from urna.cli.ledger import ledger
from urna.cli.nodes import helper, keys, policy
from urna.cli.output import errors
from urna.cli.pages import report, verify
from urna.cli.plan import plan
from urna.cli.plan_study import check
from urna.cli.run import average, run_file, search, train
from urna.errors import UrnaError

__all__ = ["app", "run"]

app = typer.Typer(
    name="urna",
    help="Agree on hyperparameters by secret ballot, then train, under one privacy budget.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(init)
app.command()(check)
app.command("run")(run_file)
app.command()(search)
app.command()(train)
app.add_typer(plan, name="plan")
app.command()(average)
app.command()(combine)
app.command()(data)
app.command()(report)
app.command()(verify)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(helper)
app.add_typer(ledger, name="ledger")
app.add_typer(keys, name="keys")
app.add_typer(policy, name="policy")


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
    """Agree on hyperparameters by secret ballot, then train, under one privacy budget."""


def run() -> int:
    """Run a command; a user's mistake ends in one line and an exit code, not in a trace."""
    try:
        code = app(standalone_mode=False)
        sys.stdout.flush()  # a full disk or a closed pipe shows here, while it can be told
    except UrnaError as error:
        _tell(str(error))
        code = error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        code = 2
    except click.ClickException as error:
        _tell(error.format_message())
        code = error.exit_code
    except click.Abort as error:
        raise KeyboardInterrupt from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # looked for before anything was begun
            _tell(f"a name is too long for a file: {str(error.filename)[:60]}…")
            return 2
        # The reader went away, or the disk behind the output is full. What was paid for is kept.
        _silence(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            _tell(f"cannot print the result: {error.strerror or error}. What was kept is kept")
        code = 1
    if (
        code == 128 + signal.SIGINT
    ):  # Typer turns Ctrl-C into this code, older ones into an exception
        raise KeyboardInterrupt
    return code or 0


def _silence(stream: TextIO) -> None:
    """Throw away what is left to print: Python would try once more when it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(message: str) -> None:
    # Click and Typer both look for the nearest name, and both say so.
    message = re.sub(r"(Did you mean [^?]*\?) \1", r"\1", message)
    with contextlib.suppress(OSError):
        errors.print(Text.assemble(("error: ", "bold red"), message))
