"""The README's example runs as printed."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_example_runs_as_written() -> None:
    text = README.read_text(encoding="utf-8")
    code, *_ = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    winner, statement = printed.getvalue().strip().split("\n")
    shown = re.findall(r"```\n(\{.*?)```", text, flags=re.DOTALL)[0].split("\n", 1)
    assert winner.startswith("{'eta0': ")
    assert statement == " ".join(shown[1].split())  # the same words, however they are wrapped


def test_every_file_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README.read_text(encoding="utf-8"))
    missing = [link for link in links if not (README.parent / link).exists()]
    assert len(links) > 5
    assert missing == []
