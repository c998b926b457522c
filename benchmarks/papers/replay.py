"""Hold votes again on recorded local losses: what would a vote have given us?

Recorded losses are no secret to whoever replays them, so nothing here is private and nothing
is counted in a ledger. The noise is the mechanism's own, drawn from a public generator.
"""

import collections
import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

from urna.errors import ParameterError
from urna.files import check_folder, write_whole
from urna.local import Losses, Progress, losses_of_each
from urna.noise import IntVector, Table
from urna.privacy import Budget
from urna.privacy.cost import GAUSSIAN
from urna.progress import Steps, live_line
from urna.randomness import SEED_BYTES
from urna.space import Axis, Space
from urna.systems.vote.ballot import Ballot, BallotKind, BallotShape, fill_ballot
from urna.systems.vote.decode import Decoder, NoisyVotes, PosteriorDecoder
from urna.systems.vote.fill import as_clients, as_objective, as_space
from urna.systems.vote.plan import plan
from urna.systems.vote.settings import choose_ballot

__all__ = [
    "NOT_PRIVATE",
    "Recording",
    "Replayed",
    "read_recording",
    "record_losses",
    "replay",
    "unnamed_space",
]

NOT_PRIVATE = (
    "NOT PRIVATE: every client's losses in the clear, for research on data of your own. No ledger "
    "counts them"
)
"""What a file of recorded losses says of itself."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Local losses of real clients, and how good each candidate turned out to be.

    Args:
        losses: Shape (clients, candidates); lower is better, not finite is worst.
        quality: What a winner is judged by, one number per candidate; higher is better.
        judged_by: What that number is.
        space: The candidates, where the file says.
    """

    losses: Array
    quality: Array
    judged_by: str
    space: Space | None = None

    def __post_init__(self) -> None:
        if self.losses.ndim != 2 or 0 in self.losses.shape:
            raise ParameterError(
                f"recorded losses have the shape (clients, candidates), got {self.losses.shape}"
            )
        if self.quality.shape != self.losses.shape[1:]:
            raise ParameterError(
                f"{self.losses.shape[1]} candidates need one {self.judged_by} each, got shape "
                f"{self.quality.shape}"
            )
        if not np.isfinite(self.quality).any():
            raise ParameterError(f"no candidate has a finite {self.judged_by}")
        if not np.isfinite(self.losses).any():
            raise ParameterError("no client has a finite loss, so there is nothing to vote on")


