"""Claim: one message per client gives a good private model, and pooled moments a better one.

CIFAR-10 through a public feature extractor (`cifar10_features.npz` in the data folder), split over
clients of equal size, half of them honest, one record protected, delta 1e-5. Blind averaging
(Secure Distributed DP-Helmet) and pooled moments through the protocol's own integer noise, and in
the same run what they are measured against: one model of all data under the same noise, federated
DP-SGD and AdaSSP with every client's own noise, no noise, clients alone.

    python benchmarks/dp_helmet.py --data DATA --clients 1000 --epsilon 0.36 --format json
    python benchmarks/dp_helmet.py --data DATA --parts curves,skew,solver,pooling,many,release

Settings of blind averaging are the defaults, which follow from public facts; nothing is tuned on
the data of the benchmark. `--output` writes curves as SVG and all figures as JSON.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

if not __package__:  # run as a file: the folder above holds the package
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import dp_helmet_baselines as baselines
from benchmarks.papers.permutation_sgd import PublishedBlind
from dp_hype.charts import Line, Panel, chart

from urna.data import Samples
from urna.privacy import Adjacency, Budget
from urna.randomness import OsSecrets
from urna.study import AverageStage, VoteStage
from urna.study import tune as vote_and_average
from urna.systems.average import (
    Blind,
    LearnerSettings,
    LossKind,
    Moments,
    Schema,
    choose,
    fit,
    plan_average,
)
from urna.systems.average.certified import batches
from urna.systems.average.schema import PreparedRows
from urna.tally import ClearSummation, SecureAggregation, Terms

DELTA = 1e-5
RECORD = Adjacency.REPLACE_ONE_RECORD
BLIND = ("svm", "softmax", "logistic")
EPSILONS = (0.02, 0.05, 0.1, 0.2, 0.36, 0.7, 1.2, 3.0)
CLIENTS = (20, 50, 100, 200, 500, 1000)
EACH = 50
SKEWED = {"svm": 0.15, "logistic": 0.3, "softmax": 0.1}
"""Least Λ where clients hold few classes each."""


class Study:
    """Features, and how they are dealt out."""

    def __init__(self, folder: Path) -> None:
        with np.load(folder / "cifar10_features.npz") as archive:
            self.x = archive["x_train"].astype(np.float64)
            self.y = archive["y_train"].astype(np.int64)
            test = Samples(archive["x_test"].astype(np.float64), archive["y_test"].astype(np.int64))
        self.schema = Schema(self.x.shape[1], tuple(range(10)))
        self.test: PreparedRows = self.schema.prepare(test)

    def clients(
        self, count: int, *, each: int | None = None, skewed: bool = False
    ) -> list[Samples]:
        """Return clients of equal size; skewed ones hold one class only."""
        rng = np.random.default_rng(0)
        order = rng.permutation(len(self.x))
        if skewed:
            order = order[np.argsort(self.y[order], kind="stable")]
        each = each or len(self.x) // count
        pieces = order[: count * each].reshape(count, each)
        return [Samples(self.x[piece], self.y[piece]) for piece in pieces]

    def strips(self, count: int, each: int, *, again: bool) -> Iterator[list[Samples]]:
        """Yield clients a thousand at a time; `again` draws records of all with replacement."""
        rng = np.random.default_rng(2)
        order = rng.permutation(len(self.x))
        for start in range(0, count, 1_000):
            size = 1_000 * each
            rows = rng.integers(len(self.x), size=size) if again else order[start * each :][:size]
            yield [Samples(self.x[some], self.y[some]) for some in rows.reshape(1_000, each)]

    def terms(self, clients: int, epsilon: float) -> Terms:
        """Return the terms of every run: half of the clients are honest."""
        return Terms.of(clients, Budget(epsilon, DELTA), adjacency=RECORD, colluding="1/2")

    def learner(
        self, kind: str, terms: Terms, each: int, **more: Unpack[LearnerSettings]
    ) -> Blind | Moments:
        """Return a learner with the settings that follow from public facts."""
        chosen = choose(kind, self.schema, terms, [each] * terms.clients, **more).learner
        assert isinstance(chosen, Blind | Moments)
        return chosen

    def drawn(
        self, learner: Blind | Moments, terms: Terms, clients: Sequence[Samples], draws: int
    ) -> float:
        """Return the accuracy under Gaussian noise of the planned size: for curves."""
        total = np.sum([vector for _, vector in learner.vectors(clients)], axis=0)
        return self.under_noise(learner, terms, total, draws)

    def under_noise(
        self, learner: Blind | Moments, terms: Terms, total: np.ndarray, draws: int
    ) -> float:
        """Return the mean accuracy of a sum under draws of its noise."""
        std, rng = plan_average(terms, learner).noise_std, np.random.default_rng(1)
        found = []
        for _ in range(draws):
            noisy = total + std * rng.normal(size=len(total))
            solved = learner.solved(noisy, clients=terms.clients, std=std)
            found.append(baselines.accuracy(solved.weights, self.test))
        return float(np.mean(found))


def headline(study: Study, clients: int, epsilon: float, draws: int) -> dict[str, Any]:
    """Fit every learner through the protocol's integer noise, from the operating system."""
    parts, found = study.clients(clients), {}
    for kind in ("moments", *BLIND):
        scores, seconds = [], time.perf_counter()
        for _ in range(draws):
            result = fit(
                parts,
                study.schema,
                budget=Budget(epsilon, DELTA),
                learner=kind,
                summation=ClearSummation(),
                adjacency=RECORD,
                colluding="1/2",
            )
            scores.append(baselines.accuracy(result.weights, study.test))
        found[kind] = {
            "accuracy": float(np.mean(scores)),
            "lowest": min(scores),
            "epsilon": result.privacy.epsilon,
            "relation": str(result.privacy.adjacency),
            "seconds": (time.perf_counter() - seconds) / draws,
        }
    return found


