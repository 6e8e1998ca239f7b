"""Tensor parallel training in two processes against the same module uncut, which every rank trains
for itself; `test_sharding.py` starts it."""

import sys
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

dist.init_process_group(sys.argv[1])
SIZE = dist.get_world_size()
MESH = init_device_mesh("cpu", (SIZE,), mesh_dim_names=("tp",))


class Block(torch.nn.Module):
    def __init__(self, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)
        self.q, self.k, self.v, self.out = (torch.nn.Linear(8, 8) for _ in range(4))
        self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm1(x)
        q, k, v = (f(h).view(*h.shape[:2], -1, 2).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(11, 8)
        self.layers = torch.nn.ModuleList(Block() for _ in range(2))
        self.norm = torch.nn.LayerNorm(8)
        self.head = torch.nn.Linear(8, 11, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return Net().double()


def tensor_plan() -> dict:
    column, row = ColwiseParallel(), RowwiseParallel()
    parts = {f"layers.*.{n}": ColwiseParallel() for n in ("q", "k", "v")}
    return {"embed": RowwiseParallel(input_layouts=Replicate()), **parts,
            "layers.*.up": column, "layers.*.down": row, "layers.*.out": RowwiseParallel(),
            "head": ColwiseParallel(output_layouts=Replicate())}  # fmt: skip


def sequence_plan() -> dict:
    plan = {"embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1),
                                     use_local_output=False),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1),
                                    use_local_output=False)}  # fmt: skip
    for i in range(2):
        plan[f"layers.{i}.norm1"] = plan[f"layers.{i}.norm2"] = SequenceParallel()
        for n in ("q", "k", "v", "up"):
            plan[f"layers.{i}.{n}"] = ColwiseParallel(
                input_layouts=Shard(1), use_local_output=False
            )
        for n in ("out", "down"):
            plan[f"layers.{i}.{n}"] = RowwiseParallel(
                output_layouts=Shard(1), use_local_output=False
            )
    return plan


def train(plan: dict, sequence: bool, clip: bool) -> None:
    alone, cut = net(), parallelize_module(net(), MESH, plan)
    assert cut.layers[0].up.weight.placements == (Shard(0),)
    assert cut.layers[0].up.weight.to_local().shape == (12 // SIZE, 8)
    assert isinstance(cut.layers[0].up.weight, torch.nn.Parameter)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.02) for m in (alone, cut)]
    numbers = torch.Generator().manual_seed(2)
    for _ in range(3):
        x = torch.randint(0, 11, (3, 6), generator=numbers)
        y = torch.randint(0, 11, (18,), generator=numbers)
        y[3] = -100
        losses = []
        for model, optimizer in zip((alone, cut), optimizers):
            optimizer.zero_grad()
            logits = model(x)
            if isinstance(logits, DTensor):
                with loss_parallel():
                    loss = F.cross_entropy(logits.flatten(0, 1), y)
                    loss.backward()
                loss = loss.full_tensor()
            else:
                loss = F.cross_entropy(logits.flatten(0, 1), y)
                loss.backward()
            losses.append(loss.item())
            if clip:
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                losses.append(float(norm.full_tensor() if isinstance(norm, DTensor) else norm))
            optimizer.step()
        half = len(losses) // 2
        np.testing.assert_allclose(losses[half:], losses[:half], rtol=1e-10)
    for (name, p), (other, q) in zip(alone.named_parameters(), cut.named_parameters()):
        whole = q.full_tensor() if isinstance(q, DTensor) else q
        assert name == other
        # The keys' bias has no gradient but rounding, which AdamW makes a step of.
        if not name.endswith("k.bias"):
            np.testing.assert_allclose(
                whole.detach().numpy(), p.detach().numpy(), 1e-6, 1e-9, err_msg=name
            )
    state = cut.state_dict()
    assert state["layers.0.up.weight"].placements == (Shard(0),)


def check_tensor_parallel() -> None:
    train(tensor_plan(), False, True)  # the norms' gradients are whole on every rank


def check_sequence_parallel() -> None:
    train(sequence_plan(), True, True)


def check_inputs_and_outputs() -> None:
    class Two(torch.nn.Module):
        def forward(self, a, b, *, scale):
            assert a.placements == (Shard(0),) and b.placements == (Replicate(),)
            return a * b * scale, b

    module = parallelize_module(
        Two(), MESH,
        PrepareModuleInput(
            input_layouts=(Replicate(), Shard(0)), desired_input_layouts=(Shard(0), Replicate()),
            input_kwarg_layouts={"scale": Replicate()},
            desired_input_kwarg_layouts={"scale": Replicate()},
        ),
    )  # fmt: skip
    parallelize_module(
        module, MESH,
        PrepareModuleOutput(
            output_layouts=(Shard(0), None), desired_output_layouts=(Replicate(), None)
        ),
    )  # fmt: skip
    whole = torch.arange(8.0).view(4, 2)
    part = whole.chunk(SIZE)[dist.get_rank()]
    got, rest = module(whole, part, scale=torch.tensor(2.0))
    assert type(got) is torch.Tensor and isinstance(rest, DTensor)
    np.testing.assert_array_equal(got.numpy(), (whole * whole * 2).numpy())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        parallelize_module(net(), MESH, {"layers.*.missing": ColwiseParallel()})
    assert "no submodule matching token 'missing'" in str(seen[0].message)
    d = distribute_tensor(whole, MESH, [Shard(1)])
    assert d.device_mesh["tp"] == MESH and len(d) == 4 and d.stride() == (2, 1)


for name, check in list(globals().items()):
    if name.startswith("check_") and name[6:].startswith(tuple(sys.argv[2:]) or ""):
        check()
dist.destroy_process_group()
print("ok\n", end="")
