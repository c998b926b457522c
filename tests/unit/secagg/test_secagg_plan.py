"""Plans: what they promise, what they refuse, and what they offer instead."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from urna.errors import ParameterError
from urna.protocols import secagg
from urna.protocols.secagg.graph import threshold_range
from urna.randomness import ScriptedSecrets


def test_everything_offered_can_be_imported() -> None:
    assert sorted(secagg.__all__) == secagg.__all__
    assert all(hasattr(secagg, name) for name in secagg.__all__)


def test_a_plan_has_the_fewest_neighbours_that_are_safe() -> None:
    plan = secagg.plan(
        clients=250, dimension=200, colluders=25, dropouts=50, noise_variance=Fraction(9)
    )
    assert (plan.neighbours, plan.threshold, plan.colluders, plan.dropouts) == (56, 23, 25, 50)


@pytest.mark.parametrize("server", list(secagg.ServerModel))
@pytest.mark.parametrize("xnoise", list(secagg.Removal))
def test_no_client_sends_or_receives_more_than_planned(
    server: secagg.ServerModel, xnoise: secagg.Removal
) -> None:
    plan = secagg.plan(
        clients=30,
        dimension=64,
        colluders=2,
        dropouts=3,
        noise_variance=Fraction(100),
        xnoise=xnoise,
        server=server,
    )
    vectors = {client: np.zeros(64, dtype=np.int64) for client in range(30)}
    outcome = secagg.run(vectors, plan, ScriptedSecrets(b"bytes"), signed=True)
    assert 0.7 * plan.bytes_per_client < outcome.bytes_per_client <= plan.bytes_per_client


@pytest.mark.parametrize("step", [-1, 1], ids=["below", "above"])
@pytest.mark.parametrize("server", list(secagg.ServerModel))
def test_a_threshold_out_of_range_is_refused(step: int, server: secagg.ServerModel) -> None:
    plan = secagg.plan(clients=100, dimension=5, colluders=10, dropouts=10, server=server)
    low, high = threshold_range(100, 10, 10, plan.neighbours, plan.server)
    wrong = low - 1 if step < 0 else high + 1
    with pytest.raises(ParameterError, match="threshold may be"):
        replace(plan, threshold=wrong)
    assert replace(plan, threshold=low).threshold == low
    assert replace(plan, threshold=high).threshold == high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 1}, "at least 2 clients"),
        ({"dimension": 0}, "entries"),
        ({"ring_bits": 24}, "16, 32 or 64"),
        ({"colluders": 0.1}, "`colluders` is a whole number"),
        ({"colluders": True}, "`colluders` is a whole number"),
        ({"dropouts": 100}, "`dropouts` is a whole number"),
        ({"dropouts": -1}, "`dropouts` is a whole number"),
        ({"neighbours": 5}, "even"),
        ({"neighbours": 100}, "even"),
        ({"noise": secagg.NoisePlan(secagg.Removal.NONE, Fraction(1), 99, 0, 0)}, "planned for"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    plan = secagg.plan(clients=100, dimension=5, colluders=10, dropouts=10)
    with pytest.raises(ParameterError, match=message):
        replace(plan, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize("server", list(secagg.ServerModel))
def test_an_impossible_plan_says_what_would_be_possible(server: secagg.ServerModel) -> None:
    wanted = {"clients": 20, "dimension": 5, "colluders": 6, "server": server}
    with pytest.raises(ParameterError, match=r"at most \d+ may drop out") as refused:
        secagg.plan(**wanted, dropouts=19)  # type: ignore[arg-type]
    possible = int(str(refused.value).split("at most ")[1].split()[0])
    secagg.plan(**wanted, dropouts=possible)  # type: ignore[arg-type]
    with pytest.raises(ParameterError):
        secagg.plan(**wanted, dropouts=possible + 1)  # type: ignore[arg-type]


def test_too_many_colluders_are_told_so() -> None:
    with pytest.raises(ParameterError, match="fewer colluding"):
        secagg.plan(clients=10, dimension=5, colluders=9)


def test_any_change_of_a_plan_changes_its_digest() -> None:
    plan = secagg.plan(
        clients=100, dimension=5, colluders=10, dropouts=10, noise_variance=Fraction(9)
    )
    assert plan.noise is not None
    others = [
        replace(plan, dimension=6),
        replace(plan, ring_bits=64),
        replace(plan, neighbours=plan.neighbours + 2),
        replace(plan, threshold=plan.threshold + 1),
        replace(plan, noise=None),
        replace(plan, noise=None, colluders=9),
        replace(plan, noise=None, dropouts=9),
        replace(plan, noise=replace(plan.noise, target=Fraction(10))),
        replace(plan, noise=replace(plan.noise, removal=secagg.Removal.NONE)),
    ]
    digests = {other.digest for other in [plan, *others]}
    assert len(digests) == 1 + len(others)
    assert replace(plan).digest == plan.digest


@pytest.mark.parametrize("server", list(secagg.ServerModel))
def test_a_bundle_is_as_long_as_its_parts(server: secagg.ServerModel) -> None:
    plan = secagg.plan(
        clients=20, dimension=5, dropouts=2, noise_variance=Fraction(9), server=server
    )
    assert plan.secrets == 2 + 2  # mask key and self-mask seed; one noise seed per dropout
    assert plan.sealed_bytes == 32 * 4 + 16
    signature = 64 if server is secagg.ServerModel.DISHONEST else 0
    assert plan.bundle_bytes == plan.sealed_bytes + 16 + signature
