"""State, parameters and tensors that are cut among processes, against the same computation without
cuts, which every rank does for itself. Runs in two processes; `test_sharding.py` starts it."""

import copy
import os
import sys
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from expected import expect
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.algorithms.model_averaging.hierarchical_model_averager import (
    HierarchicalModelAverager,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

store = dist.TCPStore(
    "localhost", int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"]),
    os.environ["RANK"] == "0", timedelta(seconds=60),
)  # fmt: skip
dist.init_process_group(
    sys.argv[1], timeout=timedelta(seconds=60), store=dist.PrefixStore("first", store),
    rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]),
)  # fmt: skip
RANK, SIZE = dist.get_rank(), dist.get_world_size()


def net(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 7), torch.nn.Tanh(),
              torch.nn.Linear(7, 3, bias=False)]  # fmt: skip
    return torch.nn.Sequential(*layers).double()


def batches(steps: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    numbers = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(4 * SIZE, 5, generator=numbers, dtype=torch.float64),
            torch.randint(0, 3, (4 * SIZE,), generator=numbers),
        )
        for _ in range(steps)
    ]


def mine(t: torch.Tensor) -> torch.Tensor:
    return t[RANK * len(t) // SIZE : (RANK + 1) * len(t) // SIZE]


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-9, atol=1e-12)


def check_zero_redundancy_optimizer() -> None:
    for kind, options in ((torch.optim.AdamW, {"lr": 0.05}),
                          (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9})):  # fmt: skip
        alone, shared = net(), DistributedDataParallel(net())
        groups = [{"params": list(alone[0].parameters())},
                  {"params": list(alone[2:].parameters()), "lr": 0.02}]  # fmt: skip
        plain = kind(groups, **options)
        inner = shared.module
        zero = ZeroRedundancyOptimizer(
            [{"params": list(inner[0].parameters())},
             {"params": list(inner[2:].parameters()), "lr": 0.02}],
            kind, **options,
        )  # fmt: skip
        schedule = [torch.optim.lr_scheduler.StepLR(o, 2, 0.5) for o in (plain, zero)]
        for x, y in batches():
            for model, optimizer, xs, ys in (
                (alone, plain, x, y), (shared, zero, mine(x), mine(y)),
            ):  # fmt: skip
                optimizer.zero_grad()
                F.cross_entropy(model(xs), ys).backward()
                optimizer.step()
            for s in schedule:
                s.step()
        for p, q in zip(alone.parameters(), inner.parameters()):
            close(q, p)
        owned = {id(p) for p in zero.state}
        counts = [None] * SIZE
        dist.all_gather_object(counts, len(owned))
        assert sum(counts) == len(list(inner.parameters())) and min(counts) > 0
        zero.consolidate_state_dict(to=1)
        if RANK != 1:
            try:
                zero.state_dict()
            except RuntimeError as err:
                assert "has not been consolidated on this rank" in str(err)
            else:
                raise AssertionError("a state that is not there was returned")
        states = [zero.state_dict() if RANK == 1 else None]
        dist.broadcast_object_list(states, src=1)
        want = plain.state_dict()
        assert states[0]["param_groups"] == want["param_groups"], states[0]["param_groups"]
        assert states[0]["state"].keys() == want["state"].keys()
        for number, values in want["state"].items():
            for key, value in values.items():
                got = states[0]["state"][number][key]
                close(torch.as_tensor(got), torch.as_tensor(value))
        fresh = ZeroRedundancyOptimizer(
            [{"params": list(inner[0].parameters())}, {"params": list(inner[2:].parameters())}],
            kind, **options,
        )  # fmt: skip
        fresh.load_state_dict(states[0])
        assert fresh.param_groups[1]["lr"] == zero.param_groups[1]["lr"]
        x, y = batches(5)[-1]
        for model, optimizer, xs, ys in ((alone, plain, x, y), (shared, fresh, mine(x), mine(y))):
            optimizer.zero_grad()
            F.cross_entropy(model(xs), ys).backward()
            optimizer.step()
        for p, q in zip(alone.parameters(), inner.parameters()):
            close(q, p)
    try:
        ZeroRedundancyOptimizer([torch.ones(2 + RANK)], torch.optim.SGD, lr=1.0)
    except ValueError as err:
        assert "ranks 0 and 1 have different parameters" in str(err)
    else:
        raise AssertionError("ranks with different parameters were taken")


