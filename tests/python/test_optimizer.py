"""What all optimizers share beside PyTorch: groups, states, hooks, errors, kinds of parameters."""

from __future__ import annotations

import copy
import importlib
import pickle

import numpy as np
import pytest
import stored
import tenon

EACH = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adam": {"lr": 0.1},
    "AdamW": {"lr": 0.1},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1},
    "Adamax": {"lr": 0.1},
    "Adagrad": {"lr": 0.1},
    "Adadelta": {"lr": 1.0},
    "RMSprop": {"lr": 0.1, "momentum": 0.5, "centered": True},
    "Rprop": {"lr": 0.1},
    "ASGD": {"lr": 0.1},
    "Adafactor": {"lr": 0.1},
    "LBFGS": {"lr": 0.3, "max_iter": 3, "history_size": 2},
}


def made(lib, name: str, params=None, **options):
    if params is None:
        params = [
            lib.nn.Parameter(lib.tensor([[1.0, -2.0, 0.5], [3.0, 0.1, -0.7]], dtype=lib.float64))
        ]
    return getattr(lib.optim, name)(params, **{**EACH[name], **options})


def steps(lib, o, count: int = 3):
    """The parameters after some steps down a narrow valley."""
    params = [p for group in o.param_groups for p in group["params"]]

    def closure():
        o.zero_grad()
        loss = sum(((p * p.conj()).real ** 2).sum() + (p * (1 + p)).real.sum() for p in params)
        loss.backward()
        return loss

    for _ in range(count):
        if type(o).__name__ == "LBFGS":
            o.step(closure)
        else:
            closure()
            o.step()
    return [p.detach().clone() for p in params]


def kind(value):
    """How a state's value is kept."""
    return str(value.dtype).split(".")[1] if hasattr(value, "dtype") else type(value).__name__


@pytest.mark.parametrize("name", EACH)
def test_complex_parameters(name):
    def run(lib):
        if name == "Adafactor":
            return []
        values = [1 + 2j, -0.5j, 0.25 - 1j, 2.0]
        p = lib.nn.Parameter(lib.tensor(values, dtype=lib.complex128))
        o = made(lib, name, [p])
        after = steps(lib, o)
        state = o.state[p]
        kept = [v for v in state.values() if hasattr(v, "dtype") and v.dim() == 1]
        return [after, [[kind(v), list(v.shape)] for v in kept if v.shape[0] == 4]]

    stored.same(run(tenon), stored.of_torch(run), 1e-7, 1e-9)


@pytest.mark.parametrize("name", EACH)
def test_a_loaded_state_goes_on(name):
    """In the parameter's dtype; the next steps are those of the one that was saved."""
    first = made(tenon, name)
    steps(tenon, first)
    start = [p.detach().clone() for p in first.param_groups[0]["params"]]
    again = made(tenon, name, [tenon.nn.Parameter(p) for p in start], lr=0.7)
    again.load_state_dict(first.state_dict())
    assert again.param_groups[0]["lr"] == EACH[name]["lr"]
    for p, q in zip(steps(tenon, first), steps(tenon, again)):
        assert p.tolist() == q.tolist()


@pytest.mark.parametrize("name", EACH)
def test_what_a_loaded_state_becomes(name):
    """Float values become the parameter's dtype, counters keep theirs."""

    def run(lib):
        wide = made(lib, name)
        steps(lib, wide, 2)
        narrow = made(lib, name, [lib.nn.Parameter(lib.ones(2, 3))])
        narrow.load_state_dict(wide.state_dict())
        (state,) = narrow.state.values()
        return {k: kind(v) for k, v in sorted(state.items())}

    assert run(tenon) == stored.of_torch(run)


