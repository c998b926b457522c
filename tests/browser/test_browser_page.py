"""Pages in a real browser: no complaint, every picture drawn, nothing wider than the screen."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import FOUND, Browser, chromium
from pages import shown

pytestmark = pytest.mark.skipif(
    FOUND is None, reason="no Chromium is here: install Debian's package `chromium`"
)

KINDS = ("vote", "five axes", "one axis", "thousand", "scripted", "model", "training", "study")
WIDTHS = (360, 768, 1280)

# Boxes may be wider than the screen only inside what scrolls by itself.
_TOO_WIDE = """
[...document.querySelectorAll('body *')]
  .filter(e => !e.closest('.roll') && !e.closest('.skip') && !e.closest('.unseen'))
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.outerHTML.slice(0, 90))
"""
_UNDRAWN = """
[...document.querySelectorAll('svg')]
  .filter(e => e.getBoundingClientRect().width < 200 || e.querySelectorAll('path').length < 3)
  .length
"""
# Text that is painted smaller than eight pixels is not read on a telephone.
_SMALLEST = """
Math.min(...[...document.querySelectorAll('svg text')].map(e => {
  const matrix = e.getScreenCTM();
  return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(matrix.a, matrix.b);
}))
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module", params=KINDS)
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(shown(request.param), encoding="utf-8")
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_a_page_fits_and_nothing_complains(browser: Browser, file: Path, width: int) -> None:
    browser.open(file, width=width)
    assert browser.complaints == []
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate(_TOO_WIDE) == []
    pictures = file.read_text(encoding="utf-8").count("<svg")
    assert browser.evaluate("document.querySelectorAll('svg').length") == pictures
    assert browser.evaluate(_UNDRAWN) == 0
    if pictures:
        assert browser.evaluate(_SMALLEST) >= 8


def test_a_page_is_dark_where_that_is_wished_for(browser: Browser, file: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    line = "getComputedStyle(document.querySelector('svg path[style*=\"var(--s1)\"]')).stroke"
    found = []
    for dark in (False, True):
        browser.open(file, width=768, dark=dark)
        drawn = browser.evaluate("document.querySelectorAll('svg').length") > 0
        found.append((browser.evaluate(ground), browser.evaluate(line) if drawn else dark))
    assert found[0][0] == "rgb(243, 245, 249)"
    assert found[1][0] == "rgb(16, 20, 26)"
    assert found[0][1] != found[1][1]


def test_a_page_is_printed_on_white_with_its_tables(browser: Browser, file: Path) -> None:
    browser.open(file, width=768, dark=True, media="print")
    ground = "getComputedStyle(document.body).backgroundColor"
    assert browser.evaluate(ground) == "rgb(255, 255, 255)"
    hidden = (
        "[...document.querySelectorAll('details:not(.long) table')].filter(e => !e.offsetHeight)"
    )
    assert browser.evaluate(f"{hidden}.length") == 0
    printed = browser.pdf()
    assert printed.startswith(b"%PDF")
    assert len(printed) > 20_000


def test_everything_is_reached_by_the_keyboard(browser: Browser, file: Path) -> None:
    browser.open(file, width=768)
    key = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}

    def tab() -> str:
        for kind in ("rawKeyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, **key)
        return str(browser.evaluate("document.activeElement.outerHTML.slice(0, 60)"))

    assert 'class="skip"' in tab()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    left = "document.activeElement.getBoundingClientRect().left"
    assert browser.evaluate(left) >= 0  # it shows once it is reached
    assert "#answer" in tab()
    assert browser.evaluate(outline) != "none"
    wanted = browser.evaluate("document.querySelectorAll('a, summary, [tabindex]').length")
    assert wanted > 8
    unreachable = (
        "[...document.querySelectorAll('a, summary, [tabindex]')].filter(e => e.tabIndex < 0)"
    )
    assert browser.evaluate(f"{unreachable}.length") == 0


def test_a_page_that_is_broken_would_be_found(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "broken.html"
    wide = '<img src="http://127.0.0.1:9/x.png"><p style="width: 900px">wide</p>'
    file.write_text(f"<!doctype html><title>t</title>{wide}<script>nowhere()</script>")
    browser.open(file, width=768)
    found = " ".join(browser.complaints)
    assert "nowhere is not defined" in found
    assert "http://127.0.0.1:9/x.png" in found
    assert browser.evaluate(_TOO_WIDE) != []
