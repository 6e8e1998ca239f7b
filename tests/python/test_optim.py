"""Optimizers and schedules against PyTorch: losses, states, texts, files that go both ways."""

from __future__ import annotations

import copy
import math
import warnings

import numpy as np
import pytest
import stored
import tenon

OPTIMIZERS = [
    "SGD(p, lr=0.05)",
    "SGD(p, lr=0.05, momentum=0.9)",
    "SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1, nesterov=True)",
    "SGD(p, lr=0.005, momentum=0.8, dampening=0.3, maximize=True)",
    "SGD(p, lr=0.05, weight_decay=0.1)",
    "Adam(p, lr=0.01)",
    "Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True)",
    "Adam(p, lr=0.01, betas=(0.3, 0.8), eps=1e-6, maximize=True)",
    "AdamW(p, lr=0.01)",
    "AdamW(p, lr=0.01, weight_decay=0.2, amsgrad=True)",
    "RMSprop(p, lr=0.01)",
    "RMSprop(p, lr=0.01, momentum=0.9, centered=True, weight_decay=0.1)",
    "Adagrad(p, lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1)",
    "Adadelta(p, lr=1.0, weight_decay=0.1)",
    "NAdam(p, lr=0.01)",
    "NAdam(p, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True)",
    "RAdam(p, lr=0.01, weight_decay=0.1)",
    "Adamax(p, lr=0.01, weight_decay=0.1)",
    "Rprop(p, lr=0.01)",
    "ASGD(p, lr=0.05, lambd=0.01, t0=8, weight_decay=0.1)",
    "Adafactor(p, lr=0.1)",
    "Adafactor(p, lr=0.1, beta2_decay=-0.5, eps=(1e-5, 1e-2), d=1.5, weight_decay=0.1)",
    "Adafactor(p, maximize=True)",
    "LBFGS(p, lr=0.3, max_iter=5)",
    "LBFGS(p, max_iter=6, line_search_fn='strong_wolfe')",
]


def array(t) -> np.ndarray:
    return t.detach().numpy()


class Problem:
    """A small regression with parameters of several shapes, one of them without a gradient."""

    def __init__(self, lib, text: str, dtype: str = "float32"):
        self.lib = lib
        rng = np.random.default_rng(1)
        kind = getattr(lib, dtype)

        def param(*shape):
            values = rng.standard_normal(shape)
            return lib.nn.Parameter(lib.tensor(values.tolist(), dtype=kind))

        self.w, self.b, self.idle = param(6, 4), param(4), param(3)
        self.scale = lib.nn.Parameter(lib.tensor(1.5, dtype=kind))
        self.x = lib.tensor(rng.standard_normal((8, 6)).tolist(), dtype=kind)
        self.y = lib.tensor(rng.standard_normal((8, 4)).tolist(), dtype=kind)
        self.params = [self.w, self.b, self.idle, self.scale]
        self.opt = eval("optim." + text, {"optim": lib.optim, "p": self.params})

    def loss(self):
        self.opt.zero_grad()
        value = ((self.x @ self.w + self.b) * self.scale - self.y).pow(2).mean()
        value.backward()
        return value

    def step(self) -> float:
        if type(self.opt).__name__ == "LBFGS":
            return float(self.opt.step(self.loss))
        value = float(self.loss())
        self.opt.step()
        return value


def walked(lib, text: str, dtype: str, steps: int) -> dict:
    """Losses, groups and states of some steps."""
    problem = Problem(lib, text, dtype)
    losses = [problem.step() for _ in range(steps)]
    state = problem.opt.state_dict()
    return {
        "text": repr(problem.opt),
        "losses": losses,
        "groups": [{k: v for k, v in g.items()} for g in state["param_groups"]],
        "state": state["state"],
        "params": [p.detach() for p in problem.params],
    }


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_twenty_steps(text):
    # LBFGS magnifies the last places, so it is compared where there are many of them, for a while.
    # LBFGS keeps its state in the order in which it came to need it.
    quasi_newton = "LBFGS" in text
    dtype, steps = ("float64", 4) if quasi_newton else ("float32", 20)
    mine = walked(tenon, text, dtype, steps)
    theirs = stored.of_torch(lambda torch: walked(torch, text, dtype, steps))
    if quasi_newton:
        for walk in (mine, theirs):
            walk["state"] = {i: dict(sorted(s.items())) for i, s in walk["state"].items()}
    for key in ("text", "groups"):
        stored.same(mine[key], theirs[key])
    stored.same(mine["losses"], theirs["losses"], 2e-4, 1e-6)
    stored.same(mine["state"], theirs["state"], 2e-3, 1e-5)


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_one_step_to_the_last_places(text):
    mine = walked(tenon, text, "float64", 3)["params"]
    theirs = stored.of_torch(lambda torch: walked(torch, text, "float64", 3)["params"])
    stored.same(mine, theirs, 1e-6 if "LBFGS" in text else 1e-12, 1e-13)


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_steps_without_kernels(text):
    """Composites step as the kernels do: what a device runs that has no kernels of optimizers."""
    steps = 3 if "LBFGS" in text else 8  # RAdam's sixth step is of another kind
    want = walked(tenon, text, "float64", steps)
    tenon._C._hide_kernels(True)
    try:
        got = walked(tenon, text, "float64", steps)
    finally:
        tenon._C._hide_kernels(False)
    counted = "NAdam" in text or "LBFGS" in text  # with products in float32; places magnified
    near = 1e-7 if counted else 1e-12
    stored.same(got["params"], [array(p) for p in want["params"]], near, 1e-13)
    assert repr(got["state"].keys()) == repr(want["state"].keys())
    for mine, kept in zip(got["state"].values(), want["state"].values(), strict=True):
        for name, value in kept.items():
            if isinstance(value, tenon.Tensor):
                np.testing.assert_allclose(array(mine[name]), array(value), near, near / 10)


