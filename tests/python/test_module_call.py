"""Calls of modules go to forward, or to the operator it comes to, without a frame of Python; what
may be changed about a module is honoured all the same."""

from __future__ import annotations

import collections
import copy
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn
from tenon.nn import functional as F

X = tn.tensor(np.random.default_rng(0).standard_normal((4, 6), np.float32))
IMAGE = tn.tensor(np.random.default_rng(1).standard_normal((2, 3, 8, 8), np.float32))
WORDS = tn.tensor([[1, 0, 4], [2, 2, 3]])

MODULES: dict[str, tuple[Callable[[], nn.Module], tn.Tensor]] = {
    "linear": (lambda: nn.Linear(6, 5), X),
    "linear without bias": (lambda: nn.Linear(6, 5, bias=False), X),
    "relu": (nn.ReLU, X),
    "layer norm": (lambda: nn.LayerNorm(6), X),
    "layer norm without weights": (lambda: nn.LayerNorm(6, elementwise_affine=False), X),
    "embedding": (lambda: nn.Embedding(5, 3), WORDS),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3, stride=2, padding=1), IMAGE),
    "sequential": (lambda: nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 2)), X),
}
# Long ways: forms that a plan does not serve.
LONG: dict[str, tuple[Callable[[], nn.Module], tn.Tensor]] = {
    "relu in place": (lambda: nn.ReLU(inplace=True), X),
    "dropout, not training": (lambda: nn.Dropout(0.5).eval(), X),
    "embedding with padding": (lambda: nn.Embedding(5, 3, padding_idx=2), WORDS),
    "embedding with a bound": (lambda: nn.Embedding(5, 3, max_norm=0.5), WORDS),
    "circular conv2d": (
        lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), IMAGE,
    ),
}  # fmt: skip


def frames(call: Callable[[], Any]) -> list[str]:
    """The Python functions that a call enters."""
    seen: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen[1:]  # without the lambda


@pytest.mark.parametrize("name", MODULES)
def test_a_common_module_needs_no_frame(name: str) -> None:
    make, x = MODULES[name]
    module = make()
    assert frames(lambda: module(x)) == []
    assert frames(lambda: module.forward(x))[0] == "forward"


def test_dropout_needs_none_while_training() -> None:
    module = nn.Dropout(0.5)
    assert frames(lambda: module(X)) == []
    assert not np.array_equal(module(X).numpy(), X.numpy())
    assert (nn.Dropout(1.0)(X) == 0).all()


@pytest.mark.parametrize("name", MODULES | LONG)
def test_a_call_is_what_forward_gives(name: str) -> None:
    make, x = (MODULES | LONG)[name]
    module = make()
    called, computed = module(x.clone()), module.forward(x.clone())
    np.testing.assert_array_equal(called.detach().numpy(), computed.detach().numpy())
    assert called.requires_grad == computed.requires_grad
    named = module(input=x.clone())
    np.testing.assert_array_equal(named.detach().numpy(), computed.detach().numpy())


@pytest.mark.parametrize("name", MODULES)
def test_hooks_run(name: str) -> None:
    make, x = MODULES[name]
    module, seen = make(), []
    with_hook = module.register_forward_hook(lambda m, a, y: seen.append((m, a, y)))
    y = module(x)
    assert seen == [(module, (x,), y)]
    with_hook.remove()
    before = module.register_forward_pre_hook(lambda m, a: seen.append(len(a)))
    module(x)
    assert seen[1:] == [1]
    before.remove()
    everywhere = nn.modules.module.register_module_forward_hook(lambda m, a, y: seen.append(m))
    module(x)
    assert seen[-1] is module
    everywhere.remove()
    count = len(seen)
    module(x)
    assert len(seen) == count


def test_backward_hooks_run() -> None:
    module, seen = nn.Linear(6, 5), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].shape))
    module(X.clone().requires_grad_()).sum().backward()
    assert seen == [(4, 5)]


@pytest.mark.parametrize("name", MODULES)
def test_a_forward_of_the_instance_or_of_a_subclass_counts(name: str) -> None:
    make, x = MODULES[name]
    module = make()
    module.forward = lambda input: "mine"
    assert module(x) == "mine"
    del module.forward
    assert module(x) is not None

    class Other(type(module)):
        def forward(self, input: Any) -> Any:
            return "other", super().forward(input)

    module.__class__ = Other
    word, y = module(x)
    assert word == "other"
    np.testing.assert_array_equal(y.detach().numpy(), make_like(module, x))


def make_like(module: nn.Module, x: tn.Tensor) -> np.ndarray:
    module.__class__ = type(module).__mro__[1]
    return module(x).detach().numpy()


