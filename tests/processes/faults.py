"""What goes wrong between ranks, and what those that are left say. `test_faults.py` starts it:
ENGINE FAULT."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from expected import expect
from torch.distributed import distributed_c10d
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn.parallel import DistributedDataParallel

fault = sys.argv[2]
dist.init_process_group(sys.argv[1], timeout=timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
LAST = SIZE - 1


def said(call) -> str:
    try:
        call()
    except RuntimeError as err:
        return str(err)
    raise AssertionError("nothing was said")


def needs(text: str, *words: str) -> None:
    missing = [w for w in words if w not in text]
    assert not missing, (missing, text)


def meet() -> None:
    dist.new_group(range(SIZE))


def raises() -> None:
    dist.barrier()
    if RANK == LAST:
        raise KeyError("this rank fails")
    dist.all_reduce(torch.ones(3))


def own_groups() -> None:
    """Groups that their members alone make, beside others that all do."""
    sums = []
    for members in ([0, 1], [1, 2], [0, 1]):
        group = dist.new_group(members, use_local_synchronization=True)
        if RANK not in members:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
            continue
        x = torch.full((2,), RANK + 1.0)
        dist.all_reduce(x, group=group)
        sums.append(x.tolist())
    assert sums == [[[3.0] * 2] * 2, [[3.0] * 2, [5.0] * 2, [3.0] * 2], [[5.0] * 2]][RANK]
    if RANK:  # the first does not hear of it
        late = dist.new_group([2, 1], use_local_synchronization=True)
        assert dist.get_world_size(late) == 2
    for members in ([0, 2], [0, 1, 2]):
        group, x = dist.new_group(members), torch.ones(1)
        if RANK in members:
            dist.all_reduce(x, group=group)
            assert x.item() == len(members)


def die() -> None:
    pids = [None] * SIZE
    dist.all_gather_object(pids, os.getpid())
    if RANK == LAST:
        os.kill(os.getpid(), 9)
    text = said(lambda: dist.all_reduce(torch.ones(3)))
    needs(text, f"rank {RANK} of {SIZE}", "all_reduce(3 x float32, sum)",
          f"rank {LAST} (process {pids[LAST]}) has ended")  # fmt: skip
    needs(said(lambda: dist.barrier()), "was lost before", "all_reduce(3 x float32, sum)")


def die_while_sending() -> None:
    dist.barrier()
    if RANK == 1:
        os.kill(os.getpid(), 9)
    if RANK == 0:
        text = said(lambda: dist.recv(torch.zeros(2, 3), 1))
        needs(text, "recv(6 x float32) from rank 1", "rank 1 (process", "has ended")


def stopped() -> None:
    """A process that stands still holds the others up until the deadline, whatever they move."""
    dist.barrier()
    distributed_c10d._set_pg_timeout(timedelta(seconds=2))
    if RANK == LAST:
        os.kill(os.getpid(), signal.SIGSTOP)
    start = time.monotonic()
    needs(said(lambda: dist.all_reduce(torch.ones(2_000_000))), f"rank {RANK} waited", "2000000 x")
    assert time.monotonic() - start < 30
    print("ok", flush=True)
    os._exit(1)  # the launcher ends the other one


def killed_sender() -> None:
    """A large message whose sender dies is whole, or an error."""
    dist.barrier()
    value = torch.full((4_000_000,), 7.0)
    if RANK == LAST:
        dist.isend(value, 0)
        time.sleep(0.2)
        os.kill(os.getpid(), 9)
    got = torch.zeros(4_000_000)
    try:
        dist.recv(got, LAST)
        assert (got == 7).all()
    except RuntimeError as err:
        needs(str(err), f"recv(4000000 x float32) from rank {LAST}")
    print("ok", flush=True)
    time.sleep(60)  # until the launcher ends it


def pipe() -> None:
    """No thread of the engine ends the process where a rank's socket has gone."""
    value = torch.ones(1000)
    dist.all_reduce(value)
    dist.send(value, 1) if RANK == 0 else dist.recv(value, 0)
    threads = {int(name) for name in os.listdir("/proc/self/task")} - {os.getpid()}
    assert len(threads) >= 2, threads
    for thread in threads:
        with open(f"/proc/self/task/{thread}/status", encoding="ascii") as lines:
            blocked = next(int(line.split()[1], 16) for line in lines if "SigBlk" in line)
        assert blocked >> (signal.SIGPIPE - 1) & 1, thread
    assert signal.SIGPIPE not in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # the caller's


def hang() -> None:
    dist.barrier()
    if RANK == LAST:
        sys.stdin.read()  # until the others have said what they wait for
        return
    distributed_c10d._set_pg_timeout(timedelta(seconds=1))
    text = said(lambda: dist.all_gather([torch.zeros(4)] * SIZE, torch.ones(4)))
    needs(text, f"rank {RANK} ", "all_gather(4 x float32)", "all ranks still run")
    assert "waited" in text or "Timed out" in text, text  # whoever notices first


