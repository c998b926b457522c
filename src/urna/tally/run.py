"""What a run of any system needs beside its question."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from urna.errors import ParameterError
from urna.privacy import Ledger
from urna.randomness import OsSecrets, SecretSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Where a run is counted, kept and shown, and where its secrets come from.

    Nothing here is part of a plan: the same plan may be run anywhere.

    Args:
        ledger: Where releases are counted before they happen.
        entry: The release's id in the ledger: counted once, however often it is begun, and
            refused once a result of it was handed out. A fresh one by default.
        secrets: Where keys, coins and noise come from; the operating system by default.
        keep: Called with the result before the ledger notes it and before anybody sees it:
            writes it down, and shows it to nobody.
        progress: Called while it runs; a line in a terminal or a notebook by default, False for
            none.
        force: Whether to run where the noise will probably drown the result.
    """

    ledger: Ledger | None = None
    entry: str | None = None
    secrets: SecretSource = field(default_factory=OsSecrets, repr=False)
    keep: Callable[[Any], None] | None = None
    progress: Callable[..., None] | bool | None = None
    force: bool = False

    def only(self, what: str, *used: str) -> "Run":
        """Return the run, unless it says something that is not looked at.

        Raises:
            ParameterError: It does.
        """
        usual = Run(secrets=self.secrets)
        given = [f.name for f in fields(self) if getattr(self, f.name) != getattr(usual, f.name)]
        if not isinstance(self.secrets, OsSecrets):
            given.append("secrets")
        for name in given:
            if name not in used:
                raise ParameterError(
                    f"{what} takes no `{name}`; of a Run it takes {', '.join(used)}"
                )
        return self

    def kept(self, result: Any) -> None:  # noqa: ANN401 - each system has its own
        """Call `keep` with a result, where there is one."""
        if self.keep is not None:
            self.keep(result)
