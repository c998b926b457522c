"""`urna helper`: be the second organisation of votes of which only the winner is opened."""

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from urna.cli.output import of_flower
from urna.errors import ParameterError

__all__ = ["helper"]


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