def refuse() -> None:
    """Arguments that do not fit each other are refused before anything is exchanged."""
    short, wide, one = [torch.zeros(2)], [torch.zeros(3)] * SIZE, torch.zeros(2)
    calls = (
        lambda: dist.all_gather(short, one), lambda: dist.all_gather(wide, one),
        lambda: dist.all_gather_into_tensor(torch.zeros(5), one),
        lambda: dist.reduce_scatter(one, short),
        lambda: dist.reduce_scatter_tensor(one, torch.zeros(5)),
        lambda: dist.all_to_all(short, short),
        lambda: dist.all_to_all_single(torch.zeros(4), torch.zeros(4), [1, 1], [4, 4]),
        lambda: dist.gather(one, short, RANK), lambda: dist.gather(one, wide, RANK),
        lambda: dist.scatter(one, short, RANK), lambda: dist.scatter(one, wide, RANK),
    )  # fmt: skip
    for call in calls:
        said(call)
    mixed = [one if rank == RANK else one.double() for rank in range(SIZE)]
    needs(said(lambda: dist.reduce_scatter(one, mixed)), "float32 in input_list", "float64")
    other = (RANK + 1) % SIZE
    expect(ValueError, "must NOT be specified on non-destination ranks.",
           lambda: dist.gather(one, wide, other))  # fmt: skip
    expect(ValueError, "must NOT be specified on non-source ranks.",
           lambda: dist.scatter(one, wide, other))  # fmt: skip
    for names in (("a", "a"), ("a",)):
        said(lambda names=names: dist.init_device_mesh("cpu", (1, SIZE), mesh_dim_names=names))


def differ() -> None:
    """Parameters, parts of DTensors and orders that differ; the group goes on after each."""
    wide = torch.nn.Linear(4 + 2 * (RANK == LAST), 4)
    fully_shard(wide)
    text = said(lambda: wide(torch.ones(1, 4 + 2 * (RANK == LAST))))
    needs(text, "different operations", "rank 0 all_gather(", f"rank {LAST} all_gather(")
    part = torch.ones(2 + (RANK == LAST), 3)
    mesh = dist.device_mesh.init_device_mesh("cpu", (SIZE,))
    text = said(DTensor.from_local(part, mesh, [Shard(0)]).full_tensor)
    needs(text, "rank 0 all_gather(6 x float32)", f"rank {LAST} all_gather(9 x float32)")
    first, second = torch.ones(2), torch.ones(3)
    for t in (first, second) if RANK else (second, first):
        needs(said(lambda t=t: dist.all_reduce(t)), "different operations", "x float32, sum")
    for call in parts_that_differ():
        needs(said(call), "do not take as many elements as they are given in all_to_all(float32)")
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value.item() == SIZE


def parts_that_differ():
    """Calls in which a rank takes more, or less, than another gives it."""
    size, own = 2 + (RANK == LAST), torch.ones(2 + (RANK == LAST))
    places = [torch.zeros(2) for _ in range(SIZE)]
    yield lambda: dist.gather(own, None if RANK else places)
    root = LAST if RANK == LAST else 0
    yield lambda: dist.gather(torch.ones(2), places if RANK == root else None, root)
    yield lambda: dist.scatter(torch.zeros(size), None if RANK else places)
    yield lambda: dist.all_to_all([torch.zeros(size)] * SIZE, places)
    yield lambda: dist.all_to_all_single(torch.zeros(SIZE), torch.zeros(SIZE + RANK),
                                         None, [1 + RANK] + [1] * (SIZE - 1))  # fmt: skip


def sizes() -> None:
    """Messages of another size than is expected; the group goes on, and so does the order."""
    for many, few in ((6, 2), (2, 6), (0, 3), (3, 0), (10**6, 3), (3, 10**6)):
        if RANK == 0:
            for tag in (0, 7):
                dist.send(torch.ones(many), 1, tag=tag)
                dist.send(torch.full((4,), 5.0), 1, tag=tag)
        if RANK == 1:
            for tag in (0, 7):
                place = torch.zeros(few + many)
                text = said(lambda out=place[:few], tag=tag: dist.recv(out, 0, tag=tag))
                assert not place[few:].any(), "written beyond the end"
                needs(text, f"recv({few} x float32) from rank 0", "the message has", "are expected")
                got = torch.zeros(4)
                dist.recv(got, 0, tag=tag)
                assert got.tolist() == [5.0] * 4
    value = torch.ones(1)
    dist.all_reduce(value)
    assert value.item() == SIZE


def alone() -> None:
    """A group that one rank makes alone: an error when its time is over, not 30 seconds later."""
    start = time.monotonic()
    if RANK == 0:
        text = said(lambda: dist.new_group([0, 1], timeout=timedelta(seconds=2)))
        needs(text, "all ranks still run")
        assert 1.5 < time.monotonic() - start < 20, time.monotonic() - start
    else:
        time.sleep(8)


