"""Private federated training, all clients on this machine: round by round, counted, resumable."""

import functools
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, Unpack

from urna.errors import BudgetExceeded, InvalidSum, ParameterError, RoundAborted, RoundUnfinished
from urna.files import check_folder, held_alone, today
from urna.privacy import Budget
from urna.progress import live_line
from urna.randomness import SEED_BYTES, ScriptedSecrets
from urna.systems.train import rounds as one_round
from urna.systems.train.checkpoint import Progress
from urna.systems.train.learner import Learner, Vector
from urna.systems.train.plan import TrainPlan, plan_training
from urna.systems.train.result import RoundReport, TrainResult, digest_weights
from urna.systems.train.rounds import Dropouts
from urna.systems.train.settings import LOSS, Settings
from urna.tally import Options, Released, Releases, Run, SecureAggregation, Summation
from urna.tally.slot import NOTHING

__all__ = ["PublicScore", "fit"]

PublicScore = Callable[[Vector], tuple[float, float]]
"""Loss and accuracy of weights on public rows."""

DataT = TypeVar("DataT")


def fit(
    learner: Learner[DataT],
    clients: Sequence[DataT],
    *,
    budget: Budget,
    rounds: int,
    settings: Settings | None = None,
    score: PublicScore | None = None,
    summation: Summation | None = None,
    dropouts: Dropouts | None = None,
    folder: Path | None = None,
    about: Mapping[str, Any] | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> TrainResult:
    """Train a model over clients' data, so that nobody learns more than noisy sums.

    All clients are simulated in this process. In each round the clients train the common weights
    on their own data; each clips its update, adds its share of integer noise and puts it into a
    secure sum; the server's optimiser steps by the noisy mean. A client whose update is not finite
    or of the wrong shape contributes nothing, and only its own log names the reason.

    Guarantee:
        All rounds together, and so the weights and everything else in the result, are
        (epsilon, delta)-DP under `adjacency` towards everybody who learns no more than the
        summation reveals; `result.privacy` states it in words. Each round is in the ledger
        before it starts. Training stops before the ledger's cap would be passed.

    Assumes:
        A round's sum is not public before it is in the folder and noted in the ledger: a run
        that was killed before repeats the interrupted round, and counts it once. A checkpoint
        that is older than what the ledger noted is refused. Settings, number of rounds and first
        weights do not come from the data.

    Args:
        learner: What is trained, and how a client does it.
        clients: Each client's data.
        budget: What all rounds together may cost.
        rounds: How many rounds there will be at most.
        settings: How updates are clipped and used, who takes part, when to stop.
        score: Judges weights on public rows after each round.
        summation: How updates are added up; securely by default.
        dropouts: Which clients drop out when, for trying out what happens.
        folder: Where the training is written after each round, and goes on from.
        about: What else must be the same where it goes on: plain public values.
        run: Where it is counted and shown. `progress` is called after each round.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: It cannot be planned, is hopeless, or the folder holds another training.
        BudgetExceeded: The ledger has no room for the first round. Nothing was released.
        LedgerError: The folder is an older copy than the ledger knows of. Nothing was released.
    """
    how = settings or Settings()
    run = (run or Run()).only("training", "ledger", "secrets", "progress", "force")
    adding, progress = summation or SecureAggregation(), run.progress
    if len(clients) < 2:
        raise ParameterError(f"training hides clients among others, got {len(clients)}")
    first = learner.first_weights(seed=how.seed)
    plan = plan_training(
        len(clients),
        len(first),
        budget=budget,
        rounds=rounds,
        settings=how,
        removes_excess=adding.removes_excess,
        **options,
    )
    if not run.force:
        plan.check_hopeful()
    script = b"" if run.secrets.private else run.secrets.take(SEED_BYTES)
    training = _Training(
        learner, clients, plan, adding, dropouts, run, script, folder, score, dict(about or {})
    )
    if folder is not None:
        check_folder(folder)
    # Two that go on from the same checkpoint would release two sums for every round counted.
    alone = nullcontext() if folder is None else held_alone(folder, "the training")
    with alone, live_line(False if callable(progress) else progress) as line:
        if callable(progress):
            return training.go(first, progress)
        return training.go(first, lambda report: line("training rounds", report.number, rounds))


@dataclass(frozen=True, slots=True)
class _Training(Generic[DataT]):
    """One training, from wherever it stands to its end."""

    learner: Learner[DataT]
    clients: Sequence[DataT]
    plan: TrainPlan
    summation: Summation
    dropouts: Dropouts | None
    run: Run
    script: bytes
    """Label of the rounds' scripted secrets, so that any can be repeated; empty where private."""
    folder: Path | None
    score: PublicScore | None
    about: Mapping[str, Any]

    def go(self, first: Vector, progress: Callable[[RoundReport], None]) -> TrainResult:
        """Go from round to round until there is a reason to stop; report each once it is kept."""
        plan, state, stopped = self.plan, self._begin(first), ""
        releases = Releases(
            plan.tally,
            f"training of {plan.layout.parameters:,} parameters, {plan.rounds} rounds",
            self.summation.describe(plan.terms),
            rounds=plan.rounds,
            ledger=self.run.ledger,
            private=self.run.secrets.private,
            id=state.entry,
            done=state.done,
            digest=state.revealed,
            counts=functools.partial(plan.settings.sampling.counts, clients=plan.clients),
            stops=plan.settings.stop is not None,
        )
        while not stopped:
            if stopped := self._reason(state):
                break
            try:
                state = self._round(state, releases)
            except BudgetExceeded:
                if not state.done:
                    raise
                stopped = "budget"
            except RoundAborted:
                stopped = "dropouts"
            else:
                progress(state.history[-1])
        releases.slot.done = state.done
        return TrainResult(
            weights=state.model,
            history=state.history,
            stopped=stopped,
            privacy=releases.statement(),
            terms=plan.terms,
            plan=plan.as_mapping(),
            description=self.learner.description,
            entry=releases.slot.entry,
            when=today() if self.run.secrets.private else None,
            lost={int(client): why for client, why in state.lost.items()},
            faults={int(client): why for client, why in state.faults.items()},
        )

    def _begin(self, first: Vector) -> Progress:
        """Return where training stands: at the beginning, or where an earlier run left it."""
        fixed = [  # all that must not change while a training is interrupted
            self.plan.as_mapping(),
            self.learner.description,
            repr([getattr(self.learner, name, None) for name in ("recipe", "validation")]),
            digest_weights(first),
            self.run.secrets.private,
            self.summation.describe(self.plan.terms),
            self.about,
        ]
        fingerprint = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
        found = None if self.folder is None else Progress.read(self.folder)
        if found is None:
            state = Progress(
                fingerprint,
                uuid.uuid4().hex,
                first,
                clip_norm=self.plan.settings.clipping.first,
                counted=self.run.ledger is not None,
            )
            state.write(self.folder)  # the entry's id is on disk before it is in the ledger
            return state
        if found.fingerprint != fingerprint:
            raise ParameterError(
                f"{self.folder} holds another training: its settings, recipe, budget, "
                "clients, data, summation, secrets or first weights are not these. Go on with "
                "the same, or take another folder."
            )
        self._check_ledger(found)
        return self._judged(found)

    def _check_ledger(self, found: Progress) -> None:
        """Refuse to go on where rounds would be counted elsewhere than before."""
        ledger = self.run.ledger
        if found.counted != (ledger is not None):
            raise ParameterError(
                f"the training in {self.folder} is counted in a ledger: go on with that one"
                if found.counted
                else f"the training in {self.folder} was begun without a ledger: go on without "
                "one, or begin anew in another folder"
            )
        # Killed before its first round it may not be entered yet; nothing was released then.
        if ledger is None or not found.done:
            return
        if found.entry not in {entry.id for entry in ledger.entries()}:
            raise ParameterError(
                f"the training in {self.folder} is counted in another ledger than {ledger.path}, "
                "which has no entry of it: go on with that one"
            )

    def _round(self, state: Progress, releases: Releases) -> Progress:
        """Run the next round, again if it loses too many, and keep where training stands then."""
        plan, settings, number = self.plan, self.plan.settings, state.done + 1
        members = settings.sampling.members(number, plan.clients, seed=settings.seed)
        for attempt in range(1, settings.attempts + 1):
            try:
                return self._judged(self._attempt(state, releases, members, attempt))
            except RoundAborted as aborted:
                found = one_round.by_member(aborted.faults, members)
                state = state.after(faults={**state.faults, **found})
                if attempt == settings.attempts:
                    raise
        raise ParameterError("a round is tried once or more often")

    def _attempt(
        self, state: Progress, releases: Releases, members: Sequence[int], attempt: int
    ) -> Progress:
        """Try the next round once; return where training stands, which is on disk then."""
        plan, number = self.plan, state.done + 1
        secrets = self.run.secrets
        if self.script:
            secrets = ScriptedSecrets(self.script + b"round %d attempt %d" % (number, attempt))
        clients = [self.clients[member] for member in members]
        vectors = one_round.contributions(
            self.learner, clients, plan, state.weights, state.clip_norm, number, secrets
        )
        lost = {} if self.dropouts is None else self.dropouts(number, attempt)
        adding = one_round.losing(self.summation, lost)
        after: list[Progress] = []

        def keep(found: Progress) -> None:
            after.append(found)
            found.write(self.folder)

        def fail(failed: RoundUnfinished | InvalidSum) -> None:
            stated = releases.statement().epsilon
            found = one_round.after_failure(plan, state, failed, members, attempt, stated)
            keep(found.after(revealed=NOTHING))

        def take(released: Released) -> None:
            found = one_round.after_round(plan, state, released, members, attempt)
            keep(found.after(revealed=released.digest))

        with suppress(RoundUnfinished, InvalidSum):  # they are in the history
            releases.release(lambda: adding.tally(vectors, plan.tally, secrets), take, fail)
        return after[0]

    def _judged(self, state: Progress) -> Progress:
        """Add the public score to the last line of the history, where it is not there yet."""
        last = state.history[-1] if state.history else None
        if self.score is None or last is None or last.failed or last.test is not None:
            return state
        loss, right = self.score(state.model)
        last = replace(last, test=(float(loss), float(right)))
        state = state.after(history=(*state.history[:-1], last))
        state.write(self.folder)
        return state

    def _reason(self, state: Progress) -> str:
        """Return why training ends before another round is tried; nothing where it does not."""
        if state.done >= self.plan.rounds:
            return "rounds"
        rule = self.plan.settings.stop
        losses = [r.measured[LOSS] for r in state.history if LOSS in r.measured]
        return "validation" if rule is not None and rule.reached(losses) else ""