@pytest.mark.parametrize("name", ["", "rmspro", "rmsprop2", "sgd"])
def test_rules_have_names(name):
    w = [tenon.ones(2)]
    with pytest.raises(ValueError, match=f"there is no rule '{name}'"):
        tenon._C._ops._rule_(w, w, w, [], [], [tenon.tensor(1.0)], name, lr=0.1)


@pytest.mark.parametrize("name", ["Adagrad", "NAdam", "RAdam", "Adamax", "ASGD"])
def test_steps_without_kernels_are_counted_before_a_graph_is_captured(name):
    w = tenon.ones(3, requires_grad=True)
    w.grad = tenon.ones(3)
    optimizer = getattr(tenon.optim, name)([w], **({"lr_decay": 0.1} if name == "Adagrad" else {}))
    optimizer.step()
    tenon._C._hide_kernels(True)
    try:
        with pytest.raises(RuntimeError, match="counting steps on the host is not possible"):
            with tenon.graph(tenon.Graph()):
                optimizer.step()
    finally:
        tenon._C._hide_kernels(False)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(dtype):
    mine = walked(tenon, "AdamW(p, lr=0.01)", dtype, 3)["params"]
    theirs = stored.of_torch(lambda torch: walked(torch, "AdamW(p, lr=0.01)", dtype, 3)["params"])
    stored.same(mine, theirs, 0.05, 0.02)


def test_strided_parameters():
    """Parameters in another memory order than their gradients and states."""

    def moved(lib):
        lib.manual_seed(0)
        base = lib.tensor(np.arange(24.0, dtype=np.float32).reshape(4, 6).tolist())
        p = base.t().detach().requires_grad_()
        q = lib.tensor(np.arange(12.0, dtype=np.float32).tolist())[::2].detach().requires_grad_()
        for name in ("SGD", "AdamW"):
            opt = getattr(lib.optim, name)([p, q], lr=0.1)
            (p.pow(2).sum() + (q * 3).sum()).backward()
            opt.step()
        return [p, q]

    stored.same(moved(tenon), stored.of_torch(moved), 1e-6)


def test_state_goes_over_to_torch_and_back():
    torch = pytest.importorskip("torch", reason="no PyTorch to exchange states with")
    ours, theirs = Problem(tenon, "Adam(p, lr=0.01)"), Problem(torch, "Adam(p, lr=0.01)")
    for _ in range(3):
        ours.step(), theirs.step()

    def as_other(value, lib):
        if isinstance(value, dict):
            return {k: as_other(v, lib) for k, v in value.items()}
        if hasattr(value, "detach"):
            return lib.from_numpy(array(value).copy())
        return value

    theirs.opt.load_state_dict(as_other(ours.opt.state_dict(), torch))
    ours.opt.load_state_dict(as_other(theirs.opt.state_dict(), tenon))
    assert ours.step() == pytest.approx(theirs.step(), rel=1e-5)
    assert float(ours.opt.state[ours.w]["step"]) == 4.0


def test_a_write_is_counted():
    p = tenon.nn.Parameter(tenon.ones(3))
    q = (p * p).sum()
    opt = tenon.optim.SGD([p], lr=0.1)
    p.grad = tenon.ones(3)
    opt.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        q.backward()


def test_many_small_tensors():
    def moved(lib):
        params = [lib.nn.Parameter(lib.ones(i % 7)) for i in range(200)]
        opt = lib.optim.AdamW(params, lr=0.1)
        for p in params:
            p.grad = lib.ones(p.shape)
        opt.step()
        return lib.cat(params)

    stored.same(moved(tenon), stored.of_torch(moved), 1e-6)


