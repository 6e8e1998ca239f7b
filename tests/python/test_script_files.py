"""Scripts in files: they come back as they were, in a process without their source, and what others
wrote runs nothing but the language of scripts."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import tenon as tn
import tenon.nn.functional as F
from tenon import jit, nn

STEP = 0.5


def _read(data: bytes) -> Any:
    return jit.load(io.BytesIO(data))


def _kept(made: Any) -> bytes:
    data = io.BytesIO()
    jit.save(made, data)
    return data.getvalue()


def collatz(n: int, most: int = 100) -> int:
    steps = 0
    while n != 1 and steps < most:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def shifted(x: tn.Tensor, by: float) -> tn.Tensor:
    return F.relu(x) + by * STEP


class Pair(NamedTuple):
    first: tn.Tensor
    second: int = 4


@jit.script
class Counter:
    def __init__(self, start: int) -> None:
        self.count = start

    def __add__(self, other: int) -> int:
        return self.count + other

    def step(self) -> None:
        self.count += 1


class Gate(nn.Module):
    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x if bool(x.sum() > 0) else -x


class Net(nn.Module):
    scale = 3

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ModuleList([nn.Linear(3, 3) for _ in range(12)])
        self.heads = nn.ModuleDict({"b": nn.Tanh(), "a": nn.Sigmoid()})
        self.gate, self.tied = Gate(), nn.Linear(3, 3)
        self.tied.weight = self.steps[0].weight
        self.act, self.sizes, self.name = F.gelu, [1, 2], "net"
        self.seen = 0
        self.register_buffer("mean", tn.zeros(3), persistent=False)
        self.steps[1].weight.requires_grad_(False)
        self.unsaid = object()

    @property
    def twice(self) -> int:
        return self.scale * 2

    def around(self, x: tn.Tensor, by: int = 2) -> tn.Tensor:
        return self.act(x) * by

    @jit.export
    def other(self, x: tn.Tensor) -> Pair:
        return Pair(x + self.scale, collatz(7))

    @jit.ignore
    def python(self) -> object:
        return self.unsaid

    def forward(self, x: tn.Tensor, more: dict[str, tn.Tensor] | None = None) -> tn.Tensor:
        """What it says is not kept."""
        total: list[tn.Tensor] = []
        for i, step in enumerate(self.steps):
            x = tn.tanh(step(x)) + i * self.twice
            total.append(x)
        if not jit.is_scripting():
            print(self.python())
        for _, head in self.heads.items():
            x = head(x)
        if more is not None:
            for value in more.values():
                x = x + value
        self.seen += 1
        self.mean += x.detach().mean(0)
        counter = Counter(self.seen)
        counter.step()
        x = self.gate(self.around(shifted(self.tied(x), 0.25), by=counter + 1))
        return x + tn.stack(total).sum(dim=0) * self.sizes[1] + self.mean


def words(xs: list[tn.Tensor], name: str) -> Any:
    assert len(xs) > 0, "none"
    if name == "bad":
        raise ValueError(f"no {name}")
    with tn.no_grad():
        half = [x / 2 for x in xs]
    found = {i: x.to(tn.float64) for i, x in enumerate(half)}
    text = f"{name.upper()}-{len(found):>3}"
    return found, text, (xs[0][..., None, 1:], xs[-1].size(0) // 2, -(xs[0] ** 2))


def _same(a: Any, b: Any) -> bool:
    leaves = [tn.utils._pytree.tree_leaves(v) for v in (a, b)]
    return len(leaves[0]) == len(leaves[1]) and all(
        tn.equal(x, y) if isinstance(x, tn.Tensor) else x == y for x, y in zip(*leaves, strict=True)
    )


def test_modules_come_back_as_they_were() -> None:
    tn.manual_seed(0)
    made = jit.script(Net())
    data = _kept(made)
    for again in (data, _kept(_read(data))):
        kept = _read(again)
        assert isinstance(kept, jit.ScriptModule) and kept.original_name == "Net"
        assert not hasattr(kept, "unsaid") and kept.sizes == [1, 2] and kept.training
        assert kept.tied.weight is kept.steps[0].weight
        assert list(kept.steps._modules) == [str(i) for i in range(12)]
        assert list(kept.heads) == ["b", "a"]
        assert _same(kept.state_dict(), made.state_dict())
        assert [(n, p.requires_grad) for n, p in kept.named_parameters()] == [
            (n, p.requires_grad) for n, p in made.named_parameters()
        ]
    x = tn.randn(2, 3)
    for given in ((x,), (x, {"k": x})):
        assert _same(kept(*given), made(*given))
    assert _same(kept.other(x), made.other(x)) and kept.seen == made.seen == 2
    kept(x).sum().backward()
    assert kept.steps[3].weight.grad is not None
    assert "tanh(step(x))" in kept.code and "prim::Loop" in str(kept.graph)
    kept.eval()
    assert not _read(_kept(kept)).gate.training


def test_functions_come_back_as_they_were() -> None:
    xs = [tn.randn(2, 3), tn.randn(4)]
    kept = _read(_kept(jit.script(words)))
    assert _same(kept(xs, "ab"), words(xs, "ab"))
    with pytest.raises(jit.Error, match="ValueError: no bad"):
        kept(xs, "bad")
    with pytest.raises(jit.Error, match="AssertionError: none"):
        kept([], "a")
    assert [_read(_kept(jit.script(collatz)))(n) for n in (7, 27)] == [16, 100]


def test_layers_and_traces_in_scripts_are_kept() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = jit.trace(nn.Linear(2, 2), (tn.ones(1, 2),))
            self.rest = nn.Sequential(nn.Linear(2, 3), nn.ReLU())

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.rest(self.first(x)) if x.sum() > 0 else x

    tn.manual_seed(0)
    layers: list[tuple[Any, Any]] = [
        (Mixed(), tn.ones(3, 2)), (nn.Conv2d(1, 2, 3), tn.randn(1, 1, 5, 5)),
        (nn.LSTM(2, 3, num_layers=2), tn.randn(4, 1, 2)), (nn.BatchNorm1d(2).eval(), tn.ones(3, 2)),
        (nn.TransformerEncoderLayer(4, 2, 8, 0.0), tn.randn(3, 1, 4)),
        (nn.Sequential(*[nn.Linear(2, 2) for _ in range(11)]), tn.ones(1, 2)),
    ]  # fmt: skip
    for layer, x in layers:
        made = jit.script(layer)
        assert isinstance(made, jit.ScriptModule)
        assert _same(_read(_kept(made))(x), layer(x))


def test_a_process_without_the_source(tmp_path: Path) -> None:
    tn.manual_seed(0)
    made, x = jit.script(Net().eval()), tn.ones(2, 3)
    jit.save(made, tmp_path / "net.tng", _extra_files={"a": b"more"})
    code = f"""
