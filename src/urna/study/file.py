"""A study, from a file or from options: checked once, and from then on trusted.

What is wrong is told all at once, a line each: the file and the line, or the option; what should
hold; what was found.
"""

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from urna.data.coding import fault_of
from urna.errors import ParameterError, UnknownName
from urna.privacy import Unit
from urna.space import Space
from urna.study.keys import Path as At
from urna.study.keys import Wrong, dotted, found, quoted_key, shown
from urna.study.lines import find_lines
from urna.study.schema import (
    SECTIONS,
    STAGES,
    AboutPart,
    AveragePart,
    CombinePart,
    DataPart,
    EnginePart,
    Follow,
    ObjectivePart,
    OutputPart,
    PrivacyPart,
    TrainPart,
    VotePart,
    keys_of,
)
from urna.systems.combine import STRATEGIES, Guarantee

__all__ = ["RENAMED", "Study", "as_toml", "make_study", "parse_study", "read_study"]

_LONGEST_NAME = 64
_NODE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
_IN_MEMORY = ("sampling", "part", "record_clip", "validate", "stop_early", "tail")
_BROKEN = re.compile(r"\(at line (\d+), column \d+\)")

RENAMED: Mapping[str, str] = {
    "data.client": "data.client_column",
    "data.record": "data.record_column",
    "vote.summation": "privacy.summation",
    "vote.anyway": "vote.force",
    "train.anyway": "train.force",
    **{
        f"then.{name}": f"train.{name}"
        for name in (
            *("rounds", "lr", "epochs", "batch_size", "clip"),
            *("optimiser", "server_lr", "momentum", "tail"),
        )
    },
    "then.anyway": "train.force",
    "then.learner": "average.learner",
    "then.strategy": "combine.strategy",
}
"""Keys of files of version 0.2 and what they are called now; `then.what` named the section."""


