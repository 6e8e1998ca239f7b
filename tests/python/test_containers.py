"""Containers of modules and parameters: what each operation leaves behind, beside PyTorch's."""

from __future__ import annotations

import copy
import pickle

import pytest
import stored
import tenon

# Lines run one after the other on one container `c`; each leaves its value or its error.
CASES = {
    "Sequential": (
        "nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Tanh(), nn.Linear(3, 2))",
        """
        c[0]; c[-1]; c[1:3]; c[::2]; c[4]; c[-5]; len(c); list(c); list(c._modules)
        c.__setitem__(1, nn.ELU()); c; c.__setitem__(-1, nn.Sigmoid()); c
        c.__setitem__(7, nn.ELU()); c.__delitem__(0); c; c.__delitem__(slice(0, 2)); c
        c.append(nn.GELU()); c.insert(1, nn.SELU()); c; c.insert(-1, nn.SiLU()); c
        c.insert(9, nn.SiLU()); c.insert(0, 'x'); c.extend(nn.Sequential(nn.Mish(), nn.CELU())); c
        c.extend(7); c.pop(0); c.pop(-1); c.pop(20); c
        c + nn.Sequential(nn.Identity()); c + 7; c.__iadd__(nn.Sequential(nn.ReLU6()))
        c.__iadd__(7); c * 2; 2 * c; c * 0; c * 1.5; c.__imul__(2); c.__imul__(0); c.__imul__('2')
        c.get_submodule('1'); '0' in dir(c); 'forward' in dir(c); list(c._modules)
        nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.ELU()))
        nn.Sequential(OrderedDict(a=nn.ReLU())).a
        nn.Sequential(7); nn.Sequential(OrderedDict(a=7))
        """,
    ),
    "ModuleList": (
        "nn.ModuleList([nn.Linear(2, 3), nn.ReLU(), nn.Tanh()])",
        """
        c[0]; c[-1]; c[1:]; c[5]; c['a']; len(c); list(c); list(c._modules)
        c.__setitem__(1, nn.ELU()); c; c.__setitem__(-1, nn.SELU()); c; c.__setitem__(9, nn.ELU())
        c.append(nn.GELU()); c.insert(1, nn.SiLU()); c; c.extend([nn.Mish(), nn.Mish()]); c
        c.extend(7); c.extend(nn.ReLU()); c += [nn.CELU()]; c; c + [nn.ReLU6()]; c + nn.ModuleList()
        c.__delitem__(0); c; c.__delitem__(slice(0, 2)); c; c.pop(0); c.pop(-1); c; c.pop(9)
        c(3); '0' in dir(c); list(c._modules); nn.ModuleList(); nn.ModuleList([7])
        """,
    ),
    "ModuleDict": (
        "nn.ModuleDict({'a': nn.Linear(2, 3), 'b': nn.ReLU()})",
        """
        c['a']; c['z']; len(c); list(c); 'a' in c; 'z' in c; list(c.keys()); list(c.values())
        c.__setitem__('c', nn.ELU()); c; c.__delitem__('a'); c; c.pop('b'); c.pop('b')
        list(c.items())
        c.update({'x': nn.Tanh(), 'y': nn.GELU()}); c
        c.update([('z', nn.Mish()), ['x', nn.ReLU()]]); c
        c.update(OrderedDict(q=nn.ELU())); c; c.update(nn.ModuleDict({'r': nn.ELU()})); c
        c.update(7); c.update([7]); c.update([('a',)]); c.update([('a', nn.ReLU(), 1)])
        c.clear(); c; c({}); c.__setitem__('a.b', nn.ReLU()); c.__setitem__('', nn.ReLU())
        c.__setitem__('keys', nn.ReLU()); nn.ModuleDict(); nn.ModuleDict([('a', nn.ReLU())])
        """,
    ),
    "ParameterList": (
        "nn.ParameterList([lib.zeros(2), nn.Parameter(lib.ones(3)), 7])",
        """
        c; c[0]; c[-1]; c[1:]; c[9]; len(c); list(c); list(c.state_dict()); c(1)
        c.__setitem__(0, nn.Parameter(lib.ones(1))); c; c.__setitem__(9, lib.ones(1))
        c.append(lib.ones(2, 2)); c.append(nn.Parameter(lib.ones(4), requires_grad=False)); c
        c.extend([lib.ones(5), 'x']); c; c.extend(7); c.extend(lib.ones(1)); c += [lib.ones(6)]; c
        [type(v).__name__ for v in c]; [n for n, _ in c.named_parameters()]
        '0' in dir(c); 'append' in dir(c); nn.ParameterList(); nn.ParameterList([lib.ones(1)] * 2)
        """,
    ),
    "ParameterDict": (
        "nn.ParameterDict({'a': lib.zeros(2), 'b': nn.Parameter(lib.ones(3)), 'k': 7})",
        """
        c; c['a']; c['z']; len(c); list(c); 'a' in c; 'z' in c; list(c.keys()); c(1)
        list(c.values()); list(c.items()); list(reversed(c)); c.get('a'); c.get('z'); c.get('z', 5)
        c.setdefault('a', lib.ones(9)); c.setdefault('d', lib.ones(4)); c; c.setdefault('e')
        c.pop('a'); c.pop('a'); c.popitem(); c; c.copy(); c.__delitem__('b'); c; c.__delitem__('b')
        c.update({'x': lib.ones(1), 'y': lib.ones(2)}); c; c.update([('z', lib.ones(3))]); c
        c.update(7); c.update([7]); c.update([('a',)]); c | nn.ParameterDict({'q': lib.ones(1)})
        c | {'s': lib.ones(1)}; {'s': lib.ones(1)} | c; c |= nn.ParameterDict({'t': lib.ones(2)}); c
        c.fromkeys(['m', 'n'], 3); c.fromkeys(['m']); [n for n, _ in c.named_parameters()]
        c.clear(); c; nn.ParameterDict(); nn.ParameterDict([('a', lib.ones(1))]); c.popitem()
        """,
    ),
}


