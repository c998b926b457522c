# ruff: noqa: E501 - messages stand here as they are printed
"""Study files: what every key may be, and one line for whatever is wrong."""

import dataclasses
from pathlib import Path

import pytest

from urna.errors import ParameterError
from urna.privacy import Adjacency, Unit
from urna.study import file as parts
from urna.study import read_study
from urna.study.draft import Draft, draft_study
from urna.study.file import find_lines, parse_study
from urna.study.keys import KEYS, SECTIONS, Kind, keys_of, keys_table

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "study.md"
LEAST = '[data]\nsource = "digits"\n[privacy]\nepsilon = 1\ndelta = 1e-5\n'
PARTS = {
    "data": parts.DataPart,
    "objective": parts.ObjectivePart,
    "privacy": parts.PrivacyPart,
    "vote": parts.VotePart,
    "then": parts.ThenPart,
    "engine": parts.EnginePart,
    "output": parts.OutputPart,
}


@pytest.mark.parametrize("section", PARTS)
def test_every_key_has_its_field_with_the_same_default(section: str) -> None:
    fields = {field.name: field for field in dataclasses.fields(PARTS[section])}
    assert list(fields) == list(keys_of(section))
    read = getattr(parse_study(LEAST, Path("study.toml")), section)
    for key in keys_of(section).values():
        if key.default is None:
            assert fields[key.name].default is dataclasses.MISSING
        elif fields[key.name].default is not dataclasses.MISSING:
            assert getattr(read, key.name) == fields[key.name].default


def test_every_section_is_said_in_words_and_every_key_explained() -> None:
    assert {key.section for key in KEYS} | {"space"} == set(SECTIONS)
    assert all(key.says.endswith(".") for key in KEYS)
    assert all(key.default in key.choices for key in KEYS if key.choices)


def test_the_guide_lists_every_key() -> None:
    assert keys_table().strip() in GUIDE.read_text(encoding="utf-8")


