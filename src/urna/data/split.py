"""Split one data set over clients, the ways the literature does.

Every split deals out every row exactly once and gives each client at least `MIN_SAMPLES`
(the floor DP-Hype's evaluation uses). Splits are for studies and simulations: they are
public and repeatable, and say nothing about privacy.
"""

import functools
import heapq
import operator
from collections.abc import Callable, Mapping
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from urna.data.dataset import Dataset, Samples
from urna.errors import ParameterError, UnknownName

__all__ = ["MIN_SAMPLES", "Split", "split", "split_rows"]

MIN_SAMPLES = 10
"""Fewest samples a client gets: enough for a local train and validation part."""

_DRAWS = 2_000  # label skews drawn before giving up; a skew met once in 300 is found surely enough
_PROBES = 50  # draws per suggestion in the error that follows
_POWER_STEPS = 30

Rows = npt.NDArray[np.intp]


class Split(StrEnum):
    """How clients' data differ."""

    IID = "iid"
    """Not at all: equal portions of a random order."""
    DIRICHLET = "dirichlet"
    """In their labels: each label is dealt out in proportions from Dirichlet(beta)."""
    QUANTITY = "quantity"
    """In their size: portions from Dirichlet(beta), beyond the first `MIN_SAMPLES`."""
    FEATURE = "feature"
    """In their features: portions along the data's principal direction, mixed by `level`."""
    WRITER = "writer"
    """As people differ: each writer's samples stay together at one client."""


def split(
    data: Dataset | Samples,
    *,
    clients: int,
    how: Split | str,
    seed: int | np.random.Generator,
    beta: float = 0.5,
    level: float = 0.8,
) -> list[Samples]:
    """Deal the training samples out to clients.

    Label skew follows Hsu, Qi and Brown (2019) and NIID-Bench (Li et al., 2022): for each
    label, proportions over the clients are drawn from a symmetric Dirichlet distribution. The
    whole draw is repeated while some client has fewer than `MIN_SAMPLES`, so what is returned
    is that distribution on the condition that nobody has too few.

    Quantity skew gives everyone `MIN_SAMPLES` and deals the rest in proportions from a
    Dirichlet distribution. Feature skew orders the rows by `level` times their rank along the
    first principal component plus `1 - level` times a random number, and cuts equal
    portions; NIID-Bench adds noise to features instead, but this keeps the data real. A split
    by writer with fewer clients than writers gives each next writer, in random order, to the
    client with the fewest samples.

    Args:
        data: A data set, whose training samples are dealt out, or samples. Only a data set
            knows its writers.
        clients: Number of clients, at least two.
        how: A `Split` or its name.
        seed: Public seed, or a generator to draw from. The same seed gives the same split.
        beta: Concentration for label and quantity skew; smaller is more skewed. Other splits
            do not look at it.
        level: From 0 (iid) to 1 (fully ordered) for feature skew. Other splits do not look
            at it.

    Returns:
        One `Samples` per client.

    Raises:
        UnknownName: There is no such split.
        ParameterError: The data cannot be split so; the message says what would be possible.

    Example:
        >>> from urna.data import load
        >>> parts = split(load("digits"), clients=60, how="dirichlet", beta=0.5, seed=0)
        >>> len(parts), sum(len(part) for part in parts)
        (60, 1438)
    """
    samples = data.train if isinstance(data, Dataset) else data
    rows = split_rows(data, clients=clients, how=how, seed=seed, beta=beta, level=level)
    return [samples.take(part) for part in rows]


def split_rows(
    data: Dataset | Samples,
    *,
    clients: int,
    how: Split | str,
    seed: int | np.random.Generator,
    beta: float = 0.5,
    level: float = 0.8,
) -> list[Rows]:
    """Return the row numbers each client gets; arguments and errors are those of `split`."""
    if how not in list(Split):
        raise UnknownName("split", str(how), Split)
    samples = data.train if isinstance(data, Dataset) else data
    _check_counts(len(samples), clients)
    rng = _generator(seed)
    dealers: Mapping[Split, Callable[[], list[Rows]]] = {
        Split.IID: lambda: _portions(rng.permutation(len(samples)), clients),
        Split.DIRICHLET: lambda: _by_label(samples, clients, _positive(beta), rng),
        Split.QUANTITY: lambda: _by_quantity(len(samples), clients, _positive(beta), rng),
        Split.FEATURE: lambda: _by_feature(samples, clients, _share(level), rng),
        Split.WRITER: lambda: _by_writer(data, clients, rng),
    }
    return dealers[Split(how)]()


