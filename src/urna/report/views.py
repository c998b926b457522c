"""What a report shows of one stage: answer, facts, who took part, who learned what.

A view is the one description that the page is made of. It holds what was revealed and public
facts, nothing else; of a combination without any guarantee also the settings that clients kept.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from urna.privacy import PrivacyStatement
from urna.privacy.budget import rounded_up
from urna.report.parties import (
    HIDDEN,
    SEEN,
    VALID,
    PartyRow,
    assumptions,
    cheating_of,
    combined_parties,
    not_covered,
    participation_of,
    parties,
    readable,
    warnings_of,
    winner_parties,
)
from urna.report.pictures import learned, settings_picture, spent, weights_picture
from urna.report.results import StageResult
from urna.report.tally import STEPS, TallyView
from urna.report.words import at_least, count, settings, size, slug
from urna.systems.average import ModelResult, Moments
from urna.systems.combine import Combination, Guarantee
from urna.systems.train import TrainResult
from urna.systems.train.result import REASONS
from urna.systems.vote import VoteResult
from urna.systems.vote.result import BY_REHEARSAL, UNREAD

Facts = Mapping[str, str]

_CHOICES, _CLUSTERS, _FAILED = 6, 12, 5  # how many are listed

_GUARANTEES = {
    Guarantee.NONE: "Nothing was hidden: the combining party saw all clients' settings and scores.",
    Guarantee.ENCRYPTION: (
        "What clients put in was encrypted; what was revealed is exact, and an exact result can "
        "tell about single clients."
    ),
    Guarantee.DP: "Differentially private: sums carry noise, and masks hid single clients' parts.",
    Guarantee.BOTH: (
        "Differentially private: sums carry noise, and threshold encryption hid single clients' "
        "parts."
    ),
}
_NEXT = (
    "What is trained with the {}. A model trained afterwards is private only if that training is, "
    "and is counted in the same ledger."
)
_PREDICTIONS = (
    "Predictions. Using the model reveals no more than the model itself; what others do with its "
    "predictions about a person is not covered."
)


@dataclass(frozen=True, slots=True)
class StageAnswer:
    """What a result says, in the order in which people ask."""

    heading: str
    facts: Facts
    """Names and values, in large letters."""
    verdict: str
    """How sure it is, in a few words."""
    told: tuple[str, ...] = ()
    """Sentences."""
    sure: str = ""
    """`yes`, `partly`, `no`, or nothing where the question is not put."""
    choices: tuple[list[tuple[str, str]], ...] = ()
    """Others that may be as good."""
    more: int = 0
    """Choices that are not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One stage of a study, or all of a page."""

    kind: str
    name: str
    heading: str
    """Of a page about nothing else."""
    result: StageResult
    answer: StageAnswer
    parties: tuple[PartyRow, ...]
    follows: str
    """What people do with such a result, and what of that is not covered."""
    uncovered: tuple[str, ...]
    participation: Facts
    facts: Facts
    """Technical ones."""
    warnings: tuple[tuple[str, str], ...] = ()
    """What stands at the top in red: in capitals, and in a sentence."""
    view: Mapping[str, Any] = field(default_factory=dict)
    """What the kind's own part of the page shows."""
    bytes_per_client: int | None = None
    rounds: int = 1
    """How many sums there were, each of so many bytes."""

    @property
    def privacy(self) -> PrivacyStatement:
        """What the stage promises."""
        return self.result.privacy

    @property
    def lost(self) -> Mapping[int, str]:
        """Who is not in the result, and why."""
        return self.result.lost

    @property
    def faults(self) -> Mapping[int, str]:
        """Who broke the protocol, and how."""
        return {} if isinstance(self.result, Combination) else self.result.faults

    @property
    def assumptions(self) -> list[str]:
        """What the bound rests on, in whole sentences."""
        if self.result.terms is None:
            return []
        by = self.result.revealed.by if isinstance(self.result, VoteResult) else None
        return assumptions(self.privacy, self.result.terms, None if by is None else by.helper)


def view_of(result: StageResult, name: str = "") -> StageView:
    """Return what a report shows of a result, under its kind's name by default."""
    if isinstance(result, VoteResult):
        return _vote(result, name) if result.revealed.counts is not None else _winner(result, name)
    if isinstance(result, TrainResult):
        return _training(result, name or "Training")
    if isinstance(result, ModelResult):
        return _model(result, name or "Model of one message")
    return _combination(result, name or "Combination")


