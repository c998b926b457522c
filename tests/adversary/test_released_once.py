"""Attempts to get two results for one charge: the same id, a copied folder, an old checkpoint."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grouped import grouped

from urna.data import Samples
from urna.errors import LedgerError, OutputError, RoundUnfinished
from urna.files import read_json
from urna.privacy import Budget, Ledger
from urna.protocols.secagg import Stage
from urna.randomness import SecretSource
from urna.space import Axis, Space
from urna.study.engines import run_study
from urna.study.file import read_study
from urna.study.journal import Journal
from urna.systems import average
from urna.systems.combine import Averaging, Frame, LocalSearch, noisy_mean
from urna.systems.train import FedAvg, FunctionLearner, Sampling, Settings, fit
from urna.systems.train.checkpoint import FILE
from urna.systems.vote import Reveal, VoteResult, search
from urna.tally import (
    ClearSummation,
    Mean,
    Run,
    SecureAggregation,
    Series,
    Tallied,
    TallyPlan,
)

BUDGET = Budget(4.0, 1e-4)
TWENTY = Budget(20.0, 1e-3)
SPACE = Space(lr=Axis.log([0.01, 0.1, 1.0]))


class Watched(ClearSummation):
    """A summation that counts the sums that were opened."""

    opened = 0

    def tally(self, contributions: Any, plan: TallyPlan, secrets: SecretSource) -> Tallied:
        found = super().tally(contributions, plan, secrets)
        Watched.opened += 1
        return found


@pytest.fixture(autouse=True)
def nothing_opened() -> None:
    Watched.opened = 0


def distance(candidate: dict[str, float], data: float) -> float:
    return abs(candidate["lr"] - data)


def averaged(data: int, **more: Any) -> object:
    rng = np.random.default_rng(data)
    clients = [Samples(rng.normal(size=(8, 3)), rng.integers(2, size=8)) for _ in range(20)]
    return average.fit(
        clients,
        average.Schema(3, (0, 1)),
        budget=BUDGET,
        learner="moments",
        summation=Watched(),
        **grouped(more),
    )


def voted(data: int, **more: Any) -> object:
    return search(
        SPACE, distance, [0.1 * data] * 20, budget=BUDGET, summation=Watched(), **grouped(more)
    )


def combined(data: int, **more: Any) -> object:
    frame = Frame.of(SPACE)
    rows = np.array([[0.01], [0.1], [1.0]])
    clients = [LocalSearch(rows, np.eye(3)[data % 3]) for _ in range(20)]
    return noisy_mean(
        clients, Averaging(frame, None, 10), budget=BUDGET, summation=Watched(), **grouped(more)
    )


def chosen(data: int, *, verified: bool = False, **more: Any) -> object:
    return search(
        SPACE,
        distance,
        [0.1 * data] * 12,
        budget=BUDGET,
        **grouped(more, reveal=Reveal("winner", "h", verified)),
    )


def chosen_of_verified(data: int, **more: Any) -> object:
    return chosen(data, verified=True, **more)


@pytest.mark.parametrize("release", [averaged, voted, combined, chosen, chosen_of_verified])
class TestOneIdOneResult:
    def test_an_entry_with_a_result_is_not_released_again(
        self, release: Callable[..., Any], tmp_path: Path
    ) -> None:
        ledger = Ledger.open(tmp_path / "ledger", BUDGET)
        release(1, ledger=ledger, entry="only")
        spent = ledger.spent().epsilon
        for data in (1, 2):  # neither of other data, nor of the same
            with pytest.raises(LedgerError, match=r"'only' .* was revealed already"):
                release(data, ledger=Ledger(ledger.path), entry="only")
        (entry,) = ledger.entries()
        assert len(entry.digest) == 64
        assert ledger.spent().epsilon == spent
        assert Watched.opened <= 1

    def test_one_whose_result_was_seen_is_noted_whatever_became_of_it(
        self, release: Callable[..., Any], tmp_path: Path
    ) -> None:
        ledger, seen = Ledger.open(tmp_path / "ledger", BUDGET), list[Any]()

        def plot(found: object) -> None:
            seen.append(found)
            raise ValueError("no such colour")

        with pytest.raises(ValueError, match="no such colour"):
            release(1, ledger=ledger, entry="only", keep=plot)
        with pytest.raises(LedgerError, match="was revealed already"):
            release(1, ledger=ledger, entry="only", keep=plot)
        assert len(seen) == 1

    def test_of_two_processes_at_work_under_one_id_one_hands_out_a_result(
        self, release: Callable[..., Any], tmp_path: Path
    ) -> None:
        """The other one has been let in before, and has a result as well."""
        ledger = Ledger.open(tmp_path / "ledger", BUDGET)

        def late(_: object) -> None:
            release(2, ledger=Ledger(ledger.path), entry="only")

        with pytest.raises(LedgerError, match="paid for once"):
            release(1, ledger=ledger, entry="only", keep=late)


@pytest.mark.parametrize("release", [averaged, voted, combined])
def test_one_that_is_killed_before_its_result_is_kept_is_released_once_more(
    release: Callable[..., Any], tmp_path: Path
) -> None:
    ledger, kept = Ledger.open(tmp_path / "ledger", BUDGET), list[Any]()

    def killed(_: object) -> None:
        assert not ledger.entries()[0].released  # the result is on disk first
        raise KeyboardInterrupt

    for ending, error in ((killed, KeyboardInterrupt), (full, OutputError)):
        with pytest.raises(error):
            release(1, ledger=ledger, entry="only", keep=ending)
    release(1, ledger=ledger, entry="only", keep=kept.append)
    assert len(kept) == 1
    with pytest.raises(LedgerError, match="was revealed already"):
        release(1, ledger=ledger, entry="only", keep=kept.append)
    assert len(kept) == len(ledger.entries()) == 1


def interrupted(_: object) -> None:
    raise KeyboardInterrupt


def full(_: object) -> None:
    raise OutputError("no space left on device")


@pytest.mark.parametrize("release", [chosen, chosen_of_verified])
@pytest.mark.parametrize(
    ("ending", "error"), [(interrupted, KeyboardInterrupt), (full, OutputError)]
)
def test_a_selection_whose_result_was_not_kept_is_not_held_again(
    release: Callable[..., Any],
    ending: Callable[[object], None],
    error: type[BaseException],
    tmp_path: Path,
) -> None:
    """The other party has seen messages of its circuit."""
    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    with pytest.raises(error):
        release(1, ledger=ledger, entry="only", keep=ending)
    with pytest.raises(LedgerError, match="was started, and no result of it was noted"):
        release(1, ledger=ledger, entry="only")
    assert ledger.spent().epsilon == BUDGET.epsilon


def test_every_result_is_noted_without_an_id_too(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger", TWENTY)
    for release in (averaged, voted, combined):
        release(1, ledger=ledger)
    entries = ledger.entries()
    assert len(entries) == 3
    assert all(entry.revealed == 1 for entry in entries)
    assert len({entry.digest for entry in entries}) == 3


def test_a_sum_that_was_opened_and_gave_nothing_is_not_opened_again(tmp_path: Path) -> None:
    class Unfinished(Watched):
        def tally(self, contributions: Any, plan: TallyPlan, secrets: SecretSource) -> Tallied:
            raise RoundUnfinished("nobody answers")

    ledger = Ledger.open(tmp_path / "ledger", BUDGET)
    with pytest.raises(RoundUnfinished):
        search(
            SPACE,
            distance,
            [0.1] * 20,
            budget=BUDGET,
            summation=Unfinished(),
            run=Run(ledger=ledger, entry="only"),
        )
    with pytest.raises(LedgerError, match="was revealed already"):
        voted(1, ledger=ledger, entry="only")


# Copies of a study


STUDY = """\
[data]
source = "digits"
clients = 12
[space]
alpha = { kind = "log", values = [0.01, 0.1, 1.0] }
[objective]
cache = false
[privacy]
epsilon = 4.0
delta = 1e-3
ledger = "../shared.ledger"
[then]
what = "nothing"
[output]
folder = "OUT"
"""


def study_in(folder: Path, out: str = "results") -> Any:
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(STUDY.replace("OUT", out))
    (folder / out).mkdir(exist_ok=True)
    return read_study(folder / "study.toml")


@pytest.fixture
def shared(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "shared.ledger", TWENTY)


def test_a_copied_study_does_not_vote_again(tmp_path: Path, shared: Ledger) -> None:
    study = study_in(tmp_path / "one")
    Journal.open(study, "test")  # begun, and killed before it voted
    copied = study_in(tmp_path / "one", "elsewhere")
    shutil.copytree(study.folder, copied.folder, dirs_exist_ok=True)
    first = run_study(study, version="test")
    with pytest.raises(LedgerError) as refused:
        run_study(copied, version="test")
    assert str(study.folder / "vote.json") in str(refused.value) or str(
        study.folder / "result.json"
    ) in str(refused.value)
    assert len(shared.entries()) == 1
    assert not (copied.folder / "vote.json").exists()
    assert run_study(study, version="test").vote.as_mapping() == first.vote.as_mapping()


def test_a_vote_on_disk_that_was_not_noted_is_read_and_noted(
    tmp_path: Path, shared: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_in(tmp_path / "one")
    Journal.open(study, "test")
    copied = study_in(tmp_path / "one", "elsewhere")
    shutil.copytree(study.folder, copied.folder, dirs_exist_ok=True)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "note_result", killed)
        with pytest.raises(KeyboardInterrupt):
            run_study(study, version="test")
    (entry,) = shared.entries()
    assert not entry.released
    kept = read_json(study.folder / "vote.json")
    held = run_study(study, version="test").vote
    assert isinstance(held, VoteResult)
    assert held.votes.tolist() == kept["revealed"]["counts"]
    (entry,) = shared.entries()
    assert entry.released
    assert held.entry == entry.id
    with pytest.raises(LedgerError, match="revealed already"):
        run_study(copied, version="test")


# Old checkpoints


TRUTH = np.array([1.0, -2.0, 3.0, 0.5])
CLIENTS = [TRUTH] * 20
ROUNDS = 8


def step(weights: Any, data: Any, seed: int) -> Any:
    del seed
    return weights + 0.5 * (data - weights)


def trained(folder: Path, ledger: Ledger, **more: Any) -> Any:
    asked: dict[str, Any] = {
        "budget": Budget(8.0, 1e-3),
        "rounds": ROUNDS,
        "settings": Settings(optimiser=FedAvg(), clip=2.0),
        "summation": Watched(),
        "progress": False,
    }
    return fit(
        FunctionLearner(np.zeros(4), step),
        CLIENTS,
        folder=folder,
        **grouped(asked | more, ledger=ledger),
    )


def remember(folder: Path) -> Callable[[Any], None]:
    """Return what copies the checkpoint after each round."""

    def copy(report: Any) -> None:
        shutil.copy(folder / FILE, folder.parent / f"{report.number}.copy")

    return copy


COHORTS = Settings(optimiser=FedAvg(), clip=2.0, sampling=Sampling.of("cohorts", "1/4"))


@pytest.mark.parametrize("settings", [Settings(optimiser=FedAvg(), clip=2.0), COHORTS])
@pytest.mark.parametrize("back", range(1, ROUNDS))
def test_a_restored_checkpoint_releases_nothing_again(
    settings: Settings, back: int, tmp_path: Path
) -> None:
    folder, ledger = tmp_path / "run", Ledger.open(tmp_path / "ledger", TWENTY)
    trained(folder, ledger, settings=settings, progress=remember(folder))
    assert Watched.opened == ROUNDS
    for _ in range(3):
        shutil.copy(tmp_path / f"{back}.copy", folder / FILE)
        with pytest.raises(LedgerError, match=f"{ROUNDS} that were revealed; only {back} are"):
            trained(folder, ledger, settings=settings)
    assert Watched.opened == ROUNDS
    shutil.copy(tmp_path / f"{ROUNDS}.copy", folder / FILE)
    assert trained(folder, ledger, settings=settings).rounds == ROUNDS
    (entry,) = ledger.entries()
    assert entry.revealed == ROUNDS


def test_a_checkpoint_that_another_copy_wrote_is_not_taken_for_the_one_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies hold round 1; the ledger notes one, and the other's checkpoint is put back."""
    settings = Settings(optimiser=FedAvg(), clip=2.0)
    folder, ledger = tmp_path / "run", Ledger.open(tmp_path / "ledger", TWENTY)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "charge", killed)  # before the first round is held
        with pytest.raises(KeyboardInterrupt):
            trained(folder, ledger, settings=settings)
    start = (folder / FILE).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "note_revealed", killed)  # its checkpoint is written, and not noted
        with pytest.raises(KeyboardInterrupt):
            trained(folder, ledger, settings=settings)
    other = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(start)

    def stop(report: Any) -> None:
        if report.number == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(folder, ledger, settings=settings, progress=stop)
    own = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(other)
    with pytest.raises(LedgerError, match="revealed"):
        trained(folder, ledger, settings=settings)
    (folder / FILE).write_bytes(own)
    assert trained(folder, ledger, settings=settings).rounds == ROUNDS


