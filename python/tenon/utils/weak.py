"""Dictionaries whose keys are told apart by identity and may go away: `==` of tensors is a tensor,
so that weakref's own dictionaries cannot hold them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from tenon import Tensor

__all__ = [
    "TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary",
]  # fmt: skip


class WeakIdRef(weakref.ref):
    """A weak reference that is equal to another one of the same object."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        super().__init__(key, callback)
        self._id = id(key)

    def __call__(self) -> Any:
        """The object; None when it is gone."""
        return super().__call__()

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WeakIdRef):
            return NotImplemented
        mine, theirs = self(), other()
        return self is other if mine is None or theirs is None else mine is theirs


class WeakIdKeyDictionary(MutableMapping):
    """A dictionary by identity, whose entries go when their keys do."""

    def __init__(
        self, dict: Mapping[Any, Any] | Iterable[tuple[Any, Any]] | None = None,
        ref_type: type[WeakIdRef] = WeakIdRef,
    ) -> None:  # fmt: skip
        self.ref_type = ref_type
        self.data: Any = {}
        own = weakref.ref(self)

        def forget(key: Any) -> None:
            found = own()
            if found is not None:
                found.data.pop(key, None)

        self._forget = forget
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._forget)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # nothing that can be referred to weakly
            return False

    def __len__(self) -> int:
        return sum(ref() is not None for ref in list(self.data))

    def __iter__(self) -> Iterator[Any]:
        for ref in list(self.data):
            key = ref()
            if key is not None:
                yield key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def copy(self) -> WeakIdKeyDictionary:
        """Another dictionary of the same entries."""
        return type(self)(self)

    __copy__ = copy

    def keyrefs(self) -> list[Any]:
        """The references to the keys."""
        return list(self.data)


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"TensorWeakRef: expected a tensor, not {type(tensor).__name__}")
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Tensor | None:
        """The tensor; None when it is gone."""
        return self.ref()