@dataclass(frozen=True, slots=True)
class Replayed:
    """How good the winners of many votes at one budget were."""

    epsilon: float
    delta: float | None
    """None where nothing is private: no noise, or noise as given."""
    adjacency: str
    accountant: str
    ballot: str
    decoder: str
    noise_std: float
    """In votes."""
    draws: int
    judged_by: str
    mean_quality: float
    standard_error: float
    regret: float
    """Quality of the best candidate less the winners' mean."""
    top1_rate: float
    """Share of votes that the best candidate won."""
    winners: tuple[int, ...] = field(repr=False)
    """Who won each vote, in the order of the draws."""

    @property
    def wins(self) -> list[tuple[int, int]]:
        """Who won how many of the votes: (place, wins), the most frequent first."""
        return collections.Counter(sorted(self.winners)).most_common()

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON; an infinite epsilon as text."""
        federated = self.judged_by == FEDERATED
        return {
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else "inf",
            "delta": self.delta,
            "adjacency": self.adjacency,
            "accountant": self.accountant,
            "private": False,
            "ballot": self.ballot,
            "decoder": self.decoder,
            "noise_std": self.noise_std,
            "draws": self.draws,
            "judged_by": self.judged_by,
            "mean_federated_accuracy": self.mean_quality if federated else None,
            "mean_quality": self.mean_quality,
            "standard_error": self.standard_error,
            "regret": self.regret,
            "top1_rate": self.top1_rate,
            "winners": [
                {"place": place, "wins": wins, "share": wins / self.draws}
                for place, wins in self.wins
            ],
        }


FEDERATED = "federated accuracy"


def replay(
    recording: Recording,
    space: Space,
    *,
    epsilons: Sequence[float],
    rng: np.random.Generator,
    delta: float = 1e-5,
    ballot: BallotKind | str | None = None,
    votes: int | None = None,
    decoder: Decoder | None = None,
    draws: int = 60,
    noise_std: float | None = None,
    progress: Progress | None = None,
) -> list[Replayed]:
    """Return how good the winners are at each epsilon.

    Args:
        recording: Losses and what winners are judged by.
        space: The candidates, in the order of the recording.
        epsilons: Budgets to compare; an infinite one is a vote without noise.
        rng: Public generator of ties and noise.
        delta: Common to all budgets.
        ballot: How clients spread their vote; by scores unless `votes` are given.
        votes: How many candidates each client names in a top-k ballot.
        decoder: How winners are read from the tally; `PosteriorDecoder` by default.
        draws: How many votes are held at each epsilon.
        noise_std: Noise of the tally in votes, whatever epsilon asks for: to compare with a
            mechanism that was calibrated otherwise. Epsilon then only chooses how wide ballots
            are, and nothing is said about privacy.
        progress: Called with the votes held so far and their number in all.
    """
    clients, candidates = recording.losses.shape
    if len(space) != candidates:
        raise ParameterError(
            f"the space has {len(space)} candidates, the recording {candidates}. Name the space "
            "the losses were computed on, in its product order."
        )
    if draws < 1:
        raise ParameterError(f"draws must be at least 1, got {draws}")
    if noise_std is not None and not (math.isfinite(noise_std) and noise_std > 0):
        raise ParameterError(f"the noise must be finite and positive, got {noise_std}")
    kinds = [
        _Vote.of(epsilon, delta, clients, candidates, ballot, votes, noise_std)
        for epsilon in epsilons
    ]
    decoder = decoder or PosteriorDecoder()
    report = progress or (lambda done, total: None)
    quality = np.where(np.isfinite(recording.quality), recording.quality, -np.inf)
    worst = quality[np.isfinite(quality)].min()
    best = float(quality.max())
    replayed = []
    for number, (epsilon, vote) in enumerate(zip(epsilons, kinds, strict=True)):
        winners = []
        for draw, winner in enumerate(vote.winners(recording.losses, space, decoder, rng, draws)):
            winners.append(winner)
            report(number * draws + draw + 1, len(kinds) * draws)
        found = np.maximum(quality[winners], worst)
        replayed.append(
            Replayed(
                epsilon=epsilon,
                delta=vote.delta,
                adjacency=vote.adjacency,
                accountant=vote.accountant,
                ballot=str(vote.shape),
                decoder=decoder.name,
                noise_std=vote.std,
                draws=draws,
                judged_by=recording.judged_by,
                mean_quality=float(found.mean()),
                standard_error=float(found.std(ddof=1) / math.sqrt(draws)) if draws > 1 else 0.0,
                regret=best - float(found.mean()),
                top1_rate=float(np.mean(quality[winners] == best)),
                winners=tuple(winners),
            )
        )
    return replayed


@dataclass(frozen=True, slots=True, eq=False)
class _Vote:
    """One kind of vote, held as often as wanted."""

    shape: Ballot
    scale: int
    """Grid steps per unit of a ballot's weights."""
    table: Table | None
    std: float
    accountant: str
    adjacency: str
    delta: float | None

    @classmethod
    def of(
        cls,
        epsilon: float,
        delta: float,
        clients: int,
        candidates: int,
        ballot: BallotKind | str | None,
        votes: int | None,
        noise_std: float | None,
    ) -> "_Vote":
        if epsilon == math.inf:
            shape = choose_ballot(ballot, candidates=candidates, noise=0.0, votes=votes)
            if noise_std is not None:
                raise ParameterError("a vote at infinite epsilon has no noise: leave noise_std out")
            return cls(shape, 1, None, 0.0, "none: no noise", "none", None)
        vote = plan(
            clients=clients,
            candidates=candidates,
            budget=Budget(epsilon, delta),
            ballot=ballot,
            votes=votes,
        )
        tally = vote.tally
        # Skellam is closed under addition: all clients' noise is one draw.
        variance = tally.most_noise
        if noise_std is not None:
            variance = Fraction(noise_std * vote.vote) ** 2
        return cls(
            vote.shape,
            tally.scale,
            tally.noise.table(variance),
            math.sqrt(variance) / vote.vote,
            GAUSSIAN if noise_std is None else "none: noise as given",
            str(vote.terms.adjacency) if noise_std is None else "none",
            delta if noise_std is None else None,
        )

    def winners(
        self, losses: Array, space: Space, decoder: Decoder, rng: np.random.Generator, draws: int
    ) -> Iterator[int]:
        """Yield the winners of so many votes."""
        norm = self.shape.norm / self.shape.vote
        steps = self._exact(losses, rng)
        for draw in range(draws):
            if draw and isinstance(self.shape, BallotShape):  # lots move scores by a step only
                steps = self._exact(losses, rng)
            noisy = steps
            if self.table is not None:
                noisy = steps + self.table.draw(rng.bytes(SEED_BYTES), len(space))
            votes = NoisyVotes(
                space, noisy / (self.shape.vote * self.scale), self.std, len(losses), norm
            )
            yield decoder.winner(votes)

    def _exact(self, losses: Array, rng: np.random.Generator) -> IntVector:
        """Return the sum of all ballots, in grid steps."""
        total = np.zeros(losses.shape[1], dtype=np.int64)
        for row in losses:
            ballot = fill_ballot(row, self.shape, rng.bytes(SEED_BYTES))
            self.shape.check(ballot)
            total += ballot
        return total * self.scale


