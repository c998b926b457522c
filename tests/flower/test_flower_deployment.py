"""Real processes on loopback: a SuperLink and SuperNodes with TLS, node keys and policies."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "deployment"))

from federation import Federation

from urna.flower import DirectoryFile, NodeKey, Transcript
from urna.privacy import Ledger

APP = Path(__file__).resolve().parents[2] / "examples" / "flower-app"
SHARING, MASKING = "private sum: sharing keys, 0 of", "private sum: sending masked vectors, 0 of"


def settings(federation: Federation, **more: object) -> dict[str, object]:
    return {
        "rounds": 0,
        "directory": federation.folder / "directory.toml",
        "server-key": federation.folder / "server.key",
        "report": federation.folder / "result.json",
    } | more


def spent(federation: Federation) -> list[bool]:
    """Return which organisations' own ledgers have counted a release."""
    return [
        site.ledger.exists() and Ledger(site.ledger).spent().epsilon > 0
        for site in federation.sites
    ]


@pytest.mark.timeout(600)
def test_three_deployed_nodes_vote_and_leave_no_process_behind(tmp_path: Path) -> None:
    with Federation(tmp_path, sites=3) as federation:
        for site in federation.sites:
            federation.start_node(site)
        asked = settings(federation, nodes=3, dropout=0.0)
        printed = list(federation.run(APP, asked, seconds=400))
        assert spent(federation) == [True] * 3, printed
        kept = [site.transcripts for site in federation.sites]
    assert federation.leftovers() == []
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["took_part"], result["lost"]) == (3, {})
    assert result["privacy"]["private"]
    assert "checked keys against their own directories" in " ".join(result["privacy"]["caveats"])
    transcripts = [Transcript.read(file.read_bytes()) for files in kept for file in files]
    assert len(transcripts) == 3
    directory = DirectoryFile.read(tmp_path / "directory.toml")
    server = NodeKey.read(tmp_path / "server.key").public
    assert [t.problems(directory=directory, server_key=server) for t in transcripts] == [[]] * 3
    assert {t.survivors for t in transcripts} == {("site-0", "site-1", "site-2")}


@pytest.mark.audit
@pytest.mark.timeout(1200)
def test_a_deployed_vote_survives_a_kill_a_restart_a_refusal_and_a_stranger(
    tmp_path: Path,
) -> None:
    limits = "fewest_clients = 3\nmost_missing = 1"  # one of the directory will refuse
    with Federation(tmp_path, sites=7, settings=limits) as federation:
        killed, restarted, refusing = federation.sites[1], federation.sites[3], federation.sites[5]
        federation.write_policy(refusing, "fewest_clients = 100")
        for site in federation.sites:
            federation.start_node(site)
        stranger = federation.add_stranger()
        assert federation.wait_for_exit(stranger, 120) != 0
        asked = settings(federation, nodes=7, **{"dropout": 0.34, "stage-seconds": 60.0})
        for line in federation.run(APP, asked, seconds=900):
            if SHARING in line:
                federation.kill(killed)
            elif MASKING in line:
                federation.kill(restarted)
                federation.start_node(restarted)
        counted = spent(federation)
    assert federation.leftovers() == []
    result = json.loads((tmp_path / "result.json").read_text())
    reasons = sorted(result["lost"].values())
    assert result["took_part"] == 4, federation.log("app")
    assert reasons[0].startswith("refused: the sum may be opened with 4 clients in it")
    # Whether Flower's heartbeat or the stage's deadline was first.
    assert reasons[1] == "site-1: did not answer in time (share)"
    # It had shared its keys; back again, it has no state, or it was not back in time.
    assert reasons[2].startswith("site-3: ")
    assert reasons[2].endswith("(mask)")
    assert counted == [True, False, True, False, True, False, True]


@pytest.mark.audit
@pytest.mark.timeout(600)
def test_a_failure_leaves_no_process_behind(tmp_path: Path) -> None:
    class Failure(Exception):
        pass

    federation = Federation(tmp_path, sites=2)

    def fail() -> None:
        with federation:
            for site in federation.sites:
                federation.start_node(site)
            assert len(federation.leftovers()) >= 3
            raise Failure

    with pytest.raises(Failure):
        fail()
    assert federation.leftovers() == []


@pytest.mark.audit
@pytest.mark.timeout(600)
@pytest.mark.parametrize("verified", [False, True])
def test_three_deployed_nodes_and_a_helper_open_the_winner_alone(
    tmp_path: Path, verified: bool
) -> None:
    with Federation(tmp_path, sites=3, helper=True) as federation:
        for site in federation.sites:
            federation.start_node(site)
        federation.start_helper()
        asked = settings(federation, nodes=4, dropout=0.0, helper="helper", verified=verified)
        printed = list(federation.run(APP, asked, seconds=400))
        assert spent(federation) == [True] * 3, printed
        assert federation.helper is not None
        assert Ledger(federation.helper.ledger).spent().epsilon == 8.0
    assert federation.leftovers() == []
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["revealed"]["kind"], result["revealed"]["helper"]) == ("winner", "helper")
    assert result["took_part"] == 3
    told = " ".join(result["privacy"]["caveats"])
    assert ("every ballot counted was verified" in told) is verified
    assert result["privacy"]["private"]
