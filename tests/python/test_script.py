"""jit.script: what it takes, what it refuses and where, and that it changes nothing."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import tenon as tn
from tenon import jit, nn

SCALE = 2.0


def helper(x: tn.Tensor) -> tn.Tensor:
    return x * SCALE


def collatz(x: tn.Tensor, most: int = 100) -> int:
    n = int(x.item())
    steps = 0
    while n != 1 and steps < most:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return steps


def mixed(xs: list[tn.Tensor]) -> tn.Tensor:
    total = tn.zeros(2)
    for x in xs:
        if x.sum() > 0:
            total = total + helper(x)
        else:
            total = total - x
    return total


class Block(nn.Module):
    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n
        self.fc = nn.Linear(n, n)
        self.register_buffer("calls", tn.zeros(1))

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        self.calls += 1
        for _ in range(self.n):
            if x.sum() > 0:
                x = self.fc(x)
        return self.late(x)

    def late(self, x: tn.Tensor) -> tn.Tensor:
        return x + 1

    @jit.export
    def twice(self, x: tn.Tensor) -> tn.Tensor:
        return self.forward(self.forward(x))

    @jit.ignore
    def free(self, *args: Any) -> Any:
        return [a for a in args if a is not None]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(2), nn.ReLU(), Block(2))

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return self.blocks(x)


def test_functions() -> None:
    made = jit.script(collatz)
    assert isinstance(made, jit.ScriptFunction) and made.name == "collatz"
    assert [made(tn.tensor(n)) for n in (1, 6, 7)] == [0, 8, 16] and made(
        tn.tensor(27), most=5
    ) == 5
    assert "while n != 1" in made.code and made.code.startswith("def collatz(")
    text = str(made.graph)
    assert text.startswith("graph(%x : tn.Tensor, %most : int):")
    assert text.index("prim::Loop") < text.index("prim::If") < text.index("block1")
    xs = [tn.ones(2), -tn.ones(2)]
    assert tn.equal(jit.script(mixed)(xs), mixed(xs))
    assert jit.script(made) is made and copy.deepcopy(made) is made


def test_modules() -> None:
    tn.manual_seed(0)
    net = Net()
    made = jit.script(net)
    assert isinstance(made, jit.ScriptModule) and isinstance(made, Net)
    assert made.original_name == "Net" and "self.blocks(x)" in made.code
    assert isinstance(made.blocks[0], jit.ScriptModule) and type(made.blocks[0].fc) is nn.Linear
    assert list(made.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(made.parameters(), net.parameters(), strict=True))
    x = tn.randn(3, 2)
    assert tn.equal(made(x), net(x)) and tn.equal(made.blocks[0].twice(x), net.blocks[0].twice(x))
    made.eval()
    assert net.training and not made.blocks[0].training
    made.extra = 3
    assert not hasattr(net, "extra")
    made(x).sum().backward()
    assert net.blocks[0].fc.weight.grad is not None
    assert made.double().blocks[0].fc.weight.dtype == tn.float64
    assert tn.equal(copy.deepcopy(made)(x.double()), made(x.double()))


def test_traces_of_scripts_are_kept() -> None:
    x = tn.ones(1, 2)
    traced = jit.trace(jit.script(nn.Sequential(nn.Linear(2, 2))), (x,))
    data = io.BytesIO()
    jit.save(traced, data)
    data.seek(0)
    assert tn.equal(jit.load(data)(x), traced(x))


def bad_lambda(x):
    return (lambda y: y + 1)(x)


def bad_try(x):
    try:
        return x + 1
    except ValueError:
        return x


def bad_yield(x):
    yield x


def bad_args(*xs):
    return xs[0]


def bad_inner(x):
    def inner(y):
        return y

    return inner(x)


def bad_else(x):
    for _ in range(2):
        x = x + 1
    else:
        x = x + 2
    return x


def bad_list(x):
    return [y for y in x if y > 0]


def bad_global(x):
    global SCALE
    SCALE = 3.0
    return x


def bad_import(x):
    import math

    return x * math.pi


def bad_call(x):
    return bad_lambda(x) * 2


class BadPart(nn.Module):
    def forward(self, x):
        return self.part(x)

    def part(self, x):
        return {1, 2}


@pytest.mark.parametrize(
    ("what", "line"),
    [(bad_lambda, "return (lambda y"), (bad_try, "    try:"), (bad_yield, "yield x"),
     (bad_args, "def bad_args(*xs)"), (bad_inner, "def inner(y)"), (bad_else, "for _ in range(2)"),
     (bad_list, "if y > 0]"), (bad_global, "global SCALE"), (bad_import, "import math"),
     (bad_call, "return (lambda y"), (nn.Sequential(BadPart()), "return {1, 2}")],
    ids=lambda v: getattr(v, "__name__", ""),
)  # fmt: skip
def test_what_is_refused(what: Any, line: str) -> None:
    with pytest.raises(jit.UnsupportedNodeError, match="aren't supported") as caught:
        jit.script(what)
    text = str(caught.value)
    assert line in text and "test_script.py" in text and "<--- HERE" in text
    assert SCALE == 2.0


def test_what_has_no_source() -> None:
    space: dict[str, Any] = {}
    exec("def made(x):\n    return x", space)
    with pytest.raises(OSError, match="Can't get source"):
        jit.script(space["made"])
    with pytest.raises(TypeError, match="a function or a module, not int"):
        jit.script(5)


def test_python_for_python_alone() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        if not jit.is_scripting():
            x = (lambda y: y)(x)
        return x + 1

    assert jit.script(fn)(tn.ones(1)).item() == 2


class ForBoth(nn.Module):
    @jit.unused
    def listed(self, x: Any) -> Any:
        return sum(x) if isinstance(x, list) else x

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        if not jit.is_scripting():
            x = self.listed(x)
        return x * 2 if jit.is_scripting() else x * 3


def test_a_script_takes_its_own_side_and_python_the_other() -> None:
    module, x = ForBoth(), tn.ones(2)
    script = jit.script(module)
    assert script(x).tolist() == [2.0, 2.0]
    assert module([x, x]).tolist() == [6.0, 6.0]
    assert jit.trace(script, (x,))(x).tolist() == [2.0, 2.0]
    assert not jit.is_scripting()


class Split(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x.new_zeros(8) if x.shape[0] == 7 else x


def test_what_was_traced_through_a_script_takes_sizes_on_the_other_side_of_its_condition() -> None:
    traced = jit.trace(nn.Sequential(jit.script(Split())), (tn.ones(7, 4),))
    assert traced(tn.ones(7, 3)).shape == (8,)
    x = tn.ones(5, 7)
    assert traced(x).equal(x)


def test_what_is_a_script_where_it_is_traced_is_python_elsewhere() -> None:
    @jit.script_if_tracing
    def fn(x: tn.Tensor) -> tn.Tensor:
        return x * 2 if jit.is_scripting() else x * 3

    x = tn.ones(2)
    assert fn(x).tolist() == [3.0, 3.0]
    assert jit.trace(fn, (x,))(x).tolist() == [2.0, 2.0]


def test_the_class_of_all_modules_itself() -> None:
    holder = tn.nn.Module()
    holder.layer = tn.nn.Linear(2, 1)
    scripted = tn.jit.script(holder)
    assert isinstance(scripted, tn.jit.ScriptModule)
    assert scripted.layer(tn.ones(1, 2)).tolist() == holder.layer(tn.ones(1, 2)).tolist()


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.steps, self.more = nn.LSTM(4, 3), nn.Sequential(nn.Linear(3, 2))

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return self.more(self.steps(self.linear(self.norm(x)))[0])


@pytest.mark.parametrize("made", [tn.jit.freeze, tn.jit.optimize_for_inference])
def test_freezing_a_script_leaves_the_module_its_weights(made: Any) -> None:
    model = Layers().eval()
    script, names = tn.jit.script(model), list(model.state_dict())
    x = tn.randn(5, 4)
    frozen = made(script)
    assert tn.allclose(frozen(x), model(x), atol=1e-6)
    assert not list(frozen.parameters())
    assert list(model.state_dict()) == list(script.state_dict()) == names
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def turned(x: tn.Tensor, n: int = 2) -> tn.Tensor:
    while n > 0:
        for i in range(n):
            if i > 1:
                x = x + i
            else:
                x = x - 1
        n -= 1
    return x


def test_the_text_of_a_graph_shows_its_regions() -> None:
    assert str(jit.script(turned).graph).splitlines() == [
        "graph(%x : tn.Tensor, %n : int):",
        "  prim::Loop(n > 0)",
        "    block0():",
        "      prim::Loop(i in range(n))",
        "        block0():",
        "          prim::If(i > 1)",
        "            block0():",
        "              x = x + i",
        "            block1():",
        "              x = x - 1",
        "      n -= 1",
        "  return x",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "x = 1", "import os", "while True:\n    pass", "class A:\n    pass", "print(1)",
        "def f(x=print(1)):\n    return x", "@print\ndef f(x):\n    return x",
        "def f(x: print(1)):\n    return x", "def f(x) -> print(1):\n    return x",
        "def f(x):\n    return x\nprint(1)",
    ],
)  # fmt: skip
def test_texts_run_nothing_when_they_are_read(text: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(RuntimeError, match="expected def|would have to run"):
        tn.jit.CompilationUnit(text)
    assert capsys.readouterr().out == ""