def _vote(result: VoteResult, name: str) -> StageView:
    name = name or "Vote"
    how = {
        "noise in each count": _votes_of_noise(result),
        "noise's family": f"{result.terms.family}, made by the clients",
        "read by": f"{result.decoder} decoder",
    }
    view = {"tally": TallyView(result, slug(name)), "names": list(result.space.axes)}
    return StageView(
        kind="vote",
        name=name,
        heading="The vote is in",
        result=result,
        answer=_vote_answer(result),
        parties=tuple(parties(result.privacy, result.terms, "ballot", "the noisy votes")),
        follows=_NEXT.format("winner"),
        uncovered=tuple(not_covered(result.privacy)),
        participation=participation_of(result.terms, result.took_part),
        facts=_vote_facts(result, how),
        warnings=warnings_of(result.privacy),
        view=view | {"steps": STEPS},
        bytes_per_client=result.plan.get("bytes_per_client"),
    )


def _winner(result: VoteResult, name: str) -> StageView:
    by = result.revealed.by
    how = {
        "helper": str(by.helper),
        "noise of each candidate": _votes_of_noise(result),
        "noise's family": "geometric, from the coins of leader and helper",
    }
    return StageView(
        kind="winner",
        name=name or "Winner",
        heading="The winner is known",
        result=result,
        answer=_winner_answer(result),
        parties=tuple(winner_parties(result)),
        follows=_NEXT.format("winner"),
        uncovered=tuple(not_covered(result.privacy, robust=VALID if by.verified else HIDDEN)),
        participation=participation_of(result.terms, result.took_part, summed=False),
        facts=_vote_facts(result, how),
        warnings=warnings_of(result.privacy),
        view={"cheating": cheating_of(result)},
        bytes_per_client=result.plan.get("bytes_per_client"),
    )


def _votes_of_noise(result: VoteResult) -> str:
    return f"± {result.standard_error:.2f} votes (one standard deviation)"


def _vote_facts(result: VoteResult, how: Facts) -> Facts:
    axes = (
        f"{axis}: {count(len(values.values), 'value')} ({values.kind})"
        for axis, values in result.space.axes.items()
    )
    return {
        "candidates": f"{len(result.space):,}",
        "axes": "; ".join(axes),
        "ballots": str(result.ballot),
        **how,
        "digest of the candidates": result.space.fingerprint,
    }


def _vote_answer(result: VoteResult) -> StageAnswer:
    best = dict(settings(result.best))
    many, near = len(result.space), len(result.credible_set) - 1
    left = result.considered - many
    votes = (
        f"It has {result.votes[result.winner]:.1f} noisy votes; the noise in each count has a "
        f"standard deviation of {result.standard_error:.1f}."
    )
    if left:
        votes += (
            f" A rehearsal on public data left {many} of {result.considered} to vote on: the other "
            f"{left} could not win."
        )
    if np.argmax(result.votes) != result.winner and result.decoder != UNREAD:
        votes += (
            " Another candidate received more noisy votes. The winner is the candidate with the "
            "highest posterior mean: the decoder smooths the noisy counts over neighbouring "
            "candidates, which is more reliable than taking the largest count."
        )
    if many == 1:
        return StageAnswer("The only candidate", best, "There was nothing to choose", (votes,))
    if result.decoder == UNREAD:
        verdict = "Not weighed yet: the command ended before how sure this is was computed"
        return StageAnswer("Most noisy votes", best, verdict, (votes,))
    if result.by_rehearsal:
        why = f"The rehearsal decided this: {BY_REHEARSAL}."
        verdict = "The tally says nothing"
        return StageAnswer("The rehearsal's choice", best, verdict, (why, votes), "no")
    if result.confidence is None:
        why = "Under this noise the tally cannot tell who leads: this is a guess."
        more = (
            "More clients, a larger epsilon or fewer candidates would help; urna plan says how "
            "many."
        )
        verdict = "Inconclusive: the tally cannot tell"
        return StageAnswer("Inconclusive", best, verdict, (why, more, votes), "no")
    sure = at_least(result.confidence)
    chance = f"Given this tally, it truly leads{result.among} with probability {sure}."
    if near == 0:
        return StageAnswer("The winner", best, f"It leads: {sure} sure", (chance, votes), "yes")
    told = (
        f"{chance} {votes}",
        "With the winner, these contain the true leader with a probability of about 90 %. Choosing "
        "another of them costs nothing if the choice uses no private data:",
    )
    choices = tuple(settings(result.space[p]) for p in result.credible_set[1 : 1 + _CHOICES])
    verdict = f"One of {near + 1} that may lead, out of {many}"
    return StageAnswer("The winner", best, verdict, told, "partly", choices, near - len(choices))


