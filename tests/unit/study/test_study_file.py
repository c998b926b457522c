# ruff: noqa: E501 - messages stand here as they are printed
"""Study files: what every key may be, and one line for whatever is wrong."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from urna.errors import ParameterError
from urna.privacy import Adjacency, Unit
from urna.study import read_study
from urna.study.draft import Draft, draft_study
from urna.study.file import RENAMED, parse_study
from urna.study.lines import find_lines
from urna.study.schema import SECTIONS, DataPart, Follow, keys_of, keys_table
from urna.systems.combine import STRATEGIES
from urna.systems.train.optimisers import OPTIMISERS

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "study.md"
LEAST = '[data]\nsource = "digits"\n[privacy]\nepsilon = 1\ndelta = 1e-5\n'


def test_every_key_is_explained_and_no_option_has_two_keys() -> None:
    entries = [entry for section in SECTIONS for entry in keys_of(section).values()]
    assert all(entry.key.says.endswith(".") for entry in entries)
    for command in {name for entry in entries for name in entry.key.on.split()}:
        options = [entry.option for entry in entries if command in entry.key.on.split()]
        assert len(options) == len(set(options)), command


@pytest.mark.parametrize(
    ("section", "name", "known"),
    [("train", "optimiser", OPTIMISERS), ("combine", "strategy", STRATEGIES)],
)
def test_names_in_the_schema_are_known(
    section: str, name: str, known: Mapping[str, object]
) -> None:
    assert set(keys_of(section)[name].kind.choices) <= known.keys()


def test_the_guide_lists_every_key() -> None:
    assert keys_table().strip() in GUIDE.read_text(encoding="utf-8")


def test_lines_are_not_found_inside_of_texts_and_lists() -> None:
    text = 'x = """\n[a]\nb = 1\n"""\ny = [\n "c = 1",\n]\n[a]\nz = { p = 1, q.r = 2 }\n'
    assert find_lines(text) == {
        ("x",): 1, ("y",): 5, ("a",): 8, ("a", "z"): 9, ("a", "z", "p"): 9, ("a", "z", "q"): 9,
        ("a", "z", "q", "r"): 9,
    }  # fmt: skip


def test_lines_are_found() -> None:
    text = 'title = "x"\n\n[data]\nsource = "a = b"\n[data.ranges]\n"blood p" = [0, 1]\n[space]\nlr = [1]\n'
    assert find_lines(text) == {
        ("title",): 1, ("data",): 3, ("data", "source"): 4, ("data", "ranges"): 5,
        ("data", "ranges", "blood p"): 6, ("space",): 7, ("space", "lr"): 8,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[privacy]\n", "study.toml:6: this is no TOML: Cannot declare"),
        ("[voting]\n", "study.toml:6: unknown key or section `voting`; did you mean `vote`?"),
        ("unit = 'clients'", "study.toml:6: `privacy.unit` is one of 'client', 'record'; got the text 'clients'. Did you mean 'client'?"),
        ("clients = 5", "study.toml:6: unknown key `privacy.clients`; there is `data.clients`"),
        ("dropout = true", "study.toml:6: `privacy.dropout` is a part of one, such as 0.2 or '1/5'; got true"),
        ("vote_share = 1.5", "study.toml:6: `privacy.vote_share` is 'auto', or a number, above 0 and below 1; got the number 1.5"),
        ("shards = 3", "study.toml:6: 3 shards make every client add up 3 ballots"),
        ("shards = -3", "study.toml:6: `privacy.shards` is a whole number, 1 or more; got the number -3"),
        ("adjacency = 'replace-one-record'", "study.toml:6: replace-one-record protects a record, and unit says client"),
        ("unit = 'record'\n[vote]\n[train]", "study.toml:8: `train` after a vote protects whole clients"),
        ("[train]\n[average]", "study.toml:7: one stage follows the vote, and [train] is named: leave one out"),
        ("[train]\nstop_early = true", "study.toml:7: stopping early looks at the private tally"),
        ("unit = 'record'\n[then]\nwhat = 'train'", "study.toml:8: `train` after a vote protects whole clients"),
        ("[engine]\nfederation = 'here'", "study.toml:7: a federation is Flower's"),
        ("[engine]\nkind = 'flower'\nfederation = 'here'", "study.toml:8: a federation must name `nodes`"),
        ("[engine]\nkind = 'flower'\n[vote]\nsummation = 'clear'", "study.toml:9: over Flower ballots are always summed by masks"),
        ("[vote]\n[train]\nvalidate = true\n[engine]\nkind = 'flower'", "study.toml:8: `validate` is of trainings in memory"),
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
        ("epsilon = 1", "epsilon = 0", "study.toml:4: `privacy.epsilon` is a number, above 0; got the number 0"),
        ("delta = 1e-5", "delta = 2.0", "study.toml:5: `privacy.delta` is a number, above 0 and below 1; got the number 2.0"),
        ("epsilon = 1\n", "", "study.toml:3: [privacy] must name `epsilon`: what everything together"),
        ("epsilon = 1", "epsilon = inf", "study.toml:4: `privacy.epsilon` is a number, above 0; got the number inf"),
        ('source = "digits"', "source = 'digits'\nspan = [3, 1]", "study.toml:3: a span is two numbers, the smaller first"),
        ('source = "digits"', "source = 'digits'\nclasses = ['a', 1]", "study.toml:3: `data.classes` is a list"),
        ('source = "digits"', "source = 'x'\nclasses = ['NA', 'EU']", "study.toml:3: a cell 'NA' is an empty one"),
        ('source = "digits"', "source = 'x'\ncategories.a = ['1', '1.0']", "study.toml:3: '1' and '1.0' are one value"),
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


def test_everything_that_is_wrong_is_told_at_once() -> None:
    more = "shards = 'x'\n[voting]\n[engine]\nkind = 'flwr'\n"
    with pytest.raises(ParameterError) as caught:
        parse_study(LEAST.replace("epsilon = 1\n", "") + more, Path("study.toml"))
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["3", "5", "8", "6"]


@pytest.mark.parametrize(
    ("more", "votes", "follow"),
    [
        ("", True, Follow.NOTHING),
        ("[vote]", True, Follow.NOTHING),
        ("[train]", False, Follow.TRAIN),
        ("[vote]\n[combine]", True, Follow.COMBINE),
    ],
)
def test_the_sections_that_are_named_say_what_is_done(
    more: str, votes: bool, follow: Follow
) -> None:
    study = parse_study(LEAST + more, Path("study.toml"))
    assert (study.votes, study.follow) == (votes, follow)


def test_a_file_of_an_earlier_version_says_the_same() -> None:
    """Keys that do not belong to what follows were passed over, and are."""
    said = "[vote]\nsummation = 'clear'\n[then]\nwhat = 'train'\nrounds = 7\nlearner = 'svm'\nanyway = true\n"
    old = LEAST.replace("[privacy]", "client = 'c'\nrecord = 'r'\n[privacy]") + said
    study = parse_study(old, Path("study.toml"))
    assert (study.votes, study.follow) == (True, Follow.TRAIN)
    assert (study.train.rounds, study.train.force) == (7, True)
    assert study.privacy.summation == "clear"
    assert (study.data.client_column, study.data.record_column) == ("c", "r")
    alone = parse_study(LEAST + "[then]\nwhat = 'nothing'\nrounds = 7", Path("study.toml"))
    assert (alone.votes, alone.follow) == (True, Follow.NOTHING)
    for new in RENAMED.values():
        section, _, name = new.partition(".")
        assert name in keys_of(section)


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
    draft = draft_study(DataPart(source="digits"), base=tmp_path)
    study = parse_study(draft.as_toml(), tmp_path / "study.toml")
    assert (study.data.source, study.data.clients) == ("digits", 60)
    for line in draft.as_toml().splitlines():
        assert len(line) <= 100


def test_a_draft_writes_any_value_so_that_it_is_read_back() -> None:
    said = {
        "data": {"source": 'a "b"\\c', "clients": 3, "ranges": {"blood p": [0.0, 1e-7]},
                 "categories": {"ü": ["x", 'y"']}},
        "privacy": {"epsilon": 1.0, "delta": 1e-5},
    }  # fmt: skip
    study = parse_study(Draft(said).as_toml(), Path("study.toml"))
    assert study.data.source == 'a "b"\\c'
    assert study.data.ranges == {"blood p": [0.0, 1e-7]}
    assert study.data.categories == {"ü": ["x", 'y"']}
