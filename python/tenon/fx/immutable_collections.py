"""Lists and dictionaries among a node's arguments: what changed one would not be known to the nodes
that it names."""

from __future__ import annotations

from typing import Any, NoReturn

from tenon.utils._pytree import register_pytree_node

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to "
        "modify the kwargs or args of a fx.Node object,\ninstead create a new copy of it and "
        "assign the copy to the node:\n\n    new_args = ...  # copy and mutate args\n    "
        "node.args = new_args"
    )


class immutable_list(list[Any]):  # noqa: N801 - PyTorch's name
    """A list that stays as it is."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):  # noqa: N801 - PyTorch's name
    """A dictionary that stays as it is."""

    __delitem__ = __ior__ = __setitem__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self.items()),)


register_pytree_node(
    immutable_list, lambda x: (list(x), None), lambda values, _: immutable_list(values)
)
register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), list(x)),
    lambda values, keys: immutable_dict(zip(keys, values, strict=True)),
)
