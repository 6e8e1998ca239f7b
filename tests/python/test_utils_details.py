"""Small tools of utils, autograd and amp in detail: weak dictionaries, contexts as decorators,
checkpoints, trees, swapped tensors, modes of half precision."""

from __future__ import annotations

import gc
import importlib
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import stored
import tenon as tn
from tenon.autograd.gradcheck import GradcheckError
from tenon.utils import _contextlib, checkpoint, swap_tensors, weak
from tenon.utils.module_tracker import ModuleTracker

Pair = namedtuple("Pair", "a b")


def test_entries_go_when_their_keys_do() -> None:
    a, b = tn.ones(2), tn.ones(2)
    found = weak.WeakTensorKeyDictionary({a: 1})
    found[b] = 2
    assert len(found) == 2 and found[a] == 1 and found[b] == 2
    assert a in found and tn.ones(2) not in found and 3 not in found
    assert [k is x for k, x in zip(found, (a, b), strict=True)] == [True, True]
    kept = found.copy()
    del found[a]
    assert a not in found and a in kept and len(kept.keyrefs()) == 2
    del b
    gc.collect()
    assert len(found) == 0 and list(found) == [] and len(kept) == 1
    with pytest.raises(KeyError):
        found[a]
    ref = weak.TensorWeakRef(a)
    assert ref() is a
    del a, kept
    gc.collect()
    assert ref() is None
    with pytest.raises(TypeError, match="expected a tensor, not int"):
        weak.TensorWeakRef(3)


class Noted(_contextlib._DecoratorContextManager):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def clone(self) -> Noted:
        return Noted(self.log)

    def __enter__(self) -> None:
        self.log.append("in")

    def __exit__(self, *error: Any) -> None:
        self.log.append("out")


def test_each_step_of_a_generator_runs_inside() -> None:
    log: list[str] = []

    @Noted(log)
    def steps(n: int) -> Iterator[int]:
        try:
            got = yield n
            log.append(f"got {got}")
            try:
                yield n + 1
            except KeyError:
                log.append("key")
                yield n + 2
        finally:
            log.append("end")
        return "last"

    run = steps(5)
    assert [next(run), run.send("a"), run.throw(KeyError())] == [5, 6, 7]
    with pytest.raises(StopIteration) as end:
        next(run)
    assert end.value.value == "last"
    assert log == ["in", "out", "in", "got a", "out", "in", "key", "out", "in", "end", "out"]
    log.clear()
    run = steps(1)
    next(run)
    run.close()
    assert log == ["in", "out", "in", "end", "out"]
    with pytest.raises(RuntimeError, match="Cannot decorate classes"):
        Noted(log)(type("A", (), {}))
    for call in (
        _contextlib._DecoratorContextManager().__enter__,
        lambda: _contextlib._DecoratorContextManager().__exit__(None, None, None),
    ):
        with pytest.raises(NotImplementedError):
            call()


def test_a_function_runs_again_only_as_far_as_it_must() -> None:
    log: list[str] = []

    def work(x: tn.Tensor) -> tn.Tensor:
        y = x.exp().sin()
        log.append("last")
        return y + 1

    def passes(early: bool | None) -> list[str]:
        log.clear()
        x = tn.ones(2, requires_grad=True)
        with nullcontext() if early is None else checkpoint.set_checkpoint_early_stop(early):
            y = checkpoint.checkpoint(work, x, use_reentrant=False)
        y.sum().backward()
        return log[:]

    assert passes(None) == ["last"]
    assert passes(False) == ["last", "last"] and passes(True) == ["last"]
    assert passes(False) == ["last", "last"]  # the setting before is there again