@dataclass(frozen=True, slots=True)
class Study:
    """One study: data, candidates, objective, budget, and what is done with them."""

    path: Path
    text: str = field(repr=False)
    title: str
    seed: int
    data: DataPart
    space: Space | None
    """None where the model's own candidates are voted on."""
    objective: ObjectivePart
    privacy: PrivacyPart
    vote: VotePart
    train: TrainPart
    average: AveragePart
    combine: CombinePart
    engine: EnginePart
    output: OutputPart
    about: AboutPart
    votes: bool
    """Whether there is a vote; without one its follower stands alone."""
    follow: Follow
    """What follows the vote, or stands alone."""
    places: Mapping[At, str] = field(repr=False)
    """Where each section and key was said: a line of the file, or an option."""

    @property
    def base(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.path.parent

    @property
    def folder(self) -> Path:
        """Where everything is written."""
        return self.base / self.output.folder

    @property
    def fingerprint(self) -> str:
        """A digest of all that must not change while a study is interrupted."""
        values = tomllib.loads(self.text)
        for name in ("title", "output", "about"):
            values.pop(name, None)
        said = json.dumps(values, sort_keys=True, default=str)
        return hashlib.sha256(b"urna study\0" + said.encode()).hexdigest()

    def error(self, key: str, message: str) -> ParameterError:
        """Return an error that names the place of a key: a line of the file, or its option."""
        place, _ = _place(tuple(key.split(".")), self.places)
        return ParameterError(f"{place}: {message}" if place else message)

    @contextmanager
    def blaming(self, key: str) -> Iterator[None]:
        """Add the place of a key to what is refused in the block."""
        try:
            yield
        except ParameterError as error:
            raise self.error(key, str(error)) from error


def read_study(path: Path | str) -> Study:
    """Read a study file.

    Raises:
        ParameterError: It is not there, is no TOML, or keys or values cannot be; each line names
            the file, the line, what should hold and what was found.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "study.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ParameterError(
            f"cannot read the study {path}: {error.strerror}. `urna init` writes one"
        ) from error
    except UnicodeDecodeError as error:
        raise ParameterError(f"{path}: a study is a text in UTF-8") from error
    return parse_study(text, path)


def parse_study(text: str, path: Path) -> Study:
    """Read a study from its text; `path` is where it is said to stand."""
    try:
        values = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, too
        broken = _BROKEN.search(str(error))
        line = f":{broken.group(1)}" if broken else ""
        said = _BROKEN.sub("", str(error)).strip()
        raise ParameterError(f"{path}{line}: this is no TOML: {said}") from error
    places = {at: f"{path}:{line}" for at, line in find_lines(text).items()}
    return make_study(values, {(): f"{path}", **places}, text=text, path=path)


def make_study(
    values: Mapping[str, Any], places: Mapping[At, str], *, path: Path, text: str | None = None
) -> Study:
    """Check plain values, and make a study of them.

    Args:
        values: What is said, by section and key.
        places: Where it is said: a file and a line, or an option, which begins with `-`.
        path: Where the file stands, or would.
        text: What the file holds; written anew by default.

    Raises:
        ParameterError: Something cannot be; a line each.
    """
    text = as_toml(values) if text is None else text
    values, places = _renamed(values, places)
    wrong: list[Wrong] = []
    parts = {name: _part(name, values, wrong) for name in SECTIONS if name != "space"}
    space = _space(values.get("space"), wrong)
    known = [*keys_of(""), *(name for name in SECTIONS if name)]
    for name in values:
        if name not in known:
            wrong.append(_unknown("", name, known))
    named = [name for name in STAGES[1:] if name in values]
    if len(named) > 1:
        wrong.append(
            Wrong(
                (named[1],), f"one stage follows the vote, and [{named[0]}] is named: leave one out"
            )
        )
    if wrong:
        raise _told(wrong, places)
    head = parts.pop("")
    study = Study(
        path=path,
        text=text,
        title=head.title,
        seed=head.seed,
        space=space,
        votes="vote" in values or not named,
        follow=Follow(named[0]) if named else Follow.NOTHING,
        places=places,
        **parts,
    )
    if wrong := [Wrong(tuple(key.split(".")), why) for key, why in _clashes(study)]:
        raise _told(wrong, places)
    return study


def as_toml(values: Mapping[str, Any]) -> str:
    """Return plain values as the text of a file."""
    lines = [f"{name} = {shown(each)}" for name, each in values.items() if not _is_table(each)]
    for name, section in values.items():
        if _is_table(section):
            lines += ["", f"[{name}]"]
            lines += [f"{quoted_key(key)} = {shown(value)}" for key, value in section.items()]
    return "\n".join(lines) + "\n"


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _renamed(
    values: Mapping[str, Any], places: Mapping[At, str]
) -> tuple[dict[str, Any], dict[At, str]]:
    """Return values and places of a file of version 0.2 as they are called now."""
    made = {name: dict(each) if _is_table(each) else each for name, each in values.items()}
    where = dict(places)
    then = made.get("then")
    follow = ""
    if isinstance(then, dict):
        follow = str(then.get("what", "nothing"))
        if follow in list(Follow):
            made.setdefault("vote", {})
            del made["then"]
            if follow != Follow.NOTHING:
                made.setdefault(follow, {})
                where.setdefault((follow,), where.get(("then", "what"), ""))
    for old, new in RENAMED.items():
        section, _, name = old.partition(".")
        home, _, called = new.partition(".")
        source = then if section == "then" else made.get(section)
        if not isinstance(source, dict) or name not in source:
            continue
        value = source.pop(name)
        if section != "then" or home == follow:
            made.setdefault(home, {}).setdefault(called, value)
            where[home, called] = where.get((section, name), "")
    return made, where


def _part(name: str, values: Mapping[str, Any], wrong: list[Wrong]) -> Any:  # noqa: ANN401 - a section
    """Return a section, or note what is wrong with it."""
    known = keys_of(name)
    said = values.get(name, {}) if name else {k: v for k, v in values.items() if k in known}
    if not isinstance(said, Mapping):
        wrong.append(Wrong((name,), f"[{name}] is a section; got {found(said)}"))
        return None
    unknown = [key for key in said if key not in known]
    wrong += [_unknown(name, key, [*known]) for key in unknown]
    made = {}
    for entry in known.values():
        try:
            if entry.name in said:
                made[entry.name] = entry.read(said[entry.name])
            elif not entry.required:
                made[entry.name] = entry.default
            elif not difflib.get_close_matches(entry.name, unknown, n=1):
                says = entry.key.says[0].lower() + entry.key.says[1:].rstrip(".")
                wrong.append(Wrong((name,), f"[{name}] must name `{entry.name}`: {says}"))
        except Wrong as error:
            wrong.append(error)
    return SECTIONS[name](**made) if len(made) == len(known) else None


def _space(said: Any, wrong: list[Wrong]) -> Space | None:  # noqa: ANN401 - whatever a file holds
    """Return the candidates, by their axes or as a space file has them."""
    if not said:
        return None
    whole = isinstance(said, Mapping) and isinstance(said.get("axes"), list)
    if isinstance(said, Mapping) and not whole:
        for name, entry in said.items():
            try:
                Space.from_mapping({"axes": {name: entry}})
            except ParameterError as error:
                wrong.append(Wrong(("space", name), str(error)))
                return None
    try:
        return Space.from_mapping(said if whole else {"axes": said})
    except ParameterError as error:
        wrong.append(Wrong(("space",), str(error)))
        return None


def _unknown(section: str, name: str, known: list[str]) -> Wrong:
    at = (section, name) if section else (name,)
    elsewhere = [dotted((s, name)) for s in SECTIONS if s and name in keys_of(s)]
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean `{match[0]}`?" if match else f"known are {', '.join(known)}"
    hint = f"there is `{elsewhere[0]}`" if elsewhere else hint
    what = "key" if section else "key or section"
    return Wrong(at, f"unknown {what} `{dotted(at)}`; {hint}")


def _place(at: At, places: Mapping[At, str]) -> tuple[str, At]:
    """Return the nearest place that is known, and what of the path it stands for."""
    while at and not places.get(at):
        at = at[:-1]
    return places.get(at, ""), at


def _told(wrong: list[Wrong], places: Mapping[At, str]) -> ParameterError:
    """Return one error that tells everything, a line each."""
    lines = []
    for each in wrong:
        place, at = _place(each.at, places)
        option = place.startswith("-") and at == each.at
        subject = "" if option or not each.of_key else f"`{dotted(each.at)}` "
        between = " " if option and each.of_key else ": "
        lines.append(f"{place}{between if place else ''}{subject}{each}")
    return ParameterError("\n".join(lines))


def _clashes(study: Study) -> Iterator[tuple[str, str]]:
    """Yield the keys that single values allow and that together cannot be, and why."""
    privacy = study.privacy
    unit = privacy.relation.unit
    if privacy.adjacency is not None and unit is not privacy.unit:
        yield (
            "privacy.adjacency",
            f"{privacy.adjacency} protects a {unit}, and unit says {privacy.unit}: leave one of "
            "them out",
        )
    if privacy.shards > 1 and unit is Unit.CLIENT:
        yield (
            "privacy.shards",
            f"{privacy.shards} shards make every client add up {privacy.shards} ballots, under "
            'noise made for one: say unit = "record" as well, which protects single records',
        )
    if unit is Unit.RECORD and study.follow is Follow.TRAIN and study.votes:
        yield (
            "train",
            '`train` after a vote protects whole clients; with unit = "record" there are '
            "`average` and a vote alone",
        )
    if study.follow is Follow.TRAIN and not study.votes:
        yield from _clashes_of_records(study, by_record=unit is Unit.RECORD)
    lists: dict[str, Any] = {
        f"categories.{name}": known for name, known in study.data.categories.items()
    }
    lists["classes"] = study.data.classes
    yield from ((f"data.{name}", says) for name in lists if (says := fault_of(lists[name])))
    if study.data.classes and study.data.span:
        yield "data.span", "name `classes` or a `span`, not both"
    if study.data.span is not None and study.data.span[0] >= study.data.span[1]:
        yield "data.span", "a span is two numbers, the smaller first"
    if study.train.stop_early and not study.train.validate:
        yield "train.stop_early", "stopping early looks at the private tally: say validate as well"
    if study.follow is Follow.COMBINE:
        yield from _clashes_of_combining(study)
    if study.votes:
        yield from _clashes_of_vote(study)
        if study.follow is Follow.AVERAGE and study.average.voted_on == "moments":
            yield "average.learner", "moments have no settings to vote on: leave `learner` out"
    if study.engine.federation and study.engine.kind != "flower":
        yield "engine.federation", 'a federation is Flower\'s: say kind = "flower"'
    if study.engine.kind == "flower":
        yield from _clashes_over_flower(study)


def _clashes_of_records(study: Study, *, by_record: bool) -> Iterator[tuple[str, str]]:
    if by_record and study.train.record_clip is None:
        typed = any(place.startswith("-") for place in study.places.values())
        say = "--set train.record_clip=1.0" if typed else "record_clip = 1.0 under [train]"
        yield (
            "privacy.unit",
            f"training protects single records by clipping each one's gradient: say {say}",
        )
    if not by_record and study.train.record_clip is not None:
        yield (
            "train.record_clip",
            'a clip of single records protects these alone: say unit = "record" as well',
        )


def _clashes_of_combining(study: Study) -> Iterator[tuple[str, str]]:
    said = study.combine
    if study.privacy.relation.unit is Unit.RECORD:
        yield "combine", "`combine` protects whole clients, not single records"
    known = [*STRATEGIES, "vote"] if not study.votes else ["mean", "top-mean"]
    if said.strategy not in known:
        yield "combine.strategy", str(UnknownName("strategy", said.strategy, known))
    for name in keys_of("combine") if study.votes else ():
        if name != "strategy" and _said(said, name):
            yield f"combine.{name}", f"`{name}` is of searches that were recorded: leave it out"
    of_keys = said.threshold is not None or said.recompute
    if of_keys and said.guarantee is not Guarantee.ENCRYPTION:
        yield (
            "combine.guarantee",
            f"threshold and recompute belong to the guarantee encryption; this is {said.guarantee}",
        )


def _clashes_of_vote(study: Study) -> Iterator[tuple[str, str]]:
    vote, summation = study.vote, study.privacy.summation
    if summation == "encrypted" and study.privacy.server == "dishonest":
        yield "privacy.server", "threshold encryption trusts its server: leave `server` out"
    if not vote.winner:
        for name in ("helper", "verified"):
            if getattr(vote, name):
                yield f"vote.{name}", 'only a winner is opened with a helper: say opens = "winner"'
    elif not vote.helper.strip():
        yield (
            "vote.opens",
            "opening only the winner takes a helper, an organisation that does not collude with "
            'the leader: name it, helper = "..."',
        )
    elif len(vote.helper) > _LONGEST_NAME or not vote.helper.isprintable():
        yield "vote.helper", f"a helper's name has {_LONGEST_NAME} signs at most"
    if vote.winner and summation != "secure":
        yield (
            "privacy.summation",
            "only the winner is opened of secret sums: leave `summation` out",
        )
    if summation == "pipelined":
        yield "privacy.summation", "ballots are not summed in chunks: leave `pipelined` out"
    yield from _clashes_of_reading(study)


def _clashes_of_reading(study: Study) -> Iterator[tuple[str, str]]:
    vote = study.vote
    own = [name for name in ("ballot", "votes", "decoder") if _said(vote, name)]
    for name in own if vote.winner else ():
        yield (
            f"vote.{name}",
            "where only the winner is opened ballots are levels, and there is no tally to read: "
            f"leave `{name}` out",
        )
    if vote.rehearse and (vote.winner or study.follow is not Follow.NOTHING):
        yield (
            "vote.rehearse",
            "`rehearse` is of a vote alone that opens a tally: leave it out",
        )


def _said(part: Any, name: str) -> bool:  # noqa: ANN401 - a section
    """Say whether a key is not as it is by default."""
    section = next(s for s in SECTIONS if SECTIONS[s] is type(part))
    return bool(getattr(part, name) != keys_of(section)[name].default)


def _clashes_over_flower(study: Study) -> Iterator[tuple[str, str]]:
    engine = study.engine
    if study.votes and study.vote.winner:
        yield from _clashes_of_winner_over_flower(study)
    if study.follow not in (Follow.NOTHING, Follow.TRAIN) or not study.votes:
        alone = "" if study.votes else " without a vote"
        yield (
            str(study.follow),
            f'`{study.follow}`{alone} runs in memory: say kind = "memory" under [engine]',
        )
    for name in _IN_MEMORY if study.follow is Follow.TRAIN else ():
        if _said(study.train, name):
            yield f"train.{name}", f"`{name}` is of trainings in memory: leave it out over Flower"
    if study.privacy.summation != "secure":
        yield "privacy.summation", "over Flower ballots are always summed by masks"
    if study.privacy.server == "dishonest" and not engine.federation:
        yield (
            "privacy.server",
            "against a dishonest server nodes need a directory of keys, which simulated ones "
            "have not",
        )
    if engine.federation and engine.nodes < 2:
        yield "engine.federation", "a federation must name `nodes`, two or more"


def _clashes_of_winner_over_flower(study: Study) -> Iterator[tuple[str, str]]:
    vote, engine = study.vote, study.engine
    if vote.verified and not engine.federation:
        yield (
            "vote.verified",
            "verified ballots are signed, and simulated nodes have no keys: say kind = "
            '"memory" under [engine], or name a federation',
        )
    if study.privacy.scripted_secrets:
        yield (
            "privacy.scripted_secrets",
            "the noise around a winner comes from the coins of server and helper, which over "
            "Flower are never scripted: leave it out",
        )
    if engine.federation and not engine.directory:
        yield (
            "vote.helper",
            "nodes believe a helper's name only where sums are signed: name the `directory` of "
            "keys under [engine]",
        )
    if not _NODE.fullmatch(vote.helper) or (vote.helper.isdecimal() and not engine.federation):
        yield (
            "vote.helper",
            "over Flower a helper is a node: its name is of letters, digits, points, dashes and "
            "underscores, and no number, which simulated clients are called by",
        )
