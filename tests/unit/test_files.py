"""Files: whole or not at all, and there is room for them before anything is paid."""

import errno
import hashlib
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from forks import environment

from urna.errors import OutputError, ParameterError
from urna.files import (
    check_folder,
    digest_of,
    read_json,
    write_json,
    write_whole,
)


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("content", ["grüße\n", b"\0\1\2", "", b"x" * 3_000_000], ids=type)
def test_a_file_holds_what_was_written_and_its_digest_says_so(
    tmp_path: Path, content: str | bytes
) -> None:
    path = tmp_path / "result"
    data = content.encode() if isinstance(content, str) else content
    assert write_whole(path, content) == digest_of(path) == hashlib.sha256(data).hexdigest()
    assert path.read_bytes() == data
    assert listed(tmp_path) == ["result"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    """Who has it open goes on reading the old one."""
    path = tmp_path / "result"
    write_whole(path, "old")
    with path.open() as reader:
        write_whole(path, "new")
        assert reader.read() == "old"
    assert path.read_text() == "new"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_what_was_there_stays_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "result"
    write_whole(path, "old")

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OutputError, match=r"cannot write .*result: No space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert listed(tmp_path) == ["result"], "and nothing half-written"


@pytest.mark.parametrize("ending", [KeyboardInterrupt, MemoryError])
def test_an_interruption_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: type[BaseException]
) -> None:
    def stop(*_: object) -> None:
        raise ending

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(ending):
        write_whole(tmp_path / "result", "new")
    assert listed(tmp_path) == []


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> object:
    """Let no file of this process grow beyond 64 KiB: a full disk, as far as it can tell."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures("small_files")
class TestAFullDisk:
    def test_a_file_that_does_not_fit_is_not_there_at_all(self, tmp_path: Path) -> None:
        with pytest.raises(OutputError, match="cannot write"):
            write_whole(tmp_path / "large", bytes(1 << 17))
        assert listed(tmp_path) == []
        write_whole(tmp_path / "small", b"fits")

    def test_the_file_before_it_stays(self, tmp_path: Path) -> None:
        write_whole(tmp_path / "result", "old")
        with pytest.raises(OutputError):
            write_whole(tmp_path / "result", bytes(1 << 17))
        assert (tmp_path / "result").read_text() == "old"


def test_a_full_file_system_is_told_as_such(tmp_path: Path) -> None:
    """On a file system of one megabyte, where we may make one."""
    mounted = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("this machine lets us mount nothing")
    code = (
        "import sys, pathlib; from urna.files import write_whole\n"
        "from urna.errors import OutputError\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "write_whole(folder / 'kept', b'k' * 400_000)\n"
        "try: write_whole(folder / 'kept', b'n' * 900_000)\n"
        "except OutputError as error: print(error)\n"
        "print((folder / 'kept').read_bytes() == b'k' * 400_000, len(list(folder.iterdir())))\n"
    )
    shell = f'mount -t tmpfs -o size=1m none "{tmp_path}" && exec "$0" -c "$1" "{tmp_path}"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", shell, sys.executable, code],
        check=True,
        capture_output=True,
        text=True,
        env=environment(),
    )
    lines = done.stdout.splitlines()
    assert lines[0].endswith("No space left on device")
    assert lines[1] == "True 1"


@pytest.mark.parametrize("work", [write_whole, write_json])
def test_a_folder_that_is_not_there_is_told(tmp_path: Path, work: object) -> None:
    content = {} if work is write_json else ""
    with pytest.raises(OutputError, match="No such file or directory"):
        work(tmp_path / "nowhere" / "result", content)  # type: ignore[operator]


def test_a_folder_is_tried_before_work_is_done_for_it(tmp_path: Path) -> None:
    check_folder(tmp_path / "deep" / "er")
    assert listed(tmp_path / "deep" / "er") == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="cannot write to"):
        check_folder(tmp_path / "file")
    with pytest.raises(OutputError, match="cannot write to"):
        check_folder(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_one_may_not_write_to_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        check_folder(tmp_path)


class TestJson:
    def test_values_come_back(self, tmp_path: Path) -> None:
        values = {"a": [1, 2.5, None], "b": {"c": "ü"}}
        digest = write_json(tmp_path / "v.json", values)
        assert read_json(tmp_path / "v.json") == values
        assert digest == digest_of(tmp_path / "v.json")

    def test_numbers_that_json_has_not_are_never_written(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "v.json", {"a": float("inf")})
        assert listed(tmp_path) == []

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            (b"[1, 2]", "holds no JSON object"),
            (b"3", "holds no JSON object"),
            (b'{"a": 1', "is no JSON file"),
            (b"", "is no JSON file"),
            (b"\xff\xfe", "is no JSON file"),
            (b"[" * 200_000, "is no JSON file"),
        ],
    )
    def test_what_is_no_object_is_refused(self, tmp_path: Path, content: bytes, says: str) -> None:
        (tmp_path / "v.json").write_bytes(content)
        with pytest.raises(ParameterError, match=says):
            read_json(tmp_path / "v.json")

    def test_a_file_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(ParameterError, match=r"cannot read .*No such file"):
            read_json(tmp_path / "v.json")
        with pytest.raises(ParameterError, match=r"cannot read .*directory"):
            read_json(tmp_path)


@pytest.mark.audit
def test_a_kill_at_any_moment_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    """Two hundred kills, at moments spread over a loop of writes."""
    code = (
        "import sys, pathlib; from urna.files import write_json\n"
        "path, n = pathlib.Path(sys.argv[1]), 0\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    n += 1\n"
        "    write_json(path, {'n': n, 'rest': [n] * 20_000})\n"
    )
    path = tmp_path / "v.json"
    for turn in range(200):
        child = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, env=environment()
        )
        assert child.stdout is not None
        child.stdout.readline()
        try:
            child.wait(0.002 * (turn % 25))
        except subprocess.TimeoutExpired:
            child.kill()
        child.wait()
        child.stdout.close()
        if path.exists():
            values = json.loads(path.read_text())
            assert values["rest"] == [values["n"]] * 20_000


def test_a_folder_on_a_full_disk_is_refused_before_work_is_done(tmp_path: Path) -> None:
    """A full disk makes empty files still; a limit on the size of files stands for it here."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OutputError, match="cannot write to"):
            check_folder(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