def told(lib, value):
    """A value as text and numbers."""
    if isinstance(value, lib.Tensor):
        return [type(value).__name__, list(value.shape), value.requires_grad]
    if isinstance(value, list | tuple):
        return [told(lib, v) for v in value]
    if isinstance(value, lib.nn.Module | dict):
        return repr(value).replace("torch.", "tenon.")
    if type(value).__name__ in ("dict_keys", "dict_values", "odict_items", "builtin_function"):
        return [told(lib, v) for v in value]
    return value if isinstance(value, bool | int | float | str | None.__class__) else str(value)


@pytest.mark.parametrize("name", CASES)
def test_what_operations_leave(name):
    start, lines = CASES[name]

    def run(lib):
        from collections import OrderedDict

        lib.manual_seed(0)
        names = {"nn": lib.nn, "lib": lib, "OrderedDict": OrderedDict}
        names["c"] = eval(start, names)
        path = []
        for line in (part.strip() for part in lines.replace("\n", ";").split(";")):
            if not line:
                continue
            try:
                if "=" in line and line.split("=")[0][-1] in "+|" and line.startswith("c "):
                    exec(line, names)
                    value = names["c"]
                else:
                    value = eval(line, names)
                path.append([line, told(lib, value)])
            except Exception as err:
                path.append([line, type(err).__name__, str(err).replace("torch.", "tenon.")[:40]])
        return path

    mine, theirs = run(tenon), stored.of_torch(run)
    for ours, want in zip(mine, theirs, strict=True):
        assert ours[:2] == want[:2], f"{ours} {want}"
        if len(want) == 3 and not want[2].startswith("<"):
            assert ours[2] == want[2]


def test_lists_within_lists_read_shortly():
    def run(lib):
        nn = lib.nn
        deep = nn.ModuleList([nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.ReLU()])] * 2)
        same = nn.ModuleList([nn.ReLU() for _ in range(3)] + [nn.Tanh()] + [nn.ReLU()] * 2)
        return [repr(deep), repr(same), repr(nn.Sequential(deep, same))]

    assert run(tenon) == stored.of_torch(run)


@pytest.mark.parametrize("name", CASES)
def test_copies_are_their_own(name):
    first = eval(CASES[name][0], {"nn": tenon.nn, "lib": tenon})
    again = copy.deepcopy(first)
    assert repr(again) == repr(first)
    for p, q in zip(first.parameters(), again.parameters(), strict=True):
        q.data.fill_(5.0)
        assert p is not q and 5.0 not in p.flatten().tolist()


class Reassigned(tenon.nn.Module):
    """Restores itself by giving itself another dictionary."""

    def __init__(self):
        super().__init__()
        self.w = tenon.nn.Parameter(tenon.ones(2))
        self.register_buffer("b", tenon.zeros(1))
        self.inner = tenon.nn.Linear(2, 2)
        self.kind = 5

    def __setstate__(self, state):
        self.__dict__ = state


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_module_that_sets_its_own_dictionary(again):
    first = Reassigned()
    m = again(first)
    assert list(m.state_dict()) == ["w", "b", "inner.weight", "inner.bias"] and m.kind == 5
    m.w = tenon.nn.Parameter(tenon.zeros(2))
    assert m._parameters["w"] is m.w and first.w.tolist() == [1, 1]
    del m.inner
    assert not hasattr(m, "inner") and list(m._modules) == []
