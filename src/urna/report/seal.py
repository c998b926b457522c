"""A page's digest and signature, so that who holds a page can tell whether it was changed.

The digest is of everything on the page but the seal itself, and the seal's every character
follows from digest, name, key and signature: nothing can hide in it.
"""

import base64
import binascii
import hashlib
import html
import re
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from markupsafe import escape

from urna.errors import ParameterError

_OPEN, _CLOSE = "<!--seal-->", "<!--/seal-->"
_DOMAIN = b"urna page\0"


class ReportSigner(Protocol):
    """Who signs a page: a name and an Ed25519 key."""

    @property
    def name(self) -> str:
        """As others know it."""
        ...

    @property
    def public(self) -> bytes:
        """The public key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Sign a message."""
        ...


@dataclass(frozen=True, slots=True)
class Seal:
    """What a page says of itself."""

    digest: str
    """SHA-256 of all but the seal."""
    name: str | None = None
    public: bytes | None = None
    signature: bytes | None = None
    intact: bool = True
    """Whether digest and, where there is one, signature are those of the page."""

    @property
    def html(self) -> str:
        """The seal as it stands on the page."""
        lines = [
            f'<dt>SHA-256 of this page</dt><dd><code data-seal="digest">{self.digest}</code></dd>'
        ]
        if self.name is not None and self.public is not None and self.signature is not None:
            key, signed = (base64.b64encode(x).decode() for x in (self.public, self.signature))
            lines += [
                f'<dt>Signed by</dt><dd data-seal="name">{escape(self.name)}</dd>',
                f'<dt>Public key (Ed25519)</dt><dd><code data-seal="key">{key}</code></dd>',
                f'<dt>Signature</dt><dd><code data-seal="signature">{signed}</code></dd>',
            ]
        return "".join(lines)


def sealed(text: str, signer: ReportSigner | None = None) -> str:
    """Return a page with its seal.

    Args:
        text: A page with an empty place for the seal.
        signer: Who signs it; nobody by default.
    """
    before, after = _halves(text)
    digest = _digest(before, after)
    seal = Seal(digest)
    if signer is not None:
        seal = Seal(digest, signer.name, signer.public, signer.sign(_message(digest, signer.name)))
    return f"{before}{_OPEN}{seal.html}{_CLOSE}{after}"


def read_seal(text: str) -> Seal:
    """Return a page's seal, and whether the page is as it was sealed.

    Guarantee:
        If it is `intact` and signed, whoever holds the key signed exactly this page. Whose key
        it is, the page cannot say: compare it with one that came another way.

    Raises:
        ParameterError: This is no page of Urna's.
    """
    before, after = _halves(text)
    found = text[len(before) + len(_OPEN) : len(text) - len(after) - len(_CLOSE)]
    fields = dict(re.findall(r'data-seal="(\w+)">([^<]*)<', found))
    if "digest" not in fields:
        raise ParameterError("this page has no seal: it was not written by `urna report`")
    seal = Seal(_digest(before, after))
    if "signature" in fields:
        name = _unescaped(fields.get("name", ""))
        try:
            key, signature = (
                base64.b64decode(fields[f], validate=True) for f in ("key", "signature")
            )
            Ed25519PublicKey.from_public_bytes(key).verify(signature, _message(seal.digest, name))
        except (InvalidSignature, ValueError, KeyError, binascii.Error):
            return Seal(fields["digest"], name, intact=False)
        seal = Seal(seal.digest, name, key, signature)
    if seal.html != found:
        return Seal(fields["digest"], intact=False)
    return seal


def _halves(text: str) -> tuple[str, str]:
    if text.count(_OPEN) != 1 or text.count(_CLOSE) != 1 or text.index(_OPEN) > text.index(_CLOSE):
        raise ParameterError("this page has no seal: it was not written by `urna report`")
    return text[: text.index(_OPEN)], text[text.index(_CLOSE) + len(_CLOSE) :]


def _digest(before: str, after: str) -> str:
    return hashlib.sha256(f"{before}{_OPEN}{_CLOSE}{after}".encode()).hexdigest()


def _message(digest: str, name: str) -> bytes:
    return _DOMAIN + bytes.fromhex(digest) + name.encode()


def _unescaped(text: str) -> str:
    return html.unescape(text)