@pytest.mark.parametrize("settings", [Settings(optimiser=FedAvg(), clip=2.0), COHORTS])
def test_restored_after_every_round_it_releases_what_the_ledger_counts(
    settings: Settings, tmp_path: Path
) -> None:
    """Interrupted after each of five rounds, and put back to where it began each time."""
    folder, ledger = tmp_path / "run", Ledger.open(tmp_path / "ledger", TWENTY)
    refused = 0
    for stop in range(1, 6):

        def end(report: Any, stop: int = stop) -> None:
            if report.number == 1:
                shutil.copy(folder / FILE, tmp_path / "first")
            if report.number == stop:
                raise KeyboardInterrupt

        try:
            trained(folder, ledger, settings=settings, progress=end)
        except KeyboardInterrupt:
            shutil.copy(tmp_path / "first", folder / FILE)
        except LedgerError:
            refused += 1
    (entry,) = ledger.entries()
    assert Watched.opened == entry.revealed
    assert entry.rounds == settings.sampling.counts(entry.revealed, len(CLIENTS))
    assert refused == 3


def test_a_replayed_round_that_is_aborted_takes_nothing_back(tmp_path: Path) -> None:
    folder, ledger = tmp_path / "run", Ledger.open(tmp_path / "ledger", TWENTY)
    secure: dict[str, Any] = {"summation": SecureAggregation(), "dropout": 0.1}
    trained(folder, ledger, progress=remember(folder), **secure)
    shutil.copy(tmp_path / f"{ROUNDS - 1}.copy", folder / FILE)
    with pytest.raises(LedgerError, match="an older copy"):
        trained(folder, ledger, dropouts=lambda *_: dict.fromkeys(range(9), Stage.SHARE), **secure)
    assert [entry.rounds for entry in ledger.entries()] == [ROUNDS]


