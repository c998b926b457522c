"""Identity keys and the directory of them: small text files that organisations exchange.

Each organisation makes a key (`urna keys make`), sends its *public* line to the others by a way
the server does not control, and everybody collects the lines into a directory file
(`urna keys collect`). In a signed vote a node accepts round keys only from those its own
directory names.
"""

import base64
import binascii
import json
import os
import tomllib
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from urna.errors import OutputError, ParameterError, Refused
from urna.flower.announcement import check_name
from urna.protocols.secagg import Directory, Identity
from urna.protocols.secagg.keys import check_identity_key
from urna.randomness import SEED_BYTES, SecretSource


@dataclass(frozen=True, slots=True)
class NodeKey:
    """A node's long-lived signing key and its name. The file it is in must stay secret."""

    name: str
    public: bytes
    _seed: bytes = field(repr=False)

    @classmethod
    def draw(cls, name: str, source: SecretSource) -> "NodeKey":
        """Draw a fresh key."""
        return cls._of(name, source.take(SEED_BYTES))

    @classmethod
    def read(cls, path: Path) -> "NodeKey":
        """Read a key file.

        Raises:
            ParameterError: The file is not there, is no key, or others may read it.
        """
        mapping = _read_toml(path, "key file")
        if path.stat().st_mode & 0o077:
            raise ParameterError(f"{path} must be readable by its owner alone: chmod 600 {path}")
        try:
            return cls._of(mapping["name"], _decode(mapping["private"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ParameterError(f"{path} is no key file of `urna keys make`") from error

    @classmethod
    def _of(cls, name: str, seed: bytes) -> "NodeKey":
        public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        return cls(check_name(name), public, seed)

    @property
    def public_line(self) -> str:
        """The line others need: name and public key, in the directory's form."""
        return f'{json.dumps(self.name)} = "{_encode(self.public)}"'

    def write(self, path: Path) -> None:
        """Write the key file, readable by its owner alone; an existing one is kept.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        text = (
            "# Identity key of a node. Secret: whoever holds it can vote in this node's name.\n"
            f"name = {json.dumps(self.name)}\n"
            f'private = "{_encode(self._seed)}"\n'
            f'public = "{_encode(self.public)}"\n'
        )
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError as error:
            raise OutputError(f"{path} exists; a key is never overwritten") from error
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from error
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)

    def identity(self, client: int) -> Identity:
        """Return the identity under which the node signs as this client of a round."""
        return Identity.of(client, self._seed)

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        return self.identity(0).sign(message)


@dataclass(frozen=True, slots=True)
class DirectoryFile:
    """The public identity keys of all nodes, by name.

    Guarantee:
        With it, a server that puts its own keys in place of a node's is refused.

    Assumes:
        The keys reached this node by a way the server does not control.
    """

    keys: Mapping[str, bytes]

    def __post_init__(self) -> None:
        for name, key in self.keys.items():
            check_name(name)
            try:
                check_identity_key(key)
            except ParameterError as error:
                raise ParameterError(f"the key of {name!r}: {error}") from error
        if len(set(self.keys.values())) < len(self.keys):
            raise ParameterError("two names in the directory have the same key")

    @classmethod
    def read(cls, path: Path) -> "DirectoryFile":
        """Read a directory file: one `name = "key"` line per node.

        Raises:
            ParameterError: The file is not there or is no directory.
        """
        mapping = _read_toml(path, "directory")
        try:
            return cls({str(name): _decode(key) for name, key in mapping["keys"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ParameterError(
                f"{path} is no directory of `urna keys collect`: {error}"
            ) from error

    def as_toml(self) -> str:
        """Return the directory as a file's text, in the order of names."""
        lines = [
            f'{json.dumps(name)} = "{_encode(key)}"' for name, key in sorted(self.keys.items())
        ]
        head = (
            "# Public identity keys, by node. Exchange it by a way the server does not control,\n"
            "# and compare it: `urna keys show FILE` prints its fingerprint.\n"
        )
        return head + "\n".join(["[keys]", *lines]) + "\n"

    def for_round(self, names: tuple[str, ...]) -> Directory:
        """Return the keys by number in a round.

        Raises:
            ParameterError: A name is not in the directory, or is listed twice.
        """
        if len(set(names)) < len(names):
            raise ParameterError("a name is listed twice among those who take part")
        if unknown := [name for name in names if name not in self.keys]:
            raise ParameterError(f"{len(unknown)} who take part are not in this node's directory")
        return Directory({number: self.keys[name] for number, name in enumerate(names)})


def verify(public: bytes, signature: bytes, message: bytes) -> bool:
    """Return whether the holder of this public key signed the message."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_public_key(text: str) -> bytes:
    """Read a public key as it stands in a policy or a directory."""
    try:
        key = _decode(text)
    except ValueError as error:
        raise ParameterError("a public key is written in base64") from error
    check_identity_key(key)
    return key


def read_public_keys(path: Path) -> dict[str, bytes]:
    """Read public keys by name from a directory, a key file or a file of public lines."""
    mapping = _read_toml(path, "file of keys")
    if "private" in mapping:
        key = NodeKey.read(path)
        return {key.name: key.public}
    found = mapping.get("keys", mapping)
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found.values()):
        raise ParameterError(f'{path} holds no keys: a line of it reads "name" = "key"')
    return {check_name(name): read_public_key(key) for name, key in found.items()}


def write_public_key(key: bytes) -> str:
    """Return a public key as text."""
    return _encode(key)


def _read_toml(path: Path, what: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ParameterError(f"cannot read the {what} {path}: {error.strerror}") from error
    except ValueError as error:
        # The parser's own words may quote the file, and this one may hold a secret.
        raise ParameterError(f"the {what} {path} is no TOML file") from error


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error


def kept_key(path: Path, secrets: SecretSource) -> bytes:
    """Return the key in a file; where there is none yet, draw one and keep it.

    Written beside its place and linked into it: of two processes that come first at the same
    time, one wins and both read its key.
    """
    try:
        if not path.exists():
            _write(path, secrets.take(SEED_BYTES))
        key = path.read_bytes()
    except OSError as error:
        raise Refused("this node's key of shards cannot be used") from error
    if len(key) != SEED_BYTES:
        raise Refused("this node's key of shards is damaged")
    return key


def _write(path: Path, key: bytes) -> None:
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            path.hardlink_to(beside)
    finally:
        with suppress(OSError):  # what went wrong above is what the node needs to hear
            beside.unlink(missing_ok=True)
