"""Workers of a DataLoader in trouble: the parent gets an exception that names the worker, the
samples and the cause. It never waits for one that is gone, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import kills
import pytest
import tenon as tn
from tenon.utils.data import DataLoader, Dataset, IterableDataset
from tenon.utils.data._utils.channel import Channel

MAIN = os.getpid()
SECONDS = 100  # after which a test has hung; what is tested takes less than 5 on an idle machine


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    def over(number: int, frame: Any) -> None:
        raise TimeoutError("the test hangs")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class Each(Dataset):
    """Samples 0 to 11; `what` is called in the worker for sample 5."""

    def __init__(self, what: Callable[[], Any], size: int = 1) -> None:
        self.what = what
        self.size = size

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return self.what() if i == 5 else tn.full((self.size,), float(i))


def loader(what: Callable[[], Any], **more: Any) -> DataLoader:
    return DataLoader(Each(what), batch_size=2, num_workers=2, **more)


def fault_of(data: Any) -> str:
    """The text of the exception; batches before it are those that they should be."""
    found = iter(data)
    with pytest.raises(RuntimeError) as caught:
        for i, batch in enumerate(found):
            assert batch.flatten().tolist() == [2 * i, 2 * i + 1]
    return str(caught.value)


class Unreadable:
    """Can be pickled, and not be read again in the parent."""

    def __reduce__(self) -> Any:
        return refuse, (MAIN,)


def refuse(pid: int) -> None:
    if os.getpid() == pid:
        raise ValueError("not here")


def as_it_is(batch: Any) -> Any:
    return batch


def raise_local() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("of a class that nobody else has")


class ManyArgumentsError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


def raise_many() -> None:
    raise ManyArgumentsError(3, 4)


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fault_myself() -> None:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        (kill_myself, "was killed by SIGKILL"),
        (fault_myself, "was killed by SIGSEGV"),
        (lambda: os._exit(3), "ended with exit code 3"),
        (lambda: sys.exit(4), "ended with exit code 4"),
    ],
)
def test_a_worker_ends(what: Callable[[], Any], cause: str) -> None:
    text = fault_of(loader(what))
    assert "exited unexpectedly" in text and cause in text
    assert "worker 0" in text and "[4, 5]" in text


@pytest.mark.parametrize(
    ("what", "cause"),
    [
        (lambda: lambda: 1, "pickle"),
        (threading.Lock, "pickle"),
        (raise_local, "LocalError: of a class that nobody else has"),
        (raise_many, "ManyArgumentsError: 3 and 4"),
    ],
)
def test_what_cannot_be_pickled(what: Callable[[], Any], cause: str) -> None:
    data = iter(loader(what, collate_fn=as_it_is))
    assert [t.item() for t in next(data) + next(data)] == [0, 1, 2, 3]
    with pytest.raises(Exception) as caught:
        next(data)
    text = str(caught.value)
    assert cause in text and "worker process 0" in text and "[4, 5]" in text
    assert [t.item() for t in next(data)] == [6, 7]  # and the answers stay in order


def test_what_cannot_be_read_again() -> None:
    data = iter(DataLoader(Each(Unreadable), batch_size=None, num_workers=1))
    for i in range(5):
        assert next(data).item() == i
    with pytest.raises(RuntimeError) as caught:
        next(data)
    text = str(caught.value)
    assert "worker 0" in text and "samples 5" in text and "ValueError: not here" in text


def test_an_index_that_cannot_be_pickled() -> None:
    data = DataLoader(
        Each(int), batch_sampler=[[0], [1], [lambda: 1]], num_workers=2, collate_fn=as_it_is
    )
    with pytest.raises(RuntimeError, match="cannot send samples .* to worker 0: .*pickle"):
        list(data)


def test_a_worker_is_killed_while_it_sends() -> None:
    def much() -> bytes:
        pid = os.getpid()
        threading.Timer(0.3, lambda: os.kill(pid, signal.SIGKILL)).start()
        return bytes(50_000_000)  # which does not go unless somebody reads

    data = iter(DataLoader(Each(much), batch_size=None, num_workers=1, prefetch_factor=1))
    for _ in range(5):
        next(data)
    data.workers.send(data._next_index())
    data.workers.processes[0].join()
    with pytest.raises(RuntimeError, match="killed by SIGKILL; it was to make samples 5"):
        next(data)


def test_a_worker_hangs() -> None:
    data = iter(loader(lambda: time.sleep(1000), timeout=SECONDS))
    batches = [next(data).flatten().tolist() for _ in range(2)]  # when the workers have started
    assert batches == [[0, 1], [2, 3]]
    data.workers.timeout = 1
    text = fault_of(data)
    assert "timed out after 1 seconds: worker 0" in text and "[4, 5]" in text


def test_a_stopped_worker_is_closed() -> None:
    data = iter(DataLoader(Each(int), batch_size=2, num_workers=1))
    next(data)
    process = data.workers.processes[0]
    os.kill(process.pid, signal.SIGSTOP)
    data.workers.close()
    assert process.exitcode == -signal.SIGKILL


def test_a_start_that_fails() -> None:
    def fail(worker: int) -> None:
        raise OSError(f"worker {worker} has no disk")

    with pytest.raises(OSError, match="worker process 0(.|\n)*has no disk"):
        list(loader(int, worker_init_fn=fail))


class Dies(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        yield 1
        os._exit(9)


def test_a_stream_ends_with_its_worker() -> None:
    data = iter(DataLoader(Dies(), batch_size=1, num_workers=1))
    assert next(data).tolist() == [1]
    with pytest.raises(RuntimeError, match="exit code 9; it was to make the next samples"):
        next(data)


@pytest.mark.usefixtures("cleared")
def test_a_pass_that_was_left_leaves_nothing() -> None:
    before = len(os.listdir("/proc/self/fd"))
    data = DataLoader(
        Each(lambda: tn.full((50_000,), 5.0), 50_000), 2, num_workers=2, persistent_workers=True
    )
    for _ in range(3):
        next(iter(data))
    assert [int(t[0, 0]) for t in data] == [0, 2, 4, 6, 8, 10]
    data._workers.close()
    del data
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("at", [1, 2, 4, 7])
@pytest.mark.parametrize("way", ["push", "pull"])
def test_an_interrupted_talk(way: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C when a message has gone or come, and nobody has noted it: what follows is no guess."""
    data = loader(lambda: tn.full((1,), 5.0), persistent_workers=True)
    real, calls = getattr(Channel, way), 0

    def interrupted(channel: Channel) -> Any:
        nonlocal calls
        result = real(channel)
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return result

    found = iter(data)
    before = [process.pid for process in data._workers.processes]
    monkeypatch.setattr(Channel, way, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(found)
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="begin a new pass"):
        next(found)
    for _ in range(2):
        assert [batch.flatten().tolist() for batch in data] == [[i, i + 1] for i in range(0, 12, 2)]
    assert not any(kills.lives(pid) for pid in before)
    data._workers.close()


