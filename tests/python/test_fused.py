"""Groups of pointwise nodes that run as one kernel: the same bits as operator by operator, and the
same errors, whatever is given to them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F  # noqa: N812
from tenon import _program

ROUNDS = int(os.environ.get("TENON_TEST_ROUNDS", "1000"))
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
    return a.detach().numpy().tobytes() == b.detach().numpy().tobytes()


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


# ---- Views and copies between pointwise operators ------------------------------------------------


def test_views_between_the_nodes() -> None:
    def fn(x: tn.Tensor, y: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        a = x * 2
        b = a + y[:, :1].expand(6, 8) * 3
        c, d = y.t().contiguous().t(), y.chunk(2, 1)[0]
        return b - y.select(0, 2), c.sum() + d.sum()

    x, y = tn.randn(6, 8), tn.randn(6, 8)
    program = record(fn, x, y)
    ops = [n["op"] for n in program.data["nodes"]]
    assert ops[:5] == ["mul", "slice", "expand", "mul", "add"]
    assert program.fused[0] == (0, 5)
    agree(program, fn, x, y)
    for wants in (x, y):  # recorded calls run one by one, in order
        wants.requires_grad_(True)
        agree(program, fn, x, y)


def test_a_view_that_is_used_last_by_the_group_is_freed() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        y = tn.flip(x, (0,))  # no part of a group
        a = x * 2
        return (a + y[1:2]) * y[:1] - a

    x = tn.randn(5, 4)
    program = record(fn, x)
    assert program.fused and program.fused[-1][1] >= 4
    agree(program, fn, x)
    agree(program, fn, x.t().contiguous().t())


def test_operands_with_gaps() -> None:
    def fn(a: tn.Tensor, b: tn.Tensor) -> tn.Tensor:
        return tn.relu(a * b + 1) - a

    wide = tn.randn(30, 20)
    program = record(fn, tn.randn(30, 10), tn.randn(30, 10))
    for a, b in [(wide[:, ::2], wide[:, 10:]), (wide[:, 3:13], tn.randn(30, 10)),
                 (tn.randn(30, 10), wide[:, 5:15]), (wide.t()[:10].t(), wide[:, :10]),
                 (tn.randn(10, 30).t(), wide[:, :10]), (tn.randn(1, 10).expand(30, 10), wide[:,
                 :10]),
                 (tn.randn(30, 20).flip(0)[:, :10], tn.randn(60, 10)[::2])]:  # fmt: skip
        agree(program, fn, a, b)


def test_copies_in_another_dtype() -> None:
    values = [0.0, -0.0, 1.5, -2.5, 1e-40, 1e30, -1e30, 65504.0, 1e5, 3e38, float("inf"),
              float("nan"), 1 + 2**-24, 2**31 + 0.5]  # fmt: skip
    for one in (tn.float32, tn.float64, tn.float16, tn.bfloat16, tn.int32, tn.uint8, tn.bool):
        for two in (tn.float32, tn.float64, tn.float16, tn.bfloat16):

            def fn(x: tn.Tensor, two: Any = two) -> tuple[tn.Tensor, tn.Tensor]:
                y = (-(x.to(two) + 1)).to(tn.float64)
                return y * 3, x.to(two)

            x = (tn.tensor(values * 100) if one.is_floating_point else tn.arange(0, 200)).to(one)
            program = record(fn, x)
            agree(program, fn, x)
            agree(program, fn, x.repeat_interleave(2)[::2])
    square = tn.randn(9, 9)
    twice = record(lambda x: (x.double() + 1).float(), square)
    assert twice.fused == [(0, 3)]
    agree(twice, lambda x: (x.double() + 1).float(), square.t())


class Drawn:
    """A program of pointwise operators, composites, views, copies, writes and reductions."""

    def __init__(self, seed: int) -> None:
        r = self.r = random.Random(seed)
        self.lines: list[str] = []
        names = ["x", "y", "z"]
        own: list[str] = []
        for i in range(r.randint(3, 18)):
            a, b, c, new = (*(r.choice(names[-5:] + names[:3]) for _ in range(3)), f"v{i}")
            line = r.choice([
                f"{a} * {b} + {c}", f"F.gelu({a})", f"F.gelu({a}, approximate='tanh') - {b}",
                f"F.selu({a}) * {r.choice(['2', '0.3', '-1'])}", f"{a}.clamp(-1, 0.75) / 3",
                f"F.softsign({a} - {b})", f"tn.where({a} > {b}, {c}, {a})",
                f"{a}.tanh().double().float()",
                f"{a} + {b}[:1]", f"{a} * {b}[:, 1:2]", f"{a} - {b}.t().contiguous().t()",
                f"{a} + {b}[2].expand(4, 6)", f"({a} > 0).float() * {b}",
                f"F.silu({a}) * {b}.select(1, 0).unsqueeze(1)",
                f"{a} - {b}.mean(1, keepdim=True)", f"tn.cat([{a}[:2], {b}[2:]])",
                f"{a}.softmax(-1) * {b}",
                f"tn.cat([{a}, {b}], 1)[:, ::2] + {c}", f"tn.flip({a}, (1,)).nan_to_num(1, 2, 3)",
                f"{a} * {b}.sum()", f"{a}.reshape(6, 4).t() + {b}.reshape(-1)[:6]",
            ])  # fmt: skip
            self.lines.append(f"{new} = {line}")
            names.append(new)
            own.append(new)
            if r.random() < 0.15:
                target = r.choice(own)
                write = [f"{target}.add_(0.5)", f"{target}[:, 1].mul_(2)"]
                write.append(f"w = {target}[1:]; w.sub_({a}[1:].clone())")
                self.lines.append(r.choice(write))
        self.lines.append(f"return {names[-1]}, {r.choice(names[3:])}, {r.choice(names)}")

    def function(self) -> Any:
        text = "def fn(x, y, z):\n" + "".join(f"    {line}\n" for line in self.lines)
        space: dict[str, Any] = {"tn": tn, "F": F}
        exec(compile(text, "<drawn>", "exec"), space)
        return space["fn"]


def inputs_of(seed: int) -> list[tn.Tensor]:
    r = random.Random(seed)
    tn.manual_seed(seed)
    forms = [lambda: tn.randn(4, 6), lambda: tn.randn(4, 12)[:, ::2], lambda: tn.randn(6, 4).t(),
             lambda: tn.randn(8, 6)[1:5], lambda: tn.randn(1, 6).expand(4, 6).clone()]  # fmt: skip
    return [r.choice(forms)() for _ in range(3)]


def compare_drawn(seed: int) -> bool:
    """A program in all ways in which it can run; whether something was fused."""
    drawn = Drawn(seed)
    fn, text = drawn.function(), "\n".join(drawn.lines)
    wanted = fn(*inputs_of(seed))
    program = record(drawn.function(), *inputs_of(seed))
    stored, fast = _program.load(program.to_bytes()), tn.compile(drawn.function())
    for form in (program, stored, fast, fast):
        have = form(*inputs_of(seed))
        assert all(same(a, b) for a, b in zip(have, wanted, strict=True)), f"{seed}\n{text}"
    grads = []
    for form in (fn, program, tn.compile(fn), fast):
        xs = [x.requires_grad_(i != seed % 3) for i, x in enumerate(inputs_of(seed))]
        if form is not fn and form is not program:
            form(*xs)
        try:
            sum((t.sum() for t in form(*xs) if t.requires_grad), tn.zeros(())).backward()
        except RuntimeError as err:  # what a gradient needs was written to
            grads.append([str(err)])
        else:
            grads.append([x.grad for x in xs if x.requires_grad])
    for have in grads[1:]:
        for a, b in zip(have, grads[0], strict=True):
            equal = same(a, b) if isinstance(a, tn.Tensor) and isinstance(b, tn.Tensor) else a == b
            assert equal, f"{seed}\n{text}"
    return bool(program.fused)


def test_drawn_programs() -> None:
    assert sum(map(compare_drawn, range(60))) > 40


@pytest.mark.slow
def test_many_drawn_programs() -> None:
    for seed in range(1000, 1000 + ROUNDS):
        compare_drawn(seed)
