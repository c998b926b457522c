"""`urna plan`: what a vote, a training or a whole study can find, before any budget is spent."""

import functools
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from typer.core import TyperGroup

from urna.cli.options import Said, SpaceOption, keyed, named_candidates
from urna.cli.output import Format, FormatOption, print_json, print_table, results, table
from urna.cli.plan_study import plan_file
from urna.errors import ParameterError
from urna.forecast.surfaces import stand_in
from urna.forecast.votes import (
    AGREEMENTS,
    HELD,
    WIDE,
    WITHIN,
    Forecast,
    Openings,
    alternatives,
    clients_needed,
    forecast,
)
from urna.privacy import Unit
from urna.privacy.budget import rounded_up
from urna.protocols.secagg import Plan
from urna.space import Space
from urna.study.prepare import settings_of
from urna.systems.train import TrainPlan, plan_training
from urna.systems.vote import DecoderKind, Reveal, VotePlan, VoteSettings, plan_vote
from urna.systems.vote.decode import Decoder
from urna.systems.vote.kernels import describe_structure
from urna.tally import Terms

__all__ = ["plan"]


class _StudyOrCommand(TyperGroup):
    """A group whose first word may be a study file as well as a command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what is no command for a study."""
        for place, word in enumerate(args):
            first = place == 0 and not word.startswith("-") and word not in self.commands
            if first or (word.endswith(".toml") and args[place - 1] not in ("--study", "--space")):
                args = [*args[:place], "--study", *args[place:]]
                break
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Name the study among what may be said."""
        return ["[OPTIONS]", "[STUDY | COMMAND]"]


plan = typer.Typer(invoke_without_command=True, cls=_StudyOrCommand)


def _plan_votes(
    said: Said,
    context: typer.Context,
    study: Annotated[
        Path | None, typer.Option(help="A study file: plan all of it.", hidden=True)
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="How many clients are invited.  [required]")
    ] = None,
    candidates: Annotated[
        int | None, typer.Option(help="How many candidates they vote on; 100 by default.")
    ] = None,
    space: SpaceOption = None,
    gap: Annotated[
        float | None,
        typer.Option(help="Votes between the worst good and the best bad candidate."),
    ] = None,
    agreement: Annotated[
        float | None, typer.Option(help="The same gap as a fraction of the ballots.")
    ] = None,
    held: Annotated[
        int,
        typer.Option("--forecast", min=0, help="Simulated votes; 0 for no forecast."),
    ] = HELD,
    probability: Annotated[
        float, typer.Option(help="How probably a good candidate should win.")
    ] = 0.95,
    bad: Annotated[
        int | None, typer.Option(help="How many candidates are bad; all but one by default.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show the noise of a vote, or of all of STUDY, and what it can find. Nothing is spent."""
    if context.invoked_subcommand is not None:
        return
    if study is not None:
        plan_file(study, output)
        return
    if clients is None:
        needed = next(p for p in context.command.params if p.name == "clients")
        raise click.MissingParameter(ctx=context, param=needed)
    if gap is not None and agreement is not None:
        raise ParameterError("--gap and --agreement say the same thing in two ways: name one")
    known, count = _asked(space, candidates)
    asked = said.study()
    terms = Terms.of(clients, asked.privacy.budget, **asked.privacy.options)
    ballots, decoder = asked.vote, asked.vote.decoder
    how = VoteSettings(ballot=ballots.ballot, votes=ballots.votes or None)
    again = functools.partial(plan_vote, candidates=count, how=how)
    vote = again(terms)
    protocol = vote.tally.round_plan
    answers: dict[str, Any] = {"probability": probability, "gap": vote.gap_for(probability, bad)}
    if agreement is not None:
        answers["clients_needed"] = vote.clients_for(agreement, probability, bad)
        if vote.terms.adjacency.unit is Unit.RECORD:
            answers["shards_needed"] = vote.shards_for(agreement, probability, bad)
        gap = agreement * vote.fewest_ballots
    if gap is not None:
        answers["given_gap"] = gap
        answers["success_probability"] = vote.success_probability(gap, bad)
        with suppress(ParameterError):  # no epsilon is enough: the other answers stand
            answers["epsilon_needed"] = vote.epsilon_for(gap, probability, bad)
    forecasts: dict[str, Forecast] = {}
    if held and count > 1:
        grid = known or stand_in(count)
        forecasts = _forecasts(vote, grid, decoder.build(), held, again)
        answers["forecast"] = {
            "space": repr(grid),
            "decoder": str(decoder),
            "known": known and "; not ".join(filter(None, describe_structure(known))),
            "clients_needed": clients_needed(vote, grid, again, decoder=decoder.build())
            if forecasts[_AS_PLANNED].hopeless
            else None,
            "votes": {name: each.as_mapping() for name, each in forecasts.items()},
        }
    openings = _openings(vote, known, forecasts.get(_AS_PLANNED), held)
    answers["openings"] = {name: each.as_mapping() for name, each in openings.items()}
    if output is Format.JSON:
        summation = {
            "server": str(protocol.server),
            "neighbours": protocol.neighbours,
            "threshold": protocol.threshold,
            "bytes_per_client": protocol.bytes_per_client,
            "client_seconds": protocol.client_seconds,
            "server_seconds": protocol.server_seconds,
        }
        print_json(vote.as_mapping() | answers | {"summation": summation})
    else:
        _print_vote(vote, answers, protocol)
        if forecasts:
            _print_forecasts(answers["forecast"], forecasts)
            _print_openings(openings)


