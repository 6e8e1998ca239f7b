"""Memory that processes share, when they fork, are killed, lie, or have little of what it takes."""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
import tenon.multiprocessing as mp

FORK = mp.get_context("fork")


def script(text: str, *words: str) -> str:
    """What a program prints in a process of its own."""
    job = subprocess.run(
        [sys.executable, "-c", text, *words], capture_output=True, text=True, timeout=120
    )
    assert job.returncode == 0, job.stderr
    return job.stdout


# ---- Forks ---------------------------------------------------------------------------------------


def test_a_child_computes_after_its_parent_did() -> None:
    script("""
import os, time
import tenon as tn
tn.set_num_threads(3)
x = tn.ones(1 << 20)
assert x.exp().sum().item() > 0
began = time.monotonic()
child = os.fork()
if not child:
    good = x.exp().sum().item() == (x + 0).exp().sum().item() and tn.get_num_threads() == 3
    os._exit(0 if good else 1)
while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() - began < 30:
    time.sleep(0.01)
assert done == (child, 0), done
assert time.process_time() < 30
""")


def test_forks_among_threads_that_compute_and_share() -> None:
    script("""
import os, threading
import tenon as tn
over = threading.Event()
def work():
    while not over.is_set():
        kept = [tn.ones(n).share_memory_() for n in (3, 300, 3000)]
        assert sum(t.sum().item() for t in kept) == 3303
        tn.ones(1000).exp().sum()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for _ in range(60):
    child = os.fork()
    if not child:
        x = tn.arange(5.0).share_memory_()
        os._exit(0 if x.sum().item() == 10 else 1)
    assert os.waitpid(child, 0) == (child, 0)
over.set()
for thread in threads: thread.join()
""")


def test_what_a_fork_has_copied_is_not_used_again() -> None:
    """The child goes on with tensors that its parent has freed, and makes others."""
    ours, theirs = FORK.Pipe()
    keep = tn.zeros(1).share_memory_()
    tensors = [tn.full((n,), float(n)).share_memory_() for n in (1, 20, 300, 4000) * 5]
    child = os.fork()
    if not child:
        made = [tn.full((n,), -1.0).share_memory_() for n in (1, 20, 300, 4000) * 5]
        theirs.recv()
        good = all(bool((t == float(t.numel())).all()) for t in tensors)
        os._exit(0 if good and all(bool((t == -1).all()) for t in made) else 1)
    del tensors
    again = [tn.full((n,), 7.0).share_memory_() for n in (1, 20, 300, 4000) * 10]
    ours.send("go")
    assert os.waitpid(child, 0) == (child, 0)
    assert all(bool((t == 7).all()) for t in again) and keep.item() == 0


# ---- Libraries with threads ----------------------------------------------------------------------


@pytest.mark.parametrize("order", [("gomp", "openblas"), ("openblas", "gomp")])
def test_other_libraries_with_threads(order: tuple[str, str]) -> None:
    found = [ctypes.util.find_library(name) for name in order]
    if None in found:
        pytest.skip(f"one of {order} is missing")
    text = """
import ctypes, sys
for name in sys.argv[1:]: ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
import tenon as tn
tn.manual_seed(1)
x = tn.randn(300, 300)
print((x @ x).exp().sin().sum().item().hex(), len(x @ x))
"""
    assert script(text, *[str(name) for name in found]) == script(text)


# ---- Little memory, few files --------------------------------------------------------------------


def test_memory_is_reserved_when_it_is_made() -> None:
    """Pages that are not there end the process that touches them, so a lack is told before."""
    script("""
import resource
import tenon as tn
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
big = tn.ones(1 << 20)
try:
    big.share_memory_()
except MemoryError as error:
    assert "4194304 bytes of shared memory" in str(error), error
else:
    raise AssertionError("a file larger than allowed")
assert not big.is_shared() and big.sum().item() == 1 << 20
small = [tn.full((60000,), float(i)).share_memory_() for i in range(20)]  # segments would be larger
assert [t[-1].item() for t in small] == list(range(20))
""")


@contextlib.contextmanager
def few_files(most: int) -> Any:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def child_adds(connection: Any) -> None:
    with few_files(1024):
        tensors = connection.recv()
        for t in tensors:
            t += 1
        connection.send([int(t[0].item()) for t in tensors])
        connection.recv()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ten_thousand_tensors(method: str) -> None:
    context = mp.get_context(method)
    ours, theirs = context.Pipe()
    child = context.Process(target=child_adds, args=(theirs,))
    child.start()
    with few_files(1024):
        tensors = [tn.full((1 + i % 900,), float(i)).share_memory_() for i in range(10_000)]
        assert len(os.listdir("/proc/self/fd")) < 200
        ours.send(tensors)
        assert ours.recv() == list(range(1, 10_001))
    assert all(bool((t == i + 1).all()) for i, t in enumerate(tensors))
    ours.send("enough")
    child.join()
    assert child.exitcode == 0


