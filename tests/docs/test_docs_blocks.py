"""Every block of README and docs is run as it stands, or says why it cannot be."""

import re
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import HOUSE, PAGES, SHELL, Block, Reader, blocks, read_before, run_by

pytest.importorskip("torch", reason="some of the blocks are PyTorch's")
pytest.importorskip("flwr", reason="some of the blocks are about Flower")

SHOWN = ("", "text", "html", "{toctree}", "{include} ../CHANGELOG.md")  # nothing to run
RUN = ("python", "toml", *SHELL)
WAYS = re.compile(r"|audit|no: \S.{10,}|file [\w./-]+")


def work_of(page: str) -> list[Block]:
    """Return the blocks of a page that this runner runs."""
    other = ("python", "toml") if run_by(page) else ()
    return [b for b in blocks(page) if b.language in RUN and b.language not in other]


def short_work_before(page: str) -> list[Block]:
    """Return what a reader of a page has done before it."""
    earlier = read_before(page)
    return [b for b in work_of(earlier) if not b.long] if earlier else []


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # a cache's usual place
    reader = Reader(tmp_path)
    yield reader
    reader.close()


@pytest.mark.parametrize("page", [p for p in PAGES if any(not b.long for b in work_of(p))])
def test_every_block_of_a_page_runs_as_it_stands(page: str, reader: Reader) -> None:
    work = [b for b in (*short_work_before(page), *work_of(page)) if not b.long]
    done = [reader.read(block) for block in work]
    assert sum(done) == sum(not block.run.startswith("no: ") for block in work)


@pytest.mark.audit
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [p for p in PAGES if any(b.long for b in work_of(p))])
def test_the_long_blocks_of_a_page_run_in_their_places(page: str, reader: Reader) -> None:
    work = [*short_work_before(page), *work_of(page)]
    done = [reader.read(block) for block in work]
    assert sum(done) == sum(not block.run.startswith("no: ") for block in work)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_is_without_a_runner(page: str) -> None:
    for block in blocks(page):
        assert block.language in RUN + SHOWN, f"{block.place}: nobody runs {block.language!r}"
        assert WAYS.fullmatch(block.run), f"{block.place}: what is run: {block.run}?"


@pytest.mark.parametrize("page", PAGES)
def test_no_command_hides_outside_of_a_block(page: str) -> None:
    text = (HOUSE / page).read_text(encoding="utf-8")
    for block in blocks(page):
        assert "```" not in block.text, f"{block.place} is not closed"
        text = text.replace(block.text, "")
    command = r"\$? ?(?:urna|python|pip|flwr|flower-\w+|make|export|cd) .*$"
    assert re.findall(rf"^(?: {{4,}}|\t){command}", text, flags=re.MULTILINE) == [], page
    for block in blocks(page):
        if block.language in SHOWN:
            assert not re.search(rf"^{command}", block.text, flags=re.MULTILINE), block.place


def test_few_blocks_are_never_run() -> None:
    never = [b for page in PAGES for b in blocks(page) if b.run.startswith("no: ")]
    ever = [b for page in PAGES for b in blocks(page) if b.language in RUN]
    assert len(ever) > 80
    assert len(never) <= len(ever) / 10, [b.place for b in never]


@pytest.mark.parametrize("page", [page for page in PAGES if run_by(page)])
def test_a_page_that_names_its_test_is_read_by_it(page: str) -> None:
    test = HOUSE / run_by(page)
    assert test.exists()
    assert Path(page).name in test.read_text(encoding="utf-8")


def test_links_of_all_pages_lead_somewhere() -> None:
    missing, links = [], 0
    for name in (*PAGES, "CHANGELOG.md"):
        page = HOUSE / name
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            links += 1
            if not (page.parent / link).exists() and "generated/" not in link:
                missing.append(f"{page.name}: {link}")
    assert links > 30
    assert missing == []


class TestTheRunnerItself:
    """What the tests above rest on."""

    def block(self, language: str, text: str, run: str = "") -> Block:
        return Block("page.md", 1, language, text, run)

    def test_python_goes_on_where_the_last_block_ended(self, reader: Reader) -> None:
        reader.read(self.block("python", "a = 1\n"))
        with pytest.raises(AssertionError):
            reader.read(self.block("python", "assert a == 2\n"))

    def test_a_command_that_fails_is_told(self, reader: Reader) -> None:
        reader.read(self.block("sh", "echo hello > greeting\n"))
        with pytest.raises(AssertionError, match="ended with 1"):
            reader.read(self.block("sh", "grep bye greeting\ntrue\n"))

    def test_what_a_command_printed_is_not_typed(self, reader: Reader) -> None:
        reader.read(self.block("console", "$ echo hello > greeting\nfalse\n"))
        assert Path("greeting").read_text() == "hello\n"

    def test_a_target_that_is_not_there_is_told(self, reader: Reader) -> None:
        reader.read(self.block("sh", "make check\n"))
        with pytest.raises(AssertionError, match="No rule"):
            reader.read(self.block("sh", "make nothing\n"))

    def test_toml_is_parsed(self, reader: Reader) -> None:
        with pytest.raises(tomllib.TOMLDecodeError):
            reader.read(self.block("toml", "a = \n"))

    def test_a_file_is_there_for_the_blocks_below(self, reader: Reader) -> None:
        reader.read(self.block("python", "value = 3\n", "file app/task.py"))
        reader.read(self.block("sh", "cd app\npython -c 'import task; assert task.value == 3'\n"))

    def test_what_cannot_be_run_is_said_not_to_have_been(self, reader: Reader) -> None:
        assert not reader.read(self.block("sh", "false\n", "no: it always fails"))
        assert not reader.read(self.block("text", "false\n"))
        assert reader.read(self.block("sh", "true\n"))

    def test_what_goes_on_running_is_ended(self, reader: Reader) -> None:
        reader.read(self.block("sh", "sleep 300 > /dev/null 2>&1 &\necho $! > pid\n"))
        reader.close()
        stat = Path("/proc") / Path("pid").read_text().strip() / "stat"
        deadline = time.monotonic() + 60
        while stat.exists() and ") Z " not in stat.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert time.monotonic() < deadline
