"""Samples into batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tenon
from tenon import Tensor

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # dtypes of NumPy that are no numbers
_Map = dict[Any, Callable[..., Any]]
_TEXTS = (str, bytes)  # NumPy's scalars of texts are of these, too


def _from_numpy(value: Any) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def default_convert(data: Any) -> Any:
    """NumPy arrays become tensors, also inside of lists and dictionaries."""
    if isinstance(data, Tensor):
        return data
    if _from_numpy(data):
        return data if data.dtype.kind in "SUO" else tenon.as_tensor(data)
    if isinstance(data, Mapping):
        return type(data)({key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, Sequence) and not isinstance(data, _TEXTS):
        values = [default_convert(value) for value in data]
        try:
            return type(data)(values)
        except TypeError:  # a sequence that is not made from a list, as a range
            return values
    return data


def _bad(found: Any) -> TypeError:
    return TypeError(
        "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {found}"
    )


def _arrays(batch: Sequence[Any]) -> Any:
    first = batch[0]
    if first.dtype.kind in "SUO":
        raise _bad(first.dtype)
    if first.shape == ():
        return tenon.as_tensor([item.item() for item in batch], dtype=tenon.as_tensor(first).dtype)
    return tenon.stack([tenon.as_tensor(item) for item in batch])


def collate_tensor_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Tensor:
    """Tensors of one shape, stacked."""
    return tenon.stack(list(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Tensor:
    """Numbers as float64."""
    return tenon.tensor(batch, dtype=tenon.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Tensor:
    """Whole numbers as int64."""
    return tenon.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """Texts stay a list."""
    return batch


# What default_collate does with a sample's type; programs add their own.
default_collate_fn_map: _Map = {
    Tensor: collate_tensor_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def collate(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """A batch of a list of samples; collate_fn_map says how types are put together, in its order,
    what it does not name is put together as default_collate does."""
    batch = batch if isinstance(batch, (list, tuple)) else list(batch)
    first = batch[0]
    for table in (collate_fn_map or {}, default_collate_fn_map):
        if type(first) in table:
            return table[type(first)](batch, collate_fn_map=collate_fn_map)
        if table is default_collate_fn_map and _from_numpy(first) and not isinstance(first, _TEXTS):
            return _arrays(batch)
        for kind, fn in table.items():
            if isinstance(first, kind):
                return fn(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        columns = {
            key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
            for key in first
        }
        try:
            return type(first)(columns)
        except TypeError:  # a mapping that is not made from a dictionary
            return columns
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(collate(c, collate_fn_map=collate_fn_map) for c in zip(*batch)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(c, collate_fn_map=collate_fn_map) for c in zip(*batch)]
        if isinstance(first, tuple):
            return columns
        try:
            return type(first)(columns)
        except TypeError:  # a sequence that is not made from a list
            return columns
    raise _bad(type(first))


def default_collate(batch: Any) -> Any:
    """Stacks tensors, arrays and numbers; goes into lists, tuples and dictionaries."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