def compare(study: Study, clients: int, epsilon: float, draws: int) -> dict[str, Any]:
    """Return the baselines."""
    parts, terms = study.clients(clients), study.terms(clients, epsilon)
    each, schema, test = len(parts[0]), study.schema, study.test
    blind = {kind: study.learner(kind, terms, each) for kind in BLIND}
    softmax = blind["softmax"]
    assert isinstance(softmax, Blind)
    found: dict[str, Any] = {
        "pooled_logistic_not_private": baselines.pooled_logistic(parts, schema, test),
        "moments_no_noise": baselines.no_noise(study.learner("moments", terms, each), parts, test),
        **{
            f"{kind}_no_noise": baselines.no_noise(made, parts, test)
            for kind, made in blind.items()
        },
        **{
            f"{kind}_central_same_noise": baselines.central_same_noise(
                made, terms, parts, test, draws=draws
            )
            for kind, made in blind.items()
            if isinstance(made, Blind) and kind != "logistic"
        },
        "ada_ssp_own_noise": baselines.ada_ssp(parts, schema, terms.budget, test, draws=draws),
        "local_models_no_noise": baselines.local_models(
            replace(softmax, regularisation=1e-3), parts, test
        ),
    }
    by_hand = baselines.dp_sgd(parts, schema, terms.budget, test)
    found["dp_fl_own_noise"] = by_hand
    by_opacus = baselines.dp_sgd_by_opacus(parts, schema, test, by_hand)
    found["dp_fl_own_noise_by_opacus"] = by_opacus
    return found


