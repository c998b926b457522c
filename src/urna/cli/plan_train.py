"""`urna plan train`: what training costs, before anything starts."""

import math
from typing import Annotated

import typer

from urna.cli.options import Said
from urna.cli.output import Format, FormatOption, print_json, print_table, table
from urna.privacy import Unit
from urna.privacy.budget import rounded_up
from urna.study.prepare import settings_of
from urna.systems.train import TrainPlan, plan_training

__all__ = ["plan_train"]


def plan_train(
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
        _print(planned)


def _print(planned: TrainPlan) -> None:
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
