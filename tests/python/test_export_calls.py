"""export: what a call may give and take, and what is said where it does not fit."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
import tenon as tn
from tenon import nn
from tenon.export import Dim, ExportedProgram, export, load, save
from tenon.utils import _pytree


def again(ep: ExportedProgram) -> ExportedProgram:
    file = io.BytesIO()
    save(ep, file)
    file.seek(0)
    return load(file)


class Given(nn.Module):
    """Gives back what it is given, or a number of it."""

    def __init__(self, pick: Callable[..., Any]) -> None:
        super().__init__()
        self.pick = pick
        self.register_buffer("total", tn.zeros(()))

    def forward(self, x: Any, n: int = 1) -> Any:
        return self.pick(self, x, n)


def test_modules_that_give_no_tensor() -> None:
    x = tn.ones(4, 3)
    for pick, wanted in (
        (lambda m, x, n: n, 2), (lambda m, x, n: None, None), (lambda m, x, n: [n, "a"], [2, "a"]),
        (lambda m, x, n: (x.shape[0] * n, x.shape[1]), (8, 3)),
    ):  # fmt: skip
        ep = export(Given(pick), (x, 2))
        assert ep.module()(x, 2) == again(ep).module()(x, 2) == wanted
    ep = export(Given(lambda m, x, n: x.shape[0] * n), (x, 2), dynamic_shapes=({0: Dim("b")}, None))
    assert ep.module()(tn.ones(7, 3), 2) == again(ep).module()(tn.ones(7, 3), 2) == 14
    runs = export(Given(lambda m, x, n: (m.total.add_(x.sum()), None)[1]), (x, 2)).module()
    assert runs(x, 2) is runs(x, 2) is None and runs.total.item() == 24
    with pytest.raises(RuntimeError, match="Only tensors, lists, tuples of tensors"):
        tn.jit.trace(lambda x: 3, (x,))


def test_what_a_call_lacks_is_said_in_the_terms_of_the_call() -> None:
    class Both(nn.Module):
        def forward(self, x: Any, ys: Any, mode: Any = "a", *, more: Any = None) -> Any:
            return x + ys[0] + ys[1]["a"]

    def given(n: int = 4, m: int = 4) -> Any:
        return tn.ones(n), [tn.ones(m), {"a": tn.ones(n)}]

    d = Dim("d", min=3, max=9)
    shapes = {"x": {0: d}, "ys": [{0: d}, {"a": {0: d}}], "mode": None, "more": None}
    ep = export(Both(), (*given(), "b"), {"more": 3}, dynamic_shapes=shapes)
    for runs in (ep.module(), again(ep).module()):
        for args, more, what in (
            ((*given(), "c"), 3, "mode == 'b'"), ((*given(), "b"), 4, "more == 3"),
            ((*given(), "b"), 3.0, "more == 3"),
            ((*given(2, 2), "b"), 3, "x.size()[0] >= 3"),
            ((*given(12, 12), "b"), 3, "x.size()[0] <= 9"),
            ((*given(4, 5), "b"), 3, "ys[0].size()[0] == x.size()[0]"),
            ((tn.ones(5), given(4, 5)[1], "b"), 3, "ys[1]['a'].size()[0] == x.size()[0]"),
        ):  # fmt: skip
            with pytest.raises(AssertionError, match=re.escape(f"Guard failed: {what}")):
                runs(*args, more=more)
        with pytest.raises(ValueError, match="Trying to flatten user inputs with exported input"):
            runs(tn.ones(4), tn.ones(4), "b", more=3)


def test_constants_have_the_names_of_the_module() -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.foo, self.sub = tn.ones(3), nn.Module()
            self.sub.c = tn.arange(3.0)

        def forward(self, x: Any) -> Any:
            return (x + self.foo) * self.sub.c + tn.tensor([5.0, 6.0, 7.0])

    ep = export(Holds(), (tn.ones(3),))
    for made in (ep, again(ep)):
        names = made.graph_signature.lifted_tensor_constants
        assert names == ("foo", "sub.c", "lifted_tensor_0") and set(made.constants) == set(names)
        targets = [n.target for n in made.graph.find_nodes(op="placeholder")]
        assert targets == ["c_foo", "c_sub_c", "c_lifted_tensor_0", "x"]
        assert made.constants["sub.c"].tolist() == [0, 1, 2]
        assert made.module()(tn.ones(3)).tolist() == [5, 8, 11]


def test_a_size_of_two_values_is_free() -> None:
    class Plus(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + x.shape[0]

    for low, high, seen in ((1, 2, 2), (1, 2, 1), (3, 4, 3), (3, 6, 6), (3, 5, 4)):
        dim = Dim("n", min=low, max=high)
        runs = export(Plus(), (tn.ones(seen, 2),), dynamic_shapes=({0: dim},)).module()
        for n in range(low, high + 1):
            assert tn.equal(runs(tn.ones(n, 2)), tn.ones(n, 2) + n)
        with pytest.raises(AssertionError, match="Guard failed"):
            runs(tn.ones(high + 1, 2))


class Checked:
    """A container that refuses what holds no tensors."""

    def __init__(self, a: Any) -> None:
        if a is None:
            raise ValueError("a is None")
        self.a = a


def test_containers_that_look_at_what_they_hold() -> None:
    _pytree.register_pytree_node(
        Checked, lambda c: ([c.a], None), lambda parts, _: Checked(*parts),
        serialized_type_name="tests.Checked",
        flatten_with_keys_fn=lambda c: ([(_pytree.GetAttrKey("a"), c.a)], None),
    )  # fmt: skip

    class Doubles(nn.Module):
        def forward(self, c: Any) -> Any:
            return Checked(c.a * 2)

    ep = export(Doubles(), (Checked(tn.ones(2)),))
    for made in (ep, again(ep)):
        assert made.module()(Checked(tn.ones(2))).a.tolist() == [2, 2]
    free = export(Doubles(), (Checked(tn.ones(3)),), dynamic_shapes=(Checked({0: Dim("n")}),))
    assert free.module()(Checked(tn.ones(5))).a.tolist() == [2] * 5
    with pytest.raises(RuntimeError, match="has 1 elements, but"):
        export(Doubles(), (Checked(tn.ones(3)),), dynamic_shapes=([None, None],))