def record_losses(
    space: Space | Mapping[str, Any],
    objective: Any,  # noqa: ANN401 - see `as_objective`
    clients: Sequence[Any],
    path: Path | str,
    *,
    seed: int = 0,
    progress: Steps | bool | None = None,
) -> Recording:
    """Evaluate every candidate at every client and write the losses down, for `replay`.

    NOT PRIVATE. The file holds everybody's losses in the clear and belongs to whoever holds all
    the data anyway: it is for research, and only its owner may read it. No ledger counts it.

    Args:
        space: The candidates, in order; kept in the file.
        objective: How a client evaluates them on its data.
        clients: Each client's data.
        path: The .npz file to write.
        seed: Public seed of the clients' local training.
        progress: Called while it runs; a line in a terminal or a notebook by default.

    Raises:
        ParameterError: The objective cannot judge the space, or no client has a finite loss.
        OutputError: The file could not be written.
    """
    path, space = Path(path), as_space(space)
    if path.suffix != ".npz":
        raise ParameterError(f"recorded losses are an .npz file, got {path.name!r}")
    check_folder(path.parent)
    data = as_clients(clients)
    with live_line(progress) as report:
        each = losses_of_each(
            as_objective(objective),
            data,
            space,
            seeds=[seed] * len(data),
            progress=lambda done, total: report("evaluating candidates", done, total),
        )
        losses = np.array([_one_each(found, len(space)) for found in each])
    room = io.BytesIO()
    np.savez(room, losses=losses, space=np.array(space.as_json()), warning=np.array(NOT_PRIVATE))
    recording = _judged(losses, space)
    write_whole(path, room.getvalue(), mode=0o600)
    return recording


def _one_each(losses: object, candidates: int) -> Losses:
    """Return losses; where they are not one number for each candidate, none of them is finite."""
    try:
        found = np.asarray(losses, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.empty(0)
    return found if found.shape == (candidates,) else np.full(candidates, np.nan)


def read_recording(path: Path) -> Recording:
    """Read losses from an .npz file.

    It holds `losses` or `accuracies` of shape (clients, candidates), and may hold `federated`:
    the accuracy each candidate reaches when all clients train one model with it. Without that
    a winner is judged by the clients' mean. Where both are there, clients vote by accuracies,
    as in the paper, because these are what a winner is judged by. What `record_losses` wrote
    holds the space as well, as JSON text.

    Raises:
        ParameterError: It is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, NpzFile):
                raise ValueError("one array, not several with names")
            found = {
                name: file[name]
                for name in ("losses", "accuracies", "federated")
                if name in file.files
            }
            if any(array.dtype.kind not in "fiu" for array in found.values()):
                raise ValueError("arrays that are no numbers")
            held = {name: array.astype(np.float64) for name, array in found.items()}
            text = str(file["space"]) if "space" in file.files else None
    except OSError as error:
        raise ParameterError(f"cannot read the recording: {error}") from error
    except (ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise ParameterError(
            f"{path} is no .npz file of numbers. Save arrays with numpy.savez."
        ) from error
    if "losses" not in held and "accuracies" not in held:
        raise ParameterError(
            f"{path} holds neither `losses` nor `accuracies`. Save one of them, of shape (clients, "
            "candidates), with numpy.savez."
        )
    space = None if text is None else _space(text, path)
    losses = -held["accuracies"] if "accuracies" in held else held["losses"]
    if "federated" in held:
        return Recording(losses, held["federated"], FEDERATED, space)
    by = "mean local accuracy" if "accuracies" in held else "negative mean local loss"
    return _judged(losses, space, by)


def _space(text: str, path: Path) -> Space:
    try:
        return Space.from_mapping(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ParameterError(f"the space in {path} cannot be read: {error}") from error


def _judged(losses: Array, space: Space | None, by: str = "negative mean local loss") -> Recording:
    """Judge winners by the clients' mean."""
    if losses.ndim != 2 or not losses.size:
        return Recording(losses, np.zeros(1), "quality")
    # A candidate that failed at a client counts as that client's worst.
    worst = np.max(np.where(np.isfinite(losses), losses, -np.inf), axis=1, keepdims=True)
    voters = np.isfinite(worst[:, 0])
    filled = np.where(np.isfinite(losses), losses, worst)[voters]
    if not len(filled):
        return Recording(losses, np.zeros(losses.shape[1]), "quality")
    return Recording(losses, -filled.mean(axis=0), by, space)


def unnamed_space(candidates: int) -> Space:
    """Return a space for candidates of which nothing but their number is known."""
    return Space(candidate=Axis.categorical([str(place) for place in range(candidates)]))
