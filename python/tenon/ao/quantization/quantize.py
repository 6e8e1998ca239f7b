"""Models of whole numbers: observers in, data through, layers exchanged."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import tenon
from tenon import nn
from tenon.ao.nn import intrinsic, qat, quantized
from tenon.ao.nn.intrinsic import qat as joined
from tenon.ao.nn.quantized import dynamic
from tenon.ao.quantization import qconfig as qc
from tenon.ao.quantization.fake_quantize import FakeQuantizeBase
from tenon.ao.quantization.observer import ObserverBase, UniformQuantizationObserverBase
from tenon.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper

FUSED = (intrinsic.LinearReLU, intrinsic.ConvReLU1d, intrinsic.ConvReLU2d)
_WITH_NORM = (joined.ConvBn1d, joined.ConvBn2d, joined.ConvBnReLU1d, joined.ConvBnReLU2d)
_STATIC = {
    nn.Linear: quantized.Linear,
    nn.Conv1d: quantized.Conv1d,
    nn.Conv2d: quantized.Conv2d,
    qat.Linear: quantized.Linear,
    qat.Conv1d: quantized.Conv1d,
    qat.Conv2d: quantized.Conv2d,
    joined.LinearReLU: quantized.Linear,
    joined.ConvReLU1d: quantized.Conv1d,
    joined.ConvReLU2d: quantized.Conv2d,
}
QAT = {
    nn.Linear: qat.Linear,
    nn.Conv1d: qat.Conv1d,
    nn.Conv2d: qat.Conv2d,
    intrinsic.LinearReLU: joined.LinearReLU,
    intrinsic.ConvReLU1d: joined.ConvReLU1d,
    intrinsic.ConvReLU2d: joined.ConvReLU2d,
    intrinsic.ConvBn1d: joined.ConvBn1d,
    intrinsic.ConvBn2d: joined.ConvBn2d,
    intrinsic.ConvBnReLU1d: joined.ConvBnReLU1d,
    intrinsic.ConvBnReLU2d: joined.ConvBnReLU2d,
}
DYNAMIC: dict[Any, Any] = {
    nn.Linear: dynamic.Linear,
    nn.LSTM: dynamic.LSTM,
    nn.GRU: dynamic.GRU,
    nn.LSTMCell: dynamic.LSTMCell,
    nn.GRUCell: dynamic.GRUCell,
    nn.RNNCell: dynamic.RNNCell,
}
LAYERS = (*_STATIC, *FUSED, *_WITH_NORM)
_OBSERVED = (*LAYERS, QuantStub, quantized.FloatFunctional)


def propagate_qconfig_(module: nn.Module, qconfig_dict: Any = None, *args: Any) -> None:
    """Gives submodules without a qconfig that of the module around them, or of qconfig_dict."""
    names = qconfig_dict or {}

    def walk(mod: nn.Module, prefix: str, around: Any) -> None:
        own = getattr(mod, "qconfig", around)
        own = names.get(prefix, names.get(type(mod), own))
        mod.qconfig = own
        for name, child in mod.named_children():
            if not isinstance(child, ObserverBase | FakeQuantizeBase):
                walk(child, f"{prefix}.{name}" if prefix else name, own)

    walk(module, "", names.get(""))


def _observe_input(mod: nn.Module, args: tuple[Any, ...]) -> None:
    mod.input_post_process(args[0])


def _observe_output(mod: nn.Module, args: Any, result: Any) -> Any:
    return mod.activation_post_process(result)


def _watch(model: nn.Module, allowed: Any) -> None:
    """Observers for the results of layers, and for the inputs of those that compute."""
    kinds = tuple(allowed) if allowed else _OBSERVED
    for child in list(model.children()):
        config = getattr(child, "qconfig", None)
        if isinstance(child, ObserverBase | FakeQuantizeBase):
            continue
        if config is not None and isinstance(child, quantized.FloatFunctional):
            child.activation_post_process = config.activation()
        elif config is not None and isinstance(child, kinds):
            child.activation_post_process = config.activation()
            child.register_forward_hook(_observe_output, prepend=True)
            if not isinstance(child, QuantStub):
                child.input_post_process = config.activation()
                child.register_forward_pre_hook(_observe_input)
        elif not isinstance(child, DeQuantStub):
            _watch(child, allowed)


def _wrapped(model: nn.Module) -> nn.Module:
    """A model that is one layer stands for itself as a child of another."""
    if isinstance(model, _OBSERVED):
        raise ValueError("a model that is one layer cannot be prepared alone: put it into a "
                         "QuantWrapper")  # fmt: skip
    return model


def prepare(model: nn.Module, inplace: bool = False, allow_list: Any = None,
            observer_non_leaf_module_list: Any = None,
            prepare_custom_config_dict: Any = None) -> nn.Module:  # fmt: skip
    """The model with observers, where it has a qconfig. Then: data through it, `convert`."""
    model = _wrapped(model if inplace else copy.deepcopy(model))
    propagate_qconfig_(model)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        import warnings

        warnings.warn("None of the submodule got qconfig applied. Make sure you passed correct "
                      "configuration through `qconfig_dict` or by assigning the `.qconfig` "
                      "attribute directly on submodules", stacklevel=2)  # fmt: skip
    _watch(model, allow_list)
    return model


def prepare_qat(model: nn.Module, mapping: Any = None, inplace: bool = False) -> nn.Module:
    """The model for training with values on their grids."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    model = _wrapped(model if inplace else copy.deepcopy(model))
    propagate_qconfig_(model)
    chosen = mapping or QAT
    done: set[int] = set()
    for name, mod in list(model.named_modules()):
        if type(mod) in chosen and getattr(mod, "qconfig", None) and id(mod) not in done:
            done.update(map(id, mod.modules()))  # parts of what is joined are exchanged with it
            model.set_submodule(name, chosen[type(mod)].from_float(mod))
    _watch(model, None)
    return model