def test_lines_are_found() -> None:
    text = 'title = "x"\n\n[data]\nsource = "a = b"\n[data.ranges]\n"blood p" = [0, 1]\n[space]\nlr = [1]\n'
    assert find_lines(text) == {
        "title": 1, "data": 3, "data.source": 4, "data.ranges": 5, "data.ranges.blood p": 6,
        "space": 7, "space.lr": 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[privacy]\n", "study.toml:6: this is no TOML: Cannot declare"),
        ("[voting]\n", "study.toml:6: unknown key or section `voting`; did you mean `vote`?"),
        ("unit = 'clients'", "study.toml:6: `privacy.unit` is one of 'client', 'record'; got the text 'clients'. Did you mean 'client'?"),
        ("clients = 5", "study.toml:6: unknown key `privacy.clients`; there is `data.clients`"),
        ("dropout = true", "study.toml:6: `privacy.dropout` is a part of one, such as 0.2 or '1/5'; got the true/false true"),
        ("vote_share = 1.5", "study.toml:6: `privacy.vote_share` is 'auto', or a part of one; got the number 1.5"),
        ("shards = 3", "study.toml:6: 3 shards make every client add up 3 ballots"),
        ("shards = -3", "study.toml:6: `privacy.shards` is a whole number; got the number -3"),
        ("adjacency = 'replace-one-record'", "study.toml:6: replace-one-record protects a record, and unit says client"),
        ("unit = 'record'\n[then]\nwhat = 'train'", "study.toml:8: `train` after a vote protects whole clients"),
        ("[engine]\nfederation = 'here'", "study.toml:7: a federation is Flower's"),
        ("[engine]\nkind = 'flower'\nfederation = 'here'", "study.toml:8: a federation must name `nodes`"),
        ("[engine]\nkind = 'flower'\n[vote]\nsummation = 'clear'", "study.toml:9: over Flower ballots are always summed by masks"),
        ("[then]\nwhat = 'combine'\n[engine]\nkind = 'flower'", "study.toml:7: `combine` runs in memory"),
        ("[space]\nlr = 5", "study.toml:7: axis 'lr': an axis takes a list of values"),
        ("[space]\nlr = { kind = 'lgo', values = [1] }", "study.toml:7: axis 'lr': unknown kind of axis 'lgo'"),
        ("[output]\nfolder = 3", "study.toml:7: `output.folder` is a text; got the number 3"),
        ("[objective]\nfixed = [1]", "study.toml:7: `objective.fixed` is a table; got the list [1]"),
    ],
    ids=lambda value: value[:24],
)  # fmt: skip
def test_what_is_wrong_is_one_line_with_its_place(more: str, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse_study(LEAST + more, Path("study.toml"))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("epsilon = 1", "epsilon = 0", "study.toml:4: epsilon must be"),
        ("delta = 1e-5", "delta = 2.0", "study.toml:5: delta must"),
        ("epsilon = 1\n", "", "study.toml:3: [privacy] must name `epsilon`: what everything together"),
        ("epsilon = 1", "epsilon = inf", "study.toml:4: `privacy.epsilon` is a number; got the number inf"),
        ('source = "digits"', "source = 'digits'\nspan = [3, 1]", "study.toml:3: `data.span` is two numbers"),
        ('source = "digits"', "source = 'digits'\nclasses = ['a', 1]", "study.toml:3: `data.classes` is a list"),
        ('source = "digits"', "source = 'x'\nclasses = [0, 1]\nspan = [0, 1]", "study.toml:4: name `classes` or"),
    ],
    ids=lambda value: value[:24],
)  # fmt: skip
def test_values_that_cannot_be_are_refused(before: str, after: str, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        parse_study(LEAST.replace(before, after), Path("study.toml"))
    assert str(caught.value).startswith(message)


def test_what_is_said_is_read(tmp_path: Path) -> None:
    more = (
        "unit = 'record'\nshards = 4\n[space]\nC = { kind = 'log', values = [1, 10] }\nk = [1, 2]\n"
    )
    (tmp_path / "study.toml").write_text(LEAST + more)
    study = read_study(tmp_path)
    assert study.privacy.relation is Adjacency.REPLACE_ONE_RECORD
    assert study.privacy.relation.unit is Unit.RECORD
    assert study.privacy.options["shards"] == 4
    assert study.space is not None
    assert list(study.space)[1] == {"C": 1, "k": 2}
    assert study.folder == tmp_path / "results"


def test_a_fingerprint_is_of_what_must_not_change() -> None:
    path = Path("study.toml")
    one = parse_study(LEAST, path).fingerprint
    assert (
        parse_study(
            "title = 'x'\n# a note\n" + LEAST + "[output]\nfolder = 'b'\n", path
        ).fingerprint
        == one
    )
    assert parse_study(LEAST.replace("epsilon = 1", "epsilon = 2"), path).fingerprint != one


def test_a_draft_can_be_read_and_says_what_was_meant(tmp_path: Path) -> None:
    draft = draft_study("digits", base=tmp_path)
    study = parse_study(draft.as_toml(), tmp_path / "study.toml")
    assert (study.data.source, study.data.clients) == ("digits", 60)
    for line in draft.as_toml().splitlines():
        assert len(line) <= 100


def test_a_draft_writes_any_value_so_that_it_is_read_back() -> None:
    said = {
        "data": {"source": 'a "b"\\c', "clients": 3, "ranges": {"blood p": [0.0, 1e-7]},
                 "categories": {"ü": ["x", 'y"']}},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
        "then": {"what": "nothing"},
    }  # fmt: skip
    study = parse_study(Draft(said).as_toml(), Path("study.toml"))
    assert study.data.source == 'a "b"\\c'
    assert study.data.ranges == {"blood p": [0.0, 1e-7]}
    assert study.data.categories == {"ü": ["x", 'y"']}
    assert Kind.TABLE in {key.kind for key in KEYS}
