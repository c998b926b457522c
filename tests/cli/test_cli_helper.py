"""`urna helper`: what it starts, and whom it refuses to be."""

from pathlib import Path

import pytest
from commands import Command

pytest.importorskip("flwr", reason="helping needs Flower")

from urna.flower import NodeKey
from urna.randomness import ScriptedSecrets

GRANT = "[grant.winner]\nnames = ['hospital-7']\n"
IDENTITY = "[identity]\nkey = 'own.key'\ndirectory = 'directory.toml'\n"


def written(folder: Path, text: str) -> Path:
    key = NodeKey.draw("hospital-7", ScriptedSecrets(b"helper"))
    key.write(folder / "own.key")
    (folder / "directory.toml").write_text(f"[keys]\n{key.public_line}\n", encoding="utf-8")
    path = folder / "policy.toml"
    path.write_text(f"[privacy]\nepsilon = 1\ndelta = 1e-5\n{text}", encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["winner", "verified"])
def test_it_starts_a_supernode_whose_configuration_says_helper(
    urna: Command, tmp_path: Path, kind: str
) -> None:
    path = written(tmp_path, GRANT.replace("winner", kind) + IDENTITY)
    found = urna("helper", str(path), "--show", "--superlink", "server:9092", "--insecure")
    assert found.code == 0
    assert "flower-supernode --superlink server:9092 --insecure --node-config" in found.stdout
    assert f'urna-helper=true urna-policy="{path}"' in found.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GRANT, "proves who it is"),
        ("[grant.vote]\n" + IDENTITY, "grants no help"),
        (GRANT.replace("hospital-7", "another") + IDENTITY, "grants no help"),
    ],
)
def test_a_policy_that_is_no_helpers_is_refused(
    urna: Command, tmp_path: Path, text: str, said: str
) -> None:
    found = urna("helper", str(written(tmp_path, text)), "--show")
    assert said in found.refused(2)
