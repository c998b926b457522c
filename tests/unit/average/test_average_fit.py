"""End to end: noise as planned under dropouts, bad inputs before anything is spent, files."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import grouped
from scipy import stats

from urna.data import Samples
from urna.errors import BudgetExceeded, ParameterError, RoundAborted, UnknownName
from urna.files import write_json
from urna.privacy import Adjacency, Budget, Ledger, Unit
from urna.protocols.secagg import Stage
from urna.randomness import ScriptedSecrets
from urna.report import load_result
from urna.systems.average import (
    AveragePlan,
    Blind,
    LossKind,
    ModelResult,
    Moments,
    RowRule,
    Schema,
    Sizes,
    choose,
    fit,
    load_model,
    model_card,
    plan_average,
    read_learner,
)
from urna.tally import ClearSummation, SecureAggregation, Terms

RECORD = Adjacency.REPLACE_ONE_RECORD
BUDGET = Budget(2.0, 1e-5)
SCHEMA = Schema(4, (0, 1, 2))
CENTRES = np.array([[3.0, 0, 0, 1], [0, 3, 0, -1], [0, 0, 3, 0]])
FALSE_ALARM = 1e-6


def client(seed: int, records: int = 20) -> Samples:
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=records)
    return Samples(CENTRES[y] + 0.3 * rng.normal(size=(records, 4)), y)


def clients(count: int = 12, records: int = 20) -> list[Samples]:
    return [client(seed, records) for seed in range(count)]


def quick(parts: list[Any], schema: Schema = SCHEMA, **more: Any) -> ModelResult:
    settings: dict[str, Any] = {
        "budget": BUDGET,
        "adjacency": RECORD,
        "summation": ClearSummation(),
        "secrets": ScriptedSecrets(b"quick"),
        **more,
    }
    return fit(parts, schema, **grouped(settings))


@pytest.mark.parametrize("learner", ["moments", "softmax", "svm", "logistic"])
@pytest.mark.parametrize("unit", [RECORD, Adjacency.REPLACE_ONE_CLIENT])
def test_a_model_is_learnt_and_says_what_it_cost(learner: str, unit: Adjacency) -> None:
    result = quick(
        clients(30), learner=learner, adjacency=unit, budget=Budget(60.0, 1e-5), secrets=None
    )
    test = client(1000, 300)
    assert result.score(test.features, test.targets) > 0.8
    assert result.privacy.private
    assert result.privacy.epsilon <= 60
    assert str(unit) in str(result)
    assert "NOT PRIVATE" in str(quick(clients(), learner=learner, adjacency=unit))


@pytest.mark.statistical
@pytest.mark.parametrize("gone", [0, 2], ids=["nobody", "all tolerated"])
@pytest.mark.parametrize("learner", ["moments", "softmax"])
def test_noise_in_the_sum_has_the_planned_variance(learner: str, gone: int) -> None:
    parts = clients(10, 6)
    terms: dict[str, Any] = {"dropout": "0.2", "colluding": "0.1"}
    squares, count, plan = 0.0, 0, None
    for run in range(40):
        result = quick(
            parts,
            learner=learner,
            summation=SecureAggregation(dict.fromkeys(range(gone), Stage.MASK)),
            secrets=ScriptedSecrets(b"variance %d" % run),
            **terms,
        )
        made = result.learner
        truth = np.sum([v for place, v in made.vectors(parts) if place >= gone], axis=0)
        assert result.release is not None
        assert set(result.lost) == set(range(gone))
        squares += float(np.square((result.release - truth) / result.noise_std).sum())
        count += len(truth)
        plan = plan_average(Terms.of(10, BUDGET, adjacency=RECORD, **terms), made)
    assert plan is not None
    # What is said is what is there (rounding adds at most a quarter of a step for each client).
    assert stats.chi2.cdf(squares, count) < 1 - FALSE_ALARM
    assert stats.chi2.cdf(squares * 1.1, count) > FALSE_ALARM
    # And it is what honest clients must leave: that of the plan, times who is counted out.
    least = plan.encoding.error(0, plan.tally.release.variance)  # type: ignore[union-attr]
    assert least <= result.noise_std <= plan.noise_std * (1 + 1e-9)


def test_half_the_clients_honest_doubles_the_variance() -> None:
    def planned(colluding: str) -> AveragePlan:
        terms = Terms.of(100, BUDGET, adjacency=RECORD, colluding=colluding)
        return plan_average(terms, Moments(SCHEMA, Unit.RECORD, 20))

    ratio = planned("1/2").noise_std / planned("0").noise_std
    assert ratio == pytest.approx(math.sqrt(2), rel=0.02)


def test_groups_of_records_need_as_much_more_noise() -> None:
    one, five = (quick(clients(), learner="moments", group=g) for g in (1, 5))
    assert five.noise_std == pytest.approx(5 * one.noise_std, rel=0.02)
    assert "5 records of one client together" in str(five)


ODD: dict[str, Samples] = {
    "nan": Samples(np.full((20, 4), np.nan), np.zeros(20, dtype=int)),
    "infinite": Samples(np.full((20, 4), np.inf), np.zeros(20, dtype=int)),
    "constant": Samples(np.ones((20, 4)), np.arange(20) % 3),
    "zeros": Samples(np.zeros((20, 4)), np.arange(20) % 3),
    "one class": Samples(client(5).features, np.full(20, 2)),
    "unknown classes": Samples(client(5).features, np.full(20, 7)),
    "texts": Samples(client(5).features, np.array(["a"] * 20)),
    "fractions": Samples(client(5).features, np.full(20, 0.5)),
    "nan targets": Samples(client(5).features, np.full(20, np.nan)),
}


@pytest.mark.parametrize("learner", ["moments", "softmax", "svm", "logistic"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_data_abstain_and_nobody_can_tell(learner: str, odd: str) -> None:
    result = quick([*clients(11), ODD[odd]], learner=learner)
    assert np.isfinite(result.weights).all()
    assert result.took_part == 12
    assert not result.lost
    silent = odd not in ("constant", "one class", "zeros")
    ((_, vector),) = result.learner.vectors([ODD[odd]])
    assert bool((vector == 0).all()) == (silent or odd == "zeros")


@pytest.mark.parametrize("learner", ["moments", "softmax"])
def test_everybody_odd_is_a_model_all_the_same(learner: str) -> None:
    result = quick([ODD["nan"]] * 12, learner=learner)
    assert np.isfinite(result.weights).all()
    assert np.isfinite(result.decision_function(client(1).features)).all()


@pytest.mark.parametrize("learner", ["moments", "softmax"])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([Samples(np.ones((20, 5)), np.zeros(20, dtype=int))], "client 11: records have 4"),
        ([Samples(np.ones((20, 4)), np.zeros((20, 2), dtype=int))], "as many targets"),
        (["no data"], "client 11: a client's data are Samples"),
    ],
    ids=["features", "targets", "no samples"],
)
def test_wrong_tables_are_refused_before_anything_is_spent(
    tmp_path: Path, learner: str, wrong: list[Any], says: str
) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(5.0, 1e-4), adjacency=RECORD)
    with pytest.raises(ParameterError, match=says):
        quick([*clients(11), *wrong], learner=learner, ledger=ledger, secrets=None)
    assert not ledger.entries()


def test_a_client_without_records_abstains_or_is_refused_clearly() -> None:
    empty = Samples(np.zeros((0, 4)), np.zeros(0, dtype=int))
    for learner in ("moments", "softmax"):  # moments of any size; models weighed by size
        result = quick([*clients(11), empty], learner=learner)
        assert not next(iter(result.learner.vectors([empty])))[1].any()
    with pytest.raises(ParameterError, match="points=1"):
        quick([*clients(11), empty], learner="softmax", settings={"sizes": Sizes.SMALLEST})
    result = quick(
        [*clients(11), empty],
        learner="softmax",
        settings={"sizes": Sizes.SMALLEST, "points": 20},
    )
    assert result.took_part == 12


def test_clients_of_different_size_are_weighed_and_it_shows() -> None:
    mixed = [client(seed, 5 + 10 * (seed % 4)) for seed in range(12)]
    result = quick(mixed, learner="softmax")
    assert isinstance(result.learner, Blind)
    assert result.learner.sizes is Sizes.WEIGHTED
    assert result.learner.heaviest == pytest.approx(35 / result.learner.points)
    smallest = quick(mixed, learner="softmax", settings={"sizes": Sizes.SMALLEST})
    assert isinstance(smallest.learner, Blind)
    assert smallest.learner.points == 5
    with pytest.raises(ParameterError, match="all weigh the same"):
        quick(
            mixed,
            learner="softmax",
            adjacency=Adjacency.REPLACE_ONE_CLIENT,
            settings={"sizes": Sizes.WEIGHTED},
        )


def test_the_ledger_is_asked_first_and_failures_cost_nothing(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", Budget(2.5, 1e-5), adjacency=RECORD)
    with pytest.raises(RoundAborted):
        quick(
            clients(),
            secrets=None,
            ledger=ledger,
            summation=SecureAggregation(dict.fromkeys(range(3), Stage.MASK)),
        )
    assert ledger.spent().epsilon == 0
    result = quick(clients(), secrets=None, ledger=ledger)
    assert result.entry is not None
    with pytest.raises(BudgetExceeded):
        quick(clients(), secrets=None, ledger=ledger)


def test_other_things_that_cannot_be_are_refused() -> None:
    for wrong in (
        {"learner": "forest"},
        {"learner": "moments", "settings": {"radius": 1.0}},
        {"learner": "softmax", "settings": {"weight": 2.0}},
        {"learner": "softmax", "settings": {"regularisation": -1.0}},
        {"learner": "softmax", "settings": {"regularisation": 1e-9}},
        {"learner": "softmax", "settings": {"points": 1 << 21, "sizes": Sizes.SMALLEST}},
        {"learner": "moments", "group": 0},
        {"learner": "moments", "group": 2, "adjacency": Adjacency.REPLACE_ONE_CLIENT},
        {"learner": "moments", "shards": 2},
    ):
        with pytest.raises((ParameterError, UnknownName)):
            quick(clients(), **wrong)
    for schema in ((4, None, None), (0, (0, 1), None), (4, (0,), None), (4, (0, "a"), None)):
        with pytest.raises(ParameterError):
            Schema(*schema)
    with pytest.raises(ParameterError):
        Schema(4, span=(1.0, 1.0))
    with pytest.raises(ParameterError, match="from end to end"):
        Schema(4, span=(-1e308, 1e308))
    for clip in (0.0, 1e-10, 1e150, math.nan):
        with pytest.raises(ParameterError):
            RowRule(clip=clip)
    with pytest.raises(ParameterError, match="for classes"):
        quick(clients(), Schema(4, span=(0.0, 2.0)), learner="svm")


@pytest.mark.parametrize("adjacency", [RECORD, Adjacency.REPLACE_ONE_CLIENT])
@pytest.mark.parametrize("name", ["regularisation", "radius", "points"])
def test_a_setting_of_nothing_is_refused_and_not_replaced(adjacency: Adjacency, name: str) -> None:
    for learner in ("softmax", "moments") if name == "points" else ("softmax",):
        with pytest.raises(ParameterError):
            quick(clients(), learner=learner, settings={name: 0}, adjacency=adjacency)


def test_what_is_named_beside_a_learner_is_heard_or_refused() -> None:
    for group in (1, 5):
        learner = Moments(SCHEMA, Unit.RECORD, 20, group=group)
        assert quick(clients(), learner=learner, group=group).learner == learner
        assert quick(clients(), learner=learner).learner == learner
        with pytest.raises(ParameterError, match="its own schema, group"):
            quick(clients(), learner=learner, group=3)


def test_all_rows_of_an_id_that_count_do_so_in_full() -> None:
    rng, ids = np.random.default_rng(0), np.repeat(np.arange(20), 5)
    parts = [
        Samples(rng.normal(size=(100, 4)) + 3, rng.integers(3, size=100), ids) for _ in range(10)
    ]
    result = quick(parts, learner="moments", group=5, budget=Budget(50.0, 1e-5))
    assert result.facts["weight"] == pytest.approx(1000, rel=0.1)
    assert isinstance(result.learner, Moments)
    assert result.learner.points == 100
    again = quick([Samples(p.features, p.targets) for p in parts], learner="moments", group=5)
    assert isinstance(again.learner, Moments)
    assert again.learner.points == 100


@pytest.mark.parametrize(("smoothing", "reg"), [(1e-5, 0.01), (9e-4, 1.0), (1e-3, 5e-5)])
def test_no_hinge_is_so_sharp_that_data_decide_how_long_it_takes(
    smoothing: float, reg: float
) -> None:
    with pytest.raises(ParameterError, match="smoothing"):
        Blind(SCHEMA, Unit.RECORD, 20, reg, LossKind.SVM, smoothing=smoothing)
    Blind(SCHEMA, Unit.RECORD, 20, 1e-4, LossKind.SVM, smoothing=1e-3)
    Blind(SCHEMA, Unit.RECORD, 20, 1e-6, LossKind.SVM)


def test_auto_says_what_it_takes_and_why() -> None:
    def taken(count: int, records: int, *, unit: Adjacency = RECORD, width: int = 4) -> Any:
        terms = Terms.of(count, BUDGET, adjacency=unit)
        return choose("auto", Schema(width, (0, 1, 2)), terms, [records] * count)

    assert taken(1000, 50, width=256).learner.kind == "moments"
    assert "second moments" in taken(1000, 50, width=256).why
    assert taken(1000, 50, width=5000).learner.loss is LossKind.SOFTMAX
    assert "numbers per client" in taken(1000, 50, width=5000).why
    assert "whole clients" in taken(100, 50, unit=Adjacency.REPLACE_ONE_CLIENT).why
    assert taken(10_000, 100_000).learner.loss is LossKind.SOFTMAX
    regression = quick(clients(), Schema(4, span=(0.0, 2.0)))
    assert regression.learner.kind == "moments"
    assert "regression" in regression.why


def test_a_regression_is_learnt_within_its_span() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for _ in range(20):
        x = rng.normal(size=(50, 3))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        parts.append(Samples(x, x @ [1.0, -2.0, 0.5]))
    result = quick(parts, Schema(3, span=(-3.0, 3.0)), budget=Budget(100.0, 1e-5))
    whole = Samples(
        *(np.concatenate([getattr(p, n) for p in parts]) for n in ("features", "targets"))
    )
    assert result.score(whole.features, whole.targets) > 0.9
    with pytest.raises(AttributeError):
        _ = result.classes_


@pytest.mark.parametrize("learner", ["moments", "svm"])
def test_a_saved_model_is_the_same_and_holds_no_code(tmp_path: Path, learner: str) -> None:
    rows = RowRule(clip=2.0, unit=False, intercept=0.5)
    result = quick(clients(), Schema(4, (0, 1, 2), rows=rows), learner=learner)
    result.save(tmp_path / "model.npz")
    again = load_model(tmp_path / "model.npz")
    assert again.as_json() == result.as_json()
    x = client(77).features
    assert (again.predict(x) == result.predict(x)).all()
    assert read_learner(result.learner.as_mapping()) == result.learner
    with np.load(tmp_path / "model.npz", allow_pickle=False) as archive:
        assert {"weights", "head", "release"} == set(archive.files)
    if learner == "moments":
        assert not np.allclose(again.with_ridge(1e6).weights, again.weights)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04broken"])
def test_files_that_are_no_models_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.npz").write_bytes(content)
    with pytest.raises(ParameterError):
        load_model(tmp_path / "odd.npz")
    with pytest.raises(ParameterError):
        load_model(tmp_path / "absent.npz")


def test_a_model_file_with_pickled_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "odd.npz", head=np.array([{"a": 1}], dtype=object), weights=np.ones(2))
    with pytest.raises(ParameterError):
        load_model(tmp_path / "odd.npz")


def test_a_model_that_version_0_2_trained_by_sgd_still_loads_and_says_so() -> None:
    result = quick(clients(), learner="softmax")
    of_then = {"trainer": "sgd", "epochs": 100, "batch_size": 20, "seed": 0}
    described = result.described.replace("certified solver", "permutation SGD")
    mapping = {
        **result.as_mapping(),
        "learner": result.learner.as_mapping() | of_then,
        "describe": described,
    }
    found = ModelResult.read(json.loads(json.dumps(mapping)))
    x = clients()[0].features
    assert (found.predict(x) == result.predict(x)).all()
    assert described in str(found)
    assert described in model_card(found, name="old")
    with pytest.raises(ParameterError, match="by the certified solver"):  # nobody trains so now
        read_learner(mapping["learner"])


def test_the_model_card_has_a_privacy_block_that_parses() -> None:
    yaml = pytest.importorskip("yaml")
    result = quick(clients(), secrets=None, group=2)
    card = model_card(result, name="iris of many")
    _, head, text = card.split("---\n", 2)
    said = yaml.safe_load(head)
    assert said["privacy"]["epsilon"] == pytest.approx(result.privacy.epsilon, abs=0.01)
    assert said["privacy"]["delta"] == 1e-5
    assert said["privacy"]["unit"] == "2 records of one client together"
    assert said["privacy"]["relation"] == "replace-one-record"
    assert "2 records of one client together" in text
    assert "NOT PRIVATE" in model_card(quick(clients()), name="scripted")


def test_a_model_is_loaded_like_any_result_and_has_a_card(tmp_path: Path) -> None:
    made = quick(clients())
    write_json(tmp_path / "result.json", made.as_mapping())
    again = load_result(tmp_path)
    assert isinstance(again, ModelResult)
    assert again.as_mapping() == made.as_mapping()
    np.testing.assert_array_equal(again.weights, made.weights)
    assert "NOT PRIVATE" in again._repr_html_()
