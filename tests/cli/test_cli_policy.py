"""`urna policy`: what it writes is a policy, and what it shows is what the policy says."""

from pathlib import Path
from shlex import split

import pytest
from commands import Command

pytest.importorskip("flwr", reason="policies are for nodes of a Flower federation")

from urna.flower import Policy
from urna.privacy import Budget, GaussianRelease, Ledger


def test_what_is_written_is_a_policy(urna: Command, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    asked = split("--epsilon 3 --delta 1e-6 --grant vote --grant update --fewest-clients 4")
    assert "urna-policy" in urna("policy", "make", file, *asked).stdout
    read = Policy.read(file)
    assert (read.epsilon, read.delta, read.fewest_clients) == (3.0, 1e-6, 4)
    assert read.grants.keys() == {"vote", "update"}
    assert read.grants["update"].most_rounds == 20
    assert not read.directory_required
    assert read.transcripts == tmp_path / "transcripts"


@pytest.mark.parametrize("kind", ["vote", "winner", "update", "average", "settings", "statistic"])
def test_every_kind_can_be_granted(kind: str, urna: Command, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    made = urna("policy", "make", file, "--grant", kind, "--format", "json").json()
    assert made["grants"] == [kind]
    assert urna("policy", "show", file, "--format", "json").json()["grants"] == [kind]


def test_how_many_are_in_a_cluster_is_written_and_shown(urna: Command, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    urna("policy", "make", file, "--grant", "exact-settings")
    assert Policy.read(file).grants["exact-settings"].fewest_in_cluster == 4
    file.write_text(file.read_text().replace("fewest_in_cluster = 4", "fewest_in_cluster = 6"))
    shown = " ".join(urna("policy", "show", file).stdout.split())
    assert "6 clients or more in every opened cluster" in shown


def test_a_directory_asks_for_signed_sums(urna: Command, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    urna("policy", "make", file, "--directory", "directory.toml", "--data", 'the "old" ward')
    assert Policy.read(file).data == 'the "old" ward'
    assert Policy.read(file).directory == tmp_path / "directory.toml"
    assert "signed sums only" in urna("policy", "show", file).stdout


def test_what_is_left_is_shown(urna: Command, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    urna("policy", "make", file)
    assert urna("policy", "show", file, "--format", "json").json()["left"] == 2.0
    ledger = Ledger.open(tmp_path / "policy.ledger", Budget(2.0, 1e-5))
    ledger.charge(GaussianRelease(noise_multiplier=10.0), label="a sum")
    shown = urna("policy", "show", file, "--format", "json").json()
    assert shown["spent"] == ledger.spent().epsilon > 0
    assert shown["left"] == ledger.left() < 2.0
    assert "for life" in urna("policy", "show", file).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--grant", "everything"), 2, "grants are vote"),
        (("--epsilon", "0"), 2, "epsilon"),
        (("--fewest-clients", "1"), 2, "fewest-clients"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(
    arguments: tuple[str, ...], code: int, said: str, urna: Command, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    assert said in urna("policy", "make", file, *arguments).refused(code)
    assert not file.exists()


def test_an_existing_policy_is_left_alone(urna: Command, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("mine")
    assert "there already" in urna("policy", "make", file).refused(1)
    assert file.read_text() == "mine"
    assert "no TOML" in urna("policy", "show", file).refused(2)
