"""State of models and optimizers by the names of parameters, whatever wraps the model: DTensors
where it is cut, or whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed.fsdp import FullyShardedDataParallel, StateDictType
from tenon.distributed.fsdp.api import FullOptimStateDictConfig, FullStateDictConfig
from tenon.nn.modules.module import Module
from tenon.nn.parallel import DistributedDataParallel

__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict",
    "set_model_state_dict", "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip

_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


@dataclass
class StateDictOptions:
    """full_state_dict: whole tensors instead of DTensors; cpu_offload: on the CPU, and of whole
    ones on rank 0 alone; broadcast_from_rank0: rank 0 has them, the others nothing."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"
    _extra: dict[str, Any] = field(default_factory=dict)


def _clean(model: Module) -> dict[str, str]:
    """The name without wrappers of each module's name."""
    found = {"": ""}
    for name, _ in model.named_modules(remove_duplicate=False):
        if not name:
            continue
        parent, _, own = name.rpartition(".")
        holder = model.get_submodule(parent) if parent else model
        inside = own in _WRAPPERS or (
            own == "module" and isinstance(holder, DistributedDataParallel)
        )
        before = found[parent]
        found[name] = before if inside else f"{before}.{own}" if before else own
    return found


def _key(names: dict[str, str], key: str) -> str:
    """A name in a state dict, without wrappers."""
    parent, _, own = key.rpartition(".")
    while parent and parent not in names:
        parent, _, more = parent.rpartition(".")
        own = f"{more}.{own}"
    before = names.get(parent, parent)
    return f"{before}.{own}" if before else own


def _sharded(model: Module) -> bool:
    return any(isinstance(m, FullyShardedDataParallel) for m in model.modules())


def _finished(value: Any, options: StateDictOptions) -> Any:
    from tenon.distributed.tensor import DTensor

    if isinstance(value, DTensor) and options.full_state_dict:
        value = value.full_tensor()
    if isinstance(value, Tensor) and options.cpu_offload:
        value = value.cpu()
    return value


def _first_only(options: StateDictOptions) -> bool:
    """Whether the other ranks get nothing."""
    return (options.full_state_dict and options.cpu_offload and distributed.is_initialized()
            and distributed.get_rank() != 0)  # fmt: skip