def test_a_changed_class_or_function_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, relu, conv = nn.Linear(6, 5), nn.ReLU(), nn.Conv2d(3, 4, 3)
    with monkeypatch.context() as patch:
        patch.setattr(nn.Linear, "forward", lambda self, x: "class")
        patch.setattr(F, "relu", lambda x, inplace=False: "function")
        assert linear(X) == "class" and relu(X) == "function"
    with monkeypatch.context() as patch:
        patch.setattr(nn.Module, "__call__", lambda self, *a: "call")
        assert linear(X) == relu(X) == "call"
    assert linear(X).shape == (4, 5) and (relu(X) >= 0).all()
    conv._conv_forward = lambda x, weight, bias: "conv"
    assert conv(IMAGE) == "conv"


def test_changed_attributes_count() -> None:
    module = nn.Linear(6, 5)
    module.weight = nn.Parameter(tn.zeros(5, 6))
    module.bias = None
    assert (module(X) == 0).all()
    del module.weight
    with pytest.raises(AttributeError, match="weight"):
        module(X)
    relu, x = nn.ReLU(), X.clone()
    relu.inplace = True
    assert relu(x) is x and (x >= 0).all()
    chain = nn.Sequential(nn.ReLU())
    chain.append(nn.Linear(6, 2))
    assert chain(X).shape == (4, 2)
    assert nn.Sequential()(X) is X


def test_what_a_parametrization_computes_counts() -> None:
    class Doubled(nn.Module):
        def forward(self, w: tn.Tensor) -> tn.Tensor:
            return 2 * w

    module = nn.Linear(6, 5, bias=False)
    plain = module(X)
    nn.utils.parametrize.register_parametrization(module, "weight", Doubled())
    np.testing.assert_allclose(module(X).detach().numpy(), 2 * plain.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", MODULES)
def test_copies_and_pickles_are_called(name: str) -> None:
    make, x = MODULES[name]
    module = make()
    y = module(x).detach().numpy()
    for other in (copy.deepcopy(module), copy.copy(module), pickle.loads(pickle.dumps(module))):
        np.testing.assert_array_equal(other(x).detach().numpy(), y)


def test_errors_name_what_is_wrong() -> None:
    class Empty(nn.Module):
        def __init__(self) -> None:
            pass

    class Bare(nn.Module):
        pass

    with pytest.raises(AttributeError):
        Empty()(X)
    with pytest.raises(NotImplementedError, match="forward"):
        Bare()(X)
    module = nn.Linear(6, 5)
    for call in (module, lambda: module(X, X), lambda: module(X, other=1)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises((RuntimeError, ValueError)):
        module(X[:, :3])
    with pytest.raises(TypeError):
        module("text")

    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nn.Sequential(nn.Identity(), Failing())(X)


def test_a_chain_that_holds_itself_ends_with_an_error() -> None:
    chain = nn.Sequential(nn.Identity())
    chain._modules["again"] = chain
    with pytest.raises(RecursionError):
        chain(X)


def test_results_keep_no_reference_and_lose_none() -> None:
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.LayerNorm(6))
    inner = module[0]
    watched = (X, module, inner, inner.weight, inner.bias, None.__class__)
    before = [sys.getrefcount(o) for o in watched]
    for _ in range(50):
        module(X)
    assert [sys.getrefcount(o) for o in watched] == before


def test_named_results_keep_their_class_behind_backward_hooks() -> None:
    kind = collections.namedtuple("kind", ["first", "second"])

    class Two(nn.Module):
        def forward(self, x: tn.Tensor) -> Any:
            return kind(x * 2, x * 3)

    module, seen = Two(), []
    module.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go)))
    x = tn.ones(1, requires_grad=True)
    y = module(x)
    assert type(y) is kind
    (y.first + y.second).backward()
    assert x.grad.item() == 5 and len(seen) == 1 and len(seen[0][1]) == 2


def test_hooks_of_loading_do_not_keep_their_module() -> None:
    module, calls = nn.Linear(2, 2), []
    module.register_load_state_dict_pre_hook(lambda m, *rest: calls.append(m))
    twin = copy.deepcopy(module)
    twin.load_state_dict(module.state_dict())
    assert calls == [twin]
    watched, calls = weakref.ref(module), []
    gc.disable()
    try:
        del module
        assert watched() is None
        before = gc.collect()
        twin.load_state_dict(twin.state_dict())
        assert gc.collect() == 0, before
    finally:
        gc.enable()


def test_data_of_a_lazy_parameter_may_be_filled() -> None:
    layer = nn.LazyLinear(4)
    before = tn.get_rng_state()
    data = layer.weight.data.normal_(0, 0.01)
    assert type(data) is tn.Tensor
    assert (data.shape, data.dtype, data.requires_grad) == ((0,), tn.float32, False)
    assert tn.equal(tn.get_rng_state(), before)
    weight = layer.double().weight
    assert weight.data.dtype == tn.float64
    assert layer(tn.ones(2, 3, dtype=tn.float64)).shape == (2, 4)
    assert layer.weight is weight and weight.data.shape == (4, 3)


