"""The seal: any change shows, nothing hides in it, and a signature is of one key."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pages import made

from urna.errors import ParameterError
from urna.report import page, read_seal
from urna.report.seal import Seal


class Key:
    """A signer with a made-up key."""

    def __init__(self, name: str, seed: bytes = b"k" * 32) -> None:
        self.name = name
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


PLAIN = page(made("scripted"), title="t")
SIGNED = page(made("scripted"), title="t", signer=Key("Anna <\"&'> Ödön"))


def test_a_page_as_it_was_written_is_intact() -> None:
    assert read_seal(PLAIN).intact
    assert read_seal(PLAIN).name is None
    seal = read_seal(SIGNED)
    assert seal.intact
    assert seal.name == "Anna <\"&'> Ödön"
    assert seal.public == Key("").public
    assert seal.digest == read_seal(PLAIN).digest  # who signs is no part of what is signed


@pytest.mark.parametrize("text", [PLAIN, SIGNED], ids=["plain", "signed"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NOT PRIVATE", "PRIVATE"),
        ("</html>", "</html> "),
        ("<!doctype", " <!doctype"),
        ("<!--/seal-->", "and more<!--/seal-->"),
        ("<!--seal-->", "<!--seal--><p>epsilon 0.1</p>"),
        ('data-seal="digest">', 'data-seal="digest">0'),
    ],
)
def test_any_change_shows(text: str, old: str, new: str) -> None:
    assert text.count(old) >= 1
    assert not read_seal(text.replace(old, new, 1)).intact


def test_a_signature_is_of_one_name_one_key_and_one_page() -> None:
    other = page(made("vote"), title="t", signer=Key("Anna"))
    mine = page(made("scripted"), title="t", signer=Key("Anna"))
    start, end = "<!--seal-->", "<!--/seal-->"

    def seal(text: str) -> str:
        return text.partition(start)[2].partition(end)[0]

    assert not read_seal(mine.replace(seal(mine), seal(other))).intact
    assert not read_seal(mine.replace(">Anna<", ">Berta<")).intact
    stranger = page(made("scripted"), title="t", signer=Key("Anna", b"x" * 32))
    assert read_seal(stranger).intact
    assert read_seal(stranger).public != Key("Anna").public


@pytest.mark.parametrize("text", ["", "<html></html>", PLAIN + PLAIN, "<!--/seal--><!--seal-->"])
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(ParameterError, match="no seal"):
        read_seal(text)


def test_a_seal_of_nobody_holds_the_digest_alone() -> None:
    assert "Signed by" not in Seal("00").html
