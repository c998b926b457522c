"""One message, one model, end to end: rows, vectors, noise, sum, model, account."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from urna.data import Samples, count_records
from urna.errors import ParameterError
from urna.files import today
from urna.local.generators import own_generators
from urna.noise import IntVector
from urna.privacy import Budget
from urna.progress import Steps, live_line
from urna.randomness import SEED_BYTES, SecretSource
from urna.systems.average.blind import Blind
from urna.systems.average.model import ModelResult
from urna.systems.average.plan import (
    AverageLearner,
    AveragePlan,
    LearnerKind,
    LearnerSettings,
    choose,
    plan_average,
)
from urna.systems.average.schema import Schema, Vector
from urna.tally import Options, Released, Releases, Run, SecureAggregation, Summation, Terms


def fit(
    clients: Sequence[Samples | tuple[Any, ...]],
    schema: Schema,
    *,
    budget: Budget,
    learner: AverageLearner | LearnerKind | str = LearnerKind.AUTO,
    group: int = 1,
    settings: LearnerSettings | None = None,
    summation: Summation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> ModelResult:
    """Fit one model to the data of all clients, who send one message each.

    All clients are simulated in this process: each computes its vector (a model of its own,
    or its part of the moments), adds its share of integer noise, and the sum is the model.

    Guarantee:
        The noisy sum, and so the model, is (epsilon, delta)-DP under `adjacency` towards
        everybody who learns no more than the summation reveals; `result.privacy` says so in
        words. With scripted secrets nothing is guaranteed and epsilon is infinite.

    Args:
        clients: Each client's data: `Samples`, or (features, targets) pairs.
        schema: What the tables hold; public.
        budget: What the model may cost.
        learner: Its name, or a learner; `auto` chooses from public facts and says why.
        group: Records of one client that are protected together.
        settings: More about the learner, where it is named: `regularisation`, `radius`, …
        summation: How vectors are added up; securely by default.
        run: Where it is counted, kept and shown.
        options: The rest of the terms: `dropout`, `colluding`, `adjacency`, `family`,
            `server`; see `urna.tally.Terms`. Whole clients are protected unless
            `adjacency="replace-one-record"`.

    Raises:
        ParameterError: The parameters cannot be, or a table has another form than announced.
            Nothing was released.
        BudgetExceeded: The ledger's cap would be passed. Nothing was released.
        LedgerError: The ledger knows of a result of this entry. Nothing was released now.
        RoundAborted: Too many clients dropped out. Nothing was released.
        RoundUnfinished: They did so while the sum was opened. It stays counted.
        InvalidSum: What was opened is no sum of valid vectors. It stays counted.
    """
    data = as_samples(clients)
    schema.check(data)
    terms = Terms.of(len(data), budget, **options)
    run = (run or Run()).only("averaging", "ledger", "entry", "secrets", "keep", "progress")
    summation, secrets = summation or SecureAggregation(), run.secrets
    records = [count_records(samples) for samples in data]
    repeated = any(samples.ids is not None for samples in data)
    chosen = choose(
        learner, schema, terms, records, group=group, repeated=repeated, **(settings or {})
    )
    plan = plan_average(terms, chosen.learner, removes_excess=summation.removes_excess)
    releases = Releases(
        plan.tally,
        label_of(chosen.learner),
        plan.caveats + summation.describe(terms),
        ledger=run.ledger,
        private=secrets.private,
        id=run.entry,
    )
    results: list[ModelResult] = []

    def take(released: Released) -> None:
        results.append(read_model(plan, released, why=chosen.why))
        run.kept(results[0])

    with live_line(run.progress) as report:
        parts = contributions(plan, data, secrets, progress=report)
        releases.release(lambda: summation.tally(parts, plan.tally, secrets), take)
        report("summing", 1, 1)
    return results[0]


def as_samples(clients: Sequence[Any]) -> list[Samples]:
    """Return each client's data; pairs of features and targets are made into `Samples`."""
    if isinstance(clients, str | bytes | Mapping | Samples) or not hasattr(clients, "__len__"):
        raise ParameterError(
            "clients are a list with each client's data, such as `split` returns; got "
            f"{type(clients).__name__}"
        )
    made = [
        Samples(*data) if isinstance(data, tuple) and len(data) in (2, 3) else data
        for data in clients
    ]
    for place, data in enumerate(made):
        if not isinstance(data, Samples):
            raise ParameterError(
                f"client {place}: a client's data are Samples(features, targets), got "
                f"{type(data).__name__}"
            )
    return made


def label_of(learner: AverageLearner) -> str:
    """Return what a ledger calls an averaging."""
    several = f", {learner.group} records together" if learner.group > 1 else ""
    return f"model: {learner.kind}, {learner.dimension:,} numbers{several}"


def contributions(
    plan: AveragePlan,
    clients: Sequence[Samples],
    secrets: SecretSource,
    *,
    progress: Steps | None = None,
) -> dict[int, Callable[[], IntVector]]:
    """Return what produces every client's integers once they are asked for.

    Coins are drawn for all clients in their order, before anything is computed. Blind averaging
    trains clients together and beforehand; any other learner is asked for one client's vector at
    a time, when it is due, with global generators that begin at the client's place.
    """
    report = progress or (lambda what, done, total: None)
    keys = [secrets.take(SEED_BYTES) for _ in clients]
    vectors: dict[int, Vector] = {}
    if isinstance(plan.learner, Blind):
        for place, vector in plan.learner.vectors(clients):
            vectors[place] = vector
            report("training clients", len(vectors), len(clients))

    def vector_of(place: int) -> Vector:
        if place in vectors:
            return vectors[place]
        with own_generators(place):
            ((_, vector),) = plan.learner.vectors([clients[place]])
        return vector

    def contribution(place: int) -> IntVector:
        return plan.contribution(vector_of(place), keys[place])

    return {place: partial(contribution, place) for place in range(len(keys))}


def read_model(plan: AveragePlan, released: Released, *, why: str = "") -> ModelResult:
    """Read the model out of a released sum."""
    tallied, learner = released.tallied, plan.learner
    count = len(tallied.accepted)
    std = plan.encoding.error(count, tallied.noise_variance)
    total = plan.encoding.decode(tallied.total)
    solved = learner.solved(total, clients=count, std=std)
    return ModelResult(
        learner=learner,
        weights=solved.weights,
        privacy=released.privacy,
        terms=plan.terms,
        took_part=count,
        lost=tallied.lost,
        faults=tallied.faults,
        noise_std=std,
        facts=solved.facts,
        release=total,
        described=learner.describe(),
        why=why,
        plan=plan.as_mapping(),
        entry=released.entry,
        when=today() if released.privacy.private else None,
    )
