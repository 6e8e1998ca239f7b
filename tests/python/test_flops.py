"""FlopCounterMode: counts that PyTorch 2.13 gives for the same programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.utils import flop_counter
from tenon.utils._python_dispatch import TorchDispatchMode
from tenon.utils.flop_counter import FlopCounterMode, register_flop_formula
from tenon.utils.module_tracker import ModuleTracker


def counts(program: Callable[[], Any]) -> dict[str, dict[str, int]]:
    with FlopCounterMode(display=False) as counter:
        program()
    return {
        name: {str(op): n for op, n in found.items()}
        for name, found in counter.get_flop_counts().items()
    }


def net() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, stride=2), nn.ReLU(), nn.ConvTranspose2d(4, 6, 3, groups=2),
        nn.Flatten(), nn.Linear(216, 5), nn.Linear(5, 2, bias=False),
    )  # fmt: skip


def test_modules_forward_and_backward() -> None:
    model, x = net(), tn.randn(2, 3, 8, 8)
    whole = {"aten.convolution": 13824, "aten.addmm": 4320, "aten.mm": 40}
    assert counts(lambda: model(x)) == {
        "Global": whole, "Sequential": whole, "Sequential.0": {"aten.convolution": 6912},
        "Sequential.2": {"aten.convolution": 6912}, "Sequential.4": {"aten.addmm": 4320},
        "Sequential.5": {"aten.mm": 40},
    }  # fmt: skip
    found = counts(lambda: model(x).sum().backward())
    assert found["Global"] == {
        "aten.convolution": 13824, "aten.addmm": 4320, "aten.mm": 8760,
        "aten.convolution_backward": 27648,
    }  # fmt: skip
    assert found["Sequential.0"]["aten.convolution_backward"] == 6912
    assert found["Sequential.2"]["aten.convolution_backward"] == 20736
    leaf = x.clone().requires_grad_()
    found = counts(lambda: model(leaf).sum().backward())
    assert found["Sequential.0"]["aten.convolution_backward"] == 13824


A, B = tn.randn(4, 5).requires_grad_(), tn.randn(3, 5, 6).requires_grad_()


@pytest.mark.parametrize(
    ("program", "want"),
    [
        (lambda: (A @ A.t()).sum().backward(), {"aten.mm": 480}),
        (lambda: (A @ B).sum().backward(), {"aten.mm": 2160}),
        (lambda: tn.matmul(tn.randn(2, 3, 4, 5), tn.randn(2, 3, 5, 2)), {"aten.bmm": 480}),
        (lambda: tn.einsum("bij,bjk->bik", B, tn.randn(3, 6, 2)).sum().backward(),
         {"aten.bmm": 720}),
        (lambda: tn.baddbmm(tn.randn(3, 4, 2), tn.randn(3, 4, 5), tn.randn(3, 5, 2)),
         {"aten.baddbmm": 240}),
        (lambda: tn.addmm(tn.randn(2), tn.randn(4, 5), tn.randn(5, 2)), {"aten.addmm": 80}),
        (lambda: nn.GRU(3, 4, 2, bidirectional=True)(tn.randn(5, 2, 3)), {"aten.addmm": 9120}),
        (lambda: nn.LSTMCell(3, 4)(tn.randn(5, 3)), {"aten.addmm": 1120}),
        (lambda: nn.MultiheadAttention(8, 2)(*[tn.randn(3, 1, 8)] * 3)[0].sum().backward(),
         {"aten.addmm": 1536, "aten.bmm": 864, "aten.mm": 1920}),
        (lambda: tn.randn(4, 5) @ tn.randn(5), {}),
        (lambda: tn.randn(4, 5).exp().sum(), {}),
    ],
)  # fmt: skip
def test_operators(program: Callable[[], Any], want: dict[str, int]) -> None:
    assert counts(program).get("Global", {}) == want


def test_attention() -> None:
    """By the formulas that PyTorch has for kernels of GPUs; its CPU kernel is not counted there."""
    q, k = tn.randn(2, 3, 4, 8).requires_grad_(), tn.randn(2, 3, 5, 8)
    found = counts(lambda: nn.functional.scaled_dot_product_attention(q, k, k).sum().backward())
    name = "aten._scaled_dot_product_flash_attention"
    assert found["Global"] == {name: 2 * 6 * 4 * 5 * 16, f"{name}_backward": 2 * 6 * 4 * 5 * 40}


def test_a_backward_pass_outside_is_not_counted() -> None:
    model = nn.Linear(3, 2)
    with FlopCounterMode(display=False) as counter:
        loss = model(tn.randn(4, 3)).sum()
    before = counter.get_total_flops()
    loss.backward()
    assert counter.get_total_flops() == before == 48
    with counter:  # counts anew
        model(tn.randn(2, 3))
    assert counter.get_total_flops() == 24


def test_formulas_of_the_program() -> None:
    mapping = {tn.ops.aten.exp: lambda x, out_shape=None: 7 * x[0]}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
        tn.randn(4, 5).exp()
    assert counter.get_total_flops() == 28

    @register_flop_formula(tn.ops.aten.sinh, get_raw=True)
    def sinh(x: tn.Tensor, out_val: Any = None) -> int:
        return x.numel() + out_val.numel()

    assert counts(lambda: tn.randn(4, 5).sinh())["Global"] == {"aten.sinh": 40}


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    with FlopCounterMode():
        nn.Linear(300, 200)(tn.randn(4, 300))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"]
    assert lines[2].split() == ["Global", "480.000K", "100.00%"]
    assert any(line.split()[:2] == ["Linear", "480.000K"] for line in lines)


def test_names_of_modules() -> None:
    seen = []
    model = nn.Sequential(nn.Sequential(nn.Tanh()))
    model[0][0].register_forward_pre_hook(lambda *_: seen.append(set(tracker.parents)))
    with ModuleTracker() as tracker:
        model(tn.ones(1))
    assert seen == [{"Global", "Sequential", "Sequential.0", "Sequential.0.0"}]
    assert tracker.parents == {"Global"}


def test_modes_see_sizes_in_a_list() -> None:
    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append((str(func), args[-1]))
            return func(*args, **(kwargs or {}))

    seen: list[Any] = []
    x = tn.arange(6.0)
    with Sizes():
        x.view(2, 3).permute(1, 0).reshape(3, 2).repeat(1, 2).flip(0, 1)
        x.expand(2, -1)
        assert tn.zeros(2, 3).shape == (2, 3)
    names = ("view", "permute", "view", "repeat", "flip", "expand", "zeros")
    sizes = ([2, 3], [1, 0], [3, 2], [1, 2], [0, 1], [2, -1], [2, 3])
    assert seen == [(f"aten.{n}.default", s) for n, s in zip(names, sizes, strict=True)]


def test_chains_of_products_take_the_cheapest_order() -> None:
    """The example of Cormen's book: 15125 multiplications of numbers."""
    sizes = [30, 35, 15, 5, 10, 20, 25]
    chain = [tn.ones(a, b) for a, b in zip(sizes, sizes[1:])]
    found = counts(lambda: tn.linalg.multi_dot(chain))
    assert found["Global"] == {"aten.mm": 2 * 15125}


def test_attention_whose_values_are_wider_than_its_keys() -> None:
    """Of 2 * 4 * 5 * 6 places: products of width 3 for queries and keys, 7 for values."""
    q, k, v, grad = (2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 7), (2, 4, 5, 7)
    assert flop_counter._sdpa_flop(q, k, v, 0.0) == 2 * 240 * (3 + 7)
    # The weights again, then the gradients of values, weights, queries and keys.
    assert flop_counter._sdpa_backward_flop(grad, q, k, v) == 2 * 240 * (3 + 7 + 7 + 3 + 3)
