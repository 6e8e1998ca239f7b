"""Recurrent networks: values, gradients and second derivatives of every option against
PyTorch, NumPy and finite differences.

A network is run by one function for both libraries, with the same weights and inputs.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from tolerances import tolerance

STEPS, BATCH, FEATURES, HIDDEN = 5, 3, 3, 4
LENGTHS = [2, 5, 3]
KINDS = ("LSTM", "GRU", "RNN")


# -- every option, next to PyTorch -------------------------------------------------------------


def options() -> list[tuple[str, dict[str, Any], str]]:
    """Kind of network, arguments of its module, kind of input."""
    found = []
    for kind, layers, two, bias, first, width, how in itertools.product(
        KINDS, (1, 2), (False, True), (True, False), (False, True), (0, 2),
        ("padded", "packed", "unbatched"),
    ):  # fmt: skip
        if width and kind != "LSTM":
            continue
        args: dict[str, Any] = {
            "num_layers": layers, "bidirectional": two, "bias": bias, "batch_first": first,
        }  # fmt: skip
        if width:
            args["proj_size"] = width
        if kind == "RNN" and first:
            args["nonlinearity"] = "relu"
        found.append((kind, args, how))
    return found


def network(lib: Any, kind: str, args: dict[str, Any], seed: int = 0) -> Any:
    """A module in float64 with seeded weights."""
    rng = np.random.default_rng(seed)
    module = getattr(lib.nn, kind)(FEATURES, HIDDEN, **args).double()
    with lib.no_grad():
        for p in module.parameters():
            p.copy_(lib.tensor(rng.standard_normal(tuple(p.shape)) * 0.5))
    return module


def inputs(lib: Any, kind: str, args: dict[str, Any], how: str) -> list[Any]:
    """x, h and for LSTM c."""
    rng = np.random.default_rng(1)
    count = args["num_layers"] * (2 if args["bidirectional"] else 1)
    rows = (STEPS, BATCH) if not args["batch_first"] else (BATCH, STEPS)
    batch = () if how == "unbatched" else (BATCH,)
    shapes = [(*((STEPS,) if how == "unbatched" else rows), FEATURES)]
    shapes.append((count, *batch, args.get("proj_size") or HIDDEN))
    if kind == "LSTM":
        shapes.append((count, *batch, HIDDEN))
    return [lib.tensor(rng.standard_normal(s)).requires_grad_() for s in shapes]


def outputs(lib: Any, module: Any, args: dict[str, Any], how: str, given: list[Any]) -> list[Any]:
    """All that a call returns."""
    tools = lib.nn.utils.rnn
    x, *states = given
    if how == "packed":
        x = tools.pack_padded_sequence(x, lib.tensor(LENGTHS), args["batch_first"], False)
    y, last = module(x, tuple(states) if len(states) == 2 else states[0])
    if how == "packed":
        y, _ = tools.pad_packed_sequence(y, args["batch_first"])
    return [y, *(last if isinstance(last, tuple) else (last,))]


def all_numbers(lib: Any, kind: str, args: dict[str, Any], how: str) -> list[np.ndarray]:
    """Results, gradients of a pass that keeps nothing, of one that is recorded, and of that one."""
    module = network(lib, kind, args)
    given = inputs(lib, kind, args, how)
    wanted = [*given, *module.parameters()]

    def loss(outs: list[Any]) -> Any:
        return sum((o * o).sum() * (i + 1) + o.sin().sum() for i, o in enumerate(outs))

    plain = lib.autograd.grad(loss(outputs(lib, module, args, how, given)), wanted)
    outs = outputs(lib, module, args, how, given)
    first = lib.autograd.grad(loss(outs), wanted, create_graph=True)
    second = lib.autograd.grad(sum((g * g).sum() for g in first), wanted)
    return [t.detach().numpy() for t in (*outs, *plain, *first, *second)]


@pytest.mark.parametrize("kind", KINDS)
def test_like_torch(kind: str) -> None:
    for which, args, how in options():
        if which != kind:
            continue
        theirs = stored.of_torch(
            lambda torch, args=args, how=how: all_numbers(torch, kind, args, how), brief=True
        )
        stored.same(all_numbers(tn, kind, args, how), theirs, 1e-9, 1e-9, f"{args} {how}")


def test_functions_like_torch() -> None:
    rng = np.random.default_rng(2)

    def both(f: Any, *shapes: Any) -> None:
        arrays = [rng.standard_normal(s) for s in shapes]
        ours = f(tn, *[tn.tensor(a) for a in arrays])
        theirs = stored.of_torch(lambda torch: f(torch, *[torch.tensor(a) for a in arrays]))
        stored.same(ours, theirs, 1e-12, 1e-12)

    def weights(gates: int) -> list[tuple[int, ...]]:
        rows = gates * HIDDEN
        return [(rows, FEATURES), (rows, HIDDEN), (rows,), (rows,)]

    x, h = (STEPS, BATCH, FEATURES), (1, BATCH, HIDDEN)
    flipped, flat = (BATCH, STEPS, FEATURES), (sum(LENGTHS), FEATURES)
    last, sizes = (True, 1, 0.0, False, False), [3, 3, 2, 1, 1]
    for name, step, gates in (
        ("gru", "gru_cell", 3), ("rnn_tanh", "rnn_tanh_cell", 1), ("rnn_relu", "rnn_relu_cell", 1),
    ):  # fmt: skip
        w = weights(gates)

        def cell(lib: Any, x: Any, h: Any, *w: Any, step: str = step) -> Any:
            return [getattr(lib, step)(x, h, *w)]

        def whole(lib: Any, x: Any, h: Any, *w: Any, name: str = name) -> Any:
            return getattr(lib, name)(x, h, w, *last, True)

        def packed(lib: Any, x: Any, h: Any, *w: Any, name: str = name) -> Any:
            return getattr(lib, name)(x, lib.tensor(sizes), h, w, *last)

        both(cell, x[1:], h[1:], *w)
        both(whole, flipped, h, *w)
        both(packed, flat, h, *w)
    w = weights(4)
    both(lambda lib, x, h, c, *w: lib.lstm_cell(x, (h, c), *w), x[1:], h[1:], h[1:], *w)
    both(lambda lib, x, h, c, *w: lib.lstm_cell(x, (h, c), *w[:2]), x[1:], h[1:], h[1:], *w)
    both(lambda lib, x, h, c, *w: lib.lstm(x, (h, c), w, *last, False), x, h, h, *w)
    both(lambda lib, x, h, c, *w: lib.lstm(x, lib.tensor(sizes), (h, c), w, *last), flat, h, h, *w)


# -- NumPy -------------------------------------------------------------------------------------


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def by_hand(kind: str, x: np.ndarray, h: np.ndarray, c: np.ndarray, w: list[np.ndarray]) -> Any:
    """One layer, one direction: all outputs, the last h and c."""
    w_ih, w_hh, b_ih, b_hh = w
    ys = []
    for now in x:
        a, b = now @ w_ih.T + b_ih, h @ w_hh.T + b_hh
        if kind == "LSTM":
            i, f, g, o = np.split(a + b, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif kind == "GRU":
            (xr, xz, xn), (hr, hz, hn) = np.split(a, 3, -1), np.split(b, 3, -1)
            z = sigmoid(xz + hz)
            h = (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h
        else:
            h = np.tanh(a + b)
        ys.append(h)
    return np.stack(ys), h, c


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", KINDS)
def test_like_numpy(kind: str, dtype: str) -> None:
    args = {"num_layers": 1, "bidirectional": True, "batch_first": False}
    module = network(tn, kind, args)
    x, h, *c = inputs(tn, kind, args, "padded")
    low = getattr(tn, dtype)
    to = [t.detach().to(low).double().numpy() for t in (x, h, *c)]
    weights = [p.detach().to(low).double().numpy() for p in module.parameters()]
    module = module.to(low)
    states = [t.detach().to(low) for t in (h, *c)]
    y, last = module(x.detach().to(low), tuple(states) if c else states[0])
    last_h = last[0] if c else last
    assert y.dtype == low
    assert last_h.dtype == low
    c0 = to[2] if c else [None, None]
    there = by_hand(kind, to[0], to[1][0], c0[0], weights[:4])
    back = by_hand(kind, to[0][::-1], to[1][1], c0[1], weights[4:])
    rtol, atol = tolerance(dtype) if dtype in ("float64", "float32") else (0.05, 0.05)
    want = np.concatenate([there[0], back[0][::-1]], -1)
    np.testing.assert_allclose(y.detach().double().numpy(), want, rtol=rtol, atol=atol)
    np.testing.assert_allclose(
        last_h.detach().double().numpy(), [there[1], back[1]], rtol=rtol, atol=atol
    )
    if c:
        got = last[1].detach().double().numpy()
        np.testing.assert_allclose(got, [there[2], back[2]], rtol=rtol, atol=atol)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_wide_steps(kind: str, dtype: str) -> None:
    """More elements than a vector or a chunk has, of several rows: the kernels' loops and their
    ends, forward and backward, next to the parts that a recorded backward pass is made of."""
    low = getattr(tn, dtype)
    rng = np.random.default_rng(3)
    cell = getattr(tn.nn, kind + "Cell")(5, 301, dtype=low)
    x = tn.tensor(rng.standard_normal((7, 5))).to(low).requires_grad_()
    h = tn.tensor(rng.standard_normal((7, 301))).to(low).requires_grad_()
    c = tn.tensor(rng.standard_normal((7, 301))).to(low).requires_grad_()
    wanted = [x, h, *([c] if kind == "LSTM" else []), *cell.parameters()]

    def grads(graph: bool) -> list[np.ndarray]:
        y = cell(x, (h, c) if kind == "LSTM" else h)
        y = y[0] * y[1] if kind == "LSTM" else y * y
        found = tn.autograd.grad(y.sum(), wanted, create_graph=graph)
        return [g.detach().double().numpy() for g in found]

    rtol = {"float64": 1e-12, "float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}[dtype]
    for a, b in zip(grads(False), grads(True)):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * np.abs(b).max())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_differences(kind: str) -> None:
    args = {"num_layers": 2, "bidirectional": True, "batch_first": False}
    module = network(tn, kind, args)
    given = inputs(tn, kind, args, "packed")
    weight = next(iter(module.parameters()))

    def f(x: Any, h: Any, w: Any, *c: Any) -> Any:
        module.weight_ih_l0.data = w.data
        outs = outputs(tn, module, args, "packed", [x, h, *c])
        return sum((o * o).sum() for o in outs)

    assert weight is module.weight_ih_l0
    x, h, *c = given
    assert tn.autograd.gradcheck(lambda x, h, *c: f(x, h, weight, *c), (x, h, *c))
    assert tn.autograd.gradgradcheck(lambda x, h, *c: f(x, h, weight, *c), (x, h, *c))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_complex_numbers(kind: str) -> None:
    """There are no kernels of complex steps: they are made of simpler operators."""
    rng = np.random.default_rng(5)

    def drawn(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / 3

    gates = {"RNN": 1, "LSTM": 4, "GRU": 3}[kind]
    w = [drawn(gates * 2, 3), drawn(gates * 2, 2), drawn(gates * 2), drawn(gates * 2)]
    x, h, c = drawn(3, 4, 3), drawn(4, 2), drawn(4, 2)
    ys, last_h, last_c = by_hand(kind, x, h, c, w)
    weights = [tn.tensor(a) for a in w]

    def states(front: Any) -> Any:
        both = tn.tensor(h[front]), tn.tensor(c[front])
        return both if kind == "LSTM" else both[0]

    def layer(x: Any, *w: Any) -> Any:
        run = {"RNN": tn.rnn_tanh, "LSTM": tn.lstm, "GRU": tn.gru}[kind]
        start = states(np.newaxis)
        start = list(start) if kind == "LSTM" else start
        return run(x, start, list(w), True, 1, 0.0, False, False, False)

    y, *last = layer(tn.tensor(x), *weights)
    np.testing.assert_allclose(y, ys, rtol=1e-12)
    for got, want in zip(last, [last_h, last_c]):
        np.testing.assert_allclose(got[0], want, rtol=1e-12)
    step = {"RNN": tn.rnn_tanh_cell, "LSTM": tn.lstm_cell, "GRU": tn.gru_cell}[kind]
    y = step(tn.tensor(x[0]), states(slice(None)), *weights)
    np.testing.assert_allclose(y[0] if kind == "LSTM" else y, ys[0], rtol=1e-12)
    given = [t.requires_grad_() for t in (tn.tensor(x), *weights)]
    assert tn.autograd.gradcheck(lambda *args: layer(*args)[:2], given)


# -- the rest ----------------------------------------------------------------------------------


def test_only_some_results_are_used() -> None:
    """A gradient comes to h or c alone, or to neither at some steps."""
    module = network(tn, "LSTM", {"num_layers": 1, "bidirectional": False, "batch_first": False})
    x = tn.randn(STEPS, BATCH, FEATURES, dtype=tn.float64)
    for pick in (lambda y, s: y[2], lambda y, s: s[0], lambda y, s: s[1], lambda y, s: y):
        module.zero_grad()
        pick(*module(x)).sum().backward()
        got = module.weight_hh_l0.grad.clone()
        loss = pick(*module(x)).sum()
        (want,) = tn.autograd.grad(loss, [module.weight_hh_l0], create_graph=True)
        assert tn.allclose(got, want.detach(), atol=1e-12)


def test_dropout_is_between_layers() -> None:
    one = network(tn, "GRU", {"num_layers": 2, "dropout": 1.0}, seed=5)
    x = tn.randn(STEPS, BATCH, FEATURES, dtype=tn.float64)
    y, h = one(x)
    second = {k.replace("_l1", "_l0"): v for k, v in one.state_dict().items() if "_l1" in k}
    top = tn.nn.GRU(HIDDEN, HIDDEN, dtype=tn.float64)
    top.load_state_dict(second)
    assert tn.allclose(y, top(tn.zeros(STEPS, BATCH, HIDDEN, dtype=tn.float64))[0])
    one.eval()
    assert not tn.allclose(one(x)[0], y)


def test_many_weights_under_autocast() -> None:
    module = tn.nn.LSTM(4, 4, num_layers=9, bidirectional=True)
    with tn.autocast("cpu", tn.bfloat16):
        assert module(tn.randn(3, 2, 4))[0].dtype == tn.bfloat16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hx": (0,)}, "two hidden states"),
        ({"has_biases": True}, "params"),
        ({"num_layers": 2}, "size"),
        ({"num_layers": 0}, "num_layers"),
        ({"dropout": 2.0}, "dropout"),
        ({"x": (3, 2)}, "3 dimensions"),
        ({"x": (0, 2, 4)}, "sequence length"),
        ({"x": (3, 2, 5)}, r"params\[0\]"),
        ({"h": (1, 1, 5)}, r"hx\[0\]"),
        ({"w": (19, 4)}, r"params\[0\]"),
    ],
)
def test_bad_arguments(change: dict[str, Any], message: str) -> None:
    x = tn.zeros(change.get("x", (3, 2, 4)))
    h, c = tn.zeros(change.get("h", (1, 2, 5))), tn.zeros(1, 2, 5)
    params = [tn.zeros(change.get("w", (20, 4))), tn.zeros(20, 5)]
    hx = (h,) if "hx" in change else (h, c)
    with pytest.raises((RuntimeError, ValueError), match=message):
        tn.lstm(x, hx, params, change.get("has_biases", False), change.get("num_layers", 1),
                change.get("dropout", 0.0), True, False, False)  # fmt: skip


@pytest.mark.parametrize("sizes", [[2, 3], [2, 0], [2, 1], [-1], [2, 2, 2], []])
def test_bad_batch_sizes(sizes: list[int]) -> None:
    data, h = tn.zeros(4, 4), tn.zeros(1, 2, 5)
    params = [tn.zeros(15, 4), tn.zeros(15, 5)]
    with pytest.raises((RuntimeError, ValueError), match="batch_sizes"):
        tn.gru(data, tn.tensor(sizes, dtype=tn.int64), h, params, False, 1, 0.0, False, False)


def test_bad_cells() -> None:
    x, h, w, u = tn.zeros(2, 4), tn.zeros(2, 5), tn.zeros(20, 4), tn.zeros(20, 5)
    for args, message in (
        ((x, (h,), w, u), "two hidden states"),
        ((x, (h[:1], h), w, u), "batch size"),
        ((x, (h, h[:, :4]), w, u), "hidden1 has inconsistent"),
        ((x[:, :3], (h, h), w, u), "inconsistent input_size"),
        ((x, (h, h), w[:19], u), "w_ih"),
        ((x, (h, h), w, u[0]), "w_hh"),
        ((x[None], (h, h), w, u), "1D or 2D"),
        ((x, (h[0], h), w, u), "hidden0"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=message):
            tn.lstm_cell(*args)
    with pytest.raises((RuntimeError, ValueError), match="w_hh"):
        tn.gru_cell(x, h, w, u)
