"""A whole federation on loopback: certificates, keys, a SuperLink and SuperNodes as processes.

For trying out and for tests. A real federation has the same pieces on different machines: each
organisation makes its own keys and writes its own policy, and no private key travels.
"""

import contextlib
import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from urna.flower import DirectoryFile, NodeKey, Policy
from urna.flower.identities import write_public_key
from urna.randomness import OsSecrets

__all__ = ["QUIET_AND_OFFLINE", "Federation", "Site"]

QUIET_AND_OFFLINE: Mapping[str, str] = {
    "FLWR_TELEMETRY_ENABLED": "0",  # Flower would report each start
    "FLWR_DISABLE_UPDATE_CHECK": "1",  # and ask for newer versions
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # and fetch the app's packages
    "RAY_USAGE_STATS_ENABLED": "0",  # the simulation engine's own reports
}

_MARK = "URNA_FEDERATION"  # in the environment of every process, to find them all again
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Site:
    """One organisation: its folder with keys, policy and ledger."""

    name: str
    number: int
    folder: Path

    @property
    def policy(self) -> Path:
        """The organisation's policy file."""
        return self.folder / "policy.toml"

    @property
    def ledger(self) -> Path:
        """The organisation's ledger, once it has voted."""
        return self.folder / "policy.ledger"

    @property
    def transcripts(self) -> list[Path]:
        """The transcripts that the organisation has kept."""
        return sorted((self.folder / "transcripts").glob("*.json"))