def curves(study: Study, draws: int) -> dict[str, Any]:
    """Return accuracy over epsilon, and over the number of clients of 50 records."""
    kinds = ("moments", *BLIND)
    parts = study.clients(1000)
    by_epsilon: dict[str, list[float]] = {kind: [] for kind in (*kinds, "dp_fl", "ada_ssp")}
    for epsilon in EPSILONS:
        terms = study.terms(1000, epsilon)
        for kind in kinds:
            made = study.learner(kind, terms, EACH)
            by_epsilon[kind].append(study.drawn(made, terms, parts, draws))
        by_epsilon["dp_fl"].append(
            baselines.dp_sgd(parts, study.schema, terms.budget, study.test)["accuracy"]
        )
        by_epsilon["ada_ssp"].append(
            baselines.ada_ssp(parts, study.schema, terms.budget, study.test, draws=draws)
        )
        _tell(f"epsilon {epsilon:g} done")
    by_clients: dict[str, list[float]] = {kind: [] for kind in (*kinds, "dp_fl")}
    for count in CLIENTS:
        terms, some = study.terms(count, 0.36), study.clients(count, each=EACH)
        for kind in kinds:
            made = study.learner(kind, terms, EACH)
            by_clients[kind].append(study.drawn(made, terms, some, draws))
        by_clients["dp_fl"].append(
            baselines.dp_sgd(some, study.schema, terms.budget, study.test)["accuracy"]
        )
    return {
        "epsilons": list(EPSILONS),
        "by_epsilon": by_epsilon,
        "clients": list(CLIENTS),
        "by_clients": by_clients,
    }


def skew(study: Study, epsilon: float, draws: int) -> dict[str, Any]:
    """Return what is lost where each client holds one class only (the paper's Table 2).

    *Skewed* is a Λ that models of single classes average well under: hinge losses of rows inside
    the margin are linear, and means of minimisers are then minimisers of the mean (Theorem 14).
    """
    terms, found = study.terms(1000, epsilon), {}
    parts = {skewed: study.clients(1000, skewed=skewed) for skewed in (False, True)}
    for kind in ("moments", *BLIND):
        row = {}
        for said in (False, True):
            made = study.learner(kind, terms, EACH)
            if said and isinstance(made, Blind):
                made = replace(made, regularisation=max(made.regularisation, SKEWED[kind]))
            for skewed, some in parts.items():
                name = f"{'one class each' if skewed else 'even'}{', larger Λ' * said}"
                row[name] = study.drawn(made, terms, some, draws)
        row["lost"] = row["even"] - row["one class each, larger Λ"]
        found[kind] = row
    return found


def solver(study: Study, draws: int) -> dict[str, Any]:
    """Return the certified solver beside the paper's SGD: noise, accuracy, training time."""
    parts, found = study.clients(1000), {}
    for kind in ("svm", "softmax"):
        for epsilon in (0.1, 0.36, 1.2):
            terms = study.terms(1000, epsilon)
            row: dict[str, Any] = {}
            exact = study.learner(kind, terms, EACH)
            assert isinstance(exact, Blind)
            published = PublishedBlind(
                exact.schema, exact.unit, exact.points, exact.regularisation, LossKind(kind)
            )
            for trainer, made in (("certified", exact), ("sgd", published)):
                total = np.sum([vector for _, vector in made.vectors(parts)], axis=0)
                row[trainer] = {
                    "accuracy": study.under_noise(made, terms, total, draws),
                    "cpu_seconds": _training(made, parts),
                    "sensitivity": made.sensitivity,
                }
            alone = 20 * sum(_training(published, [part]) for part in parts[:50])
            sgd, certified = row["sgd"], row["certified"]
            sgd["cpu_seconds_one_client_after_another"] = alone  # of 50 clients, times 20
            row["times_faster"] = alone / certified["cpu_seconds"]
            row["times_faster_than_batched"] = sgd["cpu_seconds"] / certified["cpu_seconds"]
            row["noise_ratio"] = certified["sensitivity"] / sgd["sensitivity"]
            found[f"{kind}, epsilon {epsilon:g}"] = row
            _tell(f"{kind}, epsilon {epsilon:g}: {row['times_faster']:.0f} times faster")
    return found


