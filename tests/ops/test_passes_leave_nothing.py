"""Passes of the tape, and what stands around them, leave nothing behind: test_nothing_leaks looks
at single operators, this at the engine, hooks, functions in Python, programs and optimizers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import tenon as tn
from tenon import _program
from tenon.autograd import forward_ad, graph
from tenon.utils.checkpoint import checkpoint
from test_nothing_leaks import grows, only_what_is_new, pytestmark  # noqa: F401

X = tn.ones(3, 1, requires_grad=True)
Y = tn.ones(4, requires_grad=True)
C = tn.ones(2, dtype=tn.complex64, requires_grad=True)
TABLE = tn.ones(4, 2, requires_grad=True)
ROWS = tn.tensor([1, 3, 3])
LAYER = tn.nn.Linear(4, 2)


class Doubled(tn.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        ctx.kept = [1, 2]
        return x * 2, y * 3

    @staticmethod
    def backward(ctx: Any, g: Any, h: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * x * 2, h * y * 3


class Changed(tn.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2


class Failing(tn.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        raise ValueError("no gradient")


def clear(*leaves: Any) -> None:
    for t in leaves or (X, Y, C, TABLE):
        t.grad = None


def broadcast() -> None:
    clear()
    (X * Y + tn.ones(5, 1, 1)).sum().backward()


def summed() -> None:
    clear()
    y = (X * Y).sum()
    y.backward(retain_graph=True)
    y.backward()


def recorded_sums() -> None:
    clear()
    for _ in range(2):
        (X * Y).exp().sum().backward(create_graph=True)
    clear()


def twice() -> None:
    [g] = tn.autograd.grad((X * Y).exp().sum(), [X], create_graph=True)
    tn.autograd.grad(g.sum(), [X, Y])


def sparse_rows() -> None:
    clear()
    for _ in range(2):
        tn.nn.functional.embedding(ROWS, TABLE, sparse=True).sum().backward()
    tn.nn.functional.embedding(ROWS, TABLE).sum().backward()


def parts() -> None:
    first, *others = TABLE.unbind(0)
    (first.sum() + others[0].prod() + TABLE.split([1, 3])[1].sum()).backward()
    clear()


def complex_and_wide() -> None:
    clear()
    ((C * Y[:2]).abs().sum() + Y.double().sum() + C.real.sum()).backward()


def changed_slices() -> None:
    y = TABLE * 2
    y[1] = 3
    y[:, 0].mul_(TABLE[:, 1])
    y.sum().backward()
    clear()


def functions() -> None:
    a, b = Doubled.apply(X, Y)
    (a.sum() + b.sum()).backward()
    Doubled.apply(X, Y)[0].sum().backward()
    Changed.apply(X * 1).sum().backward()
    clear()


def failures() -> None:
    y = Failing.apply(X).sum()
    with suppress(ValueError):
        y.backward()
    z = (X * Y).exp().sum()
    z.backward()
    with suppress(RuntimeError):
        z.backward()
    with suppress(RuntimeError):
        (X * Y).backward(tn.ones(2))
    with suppress(RuntimeError):
        tn.autograd.grad((X * 2).sum(), [Y])
    w = X * 2
    v = w.exp()
    with suppress(RuntimeError):
        v.add_(1)
        v.sum().backward()
    clear()


def hooks() -> None:
    y = X * Y
    handles = [y.register_hook(lambda g: g * 2), X.register_hook(lambda g: None)]
    handles += [X.register_post_accumulate_grad_hook(lambda t: None)]
    handles += [y.grad_fn.register_hook(lambda a, b: None)]
    handles += [y.grad_fn.register_prehook(lambda a: None)]
    y.retain_grad()
    y.sum().backward()
    for handle in handles:
        handle.remove()
    clear()


def packed() -> None:
    with graph.saved_tensors_hooks(lambda t: [t], lambda box: box[0]):
        y = (X * Y).exp().tanh().sum()
    y.backward()
    with graph.save_on_cpu():
        (X * Y).exp()
    with graph.saved_tensors_hooks(lambda t: t, lambda t: t.detach().to_sparse()):
        z = X.exp().sum()
    with suppress(RuntimeError):
        z.backward()
    clear()


def views() -> None:
    y = TABLE * 1
    for made in (y[1:], y.T, y.expand(2, 4, 2), y.as_strided((2, 2), (1, 1)), y.diagonal()):
        made.sum()
    y.mul_(2)
    y[1:].sum().backward()
    clear()


def sizes() -> None:
    """Gradients that read sizes alone, which need no list of numbers."""
    TABLE.trace(), TABLE[1], TABLE.diagonal(), TABLE.narrow(0, 1, 2), TABLE.unsqueeze(0)


def again() -> None:
    for reentrant in (False, True):
        checkpoint(lambda x: (x * Y).exp().sum(), X, use_reentrant=reentrant).backward()
    clear()


def forward() -> None:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(X, tn.ones(3, 1))
        forward_ad.unpack_dual((dual * Y).exp())


def transformed() -> None:
    tn.func.jacrev(lambda x: (x * 2).exp())(Y.detach())
    tn.func.hessian(lambda x: (x**3).sum())(Y.detach())
    tn.vmap(lambda x: x.softmax(0))(TABLE.detach())


def trained() -> None:
    for kind, lr in ((tn.optim.SGD, 0.01), (tn.optim.AdamW, tn.tensor(0.01)),
                     (tn.optim.Rprop, 0.01), (tn.optim.NAdam, tn.tensor(0.01))):  # fmt: skip
        optimizer = kind(LAYER.parameters(), lr=lr)
        LAYER(tn.ones(3, 4)).square().mean().backward()
        tn.nn.utils.clip_grad_norm_(LAYER.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def half_precision() -> None:
    with tn.autocast("cpu", dtype=tn.bfloat16):
        LAYER(tn.ones(3, 4)).sum().backward()
        tn.nn.Linear(4, 2)(tn.ones(3, 4))
    LAYER.zero_grad()


def lists() -> None:
    many = [Y] * 20
    for join in (tn.cat, tn.stack, tn.hstack, tn.vstack, tn.dstack):
        join(many)
    tn.block_diag(*many)
    tn.cat(many).sum().backward()
    clear()


def copies() -> None:
    y = LAYER.state_dict()
    LAYER.load_state_dict(y)
    tn.from_dlpack(TABLE.detach()).numpy()
    tn.tensor(TABLE.tolist())


class Sized:
    """A sequence that is neither a list nor a tuple, and an array by DLPack."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> int:
        return (2, 3)[i]

    def __dlpack__(self, **given: Any) -> Any:
        return DATA.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return DATA.__dlpack_device__()