def test_an_interrupted_pass_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first that is asked is the loader."""
    data = loader(lambda: tn.full((1,), 5.0), persistent_workers=True)
    assert len(list(data)) == 6
    real = Channel.push

    def interrupted(channel: Channel) -> Any:
        real(channel)
        raise KeyboardInterrupt

    monkeypatch.setattr(Channel, "push", interrupted)
    with pytest.raises(KeyboardInterrupt):
        iter(data)
    monkeypatch.undo()
    assert [batch.flatten().tolist() for batch in data] == [[i, i + 1] for i in range(0, 12, 2)]
    data._workers.close()


class _Interrupted:
    """An end of a channel that sends, and is interrupted before anybody notes it."""

    def __init__(self, end: Any) -> None:
        self.end = end

    def send(self, data: Any) -> int:
        self.end.send(data)
        raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self.end, name)


def test_after_half_a_message_a_worker_just_ends() -> None:
    """Nothing more is written where the other side would take it for the rest of a message."""
    found = iter(loader(lambda: tn.full((1,), 5.0)))
    next(found)
    workers = found.workers
    for channel in workers.channels:
        channel.end = _Interrupted(channel.end)
    with pytest.raises(KeyboardInterrupt):
        next(found)
    for channel in workers.channels:
        channel.end = channel.end.end
    workers.close()
    assert [process.exitcode for process in workers.processes] == [0] * len(workers.processes)


def test_an_interrupted_close_ends_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    data = loader(lambda: time.sleep(100))
    found = iter(data)
    before = [process.pid for process in found.workers.processes]
    processes = found.workers.processes

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(processes[0]), "join", interrupted)
    with pytest.raises(KeyboardInterrupt):
        found._shutdown_workers()
    monkeypatch.undo()
    for process in processes:
        process.join(10)
    assert not any(kills.lives(pid) for pid in before)


GROUP = """
import os, time, tenon as tn
from tenon.utils.data import DataLoader, TensorDataset
data = DataLoader(TensorDataset(tn.ones(64, 100_000)), 8, num_workers=2, prefetch_factor=2)
it = iter(data)
next(it)
print("ready", flush=True)
time.sleep(1000)
"""


def test_a_killed_group_leaves_no_memory() -> None:
    before = kills.shared_memory_names()
    process = subprocess.Popen(
        [sys.executable, "-c", GROUP], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline()
    kills.kill_group(process)
    process.stdout.close()
    left = {name for name in kills.shared_memory_names() - before if name.startswith("tenon")}
    assert not left


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_start_methods(method: str) -> None:
    data = tn.arange(40_000.0).reshape(2, 20_000)
    got = list(DataLoader(data, batch_size=1, num_workers=2, multiprocessing_context=method))
    assert all(a.equal(b[None]) for a, b in zip(got, data, strict=True))


def test_threads_that_share_an_iterator() -> None:
    data = iter(DataLoader(tn.arange(200), batch_size=None, num_workers=2))
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.extend(int(x) for x in data)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(200))


def test_a_forked_process_takes_nothing() -> None:
    data = iter(DataLoader(tn.arange(20), batch_size=None, num_workers=2))
    got = [int(next(data))]
    child = os.fork()
    if child == 0:
        try:
            next(data)
        except RuntimeError as err:
            os._exit(7 if "process that started them" in str(err) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert got + [int(x) for x in data] == list(range(20))


def test_stop_iteration_in_a_sample_is_an_error() -> None:
    """It is no end: the batch would be missing without a word."""

    def stop() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(DataLoader(Each(stop), num_workers=2))