def _portions(order: Rows, clients: int) -> list[Rows]:
    return list(np.array_split(order, clients))


def _by_label(samples: Samples, clients: int, beta: float, rng: np.random.Generator) -> list[Rows]:
    if np.issubdtype(samples.targets.dtype, np.inexact):
        raise ParameterError(
            "label skew needs classes, and these targets are real numbers; split by quantity "
            "or by feature"
        )
    labels, totals = np.unique(samples.targets, return_counts=True)
    counts = _label_counts(totals, clients, beta, _DRAWS, rng)
    if counts is None:
        raise ParameterError(_too_skewed(totals, clients, beta, rng))
    parts: list[list[Rows]] = [[] for _ in range(clients)]
    for label, row in zip(labels, counts, strict=True):
        members = rng.permutation(np.flatnonzero(samples.targets == label))
        for part, piece in zip(parts, np.split(members, np.cumsum(row)[:-1]), strict=True):
            part.append(piece)
    # Mixed, so that a local part taken from the end does not hold the last label only.
    return [rng.permutation(np.concatenate(part)) for part in parts]


def _label_counts(
    totals: npt.NDArray[np.intp], clients: int, beta: float, draws: int, rng: np.random.Generator
) -> npt.NDArray[np.intp] | None:
    """Draw how many rows of each label each client gets, or None if all draws starve one."""
    for _ in range(draws):
        shares = rng.dirichlet(np.full(clients, beta), size=len(totals))
        counts = np.stack([_whole(t, s) for t, s in zip(totals, shares, strict=True)])
        if counts.sum(axis=0).min() >= MIN_SAMPLES:
            return counts
    return None


