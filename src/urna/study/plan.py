"""What a study will cost, and where its budget would be better spent. Nothing is spent here."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from urna.errors import ParameterError
from urna.forecast.votes import WIDE, Openings, forecast
from urna.privacy import Budget, Unit
from urna.privacy.cost import DECLARED, GAUSSIAN
from urna.space import Space
from urna.study.division import AGREEMENT, Division, likely, said_likely, shards_of
from urna.study.file import Study
from urna.study.prepare import Prepared, among_of, division_of, reveal_of, stage_of
from urna.systems.average import AveragePlan
from urna.systems.train.plan import TrainPlan
from urna.systems.vote import COUNTS, DecoderKind, Reveal, VotePlan, VoteSettings, plan_vote
from urna.systems.vote.plan import EVEN
from urna.tally import TallyPlan, Terms
from urna.tally.selection_plan import ACCOUNTANT

__all__ = ["StagePlan", "StudyPlan", "plan_study"]

_SURE = 0.95
_HELD = 100  # made-up votes of each opening that are compared
_GATE = 1.6e-6  # seconds of leader and helper for each AND gate of their circuit


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One release, or a series of them, before it happens."""

    name: str
    budget: Budget
    noise: str
    """In words, with its unit."""
    bytes_per_client: int
    seconds: float
    """Of everybody's protocol together on one core, without local training."""
    accountant: str = GAUSSIAN


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """A study, before anything is spent."""

    study: Study
    clients: int
    candidates: int
    vote: VotePlan | None
    """None where one stage stands alone."""
    division: Division | None
    stages: tuple[StagePlan, ...]
    chances: "dict[str, float]"
    """How probably a good candidate wins, for the clients described."""
    openings: Openings | None
    """What counts and a winner find on synthetic loss surfaces, at the same share of the budget."""
    advice: tuple[str, ...]

    @property
    def accountant(self) -> str:
        """Which bounds the study's epsilon rests on."""
        if self.vote is None:
            return self.stages[0].accountant
        if not self.vote.reveal.winner:
            return self.vote.tally.accountant
        return ACCOUNTANT if self.division is None else f"{GAUSSIAN} + {DECLARED}"

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "clients": self.clients,
            "candidates": self.candidates,
            "epsilon": self.study.privacy.epsilon,
            "delta": self.study.privacy.delta,
            "adjacency": str(self.study.privacy.relation),
            "division": None if self.division is None else self.division.as_mapping(),
            "stages": [
                {
                    "name": stage.name,
                    "epsilon": stage.budget.epsilon,
                    "delta": stage.budget.delta,
                    "noise": stage.noise,
                    "bytes_per_client": stage.bytes_per_client,
                    "seconds": stage.seconds,
                }
                for stage in self.stages
            ],
            "vote": None if self.vote is None else self.vote.as_mapping(),
            "chances": self.chances,
            "opens": self.study.vote.opens,
            "accountant": self.accountant,
            "openings": None if self.openings is None else self.openings.as_mapping(),
            "advice": list(self.advice),
        }


def plan_study(prepared: Prepared, *, compared: bool = True) -> StudyPlan:
    """Plan a study whose data are read. Nothing is released.

    Args:
        prepared: The study.
        compared: Whether to compare openings, which takes a while.

    Raises:
        ParameterError: It cannot be planned.
    """
    study = prepared.study
    privacy = study.privacy
    clients = len(prepared.clients)
    if not clients:
        raise study.error("combine", "recorded searches are combined by `urna run`, not planned")
    with study.blaming("privacy.epsilon"):
        among, stage = among_of(prepared), stage_of(prepared)
        terms = among.terms(privacy.budget)
        division = division_of(prepared, among)
        budget = privacy.budget if division is None else division.train
        planned: Any = None if stage is None else stage.plan(budget, among, force=True)
        rest = () if planned is None else (_following(planned, clients, budget),)
        said = tuple(_advice_on(planned)) if isinstance(planned, TrainPlan) else ()
        if not study.votes:
            return StudyPlan(study, clients, 0, None, None, rest, {}, None, said)
        if stage is None or prepared.space is not None:
            space = prepared.candidates
        else:
            space, _ = stage.voted_on(planned, None)
        budget = privacy.budget if division is None else division.vote
        vote = _vote(study, terms.costing(budget), space, reveal_of(study))
    openings = _openings(study, terms, division, space) if compared else None
    advice = [*_advice(prepared, vote, division), *said]
    if privacy.colluding == 0 and not vote.reveal.winner:
        advice.append(
            "nobody is taken to collude: a tenth (colluding = 0.1) costs little more noise"
        )
    if openings is not None and openings.better not in ("either", study.vote.opens):
        advice.append(_other_opening(openings))
    return StudyPlan(
        study,
        clients,
        len(space),
        vote,
        division,
        (_voting_stage(vote), *rest),
        _chances(vote),
        openings,
        tuple(advice),
    )


def _voting_stage(vote: VotePlan) -> StagePlan:
    """Plan the vote itself."""
    budget, clients = vote.terms.budget, vote.terms.clients
    protocol, circuit = vote.mechanism.round_plan, 0.0
    noise = f"± {vote.noise_std:.1f} votes"
    if vote.reveal.winner:
        noise += (
            f" around each candidate; {vote.fewest_ballots} ballots give 0 to {vote.shape.most}"
        )
        circuit = _GATE * vote.selection.circuit.ands
    else:
        noise += f" of {vote.fewest_ballots} ballots"
    seconds = clients * protocol.client_seconds + protocol.server_seconds + circuit
    return StagePlan("vote", budget, noise, protocol.bytes_per_client, seconds)


