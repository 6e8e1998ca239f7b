"""DTensor: one tensor whose parts lie in several processes."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import _C, Tensor, distributed
from tenon._tensor.methods import DisableTorchFunctionSubclass
from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.tensor import _dispatch, _saved
from tenon.distributed.tensor._redistribute import Layout, Spec, dual, normal, redistribute
from tenon.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter

__all__ = [
    "DTensor", "distribute_module", "distribute_tensor", "empty", "full", "ones", "rand", "randn",
    "zeros",
]  # fmt: skip

# While no DTensor was made, calls of operators do not look at their arguments for one.
_watching = False


class DTensor(Tensor):
    """A tensor of all processes of a mesh. Its memory is the part of this one; shape and meaning
    are those of the whole. `placements` says for each dimension of the mesh how the tensor lies
    along it.

    Operators work on parts where the layouts let them, and bring the tensors to layouts that do
    where they do not.
    """

    _spec: Spec
    takes_whole_functions = takes_operators = True
    # The protocol is switched on with the first DTensor.
    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, *args: Any, **kwargs: Any) -> DTensor:
        raise TypeError("DTensor: use DTensor.from_local or distribute_tensor")

    # ---- Layout ----

    @property
    def device_mesh(self) -> DeviceMesh:
        """The processes."""
        return self._spec.mesh

    @property
    def placements(self) -> Layout:
        """How the tensor lies along each dimension of the mesh."""
        return self._spec.placements

    @property
    def _local_tensor(self) -> Tensor:
        return self.to_local().detach()

    @staticmethod
    def from_local(
        local_tensor: Tensor,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """The tensor whose part of this process is given. Backward passes through it.

        Parts are of one size unless a shape is given; the stride is that of the parts, whatever
        is said. run_check: what is replicated is that of the first process.
        grad_placements: how the gradient of the part will lie, if not like the part; a sum counts
        once on each rank unless it is said to be Partial. A process outside of the mesh has no
        part.
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError("DTensor.from_local: expected the tensor of this process as "
                               "local_tensor, got a DTensor")  # fmt: skip
        if stride is not None and shape is None:
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}. Please pass both shape and stride at the "
                "same time."
            )
        mesh = _mesh(device_mesh)
        if placements is None:
            placements = [Replicate()] * mesh.ndim
        layout = normal(placements, local_tensor.ndim)
        whole = list(local_tensor.shape)
        for size, p in zip(mesh.shape, layout, strict=True):
            if isinstance(p, Shard):
                whole[p.dim] *= size
        if shape is not None:
            whole = list(shape)
        if mesh.get_coordinate() is None:
            local_tensor = local_tensor.new_empty(0, requires_grad=local_tensor.requires_grad)
        elif run_check:
            for d, p in enumerate(layout):
                if p.is_replicate():
                    distributed.broadcast(local_tensor.detach(), group=mesh.get_group(d),
                                          group_src=0)  # fmt: skip
        spec = Spec(mesh, layout, tuple(whole))
        if spec.local[0] != tuple(local_tensor.shape):
            raise ValueError(
                f"DTensor.from_local: this rank's part of {tuple(whole)} as {layout} is "
                f"{spec.local[0]}, the tensor is {tuple(local_tensor.shape)}"
            )
        if grad_placements is not None:
            received = normal(grad_placements, len(whole))
            local_tensor = _Received.apply(local_tensor, spec, dual(layout), received)
        return make(local_tensor, spec)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The part of this process, which is the DTensor's memory. grad_placements: how the
        gradient will lie, where not like the tensor."""
        local = self.as_subclass(Tensor)
        if grad_placements is not None:
            received = normal(grad_placements, self.ndim)
            local = _Received.apply(local, self._spec, received, dual(self.placements))
        return local

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same tensor in another layout."""
        if device_mesh is not None and device_mesh != self.device_mesh:
            raise NotImplementedError("redistribute: another mesh is not possible yet")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        if len(placements) != self.device_mesh.ndim:
            raise ValueError(
                f"redistribute: {len(placements)} placements for a mesh of "
                f"{self.device_mesh.ndim} dimensions"
            )
        if any(isinstance(p, Partial) and p != q for p, q in zip(placements, self.placements)):
            raise RuntimeError("Can not redistribute to Partial, redistributing to Partial is for "
                               "internal use only!")  # fmt: skip
        target = normal(placements, self.ndim)
        given = self if forward_dtype is None else self.to(forward_dtype)
        with DisableTorchFunctionSubclass():
            local = redistribute(given.as_subclass(Tensor), given._spec, target)
            return make(local, self._spec.with_layout(target))

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """All of the tensor."""
        whole = self.redistribute(placements=[Replicate()] * self.device_mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    # ---- What a tensor says of itself ----

    @property
    def shape(self) -> tenon.Size:  # type: ignore[override]
        """That of the whole."""
        return tenon.Size(self._spec.shape)

    def size(self, dim: int | None = None) -> Any:  # type: ignore[override]
        """That of the whole."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """How many elements the whole has."""
        return self.shape.numel()

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:  # type: ignore[override]
        """That of the whole, whose dimensions lie in the order of the part's."""
        with DisableTorchFunctionSubclass():
            part = self.as_subclass(Tensor)
            own, steps = part.shape, list(part.stride())
        whole = self._spec.shape
        if len(own) != len(whole) or 0 in own:
            steps = [math.prod(max(n, 1) for n in whole[d + 1 :]) for d in range(len(whole))]
        elif tuple(own) != whole:
            base = list(steps)
            for cut in (d for d in range(len(whole)) if own[d] != whole[d]):
                for d in range(len(whole)):
                    if (base[d], -d) > (base[cut], -cut):
                        steps[d] = steps[d] // own[cut] * whole[cut]
        return tuple(steps) if dim is None else steps[dim]

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self._spec.shape[0]

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return (
            f"DTensor(local_tensor={self._local_tensor}, device_mesh={self.device_mesh!r}, "
            f"placements={self.placements!r})"
        )

    def __hash__(self) -> int:
        return id(self)

    def item(self) -> Any:
        """The number of a tensor of one element."""
        return self.full_tensor().item()

    def tolist(self) -> Any:
        """The numbers of the whole."""
        return self.full_tensor().tolist()

    def __bool__(self) -> bool:
        return bool(self.full_tensor())

    def __float__(self) -> float:
        return float(self.full_tensor())

    def __int__(self) -> int:
        return int(self.full_tensor())

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: which numbers are meant, the part or the whole?"""
        raise RuntimeError("DTensor.numpy(): use to_local() or full_tensor() first")

    @property
    def grad(self) -> DTensor | None:  # type: ignore[override]
        """The gradient, cut as the tensor is."""
        return gradient_of(self, Tensor.grad.__get__(self))

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        Tensor.grad.__set__(self, gradient_part(self, value))

    def _grad_spec(self) -> Spec:
        return self._spec.with_layout(dual(self.placements))

    @property
    def data(self) -> DTensor:  # type: ignore[override]
        """The tensor without its history."""
        return make(Tensor.data.__get__(self).as_subclass(Tensor), self._spec)

    @data.setter
    def data(self, value: Tensor) -> None:
        if isinstance(value, DTensor):
            self._spec = value._spec
            value = value._local_tensor
        Tensor.data.__set__(self, value)

    def detach(self) -> DTensor:
        """The tensor without its history."""
        with DisableTorchFunctionSubclass():
            return make(Tensor.detach(self).as_subclass(Tensor), self._spec)

    def backward(self, gradient: Any = None, *args: Any, **kwargs: Any) -> None:
        """Computes the gradients of what the tensor was made of."""
        gradient = gradient_part(self, gradient)
        with DisableTorchFunctionSubclass():
            Tensor.backward(self, gradient, *args, **kwargs)

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """hook(gradient) runs when the gradient is there; it is a DTensor."""
        spec = self._grad_spec()

        def run(grad: Tensor) -> Any:
            answer = hook(make(grad, spec))
            return answer.to_local() if isinstance(answer, DTensor) else answer

        with DisableTorchFunctionSubclass():
            return Tensor.register_hook(self, run)

    def __deepcopy__(self, memo: dict[int, Any]) -> DTensor:
        if id(self) not in memo:
            copied = leaf(self._local_tensor.clone(), self._spec, self.requires_grad, type(self))
            memo[id(self)] = copied
        return memo[id(self)]

    def __reduce_ex__(self, protocol: Any) -> Any:
        is_parameter = isinstance(self, Parameter)
        return _rebuild, (
            self._local_tensor, _saved.plain(self._spec), self.requires_grad, is_parameter
        )  # fmt: skip

    def _as_parameter(self, requires_grad: bool) -> DTensor:
        return leaf(self._local_tensor, self._spec, requires_grad, DParameter)

    @classmethod
    def _protocol(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatch.run(func, args, kwargs or {})


class DParameter(DTensor, Parameter):
    """A module's parameter that is a DTensor."""

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__(**kwargs)


def _convert(name: str) -> Any:
    plain = getattr(Tensor, name)

    def method(self: DTensor, *args: Any, **kwargs: Any) -> Any:
        args = tuple(a.to_local() if isinstance(a, DTensor) else a for a in args)
        with DisableTorchFunctionSubclass():
            result = plain(self, *args, **kwargs)
            if not isinstance(result, Tensor):
                return result
            spec = self._spec
            if self.is_floating_point() and not (
                result.is_floating_point() or result.is_complex()
            ):  # terms are added before they are rounded
                added = [Replicate() if p.is_partial() else p for p in spec.placements]
                if tuple(added) != spec.placements:
                    whole = self.redistribute(placements=added)
                    result, spec = plain(whole, *args, **kwargs), whole._spec
        return make(result, spec)

    method.__name__, method.__doc__ = name, plain.__doc__
    return method


for _name in ("to", "cpu", "cuda", "float", "double", "half", "bfloat16", "int", "long", "bool",
              "byte", "char", "short", "cfloat", "cdouble", "chalf", "type", "type_as",
              "pin_memory"):  # fmt: skip
    setattr(DTensor, _name, _convert(_name))
del _name


class _Received(tenon.autograd.Function):
    """Says how the gradient of a part comes and how it shall go on."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, spec: Spec, received: Layout, wanted: Layout) -> Tensor:
        ctx.spec, ctx.received, ctx.wanted = spec, received, wanted
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        given = ctx.spec.with_layout(ctx.received)
        return redistribute(grad, given, ctx.wanted), None, None, None


# ---- Making them ---------------------------------------------------------------------------------


def _watch() -> None:
    global _watching
    if not _watching:
        _watching = True
        DTensor.__torch_function__ = DTensor._protocol  # type: ignore[assignment]
        _C._watch_overrides()


def make(local: Tensor, spec: Spec) -> DTensor:
    """The DTensor of a part; backward passes through it."""
    _watch()
    made = Tensor.as_subclass(local, DTensor)
    made._spec = spec
    return made


def gradient_of(t: Tensor, found: Any) -> Any:
    """A gradient of `t` that was computed, or None: of a DTensor a DTensor."""
    return make(found, t._grad_spec()) if found is not None and isinstance(t, DTensor) else found


def gradient_part(t: Tensor, given: Any) -> Any:
    """A gradient of `t` that a program gives: of a DTensor the part that lies as its own."""
    if not isinstance(t, DTensor) or not isinstance(given, DTensor):
        return given
    return given.redistribute(placements=t._grad_spec().placements).to_local()


def leaf(local: Tensor, spec: Spec, requires_grad: bool, cls: type = DTensor) -> DTensor:
    """A DTensor without a history."""
    _watch()
    with DisableTorchFunctionSubclass():
        made = Tensor._make_subclass(cls, local.detach(), requires_grad)
    made._spec = spec
    return made


def _rebuild(local: Any, plain: Any, requires_grad: Any, is_parameter: Any) -> DTensor:
    """The DTensor of a file; see `_saved`. ValueError: what the file says is not consistent."""
    spec = _saved.spec_of(*plain)
    if not isinstance(local, Tensor) or local.ndim != len(spec.shape):
        raise ValueError("a DTensor whose part has other dimensions")
    return leaf(local, spec, requires_grad is True, DParameter if is_parameter is True else DTensor)


def _mesh(given: DeviceMesh | None) -> DeviceMesh:
    from tenon.distributed.device_mesh import current_mesh, init_device_mesh

    given = current_mesh() if given is None else given
    if given is not None:
        return given

    return init_device_mesh("cpu", (distributed.get_world_size(),))


def distribute_tensor(
    tensor: Tensor,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """The DTensor of a tensor that every process has; the numbers are those of one of them, unless
    src_data_rank is None."""
    mesh = _mesh(device_mesh)
    wanted = [Replicate()] * mesh.ndim if placements is None else list(placements)
    if len(wanted) != mesh.ndim:
        raise ValueError(
            "`placements` must have the same length as `device_mesh.ndim`! Found placements "
            f"length: {len(wanted)}, and device_mesh.ndim: {mesh.ndim}."
        )
    layout = normal(wanted, tensor.ndim)
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh or tensor.placements != layout:
            raise ValueError(
                f"Cannot distribute a DTensor with {tensor.placements} to {layout}: "
                "use redistribute"
            )
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but "
                           "found non-leaf tensor!")  # fmt: skip
    local = tensor.detach()
    if mesh.get_coordinate() is not None and src_data_rank is not None and not local.is_meta:
        local = local.clone(memory_format=tenon.contiguous_format)
        for d in range(mesh.ndim):
            distributed.broadcast(local, group=mesh.get_group(d), group_src=src_data_rank)
    whole = Spec(mesh, (Replicate(),) * mesh.ndim, tuple(tensor.shape))
    from tenon.distributed.tensor._redistribute import move

    part = move(local, whole, layout)
    if part is local and src_data_rank is None:
        part = local.clone()
    made = leaf(part, whole.with_layout(layout), tensor.requires_grad)
    return made._as_parameter(tensor.requires_grad) if isinstance(tensor, Parameter) else made


def _with_module(name: str, what: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A conversion of three arguments, of one that may leave the module out."""
    count = len(inspect.signature(fn).parameters)
    if count not in (2, 3):
        raise ValueError(f"{name} should take in 3 arguments, but got {count} arguments!")
    if count == 3:
        return fn
    warnings.warn(
        f"Deprecating {name} that takes two arguments ({what}, device_mesh), please use {name} "
        f"that takes in (module, {what}, device_mesh) instead!",
        FutureWarning,
        stacklevel=3,
    )
    return lambda module, values, mesh: fn(values, mesh)


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Module:
    """A module whose parameters and buffers are DTensors: partition_fn(name, module, mesh) makes
    those that are cut, the others are replicated. input_fn(module, inputs, mesh) and
    output_fn(module, outputs, mesh) convert what goes in and comes out; those that take no module
    get none."""
    mesh = _mesh(device_mesh)
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError("distribute_module should only be called once on a module, but it has "
                           "already been called on this module!")  # fmt: skip
    for name, part in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, part, mesh)
        for key, param in part._parameters.items():
            if param is not None and not isinstance(param, DTensor):
                part.register_parameter(key, Parameter(distribute_tensor(param.detach(), mesh),
                                                       param.requires_grad))  # fmt: skip
        for key, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, DTensor):
                part._buffers[key] = distribute_tensor(buffer, mesh)
    if input_fn is not None:
        convert = _with_module("input_fn", "inputs", input_fn)
        module.register_forward_pre_hook(lambda m, inputs: convert(m, inputs, mesh))
    if output_fn is not None:
        revert = _with_module("output_fn", "outputs", output_fn)
        module.register_forward_hook(lambda m, inputs, outputs: revert(m, outputs, mesh))
    module._distribute_module_applied = True  # type: ignore[assignment]
    return module


def _factory(name: str, fills: bool = False) -> Any:
    make_whole = getattr(tenon, name)

    def factory(
        *size: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        requires_grad: bool = False,
        **options: Any,
    ) -> DTensor:
        mesh = _mesh(device_mesh)
        extra: tuple[Any, ...] = ()
        if fills:
            if len(size) + ("fill_value" in options) != 2:
                raise TypeError(f"{name}() takes a size and a fill_value")
            size, extra = size[:1], (options.pop("fill_value", *size[1:]),)
        shape = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        options.pop("layout", None)
        wanted = [Replicate()] * mesh.ndim if placements is None else placements
        spec = Spec(mesh, normal(wanted, len(shape)), tuple(shape))
        # Random numbers are those of one process with the same seed.
        whole = name in ("rand", "randn")
        local = make_whole(shape if whole else spec.local[0], *extra, **options)
        if whole:
            local = _dispatch.own_part(local, spec)
        return leaf(local, spec, requires_grad)

    factory.__name__ = name
    factory.__doc__ = f"tenon.{name} as a DTensor."
    return factory


empty, zeros, ones = _factory("empty"), _factory("zeros"), _factory("ones")
rand, randn, full = _factory("rand"), _factory("randn"), _factory("full", fills=True)
