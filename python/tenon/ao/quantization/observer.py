"""Observers: modules that see what values pass, and say which grid fits them."""

from __future__ import annotations

import functools
import struct
import warnings
from typing import Any

import tenon
from tenon import Tensor
from tenon.ao.quantization._grids import (
    QScheme,
    QType,
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    quint8,
)
from tenon.nn import Module

_PARTS = 16  # into which a bin is cut when its counts move to other bins
_EPS = 1.1920928955078125e-07  # of float32


class Factory(functools.partial[Any]):
    """Makes observers; takes further arguments."""

    def __repr__(self) -> str:
        more = "".join(f", {name}={value}" for name, value in self.keywords.items())
        return f"functools.partial({self.func}{more}){{}}"

    def with_args(self, **kwargs: Any) -> Any:
        return Factory(self.func, *self.args, **{**self.keywords, **kwargs})


class ObserverBase(Module):
    """What observers share: the numbers of the grid. Subclasses: forward, calculate_qparams."""

    def __init__(self, dtype: QType, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    @classmethod
    def with_args(cls, **kwargs: Any) -> Any:
        """A factory with these arguments."""
        return Factory(cls, **kwargs)


class UniformQuantizationObserverBase(ObserverBase):
    """Grids of equal steps from the least and the largest value."""

    def __init__(
        self, dtype: QType = quint8, qscheme: QScheme = per_tensor_affine,
        reduce_range: bool = False, quant_min: int | None = None, quant_max: int | None = None,
        factory_kwargs: Any = None, eps: float = _EPS, is_dynamic: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        if not isinstance(dtype, QType):
            raise ValueError(f"an observer's dtype is one of qint8, quint8, got {dtype!r}")
        self.qscheme, self.reduce_range, self.eps = qscheme, reduce_range, eps
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange:
            if not quant_min <= 0 <= quant_max or quant_min >= quant_max:
                raise AssertionError("quant_min and quant_max must be ordered and include zero")
            self.quant_min, self.quant_max = quant_min, quant_max
        else:
            self.quant_min, self.quant_max = dtype.low, dtype.high
        if reduce_range:  # a range that was given, too
            self.quant_min, self.quant_max = self.quant_min // 2, self.quant_max // 2

    def _calculate_qparams(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        if not bool((low <= high).all()):
            raise AssertionError(f"min {low} should be less than max {high}")
        low, high = low.clamp(max=0.0), high.clamp(min=0.0)
        least, most = self.quant_min, self.quant_max
        if self.qscheme.symmetric:
            high = tenon.maximum(-low, high)
            scale = (high / (float(most - least) / 2)).clamp(min=self.eps)
            middle = (least + most) // 2 if self.has_customized_qrange else 128
            zero = tenon.full_like(scale, 0 if self.dtype.low < 0 else middle).long()
        else:
            scale = ((high - low) / float(most - least)).clamp(min=self.eps)
            zero = (least - tenon.round(low / scale)).clamp(least, most).to(tenon.int32)
        return scale.reshape(-1), zero.reshape(-1)

    def reset_min_max_vals(self) -> None:
        raise NotImplementedError


class MinMaxObserver(UniformQuantizationObserverBase):
    """The least and the largest value of all that pass."""

    def __init__(self, dtype: QType = quint8, qscheme: QScheme = per_tensor_affine,
                 **kwargs: Any) -> None:  # fmt: skip
        super().__init__(dtype, qscheme, **kwargs)
        if qscheme.per_channel and type(self)._channels is False:
            raise NotImplementedError(
                f"{type(self).__name__}: the grid is one per tensor, and qscheme={qscheme} has "
                "one per channel"
            )
        self.register_buffer("min_val", tenon.tensor(float("inf")))
        self.register_buffer("max_val", tenon.tensor(float("-inf")))

    _channels = False

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return tenon.aminmax(x)

    def _merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        return tenon.minimum(low, self.min_val), tenon.maximum(high, self.max_val)

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel() == 0:
            return x_orig
        low, high = self._ends(x_orig.detach().float())
        if self.seen:
            low, high = self._merge(low, high)
        self.min_val, self.max_val = low, high
        return x_orig

    @property
    def seen(self) -> bool:
        """Whether any value has passed."""
        return bool((self.min_val <= self.max_val).all()) and self.min_val.numel() > 0

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.seen:
            return tenon.tensor([1.0]), tenon.tensor([0])
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def reset_min_max_vals(self) -> None:
        """Forgets what passed."""
        self.min_val, self.max_val = tenon.tensor(float("inf")), tenon.tensor(float("-inf"))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Averages of the ends of batches, with less weight for what is long ago."""

    def __init__(self, averaging_constant: float = 0.01, dtype: QType = quint8,
                 qscheme: QScheme = per_tensor_affine, **kwargs: Any) -> None:  # fmt: skip
        super().__init__(dtype, qscheme, **kwargs)
        self.averaging_constant = averaging_constant

    def _merge(self, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        c = self.averaging_constant
        return self.min_val + c * (low - self.min_val), self.max_val + c * (high - self.max_val)


class PerChannelMinMaxObserver(MinMaxObserver):
    """A grid for each place along ch_axis."""

    _channels = True

    def __init__(self, ch_axis: int = 0, dtype: QType = quint8,
                 qscheme: QScheme = per_channel_affine, **kwargs: Any) -> None:  # fmt: skip
        if not qscheme.per_channel:
            raise NotImplementedError(
                f"{type(self).__name__}: the grid is one per channel, and qscheme={qscheme} has "
                "one per tensor"
            )
        super().__init__(dtype, qscheme, **kwargs)
        self.ch_axis = ch_axis

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.movedim(self.ch_axis, 0).reshape(x.shape[self.ch_axis], -1)
        return rows.amin(1), rows.amax(1)

    def _load_from_state_dict(self, state: Any, prefix: str, *args: Any) -> None:
        for name in ("min_val", "max_val"):  # a fresh one has seen no channel
            if prefix + name in state:
                setattr(self, name, tenon.empty_like(state[prefix + name]))
        super()._load_from_state_dict(state, prefix, *args)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """The same over averages."""

    def __init__(self, averaging_constant: float = 0.01, ch_axis: int = 0, **kwargs: Any) -> None:
        super().__init__(ch_axis, **kwargs)
        self.averaging_constant = averaging_constant

    _merge = MovingAverageMinMaxObserver._merge


class HistogramObserver(MinMaxObserver):
    """Counts of values; the grid leaves out what is so rare that finer steps are worth more.

    The ends move inwards, always that behind which fewer values lie, by 1e-5 of all values at a
    time, until the squared distance of values to their places on the grid grows.
    """

    def __init__(self, bins: int = 2048, dtype: QType = quint8,
                 qscheme: QScheme = per_tensor_affine, **kwargs: Any) -> None:  # fmt: skip
        super().__init__(dtype, qscheme, **kwargs)
        self.bins = bins
        self.register_buffer("histogram", tenon.zeros(bins))

    def forward(self, x_orig: Tensor) -> Tensor:
        x = x_orig.detach().float()
        if not bool(tenon.isfinite(x.sum())) and bool(tenon.isinf(x).any()):
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            x = x[x.abs() != float("inf")]
        if x.numel() == 0:
            return x_orig
        old, before = self.seen, (float(self.min_val), float(self.max_val))
        super().forward(x)
        ends = float(self.min_val), float(self.max_val)
        counts = tenon.histc(x, self.bins, *ends)
        if old:
            counts = counts + (self.histogram if before == ends else self._moved(*before, *ends))
        self.histogram = counts
        return x_orig

    def _moved(self, low: float, high: float, new_low: float, new_high: float) -> Tensor:
        """The counts so far in the bins of a wider range."""
        if low == high:
            place = tenon.histc(self.min_val.new_full((1,), low), self.bins, new_low, new_high)
            return place * self.histogram.sum()
        parts = self.bins * _PARTS
        starts = tenon.linspace(low, high, parts + 1)[:-1]
        middles = starts + 0.5 * (tenon.tensor(high) - low) / parts
        edges = tenon.linspace(new_low, new_high, self.bins + 1)
        places = (tenon.bucketize(middles, edges, right=True) - 1).clamp(0, self.bins - 1)
        shares = self.histogram.repeat_interleave(_PARTS) / _PARTS
        return tenon.bincount(places, shares, self.bins).float()

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.seen:
            return super().calculate_qparams()
        first, last = self._best_bins()
        width = (self.max_val - self.min_val) / self.bins
        low, high = self.min_val + width * first, self.min_val + width * (last + 1)
        return self._calculate_qparams(low, high)

    def _best_bins(self) -> tuple[int, int]:
        up_to = self.histogram.cumsum(0).tolist()
        total, least = self.histogram.sum().item(), float("inf")
        first, last, cut_low, cut_high = 0, self.bins - 1, 0.0, 1.0
        while cut_low < cut_high:
            below, above = _single((cut_low + 1e-5) * total), _single((cut_high - 1e-5) * total)
            left, right = first, last
            while left < last and up_to[left] < below:
                left += 1
            while right > first and up_to[right] > above:
                right -= 1
            if left - first > last - right:
                cut_low, ends = cut_low + 1e-5, (left, last)
            else:
                cut_high, ends = cut_high - 1e-5, (first, right)
            if ends == (first, last):
                continue
            error = self._error(*ends)
            if error > least:
                break
            least, (first, last) = error, ends
        return first, last

    def _error(self, first: int, last: int) -> float:
        """Of a grid from bin `first` to bin `last`, with values that lie evenly in their bins."""
        width = (self.max_val.item() - self.min_val.item()) / self.bins
        levels = self.dtype.high - self.dtype.low + 1
        step = width * (last - first + 1) / levels
        if step == 0:
            return 0.0
        starts = (tenon.arange(self.bins) - first) * width
        ends = starts + width
        density = self.histogram / width
        from_level = tenon.div(starts, step, rounding_mode="floor").clamp(0, levels - 1)
        to_level = tenon.div(ends, step, rounding_mode="floor").clamp(0, levels - 1)
        half = tenon.full((self.bins,), step / 2)
        sums = _squares(starts - (from_level + 0.5) * step, half, density)
        sums += (to_level - from_level - 1) * _squares(-half, half, density)
        sums += _squares(-half, ends - (to_level * step + step / 2), density)
        return float(sums.sum())

    def reset_min_max_vals(self) -> None:
        super().reset_min_max_vals()
        self.histogram = tenon.zeros(self.bins)


def _squares(begin: Tensor, end: Tensor, density: Tensor) -> Tensor:
    """The integral of density * x**2."""
    return density * ((end * end * end - begin * begin * begin) / 3)


def _single(value: float) -> float:
    """A number as float32 has it."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


class FixedQParamsObserver(ObserverBase):
    """Sees nothing; says a grid that is known."""

    def __init__(self, scale: float, zero_point: int, dtype: QType = quint8,
                 qscheme: QScheme = per_tensor_affine, quant_min: int = 0, quant_max: int = 255,
                 is_dynamic: bool = False, **kwargs: Any) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", tenon.tensor([scale], dtype=tenon.float32))
        self.register_buffer("zero_point", tenon.tensor([zero_point], dtype=tenon.int32))

    def forward(self, X: Tensor) -> Tensor:
        return X

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point


class PlaceholderObserver(ObserverBase):
    """Sees nothing; says that the grid is found when the model runs, or what dtype is wanted."""

    def __init__(self, dtype: Any = tenon.float32, custom_op_name: str = "",
                 compute_dtype: Any = None, quant_min: int | None = None,
                 quant_max: int | None = None, qscheme: QScheme | None = None,
                 eps: float | None = None, is_dynamic: bool = False) -> None:  # fmt: skip
        super().__init__(dtype, is_dynamic)
        self.qscheme, self.quant_min, self.quant_max = qscheme, quant_min, quant_max

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **kwargs: Any) -> tuple[Tensor, Tensor]:
        raise RuntimeError("calculate_qparams should not be called for PlaceholderObserver")


class NoopObserver(PlaceholderObserver):
    """Sees nothing."""


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)
weight_observer_range_neg_127_to_127 = default_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2**-12
)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=qint8, qscheme=per_channel_symmetric
)
per_channel_weight_observer_range_neg_127_to_127 = default_per_channel_weight_observer.with_args(
    quant_min=-127, quant_max=127, eps=2**-12
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=quint8, quant_min=0, quant_max=255, is_dynamic=True
)
