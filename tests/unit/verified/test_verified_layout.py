"""What a ballot holds, as bits."""

import itertools

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.protocols.ballots.codec import BallotLayout

LAYOUTS = [BallotLayout(3), BallotLayout(4, 1), BallotLayout(2, 5), BallotLayout(2, 2)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_valid_ballot_is_read_back_from_its_bits(layout: BallotLayout) -> None:
    for choice in itertools.product(range(layout.levels + 1), repeat=layout.candidates):
        bits = layout.encode(np.array(choice))
        assert len(bits) == layout.bits
        assert set(bits.tolist()) <= {0, 1}
        assert layout.levels_of(bits, 1 << 31).tolist() == list(choice)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_any_bits_are_a_valid_ballot(layout: BallotLayout) -> None:
    for bits in itertools.product((0, 1), repeat=layout.bits):
        layout.check(layout.levels_of(np.array(bits, dtype=np.uint64), 1 << 31))


@pytest.mark.parametrize(
    ("ballot", "words"), [([0, 4, 0], "0..3"), ([-1, 0, 0], "0..3"), ([1, 1], "3 integers")]
)
def test_an_invalid_ballot_is_not_encoded(ballot: list[int], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        BallotLayout(3).encode(np.array(ballot))


def test_levels_are_integers() -> None:
    with pytest.raises(ParameterError, match="integers"):
        BallotLayout(2).check(np.array([0.5, 1.0]))


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"levels": 0}, {"levels": 2.0}])
def test_layouts_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ParameterError):
        BallotLayout(**{"candidates": 3, **wrong})  # type: ignore[arg-type]


def test_a_ballot_has_at_most_so_many_bits() -> None:
    assert BallotLayout(1 << 15).bits == 1 << 16
    with pytest.raises(ParameterError, match="bits"):
        BallotLayout((1 << 15) + 1)
