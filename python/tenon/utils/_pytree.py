"""Trees of containers with anything at their leaves: taken apart and put together again.

Tuples, lists, dicts, named tuples, OrderedDict, defaultdict, deque and Size are nodes, and
whatever is registered; all else is a leaf, None too.
"""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenon._C import Size

Context = PyTree = Any


# ---- Paths ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SequenceKey:
    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


KeyPath = tuple[Any, ...]


def keystr(kp: KeyPath) -> str:
    """A path as text: "['layer'][0]"."""
    return "".join(str(k) for k in kp)


def key_get(obj: Any, kp: KeyPath) -> Any:
    """What lies at a path."""
    for k in kp:
        obj = k.get(obj)
    return obj


# ---- Kinds of nodes ------------------------------------------------------------------------------


class NodeDef(NamedTuple):
    """How a type is taken apart and put together; `name` stands for it in files."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Context]]
    unflatten_fn: Callable[[Iterable[Any], Context], Any]
    keys_fn: Callable[[Any, Context], list[Any]] | None
    name: str | None
    to_dumpable: Callable[[Context], Any]
    from_dumpable: Callable[[Any], Context]


SUPPORTED_NODES: dict[type, NodeDef] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Context]],
    unflatten_fn: Callable[[Iterable[Any], Context], Any],
    *,
    serialized_type_name: str | None = None,
    to_dumpable_context: Callable[[Context], Any] | None = None,
    from_dumpable_context: Callable[[Any], Context] | None = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Context]] | None = None,
) -> None:
    """Makes a class a node: `flatten_fn(x)` gives its children and what else it is made of."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(
            f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or "
            "registered."
        )

    def keys(obj: Any, context: Context) -> list[Any]:
        return [k for k, _ in flatten_with_keys_fn(obj)[0]]

    SUPPORTED_NODES[cls] = NodeDef(
        cls, flatten_fn, unflatten_fn, None if flatten_with_keys_fn is None else keys,
        serialized_type_name,
        to_dumpable_context or json.dumps, from_dumpable_context or json.loads,
    )  # fmt: skip


_register_pytree_node = register_pytree_node  # the name that packages know from before


def _add(
    cls: type, name: str, flatten: Any, unflatten: Any, keys: Any, dump: Any, load: Any
) -> None:
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten, unflatten, keys, name, dump, load)


def register_constant(cls: type) -> None:
    """Makes instances of a class part of what a tree is made of: they have no leaves."""
    if cls.__eq__ is object.__eq__:
        raise TypeError(
            f"register_constant(cls) expects `cls` to have a non-default `__eq__`, got {cls}"
        )
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x)


def _positions(obj: Any, context: Context) -> list[Any]:
    return [SequenceKey(i) for i in range(len(obj))]


def _path_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _found_at(module: str, names: str) -> type:
    """A class that the program has: texts come from files, which import nothing and run nothing."""
    found: Any = sys.modules.get(module)
    for name in names.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    if not isinstance(found, type):
        raise TypeError(f"{names} of {module} is no class of a module that is imported")
    return found


def _class_at(path: str) -> type:
    module, _, names = path.partition(":")
    found = _found_at(module, names)
    if not is_namedtuple_class(found):
        raise TypeError(f"{path} is no named tuple")
    return found


# What a text may name as that which makes the missing values of a dict, and a look at it calls.
_FACTORIES = (
    int, float, complex, bool, str, bytes, list, tuple, dict, set, frozenset, OrderedDict, deque,
    type(None),
)  # fmt: skip


def _default_dump(context: Context) -> Any:
    factory, keys = context
    kind = type(None) if factory is None else factory
    return {
        "default_factory_module": kind.__module__,
        "default_factory_name": kind.__qualname__,
        "dict_context": keys,
    }


def _default_load(data: Any) -> Context:
    wanted = data["default_factory_module"], data["default_factory_name"]
    for factory in _FACTORIES:
        if wanted == (factory.__module__, factory.__qualname__):
            return [None if factory is type(None) else factory, data["dict_context"]]
    raise TypeError(f"{wanted[1]} of {wanted[0]} is none that a text may name as a default")


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], Context]:
    """A dict's values, and its keys. PyTorch's name, for classes that are registered as dicts."""
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], Context]:
    """A dict's values with the paths to them, and its keys."""
    return [(MappingKey(k), v) for k, v in d.items()], list(d)


