"""Calls of tenon.distributed with arguments that are wrong on some ranks: each ends on every rank
within the deadline, by a result or an error that a program may expect and that says what is wrong.
ENGINE FOLDER SEED CASES [FIRST]; several ranks run it, started by
`tests/processes/test_wrong_calls.py`. The same seed gives the same cases."""

import faulthandler
import os
import pickle
import random
import re
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

ENGINE, FOLDER, SEED, CASES = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
FIRST = int(sys.argv[5]) if len(sys.argv) > 5 else 0
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
SECONDS = 1.0  # a group's deadline
GRACE = 40.0  # on a machine with other work
EXPECTED = (ValueError, TypeError, RuntimeError, OSError, pickle.PicklingError)
# What Python says where nobody has looked at an argument.
UNSEEN = re.compile(
    r"object (is not|has no|cannot be|of type)|unsupported operand|unpack|indices must"
)
STORE = dist.FileStore(f"{FOLDER}/store", SIZE)


class Joined:
    """The groups of a number of cases."""

    number = 0

    def __init__(self) -> None:
        Joined.number += 1
        for name in ("RANK", "WORLD_SIZE"):
            os.environ.pop(name, None)
        dist.init_process_group(
            ENGINE, init_method=f"file://{FOLDER}/meet{Joined.number}", rank=RANK, world_size=SIZE,
            timeout=timedelta(seconds=60),
        )  # fmt: skip
        self.pair = dist.new_group([0, 1])
        self.ended = dist.new_group(list(range(SIZE)))
        dist.barrier()  # nobody leaves what another one still joins
        dist.destroy_process_group(self.ended)
        for group in (None, self.pair):
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=SECONDS), group)


def full(n: int = 4) -> torch.Tensor:
    return torch.full((n,), RANK + 1.0)


def several(n: int = 4) -> list[torch.Tensor]:
    return [full(n) for _ in range(SIZE)]


def other() -> int:
    return 1 if RANK == 0 else 0


TENSORS = [
    lambda: full(5), lambda: full(0), lambda: torch.ones(4, dtype=torch.int64),
    lambda: torch.ones(4, dtype=torch.complex64), lambda: torch.ones(4, dtype=torch.bool),
    lambda: torch.ones(2, 2), lambda: torch.tensor(3.0), lambda: torch.ones(8)[::2],
    lambda: torch.ones(4, requires_grad=True), lambda: torch.ones(1).expand(4),
    lambda: torch.ones(4).to_sparse(), lambda: None, lambda: "text", lambda: [1.0], lambda: full,
]  # fmt: skip
LISTS = [
    lambda: [], lambda: [full()], lambda: [full(5)] * SIZE, lambda: [full()] * (SIZE + 1),
    lambda: [full(1 + i) for i in range(SIZE)], lambda: None, lambda: full(), lambda: "text",
    lambda: [None] * SIZE, lambda: [torch.ones(4, dtype=torch.int64)] * SIZE, lambda: 7,
]  # fmt: skip
RANKS = [-1, -(2**63), 0, 1, 99, 2**40, None, "0", 1.5, True, [0]]
TAGS = [-1, 1, 32767, 32768, 2**40, None, "1", 1.5]
OPS = [dist.ReduceOp.BAND, dist.ReduceOp.MAX, dist.ReduceOp.AVG, dist.ReduceOp.PREMUL_SUM, "nope",
       None, 3, "sum"]  # fmt: skip
SPLITS = [[], [4] * SIZE, [-1] * SIZE, [1] * (SIZE + 1), "text", [1.5] * SIZE, None, [2**62] * SIZE]
OBJECTS = [[], None, "text", [lambda: 0], [object()], 3, [None] * (SIZE + 3), (1, 2)]
BOOLS = [True, "yes", None]
TIMES = [timedelta(0), timedelta(seconds=-1), 3, "1", None, timedelta(days=10**6)]


