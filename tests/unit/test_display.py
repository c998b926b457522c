"""Cards, frames and plots of every kind of result, and the live line."""

import io
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import urna
from urna.display import as_frame, axes_for, card
from urna.errors import DataMissing
from urna.files import write_json
from urna.privacy import Adjacency, Budget, PrivacyStatement
from urna.progress import live_line
from urna.randomness import ScriptedSecrets
from urna.space import Axis, Space
from urna.systems.combine import Combination, Guarantee
from urna.systems.combine.frame import Frame
from urna.systems.train import RoundReport, TrainResult
from urna.systems.vote import VoteResult
from urna.systems.vote.result import Revealed
from urna.tally import ClearSummation, Run, Terms

SPACE = {"depth": [2, 4, None], "sizes": [(8,), (8, 8)], "kind": ["<b>", "b"]}
PRIVATE = PrivacyStatement(1.0, 1e-5, Adjacency.REPLACE_ONE_CLIENT, "GDP", ("A caveat",))


def loss(candidate: dict[str, Any], data: float) -> float:
    return abs((candidate["depth"] or 8) - data) + len(candidate["sizes"])


@pytest.fixture(scope="module")
def voted() -> VoteResult:
    return urna.search(
        SPACE,
        loss,
        [4.0] * 30,
        budget=Budget(4, 1e-3),
        summation=ClearSummation(),
        run=Run(secrets=ScriptedSecrets(b"display")),
    )


@pytest.fixture(scope="module")
def trained() -> TrainResult:
    measured, errors = {"loss": 2.0}, {"loss": 0.1}
    rounds = [
        RoundReport(n, 9, 1, 1, 0.1 * n, 1.0, 0.5, 1.0, measured, errors, (1.5, 0.2 * n))
        for n in (1, 2)
    ]
    return TrainResult(
        weights=np.arange(3, dtype=np.float32),
        history=tuple(rounds),
        stopped="rounds",
        privacy=PRIVATE,
        terms=Terms.of(10, Budget(1.0, 1e-5)),
        plan={},
    )


def combined() -> Combination:
    frame = Frame.of(Space(lr=Axis.log([0.1, 1.0])))
    return Combination({"lr": 0.5}, "mean", Guarantee.DP, frame, PRIVATE, 5, 5)


def test_columns_hold_every_candidate_once(voted: VoteResult) -> None:
    found = voted.cv_results_
    assert found["params"] == list(voted.space)
    assert found["param_depth"] == [c["depth"] for c in voted.space]
    assert found["noisy_votes"] == voted.votes.tolist()
    assert set(found["std"]) == {voted.standard_error}
    assert sorted(found["rank"]) == list(range(1, 13))
    assert found["rank"][int(np.argmax(voted.votes))] == 1
    assert [p for p, here in enumerate(found["winner"]) if here] == [voted.winner]
    credible = {p for p, here in enumerate(found["in_credible_set"]) if here}
    assert credible == set(voted.credible_set)
    assert found["params"][voted.winner] == voted.best_params_ == voted.best


def test_equal_votes_share_the_better_rank(voted: VoteResult) -> None:
    votes = np.array([3.0, 5.0, 5.0, 1.0, *range(-8, 0)])
    assert replace(voted, revealed=Revealed(votes)).cv_results_["rank"][:4] == [3, 1, 1, 4]


def test_none_and_tuples_survive_a_file(voted: VoteResult, tmp_path: Path) -> None:
    write_json(tmp_path / "result.json", voted.as_mapping())
    for path in (tmp_path, tmp_path / "result.json", str(tmp_path)):
        again = urna.load_result(path)
        assert isinstance(again, VoteResult)
        assert again.as_mapping() == voted.as_mapping()
        assert list(again.space) == list(voted.space)
        assert again.best_params_ == voted.best_params_


def test_the_rest_survive_a_file(tmp_path: Path, trained: TrainResult) -> None:
    results: list[Any] = [trained, combined()]
    for place, result in enumerate(results):
        write_json(tmp_path / f"{place}.json", result.as_mapping())
        again = urna.load_result(tmp_path / f"{place}.json")
        assert type(again) is type(result)
        assert again.as_mapping() == result.as_mapping()  # type: ignore[union-attr]


