"""Sharded parameters in two processes against the same training unsharded, which every rank does
for itself; `test_sharding.py` starts it."""

import copy
import functools
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from expected import expect
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullStateDictConfig,
    MixedPrecision,
    MixedPrecisionPolicy,
    OptimStateKeyType,
    ShardingStrategy,
    StateDictType,
    fully_shard,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import (
    ModuleWrapPolicy,
    size_based_auto_wrap_policy,
    transformer_auto_wrap_policy,
)
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(5, 7), torch.nn.Linear(7, 5, bias=False)
        self.norm = torch.nn.LayerNorm(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(9, 5)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.head = torch.nn.Linear(5, 9, bias=False)
        self.head.weight = self.embed.weight  # one parameter of two modules
        self.register_buffer("scale", torch.tensor([2.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h) * self.scale


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return Net().double()


def batch(i: int, size: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    numbers = torch.Generator().manual_seed(i)
    x = torch.randint(0, 9, (size, 3), generator=numbers)
    return x, torch.randint(0, 9, (size * 3,), generator=numbers)


def mine(t: torch.Tensor) -> torch.Tensor:
    return t.chunk(SIZE)[RANK]


def whole(p: torch.Tensor) -> torch.Tensor:
    return (p.full_tensor() if isinstance(p, DTensor) else p).detach()


def close(got: torch.Tensor, want: torch.Tensor, what: str = "", tol: float = 1e-9) -> None:
    np.testing.assert_allclose(
        whole(got).numpy(), whole(want).numpy(), tol, tol * 1e-2, err_msg=what
    )


def train(alone, cut, clip=None, steps=3, accumulate=None, kind=torch.optim.AdamW) -> None:
    """Both train with the same batches, of which each rank has its part."""
    options = {"lr": 0.02} if kind is torch.optim.AdamW else {"lr": 0.1, "momentum": 0.9}
    plain, own = (kind(m.parameters(), **options) for m in (alone, cut))
    for i in range(steps):
        for last in (False, True) if accumulate else (True,):
            x, y = batch(i + 10 * last)
            F.cross_entropy(alone(x).flatten(0, 1), y).backward()
            loss = F.cross_entropy(cut(mine(x)).flatten(0, 1), mine(y))
            if accumulate:
                accumulate(last, loss.backward)
            else:
                loss.backward()
        if clip:
            want = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.3)
            close(torch.as_tensor(clip(cut)), want, "norm")
        for o in (plain, own):
            o.step()
            o.zero_grad()
    return plain, own


def check_fully_shard() -> None:
    for reshard in (True, False):
        alone, cut = net(), net()
        for layer in cut.layers:
            fully_shard(layer, reshard_after_forward=reshard)
        fully_shard(cut)
        assert isinstance(cut, FSDPModule) and isinstance(cut, Net)
        p = cut.layers[0].up.weight
        assert p.placements == (Shard(0),) and p.shape == (7, 5)
        assert p.to_local().shape == (4 - RANK, 5) and isinstance(p, torch.nn.Parameter)
        assert cut.head.weight is cut.embed.weight
        train(
            alone, cut, lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), 0.3).full_tensor()
        )
        assert cut.layers[0].up.weight is p
        for (n, a), (m, b) in zip(alone.named_parameters(), cut.named_parameters()):
            assert n == m
            close(b, a, n)
        # What is kept for backward is let go of: no whole weight lives between the passes.
        state = cut.state_dict()
        assert state["layers.1.up.weight"].placements == (Shard(0),)
        other = net()
        fully_shard(other)
        other.load_state_dict(state)
        close(other.layers[1].up.weight, alone.layers[1].up.weight)
        with torch.no_grad():
            close(cut(batch(3)[0]), alone(batch(3)[0]))
        handle = cut.layers[0].unshard(async_op=True)
        handle.wait()
        assert not isinstance(cut.layers[0].up.weight, DTensor)
        cut.layers[0].reshard()
        assert cut.layers[0].up.weight is p


def check_cut_along_other_dimensions() -> None:
    """shard_placement_fn: parts of columns, of different sizes, too."""

    def columns(p: torch.Tensor) -> Shard | None:
        return Shard(-1) if p.ndim == 2 else None

    for mesh, others in ((None, ()), (init_device_mesh("cpu", (1, SIZE)), (Replicate(),))):
        alone, cut = net(), net()
        for layer in cut.layers:
            fully_shard(layer, mesh=mesh, shard_placement_fn=columns)
        fully_shard(cut, mesh=mesh, shard_placement_fn=columns)
        p = cut.layers[0].up.weight
        assert p.placements == (*others, Shard(1)) and p.to_local().shape == (7, 3 - RANK)
        assert cut.layers[0].up.bias.placements == (*others, Shard(0))
        train(
            alone, cut, lambda m: torch.nn.utils.clip_grad_norm_(m.parameters(), 0.3).full_tensor()
        )
        for (n, a), (_, b) in zip(alone.named_parameters(), cut.named_parameters()):
            close(b, a, n)
    for wrong, kind in ((lambda p: 1, TypeError), (lambda p: Shard(2), IndexError)):
        try:
            fully_shard(Layer(), shard_placement_fn=wrong)
        except kind:
            continue
        raise AssertionError(f"{kind} was not raised")


def check_memory_between_passes() -> None:
    """Saved weights are places in gathered memory, which is not there until backward needs it."""
    from tenon.distributed.fsdp import _unit

    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(2)))
    for layer in model:
        fully_shard(layer)
    made = []
    gathered = _unit.Unit._gathered
    _unit.Unit._gathered = lambda self, *args: made.append(self) or gathered(self, *args)
    try:
        loss = model(torch.ones(2, 64)).sum()
        assert len(made) == 2 and all(m._fsdp_state.wholes is None for m in model)
        loss.backward()
        # The first layer's weight is not needed: no gradient of the input is.
        assert len(made) in (3, 4), len(made)
        assert all(not m._fsdp_state.unit._again for m in model)
    finally:
        _unit.Unit._gathered = gathered