def wrong(name: str, rng: random.Random, joined: Joined) -> object:
    """Something else for an argument of this name."""
    if name == "group":
        member = dist.GroupMember.NON_GROUP_MEMBER
        return rng.choice([joined.pair, joined.ended, member, "text", 3, dist.ProcessGroup])
    kinds = {
        "tensor": TENSORS, "output": TENSORS, "input": TENSORS, "list": LISTS, "input_list": LISTS,
    }  # fmt: skip
    if name in kinds:
        return rng.choice(kinds[name])()
    ranks = [[0, 0], [99], [-1], [], "text", 3, [0.5], [1, 0]]
    more = {"op": OPS, "tag": TAGS, "splits": SPLITS, "objects": OBJECTS, "async_op": BOOLS,
            "timeout": TIMES, "ranks": ranks}  # fmt: skip
    return rng.choice(more.get(name, RANKS))


def calls() -> dict[str, tuple]:
    """What is called: by position or name, and what each argument is usually."""
    root = {"dst": 0, "group": None, "async_op": False}
    return {
        "all_reduce": (dict(tensor=full(), op=dist.ReduceOp.SUM, group=None, async_op=False), ()),
        "reduce": (dict(tensor=full(), dst=0, op=dist.ReduceOp.SUM, group=None), ()),
        "broadcast": (dict(tensor=full(), src=0, group=None, async_op=False), ()),
        "all_gather": (dict(list=several(), tensor=full(), group=None), ("list", "tensor")),
        "all_gather_into_tensor": (
            dict(output=full(4 * SIZE), input=full(), group=None), ("output", "input")),
        "reduce_scatter": (
            dict(output=full(), input_list=several(), group=None), ("output", "input_list")),
        "reduce_scatter_tensor": (
            dict(output=full(), input=full(4 * SIZE), group=None), ("output", "input")),
        "gather": (dict(tensor=full(), list=several() if RANK == 0 else None, **root),
                   ("tensor", "list")),
        "scatter": (dict(tensor=full(), list=several() if RANK == 0 else None, src=0, group=None),
                    ("tensor", "list")),
        "all_to_all": (dict(list=several(), input_list=several(), group=None),
                       ("list", "input_list")),
        "all_to_all_single": (
            dict(output=full(SIZE), input=full(SIZE), splits=None, group=None),
            ("output", "input", "splits")),
        "barrier": (dict(group=None, async_op=False), ()),
        "monitored_barrier": (dict(group=None, timeout=timedelta(seconds=SECONDS)), ()),
        "all_gather_object": (dict(objects=[None] * SIZE, obj=RANK, group=None),
                              ("objects", "obj")),
        "gather_object": (dict(obj=RANK, objects=[None] * SIZE if RANK == 0 else None, dst=0),
                          ("obj", "objects")),
        "broadcast_object_list": (dict(objects=[RANK, "x"], src=0, group=None), ("objects",)),
        "scatter_object_list": (
            dict(objects=[None], list=list(range(SIZE)) if RANK == 0 else None, src=0),
            ("objects", "list")),
        "all_reduce_coalesced": (dict(list=several(), op=dist.ReduceOp.SUM), ("list",)),
        "all_gather_coalesced": (dict(list=[several()] * SIZE, input_list=several()),
                                 ("list", "input_list")),
        "new_group": (dict(ranks=[0, 1], timeout=timedelta(seconds=5)), ()),
        "new_subgroups": (dict(size=1, group=None), ("size",)),
        "get_rank": (dict(group=None), ()), "get_world_size": (dict(group=None), ()),
        "get_global_rank": (dict(group=dist.group.WORLD, rank=0), ("group", "rank")),
        "get_group_rank": (dict(group=dist.group.WORLD, rank=0), ("group", "rank")),
        "get_process_group_ranks": (dict(group=None), ()),
        "destroy_process_group": (dict(group=None), ()),
        "message": (dict(tensor=full(), rank=other(), group=None, tag=0), ()),
        "anyone": (dict(tensor=full(), rank=None, group=None, tag=0), ()),
        "objects": (dict(objects=[1, "a"], rank=other(), group=None), ()),
        "store": (dict(key="a", value="b", timeout=timedelta(seconds=1)), ()),
    }  # fmt: skip