def late() -> None:
    """What a timeout allows is waited for: the second rank comes after 33 seconds."""
    if RANK:
        time.sleep(33)
    pair = dist.new_group([0, 1], timeout=timedelta(seconds=300))
    value = torch.ones(1)
    dist.all_reduce(value, group=pair)
    assert value.item() == 2


def arguments() -> None:
    """What is no timeout, tag, rank or list of tensors says so before anything is exchanged."""
    one = torch.zeros(2)
    wrong = (
        lambda: dist.monitored_barrier(timeout="1"), lambda: dist.monitored_barrier(timeout=3),
        lambda: dist.new_group([0], timeout=3), lambda: dist.new_group(3),
        lambda: dist.new_subgroups("2"), lambda: dist.get_global_rank(dist.group.WORLD, "0"),
        lambda: dist.get_group_rank(dist.group.WORLD, [0]), lambda: dist.new_group([0.5]),
        lambda: dist.send(one, 1 - RANK, tag="1"), lambda: dist.send(one, "0"),
        lambda: dist.broadcast(one, 1.5), lambda: dist.all_gather(one, one),
        lambda: dist.all_gather([None] * SIZE, one), lambda: dist.reduce_scatter(one, None),
        lambda: dist.all_to_all("text", [one] * SIZE), lambda: dist.gather(one, 7, RANK),
        lambda: dist.scatter(one, "ab", RANK), lambda: dist.all_reduce_coalesced(one),
        lambda: dist.all_gather_coalesced(3, [one]), lambda: dist.broadcast_object_list(None, 0),
        lambda: dist.all_gather_object(None, 1), lambda: dist.send_object_list(3, 1 - RANK),
        lambda: dist.all_to_all_single(one, one, "ab", None),
        lambda: dist.P2POp(dist.isend, [1.0], 1 - RANK),
    )  # fmt: skip
    for number, call in enumerate(wrong):
        try:
            call()
        except TypeError as err:
            assert "expected" in str(err).lower(), (number, err)
        else:
            raise AssertionError(number)
    for call in (lambda: dist.batch_isend_irecv([1]), lambda: dist.P2POp(dist.isend, one, 99)):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError(call)
    said(lambda: dist.reduce_scatter(one, [torch.zeros(3)] * SIZE))
    mixed = [torch.zeros(2)] * (SIZE - 1) + [torch.zeros(3).int()]
    said(lambda: dist.reduce_scatter(one, mixed))
    work = dist.all_reduce(one, async_op=True)
    assert work.wait(timedelta(days=10**8))  # more nanoseconds than there are
    dist.barrier()


def destroyed() -> None:
    """A group that was left is refused by what it is asked for; it is no group of one."""
    pair = dist.new_group(list(range(SIZE)))
    whole, one, places = dist.group.WORLD, torch.ones(2), [torch.zeros(2)] * SIZE
    dist.all_reduce(one, group=pair)
    dist.barrier()
    dist.destroy_process_group(pair)
    calls = (
        lambda g: dist.all_reduce(one, group=g), lambda g: dist.all_gather(places, one, group=g),
        lambda g: dist.broadcast(one, 0, group=g), lambda g: dist.barrier(g),
        lambda g: dist.all_gather_object([None] * SIZE, 1, group=g), dist.get_rank,
        lambda g: dist.send(one, 1 - RANK, group=g), dist.get_world_size,
        dist.destroy_process_group, dist.get_process_group_ranks, lambda g: g.allreduce(one),
        lambda g: DistributedDataParallel(torch.nn.Linear(1, 1), process_group=g),
    )  # fmt: skip
    for groups in (pair, whole):
        if groups is whole:
            dist.destroy_process_group()
        for number, call in enumerate(calls):
            try:
                call(groups)
            except ValueError as err:
                said_so = ("has been destroyed", "has not been initialized")
                assert any(text in str(err) for text in said_so), (number, err)
            else:
                raise AssertionError(number)
    assert one.tolist() == [SIZE] * 2
    try:
        dist.all_reduce(one)
    except ValueError as err:
        assert "has not been initialized" in str(err), err
    dist.init_process_group(sys.argv[1])
    dist.all_reduce(one)
    assert one.tolist() == [SIZE * SIZE] * 2


def order() -> None:
    """Messages that wait under one tag come in the order in which they were sent."""
    if RANK == 0:
        for work in [dist.isend(torch.full((1 + i * 100,), float(i)), 1) for i in range(50)]:
            work.wait()
    if RANK == 1:
        into = [torch.zeros(1 + i * 100) for i in range(50)]
        for work in [dist.irecv(t, 0) for t in into]:
            work.wait()
        assert all((t == i).all() for i, t in enumerate(into))


globals()[fault]()
print("ok", flush=True)
if fault in (
    "arguments",
    "destroyed",
    "differ",
    "late",
    "order",
    "own_groups",
    "pipe",
    "refuse",
    "sizes",
):
    dist.destroy_process_group()
else:
    os._exit(0)  # the group is lost
