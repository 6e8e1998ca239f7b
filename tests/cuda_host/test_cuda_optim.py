"""Lists of tensors on the CUDA host harness: steps, norms, scaling; next to NumPy and the CPU."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

LISTS = """
import numpy as np
rng = np.random.default_rng(0)
shapes = [(3, 4), (0,), (5000,), (), (9000,), (2, 3, 4)] + [(7,)] * 100
def lists(dtype=tn.float32):
    whole = [rng.standard_normal(s) for s in shapes]
    return whole, [tn.from_numpy(np.asarray(x)).to(dtype).to("cuda") for x in whole]
"""


def test_gradients_are_clipped_without_a_wait() -> None:
    """More tensors than one launch takes, empty ones and long ones among them."""
    harness.script(
        LISTS
        + """
clip = tn.nn.utils.clip_grad_norm_
for order in (1.0, 2.0, float("inf")):
    for dtype, tol in ((tn.float64, 1e-12), (tn.float32, 1e-5), (tn.bfloat16, 2e-2)):
        whole, grads = lists(dtype)
        params = [tn.zeros_like(g).requires_grad_() for g in grads]
        for p, g in zip(params, grads):
            p.grad = g
        flat = np.concatenate([x.ravel() for x in whole])
        want = np.linalg.norm(flat, order)
        total = clip(params, 0.25 * want, order)
        assert abs(float(total) - want) < tol * want, (order, dtype)
        factor = 0.25 * want / (want + 1e-6)
        for p, x in zip(params, whole):
            assert np.allclose(p.grad.double().cpu().numpy(), factor * x, rtol=2 * tol, atol=tol)
        kept = [p.grad.cpu() for p in params]
        clip(params, 1e9, order)  # small already: not a bit changes
        assert all(tn.equal(p.grad.cpu(), k) for p, k in zip(params, kept))
few = [tn.ones(n, device="cuda").requires_grad_() for n in range(1, 41)]
for p in few:
    p.grad = tn.ones_like(p)
for i in range(2):
    tn.cuda.reset_counters()
    clip(few, 0.5)
counted = tn.cuda.counters()
assert counted["launches"] <= 10 and counted["waits"] == 0, counted
bad = tn.ones(5, device="cuda").requires_grad_()
bad.grad = tn.tensor([1.0, float("nan"), 2.0, 3.0, 4.0], device="cuda")
for order in (1.0, 2.0, float("inf")):
    assert clip([bad], 1.0, order).isnan().item()
for op in ("_norms_step", "_scale_step"):
    assert tn.cuda.fallback_count(op) == (0, 0), op
"""
    )


def test_the_scaler_unscales_in_one_launch() -> None:
    harness.script(
        LISTS
        + """
for spoiled in (None, float("inf"), float("nan")):
    whole, grads = lists()
    params = [tn.zeros_like(g).requires_grad_() for g in grads]
    for p, g in zip(params, grads):
        p.grad = g
    if spoiled is not None:
        params[4].grad[8999] = spoiled
    opt = tn.optim.SGD(params, lr=1.0)
    scaler = tn.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale(tn.ones((), device="cuda"))
    scaler.unscale_(opt)
    for p, x in list(zip(params, whole))[:4]:
        assert np.allclose(p.grad.cpu().numpy(), x / 4, rtol=1e-6)
    scaler.step(opt)
    scaler.update()
    moved = any(p.detach().abs().sum().item() > 0 for p in params)
    assert moved == (spoiled is None) and scaler.get_scale() == (4.0 if moved else 2.0)
assert tn.cuda.fallback_count("_unscale_step") == (0, 0)
"""
    )


def test_amsgrad_steps_on_the_device() -> None:
    harness.script("""
def train(device):
    tn.manual_seed(0)
    w = tn.randn(40, 3).to(device).requires_grad_()
    opt = tn.optim.Adam([w], lr=0.1, amsgrad=True, weight_decay=0.01)
    for i in range(8):
        opt.zero_grad()
        ((w * (i - 3)).sin() ** 2).sum().backward()
        opt.step()
    return w.detach().cpu()
