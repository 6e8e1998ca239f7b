"""The state of an optimizer whose parameters are flat and cut, by the names of whole parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tenon
from tenon import Tensor, distributed
from tenon.distributed.fsdp.api import OptimStateKeyType, StateDictType
from tenon.nn.modules.module import Module

__all__: list[str] = []


def _flats(model: Module) -> list[tuple[str, Any, Any]]:
    """(prefix of names, unit, its flat parameters) of all units in a model."""
    from tenon.distributed.fsdp.fully_sharded_data_parallel import (
        _PREFIX,
        FullyShardedDataParallel,
    )

    found = []
    for name, m in model.named_modules():
        if isinstance(m, FullyShardedDataParallel):
            prefix = f"{name}.".replace(_PREFIX, "") if name else ""
            found += [(prefix, m, f) for f in m._flats]
    return found


def _numbers(optim: Any) -> dict[int, Any]:
    """The number of each parameter in the optimizer's state dict, by id."""
    params = [p for g in optim.param_groups for p in g["params"]]
    return {id(p): i for i, p in enumerate(params)}


def _names(model: Module, optim: Any) -> dict[int, list[str]]:
    """The names of whole parameters behind each number of the optimizer's state dict."""
    numbers, found = _numbers(optim), {}
    seen = set()
    for prefix, _, f in _flats(model):
        for i, p in enumerate(f.params):
            own = [f.owned[i]] if f.keeps else f.owned
            found[numbers[id(p)]] = [prefix + o.name for o in own]
            seen.add(id(p))
    for name, p in model.named_parameters():
        if id(p) not in seen and id(p) in numbers:
            found[numbers[id(p)]] = [name]
    return found


