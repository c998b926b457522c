"""XNoise: every client adds more noise than needed, and what is too much is removed.

After Hyades (published as Dordis), with colluding clients counted out. n clients take part, up
to `dropouts` of them may be lost, up to `colluders` add no noise or tell the server theirs. Write
m = n − colluders. If D clients are lost, at least m − D honest ones remain, so each must leave a
variance of target/(m − D) in the sum for the honest ones alone to reach the target. D is known
only after the vectors are sent: clients add enough for the worst case, in components whose seeds
are shared like the mask keys, and the components the target does not need are removed.

Precise. Component 0 has variance target/m, component k = 1..T has
target/((m−k+1)(m−k)) = target/(m−k) − target/(m−k+1), where T = dropouts. Components 0..D add
up to target/(m − D), so removing every k > D leaves exactly the target in the sum of m − D
honest clients, and more if some of the lost ones were colluders. With no colluders this is the
paper's formula.

Approximate. With τ = ⌈log₂ T⌉ and η = target·T/(2^τ·m·(m−T)), component 0 has variance
target/m, component 1 has η, component k = 2..τ+1 has η·2^(k−2). All together: target/(m − T).
Too much for D lost clients is λ = target/(m−T) − target/(m−D). Of it ⌊λ/η⌋·η is removed: component
k >= 2 where bit k−2 of ⌊λ/η⌋ is set, all k >= 1 where nobody is lost (λ = 2^τ·η then). So each
client leaves at least target/(m−D) and less than η more, and m − D honest clients leave between
the target and target·(1 + 1/(m−T)), the paper's bound, because (m−D)·η <= target/(m−T).
"""

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np

from urna.errors import ParameterError
from urna.noise import SKELLAM, Noise, Table
from urna.protocols.secagg.masks import Words, wrapped
from urna.protocols.secagg.shares import draw_secret, shareable
from urna.randomness import SecretSource, derive_seed

MOST_COMPONENTS = 1024
"""Largest number of noise components whose seeds one client shares."""


