"""`urna search`: a private search from the command line, all clients on this machine."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.ballots import BallotOption, DecoderOption, VotesOption
from urna.cli.keep import Keeper, keeping
from urna.cli.output import Format, FormatOption, results, table
from urna.cli.progress import live_progress
from urna.cli.terms import (
    AdjacencyOption,
    AnywayOption,
    ColludingOption,
    DeltaOption,
    DropoutOption,
    EpsilonOption,
    ServerOption,
    ShardsOption,
    UnitOption,
    terms_of,
)
from urna.data import Samples, Split, load, split
from urna.errors import ParameterError
from urna.local import CachedObjective, Objective
from urna.local.presets import PRESETS, preset
from urna.privacy import Budget, Ledger
from urna.randomness import OsSecrets, ScriptedSecrets, SecretSource
from urna.secagg import ServerModel
from urna.space import Space
from urna.tally import (
    ClearSummation,
    EncryptedSummation,
    SecureSummation,
    Summation,
    VerifiedSelection,
)
from urna.vote import DecoderKind, Result, SearchProgress, WinnerResult, search_twice
from urna.vote import search as search_votes

__all__ = ["search"]


class SummationKind(StrEnum):
    """Ways to add ballots up in one process."""

    SECURE = "secure"
    ENCRYPTED = "encrypted"
    CLEAR = "clear"

    @property
    def summation(self) -> Summation:
        """What adds up."""
        if self is SummationKind.CLEAR:
            return ClearSummation()
        return EncryptedSummation() if self is SummationKind.ENCRYPTED else SecureSummation()


class Opening(StrEnum):
    """What becomes public."""

    TALLY = "tally"
    WINNER = "winner"


class Engine(StrEnum):
    """Where the clients run."""

    MEMORY = "memory"
    FLOWER = "flower"


def search(
    data: Annotated[str, typer.Option(help="Data set; `urna data` lists them.")] = "digits",
    folder: Annotated[Path | None, typer.Option(help="Folder that holds the set's file.")] = None,
    hub: Annotated[bool, typer.Option(help="Fetch it from the Hugging Face hub.")] = False,
    model: Annotated[str, typer.Option(help=f"Model: {', '.join(PRESETS)}.")] = "linear",
    space: Annotated[
        Path | None, typer.Option(help="Candidates, as .toml or .json; the model's by default.")
    ] = None,
    clients: Annotated[int, typer.Option(help="How many clients vote.")] = 60,
    how: Annotated[Split, typer.Option("--split", help="How data is split.")] = Split.IID,
    beta: Annotated[float, typer.Option(help="Concentration of Dirichlet skews.")] = 0.5,
    level: Annotated[float, typer.Option(help="Feature skew, 0 (iid) to 1.")] = 0.8,
    epsilon: EpsilonOption = 1.0,
    delta: DeltaOption = 1e-5,
    ballot: BallotOption = None,
    votes: VotesOption = None,
    decoder: DecoderOption = DecoderKind.POSTERIOR,
    opens: Annotated[
        Opening,
        typer.Option(
            help="What becomes public: the noisy tally, or the winner alone, which takes less "
            "noise and a helper that does not collude with the leader."
        ),
    ] = Opening.TALLY,
    helper: Annotated[
        str | None, typer.Option(help="With --opens winner: who holds the other share of the sum.")
    ] = None,
    verified: Annotated[
        bool,
        typer.Option(
            "--verified",
            help="With --opens winner: leader and helper check every ballot, and refuse and name "
            "those that are not valid.",
        ),
    ] = False,
    dropout: DropoutOption = "0",
    colluding: ColludingOption = "0",
    unit: UnitOption = None,
    shards: ShardsOption = 1,
    adjacency: AdjacencyOption = None,
    summation: Annotated[
        SummationKind,
        typer.Option(
            help="How ballots are added up: by masks, under threshold encryption (few clients), or "
            "in the clear, which hides nothing."
        ),
    ] = SummationKind.SECURE,
    server: ServerOption = ServerModel.HONEST_BUT_CURIOUS,
    rounds: Annotated[
        int, typer.Option(help="2: find the region first, then vote again inside it.")
    ] = 1,
    engine: Annotated[
        Engine, typer.Option(help="Clients in this process, or as nodes in Flower's simulation.")
    ] = Engine.MEMORY,
    seed: Annotated[int, typer.Option(help="Public seed of the split and of training.")] = 0,
    ledger: Annotated[
        Path | None, typer.Option(help="Count the release in this ledger (`urna ledger create`).")
    ] = None,
    scripted_secrets: Annotated[
        str | None, typer.Option(help="Repeatable noise from this label. NOT PRIVATE.")
    ] = None,
    cache: Annotated[
        bool, typer.Option(help="Keep local losses on disk, so that a second run is quick.")
    ] = True,
    anyway: AnywayOption = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="Folder for result.json, report.html, first-round.json; with a ledger, beside "
            "the ledger by default.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option(help="Show no progress.")] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Let clients agree on hyperparameters by secret ballot."""
    _check_together(engine, summation, server)
    if rounds not in (1, 2):
        raise ParameterError(f"a search has one round or two, got {rounds}")
    if rounds == 2 and (engine is Engine.FLOWER or ballot or votes or decoder.value == "argmax"):
        raise ParameterError(
            "two rounds run in memory with the default ballot and decoder; leave --engine, "
            "--ballot, --votes and --decoder out"
        )
    if opens is Opening.WINNER and (
        engine is Engine.FLOWER
        or rounds == 2
        or summation is not SummationKind.SECURE
        or ballot
        or votes
        or decoder is not DecoderKind.POSTERIOR
    ):
        raise ParameterError(
            "only the winner is opened in memory, in one round, of secret sums of ballots of "
            "levels; leave --engine, --rounds, --summation, --ballot, --votes and --decoder out"
        )
    terms: dict[str, Any] = {
        "budget": Budget(epsilon, delta),
        **terms_of(dropout, colluding, unit, adjacency, shards, server),
        "ballot": ballot,
        "votes": votes,
        "decoder": decoder.build(),
        "seed": seed,
        "anyway": anyway,
    }
    opened = terms["ledger"] = Ledger(ledger) if ledger is not None else None
    secrets: SecretSource = (
        OsSecrets() if scripted_secrets is None else ScriptedSecrets(scripted_secrets.encode())
    )
    with keeping(out, opened, "result.json", "report.html", "first-round.json") as keeper:
        dataset = load(data, folder=folder, hub=hub)
        chosen = preset(model, dataset)
        candidates = chosen.space if space is None else Space.read(space)
        parts = split(dataset, clients=clients, how=how, beta=beta, level=level, seed=seed)
        objective = CachedObjective(chosen.objective, _cache_folder(), enabled=cache)
        keeper.hold_room(len(candidates))
        terms["keep"] = keeper.keep
        result: Result | WinnerResult
        with live_progress(quiet) as report:
            if engine is Engine.FLOWER:
                result = _over_flower(candidates, objective, parts, scripted_secrets, report, terms)
            elif opens is Opening.WINNER:
                terms |= {"secrets": secrets, "progress": report, "helper": helper}
                terms["selection"] = VerifiedSelection(helper) if verified and helper else None
                for name in ("ballot", "votes", "decoder"):
                    del terms[name]
                result = search_votes(candidates, objective, parts, opens="winner", **terms)
            else:
                if helper is not None or verified:
                    raise ParameterError(
                        "a helper only helps, and verifies ballots, with --opens winner"
                    )
                terms |= {"secrets": secrets, "progress": report}
                terms["summation"] = summation.summation
                result = _in_memory(candidates, objective, parts, terms, rounds, keeper)
        title = f"{dataset.name}, {chosen.description}, {clients} clients ({how})"
        kept = keeper.keep(result)
        page = keeper.keep_page(result, title)
    if output is Format.JSON:
        typer.echo(result.as_json())
        return
    if isinstance(result, WinnerResult):
        results().print(f"{title}\n{result}")
    else:
        _print(result, title)
    if kept is not None and page is not None:
        results().print(f"written: {page} and {kept}")


