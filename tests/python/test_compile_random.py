"""compile: random programs give the same results, writes and gradients as Python."""

from __future__ import annotations

import itertools
import linecache
import os
import random
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon._torch import _dynamo as dynamo

ROUNDS = int(os.environ.get("TENON_TEST_ROUNDS", "500"))
_numbers = itertools.count()


class Writer:
    """Writes a function of x and y, n rows of 4 each, beside a module m, a line at a time."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.names = ["x", "y"]
        self.own: list[str] = []  # what the function may write to without anybody seeing it
        self.depth = 1

    def add(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def pick(self) -> str:
        return self.r.choice(self.names)

    def fresh(self, value: str, own: bool = True) -> None:
        name = f"v{len(self.lines)}"
        self.add(f"{name} = {value}")
        self.names.append(name)
        if own:
            self.own.append(name)

    def pure(self) -> None:
        a, b, c = self.pick(), self.pick(), self.r.choice(["2", "0.5", "-1.5", "G['k']", "m.knob"])
        self.fresh(self.r.choice([
            f"{a} + {b}", f"{a} * {c}", f"tn.relu({a}) - {b}", f"{a}.exp().clamp(max=9)",
            f"tn.tanh({a} @ m.w)", f"tn.where({a} > {b}, {a}, {c} * {b})", f"{a}.flip(0)",
            f"{a} - {a}.mean(0)", f"{a}.softmax(-1)", f"{a} / ({b}.abs() + 1)",
            f"{a}.reshape({a}.shape[0] * 4).view(-1, 4)", f"{a}.t().contiguous().t()",
            f"m.inner({a})", f"{a} * {a}.shape[0]", f"{a}.cumsum(1)",
            f"tn.cat([{a}, {b}])[:len({a})]",
            f"{a}.roll(1, 0)", f"{a} + m.buf",
        ]))  # fmt: skip

    def view(self) -> None:
        a = self.pick()
        self.add(f"w{len(self.lines)} = {a}[:, 1:3]")
        self.add(f"w{len(self.lines) - 1}.mul_(1.5)" if a in self.own and self.r.random() < 0.5
                 else "pass")  # fmt: skip

    def write(self) -> None:
        targets = self.own * 3 + (["x"] if self.r.random() < 0.2 else [])
        if targets:
            a, b = self.r.choice(targets), self.pick()
            self.add(
                self.r.choice([f"{a}.add_({b})", f"{a}.mul_(0.5)", f"{a} += 1", f"{a}.relu_()"])
            )

    def branch(self) -> None:
        a, b = self.pick(), self.pick()
        test = self.r.choice([f"{a}.sum() > 0", f"({a} > {b}).any()", f"{a}[0, 0].item() < 0.3",
                              "m.training", f"{a}.shape[0] > 3", "G['on']"])  # fmt: skip
        name = f"v{len(self.lines)}"
        self.add(f"if {test}:")
        self.add(f"    {name} = {a} * 2")
        self.add("else:")
        self.add(f"    {name} = {b} - 1")
        self.names.append(name)

    def loop(self) -> None:
        a, name = self.pick(), f"v{len(self.lines)}"
        self.add(f"{name} = {a}")
        count = self.r.choice(["3", "x.shape[0]", "m.times"])
        self.add(f"for i in range({count}):")
        self.add(f"    {name} = {name} * 0.9 + i")
        self.names.append(name)

    def rows(self) -> None:
        a, name = self.pick(), f"l{len(self.lines)}"
        self.add(f"{name} = []")
        self.add(f"for i in range({self.r.choice(['2', 'len(x)', 'm.times'])}):")
        self.add(f"    {name}.append({a} * i)")
        self.fresh(f"sum({name}) + {self.pick()}")

    def odd(self) -> None:
        self.add(self.r.choice(["LOG.append(len(LOG))", "m.count = m.count + 1",
                                "dynamo.graph_break()", "m.buf.add_(0.25)",
                                "tn.manual_seed(3)"]))  # fmt: skip

    def noise(self) -> None:
        self.fresh(self.r.choice(["tn.rand(4)", "tn.randn_like(x)"]) + f" + {self.pick()}")

    def fail(self) -> None:
        a = self.pick()
        self.add(f"if {a}.sum() > {self.r.choice([3, 10])}:")
        self.add("    raise ValueError('enough')")

    def text(self) -> str:
        kinds = [self.pure] * 8 + [self.rows, self.view, self.write, self.branch, self.branch,
                                   self.loop, self.odd, self.noise, self.fail]  # fmt: skip
        for _ in range(self.r.randint(2, 9)):
            self.r.choice(kinds)()
        first, second = self.r.choice(self.names[2:] or ["x"]), self.pick()
        self.add(self.r.choice([f"return {first}", f"return {first}, {second}",
                                f"return {{'a': {first}, 'b': [{second}, None, 3]}}"]))  # fmt: skip
        return "\n".join(["def program(x, y):", *self.lines, ""])


class Inner(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x.sigmoid()


class State(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(tn.eye(4) * 0.5)
        self.register_buffer("buf", tn.ones(4))
        self.inner, self.knob, self.times, self.count = Inner(), 1.25, 2, 0


def function_of(text: str, space: dict[str, Any]) -> Any:
    """The function, whose lines errors can show."""
    file = f"<program {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), space)
    return space["program"]


def leaves(value: Any) -> list[Any]:
    from tenon.utils import _pytree

    return _pytree.tree_leaves(value)


def history(text: str, wrap: Any, seed: int) -> list[Any]:
    """All that a program does over several calls between which its surroundings change."""
    r = random.Random(seed)
    tn.manual_seed(seed)
    space: dict[str, Any] = {"tn": tn, "dynamo": dynamo, "LOG": [], "G": {"k": 1.5, "on": True}}
    m = space["m"] = State()
    call = wrap(function_of(text, space))
    seen: list[Any] = []
    for step in range(9):
        n = r.choice([2, 2, 3, 5, 1])
        x, y = tn.randn(n, 4), tn.randn(n, 4)
        if r.random() < 0.3:
            x = x * 3 + 1
        wants = r.random() < 0.4
        y.requires_grad_(wants)
        y = x if r.random() < 0.1 else y
        change = r.random()
        if change < 0.1:
            m.knob += 1
        elif change < 0.2:
            space["G"]["k"] += 1
        elif change < 0.3:
            space["G"]["on"] = not space["G"]["on"]
        elif change < 0.4:
            m.train(not m.training)
        elif change < 0.5:
            m.buf.mul_(1.5)
        m.w.grad = None
        try:
            with tn.set_grad_enabled(r.random() < 0.8):
                found = leaves(call(x, y))
            seen += [v.detach().clone() if isinstance(v, tn.Tensor) else v for v in found]
            tensors = [v for v in found if isinstance(v, tn.Tensor)]
            seen += [(v is x, v is y, v.requires_grad) for v in tensors]
            if any(v.requires_grad for v in tensors):
                sum(v.sum() for v in tensors if v.requires_grad).backward()
                seen += [m.w.grad, y.grad if y.is_leaf else None]
        except (ValueError, RuntimeError) as err:
            seen.append((step, type(err).__name__, str(err).split("\n")[0]))
        seen += [x.detach().clone(), y.detach().clone(), m.buf.clone(), m.count, len(space["LOG"])]
        seen.append(tn.rand(1))
    return seen


def same(a: Any, b: Any) -> bool:
    if isinstance(a, tn.Tensor) and isinstance(b, tn.Tensor):
        return a.shape == b.shape and tn.equal(a.nan_to_num(7.5), b.nan_to_num(7.5))
    return type(a) is type(b) and a == b


def compare(seed: int) -> int:
    """Runs one program; how many graphs there were."""
    text = Writer(seed).text()
    wanted = history(text, lambda f: f, seed)
    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    dynamic = (None, True, False)[seed % 3]
    got = history(text, lambda f: tn.compile(f, backend=backend, dynamic=dynamic), seed)
    assert len(got) == len(wanted), f"seed {seed}\n{text}"
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert same(a, b), f"seed {seed}, value {i}: {a} and not {b}\n{text}"
    got = history(text, lambda f: tn.compile(f, dynamic=dynamic), seed)
    assert len(got) == len(wanted), f"seed {seed}, compiled by default\n{text}"
    for i, (a, b) in enumerate(zip(got, wanted, strict=True)):
        assert same(a, b), f"seed {seed}, by default, value {i}: {a} and not {b}\n{text}"
    return len(graphs)


def test_random_programs() -> None:
    assert sum(compare(seed) > 0 for seed in range(20)) > 6


@pytest.mark.slow
def test_many_random_programs() -> None:
    for seed in range(1000, 1000 + ROUNDS):
        compare(seed)
