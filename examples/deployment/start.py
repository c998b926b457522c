"""Start a federation on this machine and leave it running: a SuperLink and SuperNodes, with TLS.

    python examples/deployment/start.py [--sites 3] [--data FOLDER] [--folder federation]

Makes certificates, keys and a policy for each site, starts everything as processes on loopback,
says how to run an app on it, and ends all of it on Ctrl-C. With `--run APP` it runs that Flower
app and ends. With `--prepare` it writes the files and starts nothing: `compose.yaml` does, in
containers. What each site has counted stays in its own ledger; `--folder` must not exist yet.
"""

import argparse
import sys
import threading
from pathlib import Path

from federation import Federation

from urna.privacy import Ledger


def main() -> int:
    """Start it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=3, help="organisations, each a SuperNode")
    parser.add_argument("--folder", type=Path, default=Path("federation"), help="to be made")
    parser.add_argument("--data", type=Path, help="folder with a file for each site")
    parser.add_argument("--prepare", action="store_true", help="write the files for compose.yaml")
    parser.add_argument("--run", type=Path, metavar="APP", help="run this Flower app, then end")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="for the app")
    asked = parser.parse_args()
    files = sorted(path.resolve() for path in asked.data.iterdir()) if asked.data else []
    if asked.folder.exists() or (asked.data and len(files) < asked.sites):
        why = "exists already" if asked.folder.exists() else "would have more sites than files"
        print(f"error: {asked.folder} {why}; choose another", file=sys.stderr)
        return 2
    asked.folder.mkdir(parents=True)
    limits = f"fewest_clients = {max(2, asked.sites - 1)}"
    if asked.prepare:
        Federation(asked.folder.resolve(), asked.sites, limits, port=8000)
        print(f"written: {asked.folder}; compose.yaml starts it", flush=True)
        return 0
    try:
        with Federation(asked.folder.resolve(), asked.sites, limits) as federation:
            for site in federation.sites:
                federation.start_node(site, files[site.number] if files else None)
            print(f"SuperLink on 127.0.0.1:{federation.port}, {asked.sites} SuperNodes", flush=True)
            if asked.run is None:
                home = federation.folder / "flwr"
                print(f"run an app:  FLWR_HOME={home} flwr run APP here --stream", flush=True)
                print("Ctrl-C ends all of it", flush=True)
                threading.Event().wait()
            return run(federation, asked.run, dict(pair.split("=", 1) for pair in asked.set))
    except KeyboardInterrupt:
        return 0


def run(federation: Federation, app: Path, settings: dict[str, str]) -> int:
    """Run an app on a federation and show what each site's ledger has counted."""
    values = {key: _value(text) for key, text in settings.items()}
    signed = {
        "directory": federation.folder / "directory.toml",
        "server-key": federation.folder / "server.key",
    }
    for line in federation.run(app, signed | values, seconds=1800):
        print(line, flush=True)
    for site in federation.sites:
        spent = Ledger(site.ledger).spent().epsilon if site.ledger.exists() else 0.0
        print(f"{site.name}: epsilon {spent:.3g} spent, by its own ledger", flush=True)
    return federation.exit_code("app")


def _value(text: str) -> object:
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main())