def _training(learner: Blind, clients: Sequence[Samples]) -> float:
    """Return the CPU seconds of training, without reading rows, which both trainers do."""
    prepared = [learner.schema.prepare(samples) for samples in clients]
    schema = learner.schema
    stacks = list(
        learner.stacks(prepared)
        if isinstance(learner, PublishedBlind)
        else batches(prepared, clip=schema.rows.clip, outputs=schema.outputs)
    )
    start = time.process_time()
    for stack in stacks:
        learner._models(stack)
    return time.process_time() - start


def pooling(study: Study) -> dict[str, Any]:
    """Return how far the mean of clients' SVMs is from the pooled one, over Λ (Theorem 14)."""
    parts, found = study.clients(1000)[:100], {}
    whole, terms = baselines.pooled(parts), study.terms(100, 0.36)
    for reg in (0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        made = study.learner("svm", terms, EACH, regularisation=reg)
        mean = np.mean([vector for _, vector in made.vectors(parts)], axis=0)
        ((_, together),) = made.vectors([whole])
        found[f"{reg:g}"] = float(np.linalg.norm(mean - together) / np.linalg.norm(together))
    return found


def many(study: Study, epsilon: float, draws: int) -> dict[str, Any]:
    """Return truly many clients (Figure 5): models of all of them are trained and averaged."""
    found: dict[str, Any] = {}
    for count, each, again in ((10_000, 5, False), (10_000, EACH, True), (100_000, EACH, True)):
        terms = study.terms(count, epsilon)
        learners = {kind: study.learner(kind, terms, each) for kind in ("moments", "svm")}
        totals = {kind: np.zeros(made.dimension) for kind, made in learners.items()}
        for some in study.strips(count, each, again=again):
            _, vectors = zip(*learners["svm"].vectors(some), strict=True)
            totals["svm"] += np.sum(vectors, axis=0)
            # Sums of moments are exact, so those of many clients are those of one.
            ((_, together),) = learners["moments"].vectors([baselines.pooled(some)])
            totals["moments"] += together
        name = f"{count:,} clients of {each}" + (", records used again: extrapolation" * again)
        found[name] = {
            kind: study.under_noise(made, terms, totals[kind], draws)
            for kind, made in learners.items()
        }
        _tell(f"{name}: {found[name]}")
    return found


def release(study: Study, epsilon: float) -> dict[str, Any]:
    """Return what one secure release of 1,000 clients' moments takes, all parties together."""
    terms, parts = study.terms(1000, epsilon), study.clients(1000)
    made = study.learner("moments", terms, EACH)
    plan = plan_average(terms, made)
    keys = [OsSecrets().take(32) for _ in parts]
    vectors = {
        place: plan.contribution(vector, keys[place]) for place, vector in made.vectors(parts)
    }
    before, start = _cpu(), time.perf_counter()
    tallied = SecureAggregation().tally(vectors, plan.tally, OsSecrets())
    return {
        "numbers": made.dimension,
        "clients": len(tallied.accepted),
        "ring_bits": plan.tally.ring_bits,
        "cpu_seconds": _cpu() - before,
        "wall_seconds": time.perf_counter() - start,
    }


def tune(study: Study, epsilon: float) -> dict[str, Any]:
    """Return what a private vote on the settings gives, vote and model under one budget."""
    found = {}
    for kind in ("svm", "softmax"):
        start = time.process_time()
        done = vote_and_average(
            VoteStage(),
            AverageStage(study.schema, kind),
            study.clients(1000),
            budget=Budget(epsilon, DELTA),
            summation=ClearSummation(),
            adjacency=RECORD,
            colluding="1/2",
        )
        found[kind] = {
            "accuracy": baselines.accuracy(done.result.weights, study.test),
            "chosen": dict(done.vote.best),
            "default": study.learner(kind, done.result.terms, EACH).as_mapping()["regularisation"],
            "confidence": (done.result.tuned or {}).get("confidence"),
            "epsilon": done.result.privacy.epsilon,
            "cpu_seconds": time.process_time() - start,
        }
    return found


def _cpu() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def draw_pooling(gaps: dict[str, float], folder: Path) -> None:
    """Write how far averaging is from pooling, over Λ, as SVG."""
    panel = Panel("100 clients of 50, SVM", [Line("distance, relative", list(gaps.values()))])
    caption = "Distance of the mean of models from the pooled model over Λ"
    text = chart([panel], list(gaps), caption=caption, axis="Λ", columns=1, span=(0.0, 0.4))
    (folder / "dp_helmet_pooling.svg").write_text(text, encoding="utf-8")


def draw(found: dict[str, Any], folder: Path) -> None:
    """Write the curves as SVG."""
    names = {
        "moments": "pooled moments",
        "svm": "blind, SVM",
        "softmax": "blind, softmax",
        "logistic": "blind, logistic",
        "dp_fl": "DP-SGD, own noise",
        "ada_ssp": "AdaSSP, own noise",
    }
    for over, ticks in (("epsilon", found["epsilons"]), ("clients", found["clients"])):
        values = found[f"by_{over}"]
        title = "1,000 clients of 50" if over == "epsilon" else "epsilon 0.36, 50 records each"
        panel = Panel(title, [Line(names[kind], values[kind]) for kind in values])
        caption = f"Accuracy over {over}"
        text = chart([panel], [f"{t:g}" for t in ticks], caption=caption, axis=over, columns=1)
        (folder / f"dp_helmet_{over}.svg").write_text(text, encoding="utf-8")


def _tell(message: str) -> None:
    print(message, file=sys.stderr)


def main() -> None:
    """Run the parts asked for and print one JSON object, or lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the features")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--epsilon", type=float, default=0.36)
    parser.add_argument("--draws", type=int, default=3, help="draws of the noise")
    parser.add_argument("--parts", default="baselines", help="beside the headline; or 'none'")
    parser.add_argument("--output", type=Path, help="folder for figures and JSON")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args()
    study = Study(given.data)
    run: dict[str, Callable[[], dict[str, Any]]] = {
        "baselines": lambda: compare(study, given.clients, given.epsilon, given.draws),
        "curves": lambda: curves(study, given.draws),
        "skew": lambda: skew(study, given.epsilon, given.draws),
        "solver": lambda: solver(study, given.draws),
        "pooling": lambda: pooling(study),
        "many": lambda: many(study, given.epsilon, given.draws),
        "tune": lambda: tune(study, given.epsilon),
        "release": lambda: release(study, given.epsilon),
    }
    wanted = [] if given.parts == "none" else given.parts.split(",")
    if unknown := set(wanted) - run.keys():
        parser.error(f"parts are {', '.join(run)}; unknown: {', '.join(sorted(unknown))}")
    found: dict[str, Any] = {
        "clients": given.clients,
        "epsilon": given.epsilon,
        "delta": DELTA,
        "relation": str(RECORD),
        "honest": "1/2",
    }
    found["learners"] = headline(study, given.clients, given.epsilon, given.draws)
    for part in wanted:
        found[part] = run[part]()
    reached = {kind: row["accuracy"] for kind, row in found["learners"].items()}
    found["accuracy"] = max(reached.values())
    found["accuracy_blind"] = reached["svm"]
    found["accuracy_moments"] = reached["moments"]
    if given.output is not None:
        given.output.mkdir(parents=True, exist_ok=True)
        name = "_".join(["dp_helmet", *wanted])
        (given.output / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        if "curves" in found:
            draw(found["curves"], given.output)
        if "pooling" in found:
            draw_pooling(found["pooling"], given.output)
    if given.format == "json":
        print(json.dumps(found))
        return
    for key, value in found.items():
        rows = value.items() if isinstance(value, dict) else [("", value)]
        for name, row in rows:
            print(f"{key:>18} {name:40} {row}")


if __name__ == "__main__":
    main()
