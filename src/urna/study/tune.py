"""Tune, then average: Λ, R and c by secret ballot, and the model with them, under one budget."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from urna.data import Samples, count_records
from urna.errors import ParameterError
from urna.local import losses_of_each
from urna.privacy import Budget, NonPrivateRelease, Release, compose
from urna.progress import Steps
from urna.randomness import staged_secrets
from urna.space import Space
from urna.study.held import Held, check_same, said_of
from urna.systems.average import (
    Blind,
    LearnerKind,
    LearnerSettings,
    ModelResult,
    Schema,
    choose,
    plan_average,
)
from urna.systems.average import fit as fit_model
from urna.systems.average.fit import as_samples
from urna.systems.average.objective import BlindObjective, candidate_learner, default_space
from urna.systems.vote import VoteResult, VoteSettings, plan_vote, read_again
from urna.systems.vote.fill import fill_all
from urna.systems.vote.search import hold_vote
from urna.tally import Options, Run, SecureAggregation, Summation, Terms

__all__ = ["VOTE_SHARE", "TunedModel", "tune_then_fit"]

VOTE_SHARE = 0.1
"""Part of the budget, as a share of μ², that the vote on settings takes."""


@dataclass(frozen=True, slots=True)
class TunedModel:
    """A vote on settings, and the model that was averaged with the winner."""

    vote: VoteResult
    model: ModelResult
    """Its statement says what both cost together."""


def tune_then_fit(
    clients: Sequence[Samples | tuple[Any, ...]],
    schema: Schema,
    *,
    budget: Budget,
    learner: LearnerKind | str = LearnerKind.SOFTMAX,
    space: Space | None = None,
    share: float = VOTE_SHARE,
    group: int = 1,
    settings: LearnerSettings | None = None,
    summation: Summation | None = None,
    seed: int = 0,
    voting: VoteSettings | None = None,
    held: Held | None = None,
    run: Run | None = None,
    **options: Unpack[Options],
) -> TunedModel:
    """Let clients vote on the settings of blind averaging, then average with the winner.

    Guarantee:
        Vote and model together are (epsilon, delta)-DP for an epsilon of at most the
        budget's, under the same relation. What each of them costs is fixed before the vote
        begins (`Reveal.divide`); the settings are the vote's winner. One record, or one
        client, is in one ballot and one model.

    A client judges settings by its own model under the noise of the mean. Its own is worse than
    the mean, most of all under a large Λ: where clients are few, or rows nearly parallel (features
    that are not centred), the defaults may do better.

    Args:
        clients: Each client's data.
        schema: What the tables hold; classes.
        budget: What vote and model together may cost.
        learner: `softmax`, `svm` or `logistic`.
        space: Candidates with axes among `regularisation`, `radius_part` and `clip`; around
            the defaults if none is given.
        share: Part of the budget for the vote, as a share of μ².
        group: Records of one client that are protected together. A ballot is of all of a
            client's records, so this is no more for the vote.
        settings: What is not voted on.
        summation: How ballots and models are added up; securely by default.
        seed: Public seed of the clients' holdouts.
        voting: What the vote reveals, and how its winner is read.
        held: The vote, where it was held before, and what becomes of it.
        run: Where both are counted and shown, and the model is kept. The ledger is asked for both
            before the first.
        options: The rest of the terms; see `urna.tally.Terms`.

    Raises:
        ParameterError: The parameters cannot be, the vote cannot succeed, or the one that was
            held is another. Nothing was released.
        BudgetExceeded: The ledger has no room for both. Nothing was released.
    """
    if not 0 < share < 1:
        raise ParameterError(f"the vote's share of the budget lies in (0, 1), got {share}")
    how, before, run = voting or VoteSettings(), held or Held(), run or Run()
    reveal, vote, ledger = how.reveal, before.vote, run.ledger
    data = as_samples(clients)
    schema.check(data)
    terms = Terms.of(len(data), budget, **options)
    summation, secrets = summation or SecureAggregation(), run.secrets
    report: Steps = run.progress if callable(run.progress) else (lambda what, done, total: None)
    for_vote, for_model = map(terms.costing, reveal.divide(budget, share))
    records = [count_records(samples) for samples in data]
    base = choose(learner, schema, for_model, records, group=group, **(settings or {})).learner
    if not isinstance(base, Blind):
        raise ParameterError(
            "moments have no settings to vote on: the ridge follows from the noise. Name softmax, "
            "svm or logistic, or leave tuning out"
        )
    candidates = space or default_space(base)
    objective = BlindObjective(base, for_model)
    objective.check(candidates)
    planned = plan_vote(
        for_vote,
        candidates,
        VoteSettings(reveal=reveal),
        removes_excess=summation.removes_excess,
    )
    if not run.force:
        planned.check_hopeful()
    ids = (before.entry, run.entry)
    events = _events(planned.event, base, for_model, summation)
    if ledger is not None:
        ledger.check_relation(terms.adjacency)
        asked = events if secrets.private else [NonPrivateRelease("scripted secrets")] * 2
        ledger.check(*asked[vote is not None :], ids=ids[vote is not None :])
    of_vote, of_model = staged_secrets(secrets, b"vote", b"model")
    if vote is not None:
        check_same(vote, planned, candidates, ledger)
        chosen = vote
    else:
        losses = losses_of_each(
            objective,
            data,
            candidates,
            seeds=[seed] * len(data),
            progress=lambda done, total: report("evaluating settings", done, total),
        )
        ballots = fill_all(losses, planned, of_vote)
        unread = hold_vote(
            planned,
            candidates,
            ballots,
            Run(ledger=ledger, entry=before.entry, secrets=of_vote, keep=before.keep),
            summation=summation,
        )
        chosen = read_again(unread, how)
        if before.keep is not None and chosen is not unread:
            before.keep(chosen)

    def finished(model: ModelResult) -> ModelResult:
        return _together(model, chosen, planned.event, share)

    winner = candidate_learner(base, chosen.best)
    model = fit_model(
        data,
        winner.schema,
        budget=for_model.budget,
        learner=winner,
        group=winner.group,
        summation=summation,
        run=Run(
            ledger=ledger,
            secrets=of_model,
            entry=run.entry,
            progress=report,
            keep=lambda made: run.kept(finished(made)),
        ),
        **options,
    )
    return TunedModel(chosen, finished(model))


def _events(vote: Release, base: Blind, terms: Terms, summation: Summation) -> list[Release]:
    model = plan_average(terms, base, removes_excess=summation.removes_excess).tally.release
    return [vote, model or NonPrivateRelease("no noise")]


def _together(model: ModelResult, vote: VoteResult, event: Release, share: float) -> ModelResult:
    """Return the model with what it and the vote cost together."""
    tuned = {
        "best": vote.best,
        "candidates": len(vote.space),
        "confidence": vote.confidence,
        "share": share,
        "entry": vote.entry,
        "epsilon": vote.privacy.epsilon if vote.privacy.private else None,
    }
    made = plan_average(
        model.terms, model.learner, removes_excess=bool(model.plan["removes_excess"])
    ).tally.release
    privacy = model.privacy
    if privacy.private and made is not None:
        spent = compose([event, made], privacy.delta)
        privacy = replace(privacy, epsilon=spent.epsilon, accountant=spent.accountant)
    caveat = "Epsilon is that of the vote on settings and of the model together"
    rests = () if vote.revealed.counts is not None else said_of(vote)
    privacy = replace(privacy, caveats=(*privacy.caveats, caveat, *rests))
    return replace(model, privacy=privacy, tuned=tuned)