def test_a_class_around_an_optimizer():
    """Packages derive from Optimizer, call no __init__ of it and pass everything on."""

    class Around(tenon.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner

        def step(self, closure=None):
            return self.inner.step(closure)

    p = tenon.nn.Parameter(tenon.ones(1))
    p.grad = tenon.ones(1)
    seen = []
    inner = tenon.optim.SGD([p], lr=0.5)
    inner.register_step_post_hook(lambda o, args, kwargs: seen.append(o))
    Around(inner).step()
    assert p.item() == 0.5 and seen == [inner]


def test_hooks_and_closure():
    p = tenon.nn.Parameter(tenon.ones(1))
    opt = tenon.optim.SGD([p], lr=0.1)
    seen = []
    pre = opt.register_step_pre_hook(lambda o, args, kwargs: seen.append("pre"))
    opt.register_step_post_hook(lambda o, args, kwargs: seen.append("post"))

    def closure():
        opt.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    assert float(opt.step(closure)) == 1.0
    pre.remove()
    opt.step(closure)
    assert seen == ["pre", "post", "post"]
    twin = copy.deepcopy(opt)
    assert twin.param_groups[0]["lr"] == 0.1


WRONG = [
    "SGD([], lr=0.1)",
    "SGD(p, lr=-1)",
    "SGD(p, lr=0.1, momentum=-1)",
    "SGD(p, lr=0.1, nesterov=True)",
    "Adam(p, betas=(1.0, 0.9))",
    "Adam(p, eps=-1)",
    "SGD([1, 2], lr=0.1)",
    "SGD([p[0], p[0]], lr=0.1)",
    "SGD([{'params': p}, {'params': p}], lr=0.1)",
    "SGD([p[0] * 2], lr=0.1)",
    "SGD({p[0]}, lr=0.1)",
    "RMSprop(p, alpha=-1)",
]


@pytest.mark.parametrize("text", WRONG)
def test_errors_read_like_pytorch(text):
    def error(lib) -> str:
        p = [lib.nn.Parameter(lib.ones(2))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                eval("optim." + text, {"optim": lib.optim, "p": p})
            except Exception as err:
                return f"{type(err).__name__}: {err}".replace("torch.", "tenon.")
        return "no error"

    assert error(tenon) == stored.of_torch(error)


def test_clip_norm_of_several_dtypes():
    grads = [np.array([3.0, 4.0]), np.array([[12.0]]), np.array([-84.0])]
    for norm in (1.0, 2.0, math.inf, 3.0):

        def clipped(lib, norm=norm):
            params = [lib.nn.Parameter(lib.zeros(g.shape)) for g in grads]
            for p, g in zip(params, grads):
                p.grad = lib.tensor(g.tolist(), dtype=lib.float32)
            total = lib.nn.utils.clip_grad_norm_(params, 10.0, norm)
            return [float(total), *(p.grad for p in params)]

        stored.same(clipped(tenon), stored.of_torch(clipped), 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_unscaling_finds_what_is_not_finite(dtype):
    for bad in (None, math.inf, -math.inf, math.nan):
        values = np.arange(1.0, 30001.0) % 64
        grads = [tenon.tensor(values).to(getattr(tenon, dtype)), tenon.ones(3)]
        strided = tenon.ones(4, 6)[:, ::2]
        if bad is not None:
            grads[0][29000] = bad
        found = tenon.zeros(())
        tenon._C._ops._unscale_([*grads, strided], found, factor=0.5)
        assert found.item() == (bad is not None)
        assert grads[0][:100].tolist() == (values[:100] / 2).tolist()
        assert grads[1].tolist() == [0.5] * 3 and strided.sum().item() == 6
    with pytest.raises(ValueError, match="found must be one number of float32"):
        tenon._C._ops._unscale_([tenon.ones(3)], tenon.zeros(2), factor=1.0)


@pytest.mark.parametrize(
    ("name", "option", "text"),
    [
        ("RMSprop", {"alpha": -1.0}, "Invalid alpha value: -1.0"),
        ("Adagrad", {"lr_decay": -1.0}, "Invalid lr_decay value: -1.0"),
        ("Adadelta", {"rho": 1.5}, "Invalid rho value: 1.5"),
        ("NAdam", {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
        ("NAdam", {"momentum_decay": -1.0}, "Invalid momentum_decay value: -1.0"),
        ("RAdam", {"eps": -1.0}, "Invalid epsilon value: -1.0"),
        ("Adamax", {"lr": -1.0}, "Invalid learning rate: -1.0"),
        ("Rprop", {"etas": (1.5, 2.0)}, "Invalid eta values: 1.5, 2.0"),
        ("ASGD", {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
    ],
)
def test_options_are_checked(name, option, text):
    param = tenon.nn.Parameter(tenon.ones(2))
    with pytest.raises(ValueError, match=text):
        getattr(tenon.optim, name)([param], **option)


@pytest.mark.parametrize(
    "options",
    [{}, {"nesterov": False, "momentum": 0.5}, {"adjust_lr_fn": "match_rms_adamw", "lr": 0.1},
     {"ns_coefficients": (2.0, -1.5, 0.5), "ns_steps": 7, "weight_decay": 0.0}],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(6, 4), (3, 5)])
def test_muon(shape, options):
    """Three steps, next to the definition in double precision; it rounds to bfloat16 inside."""
    rng = np.random.default_rng(3)
    want = rng.standard_normal(shape)
    p = tenon.nn.Parameter(tenon.tensor(want, dtype=tenon.float32))
    opt = tenon.optim.Muon([p], **options)
    given = {**opt.defaults}
    a, b, c = given["ns_coefficients"]
    buffer = np.zeros(shape)
    for _ in range(3):
        grad = rng.standard_normal(shape)
        p.grad = tenon.tensor(grad, dtype=tenon.float32)
        opt.step()
        momentum = given["momentum"]
        buffer += (1 - momentum) * (grad - buffer)
        x = grad + momentum * (buffer - grad) if given["nesterov"] else buffer
        x = x / np.linalg.norm(x)
        for _ in range(given["ns_steps"]):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        most = {"match_rms_adamw": 0.2 * max(shape) ** 0.5}
        lr = given["lr"] * most.get(given["adjust_lr_fn"], max(1, shape[0] / shape[1]) ** 0.5)
        want = want * (1 - given["lr"] * given["weight_decay"]) - lr * x
        np.testing.assert_allclose(array(p), want, atol=0.1 * lr)
    np.testing.assert_allclose(array(opt.state[p]["momentum_buffer"]), buffer, atol=1e-6)


def test_muon_rounds_with_a_rate_that_is_a_tensor():
    """1 - lr weight_decay is computed in the dtype of lr, as PyTorch has it."""
    p = tenon.nn.Parameter(tenon.ones(2, 2, dtype=tenon.float64))
    p.grad = tenon.zeros(2, 2, dtype=tenon.float64)
    tenon.optim.Muon([p], lr=tenon.tensor(1e-3), weight_decay=0.1).step()
    rounded = np.float32(1) - np.float32(1e-3) * np.float32(0.1)
    assert array(p)[0, 0] == float(rounded) != 1 - 1e-3 * 0.1


@pytest.mark.parametrize(
    ("name", "option", "text"),
    [
        ("Muon", {"lr": -1.0}, "Learning rate should be >= 0"),
        ("Muon", {"momentum": -1.0}, "momentum should be >= 0"),
        ("Muon", {"weight_decay": -1.0}, "weight decay should be >= 0"),
        ("Muon", {"adjust_lr_fn": "no"}, "no is not supported"),
        ("Muon", {"lr": tenon.ones(2)}, "1-element"),
        ("Adafactor", {"lr": -1.0}, "Learning rate should be >= 0"),
        ("Adafactor", {"lr": tenon.ones(2)}, "1-element"),
        ("Adafactor", {"beta2_decay": 1.0}, "beta2_decay should be <= 0"),
        ("Adafactor", {"eps": (-1.0, 1.0)}, "epsilon1 should be >= 0"),
        ("Adafactor", {"eps": (None, -1.0)}, "epsilon2 should be >= 0"),
        ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1"),
        ("Adafactor", {"weight_decay": -1.0}, "weight_decay should be >= 0"),
    ],
)
def test_options_of_matrix_optimizers_are_checked(name, option, text):
    with pytest.raises(ValueError, match=text):
        getattr(tenon.optim, name)([tenon.nn.Parameter(tenon.ones(2, 2))], **option)


@pytest.mark.parametrize("name", ["Muon", "Adafactor"])
def test_matrix_optimizers_refuse(name):
    p = tenon.nn.Parameter(tenon.ones(2, 2, dtype=tenon.complex64))
    p.grad = tenon.ones_like(p)
    with pytest.raises(RuntimeError, match="does not support complex parameters"):
        getattr(tenon.optim, name)([p]).step()
    if name == "Muon":
        p = tenon.nn.Parameter(tenon.ones(2, 2))
        p.grad = tenon.ones(2, 2)
        with pytest.raises(ValueError, match="only supports 2D"):
            tenon.optim.Muon([tenon.nn.Parameter(tenon.ones(2))])
        with pytest.raises(ValueError, match="less than 100"):
            tenon.optim.Muon([p], ns_steps=100).step()
        with pytest.raises(ValueError, match="exactly 3"):
            tenon.optim.Muon([p], ns_coefficients=(1.0, 2.0)).step()