DATA = tn.zeros(3, 4)


def indices() -> None:
    DATA[0] = 3
    DATA[1, 2] = 2.5
    DATA[DATA > 2] = 1
    DATA[:, [0, 1]] = tn.ones(3, 2)
    DATA[tn.tensor([1]), ...] = DATA[0].clone()
    DATA[0, 1].item()
    DATA[1:, None, ::2].shape.numel()
    float(DATA[0, 0]), DATA.tolist(), repr(DATA)
    with suppress(IndexError):
        DATA[7]
    with suppress(IndexError):
        DATA[0, 1, 2] = 1
    with suppress(RuntimeError):
        DATA[0] = tn.ones(7)


def arguments() -> None:
    sized = Sized()
    tn.from_dlpack(sized)
    tn.Size(sized), tn.Size([1, 2]) + (3,)
    for shape in ((2, 3), [2, 3], tn.Size([2, 3])):
        tn.zeros(shape), tn.zeros(shape, dtype=tn.float16, device="cpu")
    tn.tensor([[1, 2], (3, 4)]), tn.tensor([[1.5], [True]]), tn.as_tensor([1j])
    tn.tensor(DATA.numpy()), tn.asarray(DATA.numpy()[0])
    tn.add(input=DATA, other=2, alpha=3), DATA.sum(dim=(0, 1), keepdim=True)
    tn.add(DATA, 1, out=tn.empty(3, 4)), DATA + 1.5, 2 - DATA, DATA == 3
    DATA.to(tn.float64), DATA.to("cpu"), DATA.to(DATA), DATA.type("torch.DoubleTensor")
    for wrong in ([1, [2]], [[1], [2, 3]], ["a"], [2**70], object()):
        with suppress(TypeError, ValueError, RuntimeError):
            tn.tensor(wrong)
    for call in (lambda: DATA.sum(dim="a"), lambda: tn.zeros(-1), lambda: DATA.view(5),
                 lambda: tn.add(DATA), lambda: tn.add(DATA, 1, what=2), lambda: DATA + object(),
                 lambda: tn.device("nowhere"), lambda: tn.cat([DATA, 3])):  # fmt: skip
        with suppress(TypeError, RuntimeError):
            call()


