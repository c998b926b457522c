import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from urna.data import Dataset, catalogue, load
from urna.data.adult import CATEGORIES, NUMBERS
from urna.errors import DataMissing, ParameterError

ROWS = 20


def _mnist(**changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (ROWS, 28, 28), dtype=np.uint8),
        "y_train": np.arange(ROWS, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (5, 28, 28), dtype=np.uint8),
        "y_test": np.arange(5, dtype=np.uint8),
        "writer_train": np.arange(ROWS, dtype=np.int16) // 10,
    }
    return {key: value for key, value in (arrays | changes).items() if value is not None}


def _features(**changes: Any) -> dict[str, Any]:
    arrays = {
        "x_train": np.ones((ROWS, 4), dtype=np.float16),
        "y_train": np.arange(ROWS) % 10,
        "x_test": np.ones((5, 4), dtype=np.float16),
        "y_test": np.arange(5),
    }
    return arrays | changes


def _sheet(tiles: np.ndarray, across: int) -> np.ndarray:
    """Lay tiles (n, 32, 32, 3) out row by row and press them into one JPEG."""
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: urna[files]")
    down = len(tiles) // across
    sheet = tiles.reshape(down, across, 32, 32, 3).transpose(0, 2, 1, 3, 4)
    room = io.BytesIO()
    pixels = image.fromarray(sheet.reshape(down * 32, across * 32, 3))
    pixels.save(room, format="JPEG", quality=95, subsampling=0)
    return np.frombuffer(room.getvalue(), dtype=np.uint8)


def _colours(count: int) -> np.ndarray:
    """Tiles of one colour each, far enough apart to survive JPEG."""
    colours = np.array([[(37 * i) % 256, (91 * i) % 256, (153 * i) % 256] for i in range(count)])
    return np.broadcast_to(colours[:, None, None, :], (count, 32, 32, 3)).astype(np.uint8)


def _cifar10(**changes: Any) -> dict[str, Any]:
    tiles = _colours(18)
    arrays = {
        "jpeg_train_0": _sheet(tiles[:6], across=3),
        "jpeg_train_1": _sheet(tiles[6:12], across=2),
        "jpeg_test_0": _sheet(tiles[12:], across=3),
        "y_train": np.arange(12, dtype=np.uint8) % 10,
        "y_test": np.arange(5, dtype=np.uint8),
    }
    return {key: value for key, value in (arrays | changes).items() if value is not None}


def _adult(**changes: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {name: [float(i) for i in range(ROWS)] for name in NUMBERS}
    columns |= {name: [o[i % len(o)] for i in range(ROWS)] for name, o in CATEGORIES.items()}
    columns |= {"income": ["<=50K", ">50K"] * 10, "split": ["train"] * 15 + ["test"] * 5}
    return {key: value for key, value in (columns | changes).items() if value is not None}


def _write_adult(folder: Path, columns: dict[str, Any]) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: urna[files]")
    from pyarrow import parquet  # noqa: PLC0415 - optional

    parquet.write_table(pa.table(columns), folder / "adult.parquet")


# The real files.


@pytest.mark.parametrize("name", ["adult", "cifar10-features", "mnist"])
def test_the_real_file_is_as_the_catalogue_says(name: str, data_folder: Path) -> None:
    if name == "adult":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed: urna[files]")
    entry = next(e for e in catalogue() if e.name == name)
    dataset = load(name, folder=data_folder)
    assert dataset.train.features.shape == (entry.train, entry.features)
    assert dataset.test.features.shape == (entry.test, entry.features)
    assert dataset.train.features.dtype == np.float32
    assert dataset.train.targets.dtype == np.int64
    assert sorted(set(dataset.test.targets.tolist())) == list(range(entry.classes or 0))
    if name == "mnist":
        assert dataset.writers is not None
        assert len(set(dataset.writers.tolist())) == 539
        assert (dataset.train.features.min(), dataset.train.features.max()) == (0, 1)
    if name == "adult":
        assert dataset.train.targets.mean() == pytest.approx(7841 / 32561)
        assert np.allclose(dataset.train.features[:, :6].mean(axis=0), 0, atol=1e-4)
        assert (dataset.train.features[:, 6:].sum(axis=1) == len(CATEGORIES)).all()


def test_real_cifar10_pictures_fit_their_labels(data_folder: Path) -> None:
    pytest.importorskip("PIL", reason="Pillow is not installed: urna[files]")
    dataset = load("cifar10", folder=data_folder)
    assert dataset.train.features.shape == (50_000, 3072)
    assert dataset.test.features.shape == (10_000, 3072)
    # Nearest class mean: about 0.28 on raw pixels; 0.10 if tiles and labels were out of step.
    means = np.stack(
        [dataset.train.features[dataset.train.targets == c].mean(0) for c in range(10)]
    )
    scores = dataset.test.features @ means.T - (means**2).sum(axis=1) / 2
    assert (scores.argmax(axis=1) == dataset.test.targets).mean() > 0.25


# Small copies: what is read.


def test_mnist_is_read_with_writers_and_scaled(tmp_path: Path) -> None:
    arrays = _mnist()
    np.savez(tmp_path / "mnist.npz", **arrays)
    dataset = load("mnist", folder=tmp_path)
    assert np.allclose(dataset.train.features, arrays["x_train"].reshape(ROWS, -1) / 255)
    assert dataset.test.targets.tolist() == [0, 1, 2, 3, 4]
    assert dataset.writers is not None
    assert dataset.writers.tolist() == [0] * 10 + [1] * 10
    assert dataset.shape == (1, 28, 28)


def test_mnist_without_writers_is_read_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "mnist.npz", **_mnist(writer_train=None))
    assert load("mnist", folder=str(tmp_path)).writers is None