# ---- convert -----------------------------------------------------------------------------------


def grid_of(observer: Any) -> tuple[float, int, int, int]:
    """Scale and zero point that were found, and the ends of the dtype: what an observer's narrower
    range has not seen still has a number there."""
    scale, zero = observer.calculate_qparams()
    if scale.numel() != 1:
        raise ValueError(
            f"the values that a layer gives need one grid per tensor, and "
            f"{type(observer).__name__} has found {scale.numel()}"
        )
    if observer.quant_max - observer.quant_min > 255:
        raise ValueError(f"layers are of 8 bits, not of {observer.dtype}")
    return float(scale), int(zero), observer.dtype.low, observer.dtype.high


def _ends(observer: Any) -> tuple[float, float] | None:
    seen = getattr(observer, "activation_post_process", observer)
    if not isinstance(seen, UniformQuantizationObserverBase) or not seen.seen:
        return None
    if seen.min_val.numel() != 1:
        return None
    return min(float(seen.min_val), 0.0), max(float(seen.max_val), 0.0)


def static_layer(mod: Any, known: dict[Any, Any]) -> nn.Module:
    """The layer of whole numbers for a layer that has been observed. An input that has the range of
    an observed result lies on that result's grid."""
    relu = isinstance(mod, FUSED) or getattr(mod, "relu", False)
    layer = mod[0] if isinstance(mod, FUSED) else mod
    layer = layer.folded() if isinstance(mod, _WITH_NORM) else layer
    made = _STATIC[type(layer)]._like(layer)
    fake = getattr(mod, "weight_fake_quant", None)
    made._take(layer, mod.qconfig.weight() if fake is None else fake)
    source = mod.input_post_process
    made.input_grid = known.get(_ends(source)) or grid_of(source)
    made.scale, made.zero_point, *ends = grid_of(mod.activation_post_process)
    made.output_range, made.relu = tuple(ends), relu
    return made.train(mod.training)


def _swapped(mod: nn.Module, known: dict[Any, Any]) -> nn.Module | None:
    if isinstance(mod, DeQuantStub):
        return quantized.DeQuantize()
    observer = getattr(mod, "activation_post_process", None)
    if not isinstance(observer, ObserverBase | FakeQuantizeBase):
        return None
    if isinstance(mod, QuantStub):
        scale, zero, low, high = grid_of(observer)
        return quantized.Quantize(scale, zero, observer.dtype, low, high)
    if isinstance(mod, quantized.FloatFunctional):
        made = quantized.QFunctional()
        made.scale, made.zero_point, *ends = grid_of(observer)
        made.range = tuple(ends)
        return made
    return static_layer(mod, known) if isinstance(mod, LAYERS) else None


