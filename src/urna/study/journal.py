"""What a study has done so far, on disk, so that a kill at any moment spends nothing twice.

The ids of all releases are on disk before the first is entered in a ledger. A result is on disk,
whole and synced, before the ledger notes it, and noted before anybody sees it. So a run that is
started again finds each stage either finished, and reads it; or unfinished and never shown, and
holds it again under the same id, which counts once. A stage whose result the ledger knows, and
which is not in this folder, is refused: it was held from a copy of it.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from urna.errors import InvalidSum, ParameterError, RoundUnfinished
from urna.files import digest_of, read_json, today, write_json, write_whole
from urna.privacy import Entry, Ledger
from urna.study.file import Study

__all__ = ["LEDGER", "Journal"]

_FILE, _VERSION = "study.json", 1
LEDGER = "ledger"
"""The study's own ledger, in its folder."""


def _paid(folder: Path, values: Mapping[str, Any]) -> bool:
    """Say whether anything of a study was paid for, or is on disk."""
    if values["kept"] or (folder / "vote.json").exists():
        return True
    own, named = folder / LEDGER, values.get("ledger")
    if own.exists():
        return any(entry.counts for entry in Ledger(own).entries())
    if not named:
        return False
    # What was tried again counts under another id: the first, and which attempt it was.
    counted = {entry.id for entry in Ledger(str(named)).entries() if entry.counts}
    return any(name.partition("-")[0] in values["entries"].values() for name in counted)


def _elsewhere(entry: Entry, path: Path) -> bool:
    """Say whether the ledger knows of no result of a release, or only of one elsewhere."""
    kept = entry.result
    if kept is None:
        return True
    moved = Path(kept.path).parent != path.absolute().parent
    return moved and kept.sha256 != digest_of(path)


@dataclass(slots=True)
class Journal:
    """The stages of one study, in the folder of its results.

    Args:
        folder: Where everything is.
        values: What `study.json` holds.
        ledger: Where releases are counted; None where nothing is private.
    """

    folder: Path
    values: dict[str, Any]
    ledger: Ledger | None = None

    @classmethod
    def open(cls, study: Study, version: str) -> "Journal":
        """Open the journal of a study, or begin one; the folder must be held alone.

        A study of which nothing was paid begins anew where its file was changed.

        Raises:
            ParameterError: The folder holds another study.
            OutputError: It cannot be written to.
        """
        folder = study.folder
        file = folder / _FILE
        values = read_json(file) if file.exists() else None
        if values is not None and values.get("fingerprint") != study.fingerprint:
            if _paid(folder, values):
                raise ParameterError(
                    f"{folder} holds another study, or this one before it was changed: name "
                    "another folder under [output], or put the file back as it was "
                    f"({folder / 'study.toml'})"
                )
            values = None  # nothing was paid: it begins anew, as it is now
            (folder / LEDGER).unlink(missing_ok=True)
        if values is None:
            values = {
                "version": _VERSION,
                "urna": version,
                "fingerprint": study.fingerprint,
                "begun": today(),
                "entries": {stage: uuid.uuid4().hex for stage in ("vote", "then")},
                "ledger": str(study.base / study.privacy.ledger) if study.privacy.ledger else "",
                "kept": [],
                "failed": None,
                "finished": False,
            }
            # The file is copied first: a folder with a journal always has it.
            write_whole(folder / "study.toml", study.text)
            write_json(file, values)
        return cls(folder, values)

    @property
    def finished(self) -> bool:
        """Whether every stage is done."""
        return bool(self.values["finished"])

    def entry(self, stage: str) -> str:
        """Return the id under which a stage's release is counted."""
        return str(self.values["entries"][stage])

    def check(self) -> None:
        """Refuse to go on with a study whose release was opened and gave nothing.

        Raises:
            ParameterError: It was. Held again under the same id it would count once for two sums.
        """
        failed = self.values["failed"]
        if failed is not None:
            raise ParameterError(
                f"the {failed['stage']} in {self.folder} was paid for and came to nothing: "
                f"{failed['reason']} A new one costs anew: name another folder under [output]"
            )

    def found(self, name: str) -> dict[str, Any] | None:
        """Return a result that is on disk, or None where it never was.

        The ledger notes it if the process that wrote it ended before that.

        Raises:
            LedgerError: Another result of the same release was written, in another folder.
        """
        if not self.has(name):
            return None
        path = self.folder / name
        found = read_json(path)
        if self.ledger is not None:
            paid = {found.get("entry"), *found.get("entries", ())}
            for entry in self.ledger.entries():
                if entry.id in paid and _elsewhere(entry, path):
                    self.ledger.note_result(entry.id, path.absolute(), digest_of(path))
        return found

    def has(self, name: str) -> bool:
        """Say whether something is on disk that a stage has written.

        Raises:
            ParameterError: It was, and is gone. Somebody may have seen it, and held again under
                the same id the stage would count once for two results.
        """
        path = self.folder / name
        if path.exists():
            return True
        if name in self.values["kept"]:
            raise ParameterError(
                f"{path} was written and is gone: put it back. What it held was paid for; "
                "another costs anew, in another folder under [output]"
            )
        return False

    def wrote(self, name: str) -> None:
        """Note that something is on disk, so that it is missed if it is not."""
        if name not in self.values["kept"]:
            self.note(kept=[*self.values["kept"], name])

    def keep(self, name: str, result: Mapping[str, Any], *entries: str | None) -> Path:
        """Write a result, and note in the ledger where it is."""
        path = self.folder / name
        digest = write_json(path, result)
        self.wrote(name)
        if self.ledger is not None:
            for entry in entries:
                if self.ledger.find(entry) is not None:
                    self.ledger.note_result(str(entry), path.absolute(), digest)
        return path

    def fail(self, stage: str, failed: InvalidSum | RoundUnfinished) -> None:
        """Note that a stage was paid for and gave nothing that may be read."""
        kind = "spoiled" if isinstance(failed, InvalidSum) else "unfinished"
        self.note(failed={"stage": stage, "kind": kind, "reason": failed.reason})

    def note(self, **values: Any) -> None:  # noqa: ANN401 - plain values
        """Write something into the journal."""
        self.values |= values
        write_json(self.folder / _FILE, self.values)