class Removal(StrEnum):
    """How noise that is not needed is removed."""

    PRECISE = "precise"
    """One component per tolerated dropout: what is left is exactly the target."""
    APPROXIMATE = "approximate"
    """About log₂ of that many: what is left is at most 1/(m − T) above the target."""
    NONE = "none"
    """Nothing is removed: fewer lost clients than planned leave more noise than needed."""


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """How much noise one client adds, in which components, and which of them are removed.

    Guarantee:
        Whatever the number D <= `dropouts` of lost clients, the honest survivors alone leave
        at least `target` in every entry of the sum, even if `colluders` of the survivors add
        nothing.

    Assumes:
        D is true. An honest-but-curious server says the truth; a dishonest one is kept to it
        by the agreement on the lists (see `client`).
    """

    removal: Removal
    target: Fraction
    clients: int
    colluders: int
    dropouts: int
    family: Noise = SKELLAM

    def __post_init__(self) -> None:
        if not isinstance(self.target, Fraction) or self.target <= 0:
            raise ParameterError(
                f"the noise variance must be a positive Fraction, got {self.target!r}"
            )
        if self._least_honest() < 1:
            raise ParameterError(
                f"{self.clients} clients less {self.colluders} colluders and {self.dropouts} "
                "dropouts leave no honest client to add noise"
            )
        if self.removal is not Removal.NONE and not self.family.distribution.closed_under_addition:
            raise ParameterError(
                f"what {self.family.name} noise leaves when parts of it are removed is not "
                "known exactly; use Skellam noise, or no removal"
            )
        if self.removal is Removal.PRECISE and self.dropouts > MOST_COMPONENTS:
            raise ParameterError(
                f"precise removal shares one seed per tolerated dropout; {self.dropouts} are more "
                f"than {MOST_COMPONENTS}. Use approximate removal."
            )

    def components(self) -> tuple[Fraction, ...]:
        """Return the variances of the components one client adds, component 0 first."""
        return _components(self)

    @property
    def shared(self) -> int:
        """Number of seeds that are shared: those of all components but the first."""
        if self.removal is Removal.NONE or not self.dropouts:
            return 0
        return self.dropouts if self.removal is Removal.PRECISE else self._doublings() + 1

    def removed(self, lost: int) -> tuple[int, ...]:
        """Return the components that are removed when `lost` clients are missing in the sum."""
        return _removed(self, lost)

    def opened(self, lost: int) -> tuple[int, ...]:
        """Return the components whose seeds are revealed: `seeds_from` derives the rest."""
        removed = self.removed(lost)
        return removed[:1] if self.removal is Removal.PRECISE else removed

    def left(self, lost: int) -> Fraction:
        """Return the variance one client leaves in the sum when `lost` are missing."""
        components = self.components()
        removed = self.removed(lost)
        kept = (variance for k, variance in enumerate(components) if k not in removed)
        return sum(kept, Fraction(0))

    def honest_left(self, lost: int) -> Fraction:
        """Return the variance that honest survivors are sure to leave in the sum.

        At least `target`; the difference is what colluding clients were counted out for and
        what approximate removal, or none, leaves too much.
        """
        return (self.clients - lost - self.colluders) * self.left(lost)

    def draw_seeds(self, source: SecretSource) -> tuple[bytes, ...]:
        """Draw the seeds of all components; that of component 0 is never shared.

        Precise removal always takes the components from some k on, so its seeds form a
        ladder: each is derived from the one before, and seed k alone gives all later ones
        and none of the earlier (SHA-256 as a random oracle).
        """
        if self.removal is not Removal.PRECISE or not self.shared:
            return tuple(draw_secret(source) for _ in range(self.shared + 1))
        first, head = draw_secret(source), draw_secret(source)
        return (first, *self._ladder(1, head).values())

    def seeds_from(self, revealed: Mapping[int, bytes], lost: int) -> dict[int, bytes]:
        """Return the seeds of all removed components from those of the opened ones."""
        if self.removal is not Removal.PRECISE or not revealed:
            return dict(revealed)
        return self._ladder(lost + 1, revealed[lost + 1])

    def add_to(self, words: Words, clients: Sequence[Mapping[int, bytes]]) -> None:
        """Add clients' components with these seeds to a vector of the ring, in place.

        Bit for bit the same on every machine, and in pieces, so that no vector of the whole
        length is made.
        """
        self._pass_over(words, clients, np.add)

    def remove_from(self, words: Words, clients: Sequence[Mapping[int, bytes]]) -> None:
        """Subtract what `add_to` adds."""
        self._pass_over(words, clients, np.subtract)

    def _pass_over(
        self, words: Words, clients: Sequence[Mapping[int, bytes]], operation: np.ufunc
    ) -> None:
        bits = 8 * words.itemsize
        for k, table in enumerate(_tables(self)):
            seeds = [derive_seed(s[k], b"noise") for s in clients if k in s]
            if not seeds:
                continue
            # One component after the other: a wide one's table fills the cache.
            for start, drawn in table.draw_sums(seeds, len(words)):
                piece = words[start : start + len(drawn)]
                operation(piece, wrapped(drawn, bits), out=piece)

    def _ladder(self, start: int, seed: bytes) -> dict[int, bytes]:
        rungs = {start: seed}
        for k in range(start + 1, self.shared + 1):
            rungs[k] = _next_rung(rungs[k - 1])
        return rungs

    def _least_honest(self) -> int:
        return self.clients - self.colluders - self.dropouts

    def _doublings(self) -> int:
        return (self.dropouts - 1).bit_length()  # ⌈log₂ T⌉

    def _eta(self) -> Fraction:
        m = self.clients - self.colluders
        steps: int = 2 ** self._doublings()
        return self.target * self.dropouts / (steps * m * (m - self.dropouts))


@functools.lru_cache(maxsize=8)
def _components(plan: NoisePlan) -> tuple[Fraction, ...]:
    m, target = plan.clients - plan.colluders, plan.target
    if plan.removal is Removal.NONE:
        return (target / (m - plan.dropouts),)
    first = target / m
    if plan.removal is Removal.PRECISE:
        rest = (target / ((m - k + 1) * (m - k)) for k in range(1, plan.dropouts + 1))
        return (first, *rest)
    if not plan.dropouts:
        return (first,)
    eta = plan._eta()
    return (first, eta, *(eta * 2**k for k in range(plan._doublings())))


@functools.lru_cache(maxsize=64)
def _removed(plan: NoisePlan, lost: int) -> tuple[int, ...]:
    if not 0 <= lost <= plan.dropouts:
        raise ParameterError(f"{lost} clients are lost; the noise allows for {plan.dropouts}")
    if not plan.shared:
        return ()
    if plan.removal is Removal.PRECISE or lost == 0:
        return tuple(range(lost + 1, plan.shared + 1))
    m = plan.clients - plan.colluders
    excess = plan.target / (m - plan.dropouts) - plan.target / (m - lost)
    bits = math.floor(excess / plan._eta())
    return tuple(k for k in range(2, plan.shared + 1) if bits >> (k - 2) & 1)


@functools.lru_cache(maxsize=4)
def _tables(plan: NoisePlan) -> tuple[Table, ...]:
    """Return the tables of all components: built once, because a round draws from all."""
    return tuple(plan.family.table(variance) for variance in _components(plan))


def _next_rung(seed: bytes) -> bytes:
    """Return the next seed of a ladder, again one that can be shared."""
    tries = (derive_seed(seed, b"next rung %d" % i) for i in itertools.count())
    return next(rung for rung in tries if shareable(rung))
