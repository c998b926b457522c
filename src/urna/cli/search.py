"""`urna search`: a private search from the command line, all clients on this machine."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from urna.cli.ballots import BallotOption, DecoderOption, VotesOption
from urna.cli.candidates import AXIS_HELP, named_candidates, own_candidates
from urna.cli.electorate import gather_voters, load_public
from urna.cli.keep import Keeper, keeping
from urna.cli.origin import origin
from urna.cli.output import Format, FormatOption, errors, print_table, results, table
from urna.cli.progress import live_progress
from urna.cli.terms import (
    AdjacencyOption,
    AnywayOption,
    ColludingOption,
    DeltaOption,
    DropoutOption,
    EpsilonOption,
    LedgerOption,
    QuietOption,
    ScriptOption,
    SeedOption,
    ServerOption,
    ShardsOption,
    UnitOption,
    cache_folder,
    ledger_at,
    terms_of,
)
from urna.data import Dataset, Samples, Split
from urna.errors import ParameterError
from urna.local import CachedObjective, Objective
from urna.local.presets import PRESETS
from urna.privacy import Budget, Unit
from urna.protocols.secagg import ServerModel
from urna.randomness import secrets_of
from urna.space import Space
from urna.study.file import DataPart, ObjectivePart
from urna.study.objectives import choose_objective
from urna.systems.vote import (
    DecoderKind,
    Rehearsal,
    Reveal,
    SearchProgress,
    VoteResult,
    search_twice,
)
from urna.systems.vote import rehearse as rehearse_votes
from urna.systems.vote import search as search_votes
from urna.systems.vote.kernels import structure_left_out
from urna.tally import (
    ClearSummation,
    EncryptedSummation,
    SecureSummation,
    Summation,
)

__all__ = ["say_left_out", "search"]


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
    data: Annotated[
        str,
        typer.Option(
            help="A data set that `urna data` lists; or a file, or a folder with one for each "
            "client, of your own."
        ),
    ] = "digits",
    label: Annotated[str, typer.Option(help="Of your own data: the column to predict.")] = "target",
    client_column: Annotated[
        str | None, typer.Option(help="Of one file: the column that says whose a row is.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Folder that holds the set's file.")] = None,
    hub: Annotated[bool, typer.Option(help="Fetch it from the Hugging Face hub.")] = False,
    model: Annotated[
        str,
        typer.Option(
            help=f"Model: {', '.join(PRESETS)}; or module:name of an estimator, of a function "
            "(candidate, data) -> loss, or of what makes a torch module."
        ),
    ] = "linear",
    space: Annotated[
        Path | None, typer.Option(help="Candidates, as .toml or .json; the model's by default.")
    ] = None,
    axis: Annotated[list[str] | None, typer.Option(help=AXIS_HELP)] = None,
    clients: Annotated[
        int | None, typer.Option(help="How many clients rows are dealt out to; 60 if unset.")
    ] = None,
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
    rehearse: Annotated[
        str | None,
        typer.Option(
            help="PUBLIC data of the same kind, named as --data names them, on which the search is "
            "rehearsed first, for nothing; never the clients' own."
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="Clients in this process, or as nodes in Flower's simulation.")
    ] = Engine.MEMORY,
    seed: SeedOption = 0,
    ledger: LedgerOption = None,
    scripted_secrets: ScriptOption = None,
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
    quiet: QuietOption = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Let clients agree on hyperparameters by secret ballot."""
    _check_together(engine, summation, server)
    if clients is not None and clients < 2:
        raise ParameterError(f"a vote is among at least two clients, got --clients {clients}")
    own = bool(ballot or votes or decoder is not DecoderKind.POSTERIOR)
    _check_rounds(rounds, engine, own=own, rehearsed=rehearse is not None)
    plain = summation is SummationKind.SECURE and not own and rounds == 1 and rehearse is None
    reveal = _reveal(opens, helper, verified=verified, plain=plain, engine=engine)
    ballots = {"ballot": ballot, "votes": votes, "decoder": decoder.build()}
    terms: dict[str, Any] = {
        "budget": Budget(epsilon, delta),
        **terms_of(dropout, colluding, unit, adjacency, shards, server),
        **({"reveal": reveal} if reveal.winner else ballots),
        "seed": seed,
        "anyway": anyway,
    }
    named = named_candidates(space, axis)
    opened = terms["ledger"] = ledger_at(ledger)
    secrets = secrets_of(scripted_secrets)
    part = DataPart(
        source=data,
        folder="" if folder is None else str(folder),
        clients=clients or 0,
        split=how,
        beta=beta,
        level=level,
        label=label,
        client=client_column or "",
    )
    with keeping(out, opened, "result.json", "report.html", "first-round.json") as keeper:
        how_read: dict[str, Any] = {"hub": hub, "seed": seed}
        how_read["by_record"] = terms["adjacency"].unit is Unit.RECORD
        found, predicted = gather_voters(part, **how_read)
        public = (
            load_public(rehearse, part, found.dataset, label=predicted, **how_read)
            if rehearse is not None
            else None
        )
        chosen = choose_objective(ObjectivePart(model=model), found.dataset)
        candidates = named or own_candidates(chosen)
        objective = CachedObjective(chosen.objective, cache_folder(), enabled=cache)
        if opens is Opening.TALLY and decoder is DecoderKind.POSTERIOR:
            say_left_out(candidates)
        keeper.hold_room(len(candidates))
        terms["keep"] = keeper.keep
        with live_progress(quiet) as report:
            if public is not None:
                terms["rehearsal"] = _rehearsed(public, candidates, model, seed, cache, report)
            if engine is Engine.FLOWER:
                result = _over_flower(
                    candidates, objective, found.clients, scripted_secrets, report, terms
                )
            else:
                terms |= {"secrets": secrets, "progress": report}
                terms |= {} if reveal.winner else {"summation": summation.summation}
                result = _in_memory(candidates, objective, found.clients, terms, rounds, keeper)
        title = f"{found.dataset.name}, {chosen.description}, {len(found.clients)} clients"
        title += f" ({how})" if found.how.endswith(")") else ""
        keeper.tell(origin(title, simulated=True, repeatable=not secrets.private))
        kept = keeper.keep(result)
        page = keeper.keep_page()
    if output is Format.JSON:
        typer.echo(result.as_json())
        return
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
) -> VoteResult:
    if rounds == 1:
        return search_votes(candidates, objective, parts, **terms)
    for name in ("ballot", "votes", "decoder"):
        del terms[name]

    def between(first: VoteResult) -> None:
        keeper.keep(first, "first-round.json")
        keeper.hold_room(len(candidates))

    return search_twice(candidates, objective, parts, between=between, **terms).second


