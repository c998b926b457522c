"""What only makes training faster, as one value."""

import functools
import logging
import re
from dataclasses import dataclass, fields

__all__ = ["Speed"]

_TESTED = ((2, 11), (2, 13))
"""First and last version of PyTorch with which fast and plain runs were compared."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Speed:
    """Which ways to train faster are taken; each can be switched off by itself.

    None changes what is computed: losses stay the same but for the rounding of other kernels.
    So a cache does not tell searches apart by their speed. All are on by default but
    `stacked_clients`, with which one client's data can change the last digits of others.
    """

    shared_lanes: bool = True
    """Candidates that have agreed in everything so far are trained as one."""
    stacked_clients: bool = False
    """GPU, and studies only: the clients of a round train in one stack, whose kernels round by its
    size. So no privacy guarantee covers what comes out: a private training refuses it."""
    threads: bool = True
    """CPU: every thread takes candidates of its own through an epoch."""
    recorded_steps: bool = True
    """CPU: steps are recorded below torch.func and replayed."""
    patches: bool = True
    """CPU: convolutions run as matrix products over patches (im2col)."""
    graphs: bool = True
    """GPU: steps are recorded as CUDA graphs and replayed."""
    kernels: bool = True
    """GPU: convolutions run in Triton kernels of our own."""

    @classmethod
    def plain(cls) -> "Speed":
        """Return the value with every part switched off: torch.func over all candidates alone."""
        return cls(**{field.name: False for field in fields(cls)})

    def on(self, version: str) -> "Speed":
        """Return what is taken with a version of PyTorch; one that was not tested gets plain.

        Example:
            >>> Speed().on("2.13.0+cpu") == Speed()
            True
        """
        found = re.match(r"(\d+)\.(\d+)", version)
        tested = found is not None and _TESTED[0] <= (int(found[1]), int(found[2])) <= _TESTED[1]
        if tested or self == Speed.plain():
            return self
        _say_once(version)
        return Speed.plain()


@functools.cache
def _say_once(version: str) -> None:
    first, last = (".".join(map(str, tested)) for tested in _TESTED)
    _log.warning(
        "PyTorch %s is not among the versions tested (%s to %s): training runs as with "
        "Speed.plain(), the same but slower",
        version,
        first,
        last,
    )
