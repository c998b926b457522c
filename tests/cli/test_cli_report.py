"""`urna report` and `urna verify`: a page again from its file, signed, and checked."""

from pathlib import Path

import pytest
from commands import Command
from pages import RUN, made, read

from urna.files import digest_of, write_json


@pytest.fixture
def result(tmp_path: Path) -> Path:
    write_json(tmp_path / "result.json", made("vote").as_mapping() | {"run": RUN.as_mapping()})
    return tmp_path / "result.json"


def test_a_page_is_made_signed_and_verified(urna: Command, result: Path, tmp_path: Path) -> None:
    done = urna("report", tmp_path, "--format", "json").json()
    page = tmp_path / "report.html"
    assert done == {"written": str(page), "sha256": digest_of(page)}
    said = read(page.read_text(encoding="utf-8")).text
    assert "A page" in said  # the title that was kept
    assert digest_of(result) in said
    assert urna("verify", page, "--result", result, "--format", "json").json()["problems"] == []

    key, other = tmp_path / "anna.key", tmp_path / "other.key"
    public = urna("keys", "make", "anna", "--output", key, "--format", "json").json()["public"]
    stranger = urna("keys", "make", "anna", "--output", other, "--format", "json").json()["public"]
    signed = urna("report", result, "--sign", key, "--title", "Signed", "--output", page)
    assert signed.code == 0, signed.stderr
    checked = urna("verify", page, "--server-key", public, "--format", "json").json()
    assert checked["signed_by"] == "anna"
    assert checked["checked"] == {
        "the signature": True, "whose key it is": True, "the result": False,
    }  # fmt: skip
    refused = urna("verify", page, "--server-key", stranger)
    assert refused.code == 1
    assert "not signed by the key that was given" in refused.stdout


def test_a_changed_page_and_another_result_are_found(
    urna: Command, result: Path, tmp_path: Path
) -> None:
    urna("report", result)
    page, forged = tmp_path / "report.html", tmp_path / "forged.html"
    forged.write_text(page.read_text(encoding="utf-8").replace("1e-05", "1e-09"), encoding="utf-8")
    done = urna("verify", forged)
    assert done.code == 1
    assert "changed after it was written" in done.stdout
    write_json(tmp_path / "other.json", made("scripted").as_mapping())
    done = urna("verify", page, "--result", tmp_path / "other.json")
    assert done.code == 1
    assert "It is not about" in done.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("verify {folder}/none.html", "cannot read"),
        ("verify {folder}/plain.html", "no seal"),
        ("report {folder} --sign {folder}/none.key", "cannot read the key file"),
        ("report {folder} --sign {folder}/plain.html", "is no TOML file"),
        ("verify {folder}/report.html --server-key ???", "written in base64"),
        ("verify {folder}/report.html --result {folder}/none.json", "cannot read"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    urna: Command, result: Path, tmp_path: Path, words: str, why: str
) -> None:
    (tmp_path / "plain.html").write_text("<p>hello</p>")
    if "report.html" in words:
        urna("report", result)
    done = urna(*words.format(folder=tmp_path).split())
    assert why in done.refused(2)
