"""fully_shard: a module whose parameters are DTensors, cut along their first dimension."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, cast

import tenon
from tenon import Tensor, distributed
from tenon.autograd import Variable
from tenon.distributed.device_mesh import DeviceMesh, init_device_mesh
from tenon.distributed.fsdp import _ahead, _unit
from tenon.distributed.fsdp._unit import Groups, Piece, Precision, Unit
from tenon.distributed.fsdp.api import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy
from tenon.distributed.tensor._api import DParameter, DTensor, leaf, make
from tenon.distributed.tensor._redistribute import Spec, normal
from tenon.distributed.tensor.placement_types import Replicate, Shard, _StridedShard
from tenon.nn.modules.container import ModuleDict, ModuleList
from tenon.nn.modules.module import Module
from tenon.nn.parallel.distributed import _find_tensors
from tenon.nn.parameter import Parameter

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]


class _State:
    """The unit of a module, and whether its parameters are whole just now."""

    def __init__(
        self, owned: list[_unit.Owned], unit: Unit, policy: MixedPrecisionPolicy, reshards: bool,
        inner: list[Spec | None], modules: Sequence[Module],
    ) -> None:  # fmt: skip
        self.owned, self.unit, self.policy, self.reshards = owned, unit, policy, reshards
        self.sharded = [o.param for o in owned]
        for i, piece in enumerate(unit.pieces):
            piece.part = functools.partial(self._part, i)
        self.inner = inner  # how the parameters lay before, those that were DTensors
        self.modules = {id(m) for m in modules}
        self.waiting: set[int] = set()  # those that are still to run in this forward
        self.wholes: list[Any] | None = None
        self.reshards_after_backward = True
        self.ending = False  # the backward pass that goes on will call `_end_pass`
        self.depth = 0

    def _part(self, number: int) -> Tensor:
        return self.sharded[number].to_local()

    def adopt(self) -> None:
        """Parameters that were put in the place of its own, cut as those are, become its own."""
        if self.wholes is not None:
            return
        for i, own in enumerate(self.owned):
            module, name = own.places[0]
            found = module._parameters[name]
            if isinstance(found, DTensor) and found is not own.param:
                own.param = self.sharded[i] = found
        _unit.place(self.owned, self.sharded)

    def show(self, wholes: list[Any]) -> None:
        self.wholes = wholes
        self.unit.shown = True
        _unit.place(self.owned, [w if spec is None else make(w, spec)
                                 for w, spec in zip(wholes, self.inner, strict=True)])  # fmt: skip

    def hide(self) -> None:
        self.wholes = None
        self.unit.shown = self.unit.lent = False
        self.waiting = set()
        _unit.place(self.owned, self.sharded)
        self.unit.let_go()

    def show_for_backward(self) -> None:
        """What runs again in backward finds whole parameters."""
        if self.wholes is None and self.owned:
            whole = [self.unit.again(i) for i in range(len(self.owned))]
            self.show([w.detach().requires_grad_(o.param.requires_grad)
                       for w, o in zip(whole, self.owned, strict=True)])  # fmt: skip
            self.unit.lent = True

    def received(self) -> None:
        if self.reshards_after_backward:
            self.hide()


class UnshardHandle:
    """Parameters that unshard(async_op=True) has begun to gather."""

    def __init__(self, module: FSDPModule) -> None:
        self._module = module

    def wait(self) -> None:
        """Waits until they are there; a call of the module does it, too."""
        self._module.unshard()


class FSDPModule:
    """What a module is, too, after fully_shard."""

    _fsdp_state: _State

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self, super().__call__, args, kwargs)  # type: ignore[misc]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the parameters of this module until reshard(). async_op: only begins it, and
        gives a handle to wait for the end."""
        state = self._fsdp_state
        if state.unit.outlived():
            state.hide()
        if async_op:
            state.unit.begin()
            return UnshardHandle(self)
        if state.wholes is None:
            state.show(state.unit.unshard())
        return None

    def reshard(self) -> None:
        """Lets go of the gathered parameters."""
        self._fsdp_state.hide()

    def _states(self, recurse: bool) -> Iterator[_State]:
        modules: Any = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        for m in modules:
            if isinstance(m, FSDPModule):
                yield m._fsdp_state

    def set_requires_gradient_sync(
        self, requires_gradient_sync: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward exchanges gradients, or keeps them whole for a later one."""
        for state in self._states(recurse):
            state.unit.syncs = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Whether ranks that have the same part add their gradients, on a mesh of two
        dimensions."""
        for state in self._states(recurse):
            state.unit.reduces_copies = requires_all_reduce

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether forward lets go of the parameters."""
        for state in self._states(recurse):
            state.reshards = reshard_after_forward

    def set_reshard_after_backward(
        self, reshard_after_backward: bool, *, recurse: bool = True
    ) -> None:
        """Whether backward lets go of the parameters."""
        for state in self._states(recurse):
            state.reshards_after_backward = reshard_after_backward

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What sums of gradients are divided by, the number of ranks unless said."""
        self._fsdp_state.unit.divisor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def reset_iter_state(self) -> None:
        """Drops what a pass that failed has left: whole parameters, gradients that wait."""
        for state in self._states(True):
            state.unit.forget_gradients()
            state.hide()

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        """Taken: gradients are always summed and divided after."""

    def set_separate_reduce_scatter_group(
        self, enable: bool = True, *, recurse: bool = True
    ) -> None:
        """Taken: a group's exchanges have their order."""

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Taken: every backward ends what it began."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Taken: backward gathers what it asks for."""

    def set_post_optim_event(self, event: Any) -> None:
        """Taken: there are no streams to wait for."""

    def set_modules_to_forward_prefetch(self, modules: list[Any]) -> None:
        """What is gathered while this module computes forward, instead of what came next the last
        time."""
        self._fsdp_state.unit.asked[_ahead.FORWARD][:] = _units_of(modules)

    def set_modules_to_backward_prefetch(self, modules: list[Any]) -> None:
        """The same for backward."""
        self._fsdp_state.unit.asked[_ahead.BACKWARD][:] = _units_of(modules)


def _units_of(modules: list[Any]) -> list[Unit]:
    for m in modules:
        if not isinstance(m, FSDPModule):
            raise ValueError(f"Expects FSDPModule but got {type(m)}: {m}")
    return [m._fsdp_state.unit for m in modules]


@_ahead.calling()
def _run(module: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call of a module with whole parameters."""
    state: _State = module._fsdp_state
    if state.unit.outlived():
        state.hide()
    if state.policy.cast_forward_inputs and state.policy.param_dtype is not None:
        args, kwargs = _unit.cast((args, kwargs), state.policy.param_dtype)
    if state.depth:
        return _cast_output(state, call(*args, **kwargs))
    if not state.owned or (state.wholes is not None and not state.reshards):
        return _watched(module, _cast_output(state, call(*args, **kwargs)), False)
    keep = state.wholes is not None and not state.waiting  # by unshard()
    if state.wholes is None:
        state.show(state.unit.unshard())
        state.waiting = set(state.modules)
    state.waiting.discard(id(module))
    state.depth += 1
    try:
        with ExitStack() as stack:
            if state.reshards and not keep and tenon.is_grad_enabled():
                stack.enter_context(state.unit.keeping_places(state.wholes or []))
            output = call(*args, **kwargs)
    finally:
        state.depth -= 1
        if not state.waiting and (state.reshards or not tenon.is_grad_enabled()):
            state.hide()
    return _watched(module, _cast_output(state, output), True)


def _watched(module: FSDPModule, output: Any, shows: bool) -> Any:
    """The output of a module, whose gradient begins its backward pass. shows: the pass finds whole
    parameters."""
    state = module._fsdp_state

    def begin(grad: Any) -> None:
        if not state.ending:
            state.ending = True
            Variable._execution_engine.queue_callback(functools.partial(_end_pass, module))
        if shows:
            state.show_for_backward()

    for t in _find_tensors(output):
        if t.requires_grad and tenon.is_grad_enabled():
            t.register_hook(begin)
    return output


def _end_pass(module: FSDPModule) -> None:
    """Units of which the loss has used nothing are let go of, too: their parameters may change."""
    for state in module._states(True):
        state.ending = False
        if state.wholes is not None:
            state.received()


def _cast_output(state: _State, output: Any) -> Any:
    return _unit.cast(output, state.policy.output_dtype)


class _Receiving(Unit):
    """A unit that says when its gradients have come."""

    after: Callable[[], None]

    def receive(self, numbers: Any, grads: Any) -> list[Any]:
        result = super().receive(numbers, grads)
        self.after()
        return result


def _groups(mesh: DeviceMesh) -> Groups:
    if mesh.ndim == 1:
        return Groups(mesh.get_group(0))
    if mesh.ndim == 2:
        return Groups(mesh.get_group(1), mesh.get_group(0))
    raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")


def _within(outer: Spec, inner: Spec) -> Spec:
    """The layout of a DTensor whose parts are cut once more, by the mesh of `outer`."""
    factor = 1
    for n, p in zip(inner.mesh.shape, inner.placements, strict=True):
        factor *= n if p.is_shard(outer.placements[-1].dim) else 1
    if any(p.is_partial() for p in inner.placements):
        raise ValueError("fully_shard: a parameter is the terms of a sum")
    late = [_StridedShard(p.dim, split_factor=factor) if p.is_shard() and factor > 1 else p
            for p in outer.placements]  # fmt: skip
    mesh = DeviceMesh._concatenate([outer.mesh, inner.mesh])
    return Spec(mesh, (*late, *inner.placements), inner.shape)


def _reshards(asked: bool | int | None, parts: int) -> bool:
    """Whether forward lets go of the whole. A number of ranks that keep it among them does so,
    too, unless it is 1."""
    if asked is None or isinstance(asked, bool):
        return asked is not False
    if not isinstance(asked, int):
        raise ValueError(
            f"reshard_after_forward should be a bool or an int representing the group size to "
            f"reshard to, not {asked}"
        )
    if asked < 1 or asked > parts or parts % asked:
        raise ValueError(
            "If passing reshard_after_forward as an int, it should be a factor of "
            f"{parts}, not {asked}"
        )
    return asked != 1


def _cut(own: _unit.Owned, chooses: Callable[[Any], Shard | None] | None) -> Shard:
    """Along which dimension a parameter is cut."""
    chosen = None if chooses is None else chooses(own.param)
    if chosen is None:
        return Shard(0)
    if not isinstance(chosen, Shard):
        raise TypeError(
            f"fully_shard: shard_placement_fn has to return Shard or None, got {chosen!r} for "
            f"{own.name}"
        )
    return cast(Shard, normal((chosen,), own.param.ndim)[0])


def _taken(module: Module) -> bool:
    return isinstance(module, FSDPModule)


def _plain(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A new module of such a class, as a slice makes one, is not sharded."""
    return cls._fsdp_class(*args, **kwargs)


def _no_copy(self: Any, memo: Any) -> Any:
    raise AssertionError("FSDP does not support deepcopy. Please use state dict for serialization.")


_AS_IT_IS, _ON_DEVICE = MixedPrecisionPolicy(), OffloadPolicy()


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Any = None,
    mp_policy: MixedPrecisionPolicy = _AS_IT_IS,
    offload_policy: OffloadPolicy = _ON_DEVICE,
    ignored_params: set[Parameter] | None = None,
    dp_mesh_dims: Any = None,
) -> Any:
    """Cuts the parameters of a module along their first dimension, or along that which
    shard_placement_fn(parameter) returns as Shard(dimension), but for those of modules inside it
    that were cut before. They are gathered for forward and backward of the module.

    On a mesh of two dimensions the second one cuts, and ranks along the first have the same parts.
    Parameters may be DTensors of another part of the same mesh (tensor parallel modules): the parts
    are cut once more. Several modules in a list are gathered together, with the first of them to
    run, and let go of after the last one.
    reshard_after_forward=False: the parameters stay whole between forward and backward.
    """
    if dp_mesh_dims is not None:
        raise NotImplementedError("fully_shard: dp_mesh_dims is not there yet")
    modules: Sequence[Module] = list(module) if isinstance(module, (list, tuple)) else [module]
    for m in modules:
        if isinstance(m, (ModuleList, ModuleDict)) and type(m).forward is Module.forward:
            raise ValueError(
                f"fully_shard does not support containers that do not implement forward: {m}"
            )
        if isinstance(m, FSDPModule):
            raise AssertionError("Each distinct composable distributed API can only be applied to "
                                 "a module once. fully_shard was")  # fmt: skip
    if mesh is None:
        if not distributed.is_initialized():
            distributed.init_process_group()
        mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    groups = _groups(mesh)
    ignored = {id(p) for p in ignored_params or ()}
    owned = _unit.owned_parameters(modules, _taken, ignored)
    for own in owned:
        if own.param.ndim == 0:
            raise ValueError(
                "fully_shard doesn't support scalar parameters. Change "
                f"{own.name} to a 1D tensor with numel equal to 1."
            )
    pieces = []
    offloads = isinstance(offload_policy, CPUOffloadPolicy)
    device = owned[0].param.device if owned and offloads else None
    if device is not None and device.type == "meta":
        device = tenon.device(mesh.device_type)
    inner = [own.param._spec if isinstance(own.param, DTensor) else None for own in owned]
    for own, before in zip(owned, inner, strict=True):
        cut = _cut(own, shard_placement_fn)
        placements = (*[Replicate()] * (mesh.ndim - 1), cut)
        whole, spec = own.param, Spec(mesh, placements, tuple(own.param.shape))
        trained = whole.requires_grad
        if before is not None:
            whole, spec = whole._local_tensor, _within(spec, before)
        part = _unit.own_rows(whole.detach(), groups, cut.dim)
        if offloads and not part.is_meta:
            part = part.cpu()
        own.param = leaf(part, spec, trained, DParameter)
        pieces.append(Piece(tuple(whole.shape), own.param.to_local, whole.dtype, trained, cut.dim))
    precision = Precision(mp_policy.param_dtype, mp_policy.reduce_dtype)
    unit = _Receiving(pieces, groups, precision, device)
    reshards = _reshards(reshard_after_forward, groups.parts)
    state = _State(owned, unit, mp_policy, reshards, inner, modules)
    unit.after = state.received
    _unit.place(owned, state.sharded)
    for target in modules:
        cls = type(target)
        target.__class__ = type(
            f"FSDP{cls.__name__}", (FSDPModule, cls),
            {"_fsdp_class": cls, "__deepcopy__": _no_copy, "__new__": _plain},
        )  # fmt: skip
        target.__dict__["_fsdp_state"] = state
        target.register_state_dict_pre_hook(_cut_again)
        target.register_load_state_dict_pre_hook(_cut_again)
        target.register_load_state_dict_post_hook(_adopt)
    return module


def _cut_again(module: FSDPModule, *args: Any) -> None:
    """States are of parts, also between a forward that left the parameters whole and its
    backward."""
    if module._fsdp_state.wholes is not None:
        module.reshard()


def _adopt(module: FSDPModule, keys: Any) -> None:
    """load_state_dict(assign=True) has put others in the place of the parameters."""
    module._fsdp_state.adopt()


def _state_of(module: Any) -> _State | None:
    """What fully_shard keeps of a module; None where it was not applied."""
    return module._fsdp_state if isinstance(module, FSDPModule) else None


fully_shard.state = _state_of  # type: ignore[attr-defined]


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Gathers the parameters for another method than forward, too."""
    if not isinstance(module, FSDPModule):
        return
    if not hasattr(module, method_name):
        raise ValueError(f"{type(module)} does not have a method {method_name}")
    plain = getattr(module, method_name)

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        return _run(module, plain, args, kwargs)

    module.__dict__[method_name] = run