import tenon as tn
more = {{"a": ""}}
net = tn.jit.load({str(tmp_path / "net.tng")!r}, _extra_files=more)
print(net(tn.ones(2, 3)).double().sum().item(), more["a"].decode())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    number, more = run.stdout.split()
    assert float(number) == made(x).double().sum().item() and more == "more"


def test_what_a_file_cannot_hold_is_named() -> None:
    class Array(nn.Module):
        def forward(self, x: tn.Tensor) -> Any:
            return x.numpy()

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.thing = object()

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return x if self.thing is None else -x

    hooked = nn.Linear(2, 2)
    hooked.register_forward_hook(lambda *args: None)
    shared = nn.Module()
    shared.register_buffer("a", tn.ones(4))
    shared.register_buffer("b", shared.a[:2])
    cases: list[tuple[nn.Module, str]] = [
        (Array(), r"'\.numpy' is no attribute[\s\S]*in forward\nx\.numpy"),
        (Holds(), r"Holds\.thing is a builtins\.object"), (hooked, "has hooks"),
        (nn.Sequential(shared), "share memory"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), "is no layer"),
    ]  # fmt: skip
    for made, message in cases:
        with pytest.raises(RuntimeError, match=message):
            jit.save(jit.script(made), io.BytesIO())


# ---- What others wrote ---------------------------------------------------------------------------


def _changed(change: Callable[[dict[str, Any]], None], made: Any = None) -> bytes:
    from tenon import _program

    program = _program.load(_kept(made or jit.script(collatz)))
    note = json.loads(program.note)
    change(note)
    program.note = json.dumps(note)
    return program.to_bytes()