def check_averages_of_groups() -> None:
    """Groups of one do nothing every second step; all average every fourth one."""
    model, twins = net(RANK), [net(r) for r in range(SIZE)]
    for m in (model, *twins):
        for p in m.parameters():
            p.grad = torch.zeros_like(p)
    averager = HierarchicalModelAverager({2: 1, 4: SIZE}, warmup_steps=1)
    mean = torch.stack([t[0].weight.detach() for t in twins]).mean(0)
    for step in range(5):
        averager.average_parameters(model.parameters())
        close(model[0].weight, mean if step == 4 else twins[RANK][0].weight)
    assert averager.step == 5
    wrongs = {"must not be empty": {}, "positive": {0: SIZE}, "last value": {2: SIZE + 1}}
    for text, wrong in wrongs.items():
        try:
            HierarchicalModelAverager(wrong)
        except ValueError as err:
            assert text in str(err)
        else:
            raise AssertionError(f"nothing was said of {wrong}")


def check_local_steps_with_averages() -> None:
    model = net(RANK)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), PeriodicModelAverager(2, warmup_steps=1)
    )
    twins = [net(r) for r in range(SIZE)]
    plain = [torch.optim.SGD(t.parameters(), lr=0.1) for t in twins]
    for i, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        F.cross_entropy(model(mine(x)), mine(y)).backward()
        optimizer.step()
        for r, (twin, each) in enumerate(zip(twins, plain)):
            part = slice(r * len(x) // SIZE, (r + 1) * len(x) // SIZE)
            each.zero_grad()
            F.cross_entropy(twin(x[part]), y[part]).backward()
            each.step()
        if i >= 1 and (i - 1) % 2 == 0:
            with torch.no_grad():
                for ps in zip(*(t.parameters() for t in twins)):
                    average = torch.stack([p.detach() for p in ps]).mean(0)
                    for p in ps:
                        p.copy_(average)
        for p, q in zip(model.parameters(), twins[RANK].parameters()):
            close(p, q)
    state = copy.deepcopy(optimizer.state_dict())
    assert state["step"] == 4


def check_functional_collectives() -> None:
    import torch.distributed._functional_collectives as funcol

    group = dist.group.WORLD
    x = torch.arange(6.0).view(2, 3) + 10 * RANK
    everyone = [torch.arange(6.0).view(2, 3) + 10 * r for r in range(SIZE)]
    close(funcol.all_reduce(x, "sum", group), sum(everyone))
    close(funcol.all_gather_tensor(x, 1, group), torch.cat(everyone, 1))
    part = funcol.reduce_scatter_tensor(x, "avg", 0, group)
    close(part, (sum(everyone) / SIZE)[RANK : RANK + 1])
    leaf = x.clone().requires_grad_()
    (funcol.reduce_scatter_tensor_autograd(leaf, "sum", 0, group) * (RANK + 1)).sum().backward()
    close(leaf.grad, torch.tensor([1.0, 2.0])[:, None].expand(2, 3))
    close(funcol.permute_tensor(x, [1, 0], group), everyone[1 - RANK])
    found = (
        funcol.all_gather_tensor(x, 0, group), funcol.broadcast(x, 0, group),
        funcol.all_reduce(x, "sum", group), funcol.reduce_scatter_tensor(x, "sum", 0, group),
        funcol.all_to_all_single(x, None, None, group),
    )  # fmt: skip
    for got in found:
        assert isinstance(got, funcol.AsyncCollectiveTensor) and got.completed
        assert type(got.wait()) is type(got + 1) is type(got.elem) is torch.Tensor
        assert type(funcol.wait_tensor(got)) is torch.Tensor
    close(funcol.wait_tensor(funcol.broadcast(x, 1, group)), everyone[1])
    ops, name = torch.ops._c10d_functional, group.group_name
    close(ops.all_gather_into_tensor(x, SIZE, name), torch.cat(everyone))
    close(ops.reduce_scatter_tensor(x, "sum", SIZE, name), sum(everyone)[RANK : RANK + 1])
    close(ops.all_reduce_(x.clone(), "max", name), everyone[-1])
    out = torch.empty(1, 3)
    close(ops.reduce_scatter_tensor_out(x, "avg", SIZE, name, out=out), part)
    older = torch.ops.c10d_functional.all_gather_into_tensor
    close(older(x, "", list(range(SIZE)), SIZE), torch.cat(everyone))
    parts = [[e[:1] for e in everyone]] if RANK == 1 else []
    (got,), work = torch.ops.c10d.scatter_([torch.empty(1, 3)], parts, group, 1)
    work.wait()
    close(got, everyone[RANK][:1])


def check_replicated_in_place() -> None:
    """`replicate` averages as DistributedDataParallel does; `checkpoint` changes no number."""
    from torch.distributed._composable import checkpoint, fully_shard, replicate

    torch.manual_seed(RANK)  # rank 0 decides
    layers = torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
    cut = torch.nn.Sequential(*layers).double()
    assert replicate.state(cut) is None
    runs = []
    hook = cut[0].register_forward_hook(lambda *a: runs.append(1))
    assert replicate(checkpoint(cut), ignored_modules=[cut[2]]) is cut
    assert type(cut).__name__ == "DDPSequential" and replicate.state(cut) is not None
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(RANK)).double()
    cut.set_requires_gradient_sync(False)
    cut(x).sum().backward()
    hook.remove()
    assert len(runs) == 2
    alone = copy.deepcopy(list(cut.children()))
    parts = [None] * SIZE
    dist.all_gather_object(parts, [m.state_dict() for m in alone])
    close(parts[0][0]["weight"], parts[1][0]["weight"])
    assert not torch.equal(parts[0][2]["weight"], parts[1][2]["weight"])
    first = [p.grad.clone() for p in cut.parameters()]
    cut.set_requires_gradient_sync(True)
    cut(x).sum().backward()
    dist.all_gather_object(parts, first)
    for i, p in enumerate(cut.parameters()):
        want = (parts[0][i] + parts[1][i]) if i < 2 else 2 * first[i]  # twice the same gradient
        close(p.grad, want)
    seen = []
    other = replicate(torch.nn.Linear(3, 2))
    other.register_comm_hook(seen, lambda state, bucket: (state.append(1), _future(bucket))[1])
    other(torch.ones(1, 3)).sum().backward()
    assert seen == [1]
    text = "can only be applied to a module once"
    expect(AssertionError, text, lambda: replicate(cut))
    expect(AssertionError, text, lambda: checkpoint(cut))
    expect(AssertionError, "DDP does not support deepcopy", lambda: copy.deepcopy(cut))
    expect(NotImplementedError, "use_reentrant=True", lambda: checkpoint(other, use_reentrant=True))
    sharded = fully_shard(torch.nn.Linear(2, 2))
    expect(RuntimeError, "already managed by `fully_shard`", lambda: replicate(sharded))
    mesh = init_device_mesh("cpu", (1, SIZE))
    plain = torch.nn.Linear(2, 2)
    expect(RuntimeError, "of one dimension", lambda: replicate(plain, device_mesh=mesh))


def _future(bucket: dist.GradBucket) -> torch.futures.Future:
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


if __name__ == "__main__":
    for name, check in list(globals().items()):
        if name.startswith("check_") and name[6:].startswith(tuple(sys.argv[2:]) or ""):
            check()
    dist.destroy_process_group()
    print("ok\n", end="")
