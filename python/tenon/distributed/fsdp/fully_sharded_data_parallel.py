"""FullyShardedDataParallel: a module whose parameters lie flat, one behind the other, cut among
processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed import _place
from tenon.distributed.fsdp import _ahead, _unit
from tenon.distributed.fsdp._unit import Groups, Piece, Precision, Unit
from tenon.distributed.fsdp.api import (
    BackwardPrefetch,
    CPUOffload,
    FullOptimStateDictConfig,
    FullStateDictConfig,
    LocalOptimStateDictConfig,
    LocalStateDictConfig,
    MixedPrecision,
    OptimStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    ShardingStrategy,
    StateDictConfig,
    StateDictSettings,
    StateDictType,
)
from tenon.distributed.fsdp.wrap import _wrap_by_policy
from tenon.nn.modules.module import Module
from tenon.nn.parallel.distributed import _find_tensors
from tenon.nn.parameter import Parameter

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FlatParameter", "FullOptimStateDictConfig",
    "FullStateDictConfig", "FullyShardedDataParallel", "LocalOptimStateDictConfig",
    "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType",
    "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig",
    "StateDictSettings", "StateDictType",
]  # fmt: skip

_PREFIX = "_fsdp_wrapped_module."
_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)


class FlatParameter(Parameter):
    """This rank's part of the parameters of a unit, one behind the other."""


