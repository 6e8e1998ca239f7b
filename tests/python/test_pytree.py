"""Trees of containers: apart, together, mapped, with paths, as text."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import tenon as tn
from tenon.utils import _pytree as tree

Point = namedtuple("Point", "x y")
TREES: list[Any] = [
    1,
    None,
    (),
    [1, (2, [3, {}])],
    {"b": 1, "a": [2, (3,)]},
    OrderedDict([("z", 1), ("a", {"k": 2})]),
    defaultdict(list, {"a": [1, 2]}),
    deque([1, (2,)], maxlen=5),
    Point(1, {"y": (2, 3)}),
]


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_apart_and_together(value: Any) -> None:
    leaves, spec = tree.tree_flatten(value)
    again = tree.tree_unflatten(leaves, spec)
    assert again == value and type(again) is type(value)
    assert spec.num_leaves == len(leaves)
    assert spec == tree.tree_structure(again)
    doubled = tree.tree_map(lambda x: None if x is None else x * 2, value)
    assert tree.tree_leaves(doubled) == [None if x is None else x * 2 for x in leaves]


@pytest.mark.parametrize("value", [t for t in TREES if type(t) is not defaultdict], ids=repr)
def test_structures_as_text(value: Any) -> None:
    spec = tree.tree_structure(value)
    assert tree.treespec_loads(tree.treespec_dumps(spec)) == spec


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_paths_lead_to_leaves(value: Any) -> None:
    for path, leaf in tree.tree_leaves_with_path(value):
        assert tree.key_get(value, path) is leaf


def test_sizes_are_nodes_that_become_tuples() -> None:
    leaves, spec = tree.tree_flatten({"a": tn.Size([2, 3])})
    assert leaves == [2, 3]
    made = tree.tree_unflatten(leaves, spec)["a"]
    assert made == (2, 3) and type(made) is tuple
    assert '"torch.Size"' in tree.treespec_dumps(spec)
    assert tree.treespec_loads(tree.treespec_dumps(spec)) == spec
    assert tree.tree_leaves_with_path(tn.Size([2]))[0] == ((tree.SequenceKey(0),), 2)


def test_order_of_dicts_is_theirs() -> None:
    assert tree.tree_leaves({"b": 1, "a": 2}) == [1, 2]
    spec = tree.tree_structure({"b": 1, "a": 2})
    assert spec.flatten_up_to({"a": 20, "b": 10}) == [10, 20]


def test_maps_over_several() -> None:
    assert tree.tree_map(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]}) == {"x": [11, 22]}
    with pytest.raises(ValueError, match="list"):
        tree.tree_map(lambda a, b: a, {"x": [1, 2]}, {"x": [10, 20, 30]})
    assert tree.tree_map_only(int, lambda x: -x, [1, "a", 2.0]) == [-1, "a", 2.0]
    assert tree.tree_map(len, [(1, 2), (3,)], is_leaf=lambda x: isinstance(x, tuple)) == [2, 1]
    assert tree.keystr(tree.tree_leaves_with_path({"a": [Point(0, 1)]})[1][0]) == "['a'][0].y"


def test_own_classes() -> None:
    class Box:
        def __init__(self, inside: Any, label: str) -> None:
            self.inside, self.label = inside, label

    tree.register_pytree_node(
        Box, lambda b: ([b.inside], b.label), lambda parts, label: Box(*parts, label)
    )
    with pytest.raises(ValueError, match="already registered"):
        tree.register_pytree_node(Box, lambda b: ([], None), lambda parts, c: c)
    box = tree.tree_map(lambda x: x + 1, Box([1, 2], "mine"))
    assert box.inside == [2, 3] and box.label == "mine"
    with pytest.raises(NotImplementedError, match="Box"):
        tree.treespec_dumps(tree.tree_structure(box))


def test_wrong_counts_and_types() -> None:
    spec = tree.tree_structure([1, 2])
    with pytest.raises(ValueError, match="has length 3"):
        tree.tree_unflatten([1, 2, 3], spec)
    with pytest.raises(TypeError, match="TreeSpec"):
        tree.tree_unflatten([1], "spec")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_as_pytorch(value: Any) -> None:
    theirs = pytest.importorskip("torch.utils._pytree")
    leaves, spec = theirs.tree_flatten(value)
    assert tree.tree_leaves(value) == leaves
    assert tree.tree_structure(value).num_leaves == spec.num_leaves
    paths = [theirs.keystr(p) for p, _ in theirs.tree_flatten_with_path(value)[0]]
    assert [tree.keystr(p) for p, _ in tree.tree_flatten_with_path(value)[0]] == paths


def test_classes_registered_as_dicts() -> None:
    class Output(OrderedDict):
        pass

    tree.register_pytree_node(
        Output,
        tree._dict_flatten,
        lambda values, keys: Output(tree._dict_unflatten(values, keys)),
        flatten_with_keys_fn=tree._dict_flatten_with_keys,
    )
    value = Output(b=1, a=[2, 3])
    leaves, spec = tree.tree_flatten_with_path(value)
    assert [(tree.keystr(k), v) for k, v in leaves] == [
        ("['b']", 1),
        ("['a'][0]", 2),
        ("['a'][1]", 3),
    ]
    again = tree.tree_unflatten([4, 5, 6], spec)
    assert type(again) is Output and again == Output(b=4, a=[5, 6])