def _in_memory(
    candidates: Space,
    objective: Objective[Samples],
    parts: list[Samples],
    terms: dict[str, Any],
    rounds: int,
    keeper: Keeper,
) -> Result:
    if rounds == 1:
        found: Result = search_votes(candidates, objective, parts, **terms)
        return found
    for name in ("ballot", "votes", "decoder"):
        del terms[name]

    def between(first: Result) -> None:
        keeper.keep(first, "first-round.json")
        keeper.hold_room(len(candidates))

    return search_twice(candidates, objective, parts, between=between, **terms).second


def _check_together(engine: Engine, summation: SummationKind, server: ServerModel) -> None:
    """Refuse what cannot be combined."""
    if engine is Engine.FLOWER and summation is not SummationKind.SECURE:
        raise ParameterError(
            "over Flower ballots are always summed by masks; leave --summation out"
        )
    if summation is SummationKind.ENCRYPTED and server is ServerModel.DISHONEST:
        raise ParameterError("threshold encryption trusts its server: leave --server out")
    if engine is Engine.FLOWER and server is ServerModel.DISHONEST:
        raise ParameterError(
            "against a dishonest server nodes need a directory of keys, which simulated ones have "
            "not: use --engine memory, or deploy (docs/guide/flower.md)"
        )


def _cache_folder() -> Path:
    """Return where this user's programs keep what can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "urna" / "losses"


def _over_flower(
    candidates: Space,
    objective: Objective[Samples],
    parts: list[Samples],
    script: str | None,
    report: SearchProgress,
    terms: dict[str, Any],
) -> Result:
    """Search in Flower's simulation: nothing leaves this machine."""
    # Read when Flower and Ray are first imported, so not at the top of this file.
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # spares a warning
    try:
        from urna.flower.simulation import simulate  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError as error:
        raise ParameterError(
            "the Flower engine needs Flower: pip install 'urna[flower]'"
        ) from error
    return simulate(
        candidates,
        objective,
        parts,
        script=script,
        progress=lambda step: report(step.stage, step.answered, step.asked),
        **terms,
    )


def _print(result: Result, title: str) -> None:
    console = results()
    rows = table(title, "", *(f">{name}" for name in result.space.axes), ">noisy votes", "")
    longest = max(float(result.votes.max()), 1.0)
    for place in result.places(8):
        votes = float(result.votes[place])
        bar = "█" * round(24 * max(votes, 0.0) / longest)
        mark = "→" if place == result.winner else ""
        values = (f"{value}" for value in result.space[place].values())
        rows.add_row(mark, *values, f"{votes:.1f}", bar)
    console.print(rows)
    console.print(f"each ± {result.standard_error:.1f} votes of noise; → the winner\n", style="dim")
    console.print(str(result))
