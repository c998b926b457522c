"""Mutated letters of a verified count over Flower: refused in our own words, and nothing leaves."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the vote over Flower needs Flower")

sys.path.insert(0, str(Path(__file__).parents[1] / "adversary"))

from adversary_bytes import mutated
from flower_counts import (
    CAST,
    EXAMINE,
    HELP,
    HELPING,
    VOTERS,
    VOUCH,
    again,
    answering,
    held,
    rewriting,
    signed,
    spent,
)
from flwr.app import Message, RecordDict

from urna.errors import RoundFailed
from urna.flower.messages import Kind, Reply

FIELDS = ("body", "beside", "announcement")
TRIES = 40


class Watch:
    """A vote of which each letter to a node can be sent again, as if it had not come yet."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.number = folder, number
        self.grid = signed(folder)
        self._node = self.grid.nodes[1000 - number]
        self._states: dict[int, RecordDict] = {}
        self._files: dict[int, dict[Path, bytes]] = {}
        deliver = self.grid._deliver

        def note(message: Message) -> None:
            if message.metadata.dst_node_id == 1000 - number:
                came = len(self._node.letters)
                self._states[came] = RecordDict(dict(self._node.state.items()))
                self._files[came] = {file: file.read_bytes() for file in self._own()}
            deliver(message)

        self.grid._deliver = note  # type: ignore[method-assign]
        held(self.grid, folder)
        self.grid._deliver = deliver  # type: ignore[method-assign]
        self.letters = list(self._node.letters)

    def _own(self) -> list[Path]:
        return list(self.folder.glob(f"{self.number}.ledger*"))

    def back_to(self, place: int) -> None:
        """Put the node where it was before it got a letter."""
        self._node.state = RecordDict(dict(self._states[place].items()))
        for file in self._own():
            file.unlink()
        for file, data in self._files[place].items():
            file.write_bytes(data)


@pytest.mark.parametrize(
    ("number", "place"),
    [(0, CAST), (VOTERS, VOUCH), (VOTERS, EXAMINE), (VOTERS, HELP)],
    ids=["cast", "vouch", "examine", "confirm"],
)
def test_a_mutated_letter_is_refused_in_our_own_words(
    quick_path: Path,
    number: int,
    place: int,
) -> None:
    watch, rng = Watch(quick_path, number), np.random.default_rng([23, number, place])
    honest = watch.letters[place]
    others = [at.body for at in watch.letters if at.body]
    fields = [name for name in FIELDS if getattr(honest, name)]
    refused = 0
    for _ in range(TRIES):
        name = str(rng.choice(fields))
        data = mutated(getattr(honest, name), rng, others)
        if data == getattr(honest, name):
            continue
        watch.back_to(place)
        reply = again(watch.grid, 1000 - number, replace(honest, **{name: data}))
        # An offer that is another point is an offer as well: what follows does not fit it.
        assert reply.refused or (place == EXAMINE and name == "beside"), (name, data)
        assert "its own log says why" not in reply.refused
        refused += bool(reply.refused)
        if place != HELP:
            assert spent(quick_path, number) == 0.0
    assert refused > TRIES // 2
    watch.back_to(place)
    assert again(watch.grid, 1000 - number, honest).body


def test_a_mutated_report_costs_its_sender_alone(quick_path: Path) -> None:
    rng, harmed = np.random.default_rng(29), 0
    for at in range(6):
        folder = quick_path / str(at)
        folder.mkdir()
        grid = signed(folder, tricks={2: rewriting(lambda data: mutated(data, rng, []))})
        result = held(grid, folder, dropout=0.3)
        assert result.best == {"lr": 0.4}
        assert set(result.lost) <= {998}
        assert result.faults == {}, "it may have been altered on the way"
        assert result.took_part == VOTERS - len(result.lost)
        harmed += len(result.lost)
    assert harmed > 3


@pytest.mark.parametrize("kind", [Kind.BEGIN, Kind.STAGE, Kind.HELP])
def test_a_mutated_answer_of_the_helper_ends_the_vote_and_names_no_voter(
    quick_path: Path, kind: Kind
) -> None:
    rng = np.random.default_rng(31)
    for at, name in enumerate(["body", "body", "beside", "beside"]):
        if kind is Kind.BEGIN and name == "beside":
            continue  # it says nothing beside

        def change(reply: Reply, name: str = name) -> Reply:
            data = wrong = getattr(reply, name)
            while wrong == data:
                wrong = mutated(data, rng, [])
            return replace(reply, **{name: wrong})

        folder = quick_path / str(at)
        folder.mkdir()
        with pytest.raises(RoundFailed) as failed:
            held(signed(folder, tricks={VOTERS: answering(kind, change)}), folder)
        assert (set(failed.value.lost), failed.value.faults) == ({HELPING}, {})