def message(tensor: object, rank: object, group: object, tag: object) -> None:
    if RANK > 1:
        return
    if RANK == 0:
        dist.send(tensor, rank, group, tag)
        dist.recv(tensor, rank, group, tag)
    else:
        dist.recv(tensor, rank, group, tag)
        dist.send(tensor, rank, group, tag)


def anyone(tensor: object, rank: object, group: object, tag: object) -> None:
    if RANK == 0:
        for _ in range(SIZE - 1):
            dist.recv(tensor, rank, group, tag)
    else:
        dist.send(tensor, 0 if rank is None else rank, group, tag)


def objects(objects: object, rank: object, group: object) -> None:
    if RANK == 0:
        dist.send_object_list(objects, rank, group)
    elif RANK == 1:
        dist.recv_object_list(objects, rank, group)


def store(key: object, value: object, timeout: object) -> None:
    kept = dist.PrefixStore("fuzz", STORE)
    kept.set(key, value)
    assert kept.get("a") is not None
    kept.wait(["nobody sets it"], timeout)


OWN = {"message": message, "anyone": anyone, "objects": objects, "store": store}


def call(rng: random.Random, name: str, joined: Joined) -> object:
    arguments, positions = calls()[name]
    for _ in range(rng.choice([0, 1, 1, 2])):
        changed = rng.choice(sorted(arguments))
        whose = rng.choice([None, None, *range(SIZE)])
        value = wrong(changed, rng, joined)
        if whose is None or whose == RANK:
            arguments[changed] = value
    if name == "destroy_process_group" and arguments["group"] is None:
        dist.destroy_process_group()
        name, arguments, positions = "all_reduce", {"tensor": full()}, ()
    given = [arguments.pop(p) for p in positions]
    done = OWN[name](**arguments) if name in OWN else getattr(dist, name)(*given, **arguments)
    if isinstance(done, dist.Work):
        done.wait()
    return done


def say(key: str, text: str) -> list[str]:
    """What all ranks say under a key."""
    STORE.set(f"{key} {RANK}", text)
    STORE.wait([f"{key} {r}" for r in range(SIZE)], timedelta(seconds=2 * GRACE))
    return [STORE.get(f"{key} {r}").decode() for r in range(SIZE)]


def main() -> None:
    joined = Joined()
    counts = {"well": 0, "refused": 0}
    for case in range(FIRST, FIRST + CASES):
        rng = random.Random(SEED * 100003 + case)
        name = rng.choice(sorted(calls()))
        faulthandler.dump_traceback_later(2 * GRACE, exit=True)
        start, said = time.monotonic(), ""
        try:
            call(rng, name, joined)
        except EXPECTED as err:
            said = f"{type(err).__name__}: {err}" or type(err).__name__
            assert str(err) and not UNSEEN.search(said), (case, name, said)
        took = time.monotonic() - start
        assert took < 3 * SECONDS + GRACE, f"seed {SEED} case {case}, {name}: {took} s; {said}"
        counts["refused" if said else "well"] += 1
        if os.environ.get("TENON_TEST_LOG"):
            print(f"{case} {name} rank {RANK} {took:.1f} s {said[:150]}\n", end="", flush=True)
        everyone = say(f"case {case}", said)
        if any(everyone) or name in OWN or not dist.is_initialized():
            if dist.is_initialized():
                dist.destroy_process_group()
            joined = Joined()
    say("end", "")
    faulthandler.cancel_dump_traceback_later()
    assert counts["well"] > CASES / 10 and counts["refused"] > CASES / 10, counts
    print("ok\n", end="", flush=True)
    os._exit(0)


main()