def _dict_unflatten(values: Iterable[Any], context: Context) -> dict[Any, Any]:
    """The dict of these values and keys."""
    return dict(zip(context, values, strict=True))


def _list_flatten(d: list[Any]) -> tuple[list[Any], Context]:
    """A list's values; it needs nothing else."""
    return list(d), None


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[tuple[Any, Any]], Context]:
    """A list's values with the paths to them."""
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _list_unflatten(values: Iterable[Any], context: Context) -> list[Any]:
    """The list of these values."""
    return list(values)


def _text(cls: type, flatten: Any, unflatten: Any, keys: Any) -> None:
    """Adds a kind of nodes whose contexts are written as texts."""
    _add(cls, f"{cls.__module__}.{cls.__name__}", flatten, unflatten, keys, json.dumps, json.loads)


_text(tuple, lambda x: (list(x), None), lambda v, _: tuple(v), _positions)
_text(list, _list_flatten, _list_unflatten, _positions)
_add(  # a tuple, once it was taken apart
    Size, "torch.Size", lambda x: (list(x), None), lambda v, _: tuple(v), _positions,
    json.dumps, json.loads,
)  # fmt: skip
_text(dict, _dict_flatten, _dict_unflatten, lambda x, keys: [MappingKey(k) for k in keys])
_text(
    OrderedDict,
    _dict_flatten,
    lambda v, keys: OrderedDict(zip(keys, v, strict=True)),
    lambda x, keys: [MappingKey(k) for k in keys],
)
_text(deque, lambda x: (list(x), x.maxlen), lambda v, n: deque(v, maxlen=n), _positions)
_add(
    defaultdict,
    "collections.defaultdict",
    lambda x: (list(x.values()), [x.default_factory, list(x)]),
    lambda v, c: defaultdict(c[0], zip(c[1], v, strict=True)),
    lambda x, c: [MappingKey(k) for k in c[1]],
    _default_dump,
    _default_load,
)
_NAMED = NodeDef(
    tuple,
    lambda x: (list(x), type(x)),
    lambda v, cls: cls(*v),
    lambda x, cls: [GetAttrKey(f) for f in cls._fields],
    "collections.namedtuple",
    _path_of,
    _class_at,
)


def is_namedtuple_class(cls: type) -> bool:
    fields = getattr(cls, "_fields", None)
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(fields, tuple)


def is_namedtuple(obj: Any) -> bool:
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether it is a type of results such as those of max(dim)."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields")


def is_structseq_instance(obj: object) -> bool:
    """Whether it is a result such as those of max(dim)."""
    return is_structseq_class(type(obj))


# What operators with several results return; in files it is a tuple.
_RESULTS = NodeDef(
    tuple, lambda x: (list(x), type(x)), lambda v, cls: cls(v), _positions, "builtins.tuple",
    lambda cls: "null", json.loads,
)  # fmt: skip


def _node_of_type(cls: Any) -> NodeDef | None:
    known = SUPPORTED_NODES.get(getattr(cls, "_is_node_of", cls))
    if known is None and is_structseq_class(cls):
        return _RESULTS
    return _NAMED if known is None and is_namedtuple_class(cls) else known


def _get_node_type(tree: Any) -> Any:
    """The class under which a node is registered: `namedtuple` for all of those."""
    if is_namedtuple(tree) and type(tree) not in SUPPORTED_NODES:
        return namedtuple
    return getattr(type(tree), "_is_node_of", type(tree))


def _node_of(tree: Any) -> NodeDef | None:
    return _node_of_type(type(tree))


