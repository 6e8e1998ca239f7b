"""What optimizers do with sparse gradients, first values of states, states of others, and rates
that are tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from tenon.optim import swa_utils


def embedding(lib: Any) -> Any:
    table = lib.nn.Embedding(4, 2, sparse=True, dtype=lib.float64)
    with lib.no_grad():
        table.weight.copy_(lib.arange(8.0).view(4, 2) / 4)
    return table


@pytest.mark.parametrize("options", [
    {}, {"momentum": 0.9}, {"momentum": 0.9, "dampening": 0.25},
    {"momentum": 0.9, "nesterov": True}, {"maximize": True},
    {"momentum": 0.5, "maximize": True, "nesterov": True},
], ids=str)  # fmt: skip
def test_sgd_by_rows(options: dict[str, Any]) -> None:
    def run(lib: Any) -> list[Any]:
        table, path = embedding(lib), []
        o = lib.optim.SGD(table.parameters(), lr=0.1, **options)
        for rows in ([0, 2, 2], [2, 3], [0, 1]):
            o.zero_grad()
            (table(lib.tensor(rows)) ** 2).sum().backward()
            o.step()
            path.append(table.weight.detach().clone())
        return path

    stored.same(run(tn), stored.of_torch(run), 1e-12, 1e-14)


@pytest.mark.parametrize("options", [
    {}, {"lr_decay": 0.2}, {"maximize": True}, {"initial_accumulator_value": 0.3, "eps": 0.01},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("dtype", [tn.float64, tn.complex128])
def test_adagrad_by_rows(options: dict[str, Any], dtype: Any) -> None:
    """Zeros change nothing: a gradient of some rows does what the whole one does."""
    tn.manual_seed(4)
    start, *grads = tn.randn(4, 5, 3, dtype=dtype).unbind()
    rows, whole, pure = (tn.nn.Parameter(start.clone()) for _ in range(3))
    optimizers = [tn.optim.Adagrad([p], lr=0.1, **options) for p in (rows, whole)]
    first = options.get("initial_accumulator_value", 0.0)
    total = tn.full_like(pure, complex(first, first) if dtype.is_complex else first)
    step = tn.zeros(())
    for places, g in zip(([0, 2, 2], [3], []), grads):
        g = g[: len(places)]
        rows.grad = tn.sparse_coo_tensor(tn.tensor([places], dtype=tn.int64), g, start.shape)
        whole.grad = rows.grad.to_dense()
        for optimizer in optimizers:
            optimizer.step()
        with tn.no_grad():
            tn.optim._functional.adagrad(
                [pure], [rows.grad], [total], [step], lr=0.1, weight_decay=0.0,
                lr_decay=options.get("lr_decay", 0.0), eps=options.get("eps", 1e-10),
                maximize=options.get("maximize", False),
            )  # fmt: skip
    state = optimizers[0].state[rows]
    np.testing.assert_allclose(rows.detach(), whole.detach(), rtol=1e-12)
    np.testing.assert_allclose(state["sum"], optimizers[1].state[whole]["sum"], rtol=1e-12)
    assert state["step"] == 3 and step == 3
    assert pure.equal(rows) and total.equal(state["sum"])
    assert not rows.equal(start)
    with pytest.raises(RuntimeError, match="Adagrad: weight_decay .* sparse gradients"):
        tn.optim.Adagrad([rows], weight_decay=0.1).step()


@pytest.mark.parametrize("name", [
    "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "RMSprop", "Rprop", "ASGD",
    "Adafactor",
])  # fmt: skip
def test_gradients_of_rows_are_refused_by_name(name: str) -> None:
    for complex_too in (False, True):
        if complex_too and name == "Adafactor":
            continue
        p = tn.nn.Parameter(tn.ones(2, 2, dtype=tn.complex64 if complex_too else tn.float32))
        p.grad = tn.ones(2, 2, dtype=p.dtype).to_sparse()
        before = p.tolist()
        with pytest.raises(RuntimeError, match=f"{name.rstrip('W')} does not support sparse"):
            getattr(tn.optim, name)([p]).step()
        assert p.tolist() == before
    p = tn.nn.Parameter(tn.ones(2, 2))
    p.grad = tn.ones(2, 2).to_sparse()
    with pytest.raises(RuntimeError, match="weight_decay.*sparse gradients"):
        tn.optim.SGD([p], weight_decay=0.1).step()


def test_sparse_adam_refuses_whole_gradients() -> None:
    p = tn.nn.Parameter(tn.ones(2))
    p.grad = tn.ones(2)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        tn.optim.SparseAdam([p]).step()
    assert p.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_sums_of_adagrad_begin_where_it_is_told(dtype: str) -> None:
    def run(lib: Any) -> list[Any]:
        p = lib.nn.Parameter(lib.tensor([1.0, 2.0], dtype=getattr(lib, dtype)))
        o = lib.optim.Adagrad([p], lr=0.5, initial_accumulator_value=0.25)
        first = o.state[p]["sum"].clone()
        p.grad = lib.tensor([1.0, -3.0], dtype=p.dtype)
        o.step()
        return [first, o.state[p]["sum"], p.detach()]

    stored.same(run(tn), stored.of_torch(run), 1e-12, 1e-14)


def test_groups_change_what_is_theirs() -> None:
    """Sums begin as the optimizer was told, not a group, and a key of no option decays nothing."""

    def run(lib: Any) -> list[Any]:
        ps = [lib.nn.Parameter(lib.tensor([1.0, -2.0, 0.5]).double()) for _ in range(2)]
        groups = [{"params": ps[:1], "initial_accumulator_value": 0.25}, {"params": ps[1:]}]
        adagrad = lib.optim.Adagrad(groups, lr=0.5, initial_accumulator_value=0.5)
        rprop = lib.optim.Rprop(ps, lr=0.5)
        rprop.param_groups[0]["weight_decay"] = 3.0
        for i in range(3):
            for p in ps:
                p.grad = lib.tensor([1.0, -3.0, 0.25 - i / 4]).double()
            adagrad.step()
            rprop.step()
        return [*(p.detach() for p in ps), adagrad.state[ps[0]]["sum"]]

    stored.same(run(tn), stored.of_torch(run), 1e-12, 1e-14)


def test_adamw_decays_apart_whoever_saved_the_state() -> None:
    p = tn.nn.Parameter(tn.full((2,), 2.0, dtype=tn.float64))
    p.grad = tn.zeros(2, dtype=tn.float64)
    state = tn.optim.Adam([p], lr=0.5, weight_decay=0.25).state_dict()
    assert state["param_groups"][0]["decoupled_weight_decay"] is False
    o = tn.optim.AdamW([p])
    o.load_state_dict(state)
    o.step()
    assert p.tolist() == [2 * (1 - 0.5 * 0.25)] * 2


def test_what_a_group_or_a_state_lacks_is_named() -> None:
    o = tn.optim.SGD([tn.nn.Parameter(tn.ones(1))], lr=0.1)
    state = o.state_dict()
    for call, key in (
        (lambda: o.add_param_group({"lr": 1}), "params"),
        (lambda: o.load_state_dict({"state": {}}), "param_groups"),
        (lambda: o.load_state_dict({"param_groups": state["param_groups"]}), "state"),
        (lambda: o.load_state_dict({"state": {}, "param_groups": [{}]}), "params"),
    ):
        with pytest.raises(KeyError, match=f"needs '{key}', and has none"):
            call()


@pytest.mark.parametrize("name", ["Adam", "SGD", "Muon", "NAdam", "RMSprop"])
def test_a_rate_of_one_element_is_a_number(name: str) -> None:
    def after(lr: Any) -> list[Any]:
        p = tn.nn.Parameter(tn.tensor([[1.0, 2.0], [3.0, -1.0]]))
        p.grad = tn.tensor([[0.5, -1.0], [0.25, 2.0]])
        getattr(tn.optim, name)([p], lr=lr).step()
        return p.tolist()

    assert after(tn.tensor([0.125])) == after(tn.tensor(0.125)) == after(0.125)


def test_counters_stay_on_the_processor_unless_a_graph_shall_advance_them() -> None:
    for capturable, place in ((False, "cpu"), (True, "meta")):
        p = tn.nn.Parameter(tn.ones(2, device="meta"))
        for name in ("NAdam", "RAdam", "Adadelta"):
            o = getattr(tn.optim, name)([p], capturable=capturable)
            o.state[p] = {"step": 3.0}
            o.__setstate__(o.__getstate__())
            assert o.state[p]["step"].device.type == place, name


def test_hooks_may_go_before_others() -> None:
    o = tn.optim.SGD([tn.nn.Parameter(tn.ones(1))], lr=0.1)
    seen: list[str] = []
    for register, run in (
        (o.register_state_dict_pre_hook, o.state_dict),
        (o.register_state_dict_post_hook, o.state_dict),
        (o.register_load_state_dict_pre_hook, lambda: o.load_state_dict(o.state_dict())),
        (o.register_load_state_dict_post_hook, lambda: o.load_state_dict(o.state_dict())),
    ):
        seen.clear()
        hooks = [register(lambda *_: seen.append("second"))]
        hooks += [register(lambda *_: seen.append("third"))]
        hooks += [register(lambda *_: seen.append("first"), prepend=True)]
        run()
        assert seen == ["first", "second", "third"]
        for hook in hooks:
            hook.remove()


def test_averages_move_by_what_the_decay_leaves() -> None:
    old, new = tn.full((1,), 8.0, dtype=tn.float64), tn.full((1,), 24.0, dtype=tn.float64)
    assert swa_utils.get_ema_avg_fn(0.75)(old, new, 3).item() == 12.0
    swa_utils.get_ema_multi_avg_fn(0.75)([old], [new], 3)
    assert old.item() == 12.0


BOUNDS = {
    "SGD": ["lr", "momentum", "weight_decay"],
    "Adam": ["lr", "eps", "weight_decay", "betas"],
    "AdamW": ["lr", "eps", "weight_decay", "betas"],
    "NAdam": ["lr", "eps", "weight_decay", "betas", "momentum_decay"],
    "RAdam": ["lr", "eps", "weight_decay", "betas"],
    "Adamax": ["lr", "eps", "weight_decay", "betas"],
    "Adadelta": ["lr", "rho", "eps", "weight_decay"],
    "Adagrad": ["lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"],
    "RMSprop": ["lr", "alpha", "eps", "weight_decay", "momentum"],
    "Rprop": ["lr", "etas"],
    "ASGD": ["lr", "weight_decay"],
    "SparseAdam": ["lr", "eps", "betas"],
    "Adafactor": ["lr", "beta2_decay", "eps", "d", "weight_decay"],
    "Muon": ["lr", "weight_decay", "momentum"],
}


@pytest.mark.parametrize("name", BOUNDS)
def test_options_are_refused_where_pytorch_refuses_them(name: str) -> None:
    pairs = {"betas": (0.9, 0.999), "etas": (0.5, 1.2)}
    if name == "Adafactor":
        pairs["eps"] = (None, 1e-3)

    def run(lib: Any) -> list[Any]:
        p, found = [lib.nn.Parameter(lib.ones(2, 2))], []
        for option in BOUNDS[name]:
            for value in (-1e-9, 0.0, 1e-9, 0.5, 1.0, 1.5):
                usual = pairs.get(option)
                values = [value] if usual is None else [(value, usual[1]), (usual[0], value)]
                for v in values:
                    try:
                        getattr(lib.optim, name)(p, **{option: v})
                        found.append(f"{option}={v}: taken")
                    except (ValueError, TypeError, RuntimeError) as e:
                        found.append(f"{option}={v}: {type(e).__name__}")
        return found

    stored.same(run(tn), stored.of_torch(run))


def test_a_step_of_ones_own_has_hooks_whenever_it_was_written() -> None:
    def run(lib: Any) -> list[Any]:
        class Own(lib.optim.Optimizer):
            def step(self) -> None:
                seen.append("step")

        seen: list[str] = []
        o = Own([lib.nn.Parameter(lib.ones(1))], {})
        o.register_step_pre_hook(lambda *_: seen.append("before"))
        o.register_step_post_hook(lambda *_: seen.append("after"))
        o.step()
        Own.step = lambda self: seen.append("other step")
        o.step()
        for _ in range(2):
            o._patch_step_function()
        o.step()
        return seen

    stored.same(run(tn), stored.of_torch(run))


def test_an_average_may_lie_on_another_device() -> None:
    model = tn.nn.Linear(2, 1)
    average = swa_utils.AveragedModel(model, device="meta")
    assert {p.device.type for p in average.parameters()} == {"meta"}
    assert average.n_averaged.device.type == "meta"
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    for decay in (0.0, 1.0):
        swa_utils.get_ema_avg_fn(decay)
    for decay in (-1e-9, 1 + 1e-9):
        with pytest.raises(ValueError, match="Invalid decay value"):
            swa_utils.get_ema_avg_fn(decay)


def test_ways_of_a_step_that_exclude_each_other() -> None:
    for options, kind, words in (
        ({"fused": True, "differentiable": True}, RuntimeError, "does not support `differentiable"),
        ({"fused": True, "foreach": True}, RuntimeError, "cannot be `True` together"),
        ({"foreach": True, "lr": tn.tensor(0.1)}, ValueError, "lr as a Tensor is not supported"),
    ):
        for name in ("Adam", "AdamW"):
            with pytest.raises(kind, match=words):
                getattr(tn.optim, name)([tn.nn.Parameter(tn.ones(1))], **options)


def ones(*size: int, **kind: Any) -> list[Any]:
    return [tn.ones(*size, **kind)]


def step_of(name: str, **given: Any) -> None:
    """A step on one parameter, some of whose lists are these; refused, it changes nothing."""
    lists = {"params": ones(2), "grads": ones(2), "steps": [tn.zeros(())]}
    if name == "_adam_":
        lists |= {"exp_avgs": ones(2), "exp_avg_sqs": ones(2), "max_exp_avg_sqs": []}
        numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.0}
    elif name == "_sgd_":
        del lists["steps"]
        lists |= {"momenta": ones(2)}
        numbers = {"lr": 0.1, "momentum": 0.9}
    else:
        lists |= {"first": ones(2), "second": [], "third": [], "rule": "adagrad"}
        numbers = {"lr": 0.1}
    lists |= given
    before = [[t.tolist() for t in v] for v in lists.values() if isinstance(v, list)]
    try:
        getattr(tn._C._ops, name)(**lists, **numbers)
    finally:
        assert before == [[t.tolist() for t in v] for v in lists.values() if isinstance(v, list)]


READ_ONLY = [tn.frombuffer(b"\0" * 8, dtype=tn.float32)]
LISTS: list[tuple[type[Exception], str, str, dict[str, Any]]] = [
    (RuntimeError, "adam: steps must be float32 or float64 numbers", "_adam_",
     {"steps": [tn.zeros((), dtype=tn.int64)]}),
    (RuntimeError, "adam: steps must be float32 or float64 numbers", "_adam_",
     {"steps": [tn.zeros(2)]}),
    (RuntimeError, r"adam: gradients\[0\] has another shape", "_adam_", {"grads": ones(3)}),
    (ValueError, "adam: the lists have different lengths", "_adam_", {"grads": ones(2) * 2}),
    (RuntimeError, r"adam: exp_avgs\[0\] has another dtype", "_adam_",
     {"exp_avgs": ones(2, dtype=tn.float64)}),
    (ValueError, r"adam: the memory of parameters\[0\] is read-only", "_adam_",
     {"params": READ_ONLY}),
    (RuntimeError, r"sgd: gradients\[0\] has another shape", "_sgd_", {"grads": ones(1)}),
    (ValueError, "sgd: 0 momentum buffers for 1 parameters", "_sgd_", {"momenta": []}),
    (ValueError, "there is no rule 'newton'", "_rule_", {"rule": "newton"}),
    (ValueError, "adagrad: 0 first states for 1 parameters", "_rule_", {"first": []}),
    (RuntimeError, r"adagrad: first states\[0\] has another shape", "_rule_", {"first": ones(3)}),
    (ValueError, "sgd: 2 gradients for 1 parameters", "_sgd_", {"grads": ones(2) * 2}),
    (ValueError, "adagrad: 0 steps for 1 parameters", "_rule_", {"steps": []}),
    (ValueError, "adagrad: 1 third states for 1 parameters", "_rule_", {"third": ones(2)}),
    (ValueError, "adadelta: 0 second states for 1 parameters", "_rule_", {"rule": "adadelta"}),
    (ValueError, "nadam: 0 third states for 1 parameters", "_rule_",
     {"rule": "nadam", "second": ones(2)}),
    (RuntimeError, r"nadam: third states\[0\] must have the dtype and the device of its step",
     "_rule_", {"rule": "nadam", "second": ones(2), "third": [tn.ones((), dtype=tn.float64)]}),
]  # fmt: skip


@pytest.mark.parametrize("kind, words, name, given", LISTS, ids=lambda v: str(v)[:40])
def test_lists_of_a_step_fit_together(
    kind: type[Exception], words: str, name: str, given: dict[str, Any]
) -> None:
    with pytest.raises(kind, match=words):
        step_of(name, **given)


def test_norms_and_factors_are_of_kinds_that_are_there() -> None:
    with pytest.raises(NotImplementedError, match="p must be 1, 2 or inf, not 3"):
        tn._C._ops._norms(ones(2), 3.0)
    with pytest.raises(ValueError, match="the list of tensors is empty"):
        tn._C._ops._norms([], 2.0)
    with pytest.raises(RuntimeError, match="the factor must have one element, not 2"):
        tn._C._ops._scale_(ones(2), tn.ones(2))
    for factor in (tn.ones(2, dtype=tn.float64), tn.ones(())):
        with pytest.raises(RuntimeError, match="the factor must be one number of float64"):
            tn._C._ops._scale_step(ones(2), factor)


def kernel_step(name: str, device: str, steps: str, rate: Any, rule: int = 1) -> None:
    """The operator that a device has a kernel for, on one parameter there."""

    def one(*size: int) -> list[Any]:
        return [tn.ones(*size, device=device)]

    numbers = dict.fromkeys(("lr", "eps", "weight_decay"), 0.1) | {"maximize": False, "rate": rate}
    lists = {"params": one(2), "grads": one(2)}
    steps = {"steps": [tn.zeros((), device=steps)]}
    if name == "_sgd_step":
        numbers |= {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "first": False}
        del numbers["eps"]
        lists |= {"momenta": one(2)}
    elif name == "_adam_step":
        numbers |= {"beta1": 0.9, "beta2": 0.99, "amsgrad": False, "decoupled": False}
        lists |= {"exp_avgs": one(2), "exp_avg_sqs": one(2), "max_exp_avg_sqs": []} | steps
    else:
        numbers |= dict.fromkeys("abcd", 0.5) | {"decoupled": False, "rule": rule}
        lists |= {"first": one(2), "second": [], "third": []} | steps
    getattr(tn._C._ops, name)(**lists, **numbers)


@pytest.mark.parametrize("name", ["_sgd_step", "_adam_step", "_rule_step"])
def test_a_rate_is_one_number_where_the_parameters_are(name: str) -> None:
    for dtype in (tn.float32, tn.float64):
        kernel_step(name, "meta", "meta", tn.ones((), device="meta", dtype=dtype))
    kernel_step(name, "meta", "meta", tn.ones(1, device="meta"))
    wrong = [
        ("meta", "meta", tn.ones(())),
        ("meta", "meta", tn.ones(2, device="meta")),
        ("meta", "meta", tn.ones((), device="meta", dtype=tn.float16)),
        ("cpu", "cpu", tn.ones(())),
    ]
    if name != "_sgd_step":  # which counts no steps
        wrong.append(("meta", "cpu", tn.ones((), device="meta")))
    for device, steps, rate in wrong:
        with pytest.raises(RuntimeError, match="the learning rate must be one number of float32"):
            kernel_step(name, device, steps, rate)
    for device in ("meta", "cpu"):
        kernel_step(name, device, device, None)


@pytest.mark.parametrize("rule", [-1, 8])
def test_a_rule_is_one_of_those_that_are_there(rule: int) -> None:
    with pytest.raises(ValueError, match=f"_rule_step: there is no rule {rule}"):
        kernel_step("_rule_step", "cpu", "cpu", None, rule)
