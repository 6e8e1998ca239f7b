"""Models of whole numbers by their graph: `prepare_fx` writes observers into it, data runs through,
`convert_fx` exchanges the layers. No stubs are needed, and functions are seen, too.

Values between layers are floats on their grids, as everywhere in `ao.quantization`: the graph that
is converted has no calls that change between floats and whole numbers."""

from __future__ import annotations

import copy
import operator
import warnings
from typing import Any

import tenon
from tenon import fx, nn
from tenon.ao.nn import quantized
from tenon.ao.quantization.fake_quantize import FakeQuantizeBase
from tenon.ao.quantization.fuse_modules import IN_TRAINING, fused
from tenon.ao.quantization.observer import FixedQParamsObserver, ObserverBase
from tenon.ao.quantization.qconfig_mapping import QConfigMapping
from tenon.ao.quantization.quantize import (
    DYNAMIC,
    FUSED,
    LAYERS,
    QAT,
    grid_of,
    static_layer,
)
from tenon.nn import functional as F

__all__ = ["convert_fx", "fuse_fx", "prepare_fx", "prepare_qat_fx"]

_RELU = (nn.ReLU, F.relu, tenon.relu, "relu", "relu_")
# Results lie on the grid of the input.
_SHARING = frozenset((
    nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d,
    nn.AvgPool3d, nn.Hardtanh, nn.Identity, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
    nn.PixelShuffle, nn.PixelUnshuffle, nn.ReLU, nn.ReLU6, F.adaptive_avg_pool1d,
    F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d,
    F.hardtanh, F.interpolate, F.max_pool1d, F.max_pool2d, F.max_pool3d, F.pixel_shuffle,
    F.pixel_unshuffle, F.relu, F.relu6, tenon.relu, tenon.clamp, tenon.flatten, tenon.mean,
    tenon.narrow, tenon.repeat_interleave, tenon.transpose, tenon.squeeze, tenon.unsqueeze,
    "contiguous", "clamp", "detach", "mean", "permute", "repeat",
    "repeat_interleave", "reshape", "relu", "relu_", "squeeze", "transpose", "unsqueeze", "view",
))  # fmt: skip
# Results have a grid of their own; so have all operands of sums and products.
_SUMS = (operator.add, operator.iadd, operator.mul, operator.imul, tenon.add, tenon.mul)
_PRODUCTS = (*_SUMS, tenon.matmul)
_JOINS = (tenon.cat, tenon.stack)  # all parts lie on one grid
_OWN = frozenset((
    *_PRODUCTS, *_JOINS,
    nn.ELU, nn.LeakyReLU, nn.Hardswish, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
    nn.LayerNorm, nn.BatchNorm2d, nn.BatchNorm3d, nn.Dropout, nn.PReLU, F.elu, F.hardswish,
    F.leaky_relu, F.dropout, F.layer_norm, F.group_norm, F.instance_norm,
))  # fmt: skip
_FIXED: dict[Any, tuple[float, int]] = {
    **dict.fromkeys((nn.Sigmoid, nn.Hardsigmoid, nn.Softmax, tenon.sigmoid, F.sigmoid,
                     F.hardsigmoid, "sigmoid", "sigmoid_"), (1 / 256, 0)),
    **dict.fromkeys((nn.Tanh, tenon.tanh, F.tanh, "tanh", "tanh_"), (2 / 256, 128)),
}  # fmt: skip


class _Tracer(fx.Tracer):
    """Layers are leaves; so are modules that are named to it."""

    def __init__(self, names: Any = (), classes: Any = ()) -> None:
        super().__init__()
        self.names, self.classes = set(names), tuple(classes)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        joined = type(m).__module__.startswith(("tenon.ao.nn", "torch.ao.nn"))
        named = module_qualified_name in self.names or isinstance(m, self.classes)
        return joined or named or super().is_leaf_module(m, module_qualified_name)