@pytest.mark.parametrize("name", [n for n in EACH if n != "LBFGS"])
def test_states_of_older_versions(name):
    """Counters were numbers once, and groups had fewer options."""

    def run(lib):
        o = made(lib, name)
        steps(lib, o)
        state = copy.deepcopy(o.state_dict())
        for own in state["state"].values():
            for key in ("step", "mu_product", "eta", "mu"):
                if key in own and hasattr(own[key], "item"):
                    own[key] = own[key].item()
        late = ["foreach"]
        if name != "Adafactor":
            late += ["maximize", "capturable", "differentiable", "fused", "amsgrad",
                     "decoupled_weight_decay", "nesterov"]  # fmt: skip
        for option in late:
            for group in state["param_groups"]:
                group.pop(option, None)
        o.load_state_dict(state)
        (own,) = o.state.values()
        kinds = {k: kind(v) for k, v in sorted(own.items())}
        options = {k: v for k, v in sorted(o.param_groups[0].items()) if k != "params"}
        return [kinds, options, steps(lib, o)]

    stored.same(run(tenon), stored.of_torch(run), 1e-9, 1e-12)


@pytest.mark.parametrize("name", EACH)
def test_copies_and_pickles(name):
    o = made(tenon, name)
    steps(tenon, o)
    want = steps(tenon, copy.deepcopy(o))
    again = pickle.loads(pickle.dumps(o))
    seen = []
    again.register_step_pre_hook(lambda *_: seen.append(1))
    again.register_load_state_dict_post_hook(lambda *_: seen.append(2))
    assert [p.tolist() for p in steps(tenon, again)] == [p.tolist() for p in want]
    again.load_state_dict(o.state_dict())
    assert seen == [1, 1, 1, 2]
    assert again.defaults == {"differentiable": False, **o.defaults}


def test_lbfgs_in_a_valley():
    """Rosenbrock's function, with few and many remembered steps."""

    def run(lib):
        path = []
        for options in ({"history_size": 2}, {"max_iter": 30}, {"max_eval": 6}, {"lr": 0.5},
                        {"tolerance_grad": 1e3}, {"tolerance_change": 1.0}):  # fmt: skip
            p = lib.nn.Parameter(lib.tensor([-1.2, 1.0], dtype=lib.float64))
            o = lib.optim.LBFGS([p], **{"max_iter": 8, "line_search_fn": "strong_wolfe", **options})
            calls = []

            def closure(o=o, p=p, calls=calls):
                o.zero_grad()
                loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
                loss.backward()
                calls.append(1)
                return loss

            for _ in range(3):
                loss = o.step(closure)
                path.append([float(loss), len(calls), o.state[p]["n_iter"], p.detach().clone()])
        return path

    stored.same(run(tenon), stored.of_torch(run), 1e-6, 1e-9)


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (2, 3, 4)])
def test_adafactor_of_shapes(shape):
    def run(lib):
        values = np.linspace(-1, 2, int(np.prod(shape))).reshape(shape)
        o = lib.optim.Adafactor([lib.nn.Parameter(lib.tensor(values))], lr=0.05)
        after = steps(lib, o, 4)
        (own,) = o.state.values()
        return [after, {k: v for k, v in sorted(own.items())}]

    stored.same(run(tenon), stored.of_torch(run), 1e-9, 1e-12)


def test_zeroed_gradients():
    p = tenon.nn.Parameter(tenon.ones(2))
    o = tenon.optim.SGD([p], lr=0.1)
    (p**3).sum().backward(create_graph=True)
    held = p.grad
    assert held.grad_fn is not None
    o.zero_grad(set_to_none=False)
    assert p.grad is held and held.grad_fn is None and held.tolist() == [0, 0]
    p.grad.fill_(2.0).requires_grad_()
    o.zero_grad(set_to_none=False)
    assert not p.grad.requires_grad and p.grad.tolist() == [0, 0]
    o.zero_grad()
    assert p.grad is None
    o.zero_grad(set_to_none=False)
    assert p.grad is None


def test_groups():
    def run(lib):
        one, two, three, four = (lib.nn.Parameter(lib.ones(i + 1)) for i in range(4))
        o = lib.optim.SGD((p for p in [one, two]), lr=0.1)
        o.add_param_group({"params": three, "lr": 0.5})
        o.add_param_group({"params": (p for p in [four]), "weight_decay": 0.25})
        steps(lib, o)
        groups = o.state_dict()["param_groups"]
        kept = [[list(p.shape) for p in g["params"]] for g in o.param_groups]
        return [[g["params"] for g in groups], kept, [[g["lr"], g["weight_decay"]] for g in groups]]

    stored.same(run(tenon), stored.of_torch(run))


