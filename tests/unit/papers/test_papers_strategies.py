"""Strategies that only a study of the papers needs, and how a federation judges them."""

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest
from benchmarks.papers.anchored import Anchored
from benchmarks.papers.federations import candidates, federated_search
from benchmarks.papers.judged import judge
from benchmarks.papers.surfaces import Surface, SurfaceKind

from urna.errors import ParameterError
from urna.space import Axis, Space
from urna.systems.combine import Frame, LocalSearch, Ruler, Searches

RATES, MOMENTA = (0.01, 0.03, 0.1, 0.3, 1.0), (0.0, 0.3, 0.6, 0.9)
GRID = np.array(list(itertools.product(RATES, MOMENTA)))
FRAME = Frame.of(Space(lr=Axis.log(RATES), momentum=Axis.linear(MOMENTA)), log=True)


@pytest.mark.parametrize("kind", list(SurfaceKind))
def test_a_surface_finds_the_one_good_candidate_of_all(kind: SurfaceKind) -> None:
    rng = np.random.default_rng(1)
    best = np.array([0.1, 0.6])
    clients = []
    for _ in range(4):
        away = np.abs(FRAME.units(GRID) - FRAME.units(best[None, :])).sum(axis=1)
        clients.append(LocalSearch(GRID, 1 - away + 0.01 * rng.standard_normal(len(GRID))))
    found = Surface(kind, trees=20).combine(Searches(FRAME, tuple(clients)))
    assert found.setting == {"lr": 0.1, "momentum": 0.6}


def test_the_worst_party_decides_in_mplm_and_the_mean_in_aplm() -> None:
    settings = np.array([[0.0], [1.0]])
    frame = Frame((Ruler("x", 0.0, 1.0),))

    def client(losses: list[float]) -> LocalSearch:
        rows = np.repeat(settings, 20, axis=0)
        return LocalSearch(rows, -np.repeat(losses, 20).astype(float))

    searches = Searches(frame, (client([0.0, 0.4]), client([1.0, 0.7])))
    assert Surface(SurfaceKind.MPLM, trees=10).combine(searches).setting == {"x": 1.0}
    assert Surface(SurfaceKind.APLM, trees=10).combine(searches).setting == {"x": 0.0}


def test_the_anchor_wins_unless_clients_say_that_it_fails() -> None:
    good = np.full(len(GRID), 0.8)
    fails = np.where(GRID[:, 0] == 1.0, 0.01, 0.8)
    fine = Searches(FRAME, (LocalSearch(GRID, good),) * 3)
    warned = Searches(FRAME, (LocalSearch(GRID, fails),) * 3)
    assert Anchored().combine(fine).setting == {"lr": 1.0, "momentum": 0.9}
    assert Anchored().combine(warned).setting == {"lr": 0.3, "momentum": 0.9}
    server = Frame.of(Space(lr=Axis.log([0.01, 0.1]), momentum=Axis.linear([0.0, 0.6])), log=True)
    assert Anchored(within=server).combine(fine).setting == {"lr": 0.1, "momentum": 0.6}


def test_an_anchor_on_other_axes_is_refused() -> None:
    searches = Searches(
        Frame.of(Space(c=[1.0, 2.0])), (LocalSearch(np.array([[1.0]]), np.ones(1)),)
    )
    with pytest.raises(ParameterError, match="the axes are c"):
        Anchored().combine(searches)


def test_a_setting_is_judged_by_the_nearest_one_the_federation_tried() -> None:
    scores = np.linspace(0.1, 0.9, len(GRID))
    judged = judge("by hand", {"lr": 0.09, "momentum": 0.85}, LocalSearch(GRID, scores), FRAME)
    assert judged.distance == pytest.approx({"lr": 0.91, "momentum": 0.05})
    nearest = GRID.tolist().index([0.1, 0.9])
    assert judged.accuracy == pytest.approx(scores[nearest])
    assert judged.regret == pytest.approx(0.9 - scores[nearest])
    nothing = judge("nothing", None, LocalSearch(GRID, scores), FRAME)
    assert nothing.as_mapping()["accuracy"] is None


def test_the_federations_own_rows_are_read_and_the_clients_are_not(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    rows = ["client,skew,lr,accuracy", "0,qty,0.1,0.9", "-1,qty,0.3,0.5", "-1,iid,1.0,0.8"]
    path.write_bytes(gzip.compress("\n".join(rows).encode()))
    found = federated_search(path, {"skew": "qty"}, ["lr"])
    assert found.settings.tolist() == [[0.3]]
    assert found.scores.tolist() == [0.5]


def test_candidates_are_what_somebody_tried() -> None:
    clients = (LocalSearch(GRID[:3], np.ones(3)), LocalSearch(GRID[2:5], np.ones(3)))
    assert candidates(Searches(FRAME, clients)).tolist() == GRID[:5].tolist()