assert tn.allclose(train("cuda"), train("cpu"), atol=1e-5)
assert tn.cuda.fallback_count("_adam_step") == (0, 0)
""")


ADAM = """
def make(device, steps, **options):
    tn.manual_seed(0)
    shapes = [(40, 3), (5000,), (0,), ()] + [(7,)] * 60
    params = [tn.randn(s).to(device).requires_grad_() for s in shapes]
    opt = tn.optim.%s(params, lr=0.1, weight_decay=0.01, **options)
    scale = tn.ones((), device=device)
    def step():
        opt.zero_grad()
        sum(((p * scale).sin() ** 2).sum() for p in params).backward()
        opt.step()
    for i in range(steps):
        scale.fill_(i - 3.0)
        step()
    return params, opt, scale, step
def same(some, others):
    return all(tn.equal(a.detach().cpu(), b.detach().cpu()) for a, b in zip(some, others))
"""


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_a_replayed_step_of_adam_is_the_step(kind: str, amsgrad: bool) -> None:
    """With counters on the device: those of the host give the same bits, eager and replayed."""
    harness.script(
        ADAM % kind
        + f"""
eager = make("cuda", 9, amsgrad={amsgrad})
there = make("cuda", 9, amsgrad={amsgrad}, capturable=True)
assert same(eager[0], there[0])
near = make("cpu", 9, amsgrad={amsgrad}, capturable=True)
assert all(tn.allclose(a.cpu(), b, atol=1e-4) for a, b in zip(there[0], near[0]))
params, opt, scale, step = make("cuda", 2, amsgrad={amsgrad}, capturable=True)
counters = [opt.state[p]["step"] for p in params]
assert all(c.device.type == "cuda" and c.item() == 2.0 for c in counters)
g = tn.cuda.CUDAGraph()
with tn.cuda.graph(g):
    step()
for i in range(2, 9):
    scale.fill_(i - 3.0)
    g.replay()
assert same(params, eager[0]) and [c.item() for c in counters] == [9.0] * len(params)
assert tn.cuda.fallback_count("_adam_step") == (0, 0)
"""
    )


def test_adam_counts_on_the_device_in_every_dtype() -> None:
    """Two launches for up to 48 tensors, and no wait; counters are of the default dtype."""
    harness.script("""
def train(dtype, **options):
    tn.manual_seed(1)
    w = tn.randn(50, dtype=tn.float32).to(dtype).cuda().requires_grad_()
    opt = tn.optim.Adam([w], lr=0.1, **options)
    for i in range(5):
        w.grad = tn.full_like(w, i - 1.5)
        tn.cuda.synchronize()
        tn.cuda.reset_counters()
        opt.step()
    counted = tn.cuda.counters()
    assert counted["waits"] == 0 and counted["launches"] == 1 + bool(options), counted
    return w.detach().cpu(), opt.state[w]["step"].dtype
for dtype in (tn.float16, tn.bfloat16, tn.float32, tn.float64):
    for default in (tn.float32, tn.float64):
        tn.set_default_dtype(default)
        (a, _), (b, counter) = train(dtype), train(dtype, capturable=True)
        assert tn.equal(a, b) and counter == default, (dtype, default)
""")


def test_adam_that_counts_on_the_host_is_not_captured() -> None:
    harness.script(
        ADAM % "AdamW"
        + """
params, opt, scale, step = make("cuda", 2)
before, g = [p.detach().clone() for p in params], tn.cuda.CUDAGraph()
try:
    with tn.cuda.graph(g):
        step()
except RuntimeError as error:
    assert "adam" in str(error) and "capturable=True" in str(error), error
else:
    raise AssertionError("the host's counters were captured")
assert same(params, before) and opt.state[params[0]]["step"].item() == 2.0
step()
"""
    )


def test_states_of_adam_go_where_the_counters_are() -> None:
    harness.script(
        ADAM % "Adam"
        + """
import copy, io
for capturable in (False, True):
    params, opt, scale, step = make("cuda", 3, capturable=capturable)
    file = io.BytesIO()
    tn.save(opt.state_dict(), file)
    file.seek(0)
    for saved in (opt.state_dict(), tn.load(file, map_location="cpu")):
        saved = copy.deepcopy(saved)
        new = tn.optim.Adam([p.detach().clone().requires_grad_() for p in params], lr=0.5)
        for change in (False, True):
            saved["param_groups"][0]["capturable"] = change
            new.load_state_dict(saved)
            counter = new.state[new.param_groups[0]["params"][0]]["step"]
            assert counter.device.type == ("cuda" if change else "cpu") and counter.item() == 3.0
        for p, q in zip(params, new.param_groups[0]["params"]):
            q.grad = p.grad.clone()
        new.step()
        assert new.state[q]["step"].item() == 4.0
    opt.step()
    assert same(params, new.param_groups[0]["params"])