plan.callback()(keyed("plan", _plan_votes))

_AS_PLANNED = "as planned"
_CANDIDATES = 100  # unless one says otherwise


def _asked(space: list[str] | None, candidates: int | None) -> tuple[Space | None, int]:
    """Return a plan's candidates, where they are named, and how many they are.

    Raises:
        ParameterError: They cannot be, or are another number than was named.
    """
    if not space:
        return None, _CANDIDATES if candidates is None else candidates
    found = named_candidates(space)
    if candidates not in (None, len(found)):
        raise ParameterError(
            f"the space has {len(found)} candidates, --candidates says {candidates}: leave one out"
        )
    return found, len(found)


def _forecasts(
    vote: VotePlan,
    space: Space,
    decoder: Decoder,
    held: int,
    again: Callable[[Terms], VotePlan],
) -> dict[str, Forecast]:
    """Simulate votes as planned, by how far clients agree, and with more to spend."""
    found = {_AS_PLANNED: forecast(vote, space, decoder=decoder, held=held)}
    half = math.ceil(held / 2)
    for name, apart in AGREEMENTS.items():
        found[f"… clients {name}"] = forecast(vote, space, decoder=decoder, held=half, apart=apart)
    return found | alternatives(vote, space, again, decoder=decoder, held=half)


_ALONE = "alone in its ledger"


def _openings(
    vote: VotePlan, known: Space | None, found: Forecast | None, held: int
) -> dict[str, Openings]:
    """Run the same simulated votes with only the winner revealed, for the same budget."""
    if found is None:
        return {}
    space = known or stand_in(vote.candidates)
    with suppress(ParameterError):  # no such noise can be drawn: there is nothing to compare with
        alone = plan_vote(vote.terms, space, VoteSettings(reveal=Reveal("winner", "a helper")))
        return {_ALONE: Openings(found, forecast(alone, space, held=held))}
    return {}


def _print_openings(openings: dict[str, Openings]) -> None:
    if openings:
        results().print("\nWhat to open, if a helper does not collude with the server:")
    for name, each in openings.items():
        results().print(f"- {name}: {each}")


def _print_forecasts(about: dict[str, Any], forecasts: dict[str, Forecast]) -> None:
    console, planned = results(), forecasts[_AS_PLANNED]
    title = f"\nSimulated votes on {about['space']}, decoder {about['decoder']}"
    rows = table(title, "", ">agreement", *(f">≤ {100 * w:g} %" for w in WITHIN), ">regret")
    for name, each in forecasts.items():
        chances = []
        for part in WITHIN:
            low, high = each.interval(part)
            chances.append(f"{100 * each.within(part):.0f} ({100 * low:.0f}–{100 * high:.0f})")
        rows.add_row(name, f"{each.agreement:.2f}", *chances, each.described_regret())
    lot = (f"{100 * chance:.0f}" for chance in planned.blind_within)
    rows.add_row("a candidate by lot", "", *lot, f"{100 * planned.blind_regret:.1f}")
    print_table(rows)
    console.print(
        "How often, in per cent of the votes, the winner falls short of the best by at\n"
        "most so much, and its mean regret: both in per cent of the distance from the\n"
        "worst candidate to the best; with 95 % intervals. Agreement: mean correlation\n"
        "of what a client sees with what is true. These are votes on synthetic loss surfaces,\n"
        "not a guarantee.",
        style="dim",
    )
    if about["known"] and about["decoder"] == DecoderKind.POSTERIOR:
        console.print(f"Before it sees a tally the decoder knows {about['known']}.")
    console.print(_verdict(forecasts, about["clients_needed"]))