def check_accumulation_without_exchange() -> None:
    alone, cut = net(), net()
    fully_shard(cut.layers[1])
    fully_shard(cut)

    def step(last, run):
        cut.set_requires_gradient_sync(last)
        run()

    train(alone, cut, accumulate=step)
    close(cut.layers[1].up.weight, alone.layers[1].up.weight)
    wrapped = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=True)
    alone = net()

    def unsynced(last, run):
        if last:
            return run()
        with wrapped.no_sync():
            run()

    train(alone, wrapped, accumulate=unsynced)
    with FSDP.summon_full_params(wrapped, writeback=False):
        close(wrapped.module.layers[1].up.weight, alone.layers[1].up.weight)


def check_flat_parameters() -> None:
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP,
                     ShardingStrategy.NO_SHARD):  # fmt: skip
        for orig in (False, True):
            alone = net()
            cut = FSDP(net(), sharding_strategy=strategy, use_orig_params=orig,
                       auto_wrap_policy=ModuleWrapPolicy({Layer}))  # fmt: skip
            count = sum(p.numel() for p in cut.parameters())
            total = sum(p.numel() for p in alone.parameters())
            parts = 1 if strategy is ShardingStrategy.NO_SHARD else SIZE
            assert abs(total - count * parts) <= 8 * parts, (count, total)
            train(alone, cut, lambda m: m.clip_grad_norm_(0.3))
            with FSDP.summon_full_params(cut):
                for (n, a), (m, b) in zip(alone.named_parameters(), cut.named_parameters()):
                    assert n == m
                    close(b, a, f"{n} {strategy} {orig}")
            x, _ = batch(1)
            with torch.no_grad():
                close(cut(x), alone(x))


def check_policies_that_are_functions() -> None:
    by_size = functools.partial(size_based_auto_wrap_policy, min_num_params=60)
    by_class = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})
    want = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer}))
    for policy in (by_size, by_class):
        cut = FSDP(net(), auto_wrap_policy=policy, ignored_modules=[])
        units = sum(isinstance(m, FSDP) for m in cut.modules())
        assert units > 1 and (policy is by_size or units == len(FSDP.fsdp_modules(want)))


