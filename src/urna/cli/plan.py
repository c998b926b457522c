"""`urna plan`: what a vote can find, before any budget is spent; `urna plan train` for training."""

import math
from contextlib import suppress
from typing import Annotated, Any

import click
import typer

from urna.cli.ballots import BallotOption, VotesOption
from urna.cli.output import Format, FormatOption, print_json, results, table
from urna.cli.plan_train import plan_train
from urna.cli.terms import (
    AdjacencyOption,
    ColludingOption,
    DeltaOption,
    DropoutOption,
    EpsilonOption,
    ServerOption,
    ShardsOption,
    UnitOption,
    terms_of,
)
from urna.errors import ParameterError
from urna.privacy import Budget, Unit
from urna.privacy.budget import rounded_up
from urna.secagg import Plan, ServerModel
from urna.vote import Openings, VotePlan, compare_openings, describe_ballot
from urna.vote import plan as plan_vote

__all__ = ["plan"]

plan = typer.Typer(invoke_without_command=True)
plan.command("train")(plan_train)


@plan.callback()
def plan_ballots(
    context: typer.Context,
    clients: Annotated[
        int | None, typer.Option(help="How many clients are invited.  [required]")
    ] = None,
    candidates: Annotated[int, typer.Option(help="How many candidates they vote on.")] = 100,
    ballot: BallotOption = None,
    votes: VotesOption = None,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-5,
    dropout: DropoutOption = "0",
    colluding: ColludingOption = "0",
    unit: UnitOption = None,
    shards: ShardsOption = 1,
    adjacency: AdjacencyOption = None,
    gap: Annotated[
        float | None,
        typer.Option(help="Votes between the worst good and the best bad candidate."),
    ] = None,
    agreement: Annotated[
        float | None, typer.Option(help="The same gap as a fraction of the ballots.")
    ] = None,
    probability: Annotated[
        float, typer.Option(help="How probably a good candidate should win.")
    ] = 0.95,
    bad: Annotated[
        int | None, typer.Option(help="How many candidates are bad; all but one by default.")
    ] = None,
    server: ServerOption = ServerModel.HONEST_BUT_CURIOUS,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show the noise of a vote and what it can find. Nothing is spent."""
    if context.invoked_subcommand is not None:
        return
    if clients is None:
        needed = next(p for p in context.command.params if p.name == "clients")
        raise click.MissingParameter(ctx=context, param=needed)
    if gap is not None and agreement is not None:
        raise ParameterError("--gap and --agreement say the same thing in two ways: name one")
    vote = plan_vote(
        clients=clients,
        candidates=candidates,
        ballot=ballot,
        votes=votes,
        budget=Budget(epsilon, delta),
        **terms_of(dropout, colluding, unit, adjacency, shards, server),
    )
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
    openings = compare_openings(vote, probability) if candidates > 1 else None
    if openings is not None:
        answers["openings"] = openings.as_mapping()
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
        _print(vote, answers, protocol, openings)


def _print(
    vote: VotePlan, answers: dict[str, Any], protocol: Plan, openings: Openings | None
) -> None:
    tally, terms = vote.tally, vote.terms
    sure = f"{100 * answers['probability']:g} %"
    lines = table("A vote, before any budget is spent", "", ">")
    lines.add_row("clients, candidates", f"{terms.clients}, {vote.candidates}")
    lines.add_row("ballot", describe_ballot(vote.shape))
    epsilon = tally.whole_epsilon
    lines.add_row("epsilon, delta", f"{rounded_up(epsilon)}, {terms.budget.delta:g}")
    lines.add_row("neighbouring relation", str(terms.adjacency))
    lines.add_row("protected", f"a {terms.adjacency.unit}: {terms.adjacency.described}")
    if terms.adjacency.unit is Unit.RECORD:
        lines.add_row("shards, ballots in all", f"{terms.shards}, {terms.clients * terms.shards}")
        proven = tally.whole_client_epsilon
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
    lines.add_row(f"gap at which argmax finds a good one, {sure}", f"{answers['gap']:g} votes")
    if "given_gap" in answers:
        given = f"{answers['given_gap']:g} votes"
        lines.add_row(
            f"a gap of {given} finds a good one with", f"≥ {answers['success_probability']:.4f}"
        )
        needed = answers.get("epsilon_needed")
        lines.add_row(f"epsilon at which {given} suffice", f"{needed:.3g}" if needed else "none")
    if "clients_needed" in answers:
        lines.add_row("clients needed at this agreement", f"{answers['clients_needed']}")
    if "shards_needed" in answers:
        lines.add_row("or shards of each of these clients", f"{answers['shards_needed']}")
    if openings is not None:
        leads = (openings.tally, openings.winner_alone, openings.winner_beside)
        needed = ", ".join(f"{100 * lead:.0f} %" for lead in leads)
        lines.add_row(f"lead that wins, {sure}: tally, winner alone, beside sums", needed)
        lines.add_row("open, if a helper does not collude", openings.advice)
    lines.add_row("server", str(protocol.server))
    lines.add_row("neighbours, shares that rebuild", f"{protocol.neighbours}, {protocol.threshold}")
    lines.add_row("sent and received by a client", f"{protocol.bytes_per_client:,} bytes")
    lines.add_row("computed by a client, about", f"{1000 * protocol.client_seconds:.1f} ms")
    lines.add_row("computed by the server, about", f"{1000 * protocol.server_seconds:.0f} ms")
    results().print(lines)
