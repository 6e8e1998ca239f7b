"""ao.quantization: models of whole numbers, under PyTorch's names (docs/graphs.md).

`quantize_dynamic(model)` at once; or `prepare(model)`, data through it, `convert(model)`; or
`prepare_qat(model)`, training, `convert`; or weights alone, by `quantize_(model, config)`.
"""

from tenon._submodules import on_demand
from tenon.ao.quantization import fake_quantize, observer, qconfig, stubs
from tenon.ao.quantization._grids import (
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    quint8,
)
from tenon.ao.quantization.fake_quantize import (
    FakeQuantize,
    FakeQuantizeBase,
    FusedMovingAvgObsFakeQuantize,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
)
from tenon.ao.quantization.fuse_modules import fuse_modules, fuse_modules_qat
from tenon.ao.quantization.observer import (
    FixedQParamsObserver,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    UniformQuantizationObserverBase,
    default_dynamic_quant_observer,
    default_histogram_observer,
    default_observer,
    default_per_channel_weight_observer,
    default_placeholder_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)
from tenon.ao.quantization.qconfig import (
    QConfig,
    default_debug_qconfig,
    default_dynamic_qconfig,
    default_per_channel_qconfig,
    default_qat_qconfig,
    default_qconfig,
    float16_dynamic_qconfig,
    float16_static_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
)
from tenon.ao.quantization.qconfig_mapping import (
    QConfigMapping,
    get_default_qat_qconfig_mapping,
    get_default_qconfig_mapping,
)
from tenon.ao.quantization.quantize import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    add_quant_dequant,
    convert,
    prepare,
    prepare_qat,
    propagate_qconfig_,
    quantize,
    quantize_,
    quantize_dynamic,
    quantize_qat,
)
from tenon.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper

__all__ = [
    "DeQuantStub", "FakeQuantize", "FakeQuantizeBase", "FixedQParamsObserver",
    "FusedMovingAvgObsFakeQuantize", "HistogramObserver", "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig", "Int8WeightOnlyConfig", "MinMaxObserver",
    "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver", "NoopObserver",
    "ObserverBase", "PerChannelMinMaxObserver", "PlaceholderObserver", "QConfig", "QConfigMapping",
    "QuantStub", "QuantWrapper", "UniformQuantizationObserverBase", "add_quant_dequant", "convert",
    "default_debug_qconfig", "default_dynamic_qconfig", "default_dynamic_quant_observer",
    "default_fake_quant", "default_fused_act_fake_quant", "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant", "default_histogram_observer", "default_observer",
    "default_per_channel_qconfig", "default_per_channel_weight_fake_quant",
    "default_per_channel_weight_observer", "default_placeholder_observer", "default_qat_qconfig",
    "default_qconfig", "default_weight_fake_quant", "default_weight_observer", "disable_fake_quant",
    "disable_observer", "enable_fake_quant", "enable_observer", "fake_quantize",
    "float16_dynamic_qconfig", "float16_static_qconfig", "fuse_modules", "fuse_modules_qat",
    "get_default_qat_qconfig", "get_default_qat_qconfig_mapping", "get_default_qconfig",
    "get_default_qconfig_mapping", "observer", "per_channel_affine", "per_channel_dynamic_qconfig",
    "per_channel_symmetric", "per_channel_weight_observer_range_neg_127_to_127",
    "per_tensor_affine", "per_tensor_symmetric", "prepare", "prepare_qat", "propagate_qconfig_",
    "qconfig", "qint8", "quantize", "quantize_", "quantize_dynamic", "quantize_qat", "quint8",
    "stubs", "weight_observer_range_neg_127_to_127",
]  # fmt: skip

on_demand(globals())
