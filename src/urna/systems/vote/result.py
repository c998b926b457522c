"""What a private search returns, and how it is kept."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from urna.display import as_frame, axes_for, card
from urna.errors import ParameterError
from urna.privacy import PrivacyStatement
from urna.space import Candidate, Space
from urna.systems.result import UNREADABLE, Result
from urna.systems.vote.ballot import Ballot, read_ballot
from urna.systems.vote.decode import NoisyVotes
from urna.systems.vote.plan import EVEN
from urna.systems.vote.settings import COUNTS, Reveal
from urna.tally import Terms

UNREAD = "none yet"
"""The decoder of a result whose winner is not weighed yet."""

BY_REHEARSAL = "the tally alone could not have named even a unanimous one"
"""What is said of a winner that no odds are given for, because only a rehearsal decided."""
_OLDER = (("vote", 1), ("winner", 1))  # 0.2 had a kind for winners alone
_MOST_VOTES, _MOST_CANDIDATES = 1e15, 10**9  # beyond them a file lies
_NAMED = 3  # near ties that are written out
_COLOURS = ("#c8ccd4", "#7f9fd1", "#1f4e9c")  # others, near ties, the winner


@dataclass(frozen=True, slots=True)
class Revealed:
    """What a vote has revealed beside its winner, and whom that rested on."""

    counts: npt.NDArray[np.float64] | None = None
    """Noisy votes for each candidate; None where nobody has seen any."""
    gap: float | None = None
    """Fewest votes the winner would have to lose to be overtaken, noise included, where a full
    ballot gives three; None where it was not revealed."""
    by: Reveal = COUNTS
    """What was to be revealed, and who helped."""

    def __post_init__(self) -> None:
        if (self.counts is None) is not self.by.winner or (
            self.gap is not None and not self.by.winner
        ):
            raise ParameterError("a vote reveals counts, or its winner and perhaps the gap to it")

    @property
    def kind(self) -> str:
        """`counts`, or `winner` where nothing else is known."""
        return self.by.kind

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "kind": self.kind,
            "counts": None if self.counts is None else self.counts.tolist(),
            "gap": self.gap,
            "helper": self.by.helper,
            "verified": self.by.verified,
        }

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> "Revealed":
        """Read what `as_mapping` wrote."""
        counts, gap = said["counts"], said["gap"]
        return cls(
            None if counts is None else np.array(counts, dtype=np.float64),
            None if gap is None else float(gap),
            Reveal(said["kind"], said["helper"], said["verified"] is True),
        )


@dataclass(frozen=True, slots=True)
class VoteResult(Result):
    """The winner of a vote, what was revealed beside it, and what it cost.

    Everything in it was computed from what was revealed and public facts.
    """

    kind: ClassVar[str] = "vote"
    version: ClassVar[int] = 2
    later: ClassVar[tuple[str, ...]] = ("rehearsal",)
    space: Space
    winner: int
    """The winner's place in the space."""
    revealed: Revealed
    """Noisy votes for each candidate; or none, and perhaps the winner's gap."""
    standard_error: float
    """Standard deviation of the noise of each candidate, in votes, counts revealed or not."""
    credible_set: tuple[int, ...]
    """Places of candidates that may well lead, the winner first, then the most probable; the
    winner alone where nothing more is known."""
    privacy: PrivacyStatement
    terms: Terms
    ballot: Ballot
    took_part: int
    """How many clients' ballots were counted."""
    lost: Mapping[int, str]
    """Whose ballot was not, and why."""
    confidence: float | None = None
    """Probability that the winner truly leads, given the counts alone; None where they cannot
    tell, or there are none."""
    decoder: str | None = None
    """How the winner was read from counts; None where it was revealed itself."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Who broke the protocol, counted or not, and how."""
    plan: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The vote's plan as plain values."""
    entry: str | None = None
    """Its id in the ledger, where there is one."""
    when: float | None = None
    """Its day, in seconds since the epoch; None of a scripted run: those are all the same."""
    rehearsal: Mapping[str, Any] | None = None
    """The public data on which the search was rehearsed, and how right that was; or None."""

    @property
    def best(self) -> Candidate:
        """The winning hyperparameters."""
        candidate: Candidate = self.space[self.winner]
        return candidate

    @property
    def votes(self) -> npt.NDArray[np.float64]:
        """The noisy votes for each candidate; a ParameterError where nobody has seen any."""
        if self.revealed.counts is None:
            raise ParameterError("only the winner of this vote was revealed: there are no counts")
        return self.revealed.counts

    @property
    def best_params_(self) -> Candidate:
        """The winning hyperparameters, by scikit-learn's name: `model.set_params(**…)`."""
        return self.best

    @property
    def cv_results_(self) -> dict[str, list[Any]]:
        """All candidates in columns, as scikit-learn's searches have them.

        `rank` is by noisy votes, equal ones sharing the better rank; the `winner`, read from the
        whole tally, may have another than 1.
        """
        candidates, votes = list(self.space), self.votes.tolist()
        before = np.sort(-self.votes)
        return {
            "params": candidates,
            **{f"param_{name}": [c[name] for c in candidates] for name in self.space.axes},
            "noisy_votes": votes,
            "std": [self.standard_error] * len(votes),
            "rank": (np.searchsorted(before, -self.votes, side="left") + 1).tolist(),
            "in_credible_set": [place in self.credible_set for place in range(len(votes))],
            "winner": [place == self.winner for place in range(len(votes))],
        }

    def to_frame(self) -> Any:  # noqa: ANN401 - a pandas.DataFrame
        """Return `cv_results_` as a pandas frame, one row per candidate."""
        return as_frame(self.cv_results_)

    def plot(self, axes: Any = None, *, count: int = 20) -> Any:  # noqa: ANN401 - matplotlib's
        """Draw the noisy votes of the foremost candidates, with their noise, with matplotlib."""
        axes = axes_for(axes)
        places = self.places(count)[::-1]  # matplotlib begins at the bottom
        axes.barh(
            [_written(self.space[place]) for place in places],
            self.votes[places],
            xerr=self.standard_error,
            color=[_COLOURS[(p in self.credible_set) + (p == self.winner)] for p in places],
        )
        axes.set_xlabel(f"noisy votes ± {self.standard_error:.1f}; dark: winner, then near ties")
        axes.set_title("private vote" if self.privacy.private else "NOT PRIVATE")
        return axes

    @property
    def total(self) -> npt.NDArray[np.int64]:
        """What was revealed, as integers: what transcripts have a digest of.

        The noisy sum in grid steps; or the winner, and the steps of its gap or -1.
        """
        if self.revealed.counts is None:
            fineness, gap = int(self.plan["selection"]["fineness"]), self.revealed.gap
            steps = -1 if gap is None else round(gap * (1 << fineness))
            return np.array([self.winner, steps], dtype=np.int64)
        scale = self.ballot.vote * int(self.plan["scale"])
        return np.asarray(np.rint(self.revealed.counts * scale), dtype=np.int64)

    def ranking(self, count: int = 5) -> list[tuple[Candidate, float]]:
        """Return the candidates with the most noisy votes, and those votes."""
        return [(self.space[i], float(self.votes[i])) for i in self.places(count)]

    def places(self, count: int) -> list[int]:
        """Return the places of those with the most noisy votes, the winner always among them."""
        order: list[int] = np.argsort(-self.votes, kind="stable")[:count].tolist()
        if self.winner not in order:
            order[-1] = self.winner
        return order

    def as_mapping(self) -> dict[str, Any]:
        """Return the result as plain values for JSON, from which `read` makes it again."""
        more = {"best": self.best, "space_fingerprint": self.space.fingerprint}
        return Result.as_mapping(self) | more

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "VoteResult":
        """Read what `as_mapping` wrote, or version 0.2 of either kind.

        Raises:
            ParameterError: It is no result of a vote, or of a newer version.
        """
        cls._check_kind(mapping, *_OLDER)
        try:
            said = mapping if mapping["version"] == cls.version else _renamed(mapping)
            space = Space.from_mapping(said["space"])
            read = cls._read(
                said,
                space=lambda _: space,
                revealed=Revealed.read,
                ballot=lambda ballot: read_ballot(ballot, len(space)),
                rehearsal=_rehearsal,
            )
            read._check()
        except UNREADABLE as error:
            raise ParameterError(f"the vote cannot be read: {error!r}") from error
        return read

    def _check(self) -> None:
        """Raise ValueError where numbers that were read cannot belong together."""
        count, said = len(self.space), self.rehearsal
        counts, gap = self.revealed.counts, self.revealed.gap
        if counts is not None and not (
            counts.shape == (count,) and np.all(np.abs(counts) < _MOST_VOTES)
        ):
            raise ValueError(f"votes are {count} finite numbers, one for each candidate")
        if gap is not None and not math.isfinite(gap):
            raise ValueError(f"a gap is a number of votes, got {gap}")
        if not 0 <= self.standard_error < _MOST_VOTES:
            raise ValueError(f"a standard error is not negative, got {self.standard_error}")
        if not all(0 <= place < count for place in (self.winner, *self.credible_set)):
            raise ValueError(f"winner and near ties are places in 0..{count - 1}")
        if self.credible_set[:1] != (self.winner,):
            raise ValueError("the winner is the first of the credible set")
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise ValueError(f"a probability lies in [0, 1], got {self.confidence}")
        if said is not None and said["voted_on"] != count:
            raise ValueError(f"{count} candidates were voted on, got {said['voted_on']}")
        if said is not None and not count <= said["candidates"] <= _MOST_CANDIDATES:
            raise ValueError(f"{count} candidates were left of {said['candidates']}")

    @property
    def tally(self) -> NoisyVotes:
        """What a decoder may look at."""
        ballots, norm = self.took_part * self.terms.shards, self.ballot.norm / self.ballot.vote
        return NoisyVotes(self.space, self.votes, self.standard_error, ballots, norm)

    def __str__(self) -> str:
        said = [f"best: {_written(self.best)}"]
        counts, gap = self.revealed.counts, self.revealed.gap
        if counts is not None:
            votes = f"{counts[self.winner]:.1f} ± {self.standard_error:.1f}"
            said += [f"votes: {votes}, {self.certainty}", *self._near(), *self._rehearsed()]
        elif gap is not None:
            said.append(
                f"gap: {gap:g}, the votes it would have to lose to be overtaken, noise included "
                f"(± {self.standard_error:.1f}; a ballot gives 0 to {self.ballot.most})"
            )
        return "\n".join([*said, f"privacy: {self.privacy}"])

    def _rehearsed(self) -> list[str]:
        if self.rehearsal is None:
            return []
        said = self.rehearsal
        trust = said["trust"]
        weighed = "" if trust is None else f"; right, given the tally, with {100 * trust:.0f} %"
        left = said["candidates"] - said["voted_on"]
        others = f", the other {left} could not win" if left else ""
        return [
            f"rehearsed on {said['data']}, which costs nothing if it is public: {said['voted_on']} "
            f"of {said['candidates']} candidates voted on{others}{weighed}"
        ]

    @property
    def inconclusive(self) -> bool:
        """Whether counts were weighed, and do not tell who leads."""
        weighed = self.revealed.counts is not None and self.decoder != UNREAD
        return weighed and len(self.space) > 1 and self.confidence is None and not self.by_rehearsal

    @property
    def verdict(self) -> str:
        """What the vote chose, and whether it could tell, in a sentence."""
        if self.revealed.counts is None:
            return f"the vote chose: {_written(self.best)}"
        if self.inconclusive:
            return f"the vote is inconclusive, {self.certainty}; used: {_written(self.best)}"
        return f"the vote chose: {_written(self.best)}, {self.certainty}"

    @property
    def certainty(self) -> str:
        """How sure the tally makes us of the winner, in words."""
        if self.by_rehearsal:
            return f"the rehearsal's choice: {BY_REHEARSAL}"
        if self.confidence is None:
            return "a guess: under this noise the tally cannot tell who leads"
        ahead = math.floor(1000 * self.confidence) / 10  # never rounded up to certainty
        return f"truly ahead with probability {ahead:.1f} %{self.among}"

    @property
    def by_rehearsal(self) -> bool:
        """Whether the tally could not decide, as planned, and a rehearsal that was heeded did."""
        best, said = self.plan.get("best_case"), self.rehearsal
        heeded = said is not None and said["trust"] is not None
        return heeded and isinstance(best, float) and best < EVEN

    @property
    def considered(self) -> int:
        """How many candidates there were before a rehearsal left some out."""
        return len(self.space) if self.rehearsal is None else int(self.rehearsal["candidates"])

    @property
    def among(self) -> str:
        """Which candidates could win, as a clause; empty where all could."""
        count = len(self.space)
        if self.considered == count:
            return ""
        return f" among the {count} of {self.considered} that were voted on"

    def _repr_html_(self) -> str:
        rows = []
        if (counts := self.revealed.counts) is not None:
            rows = [("", *self.space.axes, "noisy votes")]
            rows += [
                ("→" if p == self.winner else "", *map(str, self.space[p].values()), votes)
                for p, votes in ((p, f"{counts[p]:.1f}") for p in self.places(5))
            ]
        return card(
            f"best: {_written(self.best)}",
            str(self).splitlines()[1:],
            private=self.privacy.private,
            table=rows,
        )

    def _near(self) -> list[str]:
        near = self.credible_set[1:]
        if not near:
            return []
        named = "; ".join(_written(self.space[place]) for place in near[:_NAMED])
        more = f"; and {len(near) - _NAMED} more" * (len(near) > _NAMED)
        return [
            "near ties, to choose from at no cost if the choice uses no private data: "
            f"{named}{more}"
        ]