def test_random_numbers_are_drawn_again_as_they_were() -> None:
    def run(lib: Any) -> list[Any]:
        drop = lib.nn.Dropout(0.5)
        layers = lib.nn.Sequential(drop, drop, drop)
        same = []
        for reentrant in (False, True):
            lib.manual_seed(3)
            x = lib.ones(64, dtype=lib.float64, requires_grad=True)
            module = importlib.import_module(f"{lib.__name__}.utils.checkpoint")
            y = module.checkpoint_sequential(layers, 3, x, use_reentrant=reentrant)
            y.sum().backward()
            same.append(bool((x.grad == y.detach()).all()))
        return same

    assert run(tn) == [True, True]
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        checkpoint.check_backward_validity([tn.ones(1), 3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint.check_backward_validity([tn.ones(1, requires_grad=True), 3])


TREES = [
    3, (1, 2), [1, (2, [3])], {"b": 1, "a": [2, 3]}, OrderedDict(b=1, a=2), Pair(1, [2, 3]), (),
    [None, {}],
]  # fmt: skip


@pytest.mark.parametrize("value", TREES, ids=str)
def test_facts_about_trees(value: Any) -> None:
    def run(lib: Any) -> list[Any]:
        tree = importlib.import_module(f"{lib.__name__}.utils._pytree")
        spec = tree.tree_structure(value)

        def is_list(x: Any) -> bool:
            return isinstance(x, list)

        return [
            spec.num_leaves, spec.num_nodes, spec.num_children, bool(spec.is_leaf()),
            tree.tree_is_leaf(value), tree.tree_is_leaf(value, is_list),
            [repr(x) for x in tree.tree_iter(value)],
            [repr(x) for x in tree.tree_iter(value, is_list)],
            tree.treespec_pprint(spec),
        ]  # fmt: skip

    stored.same(run(tn), stored.of_torch(run))


def test_tensors_of_other_dtypes_change_places() -> None:
    a = tn.ones(2, requires_grad=True)
    a.grad = tn.full((2,), 3.0)
    a.name_of_mine = "a"
    b = tn.arange(3)
    swap_tensors(a, b)
    assert a.tolist() == [0, 1, 2] and not a.requires_grad and a.grad is None
    assert b.tolist() == [1, 1] and b.requires_grad and b.grad.tolist() == [3, 3]
    assert b.name_of_mine == "a" and not hasattr(a, "name_of_mine")
    with pytest.raises(RuntimeError, match="Cannot swap t2, which has a history"):
        swap_tensors(a, b * 2)


def test_a_gradient_that_is_no_number_is_no_close_one() -> None:
    class Wrong(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * float("nan")

    x = tn.ones(2, dtype=tn.float64, requires_grad=True)
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        tn.autograd.gradcheck(Wrong.apply, (x,))


def test_products_with_hessians_have_no_history_unless_it_is_asked_for() -> None:
    x, v = tn.tensor([1.0, 2.0]), tn.tensor([3.0, -1.0])

    def cubes(x: Any) -> Any:
        return (x**3).sum()

    for product in (tn.autograd.functional.hvp, tn.autograd.functional.vhp):
        value, found = product(cubes, x, v)
        assert value.item() == 9 and found.tolist() == [18, -12]
        assert not value.requires_grad and not found.requires_grad
        assert product(cubes, x, v, create_graph=True)[1].requires_grad


def test_dtypes_of_regions_are_set_by_kind_of_device() -> None:
    try:
        tn.set_autocast_cpu_dtype(tn.float16)
        assert tn.get_autocast_cpu_dtype() is tn.float16
        assert not tn.is_autocast_enabled("cpu")
        tn.set_autocast_enabled("cpu", True)
        assert tn.get_autocast_dtype("cpu") is tn.float16 and tn.is_autocast_enabled("cpu")
        assert (tn.ones(2, 2) @ tn.ones(2, 2)).dtype is tn.float16
    finally:
        tn.set_autocast_enabled("cpu", False)
        tn.set_autocast_dtype("cpu", tn.bfloat16)
    assert tn.get_autocast_cpu_dtype() is tn.bfloat16
    assert [tn.autocast_increment_nesting() for _ in range(2)] == [1, 2]
    assert [tn.autocast_decrement_nesting() for _ in range(2)] == [1, 0]


def test_a_tracker_forgets_when_it_is_left() -> None:
    layer = tn.nn.Sequential(tn.nn.Linear(2, 2))
    seen: list[set[str]] = []
    layer[0].register_forward_pre_hook(lambda *_: seen.append(tracker.parents))
    with ModuleTracker() as tracker:
        layer(tn.ones(1, 2))
    layer(tn.ones(1, 2))
    assert seen == [{"Global", "Sequential", "Sequential.0"}, {"Global"}]


def test_a_tracker_survives_a_module_that_fails() -> None:
    @contextmanager
    def failing() -> Iterator[None]:
        with pytest.raises(RuntimeError):
            yield

    layer = tn.nn.Sequential(tn.nn.Linear(2, 2))
    with ModuleTracker() as tracker:
        with failing():
            layer(tn.ones(1, 3))
        assert tracker.parents == {"Global"}


def test_which_modules_a_backward_pass_is_in() -> None:
    def run(lib: Any) -> list[Any]:
        """What a tracker says in gradients, of a pass that reaches no module too."""
        seen: list[Any] = []
        tracker = importlib.import_module(f"{lib.__name__}.utils.module_tracker").ModuleTracker()

        def look(grad: Any) -> None:
            seen.append([sorted(tracker.parents), tracker.is_bw])

        class Part(lib.nn.Module):
            def forward(self, x: Any) -> Any:
                y = x.sin()
                y.register_hook(look)
                return y * 2

        x = lib.ones(2, requires_grad=True)
        net = lib.nn.Sequential(Part(), Part())
        with tracker:
            y = net(x.exp()).sum()
            seen.append([sorted(tracker.parents), tracker.is_bw])
            y.backward()
            z = x.cos()
            z.register_hook(look)
            z.sum().backward()
            seen.append([sorted(tracker.parents), tracker.is_bw])
        return seen

    stored.same(run(tn), stored.of_torch(run))
