"""Recurrent networks and their cells: weights, options and states for `tenon.lstm` and others."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import tenon
from tenon import Tensor
from tenon._tape import overridable
from tenon.nn import init
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter
from tenon.nn.utils.rnn import PackedSequence

_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "GRU": 3, "LSTM": 4}
_RUN = {
    "RNN_TANH": tenon.rnn_tanh,
    "RNN_RELU": tenon.rnn_relu,
    "GRU": tenon.gru,
    "LSTM": tenon.lstm,
}


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
        if isinstance(dropout, bool) or not 0 <= float(dropout) <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an "
                "element being zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero "
                f"dropout expects num_layers greater than 1, but got dropout={dropout} and "
                f"num_layers={num_layers}",
                stacklevel=overridable.users_level(),
            )
        sizes = {"input_size": input_size, "hidden_size": hidden_size}
        flags = {"bias": bias, "batch_first": batch_first}
        for kind, given in ((int, sizes), (bool, flags)):
            for name, value in given.items():
                if not isinstance(value, kind):
                    raise TypeError(
                        f"{name} should be of type {kind.__name__}, got: {type(value).__name__}"
                    )
        for name, value in sizes.items():
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero")
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
    def _flat_weights_names(self) -> list[str]:
        """Names of all parameters in one row, which programs initialise them by."""
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for name in self._flat_weights_names]

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

    # ---- What programs with layers of their own call and override ------------------------------

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Whether the layer takes such an input, that of a packed sequence with its sizes."""
        dtype = getattr(self, self._all_weights[0][0]).dtype
        if input.dtype != dtype and not tenon.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert "
                f"input: input.to({dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if input.size(-1) != self.input_size:
            raise RuntimeError(
                "input.size(-1) must be equal to input_size. "
                f"Expected {self.input_size}, got {input.size(-1)}"
            )

    def _state_size(
        self, input: Tensor, batch_sizes: Tensor | None, width: int
    ) -> tuple[int, int, int]:
        samples = input.size(0 if self.batch_first else 1) if batch_sizes is None else None
        if samples is None:
            samples = int(batch_sizes[0])
        return self.num_layers * (2 if self.bidirectional else 1), samples, width

    def get_expected_hidden_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The sizes of the state h for an input."""
        return self._state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def check_hidden_size(
        self,
        hx: Tensor,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Whether a state has the sizes that are expected."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Whether input and state fit the layer and each other."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The state with its samples in another order."""
        return hx if permutation is None else _apply_permutation(hx, permutation)

    def _start(
        self, x: Tensor, hx: Any, samples: int, batched: bool, packed: PackedSequence | None
    ) -> tuple[Tensor, Tensor | None]:
        """The first states, h and of LSTM c: what the caller gave, checked, or zeros."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        width = self.proj_size or self.hidden_size
        lstm = self.mode == "LSTM"
        if hx is None:
            h0 = x.new_zeros((count, samples, width))
            return h0, x.new_zeros((count, samples, self.hidden_size)) if lstm else None
        if packed is None:
            self._check_dims(hx if lstm else (hx,), batched)
        if not batched:
            hx = tuple(s.unsqueeze(1) for s in hx) if lstm else hx.unsqueeze(1)
            x = x.transpose(0, 1) if self.batch_first else x
        if packed is not None:
            hx = self.permute_hidden(hx, packed.sorted_indices)
        self.check_forward_args(x, hx, None if packed is None else packed.batch_sizes)
        return hx if lstm else (hx, None)

    @staticmethod
    def _check_dims(states: tuple[Tensor, ...], batched: bool) -> None:
        """Whether states have samples where the input has them."""
        kind, count = ("batched", 3) if batched else ("unbatched", 2)
        found = [f"{s.dim()}-D" for s in states]
        if set(found) == {f"{count}-D"}:
            return
        got = f"({', '.join(found)}) tensors" if len(found) > 1 else f"{found[0]} tensor"
        raise RuntimeError(
            f"For {kind} {count}-D input, {'hx and cx' if len(found) > 1 else 'hx'} should also be "
            f"{count}-D but got {got}"
        )

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed = input if isinstance(input, PackedSequence) else None
        lstm = self.mode == "LSTM"
        batched = True
        if packed is not None:
            x, samples = packed.data, int(packed.batch_sizes[0])
            batch_first = False
        else:
            if input.dim() not in (2, 3):
                raise ValueError(
                    f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead"
                )
            batched = input.dim() == 3
            batch_first = batched and self.batch_first
            x = input if batched else input.unsqueeze(1)
            samples = x.size(0 if batch_first else 1)
        if hx is None:
            self.check_input(x, None if packed is None else packed.batch_sizes)
        h0, c0 = self._start(x, hx, samples, batched, packed)
        options = (
            self._flat_weights,
            self.bias,
            self.num_layers,
            self.dropout,
            self.training,
            self.bidirectional,
        )
        run = _RUN[self.mode]
        states = [h0, c0] if lstm else h0
        if packed is not None:
            y, *last = run(x, packed.batch_sizes, states, *options)
            if packed.unsorted_indices is not None:
                last = [_apply_permutation(s, packed.unsorted_indices) for s in last]
            y = PackedSequence(
                y, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
            )
        else:
            y, *last = run(x, states, *options, batch_first)
            if not batched:
                y, last = y.squeeze(1), [s.squeeze(1) for s in last]
        return y, tuple(last) if lstm else last[0]


class RNN(RNNBase):
    """tanh or relu of products of input and state.

    Shapes: input (L, N, input_size), or (N, L, input_size) with batch_first, and a state
        (num_layers * directions, N, hidden_size); gives outputs (L, N, directions * hidden_size)
        and the last state.

    >>> nn.RNN(8, 16, batch_first=True)(tn.rand(4, 5, 8))[0].shape
    tenon.Size([4, 5, 16])
    """

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

    if TYPE_CHECKING:  # a packed sequence gives a packed sequence

        def forward(
            self, input: Tensor | PackedSequence, hx: Tensor | None = None
        ) -> tuple[Any, Tensor]: ...


class LSTM(RNNBase):
    """Long short-term memory.

    Shapes: input (L, N, input_size), or (N, L, input_size) with batch_first, and states
        (num_layers * directions, N, hidden_size); gives outputs (L, N, directions * hidden_size)
        and (h, c).

    >>> nn.LSTM(8, 16, batch_first=True)(tn.rand(4, 5, 8))[0].shape
    tenon.Size([4, 5, 16])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    if TYPE_CHECKING:  # a packed sequence gives a packed sequence

        def forward(
            self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
        ) -> tuple[Any, tuple[Tensor, Tensor]]: ...

    def get_expected_cell_size(
        self, input: Tensor, batch_sizes: Tensor | None
    ) -> tuple[int, int, int]:
        """The sizes of the state c for an input."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        expected = (
            self.get_expected_hidden_size(input, batch_sizes),
            self.get_expected_cell_size(input, batch_sizes),
        )
        h, c = hidden
        self.check_hidden_size(h, expected[0], "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(c, expected[1], "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        if permutation is None:
            return hx
        return tuple(_apply_permutation(s, permutation) for s in hx)


class GRU(RNNBase):
    """Gated recurrent unit.

    Shapes: input (L, N, input_size), or (N, L, input_size) with batch_first, and a state
        (num_layers * directions, N, hidden_size); gives outputs (L, N, directions * hidden_size)
        and the last state.

    >>> nn.GRU(8, 16, batch_first=True)(tn.rand(4, 5, 8))[0].shape
    tenon.Size([4, 5, 16])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)

    if TYPE_CHECKING:  # a packed sequence gives a packed sequence

        def forward(
            self, input: Tensor | PackedSequence, hx: Tensor | None = None
        ) -> tuple[Any, Tensor]: ...


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

    def _step(self, cell: Any, input: Tensor, state: Any) -> Any:
        return cell(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)

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
    """One step of RNN.

    Shapes: input (N, input_size), state (N, hidden_size); gives the next state.

    >>> nn.RNNCell(8, 16)(tn.rand(4, 8)).shape
    tenon.Size([4, 16])
    """

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
        h = self._zeros(input) if hx is None else hx
        if self.nonlinearity == "tanh":
            return self._step(tenon.rnn_tanh_cell, input, h)
        if self.nonlinearity == "relu":
            return self._step(tenon.rnn_relu_cell, input, h)
        raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")


class LSTMCell(RNNCellBase):
    """One step of LSTM: returns (h, c).

    Shapes: input (N, input_size), states (N, hidden_size); gives the next (h, c).

    >>> nn.LSTMCell(8, 16)(tn.rand(4, 8))[0].shape
    tenon.Size([4, 16])
    """

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
        return self._step(tenon.lstm_cell, input, (h, c))


class GRUCell(RNNCellBase):
    """One step of GRU.

    Shapes: input (N, input_size), state (N, hidden_size); gives the next state.

    >>> nn.GRUCell(8, 16)(tn.rand(4, 8)).shape
    tenon.Size([4, 16])
    """

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
        return self._step(tenon.gru_cell, input, h)
