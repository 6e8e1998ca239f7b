"""When units of sharded models gather their parameters and exchange their gradients, in two
processes against the same model whole; `test_sharding.py` starts it."""

import functools
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

dist.init_process_group(sys.argv[1])


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    got = got.full_tensor() if isinstance(got, DTensor) else got
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), 1e-9, 1e-11)


class Block(torch.nn.Module):
    """Of two ranks each has 4 `width` of its elements."""

    def __init__(self, width: int, seen: list) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, width, bias=False)
        self.down = torch.nn.Linear(width, 4, bias=False)
        self.width, self.seen = width, seen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(f"{self.width} runs")
        return x + self.down(torch.tanh(self.up(x)))


class Blocks(torch.nn.Module):
    def __init__(self, seen: list) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(width, seen) for width in (2, 4, 6))

    def forward(self, x: torch.Tensor, left_out: int = 0) -> torch.Tensor:
        for block in self.blocks:
            x = block(x) if block.width != left_out else x
        return x


def blocks(seen: list) -> Blocks:
    torch.manual_seed(1)
    return Blocks(seen).double()


def passes(alone, cut, seen: list, left_out: int = 0) -> str:
    """What happened in forward and backward, which give the same numbers in both."""
    seen.clear()
    x = torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4)
    got, want = cut(x, left_out), alone(x, left_out)
    got.square().sum().backward()
    happened = ", ".join(seen)
    want.square().sum().backward()
    close(got, want)
    own = dict(cut.named_parameters())  # flat ones have other names
    for name, p in alone.named_parameters():
        if name in own and p.grad is not None:
            close(own[name].grad, p.grad)
    for model in (alone, cut):
        model.zero_grad()
    return happened


def check_gathers_ahead_of_their_use() -> None:
    real, seen = dist.all_gather_into_tensor, []

    def spy(out, part, group=None, async_op=False):
        seen.append(f"{part.numel() // 4} {'begun' if async_op else 'awaited'}")
        return real(out, part, group, async_op)

    def happened(left_out: int = 0) -> str:
        return passes(alone, cut, seen, left_out)

    alone, cut = blocks([]), blocks(seen)
    for block in cut.blocks:
        fully_shard(block)
    fully_shard(cut)
    dist.all_gather_into_tensor = spy
    forward = "2 awaited, 2 runs, 4 awaited, 4 runs, 6 awaited, 6 runs"
    first = f"{forward}, 6 awaited, 4 awaited, 2 awaited"
    assert happened() == first, seen
    ahead = "2 awaited, 4 begun, 2 runs, 6 begun, 4 runs, 6 runs"
    later = f"{ahead}, 6 awaited, 4 begun, 2 begun"
    assert happened() == later, seen
    # what comes otherwise is gathered then, and expected so from then on
    other = "2 awaited, 4 begun, 2 runs, 6 awaited, 6 runs, 6 awaited, 4 begun, 2 awaited"
    assert happened(4) == other, seen
    other = "2 awaited, 6 begun, 2 runs, 6 runs, 6 awaited, 2 begun"
    assert happened(4) == other, seen
    # what was begun is not used after its pass: parameters may change
    happened(), happened(6)
    with torch.no_grad():
        for p in (*cut.blocks[2].parameters(), *alone.blocks[2].parameters()):
            p.mul_(3)
    happened()
    with torch.no_grad():
        cut(torch.ones(1, 4, dtype=torch.float64), 6)
        for p in (*cut.blocks[2].parameters(), *alone.blocks[2].parameters()):
            p.mul_(3)
    cut.blocks[2].unshard()
    close(cut.blocks[2].up.weight, alone.blocks[2].up.weight)
    cut.blocks[2].reshard()
    cut.blocks[0].unshard(async_op=True).wait()
    assert happened().startswith("2 runs, 4 awaited, 6 begun, 4 runs"), seen
    cut.blocks[0].reshard()
    # those that the program names are, from the first pass on
    cut = blocks(seen)
    for block in (*cut.blocks, cut):
        fully_shard(block)
    cut.blocks[0].set_modules_to_forward_prefetch(list(cut.blocks[1:]))
    cut.blocks[2].set_modules_to_backward_prefetch([cut.blocks[0]])
    alone = blocks([])
    ahead = "2 awaited, 4 begun, 6 begun, 2 runs, 4 runs, 6 runs"
    assert happened() == f"{ahead}, 6 awaited, 2 begun, 4 awaited", seen
    # the class takes what it is asked for
    wrap = ModuleWrapPolicy({Block})
    for options, want in (
        ({}, f"{forward}, 6 awaited, 4 begun, 2 begun"),
        ({"backward_prefetch": None}, first),
        ({"forward_prefetch": True}, later),
    ):
        cut = FSDP(blocks(seen), auto_wrap_policy=wrap, **options)
        assert happened() == first, (options, seen)
        assert happened() == want, (options, seen)
    dist.all_gather_into_tensor = real