def _verdict(forecasts: dict[str, Forecast], needed: int | None) -> str:
    """Say whether the plan is hopeless, and what would help most."""
    planned = forecasts[_AS_PLANNED]
    changed = {name: each for name, each in forecasts.items() if name != _AS_PLANNED}
    gains = {n: planned.gain_of(each) for n, each in changed.items() if not n.startswith("…")}
    best, (gain, error) = max(gains.items(), key=lambda each: each[1][0], default=("", (0.0, 0.0)))
    said = (
        f"Of these changes `{best}` helps most: {100 * gain:.1f} ± {100 * WIDE * error:.1f} points "
        "of regret on the same loss surfaces (95 % interval)."
        if gain > 2 * error
        else "None of these changes alone helps beyond what chance may explain."
    )
    if not planned.hopeless:
        return said
    enough = (
        "no number of clients that was tried is enough"
        if needed is None
        else f"about {needed:,} clients would be enough for nine of ten"
    )
    worst = WITHIN[-1]
    return (
        f"This plan is hopeless: {100 * planned.within(worst):.0f} % of the simulated votes find a "
        f"candidate within {100 * worst:g} % of the best; {enough}. {said} Public data of the same "
        "kind cost nothing (`urna search --rehearse`)."
    )


def _print_vote(vote: VotePlan, answers: dict[str, Any], protocol: Plan) -> None:
    tally, terms = vote.tally, vote.terms
    sure = f"{100 * answers['probability']:g} %"
    lines = table("A vote, before any budget is spent", "", ">")
    lines.add_row("clients, candidates", f"{terms.clients}, {vote.candidates}")
    lines.add_row("ballot", str(vote.shape))
    epsilon = tally.whole_epsilon
    lines.add_row("epsilon, delta", f"{rounded_up(epsilon)}, {terms.budget.delta:g}")
    lines.add_row("neighbouring relation", str(terms.adjacency))
    lines.add_row("protected", f"a {terms.adjacency.unit}: {terms.adjacency.described}")
    if terms.adjacency.unit is Unit.RECORD:
        lines.add_row("shards, ballots in all", f"{terms.shards}, {terms.clients * terms.shards}")
        proven = tally.whole_client_over(1)
        for_client = f"epsilon {rounded_up(proven)}" if math.isfinite(proven) else "nothing"
        lines.add_row("proven for a whole client", for_client)
    lines.add_row("accountant", tally.accountant)
    lines.add_row("may drop out, may collude", f"{terms.dropouts}, {terms.colluders}")
    lines.add_row("honest others sure to remain", f"{terms.honest}")
    lines.add_row("noise in the tally", f"± {vote.noise_std:.2f} votes ({tally.noise.name})")
    if vote.most_noise_std > 1.001 * vote.noise_std:
        lines.add_row("… with what colluders add", f"± {vote.most_noise_std:.2f} votes")
    per_client = math.sqrt(tally.share) / vote.vote
    lines.add_row("noise one client adds", f"± {per_client:.2f} votes")
    lines.add_row("largest lead, if all agree", f"{vote.largest_gap:.1f} votes")
    lines.add_row("… and it wins with", f"{vote.best_case:.4f}")
    lines.add_row(
        f"Theorem V.1, argmax only: gap to find a good one, {sure}", f"{answers['gap']:g} votes"
    )
    if "given_gap" in answers:
        given = f"{answers['given_gap']:g} votes"
        lines.add_row(
            f"… a gap of {given} finds a good one with",
            f"≥ {answers['success_probability']:.4f}",
        )
        needed = answers.get("epsilon_needed")
        lines.add_row(f"… epsilon at which {given} suffice", f"{needed:.3g}" if needed else "none")
    if "clients_needed" in answers:
        lines.add_row("… clients needed at this agreement", f"{answers['clients_needed']}")
    if "shards_needed" in answers:
        lines.add_row("… or shards of each of these clients", f"{answers['shards_needed']}")
    lines.add_row("server", str(protocol.server))
    lines.add_row("neighbours, shares that rebuild", f"{protocol.neighbours}, {protocol.threshold}")
    lines.add_row("sent and received by a client", f"{protocol.bytes_per_client:,} bytes")
    lines.add_row("computed by a client, about", f"{1000 * protocol.client_seconds:.1f} ms")
    lines.add_row("computed by the server, about", f"{1000 * protocol.server_seconds:.0f} ms")
    print_table(lines)