def attributes() -> None:
    t = DATA.clone()
    t.requires_grad = True
    for name, value in (("requires_grad", 1), ("grad", 3), ("data", 3), ("real", 3)):
        with suppress(TypeError, RuntimeError):
            setattr(t, name, value)
    t.mine = [t]
    node = (t * 2).grad_fn
    repr(node), node.name(), node.next_functions, node.metadata
    with suppress(AttributeError):
        node._saved_nothing
    t.mine = None
    t.T, t.mT, t.H, t.itemsize, t.nbytes, t.stride(), t.grad_fn, t.is_leaf
    tn.Generator().manual_seed(3).get_state()


def programs() -> None:
    x = tn.ones(2, 3)
    program, _ = _program.record(lambda: [(x * W).exp(), x.topk(2)[0]], {"x": x}, [("w", 0, W)])
    program.optimize()
    str(program), program.print("dot"), program.print("json"), program.inputs, program.weights
    again = _program.load(program.to_bytes())
    again(x), again.fused, again.regions
    again.set_weight(0, tn.zeros(1))
    for wrong in (b"", program.to_bytes()[:-9]):
        with suppress(RuntimeError, ValueError):
            _program.load(wrong)
    with suppress(ZeroDivisionError):
        _program.record(lambda: [x * 2, 1 // 0], {"x": x})
    with suppress(RuntimeError):
        program(tn.ones(3, 2))


def free_sizes() -> None:
    def recorded(n: int) -> _program.Program:
        x = tn.ones(n, 3)
        made = {"x": x}, [("w", 0, W)]
        return _program.record(lambda: [(x * W + tn.tensor([1.0, 2, 3])).sum(0)], *made)[0]

    program = recorded(4)
    program.generalize(recorded(6), [0], 0, 2, 9, "n")
    program.agrees("n", [lambda: recorded(8)])
    with suppress(ValueError):
        program.generalize(recorded(4), [0], 1, 2, 9, "m")
    program(tn.ones(5, 3))


W = tn.tensor([0.5])


STEPS: list[Callable[[], None]] = [
    broadcast, summed, recorded_sums, twice, sparse_rows, parts, complex_and_wide, changed_slices,
    functions, failures, hooks, packed, views, sizes, again, forward, transformed, trained,
    half_precision, lists, indices, arguments, attributes, programs, free_sizes, copies,
]  # fmt: skip


@pytest.mark.parametrize("step", STEPS[:-1], ids=lambda step: step.__name__)
def test_tensors_go_without_the_collector(step: Callable[[], None]) -> None:
    step()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        step()
        gc.collect()
        assert gc.garbage == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_passes_leave_nothing(step: Callable[[], None]) -> None:
    assert not grows(step)