def _winner_answer(result: VoteResult) -> StageAnswer:
    """Return who won, and on whom that rests."""
    by, gap = result.revealed.by, result.revealed.gap
    best = dict(settings(result.best))
    trust = (
        f"This rests on the leader and {by.helper} not colluding: together they could read "
        f"{readable(verified=by.verified)}. Each of them alone, curious and following the "
        "protocol, learned the winner and random numbers; nobody has seen a tally."
    )
    if gap is None:
        return StageAnswer("The winner", best, "Only the winner was revealed", (trust,))
    told = (
        f"It would have to lose {'1 vote' if gap == 1 else f'{gap:g} votes'} to be overtaken, "
        "noise included. Each candidate's noise has a standard deviation of "
        f"{result.standard_error:.1f} votes; a ballot gives 0 to {result.ballot.most}."
    )
    verdict = "The winner and its gap were revealed, and nothing else"
    return StageAnswer("The winner", best, verdict, (trust, told))


def _model(result: ModelResult, name: str) -> StageView:
    schema = result.schema
    told = [f"{result.described[0].upper()}{result.described[1:]}."]
    if result.measured:
        told.insert(0, "Measured on public test data, which nobody trained on.")
    if result.why:
        told.append(f"It was selected automatically: {result.why}.")
    choices: tuple[list[tuple[str, str]], ...] = ()
    if result.tuned is not None:
        told.append(
            f"Its settings were chosen by a private vote on {result.tuned['candidates']} "
            "candidates, whose epsilon is part of the one below:"
        )
        choices = (settings(result.tuned["best"]),)
    kind = {}
    if schema.classes is not None:
        kind = {"classes": f"{len(schema.classes)}"}
    elif schema.span is not None:
        kind = {"targets": f"{schema.span[0]:g} to {schema.span[1]:g}"}
    if isinstance(result.learner, Moments):
        kind["ridge, from the noise"] = f"{result.facts['ridge']:.4g}"
        kind["directions that stand out of the noise"] = f"{result.facts['spikes']}"
    else:
        noise = f"± {result.facts['weight_std']:.4g} (one standard deviation)"
        kind["noise in a weight"] = noise
    figures = {
        what: f"{100 * value:.1f} %" if what in ("accuracy", "baseline") else f"{value:.4g}"
        for what, value in result.measured.items()
    } or {"model": "trained"}
    result_of = "the noisy sum, so the model"
    return StageView(
        kind="model",
        name=name,
        heading="One message, one model",
        result=result,
        answer=StageAnswer(
            "One model for all", figures, "Computed from one noisy sum", tuple(told),
            choices=choices,
        ),
        parties=tuple(parties(result.privacy, result.terms, "message", result_of)),
        follows=_PREDICTIONS,
        uncovered=tuple(not_covered(result.privacy)),
        participation=participation_of(result.terms, result.took_part),
        facts={
            "features": f"{schema.features:,}",
            "weights": f"{result.weights.size:,}",
            "messages of each client": "1",
            "numbers in it": f"{result.learner.dimension:,}",
            "noise in an entry of the sum": f"± {result.noise_std:.4g} (one standard deviation)",
            "noise's family": f"{result.terms.family}, made by the clients",
            **kind,
        },
        warnings=warnings_of(result.privacy),
        view={"heading": "The model", "pictures": [weights_picture(result, slug(name))]},
        bytes_per_client=result.plan.get("bytes_per_client"),
    )  # fmt: skip


def _training(result: TrainResult, name: str) -> StageView:
    plan, history = result.plan, result.history
    facts = {"rounds": f"{result.rounds}", "parameters": f"{len(result.weights):,}"}
    told = [f"Training ended because {REASONS[result.stopped]}."]
    if result.accuracy is not None and not math.isnan(result.accuracy):
        facts = {"accuracy": f"{100 * result.accuracy:.1f} %", **facts}
        told.insert(0, "Measured on public test data, which nobody trained on.")
    if math.isfinite(result.achieved_epsilon) and result.rounds:
        told.append(
            "By the noise that was really left in each round, epsilon of the rounds is "
            f"{rounded_up(result.achieved_epsilon)}."
        )
    key, took_part = slug(name), history[-1].took_part if history else 0
    pictures = (*learned(history, key), spent(history, key))
    failed = [f"Round {r.number}: {r.failed}." for r in history if r.failed][:_FAILED]
    invited = int(plan.get("all_clients", result.terms.clients))
    of_all = {"clients in all": f"{invited}"} if invited != result.terms.clients else {}
    result_of = "every round's noisy sum, so the model"
    return StageView(
        kind="training",
        name=name,
        heading="The model is trained",
        result=result,
        answer=StageAnswer("One model for all", facts, result.description, tuple(told)),
        parties=tuple(parties(result.privacy, result.terms, "update", result_of)),
        follows=_PREDICTIONS,
        uncovered=tuple(not_covered(result.privacy)),
        participation={**of_all, **participation_of(result.terms, took_part)},
        facts=_training_facts(result),
        warnings=warnings_of(result.privacy),
        view={
            "heading": "How it learned",
            "pictures": [shown for shown in pictures if shown is not None],
            "told": failed or ([] if any(pictures) else ["Nobody judged the model meanwhile."]),
        },
        bytes_per_client=plan.get("bytes_per_client_and_round"),
        rounds=max(result.rounds, 1),
    )


