"""Groups of pointwise nodes that run as one kernel: the same bits as operator by operator, and the
same errors, whatever is given to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F  # noqa: N812
from tenon import _program

FLOATS = (tn.float32, tn.float64, tn.float16, tn.bfloat16)
UNARY = ("relu", "neg", "abs", "exp", "tanh", "sigmoid", "sin", "sqrt", "square", "floor")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "atan2")


def record(fn: Callable[..., Any], *inputs: tn.Tensor) -> _program.Program:
    def call() -> tuple[Any, ...]:
        found = fn(*inputs)
        return found if isinstance(found, tuple) else (found,)

    return _program.record(call, {f"x{i}": x for i, x in enumerate(inputs)})[0]


def same(a: tn.Tensor, b: tn.Tensor) -> bool:
    """Equal in all that can be seen, nan and -0.0 told apart."""
    if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
        return False
    if a.dtype == tn.bfloat16:
        a, b = a.view(tn.int16), b.view(tn.int16)
    return a.numpy().tobytes() == b.numpy().tobytes()


def agree(program: _program.Program, fn: Callable[..., Any], *inputs: tn.Tensor) -> None:
    wanted = fn(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for have, want in zip(program(*inputs), wanted, strict=True):
        assert same(have, want), (have, want)


def chain(a: tn.Tensor, b: tn.Tensor, c: tn.Tensor, d: tn.Tensor) -> tn.Tensor:
    return tn.relu(a * b + c) * d - a


@pytest.mark.parametrize("n", [1, 7, 64, 1023, 1024, 1025, 4099, 70001])
def test_a_chain_is_one_kernel(n: int) -> None:
    xs = [tn.randn(n) for _ in range(4)]
    program = record(chain, *xs)
    assert program.fused == [(0, 5)]
    agree(program, chain, *xs)
    a, b, c, d = (x.numpy().astype(np.float64) for x in xs)
    exact = np.maximum(a * b + c, 0) * d - a
    np.testing.assert_allclose(program(*xs)[0].numpy(), exact, rtol=1e-4, atol=1e-5)


def test_large_results_go_past_the_caches() -> None:
    xs = [tn.randn((1 << 23) + 5) for _ in range(3)]

    def fn(a: tn.Tensor, b: tn.Tensor, c: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        y = a * b
        return y + c, y > c

    program = record(fn, *xs)
    assert program.fused == [(0, 3)]
    agree(program, fn, *xs)


@pytest.mark.parametrize("shapes", [
    [(5, 7), (7,)], [(5, 7), (5, 1)], [(5, 7), ()], [(3, 1, 70), (1, 40, 1), (3, 40, 70)],
    [(300, 20), (300, 20), (20,)], [(2, 3, 4, 5), (3, 1, 1), (1, 1, 1, 5)], [(0, 4), (4,)],
])  # fmt: skip
def test_broadcast_operands(shapes: list[tuple[int, ...]]) -> None:
    xs = [tn.randn(s) for s in shapes]

    def fn(*ts: tn.Tensor) -> tn.Tensor:
        y = ts[0] * 2
        for t in ts[1:]:
            y = tn.tanh(y + t) * t
        return y - ts[-1]

    agree(record(fn, *xs), fn, *xs)


def test_memory_that_is_not_packed() -> None:
    base = tn.randn(6, 8, 3, 3)

    def fn(a: tn.Tensor, b: tn.Tensor) -> tn.Tensor:
        return (a + b) * a - b

    program = record(fn, base, base * 2)
    agree(program, fn, base.to(memory_format=tn.channels_last), base * 2)
    square = tn.randn(9, 9)
    program = record(fn, square, square * 2)
    assert program.fused == [(0, 3)]
    agree(program, fn, square.t(), square)
    agree(program, fn, square, square.t())
    agree(program, fn, tn.randn(18, 9)[::2], tn.randn(9, 1).expand(9, 9))
    agree(program, fn, tn.randn(82)[1:].view(9, 9), square)


def test_dtypes_are_converted_within_a_group() -> None:
    def fn(a: tn.Tensor, b: tn.Tensor, m: tn.Tensor) -> tn.Tensor:
        y = a * b + 1
        return tn.where(m, y, b * 2.5) + (y > 0)

    for one in FLOATS:
        for two in (*FLOATS, tn.int32):
            xs = [tn.randn(2051).to(one), (tn.randn(2051) * 4).to(two), tn.rand(2051) > 0.5]
            program = record(fn, *xs)
            assert program.fused, (one, two)
            agree(program, fn, *xs)


def test_integers_and_their_errors() -> None:
    def fn(a: tn.Tensor, b: tn.Tensor) -> tn.Tensor:
        return (a * b - a) // b

    a, b = tn.arange(-50, 50), tn.arange(1, 101)
    program = record(fn, a, b)
    agree(program, fn, a, b)
    b[99] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        program(a, b)
    with pytest.raises(RuntimeError, match="Integers to negative integer powers"):
        record(lambda x: (x * x) ** tn.tensor(2), a)(a)[0].pow(-1)


def test_arguments_beside_the_operands() -> None:
    def fn(a: tn.Tensor, b: tn.Tensor) -> tn.Tensor:
        y = tn.add(a, b, alpha=-3)
        y = tn.clamp(y, -1, 1.5) ** 2
        y = tn.nn.functional.leaky_relu(y - 0.25, 0.3)
        return tn.addcmul(y, a, b, value=0.5) ** 3 + tn.lerp(a, b, 0.1)

    a, b = tn.randn(3000), tn.randn(3000)
    program = record(fn, a, b)
    assert program.fused
    agree(program, fn, a, b)


COMPOSITES = {
    "gelu": lambda x: F.gelu(x),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "selu": lambda x: F.selu(x),
    "relu6": lambda x: F.relu6(x),
    "softsign": lambda x: F.softsign(x),
    "tanhshrink": lambda x: F.tanhshrink(x),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "clip_by_tensors": lambda x: tn.clamp(x, x - 1, x.abs()),
    "nan_to_num": lambda x: (x / 0.0).nan_to_num(1.0, 2.0, -3.0),
    "twice": lambda x: tn.clamp(x, x, x),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_are_part_of_groups(name: str) -> None:
    def fn(x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
        return COMPOSITES[name](x * 3) + y

    for dtype in FLOATS:
        for shape in ((3000,), (7, 5), (1,), ()):
            x, y = (tn.randn(2, *shape) * 2).to(dtype)
            program = record(fn, x, y)
            half = dtype in (tn.float16, tn.bfloat16)
            count = len(program.data["nodes"])
            assert half or program.fused == [(0, count)], (dtype, shape)
            agree(program, fn, x, y)


def test_a_composite_alone_is_one_kernel() -> None:
    x = tn.randn(5000)
    program = record(F.softsign, x)
    assert program.fused == [(0, 1)]
    agree(program, F.softsign, x)
    assert record(F.gelu, x).fused == []  # one operator: nothing to join


def test_groups_are_not_looked_for_under_autocast() -> None:
    x = tn.randn(64)
    program = record(lambda x: F.gelu(x) * 2 + 1, x)
    with tn.autocast("cpu", dtype=tn.bfloat16):
        assert program.fused == []
        program(x)
    assert program.fused == [(0, 3)]


def test_gradients_are_recorded() -> None:
    xs = [tn.randn(50, requires_grad=i % 2 == 0) for i in range(4)]
    program = record(chain, *(x.detach() for x in xs))
    program(*xs)[0].sum().backward()
    have = [xs[0].grad, xs[2].grad]
    for x in xs:
        x.grad = None
    chain(*xs).sum().backward()
    assert all(same(h, w) for h, w in zip(have, (xs[0].grad, xs[2].grad), strict=True))
    with tn.no_grad():
        assert not program(*xs)[0].requires_grad


def test_what_others_see_of_the_calls() -> None:
    xs = [tn.randn(8, 8) for _ in range(4)]
    program = record(chain, *xs)
    with tn.profiler.profile() as p:
        program(*xs)
    assert {"mul", "relu"} <= {e.key.split("::")[-1] for e in p.key_averages()}
    again = record(lambda *a: program(*a)[0], *xs)
    assert [n["op"] for n in again.data["nodes"]] == ["mul", "add", "relu", "mul", "sub"]


def test_values_between_that_are_needed() -> None:
    def fn(a: tn.Tensor, b: tn.Tensor) -> tuple[tn.Tensor, ...]:
        u = a * b
        v = u + a
        w = tn.exp(v) - u
        w.add_(1)
        return u, (w * v).sum(), v

    a, b = tn.randn(33, 5), tn.randn(33, 5)
    program = record(fn, a, b)
    agree(program, fn, a, b)
    agree(program, fn, a, a)


def test_writes_stay_in_order() -> None:
    def fn(a: tn.Tensor, b: tn.Tensor) -> tn.Tensor:
        y = a * 2 + b
        a.add_(1)
        return y * a + b

    a, b = tn.randn(40), tn.randn(40)
    program = record(fn, a.clone(), b)
    one, two = a.clone(), a.clone()
    assert same(program(one, b)[0], fn(two, b)) and same(one, two)
    view = a.clone()
    other = view.clone()
    assert same(program(view, view)[0], fn(other, other)) and same(view, other)


def test_random_programs() -> None:
    for seed in range(150):
        draw = random.Random(seed)
        tn.manual_seed(seed)
        full = tuple(draw.choice([1, 3, 8, 40]) for _ in range(draw.randint(1, 3)))
        shapes = [full] + [
            tuple(s if draw.random() < 0.7 else 1 for s in full[draw.randint(0, len(full)):])
            for _ in range(draw.randint(1, 4))
        ]  # fmt: skip
        dtypes = (tn.float32, tn.float32, tn.float64, tn.int64)
        xs = [(tn.randn(s) * 3).to(draw.choice(dtypes)) for s in shapes]
        plan = [
            (draw.choice(UNARY + BINARY * 2), draw.random(), draw.random(), draw.random())
            for _ in range(draw.randint(2, 24))
        ]

        def fn(*ts: tn.Tensor, plan: Any = plan) -> tuple[tn.Tensor, ...]:
            made = list(ts)
            for name, i, k, what in plan:
                x, y = made[int(i * len(made))], made[int(k * len(made))]
                if name in UNARY:
                    made.append(getattr(tn, name)(x.float() if what < 0.1 else x))
                else:
                    made.append(
                        getattr(tn, name)(
                            x, round(what * 3, 1) if what < 0.3 and name in BINARY[:4] else y
                        )
                    )
                if what > 0.95:
                    made[-1] = tn.where(made[-1] > 0, made[-1], 0.5)
            return made[-1], made[len(ts)]

        try:
            fn(*xs)
        except RuntimeError:
            continue  # such as neg of a bool
        agree(record(fn, *xs), fn, *xs)