def _traced(model: nn.Module, custom: Any = None) -> fx.GraphModule:
    if isinstance(model, fx.GraphModule):
        return copy.deepcopy(model)
    custom = custom if isinstance(custom, dict) else vars(custom) if custom else {}
    names = custom.get("non_traceable_module_name", custom.get("non_traceable_module_names", ()))
    classes = custom.get(
        "non_traceable_module_class", custom.get("non_traceable_module_classes", ())
    )
    kept = custom.get("preserved_attributes", ())
    model = copy.deepcopy(model)
    tracer = _Tracer(names, classes)
    traced = fx.GraphModule(model, tracer.trace(model))
    for name in kept:
        setattr(traced, name, getattr(model, name))
    return traced.train(model.training)


def _kinds(model: nn.Module, node: fx.Node) -> tuple[Any, ...]:
    """What a call is of: the module's class, or the function or method."""
    if node.op == "call_module":
        return (type(model.get_submodule(str(node.target))),)
    return (node.target,) if node.op in ("call_function", "call_method") else ()


def _is(model: nn.Module, node: Any, kinds: Any) -> bool:
    return isinstance(node, fx.Node) and any(kind in kinds for kind in _kinds(model, node))


# ---- Joining -------------------------------------------------------------------------------------


def _join(model: fx.GraphModule, qat: bool) -> None:
    """Layers and the norms and activations behind them become one module."""
    layers, norms = (nn.Linear, nn.Conv1d, nn.Conv2d), (nn.BatchNorm1d, nn.BatchNorm2d)
    for node in list(model.graph.nodes):
        if not _is(model, node, layers):
            continue
        chain, last = [node], node
        for kinds in (norms, _RELU):
            after = list(last.users)
            if len(after) == 1 and _is(model, after[0], kinds) and after[0].args[0] is last:
                last = after[0]
                chain.append(last)
        mods = [model.get_submodule(str(n.target)) if n.op == "call_module" else nn.ReLU()
                for n in chain]  # fmt: skip
        mods[-1].train(mods[0].training)
        if qat and len(mods) == 3 and tuple(map(type, mods)) not in IN_TRAINING:
            mods, last = mods[:2], chain[1]
        if len(mods) == 1:
            continue
        model.set_submodule(str(node.target), fused(mods, qat))
        last.replace_all_uses_with(node)
        for n in reversed(chain[1:]):
            if n is last or not n.users:
                model.graph.erase_node(n)
    _clean(model)


def _clean(model: fx.GraphModule) -> None:
    model.graph.lint()
    model.recompile()
    model.delete_all_unused_submodules()


# ---- Observing -----------------------------------------------------------------------------------


def _config_of(model: fx.GraphModule, node: fx.Node, mapping: QConfigMapping) -> Any:
    kinds = _kinds(model, node)
    name = str(node.target) if node.op == "call_module" else ""
    if node.op == "call_module":
        mod = model.get_submodule(name)
        kinds += tuple(type(m) for m in mod.children()) if isinstance(mod, nn.Sequential) else ()
    config = mapping.of(kinds, name)
    weighted = _is(model, node, LAYERS + tuple(DYNAMIC))
    return config if config is not None and (weighted or not _is_dynamic(config)) else None


def _is_dynamic(config: Any) -> bool:
    """Whether the grids of inputs are found when the model runs."""
    return getattr(config.activation(), "is_dynamic", False)


def _observer(graph: fx.GraphModule, node: Any) -> Any:
    """What observes a value, if the node is a call of that."""
    if not isinstance(node, fx.Node) or node.op != "call_module":
        return None
    found = graph.get_submodule(str(node.target))
    return found if isinstance(found, ObserverBase | FakeQuantizeBase) else None


