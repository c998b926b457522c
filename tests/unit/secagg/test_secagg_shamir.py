"""Sharing beside a slow implementation in Python's integers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from urna.errors import ParameterError
from urna.protocols.secagg.shares import PRIME, draw_secret, recover, share, shareable
from urna.randomness import ScriptedSecrets


def rebuild(bundles: list[bytes], points: list[int]) -> bytes:
    """Interpolate at zero in Python's integers."""
    weights = []
    for x in points:
        above = below = 1
        for other in points:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    columns = zip(*(np.frombuffer(b, dtype="<u2").tolist() for b in bundles), strict=True)
    found = [sum(w * y for w, y in zip(weights, ys, strict=True)) % PRIME for ys in columns]
    return np.array(found, dtype="<u2").tobytes()


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_any_threshold_shares_rebuild_the_secrets(data: st.DataObject) -> None:
    holders = data.draw(st.integers(1, 40))
    threshold = data.draw(st.integers(1, holders))
    source = ScriptedSecrets(data.draw(st.binary(max_size=4)))
    secrets = [draw_secret(source) for _ in range(data.draw(st.integers(1, 3)))]
    bundles = share(secrets, threshold, holders, source)
    chosen = data.draw(st.permutations(range(holders)))[:threshold]
    points = [place + 1 for place in chosen]
    shares = np.stack([np.frombuffer(bundles[place], dtype="<u2") for place in chosen])
    found = recover(np.array([points]), shares[None].astype(np.uint16))
    assert found[0].astype("<u2").tobytes() == b"".join(secrets)
    assert rebuild([bundles[place] for place in chosen], points) == b"".join(secrets)


def test_many_neighbours_stay_exact() -> None:
    # The largest sums: 600 terms just below 2^32. Wide enough for several strips.
    source = ScriptedSecrets(b"wide")
    secrets = [np.full(16, PRIME - 1, dtype="<u2").tobytes()] * 3
    bundles = share(secrets, 600, 700, source)
    points = list(range(101, 701))
    assert rebuild([bundles[p - 1] for p in points], points) == b"".join(secrets)


def test_one_share_less_says_nothing() -> None:
    # Over all values of the missing share, every secret limb comes up equally often.
    shares = np.array([[[17], [40_000]]], dtype=np.uint16)
    seen = set()
    for value in range(0, PRIME, 997):
        full = np.concatenate([shares, np.array([[[value]]], dtype=np.uint16)], axis=1)
        seen.add(int(recover(np.array([[1, 2, 3]]), full)[0, 0]))
    assert len(seen) == len(range(0, PRIME, 997))


def test_fresh_sharings_of_one_secret_differ() -> None:
    source = ScriptedSecrets(b"fresh")
    secret = draw_secret(source)
    assert share([secret], 3, 5, source) != share([secret], 3, 5, source)


def test_secrets_are_drawn_inside_the_field() -> None:
    class Biased:
        """Yields limbs outside the field first."""

        private = False

        def __init__(self) -> None:
            self._first = True

        def take(self, count: int) -> bytes:
            first, self._first = self._first, False
            return b"\xff" * count if first else b"\x01" * count

    secret = draw_secret(Biased())
    assert shareable(secret)
    assert secret == b"\x01" * 32


def test_what_cannot_be_shared_is_refused() -> None:
    source = ScriptedSecrets(b"refused")
    with pytest.raises(ParameterError, match="outside the field"):
        share([b"\xff" * 32], 1, 2, source)
    with pytest.raises(ParameterError, match="threshold"):
        share([bytes(32)], 3, 2, source)
    with pytest.raises(ParameterError, match="same point"):
        recover(np.array([[1, 1]]), np.zeros((1, 2, 16), dtype=np.uint16))
    with pytest.raises(ParameterError, match="outside the field"):
        recover(np.array([[1, 2]]), np.full((1, 2, 16), 65_530, dtype=np.uint16))
