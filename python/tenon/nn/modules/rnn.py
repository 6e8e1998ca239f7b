"""Recurrent networks and their cells, written over operators.

The input products of a whole sequence are one matrix product; only the recurrence is a loop.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.utils.rnn import PackedSequence

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}


def _lstm_step(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """Gates in the order input, forget, cell, output; returns (h, c)."""
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_step(x: Tensor, h_gates: Tensor, h: Tensor) -> Tensor:
    """Gates in the order reset, update, new."""
    xr, xz, xn = x.chunk(3, -1)
    hr, hz, hn = h_gates.chunk(3, -1)
    z = (xz + hz).sigmoid()
    new = (xn + (xr + hr).sigmoid() * hn).tanh()
    return (h - new) * z + new


def _apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    return tensor.index_select(dim, permutation)


class RNNBase(Module):
    """Layers, directions, weights and their names, shared by RNN, LSTM and GRU."""

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                stacklevel=2,
            )
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0 or proj_size >= hidden_size:
            raise ValueError("proj_size should be a positive integer smaller than hidden_size")
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        rows = _GATES[mode] * hidden_size
        state = proj_size or hidden_size
        directions = 2 if bidirectional else 1
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for direction in range(directions):
                width = input_size if layer == 0 else state * directions
                suffix = f"_l{layer}" + ("_reverse" if direction else "")
                shapes = {"weight_ih": (rows, width), "weight_hh": (rows, state)}
                if bias:
                    shapes.update(bias_ih=(rows,), bias_hh=(rows,))
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    param = Parameter(tenon.empty(shape, device=device, dtype=dtype))
                    setattr(self, name + suffix, param)
                self._all_weights.append([name + suffix for name in shapes])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Weights need no common block of memory here; kept for programs that call it."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of every layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            text += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            text += f", num_layers={self.num_layers}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.batch_first is not False:
            text += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            text += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            text += f", bidirectional={self.bidirectional}"
        return text

    def _run(
        self, x: Tensor, h: Tensor, c: Tensor | None, weights: list[Parameter], sizes: list[int]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """One direction of one layer over rows grouped by time step.

        x holds sum(sizes) rows; the rows of step t are the first sizes[t] samples. Samples that end
        early keep their last state.
        """
        w_ih, w_hh, *rest = weights
        b_ih, b_hh = rest[:2] if self.bias else (None, None)
        w_hr = rest[-1] if self.proj_size else None
        # In one product for all steps; GRU keeps b_hh inside its reset gate.
        fold = self.mode != "GRU" and b_ih is not None
        projected = F.linear(x, w_ih, b_ih + b_hh if fold else b_ih)
        outputs = []
        for step, n in zip(projected.split(sizes), sizes):
            now, before = h[:n], c[:n] if c is not None else None
            if self.mode == "LSTM":
                new, cell = _lstm_step(step + F.linear(now, w_hh), before)
                new = F.linear(new, w_hr) if w_hr is not None else new
                c = cell if n == c.size(0) else tenon.cat([cell, c[n:]])
            elif self.mode == "GRU":
                new = _gru_step(step, F.linear(now, w_hh, b_hh), now)
            else:
                total = step + F.linear(now, w_hh)
                new = total.tanh() if self.mode == "RNN_TANH" else total.relu()
            outputs.append(new)
            h = new if n == h.size(0) else tenon.cat([new, h[n:]])
        return tenon.cat(outputs), h, c

    def _reverse_rows(self, x: Tensor, sizes: list[int]) -> Tensor:
        """Rows in the opposite order of time, for each sample by its own length."""
        samples = sizes[0]
        starts = [0]
        for n in sizes:
            starts.append(starts[-1] + n)
        lengths = [sum(1 for n in sizes if n > b) for b in range(samples)]
        rows = [starts[lengths[b] - 1 - t] + b for t, n in enumerate(sizes) for b in range(n)]
        return x.index_select(0, tenon.tensor(rows, dtype=tenon.int64, device=x.device))

    def _layers(
        self, x: Tensor, h0: Tensor, c0: Tensor | None, sizes: list[int]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        directions = 2 if self.bidirectional else 1
        h_last, c_last = [], []
        all_weights = self.all_weights
        for layer in range(self.num_layers):
            results = []
            for direction in range(directions):
                i = layer * directions + direction
                rows = self._reverse_rows(x, sizes) if direction else x
                cell = c0[i] if c0 is not None else None
                y, h, c = self._run(rows, h0[i], cell, all_weights[i], sizes)
                results.append(self._reverse_rows(y, sizes) if direction else y)
                h_last.append(h)
                c_last.append(c)
            x = results[0] if directions == 1 else tenon.cat(results, -1)
            if self.dropout > 0 and self.training and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, True)
        return x, tenon.stack(h_last), tenon.stack(c_last) if c0 is not None else None

    def check_forward_args(self, input: Tensor, hidden: Tensor, width: int, name: str) -> None:
        """The sizes of a state that the caller gave."""
        expected = (self.num_layers * (2 if self.bidirectional else 1), input, width)
        if tuple(hidden.shape) != expected:
            raise RuntimeError(f"Expected {name} size {expected}, got {list(hidden.shape)}")

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed = input if isinstance(input, PackedSequence) else None
        lstm = self.mode == "LSTM"
        batched = True
        if packed is not None:
            x, sizes = packed.data, packed.batch_sizes.tolist()
        else:
            if input.dim() not in (2, 3):
                raise ValueError(
                    f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead"
                )
            batched = input.dim() == 3
            sequence = input if batched else input.unsqueeze(1)
            if batched and self.batch_first:
                sequence = sequence.transpose(0, 1)
            if sequence.size(-1) != self.input_size:
                raise RuntimeError(
                    "input.size(-1) must be equal to input_size. "
                    f"Expected {self.input_size}, got {sequence.size(-1)}"
                )
            steps, samples = sequence.shape[:2]
            if steps == 0:
                raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
            x = sequence.reshape(steps * samples, self.input_size)
            sizes = [samples] * steps
        samples = sizes[0]
        count = self.num_layers * (2 if self.bidirectional else 1)
        width = self.proj_size or self.hidden_size
        if hx is None:
            h0 = x.new_zeros((count, samples, width))
            c0 = x.new_zeros((count, samples, self.hidden_size)) if lstm else None
        else:
            h0, c0 = hx if lstm else (hx, None)
            if not batched:
                h0 = h0.unsqueeze(1)
                c0 = c0.unsqueeze(1) if c0 is not None else None
            if packed is not None and packed.sorted_indices is not None:
                h0 = _apply_permutation(h0, packed.sorted_indices)
                c0 = _apply_permutation(c0, packed.sorted_indices) if lstm else None
            self.check_forward_args(samples, h0, width, "hidden[0]" if lstm else "hidden")
            if c0 is not None:
                self.check_forward_args(samples, c0, self.hidden_size, "hidden[1]")
        y, h, c = self._layers(x, h0, c0, sizes)
        if packed is not None:
            output = PackedSequence(
                y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
            )
            if packed.unsorted_indices is not None:
                h = _apply_permutation(h, packed.unsorted_indices)
                c = _apply_permutation(c, packed.unsorted_indices) if lstm else None
        else:
            output = y.view(len(sizes), samples, -1)
            if not batched:
                output, h = output.squeeze(1), h.squeeze(1)
                c = c.squeeze(1) if c is not None else None
            elif self.batch_first:
                output = output.transpose(0, 1)
        return output, (h, c) if lstm else h


class RNN(RNNBase):
    """tanh or relu of products of input and state."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(
                f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
            )
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent unit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    """Weights of one step."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size

        def empty(*shape: int) -> Parameter:
            return Parameter(tenon.empty(shape, device=device, dtype=dtype))

        self.weight_ih = empty(rows, input_size)
        self.weight_hh = empty(rows, hidden_size)
        self.register_parameter("bias_ih", empty(rows) if bias else None)
        self.register_parameter("bias_hh", empty(rows) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        if nonlinearity != "tanh":
            text += f", nonlinearity={nonlinearity}"
        return text

    def _gates(self, input: Tensor, hx: Tensor) -> tuple[Tensor, Tensor]:
        return (
            F.linear(input, self.weight_ih, self.bias_ih),
            F.linear(hx, self.weight_hh, self.bias_hh),
        )

    def _check(self, input: Tensor, hx: Any) -> None:
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for state in hx if isinstance(hx, tuple) else (hx,):
            if state is not None and state.dim() not in (1, 2):
                raise ValueError(
                    f"{name}: Expected hidden to be 1D or 2D, got {state.dim()}D instead"
                )

    def _zeros(self, input: Tensor) -> Tensor:
        return input.new_zeros((*input.shape[:-1], self.hidden_size))


class RNNCell(RNNCellBase):
    """One step of RNN."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self._check(input, hx)
        x, h = self._gates(input, self._zeros(input) if hx is None else hx)
        if self.nonlinearity == "tanh":
            return (x + h).tanh()
        if self.nonlinearity == "relu":
            return (x + h).relu()
        raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")


class LSTMCell(RNNCellBase):
    """One step of LSTM: returns (h, c)."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        self._check(input, hx)
        h, c = (self._zeros(input), self._zeros(input)) if hx is None else hx
        x_gates, h_gates = self._gates(input, h)
        return _lstm_step(x_gates + h_gates, c)


class GRUCell(RNNCellBase):
    """One step of GRU."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        self._check(input, hx)
        h = self._zeros(input) if hx is None else hx
        return _gru_step(*self._gates(input, h), h)
