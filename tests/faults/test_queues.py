"""Queues between processes of which some are killed: those that are left go on."""

from __future__ import annotations

import os
import pickle
import queue
import random
import signal
import socket
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
import tenon as tn
from tenon import multiprocessing as mp

METHODS = ("fork", "spawn")
KINDS = ("Queue", "SimpleQueue", "JoinableQueue")
ROUNDS = int(os.environ.get("TENON_TEST_KILLS", "12"))


def keep_writing(to: Any, who: int, size: int) -> None:
    i = 0
    while True:
        to.put((who, i, bytes([i % 251]) * size))
        i += 1


def write_few(to: Any, who: int, count: int, size: int) -> None:
    for i in range(count):
        to.put((who, i, bytes([i % 251]) * size))


def wait_for_one(of: Any, says: Any) -> None:
    says.put(os.getpid())
    of.get()


def echo(of: Any, to: Any) -> None:
    while (got := of.get()) is not None:
        to.put(got)


def take(of: Any, seconds: float = 60) -> Any:
    """A message that comes soon, or the test has hung."""
    end = time.monotonic() + seconds
    while of.empty():
        assert time.monotonic() < end, "nothing has come"
        time.sleep(0.0005)
    return of.get()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [10, 30_000, 3_000_000])
def test_writers_that_are_killed_in_the_middle(kind: str, size: int) -> None:
    """A message comes whole or not at all, and the other writers' all come, in their order."""
    context = mp.get_context("fork")
    rng = random.Random(size)
    for _ in range(ROUNDS if size < 100_000 else 4):
        q = getattr(context, kind)()
        bad = context.Process(target=keep_writing, args=(q, 1, size))
        good = context.Process(target=write_few, args=(q, 2, 20, size))
        bad.start()
        first = take(q)
        assert first == (1, 0, b"\0" * size)
        good.start()
        time.sleep(rng.random() * 0.01)
        os.kill(bad.pid, signal.SIGKILL)
        bad.join()
        seen = {1: 1, 2: 0}
        while seen[2] < 20:
            who, i, data = take(q)
            assert (i, data) == (seen[who], bytes([i % 251]) * size)
            seen[who] += 1
        good.join(30)
        assert good.exitcode == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_that_is_killed_while_it_waits(method: str, kind: str) -> None:
    """The others get what comes, also without a time limit of their own."""
    context = mp.get_context(method)
    q, said = getattr(context, kind)(), context.Queue()
    readers = [context.Process(target=wait_for_one, args=(q, said)) for _ in range(2)]
    for reader in readers:
        reader.start()
        said.get(timeout=60)
    time.sleep(0.1)
    os.kill(readers[0].pid, signal.SIGKILL)
    readers[0].join()
    q.put("for the other one")
    readers[1].join(60)
    assert readers[1].exitcode == 0


def put_slowly(to: Any, says: Any) -> None:
    to.put(SlowToSend())
    says.put("inside")
    time.sleep(600)


class SlowToSend:
    """Its place is taken, and it is not sent yet."""

    def __reduce__(self) -> Any:
        time.sleep(600)
        return SlowToSend, ()


def take_and_stop(of: Any, says: Any) -> None:
    from tenon._queues import Packets

    receive = Packets.receive

    def stops(*args: Any) -> None:
        receive(*args)
        says.put("inside")
        time.sleep(600)

    Packets.receive = stops  # type: ignore[assignment]
    of.get()


@pytest.mark.parametrize(
    ("method", "kind"), [("fork", "Queue"), ("fork", "JoinableQueue"), ("spawn", "Queue")]
)
def test_places_of_the_killed_are_free_again(method: str, kind: str) -> None:
    """Of who has not sent its message, and of who has read one and not said so."""
    context = mp.get_context(method)
    q, said = getattr(context, kind)(2), context.Queue()
    for i in range(4 if method == "fork" else 1):
        for target in (put_slowly, take_and_stop):
            if target is take_and_stop:
                q.put(i)
            victim = context.Process(target=target, args=(q, said))
            victim.start()
            assert said.get(timeout=60) == "inside"
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
    for i in range(6):
        q.put(i, timeout=30)
        q.put(-i, timeout=30)
        with pytest.raises(queue.Full):
            q.put(None, timeout=0.3 if i == 0 else 0)
        assert q.full() and [take(q), take(q)] == [i, -i] and q.qsize() == 0


