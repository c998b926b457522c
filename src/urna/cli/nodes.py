"""`urna keys`, `urna policy`, `urna helper`: what a node has of its own, and who it is."""

import hashlib
import json
import os
import shlex
import shutil
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import Format, FormatOption, of_flower, print_json, print_table, results, table
from urna.errors import OutputError, ParameterError, UrnaError
from urna.files import write_whole
from urna.privacy import Budget, Ledger
from urna.privacy.budget import rounded_down, rounded_up
from urna.randomness import OsSecrets

__all__ = ["helper", "keys", "policy"]

keys = typer.Typer(
    help="Make an identity key, collect a directory of keys, show either.", no_args_is_help=True
)


@keys.command("make")
def make_key(
    name: Annotated[str, typer.Argument(help="The node's name, as others will know it.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="File to write; NAME.key by default.")
    ] = None,
    form: FormatOption = Format.TEXT,
) -> None:
    """Make an identity key for NAME; print the line that others need."""
    key = of_flower("identities").NodeKey.draw(name, OsSecrets())
    path = output or Path(f"{name}.key")
    key.write(path)
    if form is Format.JSON:
        public = of_flower("identities").write_public_key(key.public)
        print_json({"name": key.name, "public": public, "file": str(path)})
        return
    typer.echo(f"written: {path} (secret; keep it on this machine)", err=True)
    typer.echo(key.public_line)


@keys.command()
def collect(
    sources: Annotated[
        list[Path], typer.Argument(help="Directories, key files or files of public lines.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Directory file to write.")],
    form: FormatOption = Format.TEXT,
) -> None:
    """Collect public keys from SOURCES into one directory file.

    A name that appears with two different keys is refused: somebody must find out which is
    right, by a way the server does not control.
    """
    known = of_flower("identities")
    found: dict[str, bytes] = {}
    for source in sources:
        for name, key in known.read_public_keys(source).items():
            if found.setdefault(name, key) != key:
                raise ParameterError(f"{source}: {name!r} has another key than before")
    directory = known.DirectoryFile(found)
    write_whole(output, directory.as_toml())
    if form is Format.JSON:
        found_names = sorted(found)
        print_json({"file": str(output), "names": found_names, "fingerprint": _fingerprint(found)})
        return
    typer.echo(f"written: {output}, {len(found)} keys, fingerprint {_fingerprint(found)}")


@keys.command("show")
def show_keys(
    file: Annotated[Path, typer.Argument(help="A key file or a directory.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Show the public keys in FILE and their fingerprint, to be compared by telephone."""
    known = of_flower("identities")
    found = known.read_public_keys(file)
    written = {name: known.write_public_key(key) for name, key in sorted(found.items())}
    if output is Format.JSON:
        print_json({"keys": written, "fingerprint": _fingerprint(found)})
        return
    rows = table(f"{file}: {len(found)} keys", "name", "public key")
    for name, key in written.items():
        rows.add_row(name, key)
    console = results()
    print_table(rows)
    console.print(f"fingerprint: {_fingerprint(found)}")


def _fingerprint(found: Mapping[str, bytes]) -> str:
    """Return a short digest of all names and keys: equal directories have equal ones."""
    lines = "".join(f"{name} {key.hex()}\n" for name, key in sorted(found.items()))
    digest = hashlib.sha256(b"urna directory\0" + lines.encode()).hexdigest()[:32]
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


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


@policy.command("make")
def make_policy(
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


@policy.command("show")
def show_policy(
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


def helper(
    context: typer.Context,
    policy: Annotated[
        Path,
        typer.Argument(help="The helper's own policy: it grants winner, verified, or both."),
    ],
    show: Annotated[
        bool, typer.Option(help="Print the SuperNode's command, start nothing.")
    ] = False,
) -> None:
    """Start a SuperNode that helps to open winners, under POLICY and its ledger.

    Everything else (--superlink, --root-certificates, --auth-supernode-private-key, …) is handed
    to flower-supernode as it is. The helper has no data and no ballot.
    """
    held = of_flower("policy").Policy.read(policy)
    key = held.node_key()
    grants = [grant for kind in ("winner", "verified") if (grant := held.grants.get(kind))]
    if key is None:
        raise ParameterError(
            "a helper proves who it is: name its identity key and its directory under [identity]"
        )
    if not any(grant.names is None or key.name in grant.names for grant in grants):
        raise ParameterError(
            f"the policy {policy} grants no help: add [grant.winner], or [grant.verified] for "
            f"verified ballots, with names = ['{key.name}']"
        )
    config = f'{of_flower("votes").HELPER_KEY}=true urna-policy="{policy.resolve()}"'
    command = [_supernode(), *context.args, "--node-config", config]
    if show:
        typer.echo(shlex.join(command))
        return
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 - the SuperNode takes this process's place


def _supernode() -> str:
    beside = Path(sys.executable).with_name("flower-supernode")
    found = str(beside) if beside.exists() else shutil.which("flower-supernode")
    if found is None:
        raise ParameterError("flower-supernode is not there: pip install 'urna[flower]'")
    return found
