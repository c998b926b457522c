"""The picture of the packages in the documentation is the one that the house test enforces."""

import re
from pathlib import Path

from test_house import GROUPS, LEVELS, OUTSIDE, SOURCE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def drawn() -> list[str]:
    """Return the packages in the picture, top to bottom."""
    picture = PAGE.read_text(encoding="utf-8").partition("\n\n    ")[2].partition("\n\n")[0]
    found, group = [], ""
    for line in ("    " + picture).splitlines():
        if name := re.match(r"( +)([a-z]+)/ ", line):
            if len(name[1]) == 4:
                group = name[2] if name[2] in GROUPS else ""
                found += [] if group else [name[2]]
            else:
                found.append(f"{group}.{name[2]}")
    return found


def test_the_picture_names_every_package() -> None:
    folders = {path.parent for path in SOURCE.rglob("__init__.py")} - {SOURCE}
    names = {".".join(folder.relative_to(SOURCE).parts) for folder in folders}
    packages = {name for name in names if "." not in name} - OUTSIDE
    packages |= {f"{group}.{name}" for group in GROUPS for name in names_in(group)}
    assert sorted(drawn()) == sorted(packages)


def names_in(group: str) -> list[str]:
    return [path.parent.name for path in (SOURCE / group).glob("*/__init__.py")]


def test_the_picture_has_the_order_that_imports_follow() -> None:
    level = {name: place for place, names in enumerate(LEVELS) for name in names}
    places = [level[name] for name in drawn()]
    assert places == sorted(places, reverse=True)
