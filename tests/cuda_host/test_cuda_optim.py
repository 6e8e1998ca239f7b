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
        assert name in str(error) and "counts on the host" in str(error), error
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
