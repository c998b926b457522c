"""What opening only the winner gains over opening a tally, and what the circuit costs.

Votes are held again on the recordings of the evaluation (n = 100, and random subsets of n = 20)
and on the tables of the battery (benchmarks/battery), each with the default tally and with the
winner alone, at the same epsilon (the tally at δ = 10⁻⁵; a winner needs none) and judged by the
same scores. Rules for ballots were fixed on simulated landscapes (benchmarks/landscapes.py), what
is expected of axes on drawn tables (benchmarks/battery/drawn.py). Then one winner of 200
candidates, with noise and gap, is really found by leader and helper.

    python benchmarks/two_organisations.py --format json
    python benchmarks/two_organisations.py --parity

With --parity: what a part of a budget (of μ²) that is shared with training buys each opening, and
what it finds, on fresh landscapes and on the recordings; `first` is a winner that is entered before
everything else and counts by its epsilon, `k1` and `k4` count by their μ.

Ratios are regret of the winner alone over regret of the tally; for n = 100 the worse of ε = 0.1 and
ε = 0.25. Those that are printed last are of the recordings.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.battery.tables import FOLDER, read_tables
from benchmarks.papers.replay import Recording, read_recording, replay

from urna.errors import ParameterError
from urna.forecast.votes import draw_winners, forecast
from urna.privacy import Budget, Cover, SelectionRelease, parts_of, pure_first
from urna.protocols.winner import Circuit
from urna.protocols.winner import run as find_winner
from urna.randomness import OsSecrets
from urna.space import Space
from urna.systems.vote import PosteriorDecoder, Reveal, VotePlan, VoteSettings, plan_vote
from urna.systems.vote.ballot import LevelShape
from urna.systems.vote.plan import head_start
from urna.systems.vote.settings import choose_levels
from urna.tally import Terms

RESULTS = Path(__file__).parent / "dp_hype" / "results"
CANDIDATES = 200


def recordings(clients: int) -> Iterator[Recording]:
    """Yield every recording of so many clients of which federated accuracies are known."""
    for path in sorted((RESULTS / "losses").glob(f"*-n{clients}-*.npz")):
        yield read_recording(path)


def tables(clients: int, rng: np.random.Generator) -> Iterator[tuple[Recording, Space]]:
    """Yield the battery's tables among so many clients, drawn from those recorded or all alike."""
    for table in read_tables(FOLDER):
        recorded = len(table.losses)
        if clients % recorded == 0:
            losses = np.repeat(table.losses, clients // recorded, axis=0)
        else:
            losses = table.losses[rng.choice(recorded, clients, replace=clients > recorded)]
        yield Recording(losses, table.final / 100, "final"), table.space


def subset(recording: Recording, clients: int, rng: np.random.Generator) -> Recording:
    """Return a recording of some of the clients."""
    chosen = rng.choice(len(recording.losses), clients, replace=False)
    return Recording(recording.losses[chosen], recording.quality, recording.judged_by)


def winner_regret(
    recording: Recording, space: Space, epsilon: float, rng: np.random.Generator, draws: int
) -> float:
    """Return the mean regret of votes of which only the winner is opened.

    The noise is the mechanism's own, from a public generator: nothing here is secret.
    """
    plan = plan_vote(Terms.of(len(recording.losses), Budget(epsilon, 1e-5)), space, WINNER)
    total = sum(plan.fill(losses, b"") for losses in recording.losses)
    order = np.array(plan.selection.order)
    start = np.array(plan.selection.head_start)
    noise = rng.geometric(-math.expm1(-plan.selection.release.rate), (draws, len(space))) - 1
    winners = order[np.argmax((total + start + noise)[:, order], axis=1)]
    return float(judged(recording).max() - judged(recording)[winners].mean())


def judged(recording: Recording) -> npt.NDArray[np.float64]:
    """Return qualities; what diverged is as bad as the worst that did not."""
    quality = recording.quality
    return np.where(np.isfinite(quality), quality, quality[np.isfinite(quality)].min())


def regrets(
    some: list[tuple[Recording, Space]], epsilon: float, rng: np.random.Generator, draws: int
) -> tuple[float, float]:
    """Return the mean regrets of tally and winner, in points."""
    tally = [replay(*each, epsilons=[epsilon], rng=rng, draws=draws)[0].regret for each in some]
    winner = [winner_regret(*each, epsilon, rng, 20 * draws) for each in some]
    return 100 * float(np.mean(tally)), 100 * float(np.mean(winner))


def circuit(largest_of: int) -> tuple[float, float, int]:
    """Return CPU seconds of both parties, megabytes between them, and AND gates."""
    made = Circuit(SelectionRelease(0.1, 6, CANDIDATES, largest_of), 10)
    gates = made.ands  # counted before the clock runs, as a plan is
    shares = np.arange(CANDIDATES, dtype=np.uint64)
    seconds = math.inf
    for number in range(3):
        start = time.process_time()
        found = find_winner(
            made,
            shares,
            shares,
            context=b"%d" % number,
            leader_source=OsSecrets(),
            helper_source=OsSecrets(),
        )
        seconds = min(seconds, time.process_time() - start)
    return seconds, sum(found.traffic.values()) / 1e6, gates


WINNER = VoteSettings(reveal=Reveal("winner", "a helper"))
DELTA = 1e-5


def openings(clients: int, epsilon: float, part: float, space: Space) -> dict[str, VotePlan]:
    """Return what a part of a budget buys each opening, the rest of it left to training."""
    whole = Budget(epsilon, DELTA)
    tally, _ = parts_of(whole, (part, 1 - part))
    first, _ = pure_first(whole, part)
    terms = Terms.of(clients, tally)
    found: dict[str, VotePlan] = {
        "tally": plan_vote(terms, len(space)),
        "first": plan_vote(terms.costing(first), space, WINNER),
    }
    alone: dict[str, Any] = {}
    several = {"largest_of": 4, "fineness": 4, "gap": False}
    for name, kind in (("k1", alone), ("k4", several)):
        bought = priced_beside(Cover(whole).mu * math.sqrt(part), len(space), kind)
        if bought is not None:
            found[name] = selecting(terms, space, bought)
    return found


def priced_beside(mu: float, candidates: int, kind: dict[str, Any]) -> SelectionRelease | None:
    """Return the selection of largest epsilon that costs at most μ beside sums, to 1 %."""
    low, high, found = 1e-4, 50.0, None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        try:
            tried = SelectionRelease(middle, LevelShape(candidates).reach, candidates, **kind)
        except ParameterError:  # no noise is that fine
            low = middle
            continue
        if tried.mu <= mu:
            low, found = middle, tried
        else:
            high = middle
    return found


def selecting(terms: Terms, space: Space, release: SelectionRelease) -> VotePlan:
    """Plan a vote whose winner is selected with this noise."""
    terms = terms.costing(Budget(release.epsilon, DELTA))
    plan = plan_vote(terms, space, WINNER)
    ballots = terms.clients * terms.shards
    return replace(
        plan,
        mechanism=replace(plan.selection, release=release, head_start=head_start(space, release)),
        shape=choose_levels(len(space), noise_std=release.noise_std, ballots=ballots),
    )


def found_on(
    some: list[Recording],
    plan: VotePlan,
    space: Space,
    rng: np.random.Generator,
    draws: int,
) -> float:
    """Return the mean regret on recordings, in points."""
    decoder = PosteriorDecoder()
    missed = []
    for each in some:
        quality = judged(each)
        winners = list(draw_winners(each.losses, space, plan, decoder, rng, draws))
        missed.append(quality.max() - quality[winners].mean())
    return 100 * float(np.mean(missed))


def parity(subsets: int, draws: int, held: int, seed: int) -> list[dict[str, object]]:
    """Return what each opening finds beside training, one row for each budget and part."""
    space, rng = Space.read(RESULTS / "space.toml"), np.random.default_rng(seed)
    large = list(recordings(100))
    small = [subset(each, 20, rng) for each in large for _ in range(subsets)]
    rows: list[dict[str, object]] = []
    for epsilon in (1.0, 3.0):
        for part in (0.1, 0.5):
            for clients, some in ((20, small), (100, large)):
                row: dict[str, object] = {"epsilon": epsilon, "part": part, "clients": clients}
                for name, plan in openings(clients, epsilon, part, space).items():
                    land = forecast(plan, space, held=held, seed=seed)
                    each = draws if clients == 100 else max(1, draws // subsets)
                    more = 1 if name == "tally" else 20
                    row[name] = {
                        "epsilon": float(plan.terms.budget.epsilon),
                        "landscapes": 100 * land.regret,
                        "landscapes_error": 100 * land.standard_error,
                        "recordings": found_on(some, plan, space, rng, more * each),
                    }
                rows.append(row)
    return rows


def print_parity(rows: list[dict[str, object]]) -> None:
    """Print regrets: landscapes in per cent of the range, recordings in points of accuracy."""
    print("epsilon part clients | opening: epsilon, regret on landscapes, on recordings")
    for row in rows:
        said = [
            f"{name} {each['epsilon']:.3f} {each['landscapes']:5.1f} {each['recordings']:5.1f}"
            for name, each in row.items()
            if isinstance(each, dict)
        ]
        print(f"{row['epsilon']:7} {row['part']:4} {row['clients']:7} | " + "; ".join(said))


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--subsets", type=int, default=6)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--parity", action="store_true", help="compare openings beside training")
    parser.add_argument("--held", type=int, default=180, help="landscapes of each cell of parity")
    options = parser.parse_args()
    if options.parity:
        rows = parity(options.subsets, max(1, options.draws // 3), options.held, options.seed)
        if options.format == "json":
            print(json.dumps({"parity": rows}, indent=2))
        else:
            print_parity(rows)
        return
    rng = np.random.default_rng(options.seed)
    space = Space.read(RESULTS / "space.toml")
    large = [(each, space) for each in recordings(100)]
    small = [(subset(each, 20, rng), space) for each, _ in large for _ in range(options.subsets)]
    battery = [list(tables(clients, rng)) for clients in (100, 20)]
    few = max(1, options.draws // 6)
    held = {
        "n100_epsilon_0.1": regrets(large, 0.1, rng, options.draws),
        "n100_epsilon_0.25": regrets(large, 0.25, rng, options.draws),
        "n20_epsilon_1": regrets(small, 1.0, rng, max(1, options.draws // options.subsets)),
        "battery_n100_epsilon_0.1": regrets(battery[0], 0.1, rng, few),
        "battery_n100_epsilon_0.25": regrets(battery[0], 0.25, rng, few),
        "battery_n20_epsilon_1": regrets(battery[1], 1.0, rng, few),
    }
    once, several = circuit(1), circuit(4)
    ratios = {name: winner / tally for name, (tally, winner) in held.items()}
    found = {
        "recordings": len(large),
        "battery_tables": len(battery[0]),
        "regret_points": {name: {"tally": t, "winner": w} for name, (t, w) in held.items()},
        "regret_ratios": ratios,
        "circuit": {
            f"largest_of_{k}": dict(zip(("cpu_s", "mb", "ands"), each, strict=True))
            for k, each in ((1, once), (4, several))
        },
        "regret_ratio_n100": max(ratios["n100_epsilon_0.1"], ratios["n100_epsilon_0.25"]),
        "regret_ratio_n20": ratios["n20_epsilon_1"],
        "circuit_cpu_s": several[0],
        "circuit_mb": several[1],
    }
    if options.format == "json":
        print(json.dumps(found, indent=2))
        return
    for name, (tally, winner) in held.items():
        print(f"{name:26s} tally {tally:5.2f}  winner {winner:5.2f}  ratio {ratios[name]:.2f}")
    for k, each in ((1, once), (4, several)):
        print(f"circuit, K = {k}: {each[0]:.2f} s, {each[1]:.1f} MB, {each[2]:,} gates")


if __name__ == "__main__":
    main()