def test_lazy_layers_take_their_input_by_name() -> None:
    for layer in (nn.LazyLinear(2), nn.LazyBatchNorm1d()):
        assert layer(input=tn.ones(3, 4)).shape[0] == 3


def test_a_buffer_goes_to_a_registration_of_ones_own() -> None:
    class Own(nn.Module):
        def register_buffer(self, name: str, tensor: Any) -> None:
            super().register_buffer(name, tensor + 1)

    module = Own()
    module.scale = nn.Buffer(tn.ones(1))
    assert module.scale.item() == 2
    with pytest.raises(TypeError, match="persistent"):
        module.other = nn.Buffer(tn.ones(1), persistent=False)


def test_parameters_become_complex_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="Complex modules are a new feature"):
        assert nn.Linear(2, 2).to(tn.complex64).weight.dtype is tn.complex64


@pytest.mark.parametrize("sizes", [(0, 2, 3), (3, 0, 3), (3, 2, 0), (0, 0, 0)])
def test_attention_over_nothing(sizes: tuple[int, int, int]) -> None:
    length, batch, memory = sizes
    layer = nn.MultiheadAttention(4, 2)
    query, keys = tn.ones(length, batch, 4), tn.ones(memory, batch, 4)
    for need in (True, False):
        result, weights = layer(query, keys, keys, need_weights=need)
        assert result.shape == (length, batch, 4)
        assert not need or weights.shape == (batch, length, memory)
    if memory:
        decoder = nn.TransformerDecoderLayer(4, 2, 8)
        assert decoder(query, keys).shape == (length, batch, 4)


def test_a_replica_of_a_module() -> None:
    net = nn.BatchNorm1d(2)
    net.child = nn.ReLU()
    replica = net._replicate_for_data_parallel()
    assert type(replica) is nn.BatchNorm1d and not hasattr(replica, "weight")
    assert list(replica.parameters()) == [] and replica.child is net.child
    assert replica.running_mean is net.running_mean
    replica.weight = tn.full((2,), 3.0)
    replica.running_mean = tn.ones(2)
    replica.child = nn.Tanh()
    assert net.weight.tolist() == [1, 1] and net.running_mean.tolist() == [0, 0]
    assert type(net.child) is nn.ReLU and len(list(net.parameters())) == 2
    with pytest.warns(UserWarning, match="has no effect"):
        replica.zero_grad()


def test_second_derivatives_pass_a_hooked_module_that_they_enter_from_behind() -> None:
    x, seen = tn.linspace(-1, 1, 3).requires_grad_(), []
    layer = tn.nn.MSELoss(reduction="sum")
    layer.register_full_backward_hook(lambda m, gi, go: seen.append(go))
    (g,) = tn.autograd.grad(layer(x, tn.zeros(3)), x, create_graph=True)
    assert len(seen) == 1 and tn.equal(g, 2 * x)
    (h,) = tn.autograd.grad(g.sum(), x)
    assert len(seen) == 1 and h.tolist() == [2.0] * 3


def test_global_hooks_may_be_assigned():
    """As teardowns of programs do, where the dictionaries are private names."""
    place = nn.modules.module
    seen: list[str] = []
    kinds = {
        "_global_forward_hooks": place.register_module_forward_hook,
        "_global_forward_pre_hooks": place.register_module_forward_pre_hook,
        "_global_backward_hooks": place.register_module_full_backward_hook,
        "_global_backward_pre_hooks": place.register_module_full_backward_pre_hook,
        "_global_parameter_registration_hooks": (
            place.register_module_parameter_registration_hook),
    }  # fmt: skip

    def run() -> list[str]:
        seen.clear()
        nn.Linear(1, 1)(tn.ones(1, 1, requires_grad=True)).sum().backward()
        return sorted(set(seen))

    def noting(name: str) -> Any:
        return lambda *args: seen.append(name)

    before = {name: getattr(place, name) for name in kinds}
    for name, register in kinds.items():
        register(noting(name))
    assert run() == sorted(kinds)
    for name in kinds:
        setattr(place, name, collections.OrderedDict())
    assert run() == []
    handle = place.register_module_forward_hook(noting("new"))
    assert run() == ["new"]
    handle.remove()
    assert run() == []
    for name, table in before.items():
        setattr(place, name, table)
    assert run() == sorted(kinds)
    for name in kinds:
        setattr(place, name, collections.OrderedDict())
    assert run() == []