class _Watcher:
    """Writes observers into a graph, one behind each value that needs one."""

    def __init__(self, model: fx.GraphModule, mapping: QConfigMapping) -> None:
        self.model, self.mapping = model, mapping
        self.behind: dict[fx.Node, fx.Node] = {}
        self.count = 0

    def place(self, node: fx.Node, observer: nn.Module) -> None:
        name = f"activation_post_process_{self.count}"
        self.count += 1
        self.model.add_module(name, observer.train(self.model.training))
        users = list(node.users)
        with self.model.graph.inserting_after(node):
            seen = self.model.graph.call_module(name, (node,))
        for user in users:
            user.replace_input_with(node, seen)
        self.behind[node] = seen

    def observed(self, value: Any, config: Any) -> None:
        """A value that goes into a call has an observer behind it."""
        if isinstance(value, (list, tuple)):
            for v in value:
                self.observed(v, config)
        elif isinstance(value, fx.Node):
            if value not in self.behind and value not in self.behind.values():
                self.place(value, config.activation())

    def observer_of(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            value = value[0]
        return _observer(self.model, self.behind.get(value, value))

    def run(self) -> None:
        graph = self.model.graph
        for node in list(graph.nodes):
            config = _config_of(self.model, node, self.mapping)
            if config is None:
                continue
            if _is(self.model, node, LAYERS):
                layer = self.model.get_submodule(str(node.target))
                layer.qconfig = config
                if _is_dynamic(config):
                    continue
                self.observed(node.args[0], config)
                self.result(node, config.activation())
            elif _is(self.model, node, tuple(DYNAMIC)):
                self.model.get_submodule(str(node.target)).qconfig = config
            elif _is(self.model, node, _SHARING):
                self.observed(node.args[0], config)
                shared = self.observer_of(node.args[0])
                if shared is not None:
                    self.result(node, shared)
            elif _is(self.model, node, _OWN):
                self.own(node, config)
            elif _is(self.model, node, _FIXED):
                self.observed(node.args[0], config)
                scale, zero = next(_FIXED[k] for k in _kinds(self.model, node) if k in _FIXED)
                self.result(node, FixedQParamsObserver(scale, zero))

    def own(self, node: fx.Node, config: Any) -> None:
        values = [a for a in node.args if isinstance(a, (fx.Node, list, tuple))]
        for value in values if _is(self.model, node, _PRODUCTS) else values[:1]:
            self.observed(value, config)
        if _is(self.model, node, _JOINS):
            shared = self.observer_of(values[0])
            for value in values[0]:
                self.model.set_submodule(str(self.behind.get(value, value).target), shared)
            self.result(node, shared)
        elif _is(self.model, node, _SUMS) and len(values) == 1:  # the other one is a number
            self.result(node, self.observer_of(values[0]))
        else:
            self.result(node, config.activation())

    def result(self, node: fx.Node, observer: nn.Module) -> None:
        """The result is observed; that of a sum or product behind the relu that follows it."""
        after = list(node.users)
        if _is(self.model, node, _SUMS) and len(after) == 1 and _is(self.model, after[0], _RELU):
            self.behind[node] = node  # the relu's input needs no grid of its own
            self.place(after[0], observer)
        elif node not in self.behind:
            self.place(node, observer)


def _mapped(mapping: Any) -> QConfigMapping:
    if isinstance(mapping, QConfigMapping):
        return mapping
    warnings.warn(
        "Passing a QConfig dictionary to prepare is deprecated and will not be supported in a "
        "future version. Please pass in a QConfigMapping instead.", FutureWarning, stacklevel=4,
    )  # fmt: skip
    return QConfigMapping.from_dict(mapping)


def _prepared(model: nn.Module, mapping: Any, custom: Any, qat: bool) -> fx.GraphModule:
    mapping = _mapped(mapping)
    graph = _traced(model, custom)
    _join(graph, qat)
    if qat:
        for node in graph.graph.nodes:
            config = _config_of(graph, node, mapping)
            if config is not None and _is(graph, node, QAT):
                layer = graph.get_submodule(str(node.target))
                layer.qconfig = config
                made = QAT[type(layer)].from_float(layer)
                graph.set_submodule(str(node.target), made)
    _Watcher(graph, mapping).run()
    graph.graph.lint()
    graph.recompile()
    return graph


def prepare_fx(
    model: nn.Module, qconfig_mapping: Any, example_inputs: Any = None,
    prepare_custom_config: Any = None, _equalization_config: Any = None,
    backend_config: Any = None,
) -> fx.GraphModule:  # fmt: skip
    """The model's graph with observers, where the mapping has a QConfig. Then: data through it,
    `convert_fx`."""
    return _prepared(model, qconfig_mapping, prepare_custom_config, qat=False)


def prepare_qat_fx(
    model: nn.Module, qconfig_mapping: Any, example_inputs: Any = None,
    prepare_custom_config: Any = None, backend_config: Any = None,
) -> fx.GraphModule:  # fmt: skip
    """The same for training, with values on their grids."""
    return _prepared(model, qconfig_mapping, prepare_custom_config, qat=True)


def fuse_fx(
    model: nn.Module, fuse_custom_config: Any = None, backend_config: Any = None
) -> fx.GraphModule:  # fmt: skip
    """The model's graph with layers joined to the norms and activations behind them."""
    graph = _traced(model, fuse_custom_config)
    _join(graph, qat=False)
    return graph


# ---- convert -------------------------------------------------------------------------------------


def _draw(layer: Any) -> None:
    """Moves the generator by what PyTorch draws for layers of floats on the way."""
    inner = layer[0] if isinstance(layer, FUSED) else layer
    kind = next((k for k in (nn.Linear, nn.Conv1d, nn.Conv2d) if isinstance(inner, k)), None)
    for _ in range(0 if kind is None else 1 + hasattr(inner, "weight_fake_quant")):
        if kind is nn.Linear:
            nn.Linear(inner.in_features, inner.out_features, inner.bias is not None)
        else:
            kind(inner.in_channels, inner.out_channels, inner.kernel_size, groups=inner.groups,
                 bias=inner.bias is not None)  # fmt: skip


def _dynamic(layer: Any) -> Any:
    """The layer whose inputs are laid on a grid as they come."""
    if isinstance(layer, FUSED):
        layer[0].qconfig = layer.qconfig
        made = _dynamic(layer[0])
        made.relu = True
        return made
    return DYNAMIC[type(layer)].from_float(layer)


def _exchanged(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a layer has become one of whole numbers whose results lie on their grid."""
    layer = graph.get_submodule(str(node.target))
    config = getattr(layer, "qconfig", None)
    if config is None:
        return False
    _draw(layer)
    if _is_dynamic(config):
        if isinstance(layer, (*DYNAMIC, *FUSED)):
            graph.set_submodule(str(node.target), _dynamic(layer))
        return False
    source, after = _observer(graph, node.args[0]), list(node.users)
    result = _observer(graph, after[0]) if len(after) == 1 else None
    if not isinstance(layer, LAYERS) or source is None or result is None:
        return False
    layer.input_post_process, layer.activation_post_process = source, result
    graph.set_submodule(str(node.target), static_layer(layer, {}))
    return True


def convert_fx(
    graph_module: fx.GraphModule, convert_custom_config: Any = None,
    _remove_qconfig: bool = True, qconfig_mapping: Any = None, backend_config: Any = None,
    keep_original_weights: bool = False,
) -> fx.GraphModule:  # fmt: skip
    """The model with layers of whole numbers, from one that was prepared and has seen data."""
    graph = copy.deepcopy(graph_module)
    with tenon.no_grad():
        layers = [n for n in graph.graph.nodes if n.op == "call_module"]
        laid = [n for n in layers if _observer(graph, n) is None and _exchanged(graph, n)]
        for node in layers:
            observer = _observer(graph, node)
            if observer is None:
                continue
            if node.args[0] in laid:
                node.replace_all_uses_with(node.args[0])
                graph.graph.erase_node(node)
            else:
                scale, zero, low, high = grid_of(observer)
                grid = quantized.Quantize(scale, zero, observer.dtype, low, high)
                graph.set_submodule(str(node.target), grid)
    for mod in graph.modules() if _remove_qconfig else ():
        if hasattr(mod, "qconfig"):
            del mod.qconfig
    _clean(graph)
    return graph