def check_states() -> None:
    for orig in (False, True):
        units = ModuleWrapPolicy({Layer})
        alone, cut = net(), FSDP(net(), auto_wrap_policy=units, use_orig_params=orig)
        plain, own = train(alone, cut)
        want = alone.state_dict()
        got = cut.state_dict()
        assert list(got) == list(want) or set(got) == set(want), (list(got), list(want))
        for name, value in want.items():
            assert not isinstance(got[name], DTensor)
            close(got[name], value, name)
        first = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
        with FSDP.state_dict_type(cut, StateDictType.FULL_STATE_DICT, first):
            assert len(cut.state_dict()) == (len(want) if RANK == 0 else 0)
        with FSDP.state_dict_type(cut, StateDictType.SHARDED_STATE_DICT):
            shards = cut.state_dict()
            assert shards["layers.0.up.weight"].placements == (Shard(0),)
            close(shards["layers.0.up.weight"], want["layers.0.up.weight"])
            saved = FSDP.optim_state_dict(cut, own)
        fresh = FSDP(
            Net().double(), auto_wrap_policy=ModuleWrapPolicy({Layer}), use_orig_params=not orig
        )
        with FSDP.state_dict_type(fresh, StateDictType.SHARDED_STATE_DICT):
            fresh.load_state_dict(shards)
        full = FSDP.full_optim_state_dict(cut, own, rank0_only=False)
        names = [n for n, _ in alone.named_parameters()]
        for i, values in plain.state_dict()["state"].items():
            for key, value in values.items():
                close(
                    torch.as_tensor(full["state"][names[i]][key]), torch.as_tensor(value), names[i]
                )
        again = torch.optim.AdamW(fresh.parameters(), lr=0.5)
        for source in (full, saved):
            again.load_state_dict(
                FSDP.optim_state_dict_to_load(fresh, again, copy.deepcopy(source))
            )
        assert again.param_groups[0]["lr"] == 0.02
        x, y = batch(7)
        F.cross_entropy(alone(x).flatten(0, 1), y).backward()
        F.cross_entropy(fresh(mine(x)).flatten(0, 1), mine(y)).backward()
        plain.step()
        again.step()
        for name, value in alone.state_dict().items():
            close(fresh.state_dict()[name], value, name)


def check_states_by_earlier_names() -> None:
    """They load what the one of today gives, and names become numbers and back."""
    alone, cut = net(), FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer}))
    plain, own = train(alone, cut)
    full = FSDP.full_optim_state_dict(cut, own, rank0_only=False)
    first = full if RANK == 0 else None
    with FSDP.state_dict_type(cut, StateDictType.FULL_STATE_DICT):
        want = FSDP.optim_state_dict_to_load(cut, own, full)
    for got in (
        FSDP.shard_full_optim_state_dict(full, cut, optim=own),
        FSDP.shard_full_optim_state_dict(full, cut),
        FSDP.scatter_full_optim_state_dict(first, cut, optim_input=list(cut.parameters())),
        FSDP.flatten_sharded_optim_state_dict(FSDP.sharded_optim_state_dict(cut, own), cut, own),
    ):
        assert got["param_groups"] == want["param_groups"]
        assert got["state"].keys() == want["state"].keys()
        for n, state in want["state"].items():
            for key, value in state.items():
                close(got["state"][n][key], value, key)
    numbered = FSDP.rekey_optim_state_dict(full, OptimStateKeyType.PARAM_ID, alone, optim=plain)
    for n, p in enumerate(plain.param_groups[0]["params"]):
        close(numbered["state"][n]["exp_avg"], plain.state[p]["exp_avg"], f"number {n}")
    named = FSDP.rekey_optim_state_dict(numbered, OptimStateKeyType.PARAM_NAME, alone, optim=plain)
    assert named["param_groups"] == full["param_groups"] and list(named["state"]) == [
        n for n, _ in alone.named_parameters()
    ]
    again = FSDP.rekey_optim_state_dict(named, OptimStateKeyType.PARAM_NAME, alone, optim=plain)
    assert again is named


