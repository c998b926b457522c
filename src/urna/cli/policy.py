"""`urna policy`: a node's own limits, written to be edited and read to be checked."""

import json
import traceback
from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, of_flower, print_json, results
from urna.errors import OutputError, ParameterError, UrnaError
from urna.files import write_whole
from urna.privacy import Budget, Ledger
from urna.privacy.budget import rounded_down, rounded_up

__all__ = ["policy"]

policy = typer.Typer(help="Write a node's policy, or show what one allows.", no_args_is_help=True)

_GRANTS = {
    "vote": "most_entries = 200        # candidates",
    "winner": "most_entries = 200        # candidates\n"
    "names = []                # fill in: the helpers it trusts, by name",
    "verified": "most_entries = 200        # candidates\n"
    "names = []                # fill in: the helpers it trusts with a share of its ballot",
    "update": "most_entries = 100_000    # weights of a model\n"
    "most_rounds = 20          # of one training",
    "average": "most_entries = 100_000    # entries of the one message",
    "settings": "most_entries = 10_000     # sums over clients' own searches",
    "exact-settings": "most_entries = 10_000     # exact: no privacy budget covers what is opened\n"
    "most_runs = 1             # two among different nodes can be subtracted\n"
    "fewest_in_cluster = 4     # clients in every cluster whose sums are opened\n"
    'names = []                # fill in: "mean", "dbscan"',
    "statistic": "most_entries = 100\nnames = []                # fill in: the statistics by name",
}


@policy.command()
def make(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("policy.toml"),
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="For the lifetime of the data set.")
    ] = 2.0,
    delta: Annotated[float, typer.Option("--delta", help="The delta that goes with it.")] = 1e-5,
    grant: Annotated[
        list[str] | None,
        typer.Option("--grant", help=f"What the node takes part in: {', '.join(_GRANTS)}."),
    ] = None,
    fewest_clients: Annotated[
        int, typer.Option("--fewest-clients", min=2, help="In any sum that may be opened.")
    ] = 10,
    data: Annotated[str, typer.Option("--data", help="Names the data set, for people.")] = "",
    directory: Annotated[
        str, typer.Option("--directory", help="Identity keys of all nodes; asks for signed sums.")
    ] = "",
    key: Annotated[str, typer.Option("--key", help="This node's identity key.")] = "site.key",
    form: FormatOption = Format.TEXT,
) -> None:
    """Write a commented policy to FILE, ready to be edited; an existing file is left alone."""
    Budget(epsilon, delta)
    kinds = grant or ["vote"]
    if unknown := sorted(set(kinds) - _GRANTS.keys()):
        raise ParameterError(f"grants are {', '.join(_GRANTS)}, got {unknown[0]!r}")
    if file.exists():
        raise OutputError(f"{file} is there already; edit it, or name another file")
    signed = (
        "\n[identity]                # sums must be signed\n"
        f"key = {json.dumps(key)}\ndirectory = {json.dumps(directory)}\n"
    )
    transcripts = (
        '\n[transcripts]             # of every round, for `urna verify`\nfolder = "transcripts"\n'
    )
    text = (
        "# What this node agrees to. A request outside of it is refused before any training.\n\n"
        "[privacy]\n"
        f"epsilon = {epsilon!r}            # for the lifetime of this data set\n"
        f"delta = {delta!r}\n"
        f"data = {json.dumps(data)}                 # for people\n\n"
        "[limits]\n"
        f"fewest_clients = {fewest_clients}       # in any sum that may be opened\n"
        "largest_dropout = 0.5     # a plan that tolerates more lost nodes is refused\n"
        "least_colluding = 0.1     # a plan that counts out fewer as colluding is refused\n\n"
        + "\n".join(f"[grant.{kind}]\n{_GRANTS[kind]}\n" for kind in kinds)
        + (signed if directory else "")
        + transcripts
    )
    write_whole(file, text)
    of_flower("policy").Policy.read(file)
    if form is Format.JSON:
        print_json({"file": str(file), "epsilon": epsilon, "delta": delta, "grants": kinds})
        return
    typer.echo(f"written: {file}; start the node with --node-config 'urna-policy=\"{file}\"'")


@policy.command()
def show(
    file: Annotated[Path, typer.Argument(help="A policy file.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Check FILE, and show what it allows and what its ledger has left."""
    policies = of_flower("policy")
    read = policies.Policy.read(file)
    ledger = Ledger(read.ledger) if read.ledger.exists() else None
    spent = ledger.spent().epsilon if ledger else 0.0
    left = ledger.left() if ledger else read.epsilon
    if output is Format.JSON:
        print_json(
            {
                "epsilon": read.epsilon,
                "delta": read.delta,
                "adjacency": str(read.relation),
                "spent": spent,
                "left": left,
                "fewest_clients": read.fewest_clients,
                "grants": sorted(read.grants),
                "exact_runs": len(read.account.claims.runs),
                "signed": read.directory_required,
            }
        )
        return
    out = results()
    out.print(
        f"{file}: epsilon {read.epsilon:g} at delta {read.delta:g}, {read.relation}, for life; "
        f"spent {rounded_up(spent)}, a further sum may cost up to {rounded_down(left)}"
    )
    for kind, allowed in read.grants.items():
        named = "" if allowed.names is None else f", only {', '.join(allowed.names) or 'nothing'}"
        out.print(
            f"takes part in: {kind}, up to {allowed.most_entries:,} entries and "
            f"{allowed.most_rounds:,} rounds{named}"
        )
        if kind == policies.EXACT:
            out.print(
                f"exact, and covered by no epsilon: {len(read.account.claims.runs)} of "
                f"{allowed.most_runs:,} runs are used up; {allowed.fewest_in_cluster} clients or "
                "more in every opened cluster"
            )
    signed = "signed sums only" if read.directory_required else "sums without signed keys, too"
    out.print(f"with {read.fewest_clients} clients or more in any opened sum; {signed}")


@policy.command("try")
def try_app(
    app: Annotated[Path, typer.Argument(help="Folder of the Flower app.")],
    node_config: Annotated[
        str, typer.Option("--node-config", help="What this node's SuperNode is started with.")
    ] = "",
    space: Annotated[
        str, typer.Option("--space", help="module:name in the app of what nodes vote on.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", help="module:name in the app of the first weights.")
    ] = "",
    config: Annotated[
        str, typer.Option("--config", help="What training is told, as in 'lr=0.1 epochs=1'.")
    ] = "",
    form: FormatOption = Format.TEXT,
) -> None:
    """Evaluate one candidate, or train for one step, on this node's own data.

    No server is asked, and nothing is charged. An error of the app is shown in full.
    """
    tried = of_flower("trial").NodeApp(app, node_config)
    try:
        told = tried.try_out(space, model, config)
    except UrnaError:
        raise
    except Exception as error:
        typer.echo(traceback.format_exc(), err=True)
        raise typer.Exit(1) from error
    if form is Format.JSON:
        print_json({"tried": told, "charged": 0})
        return
    typer.echo("\n".join([*told, "nothing was charged, and nothing has left this node"]))