HOSTILE = [
    "def f(n):\n    import os",
    "def f(n):\n    return n.__class__",
    "def f(n):\n    return ().__class__.__mro__",
    "def f(n):\n    return n.numpy().tofile('x')",
    "def f(n):\n    return n.untyped_storage()",
    "def f(n):\n    return n.save('x')",
    "def f(n):\n    return n._apply(n)",
    "def f(n):\n    return __import__('os')",
    "def f(n):\n    return (lambda: n)()",
    "def f(n):\n    yield n",
    "def f(n):\n    try:\n        return n\n    except Exception as e:\n        return e",
    "def f(n):\n    def g(): pass\n    return g",
    "def f(n):\n    class A: pass",
    "def f(n):\n    global x\n    x = 1",
    "def f(n):\n    return (y for y in n)",
    "def f(n):\n    return (y := n)",
    "def f(n):\n    form = '{0.__class__}'.format\n    return form(n)",
    "def f(n, m=print('hi')):\n    return n",
    "def f(n: print('hi')):\n    return n",
    "def f(n) -> print('hi'):\n    return n",
    "@print\ndef f(n):\n    return n",
    "print('hi')",
    "def f(n): return n\nprint('hi')",
    "def f(n:",
    "def f(n):\n    return " + "(" * 300 + "n" + ")" * 300,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_that_do_more_are_refused(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    def change(note: dict[str, Any]) -> None:
        note["functions"][0]["text"] = text
        fields = ["save", "numpy", "tofile", "untyped_storage", "a"]
        note["classes"].append({"name": "T", "fields": fields, "defaults": []})

    with pytest.raises(RuntimeError, match="the script is damaged"):
        _read(_changed(change))
    assert not capfd.readouterr().out


def test_texts_reach_no_more_than_they_may() -> None:
    def says(text: str) -> Any:
        def change(note: dict[str, Any]) -> None:
            note["functions"][0]["text"] = "def f(n):\n    " + text

        return _read(_changed(change))

    for name in ("open", "getattr", "eval", "type", "vars", "super", "globals"):
        with pytest.raises(NameError):
            says(f"return {name}")(1)
    for field in ("{0.real}", "{0[0]}", "{n.imag}"):
        with pytest.raises(ValueError, match="fields"):
            says(f"return '{field}'.format(n, n=n)")(1)


def test_notes_that_are_wrong_are_refused() -> None:
    made = jit.script(Net())
    good = json.loads(json.dumps(_note(made)))
    layer = good["modules"].index(next(m for m in good["modules"] if m["base"] == "Linear"))

    def put(value: Any, *path: Any) -> Callable[[dict[str, Any]], None]:
        def change(note: dict[str, Any]) -> None:
            for step in path[:-1]:
                note = note[step]
            note[path[-1]] = value

        return change

    cases = [
        put({"library": "load"}, "root"), put({"library": "jit.load"}, "root"),
        put({"library": "hub.load"}, "root"), put({"library": "functional.importlib"}, "root"),
        put({"function": 99, "script": False}, "root"), put({"tensor": 99}, "root"),
        put({"what": 1}, "root"), put({}, "root"), put({"module": "x"}, "root"),
        put("Path", "modules", layer, "base"), put("jit", "modules", layer, "base"),
        put({"__class__": 1}, "modules", layer, "attributes"),
        put({"_modules": 1}, "modules", layer, "attributes"),
        put([["weight", 3]], "modules", layer, "_parameters"),
        put([["training", {"module": 0}]], "modules", layer, "_modules"),
        put({"__del__": {"kind": "function", "function": 0}}, "modules", 0, "methods"),
        put({"forward": {"kind": "classmethod", "function": 0}}, "modules", 0, "methods"),
        put({"space": {"__array_interface__": 1}}, "root"), put({"space": {"a b": 1}}, "root"),
        put({"__builtins__": {"dict": []}}, "functions", 0, "names"),
        put({"_format_text": 1}, "functions", 0, "names"),
        put(3, "functions"), put(None, "modules"), put({"traced": "aGk="}, "root"),
    ]  # fmt: skip
    for change in cases:
        with pytest.raises(RuntimeError):
            _read(_changed(change, made))


def _note(made: Any) -> dict[str, Any]:
    from tenon import _program

    return json.loads(_program.load(_kept(made)).note)
