from pathlib import Path

import pytest

from urna.data import catalogue, load
from urna.data.embedded import EMBEDDED
from urna.data.files import FILES, HUB
from urna.errors import DataMissing, ParameterError, UnknownName


def test_the_catalogue_lists_every_set_once_in_order() -> None:
    names = [entry.name for entry in catalogue()]
    assert names == sorted({*EMBEDDED, *FILES})
    assert HUB.keys() <= FILES.keys()


def test_the_catalogue_says_where_each_set_comes_from() -> None:
    for entry in catalogue():
        if entry.name in FILES:
            assert FILES[entry.name] in entry.origin
            assert ("hub" in entry.origin) == (entry.name in HUB)
        else:
            assert entry.origin.startswith("package ")
        assert entry.licence


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("minst", "mnist"), ("cifar-10", "cifar10"), ("breast_cancer", "breast-cancer")],
)
def test_an_unknown_set_is_refused_with_the_nearest_name(wrong: str, near: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown data set '{wrong}'; did you mean '{near}'"):
        load(wrong)


def test_a_set_without_a_folder_names_its_file() -> None:
    with pytest.raises(
        DataMissing, match=r"mnist\.npz.*no folder was named.*or fetch it from the hub"
    ):
        load("mnist")
    with pytest.raises(DataMissing, match=r"cifar10_features\.npz.*name the folder that holds it$"):
        load("cifar10-features")


def test_an_embedded_set_does_not_look_at_the_folder(tmp_path: Path) -> None:
    assert len(load("wine", folder=tmp_path / "nowhere").train) == 142


def test_a_folder_and_the_hub_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="from a folder or from the hub"):
        load("mnist", folder=tmp_path, hub=True)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("digits", "Leave `hub` out"), ("cifar10-features", "Read it from a folder")],
)
def test_a_set_that_is_not_on_the_hub_says_where_it_is(name: str, instead: str) -> None:
    with pytest.raises(ParameterError, match=f"not on the hub; .*{instead}"):
        load(name, hub=True)
