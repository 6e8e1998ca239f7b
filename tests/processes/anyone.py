"""Messages that are received from whichever process sends one: ENGINE [WHAT]. `test_anyone.py`
starts it, without WHAT all that nobody dies of."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from expected import expect

dist.init_process_group(sys.argv[1], timeout=timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
OTHERS = range(1, SIZE)


def check_each_sender_is_named() -> None:
    """Those of one process come in their order, and the numbers are those of whom is named."""
    if RANK:
        for i in range(20):
            dist.send(torch.full((3,), 100.0 * RANK + i), 0)
        return
    count = dict.fromkeys(OTHERS, 0)
    for _ in range(20 * len(OTHERS)):
        got = torch.zeros(3)
        source = dist.recv(got)
        assert got.tolist() == [100.0 * source + count[source]] * 3, (source, got, count)
        count[source] += 1
    assert set(count.values()) == {20}


def check_tags() -> None:
    """Only a message of the same tag is taken."""
    if RANK:
        works = [dist.isend(torch.tensor([RANK * 10 + tag]), 0, tag=tag) for tag in (5, 6)]
        for work in works:
            work.wait()
        return
    for tag in (6, 5):
        for _ in OTHERS:
            got = torch.zeros(1, dtype=torch.int64)
            source = dist.recv(got, tag=tag)
            assert got.item() == source * 10 + tag


def check_later() -> None:
    """Several at once, strided memory and batches too; whoever waits hears whose it was."""
    if RANK:
        for i in range(4):
            dist.send(torch.full((2, 3), RANK + i / 8), 0)
        got = torch.zeros(2)
        (work,) = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got)])
        work.wait()
        assert work._source_rank() == 0 and got.tolist() == [RANK, -RANK]
        return
    into = [torch.zeros(3, 2).t() for _ in range(4 * len(OTHERS))]
    works = [dist.irecv(t) for t in into]
    for work in works:
        assert work.wait()
    sources = [work._source_rank() for work in works]
    assert sorted(sources) == sorted(list(OTHERS) * 4)
    seen = dict.fromkeys(OTHERS, 0)
    for source, t in zip(sources, into):
        assert (t == source + seen[source] / 8).all(), (source, t)
        seen[source] += 1
    for work in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.tensor([r, -r]) * 1.0, r) for r in OTHERS]
    ):
        work.wait()


def check_many_at_once() -> None:
    """Receives take a process's messages in the order in which they were started, whichever is
    looked at first when one arrives."""
    if RANK:
        for i in range(400):
            dist.send(torch.tensor([i]), 0)
        return
    named = torch.full((len(OTHERS), 200, 1), -1)
    works = [dist.irecv(named[r - 1, i], r) for i in range(200) for r in OTHERS]
    into = torch.full((200 * len(OTHERS), 1), -1)
    of_anyone = [dist.irecv(t) for t in into]
    for work in works + of_anyone:
        work.wait()
    seen: dict[int, list[int]] = {r: named[r - 1].flatten().tolist() for r in OTHERS}
    for work, t in zip(of_anyone, into):
        seen[work._source_rank()].append(int(t))
    for r in OTHERS:
        assert seen[r] == list(range(400)), (r, seen[r])


def check_in_turn() -> None:
    """A receive of anybody takes a process's first message where it was started before one of that
    process."""
    if RANK == 1:
        for i in range(3):
            dist.send(torch.tensor([i]), 0)
    elif RANK == 0:
        into = torch.full((3, 1), -1)
        works = [dist.irecv(t, r) for t, r in zip(into, (None, 1, None))]
        for work in works:
            work.wait()
        assert into.flatten().tolist() == [0, 1, 2], into


def check_apart() -> None:
    """One of anybody does not wait behind one of a process that sends later."""
    if SIZE < 3 or "TENON_EXCHANGE_ELEMENTS" in os.environ:  # parts of messages wait for each other
        return
    if RANK == 1:
        dist.recv(torch.zeros(1), 0)
        dist.send(torch.tensor([3]), 0)
    elif RANK == 2:
        dist.send(torch.tensor([7]), 0)
    elif RANK == 0:
        into = torch.full((2, 1), -1)
        first, last = dist.irecv(into[0], 1), dist.irecv(into[1])
        assert last.wait() and last._source_rank() == 2 and into[1] == 7
        dist.send(torch.zeros(1), 1)
        first.wait()
        assert into[0] == 3


def check_objects() -> None:
    if RANK:
        dist.send_object_list([{"of": RANK}, "x" * 1000 * RANK], 0)
        return
    seen = set()
    for _ in OTHERS:
        objects = [None, None]
        source = dist.recv_object_list(objects)
        assert objects == [{"of": source}, "x" * 1000 * source]
        seen.add(source)
    assert seen == set(OTHERS)


def check_groups() -> None:
    """Ranks are those of the default group; of another group comes nothing."""
    back = dist.new_group(list(range(SIZE))[-2:])
    if RANK < SIZE - 2:
        assert dist.recv(torch.zeros(1), group=back) == -1
    elif RANK == SIZE - 1:
        first = dist.isend(torch.ones(1), 0)
        dist.send(torch.full((1,), 2.0), SIZE - 2, group=back)
        first.wait()
    else:
        got = torch.zeros(1)
        assert dist.recv(got, group=back) == SIZE - 1 and got.item() == 2.0
    if RANK == 0:
        got = torch.zeros(1)
        assert dist.recv(got) == SIZE - 1 and got.item() == 1.0


def check_sizes() -> None:
    """A message of another size is an error that says whose it is; the group goes on."""
    if "TENON_EXCHANGE_ELEMENTS" in os.environ:  # see sizes_in_parts
        return
    if RANK == 0:
        wanted = f"recv(9 x float32) from rank {SIZE - 1}"
        expect(RuntimeError, wanted, lambda: dist.recv(torch.zeros(9)))
        got = torch.zeros(2)
        assert dist.recv(got) == SIZE - 1 and got.tolist() == [7.0, 7.0]
    elif RANK == SIZE - 1:
        dist.send(torch.ones(5), 0)
        dist.send(torch.full((2,), 7.0), 0)


def check_mistakes() -> None:
    expect(ValueError, "tag", lambda: dist.recv(torch.zeros(1), tag=-1))
    expect(TypeError, "torch.Tensor", lambda: dist.recv([0.0]))
    expect(ValueError, "rank", lambda: dist.send(torch.zeros(1)))


def die() -> None:
    """One waits for anybody, one is killed: whoever waits hears it long before the deadline."""
    dist.barrier()
    if RANK == SIZE - 1:
        time.sleep(0.5)
        os.kill(os.getpid(), 9)
    if RANK == 0:
        start = time.monotonic()
        expect(RuntimeError, f"rank {SIZE - 1}", lambda: dist.recv(torch.zeros(3)))
        assert time.monotonic() - start < 20, time.monotonic() - start
        expect(RuntimeError, "was lost before", lambda: dist.recv(torch.zeros(3)))
    else:
        time.sleep(5)


def leave() -> None:
    """Who leaves well leaves the others to those that wait; when all have left nobody sends."""
    if RANK == 1:
        return
    if RANK == 0:
        got = torch.zeros(3)
        assert dist.recv(got) == 2 and got.tolist() == [1.0] * 3
        expect(RuntimeError, "has left", lambda: dist.recv(got))
    else:
        time.sleep(2)
        dist.send(torch.ones(3), 0)


def sizes_in_parts() -> None:
    """A message of several parts is never taken for a whole one of another size."""
    few, many = [(4, 8), (8, 4), (4, 5), (5, 4), (8, 12), (12, 8), (3, 4)][int(sys.argv[3])]
    if RANK:
        dist.isend(torch.ones(many, dtype=torch.uint8), 0)
        time.sleep(1)
    else:
        got = torch.zeros(few, dtype=torch.uint8)
        expect(RuntimeError, f"recv({few} x uint8) from rank 1", lambda: dist.recv(got))


def nobody() -> None:
    """Nobody sends: it ends at the deadline and says what was waited for."""
    dist.barrier()
    if RANK == 0:
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1))
        start = time.monotonic()
        expect(RuntimeError, "recv(3 x float32) from any rank", lambda: dist.recv(torch.zeros(3)))
        assert 0.9 < time.monotonic() - start < 10
    else:
        time.sleep(4)


def alone() -> None:
    expect(ValueError, "itself", lambda: dist.recv(torch.zeros(3)))


if len(sys.argv) > 2:
    globals()[sys.argv[2]]()
    print("ok", flush=True)
    if sys.argv[2] != "leave":
        os._exit(0)
    dist.destroy_process_group()
    sys.exit()
for name, check in list(globals().items()):
    if name.startswith("check_"):
        check()
        dist.barrier()
dist.destroy_process_group()
print("ok\n", end="")