"""
    )


def test_rules_that_count_are_not_captured_and_others_are() -> None:
    harness.script("""
def make(name, **options):
    w = tn.tensor([1.0, -2.0, 3.0], device="cuda").requires_grad_()
    w.grad = tn.ones_like(w)
    opt = getattr(tn.optim, name)([w], lr=0.1, **options)
    opt.step()
    return w, opt
counting = {"Adagrad": {"lr_decay": 0.1}, "NAdam": {}, "RAdam": {}, "Adamax": {}, "ASGD": {}}
for name, options in counting.items():
    w, opt = make(name, **options)
    before = w.tolist()
    try:
        with tn.cuda.graph(tn.cuda.CUDAGraph()):
            opt.step()
    except RuntimeError as error:
        assert name.lower() in str(error) and "counting on the host" in str(error), error
    else:
        raise AssertionError(name)
    assert w.tolist() == before and opt.state[w]["step"].item() == 1.0
    opt.step()
for name in ("Adagrad", "RMSprop", "Adadelta", "Rprop"):
    (w, opt), (v, eager), g = make(name), make(name), tn.cuda.CUDAGraph()
    with tn.cuda.graph(g):
        opt.step()
    for i in range(3):
        w.grad.fill_(i - 0.5)
        v.grad.fill_(i - 0.5)
        g.replay()
        eager.step()
    assert tn.equal(w.detach().cpu(), v.detach().cpu()), name
""")


def test_counters_stay_on_the_host_whatever_the_default_device_is() -> None:
    harness.script("""
tn.set_default_device("cuda")
for name in ("RMSprop", "Adagrad", "NAdam"):
    w = tn.ones(3).requires_grad_()
    w.grad = tn.ones(3)
    opt = getattr(tn.optim, name)([w])
    opt.step()
    waits = tn.cuda.counters()["waits"]
    opt.step()
    assert opt.state[w]["step"].device.type == "cpu", name
    assert tn.cuda.counters()["waits"] == waits, name
""")


RULES = """
RULES = (
    ("RMSprop", {"lr": 0.01, "alpha": 0.9}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1}),
    ("Adadelta", {"lr": 1.0, "rho": 0.8, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.02, "maximize": True}),
    ("NAdam", {"lr": 0.02, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.02, "betas": (0.8, 0.9)}),
    ("RAdam", {"lr": 0.02, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"lr": 0.1, "lambd": 0.01, "t0": 2.0, "weight_decay": 0.1}),
    ("Rprop", {"lr": 0.01}),
)
class Problem:
    def __init__(self, kind, device, dtype=tn.float32, count=20, **options):
        tn.manual_seed(0)
        shapes = [(40, 3), (5000,), (0,), ()] + [(7,)] * count
        self.params = [tn.randn(s).to(device, dtype).requires_grad_() for s in shapes]
        self.grads = [tn.randn(s).to(device, dtype) for s in shapes]
        self.scale = tn.ones((), device=device, dtype=dtype)
        self.opt = getattr(tn.optim, kind)(self.params, **options)
    def step(self):
        for p, g in zip(self.params, self.grads):
            p.grad = g * self.scale
        self.opt.step()
    def steps(self, first, end):
        for i in range(first, end):
            self.scale.fill_(i - 2.5)
            self.step()
        return self
    def agrees(self, other, tol=0.0):
        pairs = [[x.detach().double().cpu() for x in both]
                 for both in zip(self.params, other.params)]
        return all(tn.allclose(a, b, rtol=tol, atol=tol) for a, b in pairs)
"""


@pytest.mark.parametrize("dtype, tol", [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 5e-2)])
def test_rules_step_like_on_the_cpu(dtype: str, tol: float) -> None:
    harness.script(
        RULES
        + f"""
for kind, options in RULES:
    there = Problem(kind, "cuda", tn.{dtype}, **options).steps(0, 7)
    assert there.agrees(Problem(kind, "cpu", tn.{dtype}, **options).steps(0, 7), {tol}), kind
assert tn.cuda.fallback_count("_rule_step") == (0, 0)
"""
    )


def test_a_step_of_a_rule_is_one_launch() -> None:
    """With counters on the device there is a small one before it; nobody waits for either."""
    harness.script(
        RULES
        + """