def say_left_out(space: Space) -> None:
    """Say what the decoder knows of a space and has no room for."""
    if missing := structure_left_out(space):
        errors.print(f"the decoder leaves out {missing}")


def _rehearsed(
    public: tuple[Dataset, list[Samples]],
    space: Space,
    model: str,
    seed: int,
    cache: bool,
    report: SearchProgress,
) -> Rehearsal:
    """Search the same candidates on public data, dealt out to a few pretend clients."""
    dataset, pretend = public
    chosen = choose_objective(ObjectivePart(model=model), dataset)
    return rehearse_votes(
        space,
        CachedObjective(chosen.objective, cache_folder(), enabled=cache),
        pretend,
        data=dataset.name,
        seed=seed,
        progress=lambda done, total: report("rehearsing on public data", done, total),
    )


def _check_rounds(rounds: int, engine: Engine, *, own: bool, rehearsed: bool) -> None:
    """Refuse what does not go with two rounds."""
    if rounds not in (1, 2):
        raise ParameterError(f"a search has one round or two, got {rounds}")
    if rounds == 2 and (engine is Engine.FLOWER or own):
        raise ParameterError(
            "two rounds run in memory with the default ballot and decoder; leave --engine, "
            "--ballot, --votes and --decoder out"
        )
    if rounds == 2 and rehearsed:
        raise ParameterError("a rehearsal informs one round; leave --rehearse or --rounds out")


def _reveal(
    opens: Opening, helper: str | None, *, verified: bool, plain: bool, engine: Engine
) -> Reveal:
    """Return what is revealed; refuse what does not go with it."""
    reveal = Reveal("winner" if opens is Opening.WINNER else "counts", helper, verified)
    if opens is Opening.WINNER and not plain:
        raise ParameterError(
            "only the winner is opened in one round, of secret sums of ballots of levels; leave "
            "--rounds, --rehearse, --summation, --ballot, --votes and --decoder out"
        )
    if verified and engine is Engine.FLOWER:
        raise ParameterError(
            "verified ballots are signed, and simulated nodes have no keys: leave --engine or "
            "--verified out, or deploy (docs/guide/verified-ballots.md)"
        )
    return reveal


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
            "not: use --engine memory, or deploy (docs/guide/deploy.md)"
        )


def _over_flower(
    candidates: Space,
    objective: Objective[Samples],
    parts: list[Samples],
    script: str | None,
    report: SearchProgress,
    terms: dict[str, Any],
) -> VoteResult:
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


def _print(result: VoteResult, title: str) -> None:
    console = results()
    if result.revealed.counts is None:
        console.print(f"{title}\n{result}")
        return
    rows = table(title, "", *(f">{name}" for name in result.space.axes), ">noisy votes", "")
    longest = max(float(result.votes.max()), 1.0)
    for place in result.places(8):
        votes = float(result.votes[place])
        bar = "█" * round(24 * max(votes, 0.0) / longest)
        mark = "→" if place == result.winner else ""
        values = (f"{value}" for value in result.space[place].values())
        rows.add_row(mark, *values, f"{votes:.1f}", bar)
    print_table(rows)
    console.print(f"each ± {result.standard_error:.1f} votes of noise; → the winner\n", style="dim")
    console.print(str(result))