def gradients_are_alike(alone, cut) -> None:
    for (name, p), q in zip(cut.named_parameters(), alone.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            close(p.grad, q.grad)


def check_sums_go_on_while_backward_computes() -> None:
    """A unit's sums are begun when its gradients are there, and waited for by the next unit."""
    real, seen = dist.reduce_scatter_tensor, []

    class Watched:
        def __init__(self, work, size: int) -> None:
            self.work, self.size = work, size

        def wait(self) -> bool:
            seen.append(f"{self.size} waited for")
            return self.work.wait()

    def spy(out, part, op, group=None, async_op=False):
        seen.append(f"{out.numel() // 4} begun")
        work = real(out, part, op, group, async_op)
        return Watched(work, out.numel() // 4) if async_op else work

    def arrives(size: int, grad: torch.Tensor) -> None:
        seen.append(f"{size} comes")

    dist.reduce_scatter_tensor = spy
    x = torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4)
    try:
        alone = blocks([])
        for kind in ("fully", "flat", "parameters"):
            cut = blocks(seen)
            if kind == "fully":
                for block in cut.blocks:
                    fully_shard(block)
            else:
                wrap = ModuleWrapPolicy({Block})
                cut = FSDP(cut, auto_wrap_policy=wrap, use_orig_params=kind == "parameters")
            held = list(cut.parameters())
            for p in held if kind == "fully" else ():
                p.register_hook(functools.partial(arrives, p.numel() // 8))
            for _ in range(2):  # the second time they are added
                seen.clear()
                loss = cut(x).square().sum()
                seen.clear()
                loss.backward()
                sums = [s for s in seen if "comes" not in s]
                want = "6 begun, 6 waited for, 4 begun, 4 waited for, 2 begun, 2 waited for"
                assert ", ".join(s for s in sums if "runs" not in s) == want, (kind, seen)
                alone(x).square().sum().backward()
            if kind == "fully":
                order = "6 begun, 6 waited for, 3 comes, 3 comes, 4 begun"
                assert ", ".join(seen).startswith(order), seen
                gradients_are_alike(alone, cut)
            # gradients of given tensors come at once
            got = torch.autograd.grad(cut(x).square().sum(), held)
            for g, p in zip(got, held, strict=True):
                close(2 * g, p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad)
            alone.zero_grad()
    finally:
        dist.reduce_scatter_tensor = real


def check_a_pass_that_fails_leaves_nothing_behind() -> None:
    def watch(out: torch.Tensor) -> None:
        out.register_hook(fails)

    def fails(grad: torch.Tensor) -> None:
        raise ArithmeticError("a hook of the program")

    x = torch.linspace(-1, 1, 8, dtype=torch.float64).view(2, 4)
    for wraps in (fully_shard, FSDP):
        alone, cut = blocks([]), blocks([])
        for i, block in enumerate(cut.blocks):
            cut.blocks[i] = wraps(block)
        middle = cut.blocks[1].register_forward_hook(lambda m, a, out: watch(out))
        try:
            cut(x).square().sum().backward()
        except ArithmeticError:
            middle.remove()
        cut.zero_grad()
        got, want = cut(x).square().sum(), alone(x).square().sum()
        got.backward()
        want.backward()
        assert all(p.grad is not None for p in cut.parameters())
        if wraps is fully_shard:
            gradients_are_alike(alone, cut)


def check_parameters_that_stay_whole_after_backward() -> None:
    """Gradients of several passes are added where backward leaves the parameters whole."""
    for syncs in (True, False):
        alone, cut = blocks([]), blocks([])
        for block in (*cut.blocks, cut):
            fully_shard(block)
        own, plain = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (cut, alone))
        for _ in range(2):
            for last in (False, False, True):
                cut.set_reshard_after_backward(last)
                cut.set_requires_gradient_sync(last or syncs)
                x = torch.linspace(-1, 1 + last, 8, dtype=torch.float64).view(2, 4)
                cut(x).square().sum().backward()
                alone(x).square().sum().backward()
            gradients_are_alike(alone, cut)
            for optimizer in (own, plain):
                optimizer.step()
                optimizer.zero_grad()


def check_other_parameters_in_their_place() -> None:
    """load_state_dict(assign=True) gives a model the tensors of the state, which it uses then."""
    seen = []
    alone, cut = blocks(seen), blocks(seen)
    for block in cut.blocks:
        fully_shard(block)
    mesh = fully_shard(cut).blocks[0].up.weight.device_mesh
    with torch.no_grad():
        for p in alone.parameters():
            p.mul_(2).add_(0.1)
    state = {n: distribute_tensor(p, mesh, [Shard(0)]) for n, p in alone.state_dict().items()}
    cut.load_state_dict(state, assign=True)
    passes(alone, cut, seen)
    for model in (alone, cut):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(2, 4, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
        model.zero_grad()
    passes(alone, cut, seen)
    for wrong in (3, 0, -1, "2"):
        try:
            fully_shard(blocks(seen), reshard_after_forward=wrong)
        except ValueError as err:
            assert "reshard_after_forward" in str(err), err
        else:
            raise AssertionError(wrong)
    cut = fully_shard(blocks(seen), reshard_after_forward=1)
    cut(torch.ones(2, 4, dtype=torch.float64))
    assert not isinstance(cut.blocks[0].up.weight, DTensor)
    cut.reset_iter_state()
    assert isinstance(cut.blocks[0].up.weight, DTensor)


def check_copies_that_are_added_later() -> None:
    """Ranks with the same part may add their sums of gradients up after several passes."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "cut"))
    seen = []
    for drops in (False, True):
        alone, cut = blocks(seen), blocks(seen)
        for block in cut.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(cut, mesh=mesh)
        for last in (False, True):
            cut.set_requires_all_reduce(last)
            x = torch.linspace(-1, 1 + last + dist.get_rank(), 8, dtype=torch.float64).view(2, 4)
            cut(x).square().sum().backward()
            assert last or cut.blocks[0].up.weight.grad is None
            if drops and not last:
                cut.reset_iter_state()
            for rank in range(4) if last or not drops else ():
                x = torch.linspace(-1, 1 + last + rank, 8, dtype=torch.float64).view(2, 4)
                (alone(x).square().sum() / 4).backward()
        gradients_are_alike(alone, cut)


for name, check in list(globals().items()):
    if name.startswith("check_") and name[6:].startswith(tuple(sys.argv[2:]) or ""):
        check()
dist.destroy_process_group()
print("ok\n", end="")
