"""`urna verify PAGE`: whether a page is as it was written, who signed it, what it shows."""

import base64
import binascii
import re
from pathlib import Path

import typer

from urna.cli.output import Format, of_flower, print_json, results
from urna.errors import ParameterError
from urna.files import digest_of
from urna.report import Seal, read_seal

__all__ = ["verify_page"]


def verify_page(
    page: Path,
    directory: Path | None,
    key: str | None,
    result: Path | None,
    output: Format,
) -> None:
    """Check a page, and end with 1 where something is wrong.

    Args:
        page: The page.
        directory: Public keys by name, to tell whose signature it is.
        key: The signer's public key, in base64, from elsewhere.
        result: The file that the page should be about.
        output: How to print.
    """
    text = _read(page)
    seal = read_seal(text)
    problems = [] if seal.intact else ["The page was changed after it was written."]
    trusted = _trusted(seal, directory, key)
    if trusted is not None and seal.public != trusted:
        problems.append("It is not signed by the key that was given.")
    if result is not None:
        named = re.search(r'data-result="([0-9a-f]{64})"', text)
        if named is None or named.group(1) != _digest(result):
            problems.append(f"It is not about {result}.")
    checked = {
        "the signature": seal.signature is not None,
        "whose key it is": trusted is not None,
        "the result": result is not None,
    }
    if output is Format.JSON:
        said = {"sha256": seal.digest, "signed_by": seal.name, "intact": seal.intact}
        print_json(said | {"checked": checked, "problems": problems})
    else:
        _print(seal, checked, problems)
    if problems:
        raise typer.Exit(1)


def _trusted(seal: Seal, directory: Path | None, key: str | None) -> bytes | None:
    if key is not None:
        try:
            return base64.b64decode(key, validate=True)
        except (ValueError, binascii.Error) as error:
            raise ParameterError("a public key is written in base64") from error
    if directory is None:
        return None
    found: dict[str, bytes] = of_flower("identities").read_public_keys(directory)
    return found.get(seal.name or "", b"")


def _read(page: Path) -> str:
    try:
        return page.read_bytes().decode()
    except OSError as error:
        raise ParameterError(f"cannot read {page}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{page} is no page of Urna's: it is not UTF-8") from error


def _digest(file: Path) -> str:
    try:
        return digest_of(file)
    except OSError as error:
        raise ParameterError(f"cannot read {file}: {error.strerror}") from error


def _print(seal: Seal, checked: dict[str, bool], problems: list[str]) -> None:
    console = results()
    console.print(f"sha256: {seal.digest}", soft_wrap=True)
    if seal.intact:
        console.print(f"signed by: {seal.name or 'nobody'}")
    for what, done in checked.items():
        if not done:
            console.print(f"not checked: {what}", style="dim")
    for problem in problems:
        console.print(f"wrong: {problem}", style="bold red")
    if not problems:
        console.print("nothing is wrong with what was checked")
