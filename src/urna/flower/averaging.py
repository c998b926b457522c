"""One message, one model among the nodes of a grid: what is announced, what a node puts in."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Unpack

from flwr.app import Context
from flwr.serverapp import Grid

from urna.data import Samples
from urna.errors import ParameterError, ProtocolError, Refused
from urna.flower.gathering import Federation
from urna.flower.participant import Call
from urna.flower.subjects import register
from urna.flower.sums import COLLUDING, Sums
from urna.noise import IntVector
from urna.privacy import Budget
from urna.systems.average import (
    AverageLearner,
    AveragePlan,
    LearnerKind,
    LearnerSettings,
    ModelResult,
    Schema,
    choose,
    plan_average,
    read_learner,
)
from urna.systems.average.fit import label_of, read_model
from urna.systems.average.moments import moments_length
from urna.systems.vote.fill import as_data
from urna.tally import Options, Released, Run, TallyPlan, Terms

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AverageSubject:
    """A model from one message of every node."""

    kind: ClassVar[str] = "average"
    learner: AverageLearner

    @property
    def label(self) -> str:
        """What a ledger calls it."""
        return label_of(self.learner)

    def average(self, terms: Terms) -> AveragePlan:
        """Return the averaging's plan. Every node makes it for itself, with its sensitivity."""
        return plan_average(terms, self.learner)

    def plan(self, terms: Terms, rounds: int) -> TallyPlan:
        """Return the plan of the sum. There is one message, and so one round."""
        if rounds != 1:
            raise ParameterError("one message, one round; announce another for a second model")
        return self.average(terms).tally

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for the announcement."""
        return {"learner": self.learner.as_mapping()}

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> "AverageSubject":
        """Read what `as_mapping` wrote."""
        return cls(read_learner(mapping["learner"]))

    @staticmethod
    def size(mapping: Mapping[str, Any]) -> int:
        """Return how many numbers are announced, before any of them is made."""
        learner = mapping["learner"]
        schema = learner["schema"]
        rows, classes = schema["rows"], schema["classes"]
        width = int(rows["projected"] or schema["features"]) + (1 if rows["intercept"] else 0)
        outputs = 1 if classes is None else len(classes)
        if learner["kind"] == "moments":
            return moments_length(width, outputs)
        return width * outputs + 1


register("average", AverageSubject.read, AverageSubject.size)


class Averages:
    """Computes a node's model or moments: the contributor to averages.

    Assumes:
        Where single records are protected: how many records the loader returns does not depend
        on what they hold, and it returns or raises whatever they hold. Records themselves may
        hold anything; those that cannot be used add nothing.

    Args:
        data: Returns the node's samples; called with Flower's context, once per average.
        schema: The one schema this node's data have; any that is announced by default.
    """

    kind = "average"

    def __init__(
        self,
        data: Callable[[Context], Samples | tuple[Any, Any]],
        schema: Schema | None = None,
    ) -> None:
        self._data, self._schema = data, schema

    def check(self, call: Call) -> None:
        """Refuse a model of other data than this node's.

        Raises:
            Refused: Another schema is announced.
        """
        learner = call.subject(AverageSubject, "average").learner
        if self._schema is not None and learner.schema != self._schema:
            _log.error("announced is %s, this node has %s", learner.schema, self._schema)
            raise Refused("the schema announced is not the one of this node's data")

    def contribute(self, call: Call) -> IntVector:
        """Return the node's vector, rounded by coins of its own."""
        subject = call.subject(AverageSubject, "average")
        samples = as_data(self._data(call.context))
        ((_, vector),) = subject.learner.vectors([samples])
        return subject.average(call.announcement.terms).contribution(vector, call.key)


def average(
    grid: Grid,
    schema: Schema,
    *,
    budget: Budget,
    records: int,
    learner: AverageLearner | LearnerKind | str = LearnerKind.AUTO,
    group: int = 1,
    settings: LearnerSettings | None = None,
    federation: Federation | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> ModelResult:
    """Fit one model to the connected nodes' data; each sends one vector, once.

    Guarantee:
        See `urna.flower.Sums`. Each node computes the sensitivity of what it is asked for
        itself, from the learner that is announced.

    Args:
        grid: Flower's grid, as `@app.main()` gets it.
        schema: What the nodes' tables hold; public.
        budget: What the model may cost each node.
        records: How many records a node has, a public fact: with moments, more are scaled down
            to as many; with models, nodes that have fewer abstain. Where rows have ids and
            `group` is more than 1, `points` in `settings` says how many rows count.
        learner: Its name, or a learner; `auto` chooses from public facts.
        group: Records of one node that are protected together.
        settings: More about the learner, where it is named.
        federation: Who is invited, who signs, how long to wait.
        run: Where it is counted and kept; the ledger is the server's own.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be.
        BudgetExceeded: The server's own ledger would pass its cap. Nothing was released.
        RoundAborted: Too few nodes took part or stayed. Nothing was revealed.
        RoundUnfinished: Too few nodes stayed to open the sum. It counts as released.
        InvalidSum: What was opened is no sum of valid vectors. It counts as released.
    """
    if type(records) is not int or records < 1:
        raise ParameterError(f"a node has at least one record, got {records}")
    why = ""

    def subject(clients: int) -> AverageSubject:
        nonlocal why
        asked: Options = {"colluding": COLLUDING, **options}
        terms = Terms.of(clients, budget, **asked)
        counts = [records] * clients
        chosen = choose(learner, schema, terms, counts, group=group, **(settings or {}))
        why = chosen.why
        return AverageSubject(chosen.learner)

    run = (run or Run()).only("averaging over Flower", "ledger", "entry", "keep", "progress")
    reached = federation or Federation()
    subject(max(reached.wait_for or 0, 1_000))  # what cannot be is refused before anybody is asked
    sums = Sums(
        grid,
        subject,
        budget=budget,
        federation=reached,
        run=replace(run, keep=None),
        **options,
    )

    def read(released: Released) -> ModelResult:
        averaged = sums.announcement.subject
        if not isinstance(averaged, AverageSubject):
            raise ProtocolError("what was announced is no average")
        plan = averaged.average(sums.announcement.terms)
        made = read_model(plan, released, why=why)
        privacy = made.privacy
        if plan.caveats:
            caveats = (plan.caveats.rstrip(". "), *privacy.caveats)
            privacy = replace(privacy, caveats=caveats)
        return replace(made, lost=dict(sums.lost), faults=dict(sums.faults), privacy=privacy)

    return sums.result(read, run.kept)