def _whole(total: int, shares: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
    """Round shares of a total to whole numbers that add up to it."""
    ends = np.floor(np.cumsum(shares) * total + 0.5).astype(np.intp)
    ends[-1] = total
    return np.diff(np.minimum(ends, total), prepend=0)


def _too_skewed(
    totals: npt.NDArray[np.intp], clients: int, beta: float, rng: np.random.Generator
) -> str:
    """Say which larger beta, and how many clients, were seen to work."""
    offers = []
    for larger in (beta * 2**step for step in range(1, 12)):
        if _label_counts(totals, clients, larger, _PROBES, rng) is not None:
            offers.append(f"beta {larger:g}")
            break
    for fewer in (clients // 2**step for step in range(1, 12)):
        if fewer >= 2 and _label_counts(totals, fewer, beta, _PROBES, rng) is not None:
            offers.append(f"{fewer} clients")
            break
    hint = f"possible would be {' or '.join(offers)}" if offers else "use more data"
    return (
        f"every client needs at least {MIN_SAMPLES} samples; {_DRAWS:,} draws of label skew with "
        f"beta {beta:g} over {clients} clients and {totals.sum():,} samples always left one "
        f"with fewer; {hint}"
    )


def _by_quantity(total: int, clients: int, beta: float, rng: np.random.Generator) -> list[Rows]:
    spare = total - MIN_SAMPLES * clients
    sizes = MIN_SAMPLES + _whole(spare, rng.dirichlet(np.full(clients, beta)))
    return np.split(rng.permutation(total), np.cumsum(sizes)[:-1])


def _by_feature(
    samples: Samples, clients: int, level: float, rng: np.random.Generator
) -> list[Rows]:
    # Shuffled first, so that rows with equal scores fall in random order.
    order = rng.permutation(len(samples))
    scores = _principal_scores(samples.features)[order]
    ranks = np.empty(len(order))
    ranks[np.argsort(scores, kind="stable")] = np.arange(len(order)) / len(order)
    mixed = level * ranks + (1 - level) * rng.random(len(order))
    parts = _portions(order[np.argsort(mixed, kind="stable")], clients)
    return [rng.permutation(part) for part in parts]


def _principal_scores(features: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return each row's place along the first principal component, found by power iteration.

    A fixed number of steps: the split needs a direction of large variance, not the exact one.
    """
    if hasattr(features, "select_dtypes"):  # a pandas frame: along its numbers
        features = features.select_dtypes("number").to_numpy(dtype=np.float64, na_value=0.0)
    matrix = features.reshape(len(features), -1)
    mean = matrix.mean(axis=0, dtype=np.float64)
    direction = matrix.std(axis=0, dtype=np.float64)
    for _ in range(_POWER_STEPS):
        length = np.linalg.norm(direction)
        if length == 0:
            break  # constant features: every row has the same place
        direction = (direction / length).astype(matrix.dtype)
        scores = matrix @ direction - mean @ direction
        direction = (scores.astype(matrix.dtype) @ matrix).astype(np.float64) - scores.sum() * mean
    return np.asarray(matrix @ direction, dtype=np.float64)


def _by_writer(data: Dataset | Samples, clients: int, rng: np.random.Generator) -> list[Rows]:
    if not isinstance(data, Dataset):
        raise ParameterError(
            "a split by writer needs to know the writers: pass the data set, not its samples"
        )
    if data.writers is None:
        raise ParameterError(
            f"{data.name!r} does not say who made each sample; split it by label, quantity or "
            "feature, or use a set with writers ('mnist' from a folder)"
        )
    _, writer, sizes = np.unique(data.writers, return_inverse=True, return_counts=True)
    if clients > len(sizes):
        raise ParameterError(
            f"{clients} clients need as many writers, {data.name!r} has {len(sizes)}; at most "
            f"{len(sizes)} clients are possible"
        )
    mixed = rng.permutation(len(sizes))
    largest_first = mixed[np.argsort(-sizes[mixed], kind="stable")]
    deal = functools.partial(_deal, sizes)
    for order in (mixed, largest_first):  # the second order is the evener, but hardly random
        owner = deal(order, clients)
        if _fewest(owner, sizes, clients) >= MIN_SAMPLES:
            by_row = owner[writer]
            return [rng.permutation(np.flatnonzero(by_row == c)) for c in range(clients)]
    fits = (c for c in range(clients - 1, 0, -1)
            if _fewest(deal(largest_first, c), sizes, c) >= MIN_SAMPLES)  # fmt: skip
    raise ParameterError(
        f"every client needs at least {MIN_SAMPLES} samples, and the {len(sizes)} writers of "
        f"{data.name!r} do not give that to {clients} clients; {next(fits)} clients are possible"
    )


def _deal(sizes: npt.NDArray[np.intp], order: Rows, clients: int) -> Rows:
    """Give each writer in turn to the client with the fewest samples; return the owners."""
    owner = np.empty(len(sizes), dtype=np.intp)
    heap = [(0, client) for client in range(clients)]
    for writer in order:
        held, client = heap[0]
        owner[writer] = client
        heapq.heapreplace(heap, (held + int(sizes[writer]), client))
    return owner


def _fewest(owner: Rows, sizes: npt.NDArray[np.intp], clients: int) -> int:
    return int(np.bincount(owner, weights=sizes, minlength=clients).min())


def _check_counts(total: int, clients: int) -> None:
    try:
        operator.index(clients)
    except TypeError as error:
        raise ParameterError(f"clients must be a whole number, got {clients!r}") from error
    if clients < 2:
        raise ParameterError(f"a split needs at least two clients, got {clients}")
    if total < MIN_SAMPLES * clients:
        possible = total // MIN_SAMPLES
        at_most = f"at most {possible} clients are possible" if possible >= 2 else "use more data"
        raise ParameterError(
            f"{clients} clients with at least {MIN_SAMPLES} samples each need "
            f"{MIN_SAMPLES * clients:,} samples, got {total:,}; {at_most}"
        )


def _generator(seed: int | np.random.Generator) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    try:
        return np.random.default_rng(operator.index(seed))
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"seed must be a whole number of at least 0, or a generator, got {seed!r}"
        ) from error


def _positive(beta: float) -> float:
    # Beyond these bounds a draw is all or nothing, or even, and float64 no longer carries it.
    if not 1e-3 <= beta <= 1e6:
        raise ParameterError(f"beta must lie in 0.001..1000000, got {beta}")
    return float(beta)


def _share(level: float) -> float:
    if not 0 <= level <= 1:
        raise ParameterError(f"level must lie in 0..1, got {level}")
    return float(level)
