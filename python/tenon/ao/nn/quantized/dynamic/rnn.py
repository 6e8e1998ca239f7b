"""Recurrent layers with weights of int8 or float16. The inputs of all steps are laid on one grid,
the hidden state on one of its own at every step."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.nn import functional as F
from tenon.nn.utils.rnn import PackedSequence


class _Half(nn.Module):
    """input @ weight.T + bias of a recurrent layer."""

    def __init__(self, weight: Tensor, bias: Tensor | None, qconfig: Any) -> None:
        super().__init__()
        from tenon.ao.nn.quantized.dynamic import Linear

        layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None, device="meta")
        layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
        if bias is not None:
            layer.bias = nn.Parameter(bias.detach(), requires_grad=False)
        layer.qconfig = qconfig
        self.linear = Linear.from_float(layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


def _lstm(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    i, f, g, o = (x + h).chunk(4, 1)
    cell = f.sigmoid() * state[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * cell.tanh(), cell


def _gru(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
    new = (xn + (xr + hr).sigmoid() * hn).tanh()
    return (new + (xz + hz).sigmoid() * (state[0] - new),)


def _plain(function: Any) -> Any:
    def step(x: Tensor, h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (function(x + h),)

    return step


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN_TANH": _plain(tenon.tanh), "RNN_RELU": _plain(F.relu)}


class _Pair(nn.Module):
    """One layer in one direction: what its input and what its hidden state are multiplied by."""

    def __init__(self, mod: Any, end: str) -> None:
        super().__init__()
        self.ih, self.hh = (
            _Half(getattr(mod, f"weight_{part}{end}"), getattr(mod, f"bias_{part}{end}", None),
                  mod.qconfig)
            for part in ("ih", "hh")
        )  # fmt: skip

    def draw(self, after: bool) -> None:
        """Moves the generator by what PyTorch draws for a layer before it takes the weights, so
        that a program's later draws are PyTorch's; biases come after or before."""
        weights, biases = [], []
        for half in (self.ih, self.hh):
            weights.append((half.linear.out_features, half.linear.in_features))
            if after or half.linear.bias() is not None:
                biases.append((half.linear.out_features,))
        for size in weights + biases if after else biases + weights:
            tenon.randn(size)

    def run(
        self, step: Any, data: Tensor, sizes: list[int], state: tuple[Tensor, ...], back: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Steps of so many rows, the longest sequences first: results, and last states."""
        parts = list(zip(self.ih(data).split(sizes), sizes, strict=True))
        results: list[Tensor] = []
        last = [s.clone() for s in state]
        for x, rows in reversed(parts) if back else parts:
            before = tuple(s[:rows] for s in last)
            after = step(x, self.hh(before[0]), before)
            last = [
                a if rows == len(s) else tenon.cat([a, s[rows:]])
                for a, s in zip(after, last, strict=True)
            ]
            results.append(after[0])
        return tenon.cat(results[::-1] if back else results), tuple(last)


