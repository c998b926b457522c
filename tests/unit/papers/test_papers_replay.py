import json
import math
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.papers.replay import (
    Recording,
    read_recording,
    record_losses,
    replay,
    unnamed_space,
)

from urna.errors import ParameterError
from urna.space import Axis, Space
from urna.systems.vote import ArgmaxDecoder, BallotShape, fill_ballot

SPACE = Space(lr=Axis.log_range(1e-3, 1.0, 6), momentum=[0.0, 0.9])
RNG = np.random.default_rng


@pytest.fixture(scope="module")
def recording() -> Recording:
    """40 clients that mostly agree on the fourth learning rate."""
    rng = RNG(1)
    quality = np.repeat([0.1, 0.3, 0.7, 0.9, 0.6, 0.1], 2) + np.tile([0.0, 0.02], 6)
    losses = 1 - quality + 0.1 * rng.standard_normal((40, 12))
    return Recording(losses, quality, "federated accuracy")


def test_without_noise_the_plain_majority_wins(recording: Recording) -> None:
    shape = BallotShape.top_k(1, 12)
    votes = sum(fill_ballot(row, shape, bytes(32)) for row in recording.losses)
    (found,) = replay(
        recording, SPACE, epsilons=[math.inf], rng=RNG(0), votes=1, decoder=ArgmaxDecoder(), draws=5
    )
    majority = int(np.argmax(votes))
    assert found.mean_quality == pytest.approx(recording.quality[majority])
    assert found.regret == pytest.approx(recording.quality.max() - recording.quality[majority])
    assert found.noise_std == 0.0
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)


def test_more_budget_gives_better_winners(recording: Recording) -> None:
    found = replay(recording, SPACE, epsilons=[0.02, 3.0], rng=RNG(2), draws=40)
    assert found[0].regret > 5 * found[1].regret
    assert found[1].top1_rate > found[0].top1_rate


def test_top_k_ballots_get_the_papers_noise(recording: Recording) -> None:
    (found,) = replay(
        recording, SPACE, epsilons=[1.0], rng=RNG(3), ballot="top-k", votes=5, draws=2
    )
    # 40 shares of noise where 39 are needed.
    assert found.noise_std == pytest.approx(11.8 * math.sqrt(40 / 39), rel=2e-3)
    assert found.ballot.startswith("top-k: 5")


def test_noise_may_be_given_to_compare_with_others(recording: Recording) -> None:
    (found,) = replay(
        recording, SPACE, epsilons=[1.0], rng=RNG(3), votes=5, noise_std=46.0, draws=2
    )
    assert found.noise_std == pytest.approx(46.0)
    assert "as given" in found.accountant
    assert (found.delta, found.adjacency) == (None, "none")


def test_the_same_seed_replays_the_same_votes(recording: Recording) -> None:
    once, again = (replay(recording, SPACE, epsilons=[0.5], rng=RNG(4), draws=5) for _ in range(2))
    assert once == again


def test_a_replay_never_claims_to_be_private(recording: Recording) -> None:
    (found,) = replay(recording, SPACE, epsilons=[1.0], rng=RNG(0), draws=1)
    plain = json.loads(json.dumps(found.as_mapping(), allow_nan=False))
    assert plain["private"] is False
    assert {"mean_federated_accuracy", "regret", "top1_rate", "delta", "adjacency"} <= plain.keys()


def test_winners_without_a_finite_quality_count_as_the_worst() -> None:
    losses = np.tile([0.0, 1.0, 2.0], (20, 1))
    recorded = Recording(losses, np.array([np.nan, 0.4, 0.9]), "federated accuracy")
    (found,) = replay(recorded, unnamed_space(3), epsilons=[math.inf], rng=RNG(0), votes=1, draws=2)
    assert found.mean_quality == pytest.approx(0.4)
    assert found.top1_rate == 0.0


def saved(folder: Path, **arrays: object) -> Path:
    np.savez(folder / "recorded.npz", **{name: np.array(a) for name, a in arrays.items()})
    return folder / "recorded.npz"


def test_accuracies_are_votes_by_accuracy(tmp_path: Path) -> None:
    read = read_recording(saved(tmp_path, accuracies=[[0.1, 0.9], [0.2, 0.7]]))
    assert read.losses.tolist() == [[-0.1, -0.9], [-0.2, -0.7]]
    assert read.quality.tolist() == pytest.approx([0.15, 0.8])
    assert read.judged_by == "mean local accuracy"


def test_a_candidate_that_failed_somewhere_counts_as_the_worst_there(tmp_path: Path) -> None:
    read = read_recording(saved(tmp_path, losses=[[1.0, np.nan, 3.0], [2.0, 4.0, np.inf]]))
    assert read.quality.tolist() == pytest.approx([-1.5, -3.5, -3.5])