def test_a_bounded_queue_holds_no_more_and_wakes_who_waits() -> None:
    """Several writers wait for its places; a message that cannot be sent leaves its own."""
    context = mp.get_context("fork")
    q = context.Queue(3)
    writers = [context.Process(target=write_few, args=(q, i, 200, 10)) for i in range(3)]
    for writer in writers:
        writer.start()
    seen = [0, 0, 0]
    began = time.monotonic()
    for _ in range(600):
        assert q.qsize() <= 3
        who, i, _ = take(q)
        assert i == seen[who]
        seen[who] += 1
    assert time.monotonic() - began < 20  # a wake-up that is lost costs 0.05 s
    for writer in writers:
        writer.join(30)
    for _ in range(5):
        q.put(lambda: None, timeout=10)
    q.put(1, timeout=10)
    assert take(q) == 1 and not q.full()


def finishes(j: Any) -> None:
    assert j.get(timeout=30) == 1
    time.sleep(0.1)
    j.task_done()


def test_what_a_queue_does() -> None:
    q = mp.Queue(maxsize=2)
    with pytest.raises(queue.Empty):
        q.get(timeout=0.05)
    with pytest.raises(queue.Empty):
        q.get_nowait()
    q.put(1)
    q.put(b"x" * 10**6)
    with pytest.raises(queue.Full):
        q.put(3, timeout=0.05)
    assert q.qsize() == 2 and q.full() and q.get() == 1 and q.get() == b"x" * 10**6
    q.put(tn.arange(5))
    assert q.get(timeout=30).tolist() == [0, 1, 2, 3, 4]
    q.close()
    q.join_thread()
    with pytest.raises(ValueError, match="closed"):
        q.get()
    with pytest.raises(RuntimeError, match="inheritance"):
        pickle.dumps(mp.Queue())
    j = mp.JoinableQueue()
    j.put(1)
    worker = mp.get_context("fork").Process(target=finishes, args=(j,))
    worker.start()
    j.join()
    assert os.path.exists(f"/proc/{worker.pid}")  # not joined before
    worker.join(30)
    with pytest.raises(queue.Full):
        full = mp.JoinableQueue(1)
        full.put(1)
        full.put(2, timeout=0.01)
    assert full.get() == 1
    full.task_done()
    full.join()
    with pytest.raises(ValueError, match="too many"):
        j.task_done()


def test_two_readers_of_one_message() -> None:
    """The one that does not get it is told in time that there is none."""
    import threading

    for _ in range(50):
        q = mp.Queue()
        q.put(7)
        got: list[Any] = []

        def reads(q: Any = q, got: list[Any] = got) -> None:
            try:
                got.append(q.get(timeout=0.2))
            except queue.Empty:
                got.append(None)

        threads = [threading.Thread(target=reads) for _ in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(20)
        assert sorted(map(str, got)) == ["7", "None"]


@pytest.mark.parametrize("method", METHODS)
def test_messages_of_each_size_come_back(method: str) -> None:
    context = mp.get_context(method)
    assert context.get_start_method() == method and context.get_context() is context
    there, back = context.Queue(), context.SimpleQueue()
    child = context.Process(target=echo, args=(there, back))
    child.start()
    for size in (0, 1, 1000, (1 << 15) - 60, 1 << 15, (1 << 15) + 1, 10**6):
        there.put(b"z" * size)
        assert back.get() == b"z" * size
    x = tn.arange(6.0)
    there.put(x)
    back.get()[0] = 9  # the same memory
    assert x[0].item() == 9
    there.put(None)
    child.join(60)
    assert child.exitcode == 0


def square(x: int) -> int:
    return x * x


def test_pools_and_executors_of_a_context() -> None:
    context = mp.get_context("fork")
    with context.Pool(2) as pool:
        assert pool.map(square, range(50)) == [x * x for x in range(50)]
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        assert list(executor.map(square, range(50))) == [x * x for x in range(50)]


def test_files_of_messages_are_not_inherited_by_programs() -> None:
    from tenon._queues import pair, receive_files

    reader, writer = pair()
    with open(os.devnull, "rb") as sent:
        socket.send_fds(writer._socket, [b"x"], [sent.fileno()])
    data, (file,), _ = receive_files(reader._socket, 10, 1)
    assert data == b"x" and not os.get_inheritable(file)
    os.close(file)
    with pytest.raises(BlockingIOError):
        receive_files(reader._socket, 10, 1, socket.MSG_DONTWAIT)


@pytest.mark.usefixtures("cleared")
def test_no_files_are_left_open() -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    q = mp.Queue()
    q.put(b"x" * 10**6)
    q.get()
    before = count()
    for _ in range(20):
        q.put(b"x" * 10**6)
        q.get()
        other = mp.SimpleQueue()
        other.put(1)
        other.close()
    assert count() <= before + 1