class _Flat:
    """Parameters of one dtype as one flat tensor that is cut."""

    def __init__(self, owned: list[_unit.Owned], groups: Groups, keeps: bool, cpu: bool) -> None:
        self.owned = owned
        self.shapes = [tuple(o.param.shape) for o in owned]
        self.sizes = [o.param.numel() for o in owned]
        self.total = sum(self.sizes)
        self.padded = -(-self.total // groups.parts) * groups.parts
        first = owned[0].param
        self.dtype, self.trainable, self.device = first.dtype, first.requires_grad, first.device
        self.groups = groups
        self.keeps = keeps
        mine = self._cut([o.param.detach() for o in owned])
        mine = mine.cpu() if cpu else mine
        if keeps:
            self.params = [o.param for o in owned]
            for p, part in zip(self.params, self._parts(mine), strict=True):
                p.data = part
        else:
            self.params = [Tensor._make_subclass(FlatParameter, mine, self.trainable)]

    def _cut(self, wholes: Iterable[Tensor]) -> Tensor:
        flat = tenon.cat([w.reshape(-1) for w in wholes])
        room = flat.new_zeros(self.padded)
        room[: self.total].copy_(flat)
        return _unit.own_rows(room, self.groups)

    def _parts(self, mine: Tensor) -> list[Tensor]:
        """What this rank has of each parameter, as views of its part."""
        start = self.groups.rank * (self.padded // self.groups.parts)
        end, at, found = start + mine.numel(), 0, []
        for size in self.sizes:
            low, high = max(at, start), min(at + size, end)
            found.append(mine[max(low - start, 0) : max(high - start, low - start, 0)]
                         if low < high else mine[:0])  # fmt: skip
            at += size
        if self.groups.parts == 1:  # what is not cut keeps its shape
            return [p.view(shape) for p, shape in zip(found, self.shapes, strict=True)]
        return found

    def part(self) -> Tensor:
        """This rank's part, through which gradients come to the parameters."""
        if not self.keeps:
            return self.params[0]
        mine = tenon.cat([p.reshape(-1) for p in self.params])
        missing = self.padded // self.groups.parts - mine.numel()
        return tenon.nn.functional.pad(mine, (0, missing)) if missing else mine

    def wholes(self, flat: Tensor) -> list[Tensor]:
        """The parameters in a flat tensor of all of them."""
        pieces = flat[: self.total].split(self.sizes)
        return [p.view(s) for p, s in zip(pieces, self.shapes, strict=True)]

    def gathered(self, mine: Tensor) -> list[Tensor]:
        """Whole tensors of this rank's parts of them, one behind the other in a flat tensor."""
        room = mine.new_zeros(self.padded // self.groups.parts)
        room[: mine.numel()].copy_(mine)
        everyone = room
        if self.groups.parts > 1:
            everyone = room.new_empty(self.padded)
            distributed.all_gather_into_tensor(everyone, room, self.groups.cut)
        return self.wholes(everyone)

    def whole_grads(self) -> list[Tensor | None]:
        """Gradients of the whole parameters; None where no rank has one."""
        held = [p.grad for p in self.params]
        there = tenon.tensor([g is not None for g in held], dtype=tenon.int32, device="cpu")
        if self.groups.parts > 1:
            distributed.all_reduce(there, distributed.ReduceOp.MAX, self.groups.cut)
        known: list[bool] = there.bool().tolist()
        if not any(known):
            return [None] * len(self.owned)
        parts = [tenon.zeros_like(p) if g is None else g.to(self.dtype)
                 for p, g in zip(self.params, held, strict=True)]  # fmt: skip
        flat = tenon.cat([p.detach().reshape(-1) for p in parts]).to(self.device)
        known = known if self.keeps else known * len(self.owned)
        wholes = zip(self.gathered(flat), known, strict=True)
        return [whole.clone() if has else None for whole, has in wholes]

    def write(self, wholes: Iterable[Tensor]) -> None:
        """Takes the numbers of whole parameters."""
        with tenon.no_grad():
            mine = self._cut(wholes)
            if not self.keeps:
                self.params[0].copy_(mine)
                return
            for p, part in zip(self.params, self._parts(mine), strict=True):
                p.copy_(part)


def _group_of(strategy: ShardingStrategy, group: Any, mesh: Any, wraps: bool) -> Any:
    """The ranks that share a cut; hybrid strategies: these, and those with the same part."""
    hybrid = strategy in _HYBRID
    if group is not None and mesh is not None:
        raise ValueError(
            "Cannot pass both process_group and device_mesh at the "
            "same time. Please just pass only one of them."
        )
    if not distributed.is_initialized():
        raise ValueError(
            "Default process group has not been initialized, "
            "please make sure to call init_process_group."
        )
    if mesh is not None:
        if mesh.ndim != 1 + hybrid:
            raise ValueError(f"Expected device_mesh to have ndim={1 + hybrid} but got {mesh.ndim} "
                             f"({strategy})")  # fmt: skip
        return (mesh.get_group(1), mesh.get_group(0)) if hybrid else mesh.get_group()
    if not hybrid:
        return distributed.group.WORLD if group is None else group
    if group is None and not wraps:
        raise ValueError(
            f"Manual wrapping with {strategy} requires explicit specification "
            "of process group or device_mesh."
        )
    if group is None:
        return _groups_by_machine()
    if not isinstance(group, tuple) or len(group) != 2:
        raise ValueError(
            "Expected process_group to be passed in as either None or "
            f"Tuple[dist.ProcessGroup, dist.ProcessGroup] but got {type(group)}"
        )
    return group


def _groups_by_machine() -> tuple[Any, Any]:
    """The ranks of this machine, and those with this one's number on the others; the launcher says
    how many a machine has."""
    size = distributed.get_world_size()
    local = "LOCAL_WORLD_SIZE"
    here = _place._number(local, os.environ.get(local, str(size)))
    cut, _ = distributed.new_subgroups(here)
    same, _ = distributed.new_subgroups_by_enumeration(
        [list(range(first, size, here)) for first in range(here)]
    )
    return cut, same


def _taken(module: Module) -> bool:
    return isinstance(module, FullyShardedDataParallel)


def _tensors_in(module: Module) -> list[Tensor]:
    """A module's own parameters and buffers."""
    return [*module.parameters(recurse=False), *module.buffers(recurse=False)]


class FullyShardedDataParallel(Module):
    """Calls its module, whose parameters are gathered for forward and again for backward; in
    between, each process has a part of them, of their gradients and of the optimizer's state.

    auto_wrap_policy: modules inside it that become units of their own. use_orig_params: the
    optimizer sees the parameters by their names, each as the elements that this process has.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: CPUOffload | None = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: BackwardPrefetch | None = BackwardPrefetch.BACKWARD_PRE,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Any = None,
        device_mesh: Any = None,
    ) -> None:
        super().__init__()
        self.sharding_strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        self._mesh = device_mesh
        process_group = _group_of(
            self.sharding_strategy, process_group, device_mesh, auto_wrap_policy is not None
        )
        left = list(ignored_modules or [])
        ignored: set[int] = {id(p) for m in left for p in m.parameters()}
        for state in ignored_states or ():
            ignored |= (
                {id(p) for p in state.parameters()} if isinstance(state, Module) else {id(state)}
            )
        options: dict[str, Any] = {
            "process_group": process_group if device_mesh is None else None,
            "device_mesh": device_mesh, "sharding_strategy": sharding_strategy,
            "cpu_offload": cpu_offload, "backward_prefetch": backward_prefetch,
            "mixed_precision": mixed_precision, "forward_prefetch": forward_prefetch,
            "limit_all_gathers": limit_all_gathers, "use_orig_params": use_orig_params,
            "ignored_modules": left, "ignored_states": ignored_states,
            "param_init_fn": param_init_fn, "device_id": device_id,
            "sync_module_states": sync_module_states,
        }  # fmt: skip
        if auto_wrap_policy is not None:
            inside = {m for part in left for m in part.modules()}
            _wrap_by_policy(module, auto_wrap_policy, inside, FullyShardedDataParallel, options)
        self._fsdp_wrapped_module = module
        self._make_data(param_init_fn, device_id)
        if sync_module_states:
            self._sync(process_group)
        self.mixed_precision = mixed_precision or MixedPrecision()
        self.cpu_offload = cpu_offload or CPUOffload()
        self._use_orig_params = use_orig_params
        alone = self.sharding_strategy is ShardingStrategy.NO_SHARD
        both = isinstance(process_group, tuple)
        self.process_group = process_group[0] if both else process_group
        self._groups = (
            Groups(*process_group) if both
            else Groups(None, process_group) if alone else Groups(process_group)
        )  # fmt: skip
        self.rank, self.world_size = self._groups.rank, self._groups.parts
        self._settings = StateDictSettings()
        self._depth = 0
        # Where the flat parameters are: modules may be put around the one inside later.
        self.__dict__["_home"] = module
        self._is_root: bool | None = None
        self._reshards = self.sharding_strategy in (
            ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD,
        )  # fmt: skip
        self._flatten(ignored, {m for part in left for m in part.modules()})
        self._unit.ahead = (forward_prefetch, backward_prefetch is not None)
        self._register_state_dict_hook(self._finish_state)
        self.register_load_state_dict_pre_hook(self._with_prefix)

    # ---- Parts ----

    def _own_modules(self) -> Iterator[tuple[str, Module]]:
        """The modules that no unit inside has, by name."""

        def visit(module: Module, name: str) -> Iterator[tuple[str, Module]]:
            yield name, module
            for below, child in module.named_children():
                if not _taken(child):
                    yield from visit(child, f"{name}.{below}".lstrip("."))

        return visit(self._fsdp_wrapped_module, "")

    def _make_data(self, init: Callable[[Module], None] | None, device_id: Any) -> None:
        """Gives memory to modules on meta, and brings all to a device."""
        device = None if device_id is None or isinstance(device_id, int) else device_id
        own = [m for _, m in self._own_modules()]
        lacking = [m for m in own if any(t.is_meta for t in _tensors_in(m))]
        if lacking and init is not None:
            for m in own:
                init(m)
        for m in lacking if init is None else ():
            m.to_empty(device=device or "cpu", recurse=False)
            with tenon.no_grad():
                m.reset_parameters()
        for m in own if device is not None else ():
            for t in _tensors_in(m):
                t.data = t.data.to(device)

    def _sync(self, group: Any) -> None:
        for g in group if isinstance(group, tuple) else (group,):
            for _, m in self._own_modules():
                for t in _tensors_in(m):
                    distributed.broadcast(t.detach(), group=g, group_src=0)

    def _flatten(self, ignored: set[int], left: set[Module]) -> None:
        owned = _unit.owned_parameters([self._fsdp_wrapped_module], _taken, ignored)
        kinds: dict[Any, list[_unit.Owned]] = {}
        for own in owned:
            kinds.setdefault((own.param.dtype, own.param.requires_grad), []).append(own)
        keeps = self._use_orig_params
        cpu = self.cpu_offload.offload_params
        self._flats = [_Flat(some, self._groups, keeps, cpu) for some in kinds.values()]
        pieces = [Piece((f.padded,), f.part, f.dtype, f.trainable) for f in self._flats]
        mixed = self.mixed_precision
        precision = Precision(
            mixed.param_dtype,
            mixed.reduce_dtype or mixed.param_dtype,
            mixed.keep_low_precision_grads,
        )
        device = self._flats[0].device if self._flats else None
        self._unit = Unit(pieces, self._groups, precision, device)
        self._buffer_dtypes: dict[str, Any] = {}
        for path, m in self._own_modules() if mixed.buffer_dtype is not None else ():
            for name, b in m._buffers.items() if m not in left else ():
                if b is not None and b.dtype.is_floating_point:
                    self._buffer_dtypes[f"{path}.{name}".lstrip(".")] = b.dtype
                    m._buffers[name] = b.to(mixed.buffer_dtype)
        self._hide()

    def _show(self, flats: list[Tensor]) -> None:
        self._unit.shown = True
        for f, flat in zip(self._flats, flats, strict=True):
            _unit.place(f.owned, f.wholes(flat))

    def _hide(self) -> None:
        self._unit.shown = self._unit.lent = False
        self._unit.let_go()
        for i, f in enumerate(self._flats):
            if f.keeps:
                _unit.place(f.owned, f.params)
                continue
            _unit.take_away(f.owned, f.shapes)
            name = "_flat_param" if i == 0 else f"_flat_param_{i}"
            self._home._parameters[name] = f.params[0]

    def _show_for_backward(self) -> None:
        if not self._unit.shown and self._flats:
            self._show([
                self._unit.again(i).detach().requires_grad_(f.trainable)
                for i, f in enumerate(self._flats)
            ])  # fmt: skip
            self._unit.lent = True

    @property
    def module(self) -> Module:
        """The module inside."""
        return self._fsdp_wrapped_module

    @property
    def _has_params(self) -> bool:
        return bool(self._flats)

    @property
    def _flat_param(self) -> Any:
        return self._flats[0].params[0] if self._flats and not self._use_orig_params else None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._fsdp_wrapped_module, name)

    def __getitem__(self, key: int) -> Any:
        return self._fsdp_wrapped_module[key]  # type: ignore[index]

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[FullyShardedDataParallel]:
        """The units in a module."""
        found = [m for m in module.modules() if isinstance(m, FullyShardedDataParallel)]
        if not root_only:
            return found
        inside = {id(n) for m in found for n in m.modules() if n is not m}
        return [m for m in found if id(m) not in inside]

    def check_is_root(self) -> bool:
        """Whether no other unit has this one inside."""
        self._find_root()
        return bool(self._is_root)

    def _find_root(self) -> None:
        if self._is_root is None:
            for m in self.fsdp_modules(self):
                m._is_root = m is self

    # ---- Passes ----

    @_ahead.calling()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._find_root()
        mixed = self.mixed_precision
        casts = mixed.cast_root_forward_inputs if self._is_root else mixed.cast_forward_inputs
        if casts and mixed.param_dtype is not None:
            args, kwargs = _unit.cast((args, kwargs), mixed.param_dtype)
        call = self._fsdp_wrapped_module
        if self._unit.outlived():
            self._hide()
        if self._depth or not self._flats or (self._unit.shown and not self._reshards):
            return call(*args, **kwargs)
        kept = self._unit.shown  # by summon_full_params
        flats = []
        if not kept:
            flats = self._unit.unshard()
            self._show(flats)
        self._depth += 1
        try:
            with contextlib.ExitStack() as stack:
                if self._reshards and not kept and tenon.is_grad_enabled():
                    stack.enter_context(self._unit.keeping_places(flats))
                output = call(*args, **kwargs)
        finally:
            self._depth -= 1
            if not kept:
                self._hide()
        if tenon.is_grad_enabled() and not kept:
            for t in _find_tensors(output):
                if t.requires_grad:
                    t.register_hook(lambda grad: self._show_for_backward())
            for flat in flats:
                if flat.requires_grad:
                    flat.register_hook(lambda grad: self._hide())
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of several backward passes are summed, whole, before they are exchanged."""
        units = [m._unit for m in self.fsdp_modules(self)]
        before = [u.syncs for u in units]
        for u in units:
            u.syncs = False
        try:
            yield
        finally:
            for u, old in zip(units, before, strict=True):
                u.syncs = old

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scales the gradients so that the norm of all of them, of all ranks, is max_norm at
        most; the norm before."""
        order = float(norm_type)
        infinite = order == float("inf")
        units = [m for m in self.fsdp_modules(self) if m._groups.parts > 1]
        parts = {id(p) for m in units for f in m._flats for p in f.params}
        cut: list[Tensor] = []
        whole: list[Tensor] = []  # the same on every rank
        for p in self.parameters():
            if p.grad is not None:
                (cut if id(p) in parts else whole).append(p.grad.detach())
        first = next(iter(self.parameters()))

        def norm_of(grads: list[Tensor]) -> Tensor:
            norms = [tenon.linalg.vector_norm(g.float() if g.element_size() < 4 else g, order)
                     for g in grads if g.numel()]  # fmt: skip
            if not norms:
                return tenon.zeros((), dtype=tenon.float64, device=first.device)
            return tenon.linalg.vector_norm(tenon.stack(norms), order).double()

        total, rest = norm_of(cut), norm_of(whole)
        if units:
            total = total if infinite else total**order
            op = distributed.ReduceOp.MAX if infinite else distributed.ReduceOp.SUM
            distributed.all_reduce(total, op, units[0]._groups.cut)
            total = total if infinite else total ** (1.0 / order)
        total = tenon.linalg.vector_norm(tenon.stack([total, rest]), order)
        total = total.to(first.dtype)
        factor = (float(max_norm) / (total + 1e-6)).clamp(max=1.0)
        for g in cut + whole:
            g.mul_(factor.to(g.dtype))
        return total

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Not there: what travels is a part of a sum."""
        raise NotImplementedError("FullyShardedDataParallel: register_comm_hook is not there yet")

    def apply(self, fn: Callable[[Module], None]) -> FullyShardedDataParallel:
        """fn of every module, which sees whole parameters."""
        with self.summon_full_params(self, writeback=True):
            return super().apply(fn)

    # ---- Whole parameters ----

    @staticmethod
    @contextlib.contextmanager
    def summon_full_params(
        module: Module,
        recurse: bool = True,
        writeback: bool = True,
        rank0_only: bool = False,
        offload_to_cpu: bool = False,
        with_grads: bool = False,
    ) -> Iterator[None]:
        """Inside it the module has its parameters whole; changes are kept unless writeback is
        False. with_grads: they have their gradients, whole; changes of those are not kept.
        rank0_only and offload_to_cpu change where they lie in PyTorch."""
        if writeback and rank0_only:
            raise NotImplementedError("writeback=True and rank0_only=True is not supported, as "
                                      "model parameter shapes will be different across ranks, and "
                                      "writing to them can lead to inconsistencies across ranks "
                                      "when the context is exited.")  # fmt: skip
        units = FullyShardedDataParallel.fsdp_modules(module)
        units = [u for u in units if (recurse or u is module) and not u._unit.shown]
        shown: list[tuple[FullyShardedDataParallel, list[list[Parameter]]]] = []
        try:
            for u in units:
                whole = [
                    [Parameter(w.clone(), f.trainable) for w in f.wholes(flat)]
                    for f, flat in zip(u._flats, u._unit_in_full(), strict=True)
                ]
                for f, tensors in zip(u._flats if with_grads else (), whole):
                    for tensor, grad in zip(tensors, f.whole_grads(), strict=True):
                        tensor.grad = grad
                shown.append((u, whole))
                u._unit.shown = True
                if not u._use_orig_params:
                    held = u._home._parameters
                    for name in [n for n in held if n.startswith("_flat_param")]:
                        del held[name]
                for f, tensors in zip(u._flats, whole, strict=True):
                    _unit.place(f.owned, tensors)
            yield
        finally:
            for u, whole in shown:
                if writeback:
                    for f, tensors in zip(u._flats, whole, strict=True):
                        f.write(t.detach() for t in tensors)
                u._hide()

    def _unit_in_full(self) -> list[Tensor]:
        """The flat parameters, whole, in their own dtype."""
        unit = replace(self._unit, precision=Precision())
        return unit.gather(range(len(self._flats)))

    # ---- State ----

    @staticmethod
    def set_state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> StateDictSettings:
        """What state_dict() of the units in a module gives; what it gave before."""
        configs: dict[StateDictType, tuple[Any, Any]] = {
            StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
            StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
            StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
        }
        model, optim = configs[state_dict_type]
        for given, expected in ((state_dict_config, model), (optim_state_dict_config, optim)):
            if given is not None and not isinstance(given, expected):
                raise RuntimeError(f"Expected state_dict_config of type {expected} but got "
                                   f"{type(given)}")  # fmt: skip
        settings = StateDictSettings(
            state_dict_type, state_dict_config or model(), optim_state_dict_config or optim()
        )
        before = StateDictSettings()
        for i, m in enumerate(FullyShardedDataParallel.fsdp_modules(module)):
            before = m._settings if i == 0 else before
            m._settings = settings
        return before

    @staticmethod
    def get_state_dict_type(module: Module) -> StateDictSettings:
        """What state_dict() of the units in a module gives."""
        found = FullyShardedDataParallel.fsdp_modules(module)
        return found[0]._settings if found else StateDictSettings()

    @staticmethod
    @contextlib.contextmanager
    def state_dict_type(
        module: Module,
        state_dict_type: StateDictType,
        state_dict_config: StateDictConfig | None = None,
        optim_state_dict_config: OptimStateDictConfig | None = None,
    ) -> Iterator[None]:
        """set_state_dict_type for the length of a `with` block."""
        before = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for m in FullyShardedDataParallel.fsdp_modules(module):
                m._settings = before

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """By the kind that was set: whole tensors, DTensors, or what lies in memory."""
        kind = self._settings.state_dict_type
        if kind is StateDictType.LOCAL_STATE_DICT or self._unit.shown:
            return super().state_dict(*args, **kwargs)
        with self.summon_full_params(self, writeback=False):
            return super().state_dict(*args, **kwargs)

    @staticmethod
    def _finish_state(module: Any, state: Any, prefix: str, *args: Any) -> Any:
        for key in [k for k in state if k.startswith(prefix + _PREFIX)]:
            state[prefix + key[len(prefix + _PREFIX) :]] = state.pop(key)
        settings = module._settings
        for name, dtype in module._buffer_dtypes.items():
            if prefix + name in state:
                state[prefix + name] = state[prefix + name].to(dtype)
        if settings.state_dict_type is StateDictType.LOCAL_STATE_DICT or not module.check_is_root():
            return state
        config = settings.state_dict_config
        if getattr(config, "rank0_only", False) and distributed.get_rank() != 0:
            for key in [k for k in state if k.startswith(prefix)]:
                del state[key]
        names = {prefix + n for n, _ in module._clean_names()}
        for key in [k for k in state if k in names]:
            value = state[key]
            if settings.state_dict_type is StateDictType.SHARDED_STATE_DICT:
                value = module._as_dtensor(value)
            state[key] = value.cpu() if config.offload_to_cpu else value
        return state

    def _as_dtensor(self, whole: Tensor) -> Any:
        from tenon.distributed.device_mesh import DeviceMesh
        from tenon.distributed.tensor import Replicate, Shard, distribute_tensor

        if self._mesh is None:
            group = self._groups.cut or self._groups.same
            ranks = distributed.get_process_group_ranks(group)
            self._mesh = DeviceMesh("cpu", ranks, _groups=[group])
        if whole.ndim == 0:
            return whole
        layout = [*[Replicate()] * (self._mesh.ndim - 1), Shard(0)]
        return distribute_tensor(whole.detach(), self._mesh, layout, src_data_rank=None)

    def _clean_names(self) -> list[tuple[str, Tensor]]:
        return [(n.replace(_PREFIX, ""), p) for n, p in super().named_parameters()]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """Whole parameters have the names that they have without units."""
        for name, param in super().named_parameters(*args, **kwargs):
            yield name.replace(_PREFIX, "") if self._unit.shown else name, param

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """By the names that they have without units."""
        for name, buffer in super().named_buffers(*args, **kwargs):
            yield name.replace(_PREFIX, "") if self._unit.shown else name, buffer

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Takes what state_dict gave, of any number of ranks; whole tensors or DTensors."""
        from tenon.distributed.tensor import DTensor

        if self._settings.state_dict_type is StateDictType.LOCAL_STATE_DICT:
            return super().load_state_dict(state_dict, *args, **kwargs)
        whole = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in state_dict.items()}
        with self.summon_full_params(self, writeback=True):
            return super().load_state_dict(whole, *args, **kwargs)

    @staticmethod
    def _with_prefix(module: Any, state: Any, prefix: str, *args: Any) -> None:
        inner = prefix + _PREFIX
        for key in [k for k in state if k.startswith(prefix) and not k.startswith(inner)]:
            state[inner + key[len(prefix) :]] = state.pop(key)

    # ---- The optimizer's state ----

    @staticmethod
    def optim_state_dict(
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any] | None = None,
        group: Any = None,
    ) -> dict[str, Any]:
        """The optimizer's state by names of whole parameters."""
        from tenon.distributed.fsdp import _optim_state

        given = optim.state_dict() if optim_state_dict is None else optim_state_dict
        return _optim_state.whole(model, optim, given)

    @staticmethod
    def full_optim_state_dict(
        model: Module, optim: Any, optim_input: Any = None, rank0_only: bool = True,
        group: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """optim_state_dict with whole tensors, on rank 0 unless said."""
        settings = StateDictType.FULL_STATE_DICT
        config = FullOptimStateDictConfig(rank0_only=rank0_only)
        with FullyShardedDataParallel.state_dict_type(model, settings, None, config):
            return FullyShardedDataParallel.optim_state_dict(model, optim)

    @staticmethod
    def optim_state_dict_to_load(
        model: Module,
        optim: Any,
        optim_state_dict: dict[str, Any],
        is_named_optimizer: bool = False,
        load_directly: bool = False,
        group: Any = None,
    ) -> dict[str, Any]:
        """What optim.load_state_dict takes, of what optim_state_dict gave."""
        from tenon.distributed.fsdp import _optim_state

        found = _optim_state.cut(model, optim, optim_state_dict)
        if load_directly:
            optim.load_state_dict(found)
        return found

    # ---- The optimizer's state by its earlier names ----

    @staticmethod
    def sharded_optim_state_dict(model: Module, optim: Any, group: Any = None) -> dict[str, Any]:
        """optim_state_dict with DTensors."""
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            return FullyShardedDataParallel.optim_state_dict(model, optim)

    @staticmethod
    def flatten_sharded_optim_state_dict(
        sharded_optim_state_dict: dict[str, Any], model: Module, optim: Any
    ) -> dict[str, Any]:
        """optim_state_dict_to_load of what sharded_optim_state_dict gave."""
        return FullyShardedDataParallel.optim_state_dict_to_load(
            model, optim, sharded_optim_state_dict
        )

    @staticmethod
    def shard_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any], model: Module, optim_input: Any = None,
        optim: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """optim_state_dict_to_load of what full_optim_state_dict gave, which every rank has."""
        from tenon.distributed.fsdp import _optim_state

        return _optim_state.cut(
            model, _optim_state.optimizer_of(model, optim_input, optim), full_optim_state_dict
        )

    @staticmethod
    def scatter_full_optim_state_dict(
        full_optim_state_dict: dict[str, Any] | None, model: Module, optim_input: Any = None,
        optim: Any = None, group: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """optim_state_dict_to_load of what full_optim_state_dict gave, which rank 0 has."""
        told = [full_optim_state_dict]
        distributed.broadcast_object_list(told, group=group, group_src=0)
        if told[0] is None:
            raise ValueError("scatter_full_optim_state_dict: rank 0 has no state")
        return FullyShardedDataParallel.shard_full_optim_state_dict(
            told[0], model, optim_input, optim
        )

    @staticmethod
    def rekey_optim_state_dict(
        optim_state_dict: dict[str, Any], optim_state_key_type: OptimStateKeyType, model: Module,
        optim_input: Any = None, optim: Any = None,
    ) -> dict[str, Any]:  # fmt: skip
        """A whole state with other keys: names of parameters, or their numbers. The model is not
        sharded."""
        from tenon.distributed.fsdp import _optim_state

        return _optim_state.rekeyed(
            optim_state_dict, optim_state_key_type, model,
            _optim_state.optimizer_of(model, optim_input, optim),
        )  # fmt: skip