def _plan_training(
    said: Said,
    clients: Annotated[int, typer.Option(help="How many clients there are in all.")],
    dimension: Annotated[int, typer.Option(help="How many parameters the model has.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Show the noise, ring, bytes and time of a training. Nothing is spent."""
    said.section("train")
    asked = said.study()
    planned = plan_training(
        clients,
        dimension,
        budget=asked.privacy.budget,
        rounds=asked.train.rounds,
        settings=settings_of(asked),
        **asked.privacy.options,
    )
    if not asked.train.force:
        planned.check_hopeful()
    if output is Format.JSON:
        print_json(planned.as_mapping())
    else:
        _print_training(planned)


def _print_training(planned: TrainPlan) -> None:
    tally, terms, layout = planned.tally, planned.terms, planned.layout
    said = planned.as_mapping()
    lines = table("A training, before anything starts", "", ">")
    lines.add_row("clients in all, in a round", f"{planned.clients}, {terms.clients}")
    lines.add_row("rounds, of one client at most", f"{planned.rounds}, {planned.counted}")
    lines.add_row("parameters", f"{layout.parameters:,}")
    lines.add_row("epsilon, delta", f"{rounded_up(tally.whole_epsilon)}, {terms.budget.delta:g}")
    lines.add_row("neighbouring relation", str(terms.adjacency))
    lines.add_row("protected", f"a {terms.adjacency.unit}: {terms.adjacency.described}")
    if terms.adjacency.unit is Unit.RECORD:
        proven = planned.whole_client_epsilon
        shown = f"epsilon {rounded_up(proven)}" if math.isfinite(proven) else "nothing"
        lines.add_row("proven for a whole client, all rounds", shown)
    lines.add_row("accountant", tally.accountant)
    sampled = planned.settings.sampling.rate is not None
    lines.add_row(
        "amplification by sampling", "yes: nobody may know who was drawn" if sampled else "none"
    )
    lines.add_row("may drop out, may collude, in a round", f"{terms.dropouts}, {terms.colluders}")
    lines.add_row("noise in a sum", f"{planned.noise_multiplier:.4f} times the clip norm")
    lines.add_row("… in one entry of the mean", f"{planned.update_error:.2e} times the clip norm")
    lines.add_row("all noise over the longest way", f"{planned.noise_to_signal:.2f}")
    lines.add_row("of the noise, because of rounding", f"{100 * planned.rounding_excess:.2f} %")
    removal = f"{said['noise_components']} parts, {said['removal']} removal"
    lines.add_row("noise of a client, in grid steps", f"± {math.sqrt(tally.share):,.0f}, {removal}")
    lines.add_row("ring", f"{tally.ring_bits} bits")
    lines.add_row("neighbours, shares that rebuild", f"{said['neighbours']}, {said['threshold']}")
    up, down = said["bytes_per_client_and_round"], said["model_bytes"]
    lines.add_row("sum: sent and received by a client", f"{up:,} bytes a round")
    lines.add_row("model: received by a client", f"{down:,} bytes a round")
    client, server = planned.seconds_per_round
    lines.add_row("computed by a client, about", f"{1000 * client:.1f} ms a round")
    lines.add_row("computed by the server, about", f"{1000 * server:.0f} ms a round")
    whole = planned.rounds * (terms.clients * client + server)
    lines.add_row("all of it on one core, without training", f"{whole:,.0f} s")
    print_table(lines)


plan.command("train")(keyed("plan-train", _plan_training))
