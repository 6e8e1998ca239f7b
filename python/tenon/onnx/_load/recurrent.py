"""RNN, GRU and LSTM of ONNX: gates in its order, lengths of rows, layouts and clipping."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tenon as tn
from tenon.nn import functional as F
from tenon.onnx._load.registry import Context, op


def _activation(name: str, alpha: float | None, beta: float | None) -> Callable[[Any], Any]:
    a = alpha
    b = beta
    found: dict[str, Callable[[Any], Any]] = {
        "sigmoid": tn.sigmoid, "tanh": tn.tanh, "relu": tn.relu, "softsign": F.softsign,
        "softplus": F.softplus,
        "affine": lambda x: (1.0 if a is None else a) * x + (0.0 if b is None else b),
        "leakyrelu": lambda x: F.leaky_relu(x, 0.01 if a is None else a),
        "thresholdedrelu": lambda x: x * (x > (1.0 if a is None else a)),
        "scaledtanh": lambda x: (1.0 if a is None else a) * tn.tanh((1.0 if b is None else b) * x),
        "hardsigmoid": lambda x: (
            (0.2 if a is None else a) * x + (0.5 if b is None else b)
        ).clamp(0, 1),
        "elu": lambda x: F.elu(x, 1.0 if a is None else a),
    }  # fmt: skip
    return found[name.lower()]


def _activations(names: list[str], alphas: Any, betas: Any) -> list[Callable[[Any], Any]]:
    """Those with numbers take them in order."""
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    a, b = iter(alphas or ()), iter(betas or ())
    return [
        _activation(
            n,
            next(a, None) if n.lower() in takes_alpha else None,
            next(b, None) if n.lower() in takes_beta else None,
        )
        for n in names
    ]


class _Layer:
    """One direction of one layer: `step` makes the next state of a state and a row of gates."""

    gates = 1

    def __init__(self, hidden: int, w: Any, r: Any, b: Any, f: list[Any], clip: float | None,
                 peepholes: Any, linear_before_reset: int, input_forget: int) -> None:  # fmt: skip
        self.hidden, self.w, self.r, self.f = hidden, w, r, f
        n = self.gates * hidden
        self.b_in, self.b_rec = (0, 0) if b is None else (b[:n], b[n:])
        self.clip, self.peepholes = clip, peepholes
        self.linear_before_reset, self.input_forget = linear_before_reset, input_forget

    def bounded(self, x: Any) -> Any:
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def part(self, x: Any, k: int) -> Any:
        return x[..., k * self.hidden : (k + 1) * self.hidden]

    def step(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        (h,) = state
        return (self.f[0](self.bounded(x @ self.w.t() + h @ self.r.t() + self.b_in + self.b_rec)),)


class _Gru(_Layer):
    gates = 3

    def step(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        (h,) = state
        n = 2 * self.hidden
        given = x @ self.w.t() + self.b_in
        b_rec = self.b_rec
        first = 0 if isinstance(b_rec, int) else b_rec[:n]
        last = 0 if isinstance(b_rec, int) else b_rec[n:]
        zr = self.f[0](self.bounded(given[..., :n] + h @ self.r[:n].t() + first))
        z, r = zr[..., : self.hidden], zr[..., self.hidden :]
        if self.linear_before_reset:
            new = given[..., n:] + r * (h @ self.r[n:].t() + last)
        else:
            new = given[..., n:] + (r * h) @ self.r[n:].t() + last
        new = self.f[1](self.bounded(new))
        return ((1 - z) * new + z * h,)


class _Lstm(_Layer):
    gates = 4

    def step(self, x: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        h, c = state
        all_gates = x @ self.w.t() + h @ self.r.t() + self.b_in + self.b_rec
        i, o, f, g = (self.part(all_gates, k) for k in range(4))
        peep = self.peepholes
        if peep is not None:
            i, f = i + self.part(peep, 0) * c, f + self.part(peep, 2) * c
        i = self.f[0](self.bounded(i))
        f = 1 - i if self.input_forget else self.f[0](self.bounded(f))
        c = f * c + i * self.f[1](self.bounded(g))
        if peep is not None:
            o = o + self.part(peep, 1) * c
        return self.f[0](self.bounded(o)) * self.f[2](c), c


def _run(layer: _Layer, x: Any, state: tuple[Any, ...], lengths: Any, back: bool) -> Any:
    """Outputs by time, and the last state of each row."""
    steps = range(x.shape[0])
    outputs: list[Any] = [None] * x.shape[0]
    for t in reversed(steps) if back else steps:
        new = layer.step(x[t], state)
        if lengths is not None:
            live = (lengths > t).reshape(-1, 1)
            outputs[t] = tn.where(live, new[0], tn.zeros_like(new[0]))
            state = tuple(tn.where(live, n, s) for n, s in zip(new, state, strict=True))
        else:
            outputs[t], state = new[0], new
    return tn.stack(outputs), state


def _recurrent(kind: type[_Layer], names: list[str], states: int) -> Callable[..., Any]:
    def run(ctx: Context, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, *more: Any,
            hidden_size: int = 0, direction: str = "forward", activations: Any = None,
            activation_alpha: Any = None, activation_beta: Any = None, clip: float | None = None,
            layout: int = 0, linear_before_reset: int = 0, input_forget: int = 0,
            output_sequence: int = 0) -> Any:  # fmt: skip
        first = [s for s in more[:states]] + [None] * (states - len(more[:states]))
        peepholes = more[2] if len(more) > 2 else None
        if layout:
            x = x.transpose(0, 1)
            first = [None if s is None else s.transpose(0, 1) for s in first]
        found, last = [], []
        hidden = r.shape[-1]
        ways = {"forward": [False], "reverse": [True]}.get(direction, [False, True])
        acts = _activations(activations or names * len(ways), activation_alpha, activation_beta)
        for k, back in enumerate(ways):
            own = acts[k * len(names) : (k + 1) * len(names)]
            layer = kind(hidden, w[k], r[k], None if b is None else b[k], own, clip,
                         None if peepholes is None else peepholes[k], linear_before_reset,
                         input_forget)  # fmt: skip
            zero = tn.zeros(x.shape[1], hidden, dtype=x.dtype)
            state = tuple(zero if s is None else s[k] for s in first)
            outputs, end = _run(layer, x, state, lengths, back)
            found.append(outputs)
            last.append(end)
        y = tn.stack(found, 1)
        ends = tuple(tn.stack([e[i] for e in last]) for i in range(states))
        if layout:
            y = y.permute(2, 0, 1, 3)
            ends = tuple(e.transpose(0, 1) for e in ends)
        return (y, *ends)

    return run


op("RNN")(_recurrent(_Layer, ["Tanh"], 1))
op("GRU")(_recurrent(_Gru, ["Sigmoid", "Tanh"], 1))
op("LSTM")(_recurrent(_Lstm, ["Sigmoid", "Tanh", "Tanh"], 2))
