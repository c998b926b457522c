"""`urna report`: the page about a result, made again from its file."""

from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, print_json
from urna.errors import ParameterError
from urna.files import write_whole
from urna.report import load_result, page

__all__ = ["report"]


def report(
    result: Annotated[Path, typer.Argument(help="A result.json, or the folder that holds it.")],
    out: Annotated[
        Path | None,
        typer.Option("--output", help="File to write; report.html beside the result by default."),
    ] = None,
    title: Annotated[str | None, typer.Option(help="What the page is called.")] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write the page about RESULT: one HTML file that stands alone."""
    file = result / "result.json" if result.is_dir() else result
    if file.suffix != ".json":
        raise ParameterError(f"a result is a .json file or the folder that holds it, got {file}")
    found = load_result(file)
    path = out or file.with_name("report.html")
    digest = write_whole(path, page(found, title=title or str(file)))
    if output is Format.JSON:
        print_json({"written": str(path), "sha256": digest})
    else:
        typer.echo(f"written: {path}")