# ---- Structures ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TreeSpec:
    """The shape of a tree: its node's type, what that is made of, and the children's shapes."""

    type: Any
    context: Context
    children_specs: list[TreeSpec]

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    @property
    def num_leaves(self) -> int:
        return 1 if self.is_leaf() else sum(c.num_leaves for c in self.children_specs)

    @property
    def num_nodes(self) -> int:
        return 1 + sum(c.num_nodes for c in self.children_specs)

    def children(self) -> list[TreeSpec]:
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        return self.children_specs[index]

    def is_leaf(self) -> bool:
        return self.type is None

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec)
            and self.type == other.type
            and self.context == other.context
            and self.children_specs == other.children_specs
        )

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_nodes))

    def __repr__(self) -> str:
        return self._text("  ")

    def _text(self, indent: str) -> str:
        if self.is_leaf():
            return "*"
        inside = f",\n{indent}".join(c._text(indent + "  ") for c in self.children_specs)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{inside}])"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The parts of `tree` that stand where this shape has leaves; ValueError: it has others."""
        if self.is_leaf():
            return [tree]
        node, kind = _node_of(tree), type(tree)
        dicts = self.type in _DICTS and kind in _DICTS
        if node is None or (kind is not self.type and not dicts):
            raise ValueError(f"expected a {self.type.__name__}, and got {kind}: {tree!r}")
        parts, context = node.flatten_fn(tree)
        keys = _keys_of(self)
        if dicts and set(tree) == set(keys):
            parts = [tree[k] for k in keys]
        elif dicts or len(parts) != self.num_children or (kind is not deque and context != keys):
            raise ValueError(f"expected {self}, and got another {kind.__name__}: {tree!r}")
        return [
            leaf
            for part, spec in zip(parts, self.children_specs, strict=True)
            for leaf in spec.flatten_up_to(part)
        ]


_DICTS = (dict, OrderedDict, defaultdict)


def _keys_of(spec: TreeSpec) -> Any:
    return spec.context[1] if spec.type is defaultdict else spec.context


def LeafSpec() -> TreeSpec:
    """The shape of a leaf."""
    return _LEAF


_LEAF = TreeSpec(None, None, [])


# ---- Apart and together --------------------------------------------------------------------------

IsLeaf = Callable[[Any], bool] | None


def _flatten(tree: Any, leaves: list[Any], is_leaf: IsLeaf) -> TreeSpec:
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        leaves.append(tree)
        return _LEAF
    parts, context = node.flatten_fn(tree)
    kind = getattr(type(tree), "_is_node_of", type(tree))
    return TreeSpec(kind, context, [_flatten(p, leaves, is_leaf) for p in parts])


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """The leaves, and the shape that puts them together again."""
    leaves: list[Any] = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def _unflatten(leaves: Any, spec: TreeSpec) -> Any:
    if spec.is_leaf():
        return next(leaves)
    node = _node_of_type(spec.type)
    return node.unflatten_fn([_unflatten(leaves, c) for c in spec.children_specs], spec.context)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of that shape with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but "
            f"got item of type {type(treespec)}."
        )
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec "
            f"refers to a pytree that holds {treespec.num_leaves} items ({treespec})."
        )
    return _unflatten(iter(leaves), treespec)


def _broadcast_to_and_flatten(
    tree: Any, treespec: TreeSpec, is_leaf: IsLeaf = None
) -> list[Any] | None:
    """A leaf of `tree` for each leaf of the shape; a leaf that stands where the shape has a node
    serves all below. None: the shapes do not fit."""
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if treespec.is_leaf() or node is None:
        return [tree] * treespec.num_leaves if node is None else None
    parts, context = node.flatten_fn(tree)
    if (type(tree), context, len(parts)) != (
        treespec.type, treespec.context, treespec.num_children
    ):  # fmt: skip
        return None
    found = [
        _broadcast_to_and_flatten(part, spec, is_leaf)
        for part, spec in zip(parts, treespec.children_specs, strict=True)
    ]
    return None if None in found else [leaf for leaves in found for leaf in leaves]


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list[Any]:
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: IsLeaf = None) -> Iterable[Any]:
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> TreeSpec:
    return tree_flatten(tree, is_leaf)[1]