class _Recurrent(nn.Module):
    """What LSTM and GRU share."""

    _kind, _states = "", 1

    def __init__(self, mod: Any) -> None:
        super().__init__()
        for name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout",
                     "bidirectional"):  # fmt: skip
            setattr(self, name, getattr(mod, name))
        ends = [f"_l{i}{way}" for i in range(mod.num_layers)
                for way in (("", "_reverse") if mod.bidirectional else ("",))]  # fmt: skip
        self.pairs = nn.ModuleList(_Pair(mod, end) for end in ends)

    @classmethod
    def from_float(cls, mod: Any, **options: Any) -> Any:
        made = cls(mod).train(mod.training)
        for pair in made.pairs:
            pair.draw(after=True)
        return made

    def _all(
        self, data: Tensor, sizes: list[int], states: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        ways = 2 if self.bidirectional else 1
        step, lasts = _STEPS[self._kind], []
        for layer in range(self.num_layers):
            both = []
            for way in range(ways):
                at = layer * ways + way
                state = tuple(s[at] for s in states)
                result, last = self.pairs[at].run(step, data, sizes, state, way == 1)
                both.append(result)
                lasts.append(last)
            data = both[0] if ways == 1 else tenon.cat(both, -1)
            if self.dropout and layer + 1 < self.num_layers:
                data = F.dropout(data, self.dropout, self.training)
        return data, tuple(tenon.stack(column) for column in zip(*lasts, strict=True))

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed = isinstance(input, PackedSequence)
        if packed:
            data, order = input.data, input.sorted_indices
            sizes = input.batch_sizes.tolist()
        else:
            if input.dim() != 3:
                raise RuntimeError(f"input must have 3 dimensions, got {input.dim()}")
            x = input.transpose(0, 1) if self.batch_first else input
            data, order = x.reshape(-1, x.shape[-1]), None
            sizes = [x.shape[1]] * x.shape[0]
        if data.shape[-1] != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. Expected "
                f"{self.input_size}, got {data.shape[-1]}"
            )
        wanted = (len(self.pairs), sizes[0], self.hidden_size)
        if hx is None:
            states = tuple(data.new_zeros(wanted) for _ in range(self._states))
        else:
            states = (hx,) if isinstance(hx, Tensor) else tuple(hx)
            for s in states:
                if tuple(s.shape) != wanted:
                    raise RuntimeError(f"Expected hidden size {wanted}, got {tuple(s.shape)}")
            states = states if order is None else tuple(s.index_select(1, order) for s in states)
        result, lasts = self._all(data, sizes, states)
        if packed:
            back = input.unsorted_indices
            lasts = lasts if back is None else tuple(s.index_select(1, back) for s in lasts)
            output = PackedSequence(result, input.batch_sizes, order, back)
        else:
            output = result.view(len(sizes), sizes[0], -1)
            output = output.transpose(0, 1) if self.batch_first else output
        return output, lasts if self._states == 2 else lasts[0]

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0,
                 "bidirectional": False}  # fmt: skip
        more = [f"{k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *more])


class LSTM(_Recurrent):
    """nn.LSTM in whole numbers."""

    _kind, _states = "LSTM", 2


class GRU(_Recurrent):
    """nn.GRU in whole numbers."""

    _kind = "GRU"


class _Cell(nn.Module):
    """One step."""

    def __init__(self, mod: Any) -> None:
        super().__init__()
        self.input_size, self.hidden_size = mod.input_size, mod.hidden_size
        self.nonlinearity = getattr(mod, "nonlinearity", "tanh")
        self.bias = mod.bias
        self.pair = _Pair(mod, "")

    @classmethod
    def from_float(cls, mod: Any, **options: Any) -> Any:
        made = cls(mod).train(mod.training)
        made.pair.draw(after=False)
        return made

    def _step(self, kind: str, input: Tensor, hx: Any, count: int) -> Any:
        if input.shape[1] != self.input_size:
            raise RuntimeError(
                f"input has inconsistent input_size: got {input.shape[1]}, expected "
                f"{self.input_size}"
            )
        if hx is None:
            hx = (input.new_zeros(input.shape[0], self.hidden_size),) * count
        state = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        after = _STEPS[kind](self.pair.ih(input), self.pair.hh(state[0]), state)
        return after if count == 2 else after[0]

    def __repr__(self) -> str:
        return f"DynamicQuantized{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        more = [] if self.bias else ["bias=False"]
        more += [] if self.nonlinearity == "tanh" else [f"nonlinearity={self.nonlinearity}"]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *more])


class LSTMCell(_Cell):
    """nn.LSTMCell in whole numbers."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return self._step("LSTM", input, hx, 2)


class GRUCell(_Cell):
    """nn.GRUCell in whole numbers."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return self._step("GRU", input, hx, 1)


class RNNCell(_Cell):
    """nn.RNNCell in whole numbers."""

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return self._step(f"RNN_{self.nonlinearity.upper()}", input, hx, 1)