def test_groups_with_names():
    def run(lib):
        net = lib.nn.Linear(2, 1)
        o = lib.optim.Adam(net.named_parameters(), lr=0.1)
        o.add_param_group({"params": [("extra", lib.nn.Parameter(lib.ones(1)))]})
        state = copy.deepcopy(o.state_dict())
        names = [g["param_names"] for g in state["param_groups"]]
        for group in state["param_groups"]:
            group["param_names"] = [n.upper() for n in group["param_names"]]
        o.load_state_dict(state)
        renamed = [g["param_names"] for g in o.param_groups]
        for group in state["param_groups"]:
            del group["param_names"]
        o.load_state_dict(state)
        return [names, renamed, [g["param_names"] for g in o.param_groups]]

    stored.same(run(tenon), stored.of_torch(run))


WRONG = [
    "o.add_param_group([p])",
    "o.add_param_group({'params': [q, 'x']})",
    "o.add_param_group({'params': {q}})",
    "o.add_param_group({'params': [p]})",
    "o.add_param_group({'params': [q * 2]})",
    "o.add_param_group({'params': [('q', q)]})",
    "o.add_param_group({'params': [('q', q), r]})",
    "optim.Optimizer([q], {'lr': base.required})",
    "optim.Optimizer([q], {}).step()",
    "optim.Adam(q)",
    "optim.Adam([q], lr=tn.tensor(0.1), foreach=True)",
    "optim.Adam([q], fused=True, foreach=True)",
    "optim.Adam([q], betas=(0.9, tn.tensor(0.9)))",
    "optim.Adam([q], betas=(tn.tensor(0.9), tn.tensor(0.9)), foreach=True)",
    "optim.Adam([q], betas=(0.9, 1.0))",
    "optim.Adam([q], lr=tn.tensor([0.1, 0.2]))",
    "optim.SGD([q], lr=tn.tensor([0.1, 0.2]))",
    "optim.SparseAdam([q], lr=0.0)",
    "optim.SparseAdam([q], eps=0.0)",
    "optim.SparseAdam([q], betas=(1.0, 0.9))",
    "optim.SparseAdam([q], betas=(0.9, -0.1))",
    "optim.NAdam([q], momentum_decay=-1)",
    "optim.NAdam([q], betas=(0.9, 1.0))",
    "optim.RAdam([q], betas=(-0.1, 0.9))",
    "optim.Adamax([q], eps=-1)",
    "optim.Adagrad([q], lr_decay=-1)",
    "optim.Adagrad([q], initial_accumulator_value=-1)",
    "optim.Adadelta([q], rho=1.5)",
    "optim.Rprop([q], etas=(1.2, 0.5))",
    "optim.ASGD([q], lr=-1)",
    "optim.LBFGS([{'params': [q]}, {'params': [r]}])",
    "optim.LBFGS([q], line_search_fn='exact').step(loss)",
    "o.load_state_dict({'state': {}, 'param_groups': []})",
    "o.load_state_dict({'state': {}, 'param_groups': [{'params': [0, 1]}]})",
    "hooked(7)",
]


@pytest.mark.parametrize("text", WRONG)
def test_errors_read_like_pytorch(text):
    def error(lib) -> list[str]:
        p, q, r = (lib.nn.Parameter(lib.ones(1)) for _ in range(3))
        o = lib.optim.SGD([p], lr=0.1)

        def hooked(answer):
            o.register_step_pre_hook(lambda *_: answer)
            o.step()

        def loss():
            value = (q * q).sum()
            value.backward()
            return value

        base = importlib.import_module(f"{lib.__name__}.optim.optimizer")
        names = {
            "optim": lib.optim,
            "base": base,
            "loss": loss,
            "tn": lib,
            "p": p,
            "q": q,
            "r": r,
            "o": o,
            "hooked": hooked,
        }
        try:
            eval(text, names)
        except Exception as err:
            return [type(err).__name__, str(err).replace("torch", "tenon")[:30]]
        return ["no error"]

    mine = error(tenon)
    assert mine[0] != "no error"
    want = stored.of_torch(error)
    assert mine[0] == want[0]
    if not mine[1].startswith("<function"):
        assert mine[1] == want[1]


