"""Vote over a SuperLink and five SuperNodes with TLS and keys, and lose one in mid-vote.

    python examples/deployment/run.py [--keep FOLDER] [--helper [--verified]]

Makes certificates, Flower keys and Urna keys; starts the federation on loopback; runs
`examples/flower-app` on it; kills one SuperNode while keys are being shared; the vote ends with
the other four, and each of them checks the transcript it was given. Nothing leaves this machine
and no process stays behind.
"""

import argparse
import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from federation import Federation, Site

from urna.flower import NodeKey
from urna.flower.identities import write_public_key
from urna.privacy import Ledger

APP = Path(__file__).resolve().parents[1] / "flower-app"
KILL_AT = "private sum: sharing keys, 0 of"


def main() -> int:
    """Run the example; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", type=Path, help="write everything here and keep it")
    parser.add_argument(
        "--helper", action="store_true", help="open only the winner, with a sixth organisation"
    )
    parser.add_argument(
        "--verified", action="store_true", help="with --helper: check a proof of every ballot"
    )
    options = parser.parse_args()
    if options.verified and not options.helper:
        parser.error("verified ballots take a helper: add --helper")
    hold = functools.partial(open_winner, verified=options.verified) if options.helper else vote
    if options.keep is not None:
        options.keep.mkdir(parents=True)
        return hold(options.keep.resolve())
    with tempfile.TemporaryDirectory(prefix="urna-deployment-") as scratch:
        return hold(Path(scratch))


def open_winner(folder: Path, *, verified: bool = False) -> int:
    """Open only the winner of a vote, with a helper's help; return the exit code."""
    with Federation(folder, sites=5, helper=True) as federation:
        print(f"SuperLink on 127.0.0.1:{federation.port}; five sites and a helper", flush=True)
        for site in federation.sites:
            federation.start_node(site)
        federation.start_helper()
        settings = {
            "nodes": 6,
            "rounds": 0,
            "helper": "helper",
            "verified": verified,
            "directory": federation.folder / "directory.toml",
            "server-key": federation.folder / "server.key",
            "report": federation.folder / "result.json",
            "stage-seconds": 40.0,
        }
        for line in federation.run(APP, settings, seconds=600):
            print(line, flush=True)
        everybody = [*federation.sites, *([federation.helper] if federation.helper else [])]
        spent = [Ledger(site.ledger).spent().epsilon for site in everybody if site.ledger.exists()]
        print(f"epsilon spent, by six ledgers: {', '.join(f'{e:g}' for e in spent)}", flush=True)
    return 0 if len(spent) == len(everybody) else 1


def vote(folder: Path) -> int:
    """Hold the vote; return the exit code."""
    with Federation(folder, sites=5) as federation:
        print(f"SuperLink on 127.0.0.1:{federation.port}; starting five SuperNodes", flush=True)
        for site in federation.sites:
            federation.start_node(site)
        victim = federation.sites[3]
        settings = {
            "nodes": 5,
            "least-clients": 4,
            "dropout": 0.2,
            "rounds": 2,
            "directory": federation.folder / "directory.toml",
            "server-key": federation.folder / "server.key",
            "transcripts": federation.folder / "transcripts",
            "report": federation.folder / "result.json",
            "stage-seconds": 40.0,
        }
        done = False
        for line in federation.run(APP, settings, seconds=600):
            print(line, flush=True)
            if KILL_AT in line and victim is not None:
                print(f"-- killing {victim.name}", flush=True)
                federation.kill(victim)
                victim = None
            done = done or line.startswith("accuracy after")
        for site in federation.sites:
            spent = Ledger(site.ledger).spent().epsilon if site.ledger.exists() else 0.0
            checked = [verify(federation, site, transcript) for transcript in site.transcripts]
            print(
                f"{site.name}: epsilon {spent:.3g} spent, by its own ledger; transcripts kept: "
                f"{len(checked)}, of which {checked.count(True)} are right",
                flush=True,
            )
            done = done and all(checked)
    return 0 if done else 1


def verify(federation: Federation, site: Site, transcript: Path) -> bool:
    """Let a site check a transcript with its own copy of the directory: `urna verify`."""
    server = write_public_key(NodeKey.read(federation.folder / "server.key").public)
    keys = ("--directory", str(site.folder / "directory.toml"), "--server-key", server)
    result = ("--result", str(federation.folder / "result.json"))
    done = subprocess.run(  # noqa: S603 - our own arguments
        [sys.executable, "-m", "urna", "verify", str(transcript), *keys, *result],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