def test_cifar10_tiles_are_cut_row_by_row_with_channels_first(tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar10_small.npz", **_cifar10())
    dataset = load("cifar10", folder=tmp_path)
    assert dataset.shape == (3, 32, 32)
    train = dataset.train.features.reshape(-1, 3, 32, 32)
    wanted = _colours(18).transpose(0, 3, 1, 2) / 255
    # JPEG at quality 95 keeps a flat colour within 4 of 255 levels.
    assert np.abs(train - wanted[:12]).max() < 4 / 255
    assert np.abs(dataset.test.features.reshape(-1, 3, 32, 32) - wanted[12:17]).max() < 4 / 255


def test_adult_is_scaled_with_training_rows_and_one_hot_in_fixed_order(tmp_path: Path) -> None:
    _write_adult(tmp_path, _adult())
    dataset = load("adult", folder=tmp_path)
    assert dataset.train.features.shape == (15, 108)
    ages = np.arange(ROWS)
    scaled = (ages - ages[:15].mean()) / ages[:15].std()
    assert np.allclose(dataset.train.features[:, 0], scaled[:15])
    assert np.allclose(dataset.test.features[:, 0], scaled[15:])
    workclass = dataset.train.features[:, 6:15]
    assert workclass.argmax(axis=1).tolist() == [i % 9 for i in range(15)]
    assert dataset.test.targets.tolist() == [1, 0, 1, 0, 1]
    assert dataset.classes == 2


def test_adult_columns_do_not_depend_on_which_categories_occur(tmp_path: Path) -> None:
    _write_adult(tmp_path, _adult(sex=["Male"] * ROWS))
    dataset = load("adult", folder=tmp_path)
    assert dataset.train.features.shape == (15, 108)


def test_adult_ignores_the_spaces_and_full_stops_of_the_original_files(tmp_path: Path) -> None:
    _write_adult(tmp_path, _adult(income=[" <=50K.", " >50K."] * 10))
    assert load("adult", folder=tmp_path).train.targets[:2].tolist() == [0, 1]


# What is refused.


def test_a_missing_folder_is_named_with_the_file_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"mnist\.npz in a folder, but .*nowhere does not exist"):
        load("mnist", folder=tmp_path / "nowhere")


def test_a_file_in_place_of_the_folder_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "mnist.npz").write_bytes(b"")
    with pytest.raises(DataMissing, match=r"mnist\.npz is a file; name the folder"):
        load("mnist", folder=tmp_path / "mnist.npz")


def test_a_folder_without_the_file_says_what_it_holds(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"adult\.parquet, which is not in .*holds none of them"):
        load("adult", folder=tmp_path)
    np.savez(tmp_path / "mnist.npz", **_mnist())
    (tmp_path / "private letters.txt").write_text("")
    with pytest.raises(DataMissing, match=r"it holds mnist\.npz\. Put the file there") as caught:
        load("cifar10", folder=tmp_path)
    assert "private letters" not in str(caught.value)