def check_mixed_precision() -> None:
    seen = []
    cut, alone = net().float(), net().float()
    cut.layers[0].up.register_forward_hook(lambda m, i, o: seen.append((i[0].dtype, o.dtype)))
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
    for layer in cut.layers:
        fully_shard(layer, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    fully_shard(cut, mp_policy=policy)
    train(alone, cut, kind=torch.optim.SGD)
    assert seen[0] == (torch.bfloat16, torch.bfloat16)
    assert cut.layers[0].up.weight.dtype == torch.float32
    close(cut.layers[0].up.weight, alone.layers[0].up.weight, "bfloat16", 0.05)
    wrapped = FSDP(
        net().float(), mixed_precision=MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
    )
    out = wrapped(batch(0)[0])
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert next(wrapped.parameters()).grad.dtype == torch.float32


def check_checkpointed_layers() -> None:
    alone, cut = net(), net()
    for layer in cut.layers:
        apply_activation_checkpointing(layer, check_fn=lambda m: isinstance(m, torch.nn.Linear))
        fully_shard(layer)
    fully_shard(cut)
    train(alone, cut)
    names = dict(alone.named_parameters())
    for n, p in cut.named_parameters():
        close(p, names[n.replace("_checkpoint_wrapped_module.", "")], n)
    inner = net()
    apply_activation_checkpointing(inner, check_fn=lambda m: isinstance(m, Layer))
    wrapped = FSDP(inner, use_orig_params=True)
    alone = net()
    train(alone, wrapped)
    close(wrapped.state_dict()["layers.2.down.weight"], alone.layers[2].down.weight)


def check_frozen_parameters_and_hybrid() -> None:
    def frozen():
        model = net()
        model.layers[0].up.weight.requires_grad_(False)
        return model

    for make in (
        lambda m: fully_shard(m) and m,
        lambda m: FSDP(m),
        lambda m: fully_shard(m, mesh=init_device_mesh("cpu", (SIZE, 1))),
        lambda m: FSDP(m, device_mesh=init_device_mesh("cpu", (1, SIZE)), use_orig_params=True,
                       sharding_strategy=ShardingStrategy.HYBRID_SHARD),
    ):  # fmt: skip
        alone, cut = frozen(), make(frozen())
        train(alone, cut, kind=torch.optim.SGD)
        state = cut.state_dict()
        for n, p in alone.state_dict().items():
            close(state[n], p, n)


def check_hybrid_mesh() -> None:
    """Cut along one dimension of a mesh, the same along the other: as one process trains."""
    mesh = init_device_mesh("cpu", (SIZE // 2, 2), mesh_dim_names=("copies", "cut"))
    pair = (mesh.get_group("cut"), mesh.get_group("copies"))
    policy = ModuleWrapPolicy({Layer})
    for options in (
        {"device_mesh": mesh},
        {"device_mesh": mesh, "use_orig_params": True, "auto_wrap_policy": policy},
        {"process_group": pair, "auto_wrap_policy": policy},
        {"auto_wrap_policy": policy},  # by machines, of which LOCAL_WORLD_SIZE tells
    ):
        options["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
        os.environ["LOCAL_WORLD_SIZE"] = "2"
        alone, cut = net(), FSDP(net(), **options)
        assert cut.world_size == 2 and cut.process_group.size() == 2
        _, own = train(alone, cut, clip=lambda m: m.clip_grad_norm_(0.3))
        with FSDP.state_dict_type(cut, StateDictType.SHARDED_STATE_DICT):
            state, moments = cut.state_dict(), FSDP.optim_state_dict(cut, own)
        for n, p in alone.named_parameters():
            close(state[n], p, n)
        if "device_mesh" in options:
            for part in (state["embed.weight"], moments["state"]["embed.weight"]["exp_avg"]):
                assert str(part.placements) == "(Replicate(), Shard(dim=0))", part.placements
        other = FSDP(net(), **options)
        own_of_other = torch.optim.AdamW(other.parameters(), lr=0.02)
        with FSDP.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
            other.load_state_dict(state)
            own_of_other.load_state_dict(
                FSDP.optim_state_dict_to_load(other, own_of_other, moments)
            )
        for model, optimizer in ((cut, own), (other, own_of_other)):
            model(mine(batch(7)[0])).square().mean().backward()
            optimizer.step()
        for n, p in cut.state_dict().items():
            assert torch.equal(p, other.state_dict()[n]), n


def check_mesh_of_tensors_and_data() -> None:
    """Layers of tensor parallel ranks, whose parts data parallel ranks cut once more: as one
    process trains, and operators on such parameters are those on whole ones."""
    mesh = init_device_mesh("cpu", (2, SIZE // 2), mesh_dim_names=("data", "tensor"))
    alone, cut = net(), net()
    for layer in cut.layers:
        parallelize_module(
            layer, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()}
        )
        fully_shard(layer, mesh=mesh["data"])
    fully_shard(cut, mesh=mesh["data"])
    up = cut.layers[0].up.weight
    assert repr(up.placements) == f"(_StridedShard(dim=0, sf={SIZE // 2}), Shard(dim=0))"
    assert cut.layers[0].norm.weight.placements == (Shard(0),)
    plain, own = (torch.optim.AdamW(m.parameters(), lr=0.02) for m in (alone, cut))
    place = mesh["data"].get_local_rank()
    for i in range(3):
        x, y = batch(i)
        F.cross_entropy(alone(x).flatten(0, 1), y).backward()
        F.cross_entropy(cut(x.chunk(2)[place]).flatten(0, 1), y.chunk(2)[place]).backward()
        norms = [torch.nn.utils.clip_grad_norm_(m.parameters(), 0.3) for m in (alone, cut)]
        close(norms[1], norms[0], "norm")
        for (n, p), q in zip(alone.named_parameters(), cut.parameters()):
            close(q.grad, p.grad, f"gradient of {n}")
        for optimizer in (plain, own):
            optimizer.step()
            optimizer.zero_grad()
    state = get_model_state_dict(cut, options=StateDictOptions(full_state_dict=True))
    for n, p in alone.named_parameters():
        close(state[n], p, n)
    given = {n: p * 2 for n, p in state.items()} if RANK == 0 else {}
    first = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(cut, given, options=first)
    close(cut.layers[0].up.weight, alone.layers[0].up.weight * 2, "state that was set")
    d, want = up.detach(), whole(up)
    for fn in (lambda p: p * 2 + p, lambda p: p.t(), lambda p: p.sum(0), lambda p: p @ p.t(),
               lambda p: p[1:3], lambda p: p.clone().mul_(3), lambda p: p.reshape(-1).norm(),
               lambda p: p.clone().add_(p[0])):  # fmt: skip
        close(fn(d), fn(want))
    close(distribute_tensor(want, up.device_mesh, up.placements), want, "distributed again")
    apart = init_device_mesh("cpu", (SIZE,), mesh_dim_names=("all",))
    try:
        fully_shard(parallelize_module(net().layers[0], mesh["tensor"], {"up": ColwiseParallel()}),
                    mesh=apart)  # fmt: skip
    except ValueError as err:
        assert "parts of one mesh" in str(err)
    else:
        raise AssertionError("meshes of which nobody knows how they lie")


def check_several_modules_as_one() -> None:
    """The first of them to run gathers, the last one lets go."""
    alone, cut = net(), net()
    pair = [cut.layers[0], cut.layers[1]]
    assert fully_shard(pair) is pair and all(isinstance(m, FSDPModule) for m in pair)
    fully_shard(cut)

    def cut_now() -> list[bool]:
        return [isinstance(m.up.weight, DTensor) for m in pair]

    seen = [cut_now()]
    h = pair[0](torch.ones(2, 5).double())
    seen.append(cut_now())
    pair[1](h)
    seen.append(cut_now())
    assert seen == [[True, True], [False, False], [True, True]]
    train(alone, cut)
    for (n, p), q in zip(alone.named_parameters(), cut.parameters()):
        close(q, p, n)


def check_whole_gradients() -> None:
    """summon_full_params(with_grads=True), with a parameter that has no gradient."""
    for options in ({}, {"use_orig_params": True}):
        alone, cut = net(), net()
        for m in (alone, cut):
            m.register_parameter("unused", torch.nn.Parameter(torch.ones(3).double()))
        cut = FSDP(cut, auto_wrap_policy=ModuleWrapPolicy({Layer}), **options)
        with FSDP.summon_full_params(cut, with_grads=True):
            assert all(p.grad is None for p in cut.parameters())
        x, y = batch(0)
        F.cross_entropy(alone(x).flatten(0, 1), y).backward()
        F.cross_entropy(cut(mine(x)).flatten(0, 1), mine(y)).backward()
        held = [None if p.grad is None else p.grad.clone() for p in cut.parameters()]
        with FSDP.summon_full_params(cut, with_grads=True):
            for (n, p), (m, q) in zip(alone.named_parameters(), cut.named_parameters()):
                if n == "unused":
                    assert q.grad is None or not q.grad.any(), options
                else:
                    close(q.grad, p.grad, m)
                    q.grad.zero_()  # is not kept
        for p, g in zip(cut.parameters(), held, strict=True):
            assert (p.grad is None and g is None) or torch.equal(p.grad, g)


def check_looks_of_units() -> None:
    """A model is printed and asked for shapes when its parameters are cut, too; what is put around
    its modules later does not change the names of its state."""
    plain = net()
    cut = FSDP(net(), auto_wrap_policy=ModuleWrapPolicy({Layer}))
    for part in plain.modules():
        assert list(part.children()) or repr(part) in str(cut), part
    down = cut.layers[1].down
    assert down.weight.shape == (5, 7) and down.bias is None
    before = list(cut.state_dict())
    apply_activation_checkpointing(cut, check_fn=lambda m: isinstance(m, Layer))
    assert list(cut.state_dict()) == before == list(plain.state_dict())
    train(plain, cut)
    close(cut.state_dict()["layers.1.down.weight"], plain.layers[1].down.weight)


def check_what_a_loss_leaves_out() -> None:
    """Units whose outputs no loss has used are let go of after backward, too: what steps have
    changed is seen in the next pass."""

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.a(x), self.b(x)

    for reshards in (True, False):
        torch.manual_seed(4)
        cut = Two().double()
        alone = copy.deepcopy(cut)
        fully_shard(cut.a, reshard_after_forward=reshards)
        fully_shard(cut.b, reshard_after_forward=reshards)
        fully_shard(cut, reshard_after_forward=reshards)
        steps = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (cut, alone)]
        x = torch.linspace(-1, 1, 6).view(2, 3).double()
        for i in range(4):
            losses = []
            for model, step in zip((cut, alone), steps):
                a, b = model(x)
                losses.append((a * b).sum() if i % 2 == 0 else a.sum())
                losses[-1].backward()
                step.step()
                step.zero_grad(set_to_none=False)
            close(*losses)
            assert all(isinstance(p, DTensor) for p in cut.parameters())
            for p, q in zip(cut.parameters(), alone.parameters(), strict=True):
                close(p.full_tensor(), q)


def check_states_between_passes() -> None:
    """A forward leaves the parameters whole; states are of parts all the same, and backward goes
    on."""
    x, _ = batch(0)
    for settings in ({"reshard_after_forward": False}, {}):
        model = net()
        for m in (model.layers[0], model):
            fully_shard(m, **settings)
        plain = net()
        if settings:
            loss = model(x).square().sum()
        else:
            model.unshard()
            loss = None
        for name, value in model.state_dict().items():
            assert isinstance(value, DTensor) or "weight" not in name, (name, type(value))
        if loss is not None:
            loss.backward()
            plain(x).square().sum().backward()
            for p, q in zip(model.parameters(), plain.parameters()):
                close(whole(p.grad), q.grad)
            model(x)
        state = {k: v.detach() * 0 for k, v in model.state_dict().items()}
        model.load_state_dict(state)
        assert all(not whole(p).any() for p in model.parameters())
        assert not model(x).any()


def check_gradient_scaler() -> None:
    """An overflow on one rank alone is one for all: no rank steps."""
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    model = FSDP(torch.nn.Linear(3, 5, bias=False))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scaler = ShardedGradScaler(device="cpu", init_scale=8.0, growth_interval=1)
    before = [p.detach().clone() for p in model.parameters()]
    for bad in (True, False):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        if bad and RANK == 1:
            next(model.parameters()).grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        same = all(torch.equal(p, q) for p, q in zip(model.parameters(), before))
        assert same == bad and scaler.get_scale() == (4.0 if bad else 8.0), (bad, same)
    # 15 numbers are two parts of 8, of which the last one is nobody's.
    close(next(model.parameters())[:7], before[0][:7] - 2.0, "a step", 1e-6)


def check_states_of_the_first_rank() -> None:
    torch.manual_seed(RANK)
    different = Net().double()
    cut = FSDP(different, sync_module_states=True, use_orig_params=True)
    torch.manual_seed(0)
    for name, value in Net().double().state_dict().items():
        close(cut.state_dict()[name], value, name)


def check_mistakes() -> None:
    scalar = torch.nn.Module()
    scalar.register_parameter("a", torch.nn.Parameter(torch.tensor(1.0)))
    expect(ValueError, "scalar parameters", lambda: fully_shard(scalar))
    model = fully_shard(torch.nn.Linear(2, 2))
    expect(AssertionError, "only be applied to a module once", lambda: fully_shard(model))
    expect(AssertionError, "FSDP does not support deepcopy", lambda: copy.deepcopy(model))
    assert fully_shard.state(model) is not fully_shard.state(fully_shard(torch.nn.Linear(2, 2)))
    assert fully_shard.state(torch.nn.Linear(2, 2)) is None
    for several in (torch.nn.ModuleList([model]), torch.nn.ModuleDict({"a": model})):
        expect(ValueError, "containers that do not implement forward",
               lambda m=several: fully_shard(m))  # fmt: skip
    line = fully_shard(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh()))
    assert isinstance(line, FSDPModule) and type(line[:1]) is torch.nn.Sequential
    expect(ValueError, "requires explicit specification",
           lambda: FSDP(net(), sharding_strategy=ShardingStrategy.HYBRID_SHARD))  # fmt: skip
    hybrid = {"sharding_strategy": ShardingStrategy.HYBRID_SHARD}
    line, table = (init_device_mesh("cpu", size) for size in ((SIZE,), (1, SIZE)))
    expect(ValueError, "ndim=2 but got 1", lambda: FSDP(net(), device_mesh=line, **hybrid))
    expect(ValueError, "ndim=1 but got 2", lambda: FSDP(net(), device_mesh=table))
    expect(ValueError, "Tuple[dist.ProcessGroup",
           lambda: FSDP(net(), process_group=dist.group.WORLD, **hybrid))  # fmt: skip
    expect(ValueError, "Please just pass only one",
           lambda: FSDP(net(), process_group=dist.group.WORLD, device_mesh=line))  # fmt: skip


def check_norm_of_cut_and_whole_gradients() -> None:
    """What every rank has whole counts once: units that are not cut, and what no unit has."""
    for order in (1.0, 2.0, float("inf")):
        alone, cut = net(), net()
        cut.layers[0] = FSDP(cut.layers[0], sharding_strategy=ShardingStrategy.NO_SHARD)
        cut.layers[1] = FSDP(cut.layers[1])
        cut = FSDP(cut, ignored_modules=[cut.layers[2]])
        x, y = batch(0)
        F.cross_entropy(alone(x).flatten(0, 1), y).backward()
        F.cross_entropy(cut(x).flatten(0, 1), y).backward()
        want = torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.3, order)
        close(cut.clip_grad_norm_(0.3, order), want, f"norm {order}")
        close(cut.layers[2].up.weight.grad, alone.layers[2].up.weight.grad)


def check_what_is_not_cut_keeps_its_shape() -> None:
    """Groups of an optimizer are often made by the number of dimensions."""
    options = {"sharding_strategy": ShardingStrategy.NO_SHARD, "use_orig_params": True}
    alone, cut = net(), FSDP(net(), **options)
    assert [p.shape for p in cut.parameters()] == [p.shape for p in alone.parameters()]
    train(alone, cut)
    optimizer = torch.optim.Adam(cut.parameters())
    cut(batch(0)[0]).sum().backward()
    optimizer.step()
    state = FSDP.optim_state_dict(cut, optimizer)
    assert state["state"]["layers.0.up.weight"]["exp_avg"].shape == (7, 5)
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(cut, optimizer, state))
    optimizer.step()
    for name, p in cut.state_dict().items():
        assert p.shape == alone.state_dict()[name].shape


def check_what_mixed_precision_leaves_out() -> None:
    """Normalizations compute in float32, and buffers are stored as they were."""
    mixed = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    some = MixedPrecision(torch.bfloat16, _module_classes_to_ignore=(torch.nn.LayerNorm,))
    by_size = functools.partial(size_based_auto_wrap_policy, min_num_params=30)
    for policy in (ModuleWrapPolicy({Layer}), by_size):
        seen = []
        cut = net().float()
        cut.layers[0].norm.register_forward_hook(
            lambda m, args, out, to=seen: to.append((m.weight.dtype, args[0].dtype))
        )
        cut = FSDP(cut, auto_wrap_policy=policy, mixed_precision=some)
        out = cut(batch(0)[0])
        assert seen == [(torch.float32, torch.float32)], seen
        assert out.dtype == torch.float32  # bfloat16 times the buffer, which stays
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    model.register_buffer("scale", torch.tensor([2.0]))
    model = FSDP(model, auto_wrap_policy=by_size, mixed_precision=mixed)
    assert model(torch.ones(2, 4)).dtype == torch.bfloat16
    assert model.module[1].running_mean.dtype == torch.float32
    assert model.scale.dtype == torch.bfloat16
    state = model.state_dict()
    assert {v.dtype for k, v in state.items() if "num" not in k} == {torch.float32}


def check_modules_on_meta() -> None:
    """They get memory by units, from a function or reset_parameters, alike on all ranks."""

    def fill(module):
        module.to_empty(device="cpu", recurse=False)
        for i, t in enumerate([*module.parameters(False), *module.buffers(False)]):
            torch.nn.init.constant_(t, RANK + i + 1)

    with torch.device("meta"):
        parts = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)) for _ in "ab"]
    with torch.device("meta"):
        layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    for part in (layers[0], layers):
        fully_shard(part)
    layers.to_empty(device="cpu")
    for p in layers.parameters():
        torch.nn.init.constant_(p, 0.5)
    out = layers(torch.ones(1, 3))
    assert (out == 4.5).all() and not layers[0].weight.is_meta, out
    out.sum().backward()
    close(layers[0].weight.grad.full_tensor(), torch.ones(4, 3))
    policy = ModuleWrapPolicy({torch.nn.Linear})
    for module, init in zip(parts, (fill, None)):
        torch.manual_seed(RANK)
        cut = FSDP(module, auto_wrap_policy=policy, param_init_fn=init, sync_module_states=True)
        if init:
            want = {"0.weight": 1.0, "0.bias": 2.0, "1.weight": 1.0, "1.bias": 2.0}
            state = cut.state_dict()
            assert all(bool((state[k] == v).all()) for k, v in want.items()), state
        torch.manual_seed(0)
        with FSDP.summon_full_params(cut, writeback=False):
            if not init:
                close(module[0].weight, torch.nn.Linear(3, 4).weight)
        cut(torch.ones(2, 3)).sum().backward()


for name, check in list(globals().items()):
    if name.startswith("check_") and name[6:].startswith(tuple(sys.argv[2:]) or ""):
        check()
dist.destroy_process_group()
print("ok\n", end="")
