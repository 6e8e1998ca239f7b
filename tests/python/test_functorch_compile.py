"""functorch.compile: forward and backward passes as graphs that compilers of one's own get."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon._torch._dynamo.backends.common import aot_autograd
from tenon._torch.functorch.compile import (
    aot_function,
    aot_module,
    default_partition,
    make_boxed_func,
    memory_efficient_fusion,
    min_cut_rematerialization_partition,
    nop,
    ts_compile,
)
from tenon.nn import functional as F

PARTITIONS = {"default": default_partition, "min_cut": min_cut_rematerialization_partition}


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3)
        self.linear, self.layer = nn.Linear(12, 6), nn.LayerNorm(6)
        self.steps, self.out = nn.GRU(6, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: tn.Tensor, y: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        h = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)
        h = F.dropout(self.layer(self.linear(h)), 0.3, self.training)
        h, _ = self.steps(h[:, None].expand(-1, 3, -1))
        out = self.out(h[:, -1])
        return F.cross_entropy(out, y), out


class Passes:
    """Compilers that count what they are given, and run it on the way."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def _compile(self, which: str, gm: Any, inputs: list[tn.Tensor]) -> Any:
        assert len(gm.graph.find_nodes(op="placeholder")) == len(inputs)
        gm(*inputs)
        self.seen.append((which, len(inputs)))
        return make_boxed_func(gm.forward)

    def forward(self, gm: Any, inputs: list[tn.Tensor]) -> Any:
        return self._compile("forward", gm, inputs)

    def backward(self, gm: Any, inputs: list[tn.Tensor]) -> Any:
        return self._compile("backward", gm, inputs)


@pytest.mark.parametrize("how", ["module", "compile", "program"])
@pytest.mark.parametrize("partition", PARTITIONS)
def test_training_is_as_ever(partition: str, how: str) -> None:
    tn.manual_seed(0)
    model = Images()
    other = copy.deepcopy(model)
    passes, part = Passes(), PARTITIONS[partition]
    if how == "module":
        run = aot_module(model, passes.forward, passes.backward, part)
    elif how == "program":
        run = aot_module(model, ts_compile, ts_compile, part)
    else:
        backend = aot_autograd(
            fw_compiler=passes.forward, bw_compiler=passes.backward, partition_fn=part
        )
        run = tn.compile(model, backend=backend)
    for step in range(3):
        x, y = tn.randn(4, 1, 4, 4), tn.randint(0, 3, (4,))
        losses = []
        for call, owner in ((run, model), (other, other)):
            tn.manual_seed(step)
            owner.zero_grad()
            loss, _ = call(x, y)
            loss.backward()
            losses.append(loss.item())
            with tn.no_grad():
                for p in owner.parameters():
                    p.sub_(p.grad, alpha=0.1)
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for mine, wanted in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert tn.allclose(mine, wanted, atol=1e-5)
    assert how == "program" or {w for w, _ in passes.seen} == {"forward", "backward"}
    model.eval(), other.eval()
    with tn.no_grad():
        assert tn.allclose(run(x, y)[1], other(x, y)[1], atol=1e-5)


def test_the_smallest_cut_keeps_less() -> None:
    kept = {}
    for name, part in PARTITIONS.items():
        passes = Passes()
        fn = aot_function(
            lambda x: x.sin().exp().tanh().sigmoid().sum(), passes.forward, passes.backward, part
        )
        x = tn.linspace(-1, 1, 50).requires_grad_()
        fn(x).backward()
        want = tn.linspace(-1, 1, 50).requires_grad_()
        want.sin().exp().tanh().sigmoid().sum().backward()
        assert tn.allclose(x.grad, want.grad)
        kept[name] = dict(passes.seen)["backward"]
    assert kept["min_cut"] == 2 < kept["default"]  # the input, and the gradient of the result


def test_structures_and_results_without_gradients() -> None:
    def fn(x: tn.Tensor, pair: dict[str, tn.Tensor], k: int) -> dict[str, Any]:
        return {"sum": x * pair["w"] + k, "where": x.argmax(), "k": k}

    fast = aot_function(fn, nop)
    x, w = tn.arange(3.0).requires_grad_(), tn.ones(3)
    given = fast(x, {"w": w}, 2)
    assert given["k"] == 2 and given["where"].item() == 2 and not given["where"].requires_grad
    given["sum"].sum().backward()
    assert x.grad.tolist() == [1, 1, 1] and w.grad is None
    assert fast(tn.arange(3.0), {"w": w}, 3)["sum"].tolist() == [3, 4, 5]


def test_second_gradients_are_refused() -> None:
    x = tn.ones(3, requires_grad=True)
    (slope,) = tn.autograd.grad(
        aot_function(lambda v: v.pow(3).sum(), nop)(x), x, create_graph=True
    )
    with pytest.raises(RuntimeError):
        slope.sum().backward()


def test_what_is_written_and_read_later_is_refused() -> None:
    def fn(x: tn.Tensor, scale: tn.Tensor) -> tn.Tensor:
        y = x * scale
        scale.add_(1)
        return y

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        aot_function(fn, nop)(tn.ones(3, requires_grad=True), tn.ones(3))


def test_memory_efficient_fusion() -> None:
    x = tn.linspace(-1, 1, 7).requires_grad_()
    memory_efficient_fusion(lambda v: F.gelu(v).sum())(x).backward()
    want = tn.linspace(-1, 1, 7).requires_grad_()
    F.gelu(want).sum().backward()
    assert tn.allclose(x.grad, want.grad)