def _is_cut(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


def whole(model: Module, optim: Any, given: dict[str, Any]) -> dict[str, Any]:
    """State by name, whole or as DTensors."""
    from tenon.distributed.fsdp.fully_sharded_data_parallel import FullyShardedDataParallel

    numbers, names = _numbers(optim), _names(model, optim)
    settings = FullyShardedDataParallel.get_state_dict_type(model)
    sharded = settings.state_dict_type is StateDictType.SHARDED_STATE_DICT
    config = settings.optim_state_dict_config
    state: dict[str, dict[str, Any]] = {}
    for prefix, m, f in _flats(model):
        mine = [given["state"].get(numbers[id(p)], {}) for p in f.params]
        keys = list(dict.fromkeys(k for s in mine for k in s))
        # A rank may have no element of a parameter, and no state.
        everyone: list[Any] = [None] * distributed.get_world_size(f.groups.cut or f.groups.same)
        # Of each key whether it is cut, and the value of what is not.
        told = [{k: (_is_cut(v), None if _is_cut(v) else v) for k, v in s.items()} for s in mine]
        distributed.all_gather_object(everyone, (keys, told), f.groups.cut or f.groups.same)
        keys = list(dict.fromkeys(k for ks, _ in everyone for k in ks))
        for key in keys:
            known = [s for _, per in everyone for s in per if key in s]
            if any(s[key][0] for s in known):
                dtype = f.dtype
                parts = [
                    s[key] if key in s else tenon.zeros(p.numel(), dtype=dtype, device=p.device)
                    for s, p in zip(mine, f.params, strict=True)
                ]
                flat = tenon.cat([p.reshape(-1) for p in parts])
                values: list[Any] = f.gathered(flat)
                if sharded:
                    values = [m._as_dtensor(v) for v in values]
            else:
                values = [known[0][key][1]] * len(f.owned)
                if f.keeps:
                    values = [
                        next((per[i][key][1] for _, per in everyone if key in per[i]), values[i])
                        for i in range(len(f.owned))
                    ]
            for own, v in zip(f.owned, values, strict=True):
                if isinstance(v, Tensor) and getattr(config, "offload_to_cpu", False):
                    v = v.cpu()
                state.setdefault(prefix + own.name, {})[key] = v
    known_names = {n for some in names.values() for n in some}
    for number, some in names.items():
        if number in given["state"] and some[0] not in state and some[0] in known_names:
            state[some[0]] = given["state"][number]
    groups = [
        {**{k: v for k, v in g.items() if k != "params"},
         "params": [n for p in g["params"] for n in names[p]]}
        for g in given["param_groups"]
    ]  # fmt: skip
    if getattr(config, "rank0_only", False) and distributed.get_rank() != 0:
        return {}
    return {"state": state, "param_groups": groups}


def cut(model: Module, optim: Any, given: dict[str, Any]) -> dict[str, Any]:
    """State by number, as the parts of this rank, of a state by name."""
    from tenon.distributed.tensor import DTensor

    numbers, names = _numbers(optim), _names(model, optim)
    by_name = given["state"]
    state: dict[int, dict[str, Any]] = {}
    done: set[int] = set()
    for prefix, _, f in _flats(model):
        done |= {numbers[id(p)] for p in f.params}
        found = [by_name.get(prefix + o.name) for o in f.owned]
        if all(s is None for s in found):
            continue
        keys = list(dict.fromkeys(k for s in found if s for k in s))
        for key in keys:
            values = [None if s is None else s.get(key) for s in found]
            if any(_is_cut(v) for v in values):
                where = next(v.device for v in values if isinstance(v, Tensor))
                wholes = [
                    tenon.zeros(shape, dtype=f.dtype, device=where) if v is None
                    else v.full_tensor() if isinstance(v, DTensor) else v
                    for v, shape in zip(values, f.shapes, strict=True)
                ]  # fmt: skip
                mine = f._cut(wholes)
                parts = f._parts(mine) if f.keeps else [mine]
            elif f.keeps:
                parts = values
            else:
                parts = [next(v for v in values if v is not None)]
            for p, part in zip(f.params, parts, strict=True):
                if part is not None:
                    state.setdefault(numbers[id(p)], {})[key] = part
    for number, some in names.items():
        if number not in done and some[0] in by_name:
            state[number] = by_name[some[0]]
    groups, at = [], 0
    for own, saved in zip(optim.param_groups, given["param_groups"], strict=True):
        count = len(own["params"])
        groups.append({**{k: v for k, v in saved.items() if k != "params"},
                       "params": list(range(at, at + count))})  # fmt: skip
        at += count
    return {"state": state, "param_groups": groups}


@dataclass
class _Groups:
    """What an optimizer was made of, where it is not there itself."""

    param_groups: list[dict[str, Any]]


def optimizer_of(model: Module, optim_input: Any, optim: Any) -> Any:
    """The optimizer, or the groups that it was made of: all parameters, unless said."""
    if optim is not None:
        if optim_input is not None:
            raise ValueError("expected optim_input or optim, got both")
        return optim
    given = list(model.parameters() if optim_input is None else optim_input)
    grouped = given if given and isinstance(given[0], dict) else [{"params": given}]
    return _Groups([{**g, "params": list(g["params"])} for g in grouped])


def rekeyed(state: dict[str, Any], kind: OptimStateKeyType, model: Module, optim: Any) -> Any:
    """See FullyShardedDataParallel.rekey_optim_state_dict."""
    if not isinstance(kind, OptimStateKeyType):
        raise TypeError(f"rekey_optim_state_dict: expected an OptimStateKeyType, got {kind!r}")
    numbers = _numbers(optim)
    number_of = {n: numbers[id(p)] for n, p in model.named_parameters() if id(p) in numbers}
    by_name = kind is OptimStateKeyType.PARAM_NAME
    keys: dict[Any, Any] = {i: n for n, i in number_of.items()} if by_name else number_of
    present = [*state["state"], *(p for g in state["param_groups"] for p in g["params"])]
    if present and all(type(k) is (str if by_name else int) for k in present):
        return state
    missing = [k for k in present if k not in keys]
    if missing:
        raise ValueError(f"rekey_optim_state_dict: the model has no parameter {missing[0]!r}")
    return {
        "state": {keys[k]: v for k, v in state["state"].items()},
        "param_groups": [
            {**g, "params": [keys[p] for p in g["params"]]} for g in state["param_groups"]
        ],
    }