@pytest.mark.parametrize(
    ("module", "name", "package"), [("PIL", "cifar10", "Pillow"), ("pyarrow", "adult", "pyarrow")]
)
def test_a_missing_package_says_what_to_install(
    module: str, name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / {"cifar10": "cifar10_small.npz", "adult": "adult.parquet"}[name]).touch()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataMissing, match=rf"{package}.*pip install 'urna\[files\]'"):
        load(name, folder=tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"y_train": None}, "arrays y_train are missing; found are writer_train, x_test"),
        ({"x_train": np.zeros((ROWS, 28, 28))}, r"bytes of shape \(rows, 1, 28, 28\), got float64"),
        ({"x_test": np.zeros((5, 28, 27), np.uint8)}, r"shape \(5, 28, 27\)"),
        ({"x_test": np.zeros((), np.uint8)}, r"shape \(\)"),
        ({"x_test": np.zeros((0, 28, 28), np.uint8)}, r"shape \(0, 28, 28\)"),
        ({"y_train": np.full(ROWS, 10)}, r"labels must lie in 0\.\.9, got 10\.\.10"),
        ({"y_train": np.full(ROWS, 0.5)}, "labels must be a list of whole numbers, got float64"),
        ({"y_train": np.zeros(3, int)}, "equally many rows, got 20 and 3"),
        ({"writer_train": np.zeros(3, int)}, "got 3 writers"),
        ({"writer_train": np.zeros(ROWS)}, "`writer_train` must hold one whole number"),
        ({"x_train": np.array([None])}, "no whole .npz archive of plain arrays"),
    ],
)
def test_a_wrong_mnist_is_refused_in_words(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "mnist.npz", **_mnist(**changes))
    with pytest.raises(ParameterError, match=rf"mnist\.npz cannot be read as 'mnist': .*{says}"):
        load("mnist", folder=tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"x_train": np.ones(ROWS, np.float16)}, "`x_train` must be a matrix of real numbers"),
        ({"x_test": np.full((5, 4), np.nan)}, "`x_test` must hold finite numbers"),
        ({"x_test": np.ones((5, 3))}, "equally many columns"),
    ],
)
def test_wrong_features_are_refused_in_words(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "cifar10_features.npz", **_features(**changes))
    with pytest.raises(ParameterError, match=says):
        load("cifar10-features", folder=tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"jpeg_train_1": None}, "12 labels need as many tiles; .* hold 6 on 1 sheets"),
        ({"jpeg_test_0": None}, "hold 0 on 0 sheets"),
        ({"jpeg_train_0": np.zeros(100, np.uint8)}, "`jpeg_train_0` is no whole JPEG picture"),
        ({"y_train": np.zeros((), np.uint8)}, "labels must be a list"),
    ],
)
def test_a_wrong_cifar10_is_refused_in_words(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "cifar10_small.npz", **_cifar10(**changes))
    with pytest.raises(ParameterError, match=says):
        load("cifar10", folder=tmp_path)


def test_a_truncated_or_odd_sheet_is_refused_in_words(tmp_path: Path) -> None:
    arrays = _cifar10()
    arrays["jpeg_train_0"] = arrays["jpeg_train_0"][:-200]
    np.savez(tmp_path / "cifar10_small.npz", **arrays)
    with pytest.raises(ParameterError, match="`jpeg_train_0` is no whole JPEG"):
        load("cifar10", folder=tmp_path)
    image = pytest.importorskip("PIL.Image")
    room = io.BytesIO()
    image.new("RGB", (64, 33)).save(room, format="JPEG")
    arrays["jpeg_train_0"] = np.frombuffer(room.getvalue(), dtype=np.uint8)
    np.savez(tmp_path / "cifar10_small.npz", **arrays)
    with pytest.raises(ParameterError, match="sheet of 32×32 tiles, got 33×64 pixels"):
        load("cifar10", folder=tmp_path)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"age": None}, "missing are age; found are capital_gain"),
        ({"income": None}, "missing are income"),
        ({"split": None}, "a column `split` must say"),
        ({"split": ["train", "dev"] * 10}, "must hold 'train' or 'test' in every row"),
        ({"split": ["train"] * ROWS}, "training rows and test rows; one of them is empty"),
        ({"age": ["x"] * ROWS}, "'age' must hold numbers only"),
        ({"age": [None] * ROWS}, "'age' must hold (finite )?numbers"),
        (
            {"sex": ["Male"] * 18 + ["secret"] * 2},
            "'sex' has 2 values that are none of the set's 2",
        ),
        ({"income": ["50K"] * ROWS}, "'income' has 20 values"),
    ],
)
def test_a_wrong_adult_is_refused_in_words(
    changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    _write_adult(tmp_path, _adult(**changes))
    with pytest.raises(ParameterError, match=rf"cannot be read as 'adult': .*{says}") as caught:
        load("adult", folder=tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "file"),
    [("mnist", "mnist.npz"), ("cifar10", "cifar10_small.npz"), ("adult", "adult.parquet")],
)
@pytest.mark.parametrize(
    "content", [b"", b"not what it says", b"PK\x03\x04" + bytes(60)], ids=["empty", "text", "zip"]
)
def test_a_file_of_other_bytes_is_refused_in_words(
    name: str, file: str, content: bytes, tmp_path: Path
) -> None:
    if name != "mnist":
        pytest.importorskip({"cifar10": "PIL", "adult": "pyarrow"}[name])
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ParameterError, match=f"{file} cannot be read as '{name}'.*fetch it again"):
        load(name, folder=tmp_path)


def test_a_single_array_is_not_an_archive(tmp_path: Path) -> None:
    with (tmp_path / "mnist.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ParameterError, match="a single array, not an archive"):
        load("mnist", folder=tmp_path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_archive_gives_data_or_an_error_in_words(
    place: int, byte: int, cut: bool, tmp_path: Path
) -> None:
    room = io.BytesIO()
    np.savez_compressed(room, **_features())
    content = bytearray(room.getvalue())
    place %= len(content)
    content[place] = byte
    (tmp_path / "cifar10_features.npz").write_bytes(content[:place] if cut else content)
    try:
        assert isinstance(load("cifar10-features", folder=tmp_path), Dataset)
    except ParameterError as error:
        assert "cifar10_features.npz cannot be read" in str(error)  # noqa: PT017 - or no error
