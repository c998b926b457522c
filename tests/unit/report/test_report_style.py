"""The style: every text has a contrast of 4.5:1 by day, by night and in print."""

import re
from importlib.resources import files

import pytest

STYLE = (files("urna.report") / "templates" / "style.css").read_text(encoding="utf-8")
ON = {
    "paper": ("ink", "soft", "accent", "warn", "note", "good"),
    "ground": ("ink", "soft", "accent"),
    "warn-paper": ("warn",),
    "note-paper": ("note",),
    "accent": ("on-accent",),
    **{f"h{level}": ("ink",) for level in range(9)},
}
"""What is written on what."""
DRAWN = ("bar", "near", "winner", "s1", "s2", "s3", "s4", "s5", "s6")
"""Shapes that carry meaning, which need 3:1 or text beside them."""


def schemes() -> dict[str, dict[str, str]]:
    blocks = re.findall(r":root \{(.*?)\}", STYLE, flags=re.DOTALL)
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for name, block in zip(("day", "night", "print"), blocks, strict=True)
    }


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_all_schemes_name_the_same_colours() -> None:
    day, night, printed = schemes().values()
    assert day.keys() == night.keys() == printed.keys()
    used = set(re.findall(r"var\(--([\w-]+)\)", STYLE)) - {"zero"}
    assert used <= day.keys()


@pytest.mark.parametrize("scheme", ["day", "night", "print"])
def test_every_text_can_be_read(scheme: str) -> None:
    colours = schemes()[scheme]
    found = {
        (text, ground): contrast(colours[text], colours[ground])
        for ground, texts in ON.items()
        for text in texts
    }
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("scheme", ["day", "night", "print"])
def test_curves_stand_out_of_the_paper(scheme: str) -> None:
    colours = schemes()[scheme]
    lines = {name: contrast(colours[name], colours["paper"]) for name in DRAWN if name[0] == "s"}
    assert {name: ratio for name, ratio in lines.items() if ratio < 3} == {}


def test_no_text_has_a_colour_of_its_own() -> None:
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.DOTALL)
    assert not re.search(r"(?<!-)color: #|background: #", rules)