def tree_map(fn: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree with fn of each leaf, and of what stands in its place in `rests`."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten(map(fn, leaves, *others))


def tree_map_(fn: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None) -> Any:
    """Calls fn as tree_map does, and returns the tree itself."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for parts in zip(leaves, *[spec.flatten_up_to(r) for r in rests], strict=True):
        fn(*parts)
    return tree


def _tester(kind: Any) -> Callable[[Any], bool]:
    if isinstance(kind, type | tuple) or hasattr(kind, "__args__"):
        return lambda x: isinstance(x, kind)
    if not callable(kind):
        raise TypeError(f"Argument must be a type, a tuple of types, or a callable, not {kind!r}")
    return kind


def map_only(kind: Any, /) -> Callable[[Callable[..., Any]], Callable[[Any], Any]]:
    """A decorator: the function for what is of that type, all else as it is."""
    test = _tester(kind)
    return lambda fn: lambda x: fn(x) if test(x) else x


def tree_map_only(kind: Any, /, fn: Callable[..., Any], tree: Any, is_leaf: IsLeaf = None) -> Any:
    return tree_map(map_only(kind)(fn), tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, /, fn: Callable[..., Any], tree: Any, is_leaf: IsLeaf = None) -> Any:
    return tree_map_(map_only(kind)(fn), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: IsLeaf = None) -> bool:
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kind: Any, /, pred: Any, tree: Any, is_leaf: IsLeaf = None) -> bool:
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kind))


def tree_any_only(kind: Any, /, pred: Any, tree: Any, is_leaf: IsLeaf = None) -> bool:
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kind))


def tree_is_leaf(tree: Any, is_leaf: IsLeaf = None) -> bool:
    return (is_leaf is not None and is_leaf(tree)) or _node_of(tree) is None


# ---- With paths ----------------------------------------------------------------------------------


def _walk(tree: Any, path: KeyPath, found: list[Any], is_leaf: IsLeaf) -> None:
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        found.append((path, tree))
        return
    parts, context = node.flatten_fn(tree)
    if node.keys_fn is None:
        raise ValueError(
            f"{type(tree)} has no paths: it is registered without flatten_with_keys_fn"
        )
    for key, part in zip(node.keys_fn(tree, context), parts, strict=True):
        _walk(part, (*path, key), found, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: IsLeaf = None) -> list[tuple[KeyPath, Any]]:
    found: list[tuple[KeyPath, Any]] = []
    _walk(tree, (), found, is_leaf)
    return found


def tree_flatten_with_path(
    tree: Any, is_leaf: IsLeaf = None
) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(
    fn: Callable[..., Any], tree: Any, *rests: Any, is_leaf: IsLeaf = None
) -> Any:
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(r) for r in rests]
    return spec.unflatten(fn(*parts) for parts in zip(*zip(*pairs), *others, strict=True))


# ---- Files ---------------------------------------------------------------------------------------


def _dump(spec: TreeSpec) -> Any:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    node = _node_of_type(spec.type)
    if node.name is None:
        raise NotImplementedError(
            f"Serializing {spec.type} in pytree is not supported: register it with "
            "a serialized_type_name"
        )
    children = [_dump(c) for c in spec.children_specs]
    return {
        "type": node.name, "context": node.to_dumpable(spec.context), "children_spec": children
    }  # fmt: skip


def _load(data: Any) -> TreeSpec:
    if data["type"] is None:
        return _LEAF
    nodes = {n.name: n for n in (*SUPPORTED_NODES.values(), _NAMED)}
    if data["type"] not in nodes:
        raise NotImplementedError(f"'{data['type']}' is not registered as a pytree node")
    node = nodes[data["type"]]
    context = node.from_dumpable(data["context"])
    kind = context if node is _NAMED else node.type
    return TreeSpec(kind, context, [_load(c) for c in data["children_spec"]])


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A shape as text."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"treespec_dumps: a TreeSpec is expected, not {type(treespec)}")
    return json.dumps([_known(1 if protocol is None else protocol), _dump(treespec)])


def _known(protocol: int) -> int:
    if protocol != 1:
        raise ValueError(f"Unknown protocol {protocol} of a TreeSpec; known: 1")
    return protocol


def treespec_loads(serialized: str) -> TreeSpec:
    """The shape of a text."""
    protocol, data = json.loads(serialized)
    _known(protocol)
    return _load(data)


def treespec_pprint(treespec: TreeSpec) -> str:
    return repr(tree_unflatten(["*"] * treespec.num_leaves, treespec)).replace("'*'", "*")
