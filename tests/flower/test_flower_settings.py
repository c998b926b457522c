"""Combining nodes' own searches over Flower, with noise and encrypted."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="combining over Flower needs Flower")

from flower_grid import LocalGrid, Node
from flower_nodes import OPEN
from flwr.app import Context
from flwr.clientapp import ClientApp
from grouped import grouped

from urna.errors import (
    BudgetExceeded,
    ParameterError,
    ProtocolError,
    RoundAborted,
    RoundUnfinished,
)
from urna.flower import Deadlines, Grant, Participant, Policy
from urna.flower.encrypted import EncryptedParty, combine_encrypted
from urna.flower.gathering import Federation
from urna.flower.settings import SettingsContributor, combine_settings
from urna.flower.subjects import read_subject, size_of
from urna.privacy import Budget, Ledger
from urna.report import page
from urna.space import Axis, Space
from urna.systems.combine import (
    Averaging,
    Combination,
    FederatedDbscan,
    Frame,
    LocalSearch,
    MeanSetting,
    Searches,
    SettingsSum,
)
from urna.tally import Run

GRID = np.array(list(itertools.product((0.01, 0.1, 1.0), (0.0, 0.5, 0.9))))
FRAME = Frame.of(
    Space(lr=Axis.log([0.01, 0.1, 1.0]), momentum=Axis.linear([0.0, 0.5, 0.9])), log=True
)
WAITS = Deadlines(gather=5.0, evaluate=20.0, stage=20.0)
SOON = Deadlines(gather=0.5, evaluate=2.0, stage=0.5)
EXACT = Grant(names=("mean", "dbscan"), most_runs=None, fewest_in_cluster=2)
GRANTED = replace(OPEN, grants={"settings": Grant(), "exact-settings": EXACT})
WIDE = replace(GRANTED, epsilon=1e4)


def search_of(number: int) -> LocalSearch:
    """Return a search whose best setting is the middle one for most, and a corner for few."""
    best, score = ((0.1, 0.5), 0.9) if number % 4 else ((1.0, 0.9), 0.4)
    near = np.isclose(GRID, best).all(axis=1)
    return LocalSearch(GRID, np.where(near, score - 0.001 * number, 0.2))


def load(context: Context) -> LocalSearch:
    return search_of(int(context.node_config["partition-id"]))


def federation(
    nodes: int,
    policy: Policy | Path = GRANTED,
    faults: Mapping[int, Mapping[int, str]] | None = None,
    *,
    recomputes: bool = False,
) -> LocalGrid:
    app = ClientApp()
    Participant([SettingsContributor(load)], policy=policy).mount(app)
    EncryptedParty(load, policy=policy, recomputes=recomputes).mount(app)
    return LocalGrid(
        {
            100 + number: Node(app, {"partition-id": number}, (faults or {}).get(number, {}))
            for number in range(nodes)
        }
    )


def searches(*numbers: int) -> Searches:
    return Searches(FRAME, tuple(search_of(number) for number in numbers))


@pytest.mark.parametrize("strategy", [MeanSetting(), MeanSetting(0.4)])
def test_nodes_find_what_is_found_in_the_clear_but_for_the_noise(strategy: MeanSetting) -> None:
    kept: list[Combination] = []
    result = combine_settings(
        federation(24, WIDE),
        FRAME,
        strategy,
        budget=Budget(5000.0, 1e-5),
        colluding=0,
        federation=Federation(deadlines=WAITS),
        run=Run(keep=kept.append),
    )
    clear = strategy.combine(searches(*range(24))).setting
    units = FRAME.units(np.array([FRAME.row(result.setting), FRAME.row(clear)]))
    # Five deviations of what the noise moves a mean of at least 18 clients by.
    assert np.abs(units[0] - units[1]).max() < 5 * result.noise[-1] / (256 * 18)
    assert (result.clients, result.took_part, result.lost) == (24, 24, {})
    assert result.privacy.epsilon <= 5000.0
    assert "over Flower" in " ".join(result.privacy.caveats)
    assert kept == [result]
    assert len(result.opened) == 1
    assert Combination.read(result.as_mapping()).as_mapping() == result.as_mapping()
    assert "Differentially private" in page(result, title="nodes")


def test_a_sum_is_in_every_nodes_ledger_and_keeps_within_the_budget(tmp_path: Path) -> None:
    text = "[privacy]\nepsilon = 4.0\ndelta = 1e-5\n[limits]\nfewest_clients = 2\n"
    text += "least_colluding = 0\n[grant.settings]\n"
    paths = [tmp_path / f"{number}.toml" for number in range(4)]
    for path in paths:
        path.write_text(text, encoding="utf-8")
    grid = federation(4)
    for path, node in zip(paths, grid.nodes.values(), strict=True):
        node.config = {**node.config, "urna-policy": str(path)}
    own = Ledger.open(tmp_path / "server.ledger", Budget(4.0, 1e-5))
    more = {"deadlines": WAITS, "colluding": 0, "ledger": own}
    result = combine_settings(grid, FRAME, budget=Budget(3.0, 1e-5), **grouped(more))  # type: ignore[arg-type]
    assert result.privacy.epsilon <= 3.0
    assert result.entries == tuple(entry.id for entry in own.entries())
    for path in paths:
        ledger = Ledger(path.with_suffix(".ledger"))
        assert len(list(ledger.entries())) == 1
        assert 2.5 < ledger.spent().epsilon <= 3.0
    # There is no room for a second one: nobody is asked for it.
    asked = len(grid.sent)
    with pytest.raises(BudgetExceeded):
        combine_settings(grid, FRAME, budget=Budget(3.0, 1e-5), **grouped(more))  # type: ignore[arg-type]
    assert not any(node.letters[-1].kind == "begin" for node in grid.nodes.values())
    assert len(grid.sent) <= asked + 4
    assert len(list(own.entries())) == 1


def test_a_node_that_grants_no_settings_is_left_out() -> None:
    grid = federation(5, WIDE)
    grid.nodes[104].app = ClientApp()
    narrow = replace(OPEN, epsilon=1e4)
    Participant([SettingsContributor(load)], policy=narrow).mount(grid.nodes[104].app)
    result = combine_settings(
        grid,
        FRAME,
        "mean",
        budget=Budget(100.0, 1e-5),
        colluding=0,
        federation=Federation(deadlines=WAITS),
    )
    assert result.took_part == 4
    assert "takes no part in sums of the kind settings" in result.lost[104]


def test_a_node_set_up_for_other_axes_refuses() -> None:
    app, agreed = ClientApp(), Averaging(FRAME, 0.2)
    Participant([SettingsContributor(load, agreed)], policy=GRANTED).mount(app)
    grid = LocalGrid({n: Node(app, {"partition-id": n}) for n in range(3)})
    with pytest.raises(RoundAborted) as failed:
        combine_settings(
            grid,
            FRAME,
            "mean",
            budget=Budget(5.0, 1e-5),
            colluding=0,
            federation=Federation(deadlines=WAITS),
        )
    assert all("not what this node was set up for" in why for why in failed.value.lost.values())


def test_a_sum_of_settings_travels_as_plain_values() -> None:
    summed = SettingsSum(Averaging(FRAME, 0.05, 3))
    mapping = summed.as_mapping()
    assert read_subject("settings", mapping) == summed
    assert size_of("settings", mapping) == summed.contribution.dimension
    for wrong in (
        {**mapping, "dense": [1, 2]},
        {**mapping, "of": "clusters"},
        {**mapping, "of": "median"},
        {**mapping, "agreed": {}},
    ):
        with pytest.raises((ProtocolError, ParameterError)):
            read_subject("settings", wrong)


@pytest.mark.parametrize("strategy", [MeanSetting(), FederatedDbscan(min_points=2)])
@pytest.mark.parametrize("threshold", [None, 3])
def test_encrypted_nodes_find_exactly_what_is_found_in_the_clear(
    strategy: MeanSetting | FederatedDbscan, threshold: int | None
) -> None:
    grid = federation(5)
    result = combine_encrypted(
        grid, FRAME, strategy, threshold=threshold, wait_for=5, deadlines=WAITS
    )
    clear = strategy.combine(searches(*range(5)))
    assert result.setting == clear.setting
    assert result.clusters == clear.clusters
    assert (result.clients, result.took_part, result.lost) == (5, 5, {})
    assert not result.privacy.private
    assert all(not node.state for node in grid.nodes.values())  # all keys are gone
    assert "NO DIFFERENTIAL PRIVACY" in page(result, title="nodes")


def test_nodes_that_compute_again_come_to_the_same() -> None:
    grid = federation(3, recomputes=True)
    result = combine_encrypted(
        grid, FRAME, FederatedDbscan(min_points=2), recomputes=True, wait_for=3, deadlines=WAITS
    )
    assert result.setting == FederatedDbscan(min_points=2).combine(searches(0, 1, 2)).setting


@pytest.mark.parametrize("letter", [0, 1, 2])
def test_a_node_that_vanishes_before_the_keys_are_made_is_left_out(letter: int) -> None:
    faults = {4: dict.fromkeys(range(letter, 20), "silent")}
    result = combine_encrypted(
        federation(5, faults=faults), FRAME, "mean", wait_for=5, deadlines=SOON
    )
    assert result.setting == MeanSetting().combine(searches(0, 1, 2, 3)).setting
    assert set(result.lost) == {104}


def test_a_node_that_vanishes_after_the_keys_is_not_missed_where_three_may_open() -> None:
    faults = {4: dict.fromkeys(range(4, 20), "silent")}  # it has given, and does not help
    result = combine_encrypted(
        federation(5, faults=faults), FRAME, "mean", threshold=3, wait_for=5, deadlines=SOON
    )
    assert result.setting == MeanSetting().combine(searches(*range(5))).setting


def test_a_node_that_vanishes_after_the_keys_ends_it_where_all_must_help() -> None:
    faults = {4: dict.fromkeys(range(4, 20), "silent")}
    with pytest.raises(RoundUnfinished):
        combine_encrypted(federation(5, faults=faults), FRAME, "mean", wait_for=5, deadlines=SOON)


def test_a_node_that_restarted_has_no_key_and_is_left_out() -> None:
    faults = {4: {2: "restart"}}
    result = combine_encrypted(
        federation(5, faults=faults), FRAME, "mean", threshold=3, wait_for=5, deadlines=WAITS
    )
    assert set(result.lost) == {104}
    assert result.setting == MeanSetting().combine(searches(0, 1, 2, 3)).setting


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (OPEN, "has no [grant.exact-settings]"),
        (replace(OPEN, grants={"settings": Grant()}), "has no [grant.exact-settings]"),
        (
            replace(OPEN, grants={"exact-settings": replace(EXACT, most_entries=2)}),
            "this node allows 2",
        ),
        (
            replace(OPEN, grants={"exact-settings": Grant(names=("dbscan",))}),
            "does not grant it by name",
        ),
    ],
)
def test_a_node_whose_policy_does_not_grant_exact_results_refuses(
    policy: Policy, says: str
) -> None:
    grid = federation(3, policy)
    with pytest.raises(RoundAborted) as failed:
        combine_encrypted(grid, FRAME, "mean", wait_for=3, deadlines=WAITS)
    assert all(says in why for why in failed.value.lost.values())
    assert set(failed.value.lost) == {100, 101, 102}


def test_only_sums_can_be_combined_over_flower() -> None:
    with pytest.raises(ParameterError, match="in one place"):
        combine_encrypted(federation(3), FRAME, "median", wait_for=3)
    with pytest.raises(ParameterError, match="in one place"):
        combine_settings(federation(3), FRAME, "median", budget=Budget(1.0, 1e-5))
    with pytest.raises(ParameterError, match="no density clusters with noise"):
        combine_settings(federation(3), FRAME, "dbscan", budget=Budget(1.0, 1e-5))


def test_too_few_nodes_begin_nothing() -> None:
    with pytest.raises(RoundAborted, match="Nothing was begun"):
        combine_encrypted(federation(2), FRAME, "mean", wait_for=3, deadlines=SOON)
