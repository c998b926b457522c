import functools
import os
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from urna.data import Samples
from urna.errors import OutputError, ParameterError
from urna.local import (
    BatchedObjective,
    CachedObjective,
    CallableObjective,
    EstimatorObjective,
    Speed,
    TorchObjective,
    cache,
    losses_of_each,
)
from urna.local.cache import data_fingerprint, objective_identity
from urna.space import Candidate, Space

DATA = Samples(np.arange(10.0)[:, None], np.arange(10) % 2)
SPACE = Space(x=[1.0, 2.0, 3.0])
OFFSET = 5.0


@pytest.fixture
def cached(tmp_path: Path) -> CachedObjective:
    return CachedObjective(CallableObjective(_judge), tmp_path / "losses")


def _judge(candidate: Candidate, data: Samples, seed: int) -> float:
    _note()
    return np.inf if candidate["x"] == 2 else candidate["x"] / 3 + seed


def _note() -> None:
    # Counted in the environment: a global list would be an ingredient, and it changes.
    os.environ["URNA_TEST_CALLS"] = str(int(os.environ.get("URNA_TEST_CALLS", "0")) + 1)


@pytest.fixture(autouse=True)
def count_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("URNA_TEST_CALLS", "0")


def called() -> int:
    return int(os.environ["URNA_TEST_CALLS"])


def test_a_second_run_computes_nothing_and_gives_the_same(cached: CachedObjective) -> None:
    first = cached.losses(DATA, SPACE, seed=0)
    seen: list[tuple[int, int]] = []
    second = cached.losses(DATA, SPACE, seed=0, progress=lambda *done: seen.append(done))
    assert called() == 3
    np.testing.assert_array_equal(first, second)
    assert np.isposinf(second[1])
    assert seen == [(3, 3)]


def test_any_changed_ingredient_computes_anew(cached: CachedObjective) -> None:
    cached.losses(DATA, SPACE, seed=0)
    other_data = Samples(DATA.features.copy(), DATA.targets)
    other_data.features[3, 0] += 1e-9
    changed = [
        (cached, other_data, SPACE, 0),
        (cached, Samples(DATA.features.astype(np.float32), DATA.targets), SPACE, 0),
        (cached, DATA, Space(x=[1.0, 2.0, 4.0]), 0),
        (cached, DATA, Space(x=[1.0, 3.0, 2.0]), 0),
        (cached, DATA, SPACE, 1),
        (replace(cached, label="new"), DATA, SPACE, 0),
        (replace(cached, objective=CallableObjective(_judge, 0.3)), DATA, SPACE, 0),
    ]
    paths = {objective.path(data, space, seed=seed) for objective, data, space, seed in changed}
    assert len(paths) == len(changed)
    assert cached.path(DATA, SPACE, seed=0) not in paths
    for number, (objective, data, space, seed) in enumerate(changed, start=2):
        objective.losses(data, space, seed=seed)
        assert called() == 3 * number


def test_switched_off_it_reads_and_writes_nothing(cached: CachedObjective) -> None:
    off = replace(cached, enabled=False)
    off.losses(DATA, SPACE, seed=0)
    off.losses(DATA, SPACE, seed=0)
    assert called() == 6
    assert not Path(cached.folder).exists()


@pytest.mark.parametrize("damage", ["", "{", '{"format": "urna losses 1", "losses": ["0x1p+0"]}'])
def test_a_damaged_file_counts_as_absent(cached: CachedObjective, damage: str) -> None:
    expected = cached.losses(DATA, SPACE, seed=0)
    cached.path(DATA, SPACE, seed=0).write_text(damage)
    np.testing.assert_array_equal(cached.losses(DATA, SPACE, seed=0), expected)
    assert called() == 6
    cached.losses(DATA, SPACE, seed=0)
    assert called() == 6


def test_a_failed_write_leaves_nothing_behind(
    cached: CachedObjective, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OutputError, match="No space left"):
        cached.losses(DATA, SPACE, seed=0)
    assert list(Path(cached.folder).iterdir()) == []


