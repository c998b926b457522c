"""Transcripts: who keeps them, what altering one shows, and what `urna verify` says."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="sums over Flower need Flower")

from flower_grid import LocalGrid
from flower_nodes import BUDGET, OPEN, QUICK, SPACE, federation, make_keys, node
from grouped import grouped
from typer.testing import CliRunner

from urna.cli.app import app
from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.flower import DirectoryFile, NodeKey, Transcript, poll
from urna.flower.identities import write_public_key
from urna.flower.messages import Kind, Letter
from urna.flower.transcript import Ending
from urna.privacy import Ledger
from urna.randomness import ScriptedSecrets
from urna.systems.vote import VoteResult
from urna.systems.vote.result import Revealed

SERVER = NodeKey.draw("server", ScriptedSecrets(b"server"))
SIZE, SILENT = 8, 2


def signed_grid(folder: Path, **faults: dict[int, str]) -> LocalGrid:
    make_keys(folder, SIZE)
    policy = replace(
        OPEN,
        epsilon=30.0,
        forgets=False,
        directory=folder / "directory.toml",
        server_key=SERVER.public,
        directory_required=True,
        key=folder / "0.key",
    )
    return federation(
        *(
            node(
                n,
                policy=replace(
                    policy,
                    ledger=folder / f"{n}.ledger",
                    key=folder / f"{n}.key",
                    transcripts=folder / "kept" / str(n),
                ),
                faults=faults.get(f"of_{n}", {}),
            )
            for n in range(SIZE)
        )
    )


def hold(folder: Path, grid: LocalGrid | None = None, **terms: Any) -> VoteResult:
    return poll(
        grid or signed_grid(folder),
        SPACE,
        budget=BUDGET,
        dropout=0.25,
        **grouped(
            terms,
            votes=2,
            directory=folder / "directory.toml",
            server_key=SERVER,
            transcripts=folder / "kept" / "server",
        ),
    )


def kept(folder: Path, who: object) -> Transcript:
    (file,) = (folder / "kept" / str(who)).iterdir()
    return Transcript.read(file.read_bytes())


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, VoteResult]:
    """Return a folder in which a signed vote was held, one node being lost on the way."""
    folder = tmp_path_factory.mktemp("vote")
    result = hold(folder, signed_grid(folder, of_2={3: "silent"}), deadlines=QUICK)
    (folder / "result.json").write_text(result.as_json())
    return folder, result


def test_everybody_who_took_part_keeps_the_same_transcript(held: tuple[Path, VoteResult]) -> None:
    folder, result = held
    served = kept(folder, "server")
    assert served.ending is Ending.RELEASED
    assert served.announcement.names == tuple(f"site-{n}" for n in range(SIZE))
    assert served.survivors == tuple(f"site-{n}" for n in range(SIZE) if n != SILENT)
    assert served.lost == {"site-2": "did not answer in time (mask)"}
    assert all(kept(folder, n) == served for n in range(SIZE))
    directory = DirectoryFile.read(folder / "directory.toml")
    assert served.problems(directory=directory, server_key=SERVER.public) == []
    assert Transcript.read(served.as_bytes()) == served
    assert result.took_part == SIZE - 1


CHANGES: dict[str, Callable[[Transcript], Transcript]] = {
    "announcement": lambda t: replace(
        t, announcement=replace(t.announcement, issued=t.announcement.issued + 1)
    ),
    "signature": lambda t: replace(t, signature=bytes(64)),
    "number": lambda t: replace(t, number=2),
    "inputs": lambda t: replace(t, inputs_digest=bytes(32)),
    "presence": lambda t: replace(t, presence={**t.presence, "site-1": bytes(64)}),
    "absence": lambda t: replace(t, presence={}),
    "ending": lambda t: replace(t, ending=Ending.SPOILED),
    "no survivors": lambda t: replace(t, survivors=()),
    "survivors": lambda t: replace(t, survivors=(*t.survivors, "site-2")),
    "twice": lambda t: replace(t, survivors=(*t.survivors, "site-1")),
    "stranger": lambda t: replace(t, survivors=(*t.survivors, "stranger")),
    "lost": lambda t: replace(t, lost={}),
    "faults": lambda t: replace(t, faults={"site-3": "nothing"}),
    "receipts": lambda t: replace(t, receipts={"site-3": bytes(64)}),
    "sum": lambda t: replace(t, sum_digest="0" * 64),
    "no sum": lambda t: replace(t, sum_digest=""),
    "seal": lambda t: replace(t, sealed=bytes(64)),
}
WITHOUT_THE_SERVERS_KEY = {"announcement", "number", "presence", "absence", "no survivors", "twice",
                           "survivors", "stranger", "receipts", "no sum"}  # fmt: skip


@pytest.mark.parametrize("field", CHANGES)
def test_whatever_is_altered_is_found(held: tuple[Path, VoteResult], field: str) -> None:
    folder, _ = held
    altered = CHANGES[field](kept(folder, "server"))
    directory = DirectoryFile.read(folder / "directory.toml")
    assert altered.problems(directory=directory, server_key=SERVER.public) != []
    # Without the server's key what contradicts itself, or nodes' signatures, still is.
    assert bool(altered.problems(directory=directory)) == (field in WITHOUT_THE_SERVERS_KEY)


def test_signatures_are_checked_against_the_readers_own_keys(
    held: tuple[Path, VoteResult], tmp_path: Path
) -> None:
    folder, _ = held
    served = kept(folder, "server")
    other = NodeKey.draw("server", ScriptedSecrets(b"other"))
    assert len(served.problems(server_key=other.public)) == 2
    (tmp_path / "others").mkdir()
    for number in range(SIZE):
        key = NodeKey.draw(f"site-{number}", ScriptedSecrets(b"other %d" % number))
        key.write(tmp_path / f"{number}.key")
    strangers = DirectoryFile(
        {f"site-{n}": NodeKey.read(tmp_path / f"{n}.key").public for n in range(SIZE)}
    )
    assert len(served.problems(directory=strangers)) == SIZE
    fewer = DirectoryFile({"site-0": strangers.keys["site-0"]})
    assert "7 who take part are not in this node's directory." in served.problems(directory=fewer)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda m: m | {"version": 2},
        lambda m: m | {"kind": "vote"},
        lambda m: m | {"number": 0},
        lambda m: m | {"number": True},
        lambda m: m | {"survivors": ["../x"]},
        lambda m: m | {"announcement": "{}"},
        lambda m: m | {"sealed": "zz"},
        lambda m: m | {"lost": []},
        lambda m: {k: v for k, v in m.items() if k != "receipts"},
        lambda m: [m],
    ],
)
def test_what_is_no_transcript_is_not_read(
    held: tuple[Path, VoteResult], wrong: Callable[[Any], Any]
) -> None:
    mapping = json.loads(kept(held[0], "server").as_bytes())
    with pytest.raises(ProtocolError):
        Transcript.read(json.dumps(wrong(mapping)).encode())


# The command line


def verify(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    if isinstance(done.exception, ParameterError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


def test_the_command_checks_what_it_is_given_keys_for(held: tuple[Path, VoteResult]) -> None:
    folder, _ = held
    (file,) = (folder / "kept" / "0").iterdir()
    keys = ("--directory", folder / "directory.toml", "--server-key",
            write_public_key(SERVER.public), "--result", folder / "result.json")  # fmt: skip
    code, said = verify(file, *keys)
    assert (code, "nothing is wrong with what was checked" in said) == (0, True)
    assert "not checked" not in said
    code, said = verify(file)
    assert code == 0
    assert said.count("not checked") == 3
    code, said = verify(file, *keys, "--format", "json")
    assert (code, json.loads(said)["problems"]) == (0, [])
    assert json.loads(said)["lost"] == {"site-2": "did not answer in time (mask)"}


def test_the_command_fails_on_what_is_wrong(held: tuple[Path, VoteResult], tmp_path: Path) -> None:
    folder, result = held
    altered = tmp_path / "altered.json"
    altered.write_bytes(replace(kept(folder, 0), sum_digest="0" * 64).as_bytes())
    server = ("--server-key", write_public_key(SERVER.public))
    code, said = verify(altered, *server)
    assert (code, "not signed by this server" in " ".join(said.split())) == (1, True)
    other = tmp_path / "result.json"
    other.write_text(replace(result, revealed=Revealed(result.votes + 1)).as_json())
    (file,) = (folder / "kept" / "0").iterdir()
    code, said = verify(file, "--result", other)
    assert (code, "not the sum of this round" in " ".join(said.split())) == (1, True)


def test_the_command_says_what_it_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert verify(file)[0] == 2
    file.write_text("{}")
    assert verify(file) == (2, f"{file}: the transcript cannot be read")


# What nodes keep


def test_a_node_keeps_transcripts_of_rounds_it_took_part_in_and_no_others(tmp_path: Path) -> None:
    grid = signed_grid(tmp_path)
    hold(tmp_path, grid)
    mine = kept(tmp_path, 0)

    def tell(transcript: Transcript) -> None:
        message = grid.sent[[m.metadata.dst_node_id for m in grid.sent].index(1000)]
        message.content = Letter(Kind.END, transcript.as_bytes()).as_records()
        grid.push_messages([message])

    # Another of the same round comes: the first stays, and the second is kept beside it, once.
    for number in range(3):
        tell(replace(mine, lost={"site-1": f"reason {number}"}))
    names = sorted(file.name for file in (tmp_path / "kept" / "0").iterdir())
    assert len(names) == 2
    assert Transcript.read((tmp_path / "kept" / "0" / names[0]).read_bytes()) == mine
    assert names[1].endswith(".other.json")
    # One of a round that the node never saw is not kept: nobody fills its disk.
    tell(replace(mine, announcement=replace(mine.announcement, issued=1)))
    assert len(list((tmp_path / "kept" / "0").iterdir())) == 2


def test_no_node_withdraws_for_a_transcript_that_is_not_the_servers(tmp_path: Path) -> None:
    """A void round with receipts, unsealed, of another round, or without enough receipts."""
    grid = signed_grid(tmp_path, **{f"of_{n}": {4: "silent"} for n in range(2, SIZE)})
    with pytest.raises(RoundAborted):
        hold(tmp_path, grid, deadlines=QUICK)
    void = kept(tmp_path, "server")
    assert void.ending is Ending.VOID
    assert len(void.receipts) >= 6
    policy = replace(
        OPEN, key=tmp_path / "0.key", directory=tmp_path / "directory.toml",
        server_key=SERVER.public, ledger=tmp_path / "0.ledger",
    )  # fmt: skip
    assert void.void_for("site-0", policy)
    wrong = {
        "unsealed": replace(void, sealed=b""),
        "other server": void.sealed_by(NodeKey.draw("server", ScriptedSecrets(b"other"))),
        "released": replace(void, ending=Ending.RELEASED).sealed_by(SERVER),
        "no receipts": replace(void, receipts={}).sealed_by(SERVER),
        "forged receipts": replace(
            void, receipts=dict.fromkeys(void.receipts, bytes(64))
        ).sealed_by(SERVER),
        "other round": replace(void, inputs_digest=bytes(32)).sealed_by(SERVER),
        "fewer receipts": replace(void, receipts=dict(list(void.receipts.items())[:2])).sealed_by(
            SERVER
        ),
    }
    assert [name for name, t in wrong.items() if t.void_for("site-0", policy)] == []
    assert not void.void_for("stranger", policy)
    assert [entry.withdrawn for entry in Ledger(tmp_path / "0.ledger").entries()] == [True]


def test_a_tally_is_kept_before_anybody_is_told_of_it(tmp_path: Path) -> None:
    grid, seen = signed_grid(tmp_path), []

    def keep(result: VoteResult) -> None:
        told = [k for m in grid.nodes.values() for k in (letter.kind for letter in m.letters)]
        seen.append((result.decoder, Kind.END in told, (tmp_path / "kept" / "server").exists()))

    result = hold(tmp_path, grid, keep=keep)
    assert seen == [("none yet", False, False)]
    assert result.decoder == "posterior"