def test_a_round_that_gave_nothing_is_not_held_again(tmp_path: Path) -> None:
    class Unfinished(Watched):
        def tally(self, contributions: Any, plan: TallyPlan, secrets: SecretSource) -> Tallied:
            super().tally(contributions, plan, secrets)
            raise RoundUnfinished("nobody answers")

    folder, ledger = tmp_path / "run", Ledger.open(tmp_path / "ledger", TWENTY)
    begun = list[bytes]()

    def end(report: Any) -> None:
        begun.append((folder / FILE).read_bytes())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(folder, ledger, progress=end)
    with pytest.raises(KeyboardInterrupt):
        trained(folder, ledger, progress=end, summation=Unfinished())
    (folder / FILE).write_bytes(begun[0])
    with pytest.raises(LedgerError, match="2 that were revealed; only 1 are"):
        trained(folder, ledger)
    (folder / FILE).write_bytes(begun[1])
    done = trained(folder, ledger)
    assert [bool(report.failed) for report in done.history] == [False, True] + [False] * 6
    assert Watched.opened == ROUNDS == ledger.entries()[0].revealed


def test_wherever_a_round_is_killed_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after the checkpoint is written, and before and after the ledger notes it."""
    folder, ledger = tmp_path / "run", Ledger.open(tmp_path / "ledger", Budget(8.0, 1e-3))
    for name, when in (
        ("charge", "after"),
        ("note_revealed", "before"),
        ("note_revealed", "after"),
    ):
        real = getattr(Ledger, name)

        def dying(*given: Any, real: Any = real, when: str = when, **named: Any) -> Any:
            if when == "before":
                raise KeyboardInterrupt
            real(*given, **named)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Ledger, name, dying)
            with pytest.raises(KeyboardInterrupt):
                trained(folder, ledger)
    assert trained(folder, ledger).rounds == ROUNDS
    (entry,) = ledger.entries()
    assert (entry.rounds, entry.revealed) == (ROUNDS, ROUNDS)


def test_a_series_of_any_measure_holds_no_round_twice(tmp_path: Path) -> None:
    ledger, kept = Ledger.open(tmp_path / "ledger", TWENTY), list[Any]()
    of: dict[str, Any] = {"rounds": 5, "ledger": ledger, "summation": Watched()}
    days = Series.of(Mean(0.0, 10.0), 20, BUDGET, **of)
    for _ in range(3):
        days.hold({}, keep=kept.append)
    for done in (0, 1, 2):
        with pytest.raises(LedgerError, match="an older copy"):
            Series.of(Mean(0.0, 10.0), 20, BUDGET, entry=days.entry, done=done, **of)
    again = Series.of(Mean(0.0, 10.0), 20, BUDGET, entry=days.entry, done=3, **of)
    again.hold({}, keep=kept.append)
    with pytest.raises(LedgerError, match="an older copy"):
        days.hold({})  # the one that was begun first has missed a round
    assert [found.number for found in kept] == [1, 2, 3, 4]
    assert Watched.opened == 4
