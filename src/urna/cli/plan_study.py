"""`urna plan STUDY` and `urna check STUDY`: before anything is spent."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from urna.cli.output import Format, FormatOption, print_json, print_table, results, table
from urna.cli.run import StudyArgument
from urna.data import Samples
from urna.errors import ParameterError
from urna.local import losses_of_each
from urna.privacy.budget import rounded_up
from urna.study import Prepared, prepare, read_study
from urna.study.plan import StudyPlan, plan_study
from urna.study.prepare import among_of
from urna.study.run import check_vote
from urna.study.schema import Follow
from urna.study.sources import ClientData, gather

__all__ = ["check", "plan_file"]


def plan_file(path: Path, output: Format) -> None:
    """Show what a study will cost, and where to spend better."""
    planned = plan_study(prepare(read_study(path)))
    if output is Format.JSON:
        print_json(planned.as_mapping())
        return
    _print(planned)


def _print(planned: StudyPlan) -> None:
    privacy, console = planned.study.privacy, results()
    rows = table("A study, before anything is spent", "", ">")
    rows.add_row("clients, candidates", f"{planned.clients}, {planned.candidates}")
    rows.add_row("epsilon, delta", f"{rounded_up(privacy.epsilon)}, {privacy.delta:g}")
    rows.add_row("neighbouring relation", str(privacy.relation))
    rows.add_row("accountant", planned.accountant)
    if planned.vote is not None and planned.study.vote.winner:
        rows.add_row("trusted not to collude", f"the leader and {planned.study.vote.helper}")
    for chance, value in planned.chances.items():
        rows.add_row(f"a good one wins {chance}", f"{100 * value:.1f} %")
    print_table(rows)
    stages = table("", "stage", ">epsilon", ">sent by a client", ">protocol", "noise")
    for stage in planned.stages:
        stages.add_row(
            stage.name,
            f"{stage.budget.epsilon:.3g}",
            f"{stage.bytes_per_client:,} B",
            _time(stage.seconds),
            stage.noise,
        )
    print_table(stages)
    if planned.division is not None and planned.division.tried:
        console.print(f"\n{planned.division}")
    if planned.openings is not None:
        console.print(f"\nWhat to open, for this part of the budget: {planned.openings}.")
    for sentence in planned.advice:
        console.print(f"- {sentence}")


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


def check(
    study: StudyArgument,
    client: Annotated[
        int | None,
        typer.Option(help="Try the objective on this client's data; the first if unset."),
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(help="Try it on public data instead: a file, a folder or a known set."),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Try STUDY on one client, or on public data: a dry run that spends nothing."""
    found = read_study(study)
    prepared = prepare(found)
    planned = plan_study(prepared, compared=False)
    vote = None if found.vote.force or found.follow is Follow.TRAIN else planned.vote
    if vote is not None:
        with found.blaming("privacy.epsilon"):
            vote.check_hopeful()
        check_vote(prepared, among_of(prepared))
    samples = _one(prepared, client, public)
    said: dict[str, Any] = {
        "clients": planned.clients,
        "candidates": planned.candidates,
        "rows": len(samples),
        "what": prepared.what,
        "spent": 0,
    }
    if prepared.chosen is not None and prepared.space is not None:
        some = prepared.space.only(sorted({0, len(prepared.space) // 2, len(prepared.space) - 1}))
        begun = time.perf_counter()
        judged = losses_of_each(
            prepared.chosen.objective,
            [samples],
            some,
            seeds=[found.seed],
            progress=lambda done, total: None,
        )
        losses = np.asarray(next(iter(judged)))
        said |= {
            "tried": list(some),
            "losses": [float(x) if np.isfinite(x) else None for x in losses],
            "seconds": time.perf_counter() - begun,
        }
        if not np.isfinite(losses).any():
            raise found.error(
                "objective.model",
                "no candidate that was tried has a finite loss on these data: this client would "
                "abstain. Nothing was spent",
            )
    if output is Format.JSON:
        print_json(said)
        return
    console = results()
    console.print(f"{prepared.title}: fits, and nothing was spent")
    if "tried" in said:
        rows = table("", *(f">{name}" for name in said["tried"][0]), ">loss")
        for candidate, loss in zip(said["tried"], said["losses"], strict=True):
            rows.add_row(*map(str, candidate.values()), "failed" if loss is None else f"{loss:.4g}")
        print_table(rows)
        console.print(
            f"on {len(samples)} rows, in {said['seconds']:.2g} s; losses are for your eyes"
        )


def _one(prepared: Prepared, client: int | None, public: str | None) -> Samples:
    """Return whose data the objective is tried on."""
    if public is not None:
        if client is not None:
            raise ParameterError("--client and --public name two sets of data: leave one out")
        study = prepared.study
        part = replace(study.data, source=public, clients=max(study.data.clients, 2))
        other: ClientData = gather(part, seed=study.seed)
        return other.clients[0]
    place = 0 if client is None else client
    if not 0 <= place < len(prepared.clients):
        raise ParameterError(
            f"clients are numbered 0 to {len(prepared.clients) - 1}, got --client {place}"
        )
    return prepared.clients[place]
