"""Which observers a module gets: one for results, one for weights."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import tenon
from tenon.ao.quantization import fake_quantize as fq
from tenon.ao.quantization import observer as ob


class QConfig(namedtuple("QConfig", ["activation", "weight"])):
    """Factories of observers."""

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        for factory in (activation, weight):
            if isinstance(factory, ob.Module):
                raise ValueError("QConfig received observer instance, please pass observer class "
                                 "instead. Use MyObserver.with_args(x=1) to override arguments "
                                 "to constructor if needed")  # fmt: skip
        return super().__new__(cls, activation, weight)


default_qconfig = QConfig(ob.default_observer, ob.default_weight_observer)
default_debug_qconfig = default_qconfig
default_per_channel_qconfig = QConfig(ob.default_observer, ob.default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(ob.default_dynamic_quant_observer, ob.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(
    ob.default_dynamic_quant_observer, ob.default_per_channel_weight_observer
)
_half = ob.PlaceholderObserver.with_args(dtype=tenon.float16)
float16_dynamic_qconfig = QConfig(_half.with_args(is_dynamic=True), _half)
float16_static_qconfig = QConfig(_half, _half)
default_qat_qconfig = QConfig(fq.default_fake_quant, fq.default_weight_fake_quant)
_BACKENDS = ("x86", "fbgemm", "qnnpack", "onednn")


def _check(backend: str) -> None:
    if backend not in _BACKENDS:
        raise AssertionError(
            f"backend: {backend} not supported. backend must be one of {_BACKENDS}"
        )


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """Histograms of results, weights per channel; per tensor for qnnpack."""
    _check(backend)
    if backend == "qnnpack":
        return QConfig(
            ob.HistogramObserver.with_args(reduce_range=False), ob.default_weight_observer
        )
    return QConfig(
        ob.HistogramObserver.with_args(reduce_range=backend != "onednn"),
        ob.default_per_channel_weight_observer,
    )


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """The same for training."""
    _check(backend)
    if version == 0:
        results, rows = fq.default_fake_quant, fq.default_per_channel_weight_fake_quant
        whole = fq.default_weight_fake_quant
    else:
        results, rows = fq.default_fused_act_fake_quant, fq.default_fused_per_channel_wt_fake_quant
        whole = fq.default_fused_wt_fake_quant
    if backend == "qnnpack":
        return QConfig(results.with_args(reduce_range=False), whole)
    return QConfig(results.with_args(reduce_range=backend != "onednn"), rows)