def test_too_many_files_are_an_error() -> None:
    tensors = [tn.zeros(1 << 17) for _ in range(80)]
    with few_files(len(os.listdir("/proc/self/fd")) + 20):
        with pytest.raises(MemoryError, match="Too many open files"):
            for t in tensors:
                t.share_memory_()
    assert sum(t.is_shared() for t in tensors) in range(1, 40)
    assert all(t.sum().item() == 0 for t in tensors)


# ---- Processes that are killed -------------------------------------------------------------------


def segments() -> set[str]:
    """The numbers of the shared files that this process maps."""
    return set(re.findall(r" (\d+) +/memfd:tenon ", Path("/proc/self/maps").read_text()))


def mapped_anywhere(numbers: set[str]) -> set[str]:
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found |= set(re.findall(r" (\d+) +/memfd:tenon ", maps.read_text())) & numbers
    return found


def gone_soon(numbers: set[str]) -> bool:
    deadline = time.monotonic() + 10
    while mapped_anywhere(numbers) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not mapped_anywhere(numbers)


def several() -> list[tn.Tensor]:
    return [tn.full((n,), float(n)) for n in (1, 70, 900, 5000, 60_000, 1 << 17) * 5]


def child_keeps(connection: Any) -> None:
    tensors = connection.recv()
    connection.send(len(tensors))
    time.sleep(100)


def child_makes(connection: Any) -> None:
    tensors = several()
    connection.send(tensors)
    time.sleep(100)


@pytest.mark.parametrize("who", ["consumer", "producer"])
def test_the_memory_of_a_killed_process_is_free_again(who: str) -> None:
    before = segments()
    for _ in range(3):
        ours, theirs = FORK.Pipe()
        consumer = who == "consumer"
        child = FORK.Process(target=child_keeps if consumer else child_makes, args=(theirs,))
        child.start()
        if consumer:
            tensors = several()
            ours.send(tensors)
            assert ours.recv() == len(tensors)
        else:
            tensors = ours.recv()
        numbers = segments() - before
        assert len(numbers) > 5
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert all(bool((t == float(t.numel())).all()) for t in tensors)
        del tensors
        assert gone_soon(numbers)


def child_sends(queue: Any, ready: Any) -> None:
    for n in (1, 900, 60_000, 1 << 20):
        queue.put(tn.full((n,), 3.0))
    ready.set()
    time.sleep(100)


def test_what_a_killed_process_has_sent_is_an_error_soon() -> None:
    before = segments()
    queue, ready = FORK.SimpleQueue(), FORK.Event()
    child = FORK.Process(target=child_sends, args=(queue, ready))
    child.start()
    assert ready.wait(60)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    for _ in range(4):
        began = time.monotonic()
        with pytest.raises((ValueError, ConnectionError), match="is gone"):
            queue.get()
        assert time.monotonic() - began < 20
    assert not segments() - before


def child_takes_one(queue: Any, ready: Any) -> None:
    kept = queue.get()
    ready.set()
    time.sleep(100)
    del kept


def test_what_a_killed_process_has_not_taken_is_for_others() -> None:
    """And its memory is free when it was taken."""
    before = segments()
    for _ in range(3):
        queue, ready = FORK.SimpleQueue(), FORK.Event()
        child = FORK.Process(target=child_takes_one, args=(queue, ready))
        child.start()
        for n in (1, 900, 60_000, 1 << 20):
            queue.put(tn.full((n,), float(n)))
        assert ready.wait(60)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        for n in (900, 60_000, 1 << 20):
            assert bool((queue.get() == n).all())
    assert gone_soon(segments() - before)


def test_what_was_sent_waits_for_its_receiver() -> None:
    """Also where the sender has freed it; then it goes without another call."""
    before = segments()
    ours, theirs = FORK.Pipe()
    for size in (1, 900, 60_000):
        ours.send([tn.full((size,), 3.0) for _ in range(4)])
        others = [tn.full((size,), 4.0).share_memory_() for _ in range(9)]
        del others
        tensors = theirs.recv()
        assert all(bool((t == 3).all()) for t in tensors)
        del tensors
    deadline = time.monotonic() + 10
    while segments() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not segments() - before