def test_weights_that_were_not_read_are_no_numbers(trained: TrainResult) -> None:
    again = TrainResult.read(trained.as_mapping())
    assert again.weights.shape == (3,)
    assert np.isnan(again.weights).all()


def test_frames_have_the_columns(voted: VoteResult, trained: TrainResult) -> None:
    pytest.importorskip("pandas")
    frame = voted.to_frame()
    assert list(frame.columns) == list(voted.cv_results_)
    assert frame.loc[frame.winner, "params"].item() == voted.best
    rounds = trained.to_frame()
    assert rounds.test_accuracy.tolist() == [0.2, 0.4]
    assert rounds.measured_loss.tolist() == [2.0, 2.0]


def test_plots_draw_what_was_found_on_the_axes_given(
    voted: VoteResult, trained: TrainResult
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = voted.plot(count=5)
    assert len(axes.patches) == 5
    assert axes.get_title() == "NOT PRIVATE"
    assert max(bar.get_width() for bar in axes.patches) == pytest.approx(voted.votes.max())
    assert axes.patches[-1].get_width() == pytest.approx(voted.votes.max())
    curve = trained.plot()
    assert curve.lines[0].get_ydata().tolist() == [0.2, 0.4]
    assert trained.plot(curve) is curve
    untested = replace(
        trained, history=tuple(replace(report, test=None) for report in trained.history)
    )
    assert untested.plot().get_ylabel() == "epsilon so far"
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("name", ["pandas", "matplotlib"])
def test_a_missing_package_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(DataMissing, match=f"needs {name}; install it with: pip install {name}"):
        _ = as_frame({}) if name == "pandas" else axes_for()


class Balanced(HTMLParser):
    """Finds tags that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_cards_stand_alone_and_escape_everything(voted: VoteResult, trained: TrainResult) -> None:
    for result in (voted, trained, combined()):
        text = result._repr_html_()
        parser = Balanced()
        parser.feed(text)
        assert parser.open == []
        assert not re.search(r"<b>[,<]|src=|href=|<script", text)
        assert ("NOT PRIVATE" in text) == (not result.privacy.private)
        assert len(text) < 5_000
    assert "&lt;b&gt;" in voted._repr_html_()
    assert "<i>" not in card("<i>", ["<i>"], private=False, table=[["<i>"], ["<i>"]])


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook(io.StringIO):
    __module__ = "ipykernel.iostream"


def lines(stream: io.StringIO) -> list[str]:
    """What is left on a screen: a carriage return goes back to the line's start."""
    return [line.rpartition("\r")[2].rstrip() for line in stream.getvalue().split("\n")]


@pytest.mark.parametrize(
    ("stream", "progress", "shown"),
    [
        (Terminal(), None, True),
        (Notebook(), None, True),
        (io.StringIO(), None, False),
        (io.StringIO(), True, True),
        (Terminal(), False, False),
    ],
    ids=["terminal", "notebook", "log", "asked for", "silenced"],
)
def test_the_line_is_shown_where_somebody_looks(
    stream: io.StringIO, progress: bool | None, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    urna.search(
        SPACE,
        loss,
        [4.0] * 30,
        budget=Budget(4, 1e-3),
        summation=ClearSummation(),
        run=Run(progress=progress),
    )
    if shown:
        assert [re.sub(r"took \d+ s", "took", line) for line in lines(stream)] == [
            "evaluating candidates: 360 of 360, took",
            "summing ballots: 1 of 1, took",
            "",
        ]
    else:
        assert stream.getvalue() == ""


def test_an_error_does_not_stand_behind_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)

    def failing() -> None:
        with live_line() as report:
            report("work", 1, 3)
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert re.fullmatch(r"\rwork: 1 of 3, \d+ s left\n", stream.getvalue())


class Gone(Terminal):
    def write(self, text: str) -> int:
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("stream", [Gone(), None])
def test_a_terminal_that_is_gone_stops_nothing(
    stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(sys, "stderr", stream)
    with live_line() as report:
        report("work", 1, 3)
        report("more work", 1, 1)
        done.append(True)
    assert done


def test_a_function_is_called_as_it_is() -> None:
    calls: list[tuple[str, int, int]] = []
    with live_line(lambda *call: calls.append(call)) as report:
        report("work", 1, 3)
    assert calls == [("work", 1, 3)]