def _renamed(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return what version 0.2 wrote of counts, or of a winner alone, under today's names."""
    mapping = dict(mapping)
    if (considered := mapping.pop("first_round", None)) is not None:
        kept = f"A first vote had kept these of {int(considered)} candidates"
        said = mapping["privacy"]
        mapping["privacy"] = {**said, "caveats": [*said["caveats"], kept]}
    if mapping["kind"] == VoteResult.kind:
        near, same = mapping["near_ties"], {}
        revealed = {"kind": "counts", "counts": mapping["votes"], "gap": None}
        revealed |= {"helper": None, "verified": False}
    else:
        near, same = [], {"confidence": None, "decoder": None}
        same["standard_error"] = mapping["plan"]["noise_std"]
        revealed = {"kind": "winner", "counts": None}
        revealed |= {name: mapping[name] for name in ("gap", "helper", "verified")}
    return {
        **mapping,
        **same,
        "revealed": revealed,
        "credible_set": [mapping["winner"], *near],
    }


def _rehearsal(said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return what was written of a rehearsal, whose numbers are numbers."""
    if said is None:
        return None
    trust = None if said["trust"] is None else float(said["trust"])
    if trust is not None and not 0 <= trust <= 1:
        raise ValueError(f"a probability lies in [0, 1], got {trust}")
    counts = {name: int(said[name]) for name in ("candidates", "voted_on")}
    return {**said, **counts, "data": str(said["data"]), "trust": trust}


def _written(candidate: Candidate) -> str:
    return ", ".join(f"{name}={value}" for name, value in candidate.items())