def test_losses_and_federated_accuracies_are_read(tmp_path: Path) -> None:
    read = read_recording(saved(tmp_path, losses=[[3.0, 1.0]], federated=[0.2, 0.8]))
    assert read.losses.tolist() == [[3.0, 1.0]]
    assert (read.quality.tolist(), read.judged_by) == ([0.2, 0.8], "federated accuracy")


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"other": [1.0]}, "neither `losses` nor `accuracies`"),
        ({"losses": [1.0, 2.0]}, "shape"),
        ({"losses": [[1.0, 2.0]], "federated": [0.5]}, "one federated accuracy each"),
        ({"losses": [[1j, 2.0]]}, "no .npz file of numbers"),
        ({"losses": [[np.nan, np.inf]], "federated": [0.5, 0.6]}, "no client has a finite loss"),
        ({"losses": [[1.0, 2.0]], "federated": [np.nan, np.nan]}, "finite"),
        ({"losses": [["a", "b"]]}, "no .npz file of numbers"),
        ({"losses": np.zeros((0, 3))}, "shape"),
    ],
)
def test_recordings_that_cannot_be_are_refused(
    tmp_path: Path, arrays: dict[str, object], reason: str
) -> None:
    with pytest.raises(ParameterError, match=reason):
        read_recording(saved(tmp_path, **arrays))


def test_files_that_are_no_recordings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "single.npy", np.zeros((2, 2)))
    for name in ("text.npz", "missing.npz", "empty.npz", "single.npy"):
        with pytest.raises(ParameterError):
            read_recording(tmp_path / name)


def test_a_space_of_another_size_is_refused(recording: Recording) -> None:
    with pytest.raises(ParameterError, match="6 candidates, the recording 12"):
        replay(recording, unnamed_space(6), epsilons=[1.0], rng=RNG(0))
    with pytest.raises(ParameterError, match="draws"):
        replay(recording, SPACE, epsilons=[1.0], rng=RNG(0), draws=0)
    with pytest.raises(ParameterError, match="noise"):
        replay(recording, SPACE, epsilons=[1.0], rng=RNG(0), noise_std=math.inf)
    for epsilon in (-math.inf, math.nan, -1.0, 0.0):
        with pytest.raises(ParameterError, match="epsilon"):
            replay(recording, SPACE, epsilons=[1.0, epsilon], rng=RNG(0))
    with pytest.raises(ParameterError, match="leave noise_std out"):
        replay(recording, SPACE, epsilons=[math.inf], rng=RNG(0), noise_std=3.0)


def near(candidate: dict[str, Any], data: float) -> float:
    return abs((candidate["x"] or 9) - data)


def test_recorded_losses_are_replayed_with_their_space(tmp_path: Path) -> None:
    space, path = {"x": [1, 2, None]}, tmp_path / "losses.npz"
    made = record_losses(space, near, [1.0, 2.0, 2.0], path)
    read = read_recording(path)
    assert read.losses.tolist() == made.losses.tolist() == [[0, 1, 8], [1, 0, 7], [1, 0, 7]]
    assert read.space == made.space == Space(x=[1, 2, None])
    assert read.judged_by == "negative mean local loss"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with np.load(path) as file:
        assert str(file["warning"]).startswith("NOT PRIVATE")
    (found,) = replay(read, Space(x=[1, 2, None]), epsilons=[math.inf], rng=RNG(0), draws=3)
    assert found.wins == [(1, 3)]
    assert found.as_mapping()["winners"] == [{"place": 1, "wins": 3, "share": 1.0}]


def test_a_client_that_fails_is_recorded_as_such(tmp_path: Path) -> None:
    made = record_losses({"x": [1, 2]}, near, [1.0, "text"], tmp_path / "losses.npz")
    assert np.isnan(made.losses[1]).all(), "it abstains"


def test_winners_are_counted_most_frequent_first(recording: Recording) -> None:
    (found,) = replay(recording, SPACE, epsilons=[0.1], rng=RNG(0), draws=30)
    assert sum(wins for _, wins in found.wins) == 30
    counts = [wins for _, wins in found.wins]
    assert counts == sorted(counts, reverse=True)
    assert all(found.winners.count(place) == wins for place, wins in found.wins)


def test_what_cannot_be_recorded_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"an \.npz file, got 'losses\.csv'"):
        record_losses({"x": [1]}, near, [1.0], tmp_path / "losses.csv")
    with pytest.raises(ParameterError, match="no client has a finite loss"):
        record_losses({"x": [1]}, near, ["text"], tmp_path / "losses.npz")
    assert not (tmp_path / "losses.npz").exists()
    with pytest.raises(ParameterError, match=r"the space in .* cannot be read"):
        read_recording(saved(tmp_path, losses=[[1.0]], space="{"))