def _training_facts(result: TrainResult) -> Facts:
    chosen: Mapping[str, Any] = result.plan["settings"]
    facts = {
        "model": result.description,
        "server optimiser": ", ".join(
            str(v) if k == "name" else f"{k} {v}" for k, v in chosen["optimiser"].items()
        ),
        "clip norm": ", ".join(f"{k} {v}" for k, v in chosen["clip"].items()),
        "who takes part": ", ".join(f"{v}" for v in chosen["sampling"].values()),
        "noise in one sum": f"{result.plan['noise_multiplier']:.3g} times the clip norm",
        "noise's family": f"{result.terms.family}, made by the clients",
    }
    if not result.history:
        return facts
    lost = [r.lost for r in result.history]
    ratios = [r.noise_ratio for r in result.history]
    return {
        **facts,
        "dropped out in a round": f"{min(lost)} to {max(lost)} clients",
        "rounds tried again": f"{sum(r.attempts - 1 for r in result.history)}",
        "rounds that gave nothing": f"{sum(bool(r.failed) for r in result.history)}",
        "noise left over the planned": f"{min(ratios):.4f} to {max(ratios):.4f} times its variance",
    }


def _combination(result: Combination, name: str) -> StageView:
    statement, terms, guarantee = result.privacy, result.terms, result.guarantee
    warnings = warnings_of(statement)
    if guarantee is Guarantee.ENCRYPTION:
        warnings = (("NO DIFFERENTIAL PRIVACY", _GUARANTEES[guarantee]),)
    elif guarantee is Guarantee.NONE:
        warnings = (("NOT PRIVATE", _GUARANTEES[guarantee]),)
    told = [f"Found by {result.strategy}.", *([] if warnings else [_GUARANTEES[guarantee]])]
    facts = {
        "strategy": result.strategy,
        "guarantee": str(guarantee),
        "axes": ", ".join(f"{r.name} {r.low:g} to {r.high:g}" for r in result.frame.rulers),
    }
    if result.opened:
        revealed = " and ".join(f"{len(entries)}" for entries in result.opened)
        facts["revealed"] = f"{revealed} numbers"
    if result.noise:
        facts["noise in each"] = ", ".join(f"± {std:.3g}" for std in result.noise)
    if result.cost:
        facts["bytes of keys per party"] = size(result.cost["key_bytes_per_party"])
    took_part = {"invited": f"{result.clients}", "took part": f"{result.took_part}"}
    who = combined_parties(result)
    if terms is not None:
        who = parties(statement, terms, "part", "the noisy sums and so the setting")
        took_part = dict(participation_of(terms, result.took_part))
    robust = SEEN if guarantee is Guarantee.NONE else HIDDEN
    return StageView(
        kind="combination",
        name=name,
        heading="One setting for all",
        result=result,
        answer=StageAnswer(
            "One setting for all",
            {axis: f"{value:.4g}" for axis, value in result.setting.items()},
            f"From {result.took_part} of {count(result.clients, 'client')}",
            tuple(told),
        ),
        parties=tuple(who),
        follows=_NEXT.format("setting"),
        uncovered=tuple(not_covered(statement, noisy=terms is not None, robust=robust)),
        participation=took_part,
        facts=facts,
        warnings=warnings,
        view={
            "heading": "Settings and clusters",
            "pictures": [settings_picture(result, slug(name))],
            "clusters": _clusters(result),
            "more": max(0, len(result.clusters) - _CLUSTERS),
        },
        bytes_per_client=int(result.cost["bytes_per_party"]) if result.cost else None,
    )


def _clusters(result: Combination) -> list[tuple[str, ...]]:
    """Return rows: setting, mean score, size, cells, whether it was taken."""
    noisy = result.guarantee.private
    return [
        (
            ", ".join(f"{axis} {value:.4g}" for axis, value in cluster.setting.items()),
            f"{cluster.score:.3f}" if math.isfinite(cluster.score) else "not known",
            f"{cluster.points:.1f} clients' worth" if noisy else f"{cluster.points:g} settings",
            f"{len(cluster.cells)}" if cluster.cells else "–",
            "taken" if number == 0 else "",
        )
        for number, cluster in enumerate(result.clusters[:_CLUSTERS])
    ]
