"""Functions whose forward and backward pass are graphs that compilers of one's own get."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import fx
from tenon._program import NeedsParts, as_fx
from tenon._program.traced import Recording
from tenon._tensor import aten
from tenon._torch._functorch.partitioners import default_partition
from tenon.autograd.function import once_differentiable
from tenon.func import functional_call
from tenon.fx.experimental.proxy_tensor import make_fx
from tenon.utils import _pytree

__all__ = [
    "aot_function", "aot_module", "aot_module_simplified", "compiled_function", "compiled_module",
    "make_boxed_compiler", "make_boxed_func",
]  # fmt: skip

Compiler = Callable[[fx.GraphModule, Sequence[Any]], Any]


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """f, which takes its arguments as one list."""

    def g(args: list[Any]) -> Any:
        return f(*args)

    g._boxed_call = True  # type: ignore[attr-defined]
    return g


def make_boxed_compiler(compiler: Compiler) -> Compiler:
    """A compiler whose results take their arguments as one list."""

    @functools.wraps(compiler)
    def f(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Any:
        return make_boxed_func(compiler(fx_g, inps))

    return f


def _called(fn: Any, args: Sequence[Any]) -> list[Any]:
    given = fn(list(args)) if getattr(fn, "_boxed_call", False) else fn(*args)
    return list(given) if isinstance(given, (tuple, list)) else [given]


# ---- Graphs --------------------------------------------------------------------------------------


def _plain(gm: fx.GraphModule, names: Sequence[str]) -> fx.GraphModule:
    """The graph with arguments one by one, without what compiled graphs run without: changes of the
    mode of gradients, and new tensors of the same memory."""
    graph = gm.graph
    graph.set_codegen(fx.graph.CodeGen())
    for node, name in zip(graph.find_nodes(op="placeholder"), names, strict=True):
        node.name = node.target = name
    for node in list(graph.nodes):
        if node.target is as_fx.call_in_modes and node.args[1] is None:
            fn = node.args[2]
            node.target, node.args = fn, node.args[3:]
        if node.target is aten.namespace.detach.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.eliminate_dead_code(lambda n: "acts" in n.meta or n.is_impure())
    graph.lint()
    gm.recompile()
    return gm


def _copies(tensors: Sequence[Any]) -> list[Any]:
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]


def _values(tensors: Sequence[Any]) -> list[Any]:
    """Examples for a compiler, which may well run its graph."""
    return [t.detach().clone() for t in tensors]


class _Passes:
    """The compiled passes of a function for tensors of one kind."""

    def __init__(
        self, fn: Callable[..., Any], tensors: Sequence[Any], compilers: dict[str, Any], **make: Any
    ) -> None:
        """fn takes the tensors, and returns a list of values of any kind."""
        self.fixed: list[Any] = []
        self.places: list[int] = []  # of tensors among the values
        self.wants = [t.requires_grad and tenon.is_grad_enabled() for t in tensors]
        self.differ: list[bool] = []  # which results have gradients

        def forward(*own: Any) -> list[Any]:
            values = list(fn(*own))
            self.places = [i for i, v in enumerate(values) if isinstance(v, tenon.Tensor)]
            self.fixed = [None if i in self.places else v for i, v in enumerate(values)]
            return [values[i] for i in self.places]

        def joint(primals: list[Any], tangents: list[Any]) -> list[Any]:
            own = [p.detach().requires_grad_(w) for p, w in zip(primals, self.wants, strict=True)]
            with tenon.enable_grad():
                outs = forward(*own)
            ends = [o for o in outs if o.requires_grad]
            starts = [p for p, w in zip(own, self.wants, strict=True) if w]
            grads = tenon.autograd.grad(ends, starts, tangents, allow_unused=True)
            return [*outs, *grads]

        names = [f"primals_{i + 1}" for i in range(len(tensors))]
        state = tenon.get_rng_state()
        outs = forward(*_copies(tensors))
        self.differ = [o.requires_grad for o in outs]
        tenon.set_rng_state(state)
        self.backward = None
        if any(self.wants) and any(self.differ):
            tangents = [tenon.ones_like(o).detach() for o in outs if o.requires_grad]
            names += [f"tangents_{i + 1}" for i in range(len(tangents))]
            try:
                both = make_fx(joint, **make)(_copies(tensors), tangents)
            except NeedsParts:  # it has written to its copies: others are taken for its parts
                given = (_copies(tensors), tangents)
                parts = functools.partial(Recording, joint, given, {}, apart=None)
                both = as_fx.traced_module(joint, given, parts)
            inputs = [*_values(tensors), *tangents]
            both = _plain(both, names)
            first, second = compilers["partition"](both, inputs, num_fwd_outputs=len(outs))
            with tenon.no_grad():
                kept = _called(first, _values(tensors))[len(outs) :]
            self.forward = compilers["forward"](first, _values(tensors))
            self.backward = compilers["backward"](second, [*kept, *tangents])
        else:
            with tenon.no_grad():
                alone = make_fx(lambda primals: forward(*primals), **make)(_copies(tensors))
            self.forward = compilers["inference"](_plain(alone, names), _values(tensors))
        tenon.set_rng_state(state)

    def __call__(self, tensors: Sequence[Any]) -> list[Any]:
        if self.backward is None:
            with tenon.no_grad():
                outs = _called(self.forward, tensors)
        else:
            outs = list(_Run.apply(self, *tensors))
        values = list(self.fixed)
        for i, out in zip(self.places, outs, strict=True):
            values[i] = out
        return values


class _Run(tenon.autograd.Function):
    @staticmethod
    def forward(ctx: Any, passes: _Passes, *tensors: Any) -> tuple[Any, ...]:
        given = _called(passes.forward, tensors)
        outs, kept = given[: len(passes.places)], given[len(passes.places) :]
        ctx.passes = passes
        ctx.save_for_backward(*kept)
        ctx.mark_non_differentiable(*(o for o, d in zip(outs, passes.differ, strict=True) if not d))
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        passes = ctx.passes
        tangents = [g for g, d in zip(gradients, passes.differ, strict=True) if d]
        found = iter(_called(passes.backward, [*ctx.saved_tensors, *tangents]))
        return None, *(next(found) if wants else None for wants in passes.wants)


# ---- Functions and modules -----------------------------------------------------------------------


def aot_function(
    fn: Callable[..., Any],
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    decompositions: dict[Any, Callable[..., Any]] | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Compiler | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
) -> Callable[..., Any]:
    """fn, whose forward and backward pass are what the compilers make of their graphs.

    `fw_compiler(gm, inputs)` returns what runs the forward graph: its results, then what the
    backward graph takes before the gradients of the results. Graphs are made for the sizes and
    dtypes of a call, and again for others. Where no gradient is wanted, `inference_compiler`
    gets the forward pass alone.
    """
    compilers = {
        "forward": fw_compiler,
        "backward": bw_compiler or fw_compiler,
        "inference": inference_compiler or fw_compiler,
        "partition": partition_fn,
    }
    made: dict[Any, tuple[_Passes, Any]] = {}

    @functools.wraps(fn)
    def returned(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = _pytree.tree_flatten((args, kwargs))
        places = [i for i, v in enumerate(leaves) if isinstance(v, tenon.Tensor)]
        tensors = [leaves[i] for i in places]
        rest = tuple(None if i in places else v for i, v in enumerate(leaves))
        facts = tuple((t.shape, t.dtype, t.device, t.requires_grad) for t in tensors)
        key = (str(spec), repr(rest), facts, tenon.is_grad_enabled())
        if key not in made:
            shape: list[Any] = []

            def flat(*own: Any) -> list[Any]:
                values = list(rest)
                for i, t in zip(places, own, strict=True):
                    values[i] = t
                given, kwgiven = spec.unflatten(values)
                found, outer = _pytree.tree_flatten(fn(*given, **kwgiven))
                shape[:] = [outer]
                return found

            make = {"decomposition_table": decompositions} if decompositions else {}
            passes = _Passes(flat, tensors, compilers, **make)
            made[key] = passes, shape[0]
        passes, outer = made[key]
        return outer.unflatten(passes(tensors))

    return returned


compiled_function = aot_function


def _of_module(module: tenon.nn.Module, **settings: Any) -> Callable[..., Any]:
    """Calls the module; its parameters and buffers are arguments of the graphs."""

    def call(weights: dict[str, Any], args: Any, kwargs: Any) -> Any:
        return functional_call(module, weights, args, kwargs)

    compiled = aot_function(call, **settings)

    def run(*args: Any, **kwargs: Any) -> Any:
        weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return compiled(weights, args, kwargs)

    return run


def aot_module(mod: tenon.nn.Module, *args: Any, **kwargs: Any) -> tenon.nn.Module:
    """The module, with aot_function's passes."""
    names = ("fw_compiler", "bw_compiler", "partition_fn", "decompositions")
    settings = {**dict(zip(names, args, strict=False)), **kwargs}

    class AOTModule(tenon.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod
            self._run = _of_module(mod, **settings)

        def forward(self, *given: Any, **named: Any) -> Any:
            return self._run(*given, **named)

    return AOTModule()


compiled_module = aot_module


def aot_module_simplified(
    mod: tenon.nn.Module,
    args: Sequence[Any],
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    partition_fn: Callable[..., Any] = default_partition,
    decompositions: dict[Any, Callable[..., Any]] | None = None,
    inference_compiler: Compiler | None = None,
    **_: Any,
) -> Callable[..., Any]:
    """The same for what a backend of `compile` gets: graphs are made at the first call."""
    del args
    return _of_module(
        mod,
        fw_compiler=fw_compiler,
        bw_compiler=bw_compiler,
        partition_fn=partition_fn,
        decompositions=decompositions() if callable(decompositions) else decompositions,
        inference_compiler=inference_compiler,
    )
