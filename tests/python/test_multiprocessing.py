"""Tensors that processes share: queues, pipes, memory that both see, and handles that lie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
import tenon.multiprocessing as mp
from tenon import nn

SHM = Path("/dev/shm")
FORK = mp.get_context("fork")


def test_memory_moves_in_place() -> None:
    x = tn.arange(6.0).reshape(2, 3)
    assert not x.is_shared()
    assert x.share_memory_() is x and x.is_shared()
    assert x[1].is_shared() and x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert x.share_memory_().sum().item() == 15
    assert not (x + 1).is_shared()
    view = tn.zeros(4)[1:]
    assert view.share_memory_().is_shared() and view.storage_offset() == 1
    assert tn.empty(0, 3).share_memory_().is_shared()


def test_components_move() -> None:
    """A sparse tensor has no memory of its own."""
    dense = tn.tensor([[0.0, 2.0], [3.0, 0.0]])
    for x in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        assert not x.is_shared()
        assert x.share_memory_() is x and x.is_shared()
        assert tn.equal(x.to_dense(), dense) and tn.equal((x + x).to_dense(), 2 * dense)
        with pytest.raises(TypeError, match="by its components"):
            tn._C._share(x)
    values = dense.to_sparse().share_memory_().values()
    assert values.is_shared()


def test_memory_that_others_look_at_stays() -> None:
    x = tn.zeros(4)
    y = x.detach()[1:]
    with pytest.raises(RuntimeError, match="look at the same memory"):
        x.share_memory_()
    y += 1
    assert x.tolist() == [0.0, 1.0, 1.0, 1.0]
    saved = tn.ones(3, requires_grad=True).exp()
    with pytest.raises(RuntimeError, match="saved for a gradient"):
        saved.share_memory_()
    saved.sum().backward()


def test_views_move_along() -> None:
    x = tn.zeros(2, 4)
    rows, column = list(x), x[:, 1]
    rows[1].share_memory_()
    assert x.is_shared() and column.is_shared() and rows[0].is_shared()
    column += 1
    x[1] += 1
    assert x.tolist() == [[0.0, 1.0, 0.0, 0.0], [1.0, 2.0, 1.0, 1.0]]
    assert rows[1].tolist() == x[1].tolist()


def test_a_module_is_shared() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).share_memory()
    assert all(t.is_shared() for t in net.state_dict().values())
    net(tn.ones(4, 2)).sum().backward()
    assert net[0].weight.grad is not None


def child_fills(x: tn.Tensor) -> None:
    x.fill_(7)


def test_a_forked_child_writes_to_it() -> None:
    x, y = tn.zeros(3).share_memory_(), tn.zeros(3)
    for t in (x, y):
        process = FORK.Process(target=child_fills, args=(t,))
        process.start()
        process.join()
        assert process.exitcode == 0
    assert x.tolist() == [7.0] * 3 and y.tolist() == [0.0] * 3


class Named(tn.Tensor):
    """A subclass."""


def samples() -> list[tn.Tensor]:
    named = tn.ones(2).as_subclass(Named)
    named.label = "x"
    half = tn.arange(24).reshape(2, 3, 4).half()
    weight = nn.Parameter(tn.ones(2, 2))
    leaf = tn.ones(3, requires_grad=True)
    tiny = [tn.tensor(True), tn.empty(0, 4), tn.tensor(2 + 1j)]
    return [half, half.clone().permute(2, 0, 1), half[1].t()[1:], named, weight, leaf, *tiny]


def child_sends(connection: Connection) -> None:
    for t in samples():
        connection.send(t)
    connection.recv()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_what_arrives_is_what_was_sent(method: str) -> None:
    context = mp.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=child_sends, args=(theirs,))
    process.start()
    try:
        for want in samples():
            got = ours.recv()
            assert type(got) is type(want) and got.dtype == want.dtype
            assert got.stride() == want.stride() and got.requires_grad == want.requires_grad
            assert tn.equal(got, want) and got.__dict__ == want.__dict__
            assert got.is_shared() or not got.numel()
    finally:
        ours.send("enough")
        process.join()
    assert process.exitcode == 0


def child_answers(requests: Any, answers: Any) -> None:
    for t in iter(requests.get, None):
        t.mul_(2)
        answers.put(t.sum().item())


def test_both_see_the_same_memory() -> None:
    requests, answers = FORK.Queue(), FORK.Queue()
    process = FORK.Process(target=child_answers, args=(requests, answers))
    process.start()
    x = tn.ones(1000)
    kept = tn.ones(10)
    view = kept.detach()[2:5]
    for t, total in ((x, 2000), (x, 4000), (view, 6)):
        requests.put(t)
        assert answers.get(timeout=60) == total
    requests.put(None)
    process.join()
    assert x.is_shared() and x.tolist() == [4.0] * 1000
    assert kept.tolist() == [1.0] * 10  # others look at it, so a copy was sent


def test_history_stays_at_home() -> None:
    x = tn.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="not a leaf"):
        mp.reduction.ForkingPickler.dumps(x)


DYING = """
import os, signal, sys
import tenon as tn
import tenon.multiprocessing as mp
tensors = [tn.ones(1 << 20).share_memory_() for _ in range(3)]
handle, file = tn._C._share(tensors[0])
sys.stdout.buffer.write(handle)
sys.stdout.flush()
sys.stdin.read(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_producer_that_dies_leaves_nothing() -> None:
    before = set(os.listdir(SHM))
    command = [sys.executable, "-c", DYING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        handle = process.stdout.read(256)
        x = tn._C._open_shared(handle, -1, tn.float32, (1 << 20,), (1,), 0)
        assert x.sum().item() == 1 << 20
        process.stdin.write(b"x")
        process.stdin.flush()
        process.wait()
        assert process.returncode == -signal.SIGKILL
    assert not {name for name in os.listdir(SHM) if name not in before and "tenon" in name}
    assert x.sum().item() == 1 << 20  # what was opened stays
    with pytest.raises(ValueError, match="gone"):
        tn._C._open_shared(handle, -1, tn.float32, (1,), (1,), 0)


@pytest.mark.parametrize("numel", [8, 1 << 17])
def test_handles_that_lie(numel: int) -> None:
    """Of a small tensor, which lies among others, and of one that has a file of its own."""
    x = tn.ones(numel).share_memory_()
    handle, file = tn._C._share(x)
    assert (file >= 0) == (numel > 8)

    def opened(
        data: bytes, number: int = -1, shape: tuple = (8,), strides: tuple = (1,), offset: int = 0
    ) -> tn.Tensor:
        return tn._C._open_shared(data, number, tn.float32, shape, strides, offset)

    try:
        y = opened(handle)
        y[0] = 5
        assert x[0].item() == 5 and opened(handle, file)[0].item() == 5
        for at in range(232):
            damaged = bytearray(handle)
            damaged[at] ^= 0x41
            with pytest.raises((ValueError, RuntimeError)):
                opened(bytes(damaged))
        for wrong in (b"", handle[:-1], b"\0" * 256, bytes(range(256))):
            with pytest.raises(ValueError):
                opened(wrong)
        n = (numel,)
        for geometry in (((numel + 1,), (1,), 0), (n, (1,), 1), (n, (2,), 0), (n, (-1,), 0)):
            with pytest.raises((ValueError, RuntimeError)):
                opened(handle, -1, *geometry)
        with pytest.raises(ValueError, match="strides"):
            opened(handle, -1, (2, 4), (1,))
        if file < 0:
            return
        with open(__file__, "rb") as other, pytest.raises(ValueError, match="handle"):
            opened(handle, other.fileno())
        with pytest.raises(ValueError, match="handle"):
            opened(handle, 1 << 20)
    finally:
        if file >= 0:
            os.close(file)


@pytest.mark.usefixtures("cleared")
def test_files_are_closed() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    tn.ones(2).share_memory_()
    before = count()
    for n in [100, 1 << 17] * 10:
        x = tn.ones(n).share_memory_()
        handle, file = tn._C._share(x)
        y = tn._C._open_shared(handle, file, tn.float32, (n,), (1,), 0)
        if file >= 0:
            os.close(file)
        assert y.sum().item() == n
    del x, y
    assert count() == before


def test_strategies() -> None:
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(ValueError, match="file_descriptor"):
        mp.set_sharing_strategy("carrier_pigeon")


def work(index: int, total: tn.Tensor, bad: int) -> None:
    total[index] = index + 1
    if index == bad:
        raise ValueError("no such luck")


def sleeper(index: int) -> None:
    if index == 0:
        os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(60)


@pytest.mark.usefixtures("cleared")
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_arguments_of_processes(method: str) -> None:
    files = len(os.listdir("/proc/self/fd"))
    total = tn.zeros(2).share_memory_()
    mp.start_processes(work, (total, -1), nprocs=2, start_method=method)
    assert total.tolist() == [1.0, 2.0]
    del total
    assert method == "forkserver" or len(os.listdir("/proc/self/fd")) <= files + 1


def test_processes_that_fail() -> None:
    total = tn.zeros(3).share_memory_()
    with pytest.raises(mp.ProcessRaisedException, match="no such luck") as caught:
        mp.start_processes(work, (total, 1), nprocs=2, start_method="fork")
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="with signal SIGTERM") as ended:
        mp.start_processes(sleeper, nprocs=2, start_method="fork")
    assert (ended.value.exit_code, ended.value.signal_name) == (-15, "SIGTERM")