for kind, options in RULES:
    for capturable in (False, True)[: 1 if kind == "Adagrad" else 2]:
        more = {"capturable": True} if capturable else {}
        problem = Problem(kind, "cuda", **options, **more).steps(0, 2)
        tn.cuda.synchronize()
        tn.cuda.reset_counters()
        problem.opt.step()
        counted = tn.cuda.counters()
        assert counted["launches"] == 1 + capturable and counted["waits"] == 0, (kind, counted)
"""
    )


def test_replayed_steps_of_rules_are_the_steps() -> None:
    """More tensors than one launch takes; replays count."""
    harness.script(
        RULES
        + """
for kind, options in RULES:
    if kind == "Adagrad":
        continue
    eager = Problem(kind, "cuda", count=60, **options).steps(0, 9)
    there = Problem(kind, "cuda", count=60, capturable=True, **options).steps(0, 2)
    graph = tn.cuda.CUDAGraph()
    with tn.cuda.graph(graph):
        there.step()
    for i in range(2, 9):
        there.scale.fill_(i - 2.5)
        graph.replay()
    assert there.agrees(eager), kind
    assert all(s["step"].item() == 9.0 and s["step"].device.type == "cuda"
               for s in there.opt.state.values()), kind
"""
    )


def test_a_replay_follows_a_learning_rate_that_is_a_tensor() -> None:
    harness.script(
        RULES
        + """
kinds = [("SGD", {}), ("SGD", {"momentum": 0.9, "weight_decay": 0.1}), ("Adam", {"amsgrad": True}),
         ("AdamW", {}), ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
         ("ASGD", {}), ("RMSprop", {})]
for kind, options in kinds:
    for dtype in (tn.float32, tn.float64, tn.float16):
        rates = [tn.tensor(0.01 * (i + 1), dtype=dtype).item() for i in range(6)]
        eager = Problem(kind, "cuda", lr=rates[0], **options)
        lr = tn.tensor(rates[0], dtype=dtype, device="cuda")
        more = {} if kind == "SGD" else {"capturable": True}
        there = Problem(kind, "cuda", lr=lr, **options, **more)
        for i, rate in enumerate(rates):
            eager.opt.param_groups[0]["lr"] = rate
            eager.steps(i, i + 1)
        for i, rate in enumerate(rates[:2]):
            lr.fill_(rate)
            there.steps(i, i + 1)
        graph = tn.cuda.CUDAGraph()
        with tn.cuda.graph(graph):
            there.step()
        for i, rate in list(enumerate(rates))[2:]:
            lr.fill_(rate)
            there.scale.fill_(i - 2.5)
            graph.replay()
        assert there.agrees(eager, 1e-6), (kind, dtype)
"""
    )


def test_states_are_not_made_inside_a_capture() -> None:
    harness.script("""
kinds = {"SGD": {"momentum": 0.9}, "Adam": {"capturable": True}, "NAdam": {"capturable": True},
         "Rprop": {}}
for kind, options in kinds.items():
    w = tn.ones(3, device="cuda").requires_grad_()
    w.grad = tn.ones_like(w)
    opt = getattr(tn.optim, kind)([w], lr=0.1, **options)
    graph = tn.cuda.CUDAGraph()
    try:
        with tn.cuda.graph(graph):
            opt.step()
    except RuntimeError as error:
        assert kind in str(error) and "call step() once before" in str(error), error
    else:
        raise AssertionError(kind)
    opt.step()
    with tn.cuda.graph(graph):
        opt.step()
""")


def test_loaded_states_are_copies() -> None:
    harness.script("""
for kind in ("Adam", "NAdam", "ASGD", "RMSprop"):
    for capturable in (False, True):
        w = tn.ones(3, device="cuda").requires_grad_()
        w.grad = tn.ones_like(w)
        opt = getattr(tn.optim, kind)([w], lr=0.1, capturable=capturable)
        opt.step()
        others = [tn.ones(3, device="cuda").requires_grad_() for i in range(2)]
        loaded = [getattr(tn.optim, kind)([p], lr=0.1) for p in others]
        for new, p in zip(loaded, others):
            new.load_state_dict(opt.state_dict())
            p.grad = tn.ones_like(p)
        for i in range(3):
            loaded[0].step()
        for key, value in opt.state[w].items():
            assert tn.equal(loaded[1].state[others[1]][key], value), (kind, key)
            assert value.device == loaded[1].state[others[1]][key].device, (kind, key)
        assert opt.state[w]["step"].item() == 1.0
        assert loaded[0].state[others[0]]["step"].item() == 4.0