def convert(module: nn.Module, mapping: Any = None, inplace: bool = False,
            remove_qconfig: bool = True, is_reference: bool = False,
            convert_custom_config_dict: Any = None,
            use_precomputed_fake_quant: bool = False) -> nn.Module:  # fmt: skip
    """The model with layers of whole numbers, from one that was prepared and has seen data; with a
    `mapping` of kinds of modules, those become what it says, by `from_float`."""
    module = module if inplace else copy.deepcopy(module)
    known: dict[Any, Any] = {}
    for mod in module.modules():
        observer = getattr(mod, "activation_post_process", None)
        if observer is not None and (ends := _ends(observer)) is not None:
            known.setdefault(ends, grid_of(observer))

    def walk(around: nn.Module) -> None:
        for name, child in list(around.named_children()):
            if mapping is not None:
                kind = mapping.get(type(child))
                wanted = kind and getattr(child, "qconfig", None) is not None
                new = kind.from_float(child) if wanted else None
            else:
                new = _swapped(child, known)
            if new is None:
                walk(child)
            else:
                setattr(around, name, new)

    with tenon.no_grad():
        walk(module)
    if remove_qconfig:
        for mod in module.modules():
            if hasattr(mod, "qconfig"):
                del mod.qconfig
    return module


def quantize(model: nn.Module, run_fn: Any, run_args: Any, mapping: Any = None,
             inplace: bool = False) -> nn.Module:  # fmt: skip
    """prepare, run_fn(model, *run_args), convert."""
    model = prepare(model.eval() if inplace else copy.deepcopy(model).eval(), inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


def quantize_qat(model: nn.Module, run_fn: Any, run_args: Any, inplace: bool = False) -> nn.Module:
    """prepare_qat, run_fn(model, *run_args), convert."""
    model = prepare_qat(model if inplace else copy.deepcopy(model), inplace=True)
    run_fn(model, *run_args)
    return convert(model.eval(), inplace=True)


def quantize_dynamic(model: nn.Module, qconfig_spec: Any = None, dtype: Any = None,
                     mapping: Any = None, inplace: bool = False) -> nn.Module:  # fmt: skip
    """The model with weights of int8 (or float16) in its linear and recurrent layers, whose inputs
    are laid on a grid as they come. qconfig_spec: kinds or names of modules,
    or a dict of them to QConfigs."""
    configs = {tenon.qint8: qc.default_dynamic_qconfig, tenon.float16: qc.float16_dynamic_qconfig}
    dtype = tenon.qint8 if dtype is None else dtype
    if dtype not in configs:
        raise RuntimeError(f"Don't know how to quantize with default settings for {dtype}. Provide "
                           "full qconfig please")  # fmt: skip
    chosen = mapping or DYNAMIC
    if qconfig_spec is None:
        qconfig_spec = set(DYNAMIC)
    if not isinstance(qconfig_spec, dict):
        qconfig_spec = dict.fromkeys(qconfig_spec, configs[dtype])
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    if type(model) in chosen and model.qconfig is not None:
        return chosen[type(model)].from_float(model)
    return convert(model, chosen, inplace=True)


# ---- Weights alone -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """Weights of int8 with a scale per row; inputs stay floats."""

    def layer(self, mod: nn.Linear) -> nn.Module:
        return dynamic.Int8WeightLinear(mod)


@dataclass(frozen=True)
class Int4WeightOnlyConfig:
    """Weights of four bits with a scale and a zero point for each group along a row."""

    group_size: int = 128

    def layer(self, mod: nn.Linear) -> nn.Module:
        return dynamic.Int4WeightLinear(mod, self.group_size)


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig:
    """What quantize_dynamic does, with a scale per row."""

    def layer(self, mod: nn.Linear) -> nn.Module:
        mod.qconfig = qc.per_channel_dynamic_qconfig
        made = dynamic.Linear.from_float(mod)
        del mod.qconfig
        return made


def quantize_(model: nn.Module, config: Any, filter_fn: Any = None) -> None:
    """Exchanges the linear layers of a model, or those that filter_fn(module, name) picks."""
    for name, mod in list(model.named_modules()):
        linear = type(mod) is nn.Linear and name
        if linear and (filter_fn is None or filter_fn(mod, name)):
            model.set_submodule(name, config.layer(mod))


def add_quant_dequant(module: nn.Module) -> nn.Module:
    """Puts each leaf with a qconfig into a QuantWrapper."""
    for name, child in list(module.named_children()):
        setattr(module, name, add_quant_dequant(child))
    leaf = not list(module.children()) and not isinstance(module, QuantStub | DeQuantStub)
    return QuantWrapper(module) if leaf and getattr(module, "qconfig", None) else module
