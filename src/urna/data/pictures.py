"""Pictures in class folders: `client/class/picture.png`, or `class/picture.png` of one pool."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from urna.data.dataset import Samples
from urna.errors import DataMissing, ParameterError

__all__ = ["SUFFIXES", "holds_pictures", "read_pictures"]

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"})
"""How files of pictures end."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")


def holds_pictures(folder: Path) -> bool:
    """Say whether a folder holds class folders of pictures, of one pool or of each client."""
    return bool(_classes(folder)) or any(_classes(inner) for inner in _folders(folder))


def read_pictures(
    folder: Path,
    *,
    size: tuple[int, int],
    colour: bool = False,
    classes: tuple[str, ...] | None = None,
) -> tuple[list[Samples], list[str], tuple[str, ...]]:
    """Read pictures as rows of numbers from 0 to 1, channel by channel.

    Args:
        folder: Of class folders, or of one folder of class folders for each client.
        size: Height and width that every picture is scaled to.
        colour: Whether to keep three channels; one of grey otherwise.
        classes: All classes there may be, in order; the folders' names by default. Pictures of
            other classes are left out.

    Returns:
        Every client's samples (one client, where it is one pool), their names, and the classes.

    Raises:
        DataMissing: There is nothing to read, or Pillow is not there.
        ParameterError: A picture cannot be read.
    """
    if not holds_pictures(folder):
        raise DataMissing(f"{folder} holds no class folders of pictures")
    pool = bool(_classes(folder))
    homes = [folder] if pool else [inner for inner in _folders(folder) if _classes(inner)]
    known = classes or tuple(sorted({part.name for home in homes for part in _classes(home)}))
    clients = [_samples(home, known, size, colour) for home in homes]
    return clients, [home.name for home in homes], known


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _classes(folder: Path) -> list[Path]:
    """Return the class folders in a folder: those that hold pictures."""
    return [inner for inner in _folders(folder) if _pictures(inner)]


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def _samples(home: Path, classes: tuple[str, ...], size: tuple[int, int], colour: bool) -> Samples:
    rows: list[npt.NDArray[Any]] = []
    targets: list[int] = []
    for part in _classes(home):
        if part.name in classes:
            for path in _pictures(part):
                rows.append(_row(path, size, colour))
                targets.append(classes.index(part.name))
    width = size[0] * size[1] * (3 if colour else 1)
    features = np.stack(rows) if rows else np.zeros((0, width), dtype=np.float32)
    return Samples(features, np.array(targets, dtype=np.int64))


def _row(path: Path, size: tuple[int, int], colour: bool) -> npt.NDArray[np.float32]:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise DataMissing("pictures need Pillow: pip install 'urna[files]'") from error
    try:
        with Image.open(path, formats=_FORMATS) as picture:
            scaled = picture.convert("RGB" if colour else "L").resize((size[1], size[0]))
            pixels = np.asarray(scaled, dtype=np.float32) / 255
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ParameterError(f"{path} is no picture that can be read") from error
    planes = np.moveaxis(pixels, -1, 0) if colour else pixels
    return np.ascontiguousarray(planes, dtype=np.float32).ravel()