def _vote(study: Study, terms: Terms, space: Space, reveal: Reveal) -> VotePlan:
    """Plan a study's vote, whatever it reveals; its file may say what is a ballot of counts."""
    if reveal.winner:
        return plan_vote(terms, space, VoteSettings(reveal=reveal))
    ballot, votes = study.vote.ballot or None, study.vote.votes or None
    return plan_vote(terms, space, VoteSettings(ballot=ballot, votes=votes))


def _openings(
    study: Study, terms: Terms, division: Division | None, space: Space
) -> Openings | None:
    """Compare what may be revealed for the vote's share of the budget, on synthetic losses."""
    if len(space) < 2:
        return None
    part = None if division is None else division.part

    def planned(reveal: Reveal) -> VotePlan:
        whole = study.privacy.budget
        budget = whole if part is None else reveal.divide(whole, part)[0]
        return _vote(study, terms.costing(budget), space, reveal)

    with suppress(ParameterError):  # one of them cannot be planned: nothing to compare
        winner = planned(Reveal("winner", study.vote.helper or "a helper"))
        decoder = DecoderKind(study.vote.decoder).build()
        counts = forecast(planned(COUNTS), space, decoder=decoder, held=_HELD)
        return Openings(counts, forecast(winner, space, held=_HELD))
    return None


def _other_opening(openings: Openings) -> str:
    gain, error = openings.gain
    said = f"{100 * abs(gain):.1f} ± {100 * WIDE * error:.1f} points of regret less on made-up "
    said += "loss surfaces (95 % interval)"
    if openings.better == "tally":
        return f'opens = "tally" finds more for the same part of the budget: {said}'
    return (
        f'with a helper that does not collude, opens = "winner" finds more for the same part of '
        f"the budget: {said}"
    )


def _needed(vote: VotePlan, probability: float) -> float | None:
    """Return the epsilon at which they win this probably; None where no epsilon is enough."""
    with suppress(ParameterError):
        return vote.epsilon_for(vote.gap_of(AGREEMENT), probability)
    return None


def _chances(vote: VotePlan) -> dict[str, float]:
    """Return how probably a good candidate wins. The one place where votes are forecast."""
    least = "" if vote.reveal.winner else ", at least"  # of counts it is a lower bound
    usual = f"if the good lead by {100 * AGREEMENT:.0f} % of the ballots{least}"
    return {"if all agree": vote.best_case, usual: likely(vote)}


def _following(
    planned: TrainPlan | AveragePlan | TallyPlan, clients: int, budget: Budget
) -> StagePlan:
    """Return what follows the vote, or stands alone."""
    if isinstance(planned, TrainPlan):
        said, (client, server) = planned.as_mapping(), planned.seconds_per_round
        return StagePlan(
            f"train, {planned.rounds} rounds",
            budget,
            f"{planned.noise_multiplier:.2f} clip norms in a sum; all of it "
            f"{planned.noise_to_signal:.2f} of the longest way",
            planned.rounds * (said["bytes_per_client_and_round"] + said["model_bytes"]),
            planned.rounds * (planned.terms.clients * client + server),
            planned.tally.accountant,
        )
    if isinstance(planned, AveragePlan):
        name, tally = "average", planned.tally
        noise = (
            f"± {planned.encoding.error(clients, tally.most_noise):.3g} in each of "
            f"{planned.learner.dimension:,} numbers of the mean"
        )
    else:
        name, tally, noise = "combine", planned, "one noisy mean of settings"
    sums = tally.round_plan
    seconds = clients * sums.client_seconds + sums.server_seconds
    return StagePlan(name, budget, noise, sums.bytes_per_client, seconds, tally.accountant)


def _advice(prepared: Prepared, vote: VotePlan, division: Division | None) -> Iterator[str]:
    """Say where the budget of a vote would be better spent."""
    privacy = prepared.study.privacy
    chance = likely(vote)
    if chance < EVEN and not (
        division or prepared.study.vote.force or prepared.study.vote.rehearse
    ):
        yield "this vote will probably be inconclusive: `urna run` refuses it without force = true"
    if chance < _SURE:
        if (need := _needed(vote, _SURE)) is not None:
            clients = "" if vote.reveal.winner else f"{vote.clients_for(AGREEMENT, _SURE)} clients"
            yield (
                f"{said_likely(vote)}; {100 * _SURE:.0f} % need epsilon {need:.2g} for the vote"
                f"{', or ' * bool(clients)}{clients}"
            )
        if vote.terms.adjacency.unit is Unit.CLIENT and len(prepared.clients) < 30:
            yield (
                'with few, large clients say unit = "record" and shards = '
                f"{shards_of(len(prepared.clients), prepared.fewest)}: single records are protected"
            )
        elif vote.terms.adjacency.unit is Unit.RECORD and not vote.reveal.winner:
            need_shards = vote.shards_for(AGREEMENT, _SURE)
            yield f"or {need_shards} shards of each client, where each keeps enough records"
    elif division is None and chance > 0.999 and privacy.epsilon > 0.2:
        need = _needed(vote, 0.99)
        if need is not None and need < 0.8 * privacy.epsilon:
            yield (
                f"epsilon {need:.2g} would do for the same lead with 99 %: the rest could "
                'train (what = "train") or stay unspent'
            )


def _advice_on(planned: TrainPlan) -> Iterator[str]:
    if planned.noise_to_signal > 1:
        yield (
            f"the noise of training is {planned.noise_to_signal:.1f} times as long as its "
            "longest way: fewer parameters, more clients or a larger epsilon help; fewer "
            "rounds with a larger server_lr may"
        )