# ---- Processes that lie --------------------------------------------------------------------------

LAYOUT = struct.Struct("<8sIi32sQ iiQQ IIQQ 128s")
FIELDS = ("magic", "kind", "index", "device", "bytes", "process", "number", "st_dev", "st_ino",
          "size_class", "granules", "offset", "length", "native")  # fmt: skip


def forged(handle: bytes, **changes: Any) -> bytes:
    """A handle with other members, and the check that goes with them."""
    values = dict(zip(FIELDS, LAYOUT.unpack_from(handle), strict=True)) | changes
    data = LAYOUT.pack(*values.values())
    check = 14695981039346656037
    for byte in data:
        check = (check ^ byte) * 1099511628211 % (1 << 64)
    return (data + struct.pack("<Q", check)).ljust(256, b"\0")


def named(file: int) -> dict[str, int]:
    info = os.fstat(file)
    return {"process": os.getpid(), "number": file, "st_dev": info.st_dev, "st_ino": info.st_ino}


def opened(handle: bytes, file: int = -1) -> tn.Tensor:
    return tn._C._open_shared(handle, file, tn.uint8, (4,), (1,), 0)


@pytest.mark.parametrize("numel", [8, 1 << 17])
def test_files_that_lie(numel: int) -> None:
    x = tn.ones(numel).share_memory_()
    handle, shared = tn._C._share(x)
    assert forged(handle) == handle
    unsealed, short = (os.memfd_create("x", os.MFD_ALLOW_SEALING) for _ in range(2))
    os.ftruncate(unsealed, 1 << 20)
    os.ftruncate(short, 64)
    with tempfile.TemporaryFile() as regular:
        regular.truncate(1 << 20)
        for file in (unsealed, short, regular.fileno()):
            with pytest.raises(ValueError, match="no|not shared memory"):
                opened(forged(handle, **named(file)))
            with pytest.raises(ValueError, match="no|not shared memory"):
                opened(forged(handle, **named(file)), file)
    unread = {"process", "number"} if numel == 8 else {"granules"}  # of a segment that is open
    for change in (
        {"offset": 1 << 40}, {"offset": 1}, {"length": 1 << 20, "bytes": 1 << 20}, {"length": 5},
        {"size_class": 2}, {"size_class": 4}, {"granules": 1 << 31}, {"granules": 1},
        {"process": 1 << 30}, {"number": 1 << 20}, {"bytes": 1 << 62, "length": 1 << 62},
    ):  # fmt: skip
        with contextlib.suppress(ValueError):
            opened(forged(handle, **change))
            assert set(change) <= unread, change
    if numel == 8:
        with pytest.raises(ValueError, match="damaged"):  # where the counts lie
            opened(forged(handle, offset=64))
    for file in (unsealed, short):
        os.close(file)
    if shared >= 0:
        with pytest.raises(PermissionError):
            os.ftruncate(shared, 64)
        os.close(shared)
    assert x.sum().item() == numel


def opens_as_nobody(connection: Any) -> None:
    handle = connection.recv()
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    with pytest.raises(ValueError, match="not ours"):
        opened(handle)


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("numel", [8, 1 << 17])
def test_another_user_is_refused(numel: int) -> None:
    ours, theirs = FORK.Pipe()
    child = FORK.Process(target=opens_as_nobody, args=(theirs,))
    child.start()
    x = tn.ones(numel).share_memory_()
    handle, shared = tn._C._share(x)
    ours.send(handle)
    child.join()
    assert child.exitcode == 0
    if shared >= 0:
        os.close(shared)


# ---- Workers -------------------------------------------------------------------------------------


def test_workers_read_one_table() -> None:
    """Their number does not multiply it. Later passes take no further memory, once the workers'
    allocators hold what they reuse."""
    script("""
import os
from pathlib import Path
import tenon as tn
from tenon.utils.data import DataLoader, TensorDataset

def used():
    total, me = 0, os.getpid()
    for process in [me, *map(int, Path(f"/proc/{me}/task/{me}/children").read_text().split())]:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total

table = tn.ones(1 << 14, 1 << 10)
loader = DataLoader(TensorDataset(table), batch_size=256, num_workers=2, persistent_workers=True)
after = []
table_kib = table.numel() * 4 >> 10
for _ in range(9):
    assert sum(len(x) for x, in loader) == len(table)
    after.append(used())
assert after[0] < 3 * table_kib, after
assert after[8] < after[6] + 0.05 * table_kib, after
""")