""")


def test_lists_change_in_one_launch() -> None:
    """More tensors than one launch takes; next to the same on the CPU, one by one."""
    harness.script(
        LISTS
        + """
CHANGES = [
    ("add_", 1, {"alpha": 0.5}), ("add_", 1, {}), ("add_", 0.5, {}), ("sub_", 1, {"alpha": 2}),
    ("sub_", 3.0, {}), ("mul_", 1, {}), ("mul_", 0.9, {}), ("div_", 3.0, {}), ("copy_", 1, {}),
    ("lerp_", 1, {"weight": 0.25}), ("lerp_", 1, {"weight": 0.75}),
    ("addcmul_", 2, {"value": 0.5}), ("addcdiv_", 2, {}), ("zero_", 0, {}),
]
def change(lists, op, others, named):
    args = lists[1 : 1 + others] if isinstance(others, int) else [others]
    getattr(tn, "_foreach_" + op)(lists[0], *args, **named)
for dtype, tol in ((tn.float64, 1e-14), (tn.float32, 1e-6), (tn.bfloat16, 2e-2)):
    there = [lists(dtype)[1] for _ in range(3)]
    there[2] = [t + 3 * t.sign() for t in there[2]]  # far from 0
    here = [[t.cpu() for t in some] for some in there]
    for op, others, named in CHANGES:
        tn.cuda.reset_counters()
        change(there, op, others, named)
        counted = tn.cuda.counters()
        assert counted["launches"] == 3 and counted["waits"] == 0, (op, counted)
        change(here, op, others, named)
        for a, b in zip(there[0], here[0]):
            assert tn.allclose(a.cpu(), b, rtol=tol, atol=tol), (op, dtype)
        for a, b in zip(there[0], here[0]):
            a.copy_(b)
xs = [tn.ones(3, device="cuda") for _ in range(2)]
tn._foreach_add_([xs[0], xs[0]], [xs[1], xs[1]])  # one tensor twice: one after the other
assert xs[0].tolist() == [3.0] * 3
ys = [tn.ones(3, device="cuda"), tn.full((3,), 2.0, device="cuda")]
tn._foreach_add_(ys, ys[::-1])  # each reads the other, one after the other
assert [y.tolist() for y in ys] == [[3.0] * 3, [5.0] * 3]
tn._foreach_add_(ys, ys)
assert [y.tolist() for y in ys] == [[6.0] * 3, [10.0] * 3]
tn._foreach_mul_(xs, [xs[0][:1].clone(), xs[1][:1].clone()])  # what is spread goes by itself
assert xs[0].tolist() == [9.0] * 3 and tn.cuda.fallback_count("_lists_step") == (0, 0)
w = tn.ones(2, device="cuda", requires_grad=True)
y = [w * 2]
tn._foreach_mul_(y, 3.0)
y[0].sum().backward()
assert w.grad.tolist() == [6.0, 6.0]
norms = tn._foreach_norm([w.detach() * 3, w.detach()])
assert [n.item() for n in norms] == [tn.tensor(18.0).sqrt().item(), tn.tensor(2.0).sqrt().item()]
"""
    )


def test_unscaling_by_a_factor_on_the_device() -> None:
    harness.script("""
for spoiled in (False, True):
    grads = [tn.full((3,), 8.0, device="cuda"), tn.full((70,), 4.0, device="cuda")]
    if spoiled:
        grads[1][69] = float("inf")
    found, factor = tn.zeros(1, device="cuda"), tn.full((1,), 0.25, device="cuda")
    tn.cuda.reset_counters()
    tn._amp_foreach_non_finite_check_and_unscale_(grads, found, factor)
    assert tn.cuda.counters()["waits"] == 0
    assert found.item() == spoiled and grads[0].tolist() == [2.0] * 3
    assert grads[1][:69].tolist() == [1.0] * 69
""")


def test_gradients_are_zeroed_in_one_launch() -> None:
    harness.script("""
params = [tn.ones(5, device="cuda").requires_grad_() for _ in range(9)]
opt = tn.optim.SGD(params, lr=0.1)
for p in params:
    p.grad = tn.ones_like(p)
tn.cuda.reset_counters()
opt.zero_grad(set_to_none=False)
assert tn.cuda.counters()["launches"] == 1
assert all(p.grad.sum().item() == 0 for p in params)
""")
