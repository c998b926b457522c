"""What was paid for is on disk before it is on the screen, and is found again."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, Self

from urna.errors import OutputError, RoundSpoiled, RoundUnfinished
from urna.files import check_folder, digest_of, reserved, today, write_json, write_whole
from urna.privacy import Ledger
from urna.report import Run, Signer, account_of, load_run, load_whole, page
from urna.systems.combine import Combination

__all__ = ["Keeper", "keeping", "write_page"]

_ROOM = 64  # bytes of disk for each number of a result, and as many thousand beside


def _stamp() -> str:
    """Return a name of its own for what is kept: the day, because hours tell how long data took."""
    day = time.strftime("%Y%m%d", time.gmtime(today()))
    return f"{day}-{uuid.uuid4().hex[:8]}"


class Kept(Protocol):
    """A result that can be written down."""

    @property
    def entry(self) -> str | None:
        """Its id in the ledger, where there is one."""
        ...

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        ...


class Keeper:
    """Writes the results of one command into a folder, each as soon as it is there.

    Args:
        folder: Where to; None keeps nothing.
        ledger: Where the releases are counted; its entries say where results are.
    """

    def __init__(self, folder: Path | None, ledger: Ledger | None) -> None:
        self._folder, self._ledger = folder, ledger
        self._room: Any = None
        self._written: set[Path] = set()
        self._run: Run | None = None

    @property
    def folder(self) -> Path | None:
        """Where to; None keeps nothing."""
        return self._folder

    def hold_room(self, numbers: int) -> None:
        """Take room on the disk before anything is paid for."""
        if self._folder is not None:
            self._room = reserved(self._folder, _ROOM * (numbers + 1000))
            self._room.__enter__()

    def give_room_back(self) -> None:
        """Let go of what `hold_room` took."""
        room, self._room = self._room, None
        if room is not None:
            room.__exit__(None, None, None)

    def tell(self, run: Run) -> None:
        """Note where the results that are kept from now on come from."""
        self._run = run

    def keep(self, result: Kept, name: str = "result.json") -> Path | None:
        """Write a result, and note in the ledger where it is; return the file."""
        if self._folder is None:
            return None
        self.give_room_back()
        path = self._folder / name
        self._set_aside(path)
        digest = write_json(path, result.as_mapping() | told(self._run, self._ledger))
        if self._ledger is not None:
            for entry in _entries(result):
                self._ledger.note_result(entry, path.absolute(), digest)
        return path

    def _set_aside(self, path: Path) -> None:
        """Keep what an earlier command paid for, under another name."""
        if path not in self._written and path.exists():
            path.rename(path.with_name(f"{path.stem}-before-{_stamp()}{path.suffix}"))
        self._written.add(path)

    def keep_page(self) -> Path | None:
        """Write the page about the result that was kept; return the file."""
        if self._folder is None:
            return None
        return write_page(self._folder / "result.json")

    def keep_failure(self, failed: RoundSpoiled | RoundUnfinished) -> None:
        """Write down that something was paid for and gave nothing that may be read."""
        if self._folder is not None:
            self.give_room_back()
            kind = "spoiled" if isinstance(failed, RoundSpoiled) else "unfinished"
            said = {"kind": kind, "version": 1, "reason": failed.reason}
            lost = {str(client): why for client, why in failed.lost.items()}
            faults = {str(client): why for client, why in failed.faults.items()}
            self._set_aside(self._folder / "result.json")
            write_json(self._folder / "result.json", {**said, "lost": lost, "faults": faults})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.give_room_back()


@contextmanager
def keeping(folder: Path | None, ledger: Ledger | None, *names: str) -> Iterator[Keeper]:
    """Keep results in a folder; with a ledger and no folder, beside the ledger.

    Raises:
        OutputError: The folder cannot be written to. Nothing was paid yet.
    """
    if folder is None and ledger is not None:
        folder = ledger.path.with_name(f"{ledger.path.name}.results") / _stamp()
    if folder is not None:
        for name in names:
            if (folder / name).is_dir():
                raise OutputError(f"cannot write {folder / name}: it is a folder")
        check_folder(folder)
    with Keeper(folder, ledger) as keeper:
        try:
            yield keeper
        except (RoundSpoiled, RoundUnfinished) as failed:
            keeper.keep_failure(failed)
            raise


def told(run: Run | None, ledger: Ledger | None) -> dict[str, Any]:
    """Return what a result's file says of where it comes from."""
    if run is None:
        return {}
    account = None if ledger is None else account_of(ledger)
    return {"run": replace(run, account=account).as_mapping()}


def write_page(
    file: Path,
    out: Path | None = None,
    *,
    title: str | None = None,
    run: Run | None = None,
    signer: Signer | None = None,
) -> Path:
    """Write the page about a result's file, beside it by default; return the page's.

    Args:
        file: Holds the result.
        out: Where to.
        title: What the page is called; as its run says by default.
        run: How the result came about; as the file says by default.
        signer: Who signs the page; nobody by default.

    Raises:
        ParameterError: The file holds no result, or none that can be shown.
    """
    run, out = run or load_run(file), out or file.with_name("report.html")
    named = title or (run.title if run is not None else "") or file.absolute().parent.name
    text = page(load_whole(file), title=named, run=run, sha256=digest_of(file), signer=signer)
    write_whole(out, text)
    return out


def _entries(result: Kept) -> tuple[str, ...]:
    """Return the ledger's entries that a result was paid by: several sums may make one."""
    if isinstance(result, Combination):
        return result.entries
    return () if result.entry is None else (result.entry,)