def test_files_are_readable_by_their_owner_only(cached: CachedObjective) -> None:
    cached.losses(DATA, SPACE, seed=0)
    mode = cached.path(DATA, SPACE, seed=0).stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_the_identity_of_an_objective_follows_its_code_constants_and_closures() -> None:
    def maker(power: int) -> CallableObjective:
        return CallableObjective(lambda candidate, data: candidate["x"] ** power)

    objectives = [
        maker(1),
        maker(2),
        CallableObjective(lambda candidate, data: candidate["x"] + 1),
        CallableObjective(lambda candidate, data: candidate["x"] + 2),
        CallableObjective(lambda candidate, data: candidate["x"] + OFFSET),
        EstimatorObjective(Ridge),
        EstimatorObjective(Ridge(alpha=2.0)),
        EstimatorObjective(Ridge, metric="error"),
        TorchObjective(maker, epochs=1),
        TorchObjective(maker, epochs=2),
    ]
    identities = [objective_identity(objective) for objective in objectives]
    assert len(set(identities)) == len(identities)
    assert objective_identity(maker(2)) == identities[1]


def test_a_changed_global_changes_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = CallableObjective(lambda candidate, data: candidate["x"] + OFFSET)
    before = objective_identity(objective)
    monkeypatch.setitem(globals(), "OFFSET", 6.0)
    assert objective_identity(objective) != before


def test_what_has_no_identity_is_refused() -> None:
    with pytest.raises(ParameterError, match="generator"):
        objective_identity(CallableObjective(functools.partial(_judge, seed=(i for i in "ab"))))


def test_the_order_of_rows_is_part_of_the_data() -> None:
    assert data_fingerprint(DATA) != data_fingerprint(DATA.take(np.arange(10)[::-1]))


def test_a_change_to_the_engine_computes_anew(
    cached: CachedObjective, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Everything in `urna.local` is part of the identity, whatever the objective's own file."""
    before = cached.path(DATA, SPACE, seed=0)
    folder = tmp_path / "local"
    shutil.copytree(Path(cache.__file__).parent, folder)
    monkeypatch.setattr(cache, "__file__", str(folder / "cache.py"))
    cache._own_code.cache_clear()
    assert cached.path(DATA, SPACE, seed=0) == before
    for name in ("engine/stack.py", "engine/tape.py", "holdout.py"):
        with (folder / name).open("a") as file:
            file.write("# a fault is fixed\n")
        cache._own_code.cache_clear()
        after = cached.path(DATA, SPACE, seed=0)
        assert after != before, name
        before = after
    cache._own_code.cache_clear()


def test_the_switches_of_speed_are_no_part_of_the_identity() -> None:
    fast, plain, other = (
        BatchedObjective(_module, speed=Speed()),
        BatchedObjective(_module, speed=Speed.plain()),
        BatchedObjective(_module, repeatable=True),
    )
    assert objective_identity(fast) == objective_identity(plain)
    assert objective_identity(fast) != objective_identity(other)


def _module() -> None: ...


def test_a_client_that_failed_is_not_remembered(tmp_path: Path) -> None:
    def function(candidate: Candidate, train: Samples, validation: Samples) -> float:
        _note()
        return candidate["x"]

    cached = CachedObjective(CallableObjective(function), tmp_path)
    clients = [DATA, DATA.take(np.arange(1))]  # one row cannot be split
    for calls in (3, 3):
        found = list(losses_of_each(cached, clients, SPACE, seeds=[0, 0], progress=lambda *_: None))
        assert found[0].tolist() == [1, 2, 3]
        assert np.isnan(found[1]).all()
        assert called() == calls
    assert len(list(tmp_path.iterdir())) == 1


def test_tables_with_names_are_told_apart() -> None:
    pandas = pytest.importorskip("pandas")
    tables = [
        pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
        pandas.DataFrame({"a": [1, 2], "c": ["x", "y"]}),
        pandas.DataFrame({"a": [1, 2], "b": ["x", "z"]}),
        pandas.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
    ]
    found = [data_fingerprint(Samples(table, np.arange(2))) for table in tables]
    assert len(set(found)) == len(tables)
    assert data_fingerprint(Samples(tables[0].copy(), np.arange(2))) == found[0]
