"""Modules that lay values on a grid while a model is trained."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.ao.quantization._grids import per_channel_symmetric, per_tensor_symmetric, qint8, quint8
from tenon.ao.quantization.observer import (
    Factory,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)
from tenon.nn import Module


class FakeQuantizeBase(Module):
    """Two switches: whether values are observed, whether they are laid on the grid."""

    _switch = tenon.uint8

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", tenon.tensor([1], dtype=self._switch))
        self.register_buffer("observer_enabled", tenon.tensor([1], dtype=self._switch))

    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled[0] = 1 if enabled else 0

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled[0] = 1 if enabled else 0

    def disable_observer(self) -> None:
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> Any:
        return Factory(cls, **kwargs)


class FakeQuantize(FakeQuantizeBase):
    """An observer, and its grid. The gradient passes where nothing is cut off."""

    def __init__(self, observer: Any = MovingAverageMinMaxObserver, quant_min: int | None = None,
                 quant_max: int | None = None, is_dynamic: bool = False,
                 **observer_kwargs: Any) -> None:  # fmt: skip
        super().__init__()
        if quant_min is not None and quant_max is not None:
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        self.activation_post_process = seen = observer(**observer_kwargs)
        self.quant_min, self.quant_max = seen.quant_min, seen.quant_max
        self.dtype, self.qscheme = seen.dtype, seen.qscheme
        self.ch_axis = getattr(seen, "ch_axis", -1)
        self.is_per_channel = self.qscheme.per_channel
        self.register_buffer("scale", tenon.tensor([1.0]))
        self.register_buffer("zero_point", tenon.tensor([0], dtype=tenon.int32))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The observer's grid, which is that of the layer that this becomes."""
        return self.activation_post_process.calculate_qparams()

    def _laid(self) -> tuple[Tensor, Tensor]:
        """The grid on which values are laid meanwhile."""
        return self.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        if self.observer_enabled[0] == 1:
            self.activation_post_process(X.detach())
            self.scale, zero_point = self._laid()
            self.zero_point = zero_point.to(tenon.int32)
        if self.fake_quant_enabled[0] != 1:
            return X
        if self.is_per_channel:
            return tenon.fake_quantize_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, self.quant_min, self.quant_max
            )
        return tenon.fake_quantize_per_tensor_affine(
            X, self.scale, self.zero_point, self.quant_min, self.quant_max
        )

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize over averages, whose grid has the whole range on one side where values do."""

    _switch = tenon.int64

    def _laid(self) -> tuple[Tensor, Tensor]:
        seen = self.activation_post_process
        if not seen.seen:
            return self.scale, self.zero_point
        least, most = self.quant_min, self.quant_max
        low = seen.min_val.double().reshape(-1)
        high = seen.max_val.double().reshape(-1)
        around = (low < 0) & (high > 0) & self.qscheme.symmetric
        half = (most - least) // 2
        step = tenon.maximum((low / (half + 1)).abs(), (high / half).abs())
        low = tenon.where(around, -step * (half + 1), low).clamp(max=0.0)
        high = tenon.where(around, step * half, high).clamp(min=0.0)
        scale = (high - low) / (most - least)
        scale = tenon.where(scale.float() == 0, 0.1, scale).clamp(min=_SMALLEST)
        from_low, from_high = least - low / scale, most - high / scale
        nearer = abs(least) - (low / scale).abs() < abs(most) - (high / scale).abs()
        zero = tenon.where(nearer, from_low, from_high)
        zero = tenon.where(around, (least + most) / 2, zero).round().clamp(least, most)
        return scale.float(), zero

    def extra_repr(self) -> str:
        seen = self.activation_post_process
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, qscheme={self.qscheme}, "
            f"reduce_range={seen.reduce_range}"
        )


_SMALLEST = 6.1e-5  # of steps


def disable_fake_quant(mod: Module) -> None:
    """For `model.apply`."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Module) -> None:
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Module) -> None:
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Module) -> None:
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()


default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=quint8,
    reduce_range=True,
)  # fmt: skip
default_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8,
    qscheme=per_tensor_symmetric, reduce_range=False,
)  # fmt: skip
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8,
    qscheme=per_channel_symmetric, reduce_range=False, ch_axis=0,
)  # fmt: skip
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, dtype=quint8,
)  # fmt: skip
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8,
    qscheme=per_tensor_symmetric,
)  # fmt: skip
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, quant_min=-128, quant_max=127, dtype=qint8,
    qscheme=per_channel_symmetric,
)  # fmt: skip
