"""Writers in trouble: the file that was there stays whole, nothing is left beside it, and the error
is an OSError."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import disk
import kills
import pytest
import tenon as tn
from tenon.io import atomic, npy, safetensors
from tenon.vision.io import write_file


def traced(t: tn.Tensor) -> Any:
    """A function whose program holds t."""
    return tn.jit.trace(lambda x: x + t, tn.zeros(1))


class Adds(tn.nn.Module):
    def __init__(self, t: tn.Tensor) -> None:
        super().__init__()
        self.register_buffer("t", t)

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x + self.t


WRITERS: dict[str, Callable[[Any, Path], None]] = {
    "pt": tn.save,
    "npy": lambda t, path: npy.save(path, t),
    "safetensors": lambda t, path: safetensors.save_file({"t": t}, path),
    "tng": lambda t, path: tn.jit.save(traced(t), path),
    "exported.tng": lambda t, path: tn.export.save(tn.export.export(Adds(t), (tn.zeros(1),)), path),
    "bytes": lambda t, path: write_file(path, t.view(tn.uint8)),
}
KILLS = int(os.environ.get("TENON_TEST_KILLS", "8"))


def value_in(path: Path) -> float:
    t = tn.load(path)
    assert t.eq(t[0]).all()
    return float(t[0])


def alone(path: Path) -> bool:
    """Whether nothing but the file is in its folder."""
    return os.listdir(path.parent) == [path.name]


@pytest.fixture(params=[True, False], ids=["nameless", "named"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files that have no name until they are complete, and on file systems without them."""
    if not request.param:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # EISDIR, as from an old kernel


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize(("call", "code"), disk.TROUBLES)
def test_a_call_fails(
    kind: str, call: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"a.{kind}"
    WRITERS[kind](tn.ones(100), path)
    before = path.read_bytes()
    with disk.failing_calls(monkeypatch, call, code):
        try:
            WRITERS[kind](tn.zeros(100), path)
        except OSError as err:
            assert err.errno == code
            assert path.read_bytes() == before
        else:
            assert path.read_bytes() != before
    assert alone(path)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_may_not_grow(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    WRITERS[kind](tn.ones(100), path)
    before = path.read_bytes()
    with disk.file_size_limit(10_000), pytest.raises(OSError) as caught:
        WRITERS[kind](tn.zeros(100_000), path)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == before and alone(path)


@pytest.mark.usefixtures("ways")
def test_a_full_disk(tmp_path: Path) -> None:
    with disk.small_file_system(tmp_path / "small", 1 << 20) as folder:
        path = folder / "a.pt"
        tn.save(tn.full((100_000,), 1.0), path)
        with pytest.raises(OSError) as caught:
            tn.save(tn.full((200_000,), 2.0), path)
        assert caught.value.errno == errno.ENOSPC
        assert value_in(path) == 1 and alone(path)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("call", ["flock", "link", "rename", "fsync"])
def test_an_interrupted_writer(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C when the system has done something, and nobody has noted it."""
    path = tmp_path / "a.pt"
    tn.save(tn.full((100,), 1.0), path)
    where = atomic.fcntl if call == "flock" else os
    real = getattr(where, call)

    def interrupted(*given: Any, **more: Any) -> None:
        real(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(where, call, interrupted)
        try:
            tn.save(tn.full((100,), 2.0), path)
        except KeyboardInterrupt:
            pass
        else:
            assert call == "link"  # a file that had a name all the time gets none
    assert value_in(path) in (1, 2) and alone(path)


def test_an_interrupted_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor is closed once: another thread may have its number by then."""
    path = tmp_path / "a.pt"
    tn.save(tn.ones(3), path)
    real = atomic.io.FileIO

    def interrupted(*given: Any, **more: Any) -> None:
        real(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic.io, "FileIO", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tn.load(path)
    assert value_in(path) == 1


def test_too_many_open_files(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    tn.save(tn.ones(3), path)
    with disk.no_more_files():
        with pytest.raises(OSError):
            tn.save(tn.zeros(3), path)
        with pytest.raises(OSError):
            tn.load(path)
    assert value_in(path) == 1 and alone(path)


def test_places_that_are_no_files(tmp_path: Path) -> None:
    pipe, folder, loop = tmp_path / "pipe", tmp_path / "folder", tmp_path / "loop"
    os.mkfifo(pipe)
    folder.mkdir()
    loop.symlink_to(loop)
    for path in (pipe, folder, loop, tmp_path / "missing" / "a.pt", Path("/dev/full")):
        with pytest.raises(OSError):
            tn.save(tn.ones(3), path)
    for path in (pipe, folder, loop, tmp_path / "missing" / "a.pt", Path("/dev/zero")):
        for read in (tn.load, npy.load, safetensors.load_file, safetensors.metadata):
            with pytest.raises(OSError):
                read(path)
    tn.save(tn.ones(3), "/dev/null")


def test_programs_at_places_that_are_no_files(tmp_path: Path) -> None:
    """Nobody waits for somebody to write to a pipe; nothing of the system's is replaced."""
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    program = traced(tn.ones(3))
    for path in (pipe, folder, tmp_path / "missing" / "a.tng"):
        with pytest.raises(OSError):
            tn.jit.save(program, path)
    for path in (pipe, folder, tmp_path / "missing" / "a.tng", Path("/dev/zero")):
        for read in (tn.jit.load, tn.export.load, tn.onnx.load):
            with pytest.raises((OSError, RuntimeError, ValueError)):
                read(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_programs_that_cannot_be_opened(tmp_path: Path) -> None:
    """That is no fault of the file: by the classes that PyTorch's functions raise."""
    missing, kept = tmp_path / "missing.pt2", tmp_path / "kept.pt2"
    tn.jit.save(traced(tn.ones(3)), kept)
    for path, kind in ((missing, FileNotFoundError), (tmp_path, IsADirectoryError)):
        with pytest.raises(kind):
            tn.export.load(path)
        with pytest.raises(ValueError, match="The provided filename .* (does not exist|is a dir)"):
            tn.jit.load(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for load in (tn.jit.load, tn.export.load):
            with pytest.raises(OSError, match="Too many open files"):
                load(kept)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert tn.jit.load(kept)(tn.zeros(1)).tolist() == [1, 1, 1]


def test_a_pipe_with_a_reader(tmp_path: Path) -> None:
    pipe, copy = tmp_path / "pipe", tmp_path / "copy.pt"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: copy.write_bytes(pipe.read_bytes()), daemon=True)
    reader.start()
    while reader.is_alive() and not copy.exists():
        try:
            tn.save(tn.full((50_000,), 3.0), pipe)
        except OSError as err:  # the reader has not opened it yet
            assert err.errno == errno.ENXIO
        else:
            break
    reader.join(30)
    assert value_in(copy) == 3


@pytest.mark.usefixtures("ways")
def test_links_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "folder" / "real.pt", tmp_path / "link.pt"
    real.parent.mkdir()
    link.symlink_to(real)
    for n in (1.0, 2.0):  # the link leads nowhere at first
        tn.save(tn.full((3,), n), link)
        assert link.is_symlink() and value_in(real) == n and alone(real)


@pytest.mark.usefixtures("ways")
def test_modes_stay(tmp_path: Path) -> None:
    path, umask = tmp_path / "a.pt", os.umask(0o027)
    try:
        tn.save(tn.ones(3), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o606)
        tn.save(tn.ones(3), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o606
    finally:
        os.umask(umask)


def test_what_may_not_be_written(tmp_path: Path) -> None:
    """As a user who may not: root may do everything."""
    code = """
import os, sys, tenon as tn
from pathlib import Path
folder = Path(sys.argv[1])
tn.save(tn.ones(3), folder / "a.pt")
os.chmod(folder / "a.pt", 0o444)
os.mkdir(folder / "closed")
tn.save(tn.ones(3), folder / "closed" / "b.pt")
os.chmod(folder / "closed", 0o555)
for name in ("a.pt", "closed/b.pt", "closed/c.pt"):
    try:
        tn.save(tn.zeros(3), folder / name)
    except PermissionError:
        pass
    else:
        raise SystemExit(name)
assert tn.load(folder / "a.pt").tolist() == tn.load(folder / "closed" / "b.pt").tolist() == [1] * 3
os.chmod(folder / "closed", 0o755)
"""
    folder = tmp_path / "theirs"
    folder.mkdir()
    nobody = 65534 if os.geteuid() == 0 else os.geteuid()
    os.chown(folder, nobody, -1)

    def become() -> None:
        if os.geteuid() == 0:
            os.setuid(nobody)

    reachable = subprocess.run(["ls", str(folder)], preexec_fn=become, capture_output=True)
    if reachable.returncode != 0:
        pytest.skip("another user does not reach the folder of this test")
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], preexec_fn=become, capture_output=True, text=True
    )
    if "ModuleNotFoundError" in done.stderr or "Permission denied: '/root" in done.stderr:
        pytest.skip("another user does not reach this Python")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("ways")
def test_threads_write_one_path(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    tn.save(tn.full((1000,), -1.0), path)
    faults: list[BaseException] = []
    done = threading.Event()

    def write(n: int) -> None:
        try:
            for k in range(20):
                tn.save(tn.full((1000,), float(n * 100 + k)), path)
        except BaseException as err:
            faults.append(err)

    def read() -> None:
        try:
            while not done.is_set():
                value_in(path)
        except BaseException as err:
            faults.append(err)

    reader = threading.Thread(target=read)
    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert not faults and alone(path)


WRITE_FOR_EVER = """
import itertools, os, sys, tenon as tn
if sys.argv[2] == "named":
    os.O_TMPFILE = os.O_DIRECTORY
tn.save(tn.full((30_000,), 0.0), sys.argv[1])
print("ready", flush=True)
for n in itertools.count():
    tn.save(tn.full((30_000,), float(n)), sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["nameless", "named"])
def test_writers_are_killed(way: str, tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    kills.kill_at_random(WRITE_FOR_EVER, KILLS, 7, str(path), way)
    value_in(path)
    tn.save(tn.ones(3), path)
    assert value_in(path) == 1 and alone(path)


def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    living = atomic._Fresh(str(tmp_path), "a.pt", nameless=False)
    dead = tmp_path / living._other_name()
    dead.write_bytes(b"half")
    other = tmp_path / ".tenon-0000000000000000-1.tmp"
    other.write_bytes(b"of another path")
    tn.save(tn.ones(3), path)
    assert sorted(os.listdir(tmp_path)) == sorted([str(living.temporary), other.name, "a.pt"])
    living.close()
    other.unlink()
    assert alone(path)


@pytest.mark.parametrize("shared", [False, True])
def test_from_file_of_what_is_no_file(tmp_path: Path, shared: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, "/dev/zero"):
        with pytest.raises(RuntimeError, match="no regular file"):
            tn.from_file(place, shared, 4)
        with pytest.raises(RuntimeError, match="no regular file"):
            tn.UntypedStorage.from_file(place, shared, 4)