class Federation:
    """Certificates, keys and processes of a federation. Use it as a context manager.

    Args:
        folder: Where everything is written.
        sites: How many organisations there are.
        settings: Further lines of every policy's `[limits]`.
        port: Where the SuperLink listens; a free one by default.
        helper: Whether there is one more organisation, which has no data and helps the server to
            open winners.
    """

    def __init__(
        self,
        folder: Path,
        sites: int,
        settings: str = "fewest_clients = 3",
        port: int | None = None,
        *,
        helper: bool = False,
    ) -> None:
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = port or _free_port()
        _make_certificates(folder)
        self._write_connection()
        self.sites = [self._make_site(f"site-{number}", number) for number in range(sites)]
        self.helper = self._make_site("helper", sites) if helper else None
        everybody = [*self.sites, *([self.helper] if self.helper else [])]
        directory = {s.name: NodeKey.read(s.folder / "identity.key") for s in everybody}
        text = DirectoryFile({name: key.public for name, key in directory.items()}).as_toml()
        server = NodeKey.draw("server", OsSecrets())
        server.write(folder / "server.key")
        for site in everybody:
            (site.folder / "directory.toml").write_text(text, encoding="utf-8")
            self.write_policy(site, settings)
        (folder / "directory.toml").write_text(text, encoding="utf-8")

    def __enter__(self) -> Self:
        """Start the SuperLink and let it know the organisations."""
        try:
            self._start(
                "superlink",
                "flower-superlink",
                *("--host", "127.0.0.1", "--port", str(self.port)),
                *("--ssl-ca-certfile", str(self.folder / "ca.crt")),
                *("--ssl-certfile", str(self.folder / "server.crt")),
                *("--ssl-keyfile", str(self.folder / "server.pem")),
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
            )
            _wait_for_port(self.port)
            for site in [*self.sites, *([self.helper] if self.helper else [])]:
                self.flwr("supernode", "register", str(site.folder / "flower.pub"), "here")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process, also after a failure."""
        self.close()

    def write_policy(
        self, site: Site, limits: str, *, epsilon: float = 10.0, delta: float = 1e-5
    ) -> None:
        """Write an organisation's policy.

        Raises:
            ParameterError: The limits are none that a policy knows.
        """
        server = NodeKey.read(self.folder / "server.key")
        site.policy.write_text(
            f"[privacy]\nepsilon = {epsilon}\ndelta = {delta}\ndata = 'digits of {site.name}'\n\n"
            f"[limits]\n{limits}\n\n"
            "[grant.vote]\nmost_entries = 100\n\n"
            "[grant.update]\nmost_entries = 100_000\nmost_rounds = 100\n\n"
            "[grant.winner]\nmost_entries = 100\nnames = ['helper']\n\n"
            "[grant.verified]\nmost_entries = 100\nnames = ['helper']\n\n"
            f"[server]\nkey = '{write_public_key(server.public)}'\n\n"
            "[identity]\nkey = 'identity.key'\ndirectory = 'directory.toml'\nrequired = true\n\n"
            "[transcripts]\nfolder = 'transcripts'\n",
            encoding="utf-8",
        )
        Policy.read(site.policy)  # now, and not as a node's refusal

    def start_node(self, site: Site, data: Path | None = None, more: str = "") -> None:
        """Start an organisation's SuperNode; an existing one must have ended.

        Args:
            site: The organisation.
            data: Its own file of data: the node's configuration names it, as `data`.
            more: Further entries of its node's configuration.
        """
        config = (
            f"partition-id={site.number} num-partitions={len(self.sites)} "
            f'urna-policy="{site.policy}" {more}'
        ).strip()
        config += f' data="{data}"' if data is not None else ""
        self._start(
            site.name,
            "flower-supernode",
            *("--root-certificates", str(self.folder / "ca.crt")),
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--auth-supernode-private-key", str(site.folder / "flower.key")),
            *("--host", "127.0.0.1", "--port", str(_free_port())),
            *("--node-config", config),
        )

    def start_helper(self) -> None:
        """Start the helper's SuperNode, as its organisation would: `urna helper`."""
        if self.helper is None:
            raise RuntimeError("this federation has no helper")
        self._start(
            self.helper.name,
            sys.executable,
            *("-m", "urna", "helper", str(self.helper.policy)),
            *("--root-certificates", str(self.folder / "ca.crt")),
            *("--superlink", f"127.0.0.1:{self.port}"),
            *("--auth-supernode-private-key", str(self.helper.folder / "flower.key")),
            *("--host", "127.0.0.1", "--port", str(_free_port())),
        )

    def add_stranger(self) -> Site:
        """Start a SuperNode whose key nobody registered: the SuperLink turns it away."""
        folder = self.folder / "stranger"
        folder.mkdir()
        make_flower_key(folder / "flower.key", folder / "flower.pub")
        stranger = Site("stranger", len(self.sites), folder)
        self.start_node(stranger)
        return stranger

    def kill(self, site: Site) -> None:
        """Kill an organisation's SuperNode and what it has started, without warning."""
        process = self._processes.pop(site.name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def wait_for_exit(self, site: Site, seconds: float) -> int:
        """Return the exit code of a SuperNode that ends by itself."""
        return self._processes[site.name].wait(seconds)

    def run(self, app: Path, settings: Mapping[str, object], seconds: float) -> Iterator[str]:
        """Run an app on the federation; yield what it prints, line by line."""
        config = " ".join(
            f"{key}={json.dumps(str(value) if isinstance(value, Path) else value)}"
            for key, value in settings.items()
        )
        self._start("app", "flwr", "run", str(app), "here", "--stream", "--run-config", config)
        yield from self._follow("app", seconds)

    def exit_code(self, name: str) -> int:
        """Return how a process ended; it must have."""
        return self._processes[name].wait(10)

    def flwr(self, *arguments: str) -> str:
        """Run one `flwr` command and return what it prints."""
        done = subprocess.run(  # noqa: S603 - our own arguments
            [_tool("flwr"), *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"flwr {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def log(self, name: str) -> str:
        """Return what a process has printed so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def leftovers(self) -> list[int]:
        """Return the ids of all processes of this federation that still run."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                environment = (entry / "environ").read_bytes()
                ended = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except OSError:
                continue
            if f"{_MARK}={self._mark}".encode() in environment.split(b"\0") and not ended:
                found.append(int(entry.name))
        return found

    def close(self) -> None:
        """End every process of the federation, first politely."""
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        self._await_end(seconds=10)
        for left in self.leftovers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)
        self._await_end(seconds=30)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def _await_end(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.leftovers() and time.monotonic() < deadline:
            for process in self._processes.values():
                process.poll()
            time.sleep(0.2)

    def _make_site(self, name: str, number: int) -> Site:
        site = Site(name, number, self.folder / name)
        site.folder.mkdir()
        NodeKey.draw(site.name, OsSecrets()).write(site.folder / "identity.key")
        make_flower_key(site.folder / "flower.key", site.folder / "flower.pub")
        return site

    def _write_connection(self) -> None:
        home = self.folder / "flwr"
        home.mkdir()
        (home / "config.toml").write_text(
            "[superlink]\ndefault = 'here'\n\n"
            f"[superlink.here]\naddress = '127.0.0.1:{self.port}'\n"
            f"root-certificates = '{self.folder / 'ca.crt'}'\n",
            encoding="utf-8",
        )

    def _environment(self) -> dict[str, str]:
        own = {"FLWR_HOME": str(self.folder / "flwr"), _MARK: self._mark, "PYTHONUNBUFFERED": "1"}
        # The processes that Flower starts look for its tools on the path.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return os.environ | QUIET_AND_OFFLINE | _ONE_THREAD | own | {"PATH": path}

    def _start(self, name: str, tool: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603 - our own arguments
                [_tool(tool), *arguments],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _follow(self, name: str, seconds: float) -> Iterator[str]:
        """Yield the lines a process prints until it ends."""
        deadline, process = time.monotonic() + seconds, self._processes[name]
        with (self.folder / f"{name}.log").open(encoding="utf-8", errors="replace") as log:
            begun = ""
            while time.monotonic() < deadline:
                ended = process.poll() is not None
                for piece in log:
                    begun += piece
                    if begun.endswith("\n"):
                        yield begun.rstrip("\n")
                        begun = ""
                if ended:
                    return
                time.sleep(0.1)
        raise TimeoutError(f"{name} did not end within {seconds:g} s")


def make_flower_key(private: Path, public: Path) -> None:
    """Make a key by which a SuperNode shows its SuperLink who it is (not Urna's identity)."""
    key = ec.generate_private_key(ec.SECP384R1())
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
    )
    private.chmod(0o600)
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        + b"\n"
    )


def _make_certificates(folder: Path) -> None:
    """Make a certificate authority and a server's certificate for loopback, for a day."""
    authority, server = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Urna example authority")])
    own_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = x509.SubjectAlternativeName(
        [
            x509.DNSName("localhost"),
            x509.DNSName("superlink"),  # its name among containers
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        ]
    )

    def signed(
        name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> bytes:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=name == ca_name)
        )
        certificate = builder.sign(authority, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM)

    (folder / "ca.crt").write_bytes(
        signed(ca_name, authority, x509.BasicConstraints(ca=True, path_length=0))
    )
    (folder / "server.crt").write_bytes(signed(own_name, server, addresses))
    (folder / "server.pem").write_bytes(
        server.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    (folder / "server.pem").chmod(0o600)


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_port(port: int, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
