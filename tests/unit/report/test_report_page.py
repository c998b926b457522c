"""The page: well-formed, alone, and telling no more than the tally."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import urna
from urna.local import CallableObjective
from urna.randomness import ScriptedSecrets
from urna.report import page
from urna.tally import ClearSummation
from urna.vote import Result


@pytest.fixture(scope="module")
def result() -> Result:
    objective = CallableObjective(lambda candidate, data: abs(candidate["x"] - data))
    return urna.search(
        urna.Space(x=[1, 2, 3, 4], kind=["<a>", "b"]),
        objective,
        [2, 2, 3, 2, 2, 1, 2, 2],
        budget=urna.Budget(4.0, 1e-3),
        votes=2,
        dropout=0.25,
        summation=ClearSummation(frozenset({3})),
        secrets=ScriptedSecrets(b"page"),
    )


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """A tag that closes itself leaves nothing open."""

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def test_every_tag_is_closed_in_order(result: Result) -> None:
    tags = Tags()
    tags.feed(page(result, title="A & B <i>"))
    assert tags.wrong == []
    assert tags.open == []


def test_names_are_escaped(result: Result) -> None:
    text = page(result, title="A & B <i>")
    assert "A &amp; B &lt;i&gt;" in text
    assert "&lt;a&gt;" in text
    assert "<a>" not in text


def test_the_page_fetches_nothing(result: Result) -> None:
    text = page(result, title="t")
    assert not re.search(r"(src|href)\s*=|url\(|@import|<script", text)


def test_the_page_says_what_it_cost_and_how_the_sum_was_made(result: Result) -> None:
    text = page(result, title="t")
    assert "NOT PRIVATE" in text  # its randomness was scripted
    assert "replace-one-client" in text
    assert "in the clear" in text
    assert "Client 3 is not in the sum: dropped out" in text


def test_the_winner_is_shown_even_if_others_have_more_noisy_votes(result: Result) -> None:
    votes = np.arange(len(result.space), dtype=float)
    fields = {name: getattr(result, name) for name in Result.__dataclass_fields__}
    odd = Result(**(fields | {"votes": votes, "winner": 0}))
    assert 'class="bar chosen"' in page(odd, title="t")