def test_hooks_around_states():
    def run(lib):
        p = lib.nn.Parameter(lib.ones(1))
        o = lib.optim.SGD([p], lr=0.1)
        seen = []
        o.register_state_dict_pre_hook(lambda o: seen.append("second"))
        o.register_state_dict_pre_hook(lambda o: seen.append("first"), prepend=True)
        o.register_state_dict_post_hook(lambda o, s: {**s, "extra": 1})
        o.register_state_dict_post_hook(lambda o, s: seen.append(sorted(s)))

        def with_rate(o, s):
            groups = [{**g, "lr": 0.5} for g in s["param_groups"]]
            return {"state": s["state"], "param_groups": groups}

        handle = o.register_load_state_dict_pre_hook(with_rate)
        o.register_load_state_dict_pre_hook(lambda o, s: seen.append(sorted(s)), prepend=True)
        o.register_load_state_dict_post_hook(lambda o: seen.append(o.param_groups[0]["lr"]))
        state = o.state_dict()
        o.load_state_dict(state)
        handle.remove()
        o.load_state_dict(state)
        return [seen, sorted(state), state["param_groups"][0]["lr"]]

    stored.same(run(tenon), stored.of_torch(run))


def test_hooks_around_every_step():
    def run(lib):
        p = lib.nn.Parameter(lib.ones(1))
        o = lib.optim.SGD([p], lr=0.1)
        seen = []

        def half(o, args, kwargs):
            seen.append(["half", len(args), sorted(kwargs)])
            return (args[0], lambda: seen.append("half's closure")), {}

        base = importlib.import_module(f"{lib.__name__}.optim.optimizer")
        handles = [
            base.register_optimizer_step_pre_hook(lambda o, a, k: seen.append("before all")),
            base.register_optimizer_step_post_hook(lambda o, a, k: seen.append("after all")),
        ]
        try:
            o.step()
            mine = o.register_step_pre_hook(half)
            o.register_step_post_hook(lambda o, a, k: seen.append("after"))
            o.step(closure=lambda: seen.append("never"))
            mine.remove()
        finally:
            for handle in handles:
                handle.remove()
        o.step()
        return seen

    stored.same(run(tenon), stored.of_torch(run))


def test_a_closure_has_gradients_on_and_gives_the_loss():
    p = tenon.nn.Parameter(tenon.tensor([3.0]))
    o = tenon.optim.SGD([p], lr=0.5)

    def closure():
        assert tenon.is_grad_enabled()
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tenon.no_grad():
        assert o.step(closure).item() == 9.0
    assert p.item() == 0.0 and o.step() is None


def test_shared_sums():
    p = tenon.nn.Parameter(tenon.ones(3))
    o = tenon.optim.Adagrad([p])
    assert not o.state[p]["sum"].is_shared()
    o.share_memory()
    assert o.state[p]["sum"].is_shared()


def test_rates_and_betas_that_are_tensors():
    def run(lib):
        path = []
        for name in ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "RMSprop", "Adagrad"):
            path.append(steps(lib, made(lib, name, lr=lib.tensor(0.05, dtype=lib.float64))))
        betas = (lib.tensor(0.8), lib.tensor(0.9))
        path.append(steps(lib, made(lib, "Adam", betas=betas)))
        return path

    stored.same(run(tenon), stored.of_torch(run), 1e-6, 1e-8)


def test_sparse_adam():
    def run(lib):
        table = lib.nn.Embedding(6, 3, sparse=True, dtype=lib.float64)
        with lib.no_grad():
            table.weight.copy_(lib.arange(18.0).view(6, 3) / 9)
        o = lib.optim.SparseAdam(table.parameters(), lr=0.1, betas=(0.8, 0.95), eps=1e-6)
        for rows in ([0, 2, 2], [2, 5], [0, 1]):
            o.zero_grad()
            (table(lib.tensor(rows)) ** 2).sum().backward()
            o.step()
        state = o.state[table.weight]
        return [table.weight.detach(), state["step"], state["exp_avg"], state["exp_avg_sq"]]

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 1e-14)