# ---- Models --------------------------------------------------------------------------------------


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The state of a model by the names that it has without wrappers."""
    options = options or StateDictOptions()
    names = _clean(model)
    if _sharded(model):
        kind = (StateDictType.FULL_STATE_DICT if options.full_state_dict
                else StateDictType.SHARDED_STATE_DICT)  # fmt: skip
        config = FullStateDictConfig() if options.full_state_dict else None
        with FullyShardedDataParallel.state_dict_type(model, kind, config):
            raw = model.state_dict()
    else:
        raw = model.state_dict()
    state = {_key(names, k): _finished(v, options) for k, v in raw.items()}
    if options.ignore_frozen_params:
        for name, p in model.named_parameters():
            if not p.requires_grad:
                state.pop(_key(names, name), None)
    if submodules:
        state = _of_parts(model, names, submodules, state, options)
    return {} if _first_only(options) else state


def _of_parts(
    model: Module, names: dict[str, str], parts: set[Module], state: dict[str, Any],
    options: StateDictOptions,
) -> dict[str, Any]:  # fmt: skip
    found = {}
    for name, m in model.named_modules():
        if m not in parts:
            continue
        prefix = names[name] + "."
        for k, v in state.items():
            if k.startswith(prefix):
                found[k if options.keep_submodule_prefixes else k[len(prefix) :]] = v
    return found


def _from_first(state: dict[str, Any]) -> dict[str, Any]:
    """Rank 0's state on all ranks."""
    told: list[Any] = [state if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(told, src=0)
    return told[0]


def set_model_state_dict(
    model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> Any:
    """Takes what get_model_state_dict gave."""
    from tenon.distributed.tensor import DTensor, distribute_tensor

    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        if not options.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")
        model_state_dict = _from_first(model_state_dict)
    names = _clean(model)
    if _sharded(model):
        own = dict(model.state_dict())
    else:
        own = model.state_dict()
    given = {}
    taken = set()
    for key, mine in own.items():
        clean = _key(names, key)
        if clean not in model_state_dict:
            continue
        taken.add(clean)
        value = model_state_dict[clean]
        if (
            isinstance(mine, DTensor)
            and isinstance(value, Tensor)
            and not isinstance(value, DTensor)
        ):
            value = distribute_tensor(
                value.detach().to(mine.device), mine.device_mesh, mine.placements,
                src_data_rank=None,
            )  # fmt: skip
        given[key] = value
    given.update({k: v for k, v in model_state_dict.items() if k not in taken})
    return model.load_state_dict(given, strict=options.strict)


# ---- Optimizers ----------------------------------------------------------------------------------


def _optimizers(given: Any) -> list[Any]:
    return [given] if isinstance(given, tenon.optim.Optimizer) else list(given)


def _start(optimizer: Any) -> None:
    """Makes the state of an optimizer that has not stepped yet; no parameter changes by it."""
    if optimizer.state:
        return
    params = [p for g in optimizer.param_groups for p in g["params"]]
    if any(p.grad is not None for p in params):
        return
    rates = [g["lr"] for g in optimizer.param_groups]
    decays = [g.get("weight_decay") for g in optimizer.param_groups]
    for p in params:
        if p.requires_grad:
            p.grad = tenon.zeros_like(p)
    for g in optimizer.param_groups:
        g["lr"] = tenon.tensor(0.0) if isinstance(g["lr"], Tensor) else 0.0
        if "weight_decay" in g:
            g["weight_decay"] = 0.0
    optimizer.step(closure=None)
    for g, rate, decay in zip(optimizer.param_groups, rates, decays, strict=True):
        g["lr"] = rate
        if "weight_decay" in g:
            g["weight_decay"] = decay
    optimizer.zero_grad(set_to_none=True)


def _named(model: Module) -> dict[int, str]:
    names = _clean(model)
    return {id(p): _key(names, n) for n, p in model.named_parameters()}


def get_optimizer_state_dict(
    model: Module, optimizers: Any, *, submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The state of optimizers by the names of parameters: {"state": {name: ...},
    "param_groups": [...]}."""
    options = options or StateDictOptions()
    result: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _optimizers(optimizers):
        _start(optimizer)
        if _sharded(model):
            kind = (StateDictType.FULL_STATE_DICT if options.full_state_dict
                    else StateDictType.SHARDED_STATE_DICT)  # fmt: skip
            config = FullOptimStateDictConfig(False) if options.full_state_dict else None
            with FullyShardedDataParallel.state_dict_type(model, kind, None, config):
                told = FullyShardedDataParallel.optim_state_dict(model, optimizer)
        else:
            told = _by_name(model, optimizer)
        for name, values in told["state"].items():
            result["state"][name] = {k: _finished(v, options) for k, v in values.items()}
        result["param_groups"] += told["param_groups"]
    if _first_only(options):
        return {}
    return _flattened(result) if options.flatten_optimizer_state_dict else result


def _by_name(model: Module, optimizer: Any) -> dict[str, Any]:
    named, raw = _named(model), optimizer.state_dict()
    params = [p for g in optimizer.param_groups for p in g["params"]]
    strangers = [i for i, p in enumerate(params) if id(p) not in named]
    if strangers:
        raise RuntimeError(
            f"get_optimizer_state_dict: parameter {strangers[0]} of the optimizer is none of "
            "the model"
        )
    groups = [
        {**{k: v for k, v in g.items() if k != "params"},
         "params": [named[id(params[i])] for i in g["params"]]}
        for g in raw["param_groups"]
    ]  # fmt: skip
    return {"state": {named[id(params[i])]: v for i, v in raw["state"].items()},
            "param_groups": groups}  # fmt: skip


def _flattened(state: dict[str, Any]) -> dict[str, Any]:
    found = {
        f"state.{name}.{key}": v for name, values in state["state"].items()
        for key, v in values.items()
    }  # fmt: skip
    for group in state["param_groups"]:
        for name in group["params"]:
            found.update({
                f"param_groups.{name}.{k}": v for k, v in group.items() if k != "params"
            })  # fmt: skip
    return found


def _unflattened(flat: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    """A flattened state in the shape of this one."""
    state = {
        name: {k: flat.get(f"state.{name}.{k}", v) for k, v in values.items()}
        for name, values in mine["state"].items()
    }
    groups = [
        {**{k: flat.get(f"param_groups.{g['params'][0]}.{k}", v) if g["params"] else v
            for k, v in g.items() if k != "params"}, "params": g["params"]}
        for g in mine["param_groups"]
    ]  # fmt: skip
    return {"state": state, "param_groups": groups}


def set_optimizer_state_dict(
    model: Module, optimizers: Any, optim_state_dict: dict[str, Any], *,
    options: StateDictOptions | None = None,
) -> None:  # fmt: skip
    """Takes what get_optimizer_state_dict gave."""
    from tenon.distributed.tensor import DTensor, distribute_tensor

    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        optim_state_dict = _from_first(optim_state_dict)
    for optimizer in _optimizers(optimizers):
        _start(optimizer)
        given = optim_state_dict
        if "state" not in given:
            given = _unflattened(given, get_optimizer_state_dict(model, optimizer))
        if _sharded(model):
            found = FullyShardedDataParallel.optim_state_dict_to_load(
                model, optimizer, _in_order(given, model, optimizer)
            )  # fmt: skip
            optimizer.load_state_dict(found)
            continue
        named = _named(model)
        groups = {n: g for g in given["param_groups"] for n in g["params"]}
        state: dict[int, Any] = {}
        packed, at = [], 0
        for own in optimizer.param_groups:
            names = [named[id(p)] for p in own["params"]]
            missing = [n for n in names if n not in groups]
            if missing:
                raise RuntimeError(f"set_optimizer_state_dict: there is no group of '{missing[0]}'")
            for i, (p, name) in enumerate(zip(own["params"], names, strict=True)):
                values = given["state"].get(name)
                if values is None:
                    continue
                state[at + i] = {
                    k: distribute_tensor(v, p.device_mesh, p.placements, src_data_rank=None)
                    if isinstance(p, DTensor) and isinstance(v, Tensor)
                    and not isinstance(v, DTensor) and v.ndim else v
                    for k, v in values.items()
                }  # fmt: skip
            options_of = (
                {k: v for k, v in groups[names[0]].items() if k != "params"} if names else {}
            )
            packed.append({**options_of, "params": list(range(at, at + len(names)))})
            at += len(names)
        optimizer.load_state_dict({"state": state, "param_groups": packed})


def _in_order(given: dict[str, Any], model: Module, optimizer: Any) -> dict[str, Any]:
    """Groups as the optimizer has them."""
    if len(given["param_groups"]) == len(optimizer.param_groups):
        return given
    own = FullyShardedDataParallel.optim_state_dict(model, optimizer)["param_groups"]
    groups = {n: g for g in given["param_groups"] for n in g["params"]}
    return {"state": given["state"], "param_groups": [groups[g["params"][0]] for g in own]}


def get_state_dict(
    model: Module, optimizers: Any, *, submodules: set[Module] | None = None,
    options: StateDictOptions | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """(get_model_state_dict, get_optimizer_state_dict)"""
    return (
        get_model_state_dict(model, submodules=submodules, options=options),
        get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options),
    )


def set_state_dict(
    model: Module, optimizers: Any, *, model_state_dict: dict[str, Any],
    optim_state_dict: dict[str, Any], options: StateDictOptions | None = None,
) -> Any:  # fmt: skip
    """Takes what get_state_dict gave."""
    result = None
    if model_state_dict:
        result = set_model_state_dict(model, model_state_dict, options=options)
    if optim_state_dict:
        set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return result
