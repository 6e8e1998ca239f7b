"""Moves, conversions and states of modules, storages, pruning and initial values beside PyTorch:
each case is a function of a library that answers in plain values."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import stored
import tenon as tn
from refusals import part


def word(value: Any) -> str:
    return str(value).rpartition(".")[2]


def refusal(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as e:
        return type(e).__name__
    return "taken"


def norm(t: Any) -> Any:
    """With parameters, a buffer of floats and one of integers."""
    return t.nn.BatchNorm2d(2)


def kinds(m: Any) -> list[str]:
    return [word(v.dtype) for v in m.state_dict().values()]


def conversions(t: Any) -> Any:
    ways = [lambda m: m.float(), lambda m: m.double().float(), lambda m: m.half(),
            lambda m: m.bfloat16(), lambda m: m.type(t.float64), lambda m: m.cpu()]  # fmt: skip
    return [kinds(way(norm(t))) for way in ways]


def moves(t: Any) -> Any:
    like = t.ones(1, dtype=t.float16)
    forms = [
        ((like,), {}), ((like, True), {}), ((t.float64,), {}), ((t.float64, True), {}),
        (("cpu",), {}), (("cpu", t.float64), {}), (("cpu", t.float64, True), {}),
        ((None, t.float64), {}), ((), {"tensor": like}), ((), {"dtype": t.float16}),
        ((), {"device": "cpu", "dtype": t.float64, "non_blocking": True}),
    ]  # fmt: skip
    taken = [kinds(norm(t).to(*args, **named)) for args, named in forms]
    refused = [
        refusal(lambda: norm(t).to(t.int64)), refusal(lambda: norm(t).to("cpu", 3)),
        refusal(lambda: norm(t).to(speed=1)), refusal(lambda: norm(t).to(like, True, False)),
        refusal(lambda: norm(t).to("cpu", copy=True)), refusal(lambda: norm(t).to(copy=False)),
    ]  # fmt: skip
    m = t.nn.Conv2d(2, 3, 2).to(memory_format=t.channels_last)
    return [taken, refused, list(m.weight.stride()), list(m.bias.stride())]


def zeroed(t: Any) -> Any:
    found = []
    for graph in (False, True):
        m = t.nn.Linear(2, 1)
        m(t.ones(3, 2, requires_grad=True)).square().sum().backward(create_graph=graph)
        kept = m.weight.grad
        m.zero_grad(set_to_none=False)
        found += [m.weight.grad is kept, kept.requires_grad, kept.tolist()]
        m.zero_grad()
        found.append(m.weight.grad is None)
    return found


def states(t: Any) -> Any:
    m = t.nn.Sequential(norm(t))
    into: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        m.state_dict(into, "a.", True)
    live = [v.requires_grad for v in into.values()]
    named = m.state_dict(prefix="b.", keep_vars=False)
    m[0]._register_state_dict_hook(lambda module, state, prefix, meta: state.pop(prefix + "bias"))
    fewer = list(m.state_dict())
    return [list(into), live, [word(w.category.__name__) for w in caught], list(named),
            [v.requires_grad for v in named.values()], fewer]  # fmt: skip


def loads(t: Any) -> Any:
    m = t.nn.Linear(2, 1)
    state = {"weight": t.nn.Parameter(t.ones(1, 2)), "bias": t.zeros(1)}
    m.requires_grad_(False)
    m.load_state_dict(state, assign=True)
    assigned = [m.weight is state["weight"], m.weight.requires_grad, m.bias.requires_grad,
                isinstance(m.bias, t.nn.Parameter)]  # fmt: skip
    number = t.nn.Module()
    number.n = t.nn.Parameter(t.tensor(1.0))
    number.load_state_dict({"n": t.tensor([3.0])})  # as old files have it
    wrong = [{"weight": [1.0], "bias": t.zeros(1)}, {"weight": t.ones(2, 2), "bias": t.zeros(1)},
             {"weight": t.ones(1, 2)}, {**state, "more": t.ones(1)}]  # fmt: skip
    return [assigned, number.n.tolist(), [refusal(lambda w=w: m.load_state_dict(w)) for w in wrong],
            refusal(lambda: m.load_state_dict(3)), refusal(m.get_extra_state),
            refusal(lambda: m.set_extra_state(1))]  # fmt: skip


def slots(t: Any) -> Any:
    m, nn = t.nn.Module(), t.nn
    m.b = nn.Buffer(t.ones(2))
    m.hidden = nn.Buffer(t.ones(2), persistent=False)
    m.register_buffer("none", None)
    first = [sorted(m.state_dict()), sorted(dict(m.named_buffers()))]
    m.b = t.zeros(3)
    m.hidden = nn.Buffer(t.ones(1))
    m.plain = t.ones(1)
    m.layer = nn.Linear(1, 1)
    m.layer = None
    second = [sorted(m.state_dict()), m.b.tolist(), m.layer is None, "plain" in m.__dict__]

    class Early(nn.Module):
        def __init__(self, value: Any) -> None:
            self.value = value

    x = t.ones(1, requires_grad=True)
    refused = [
        lambda: setattr(m, "b", 3), lambda: setattr(m, "layer", 3),
        lambda: Early(nn.Buffer(t.ones(1))), lambda: Early(nn.Parameter(t.ones(1))),
        lambda: Early(nn.Linear(1, 1)), lambda: m.register_buffer("c", 3),
        lambda: m.register_buffer("c.d", None), lambda: m.register_buffer("plain", None),
        lambda: m.register_parameter("p", x * 2), lambda: m.register_parameter("p", t.ones(1)),
        lambda: nn.Module(3), lambda: nn.Module(size=3),
        lambda: m.set_submodule("none.x", nn.ReLU()), lambda: m.set_submodule("", nn.ReLU()),
        lambda: m.get_submodule("b"), lambda: m.get_parameter("b"), lambda: m.get_buffer("layer"),
    ]  # fmt: skip
    return [first, second, [refusal(r) for r in refused]]


def storages(t: Any) -> Any:
    x = t.tensor([1.5, -2.0, 3.0])
    s, raw = x.storage(), x.untyped_storage()
    other = s.clone()
    other.fill_(4.0)
    deep, flat = copy.deepcopy([raw, raw]), copy.copy(s)
    flat[1] = 9.0
    s.copy_(t.tensor([0.5, 1.0, 2.0]).storage())
    ways = "double half long int short char byte bool bfloat16 complex_float".split()
    return [
        list(s), s.size(), s.nbytes(), len(raw), s.element_size(), raw.element_size(),
        other.tolist(), x.tolist(), flat.tolist(), deep[0].data_ptr() == deep[1].data_ptr(),
        deep[0].data_ptr() == raw.data_ptr(), raw.untyped().data_ptr() == raw.data_ptr(),
        raw.is_cuda, raw.is_pinned(), s.is_sparse, raw.resizable(),
        [word(getattr(s, way)().dtype) for way in ways], s.long().tolist(), raw[1:3].tolist(),
        raw.cpu() is raw, s.pickle_storage_type(), word(s.type()), hasattr(s, "nothing"),
        repr(s).replace("torch.", "tenon.").split("\n"),
        t.ones(2).share_memory_().storage().is_shared(),
        t.ones(2).untyped_storage().share_memory_().is_shared(),
        isinstance(s, t.FloatStorage), isinstance(s, t.LongStorage),
    ]  # fmt: skip


def pruned(t: Any) -> Any:
    prune, nn = part(t, "nn", "utils", "prune"), t.nn
    x = t.tensor([[1.0, -4.0, 2.0], [0.5, 3.0, -1.25]])
    found = [prune.L1Unstructured(2).prune(x).tolist(),
             prune.L1Unstructured(2).prune(x, importance_scores=-x).tolist(),
             prune.L1Unstructured(0).prune(x, default_mask=t.zeros(2, 3)).tolist(),
             prune.LnStructured(1, 2, 0).prune(x).tolist(),
             prune.LnStructured(0, 2).prune(x).tolist(),
             prune.LnStructured(1, 2).prune(x.reshape(1, 2, 3)).tolist(),
             prune.RandomStructured(1).dim, prune.LnStructured(1, 2).dim,
             (prune.RandomUnstructured(4).prune(x) == 0).sum().item(),
             (prune.RandomUnstructured(0.5).prune(x) == 0).sum().item(),
             (prune.RandomStructured(1, 0).prune(x) == 0).all(1).sum().item(),
             prune.RandomStructured(0).prune(x).tolist()]  # fmt: skip
    m = nn.Linear(3, 2)
    m.weight.data = x.clone()
    prune.l1_unstructured(m, "weight", 1)
    prune.ln_structured(m, "weight", 1, 2, 0)
    prune.l1_unstructured(m, "weight", 1, importance_scores=x)
    (chain,) = m._forward_pre_hooks.values()
    found += [m.weight.tolist(), len(chain), [type(one).__name__ for one in chain],
              type(chain[0]).__name__]  # fmt: skip
    alone, bias = prune.L1Unstructured(1), prune.L1Unstructured(1)
    bias._tensor_name = "bias"
    refused = [lambda: chain.add_pruning_method(bias), lambda: chain.add_pruning_method(3),
               lambda: alone.prune(x, importance_scores=x[0]), lambda: prune.L1Unstructured(7.5),
               lambda: prune.L1Unstructured(7).prune(x), lambda: prune.L1Unstructured(-1),
               lambda: prune.LnStructured(1, 2, 5).prune(x),
               lambda: prune.LnStructured(1, 2).prune(x[0]),
               lambda: prune.remove(nn.Linear(1, 1), "weight")]  # fmt: skip
    prune.remove(m, "weight")
    return [found, [refusal(r) for r in refused], m.weight.tolist(), sorted(m.state_dict())]


def initial(t: Any) -> Any:
    init = t.nn.init
    names = "linear conv2d sigmoid tanh relu leaky_relu selu conv_transpose3d".split()
    gains = [init.calculate_gain(n) for n in names]
    gains += [init.calculate_gain("leaky_relu", 0.5), init.calculate_gain("leaky_relu", 2)]
    refused = [lambda: init.calculate_gain("leaky_relu", True), lambda: init.calculate_gain("sine"),
               lambda: init.xavier_uniform_(t.empty(3)), lambda: init.kaiming_normal_(t.empty(3)),
               lambda: init.kaiming_uniform_(t.empty(2, 2), mode="fan"),
               lambda: init.eye_(t.empty(2, 2, 2)), lambda: init.dirac_(t.empty(2, 2)),
               lambda: init.dirac_(t.empty(3, 2, 1), groups=2),
               lambda: init.sparse_(t.empty(3), 1),
               lambda: init.orthogonal_(t.empty(3))]  # fmt: skip
    w = t.empty(2, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        same = init.constant(w, 2.5) is w
    return [gains, [refusal(r) for r in refused], same, w.tolist(),
            [word(c.category.__name__) for c in caught]]  # fmt: skip


def defaults(t: Any) -> Any:
    kinds, data = t.distributions, part(t, "utils", "data")
    many = kinds.Multinomial(probs=t.tensor([0.2, 0.8]))
    two = kinds.Binomial(2, t.tensor([0.25, 0.5]))
    ends = [kinds.Kumaraswamy(t.tensor(a), t.tensor(b)).mode.isnan().item()
            for a in (0.5, 1.0, 2.0) for b in (0.5, 1.0, 2.0)]  # fmt: skip
    modes = [kinds.Kumaraswamy(t.tensor(a), t.tensor(b)).mode.item()
             for a, b in ((2.0, 3.0), (1.0, 2.0), (2.0, 1.0))]  # fmt: skip
    refused = [lambda: data.Dataset()[0], lambda: next(iter(data.IterableDataset())),
               lambda: kinds.Distribution().sample(), lambda: iter(data.Sampler())]  # fmt: skip
    t.manual_seed(3)
    spread = t.nn.init.kaiming_normal_(t.empty(300, 50)).std().item()
    return [many.total_count, many.sample().sum().item(), list(two.enumerate_support().shape),
            list(two.enumerate_support(False).shape), ends, modes,
            [refusal(r) for r in refused], abs(spread / 0.2 - 1) < 0.03]  # fmt: skip


def nested_gradients(t: Any) -> Any:
    n = t.nested.nested_tensor([t.ones(2), t.ones(3)], layout=t.jagged)
    before = n.requires_grad
    n.requires_grad_()
    (n * 2).sum().backward()
    return [before, n.requires_grad, n.is_leaf, [g.tolist() for g in n.grad.unbind()],
            n.detach().requires_grad, n.requires_grad_(False).requires_grad]  # fmt: skip


def gradients_checked(t: Any) -> Any:
    check = t.autograd.gradcheck
    x = t.tensor([0.5, 2.0], dtype=t.float64, requires_grad=True)
    cases = [
        (lambda a: a.detach() * 2, x), (lambda a: t.ones(2, dtype=t.float64), x),
        (lambda a: (a.sin(), t.ones(1, dtype=t.float64)), x), (lambda a: a * 2, x.detach()),
    ]  # fmt: skip
    quiet = [check(f, (a,), raise_exception=False) for f, a in cases[:-1]]
    quiet.append(refusal(lambda: check(cases[-1][0], (x.detach(),), raise_exception=False)))
    loud = [refusal(lambda f=f, a=a: check(f, (a,))) for f, a in cases]
    zero = t.zeros(1, dtype=t.float64, requires_grad=True)
    loud += [refusal(lambda: check(t.sqrt, (zero,))), refusal(lambda: check(t.log, (zero + 1,)))]
    ahead = check(lambda a: a.sin(), (x,), check_backward_ad=False, check_forward_ad=True)
    return [quiet, loud, ahead]


CASES = {fn.__name__: fn for fn in (
    conversions, moves, zeroed, states, loads, slots, storages, pruned, initial, defaults,
    nested_gradients, gradients_checked,
)}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_beside_pytorch(name: str) -> None:
    stored.same(CASES[name](tn), stored.of_torch(CASES[name]), rtol=1e-6)