LAYOUTS = {
    "rows": lambda v: tenon.tensor(v),
    "columns": lambda v: tenon.tensor(np.ascontiguousarray(v.T)).mT,
    "gaps": lambda v: tenon.tensor(np.repeat(v, 2, axis=1))[:, ::2],
    "one row": lambda v: tenon.tensor(v)[:1],
    "one row of columns": lambda v: tenon.tensor(np.ascontiguousarray(v.T)).mT[:1],
}


@pytest.mark.parametrize("grad", LAYOUTS)
@pytest.mark.parametrize("param", LAYOUTS)
@pytest.mark.parametrize("hidden", [False, True])
def test_layouts_do_not_matter(param, grad, hidden):
    """A step of Adam by its formula, wherever the numbers lie."""
    w, g = np.arange(12.0).reshape(3, 4) / 7, np.cos(np.arange(12.0)).reshape(3, 4)
    tenon._C._hide_kernels(hidden)
    try:
        p, d = LAYOUTS[param](w), LAYOUTS[grad](g)
        rows = min(p.shape[0], d.shape[0])
        p, d = tenon.nn.Parameter(p[:rows]), d[:rows]
        other = tenon.nn.Parameter(tenon.tensor(w))
        o = tenon.optim.Adam([p, other], lr=0.1, betas=(0.5, 0.75), eps=0.0)
        for k in (1.0, 2.0):
            p.grad, other.grad = d if k == 1.0 else d * k, tenon.tensor(g)
            o.step()
    finally:
        tenon._C._hide_kernels(False)
    g = g[:rows]
    first = 0.1 * np.sign(g)
    mean = (0.25 * g + 0.5 * 2 * g) / 0.75
    square = (0.75 * 0.25 * g * g + 0.25 * 4 * g * g) / (1 - 0.75**2)
    np.testing.assert_allclose(p.detach().numpy(), w[:rows] - first - 0.1 * mean / np.sqrt(square))
    np.testing.assert_allclose(
        other.detach().numpy()[0], w[0] - 0.2 * np.sign(np.cos(np.arange(4)))
    )


def adam(p, g, m, v, s, **more):
    """One direct call of the step's operator."""
    options = {"lr": 0.1, "rate": None, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    options |= {"weight_decay": 0.0, "amsgrad": False, "maximize": False, "decoupled": False}
    return tenon._C._ops._adam_(p, g, m, v, [], s, **{**options, **more})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"g": [tenon.ones(2), tenon.ones(2)]}, "the lists have different lengths"),
        ({"m": []}, "_adam_"),
        ({"g": [tenon.ones(3)]}, "another shape than its parameter"),
        ({"g": [tenon.ones(2, 1)]}, "another shape than its parameter"),
        ({"v": [tenon.ones(2, dtype=tenon.float64)]}, "another dtype or device"),
        ({"s": [tenon.ones(2)]}, "must be float32 or float64 numbers"),
        ({"s": [tenon.ones((), dtype=tenon.int64)]}, "must be float32 or float64 numbers"),
        ({"s": []}, "_adam_"),
        ({"rate": tenon.ones(2)}, "learning rate must be one floating point number"),
        ({"rate": tenon.ones((), dtype=tenon.int64)}, "must be one floating point number"),
        ({k: [tenon.ones(2, dtype=tenon.int64)] for k in "pgmv"}, "not a floating point tensor"),
    ],
)
def test_lists_that_do_not_fit(change, text):
    lists = {k: [tenon.ones(2)] for k in "pgmv"} | {"s": [tenon.ones(())]}
    with pytest.raises((ValueError, RuntimeError, TypeError), match=text):
        adam(**{**lists, **change})
    assert lists["p"][0].tolist() == [1, 1]


def test_a_rate_may_be_a_tensor_of_any_float():
    for dtype in ("float64", "float32", "float16", "bfloat16"):
        p = [tenon.zeros(2)]
        rest = [[tenon.full((2,), 3.0)], [tenon.zeros(2)], [tenon.zeros(2)], [tenon.zeros(())]]
        adam(p, *rest, rate=tenon.tensor(0.5, dtype=getattr(tenon, dtype)))
        np.testing.assert_allclose(p[0].tolist(), [-0.5, -0.5], rtol=1e-6)
