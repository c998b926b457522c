"""Every page: well-formed, alone, readable without eyes, and telling no more than the result."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pages import KINDS, RUN, TITLE, made, read, shown, vote

import urna
from urna.errors import ParameterError
from urna.files import write_json
from urna.privacy import Adjacency, Budget, Ledger, PrivacyStatement
from urna.report import (
    FailedRound,
    StudyResult,
    assessment,
    load_result,
    load_run,
    load_whole,
    page,
)
from urna.systems.vote import VoteResult
from urna.systems.vote.result import Revealed


@pytest.fixture(scope="module", params=KINDS)
def text(request: pytest.FixtureRequest) -> str:
    return shown(request.param)


def test_every_tag_is_closed_and_every_name_is_unique_and_found(text: str) -> None:
    found = read(text)
    assert found.wrong == []
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.pointed) <= set(found.ids)
    assert len(found.pointed) > 8


def test_the_page_fetches_nothing_and_runs_nothing(text: str) -> None:
    found = read(text)
    assert found.addresses == []
    assert not {tag for tag, _ in found.tags} & {"script", "link", "iframe", "img", "object"}
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", text)
    assert not [name for _, said in found.tags for name in said if name.startswith("on")]


def test_what_people_typed_is_escaped(text: str) -> None:
    assert "A &amp; B &lt;i&gt;" in text
    assert "ward &lt;3&gt;" in text
    assert "name = &#39;A &amp; B&#39;" in text
    assert TITLE not in text
    assert "<adamw>" not in text
    assert "<a>" not in text


def test_what_the_study_says_of_itself_is_shown_and_nothing_else_of_that_table(text: str) -> None:
    assert "About this study" in text
    assert "triage &lt;b&gt;of letters" in text
    assert "<dt>odd</dt>" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_an_assessment_says_what_is_known_and_marks_what_is_not(kind: str) -> None:
    said = assessment(made(kind), title=TITLE, run=RUN, sha256="ab" * 32)
    assert [line[:4] for line in said.splitlines() if line.startswith("## ")][:4] == [
        f"## {letter}" for letter in "abcd"
    ]
    assert "- Purpose: triage &lt;b&gt;of letters" in said
    assert "- Controller: **TO DO:**" in said
    private = made(kind).privacy.private
    assert ("Best attack on average" in said) == private
    assert ("No differential privacy is claimed" in said) == (not private)


@pytest.mark.parametrize(
    "title", ["<script>x</script>", "A\n\n## d) Measures\n\n- all fine", "a | b"], ids=str.split
)
def test_an_assessment_holds_no_tags_and_no_headings_of_others(title: str) -> None:
    said = assessment(made("five axes"), title=title, run=replace(RUN, title=title))
    assert "<" not in said
    assert said.count("## d) Measures") == 1 + title.count("## d)")
    assert sum(line.startswith("## d) Measures") for line in said.splitlines()) == 1
    assert " | b" not in said


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run", "study"), 3),
        (("run", "study"), "[about]\nx = " + "1" * 5000),
        (("run", "account"), {"name": 1}),
        (("privacy", "epsilon"), -1.0),
        (("privacy", "epsilon"), 1e308),
        (("privacy", "delta"), 7),
        (("when",), "soon"),
        (("when",), 1e300),
        (("when",), float("nan")),
        (("plan",), {}),
        (("terms", "clients"), 10**400),
    ],
    ids=lambda each: str(each)[:30],
)
def test_a_result_that_lies_is_shown_or_refused(
    place: tuple[str, ...], value: object, tmp_path: Path
) -> None:
    said = {**made("five axes").as_mapping(), "run": RUN.as_mapping()}
    inner = said
    for name in place[:-1]:
        inner[name] = dict(inner[name])
        inner = inner[name]
    inner[place[-1]] = value
    file = tmp_path / "result.json"
    file.write_text(json.dumps(said))
    try:
        text = page(load_whole(file), title="A", run=load_run(file))
    except ParameterError:
        return
    assert "epsilon" in text
    assert place[0] != "privacy"


def test_a_study_text_that_is_broken_says_nothing() -> None:
    assert replace(RUN, study="[about\n").about == {}
    assert replace(RUN, study="about = 3").about == {}
    assert replace(RUN, study=None).about == {}


def test_headings_are_in_order_and_the_language_is_named(text: str) -> None:
    found = read(text)
    assert found.headings[0] == 1
    assert found.headings.count(1) == 1
    steps = zip(found.headings, found.headings[1:], strict=False)
    assert all(after <= before + 1 for before, after in steps)
    assert ("html", {"lang": "en"}) in found.tags


def test_every_picture_has_words_and_a_table(text: str) -> None:
    found = read(text)
    shown = [said for tag, said in found.tags if tag == "svg"]
    named = [said for _, said in found.tags if said.get("role") == "img"]
    figures = text.split("<figure>")[1:]
    assert len(shown) == len(named) == len(figures)
    assert all(said.get("aria-hidden") == "true" for said in shown)
    assert all(said.get("aria-label") for said in named)
    for figure in figures:
        inside = figure.partition("</figure>")[0]
        assert inside.count("<table>") == 1
        assert inside.count("<tr>") > 1


def test_pictures_are_small_and_take_the_page_s_colours(text: str) -> None:
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL):
        assert len(svg) < 24_000
        assert "var(--" in svg
        assert not re.search(r"#0[1-9]0[1-9]0[1-9]", svg)
        assert "DejaVu" not in svg


def test_the_page_has_what_an_officer_asks_for(text: str) -> None:
    said = read(text).text
    for words in (
        "Who learns what",
        "What is not covered",
        "Robustness.",
        "Who took part",
        "neighbouring relation",
        "accountant",
        "9.8.7",
        "urna search --data <digits>",
        "study.toml",
        "left for one further release epsilon 5.2",
        "ab" * 32,
        "SHA-256 of this page",
        "SIMULATED · ",
        "ledger: h.ledger",
    ):
        assert words in said


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_private_says_so_at_the_top_and_nothing_else_does(kind: str) -> None:
    text = shown(kind)
    alarms = re.findall(r'class="alarm" role="alert"><strong>([^<]*)', text)
    expected = {
        "scripted": ["NOT PRIVATE"],
        "clear": ["NOT PRIVATE towards the party that added up"],
        "combined": ["NOT PRIVATE"],
        "combined, encrypted": ["NO DIFFERENTIAL PRIVACY"],
    }
    assert alarms == expected.get(kind, [])
    if alarms:
        assert text.index('class="alarm"') < text.index('id="answer"')
    finite = made(kind).privacy.private
    assert ("In odds" in text) == finite
    assert ("infinite" in text) == (not finite)


def test_the_answer_comes_first_and_says_how_sure_it_is() -> None:
    sure = made("vote")
    assert read(
        page(replace(sure, credible_set=(sure.winner,), confidence=0.9999), title="t")
    ).text.count("It leads: 99.9 % sure")
    partly = page(replace(sure, credible_set=(sure.winner, 0), confidence=0.6), title="t")
    assert "One of 2 that may lead, out of 12" in partly
    assert "Inconclusive" in shown("hopeless")
    assert "★ winner" not in shown("hopeless")
    assert "★ guess" in shown("hopeless")
    assert "nothing to choose" in shown("one candidate")
    guess = page(replace(sure, credible_set=(sure.winner,), confidence=None), title="t")
    assert "Inconclusive: the tally cannot tell" in guess
    assert "truly leads" not in guess
    kept = page(replace(sure, decoder="none yet", confidence=0.0), title="t")
    assert "Not weighed yet" in kept
    assert "truly leads" not in kept


def test_a_page_says_which_candidates_could_win() -> None:
    sure = replace(made("vote"), credible_set=(made("vote").winner,), confidence=0.9)
    assert "could not win" not in page(sure, title="t")
    said = {"data": "public", "candidates": 40, "voted_on": 12, "trust": 0.1}
    short = page(replace(sure, rehearsal=said), title="t")
    assert "A rehearsal on public data left 12 of 40 to vote on: the other 28 could not" in short
    assert "truly leads among the 12 of 40 that were voted on with probability" in short


def test_the_winner_is_shown_even_if_others_have_more_noisy_votes() -> None:
    result = made("five axes")
    rising = replace(result, revealed=Revealed(np.arange(len(result.space), dtype=float)))
    odd = page(replace(rising, winner=0, credible_set=(0,)), title="t")
    assert 'class="winner"' in odd
    assert "Another candidate received more noisy votes" in odd
    last = page(replace(rising, winner=359, credible_set=(359,)), title="t")
    assert "Another candidate received more noisy votes" not in last


def test_lost_clients_and_culprits_are_named() -> None:
    result = made("clear")
    text = page(replace(result, faults={5: "sent <b>bad</b> shares"}), title="t")
    assert "Client 3 is not in the result: dropped out." in text
    assert "Client 5 broke the protocol: sent &lt;b&gt;bad&lt;/b&gt; shares." in text
    many = replace(result, lost=dict.fromkeys(range(30), "late"))
    assert "and more; the result's file names all." in page(many, title="t")


def test_a_page_without_provenance_says_what_it_does_not_know() -> None:
    text = page(made("vote"), title="t")
    assert "version not noted" in text
    assert "No privacy ledger was used" in text
    assert "made from memory" in text


def test_the_same_result_makes_the_same_page() -> None:
    again = page(made("five axes"), title=TITLE, run=RUN, sha256="ab" * 32)
    assert again == shown("five axes")


def test_values_of_every_kind_are_shown() -> None:
    result = vote(urna.Space(depth=["None", "(64, 64)", "3"], flag=[True, False]))
    text = page(result, title="t")
    assert "(64, 64)" in text
    assert "True" in text


def test_many_values_are_shown_in_groups_and_all_candidates_are_listed() -> None:
    text = shown("thousand")
    found = read(text)
    heat = [said for tag, said in found.tags if tag == "table" and said.get("class") == "heat"]
    assert len(heat) == 1
    assert text.count("<tr><td>") == 1000
    assert len(text) < 400_000


def test_a_page_states_average_and_worst_case_and_a_large_delta() -> None:
    said = read(shown("vote")).text
    assert "best attack, on average" in said
    assert "best attack, worst case" in said
    assert "Delta is large" not in said
    statement = replace(made("vote").privacy, delta=0.01)
    loud = read(page(replace(made("vote"), privacy=statement), title="t")).text
    assert "Delta is large: with 40 clients it should be well below 0.0025" in loud


def test_a_ledger_beside_a_result_is_named_on_its_page(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    write_json(file, made("vote").as_mapping())
    Ledger.open(
        tmp_path / "ledger",
        Budget(6.0, 1e-5),
        adjacency=Adjacency.REPLACE_ONE_CLIENT,
        subject="ward",
    )
    found = load_run(file)
    assert found is not None
    text = read(page(load_result(file), title="t", run=found)).text
    assert "ledger: ledger" in text
    assert "No privacy ledger was used" not in text
    assert "cap epsilon 6" in text


def test_a_study_says_what_its_stages_cost_together() -> None:
    said = read(shown("study")).text
    assert "What is trained with the winner" not in said  # it is a stage of the study
    assert "The study is done" in said
    assert "Vote: The noisy votes" in said
    assert "Model: One model for all" in said
    assert "together 3 1e-05" in said


def test_results_and_their_provenance_are_read_again(tmp_path: Path) -> None:
    for number, kind in enumerate(KINDS):
        file = tmp_path / f"{number}.json"
        result = made(kind)
        write_json(file, result.as_mapping() | {"run": RUN.as_mapping()})
        assert load_run(file) == RUN
        if kind != "training":  # its weights stand in a file of their own
            assert load_result(file).as_mapping() == result.as_mapping()  # type: ignore[union-attr]
        if kind in ("vote", "training", "study"):
            again = page(load_result(file), title=TITLE, run=RUN, sha256="ab" * 32)
            assert again == shown(kind)
        write_json(file, result.as_mapping())
        assert load_run(file) is None


def test_provenance_of_a_newer_version_is_read_as_far_as_it_is_known(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    write_json(file, {"run": RUN.as_mapping() | {"weather": "fair"}})
    assert load_run(file) == RUN
    write_json(file, {"run": {"account": 3}})
    with pytest.raises(ParameterError, match="in no known way"):
        load_run(file)


@pytest.mark.parametrize("kind", ["vote", "training", "combined, encrypted"])
def test_results_of_version_0_2_are_read_and_shown_without_their_times(
    tmp_path: Path, kind: str
) -> None:
    result, file = made(kind), tmp_path / "result.json"
    stages = [{"name": "evaluating", "seconds": 12.125, "bytes_per_client": None}]
    old = result.as_mapping() | {"run": RUN.as_mapping() | {"stages": stages}}
    if kind == "training":
        rounds = [{"chunks": 2, "measured": 12.125, "predicted": 12.125}]
        old |= {"pipeline": {"resources": [], "stages": [], "rounds": rounds}}
    if kind.startswith("combined"):
        old["cost"] |= {"party_seconds": 12.125, "server_seconds": 12.125}
    write_json(file, old)
    assert load_result(file).as_mapping() == result.as_mapping()  # type: ignore[union-attr]
    assert "12.125" in file.read_text(encoding="utf-8")
    assert load_run(file) == RUN


def test_a_vote_before_a_model_is_shown_with_it(tmp_path: Path) -> None:
    vote_result: VoteResult = made("vote")
    model = made("model")
    same = replace(vote_result.terms, clients=model.terms.clients)
    voted = replace(vote_result, terms=same)
    tuned = replace(model, tuned={"best": voted.best, "candidates": len(voted.space)})
    write_json(tmp_path / "result.json", tuned.as_mapping())
    assert not isinstance(load_whole(tmp_path / "result.json"), StudyResult)
    write_json(tmp_path / "vote.json", voted.as_mapping())
    whole = load_whole(tmp_path / "result.json")
    assert isinstance(whole, StudyResult)
    assert [name for name, _ in whole.stages] == ["vote", "model"]
    assert whole.privacy == tuned.privacy
    next_one = (voted.winner + 1) % len(voted.space)
    other = replace(voted, winner=next_one, credible_set=(next_one,))
    write_json(tmp_path / "vote.json", other.as_mapping())
    assert not isinstance(load_whole(tmp_path / "result.json"), StudyResult)


def test_a_study_of_nothing_and_a_round_that_failed_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least one stage"):
        StudyResult((), PrivacyStatement.read(made("vote").privacy.as_mapping()))
    with pytest.raises(ParameterError, match="There is no tally to show"):
        page(FailedRound("spoiled", "a bad sum"), title="t")
