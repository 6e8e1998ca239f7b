"""What a program sees of NCCL beyond results: streams, memory, and what goes wrong. Runs in three
processes; `test_nccl.py` starts it."""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

RANK = int(os.environ["RANK"])


def join(seconds: float = 60) -> None:
    dist.init_process_group("nccl", timeout=timedelta(seconds=seconds))


def failure(function: object) -> str:
    """What goes wrong, within the deadline and a little."""
    start = time.monotonic()
    try:
        function()
    except Exception as err:
        assert time.monotonic() - start < 20, err
        return f"{type(err).__name__}: {err}"
    raise AssertionError("nothing went wrong")


def stream() -> None:
    """The stream waits and the host does not; what was queued before comes before."""
    join()
    dist.all_reduce(torch.ones(1, device="cuda"))  # communicators are made
    torch.cuda.synchronize()
    dist.barrier()
    x = torch.zeros(100_000, device="cuda")
    for _ in range(20):
        x += 1
    if RANK == 1:
        time.sleep(1.5)
    start = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    assert work.wait()
    took = time.monotonic() - start
    assert RANK == 1 or took < 0.7, took
    assert RANK == 1 or not work.is_completed()
    x *= 2
    assert (x == 120).all().item()
    assert RANK == 1 or time.monotonic() - start > 1.0


LARGE = 1 << 21


def memory() -> None:
    """A tensor that the program lets go of stays until all ranks have had it; behind a barrier what
    was started before has ended, whoever waited for it. It takes longer than the barrier's own."""
    join()
    dist.all_reduce(torch.ones(1, device="cuda"))
    dist.barrier()
    if RANK == 1:
        time.sleep(1)
    for dtype in (torch.float32, torch.float16):
        given = torch.full((LARGE,), RANK + 1.0, device="cuda", dtype=dtype)
        out = torch.zeros(3 * LARGE, device="cuda", dtype=dtype)
        dist.all_gather_into_tensor(out, given, async_op=True)
        del given
        for _ in range(4):
            torch.full((LARGE,), 99.0, device="cuda", dtype=dtype)
        dist.barrier()
        assert out.view(3, -1)[:, 0].tolist() == [1, 2, 3] == out.view(3, -1)[:, -1].tolist()


def streams() -> None:
    """Another stream than the current one's waits, if it is the one that asks."""
    join()
    side = torch.cuda.Stream()
    x = torch.ones(50_000, device="cuda")
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.default_stream())
        y = x * (RANK + 1)
        work = dist.all_reduce(y, async_op=True)
    work.wait()
    assert (y == 6).all().item()
    graph, kept = torch.cuda.CUDAGraph(), torch.ones(4, device="cuda")
    with torch.cuda.graph(graph):
        kept += 1
        said = failure(lambda: dist.all_reduce(kept))
    assert said == "RuntimeError: all_reduce(): exchanges are not recorded in graphs", said
    dist.all_reduce(kept, async_op=True).block_current_stream()
    assert kept.tolist() == [3] * 4
    half = torch.full((3,), 1.5, device="cuda", dtype=torch.bfloat16)
    dist.all_reduce(half, dist.ReduceOp.AVG)
    assert half.tolist() == [1.5] * 3


def mixed() -> None:
    """Ranks whose tensors lie elsewhere hear of it, and go on."""
    join()
    where = "cpu" if RANK == 1 else "cuda"
    said = failure(lambda: dist.all_reduce(torch.ones(3, device=where)))
    assert "different operations" in said and "sum, on the device) as" in said, said
    x = torch.ones(3, device="cuda")
    dist.all_reduce(x)
    assert x.tolist() == [3] * 3
    if RANK:
        dist.send(torch.full((2,), float(RANK), device=where), 0)  # messages may go from any to any
    else:
        for other in (2, 1):
            got = torch.zeros(2, device="cuda")
            dist.recv(got, other)
            assert got.tolist() == [other] * 2
        assert "cannot receive from any rank" in failure(lambda: dist.recv(x))
    wrong = torch.zeros(1 + (RANK == 2), device="cuda")
    if RANK == 1:
        dist.send(wrong, 2)
        dist.send(wrong + 7, 2)
    elif RANK == 2:
        assert "the message has 4 bytes, 8 are expected" in failure(lambda: dist.recv(wrong, 1))
        dist.recv(wrong[:1], 1)
        assert wrong.tolist() == [7, 0]
    dist.barrier()


def lost() -> None:
    """TENON_NCCL_HOST_FAULT's rank fails or hangs: errors in time, and the device is free again."""
    kind = os.environ["TENON_NCCL_HOST_FAULT"].partition("@")[0]
    join()
    distributed_c10d._set_pg_timeout(timedelta(seconds=3))
    x = torch.ones(5, device="cuda")
    said = failure(lambda: [dist.all_reduce(x) for _ in range(50) if time.sleep(0.2) is None])
    if RANK == 1 and kind != "hang":
        text = "a call that the harness refuses" if kind == "refuse" else "a peer of the harness"
        assert text in said and "rank 1 of 3 in all_reduce(5 x float32, sum, on the" in said, said
    else:
        assert "in all_reduce(5 x float32, sum, on the device) as operation" in said, said
    assert "lost before" in failure(lambda: dist.all_reduce(x))
    torch.cuda.synchronize()
    assert torch.ones(2, device="cuda").sum().item() == 2
    print("ok\n", end="", flush=True)
    os._exit(0)


def unheard() -> None:
    """An operation that is lost behind wait() never lets the program read what was not summed."""
    join()
    distributed_c10d._set_pg_timeout(timedelta(seconds=2))
    x = torch.ones(5, device="cuda")
    dist.all_reduce(x)
    dist.all_reduce(x)
    print(x.tolist(), flush=True)
    os._exit(0)


def blocking() -> None:
    """An operation that hangs is an error of its own wait, where the host waits."""
    join()
    distributed_c10d._set_pg_timeout(timedelta(seconds=3))
    x = torch.ones(5, device="cuda")
    dist.all_reduce(x)
    work = dist.all_reduce(x, async_op=True)
    said = failure(work.wait)
    assert "waited 3.0 s in all_reduce(5 x float32, sum, on the device) as operation 2" in said, (
        said
    )
    print("ok\n", end="", flush=True)
    os._exit(0)


def never() -> None:
    """A communicator that is never ready ends with the deadline."""
    said = failure(lambda: join(3))
    assert "nccl: not all ranks have come within 3.0 s" in said or "rank 0 has" in said, said
    print("ok\n", end="", flush=True)
    os._exit(0)


globals()[sys.argv[1]]()
dist.destroy_process_group()
print("ok\n", end="")
