"""Mixed precision: which dtype each operator computes in, regions, gradients, GradScaler."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import memory
import numpy as np
import pytest
import tenon as tn
from tenon.nn import functional as F

try:
    import torch
except ImportError:
    torch = None

needs_torch = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")


def test_rules() -> None:
    x, w = tn.randn(4, 4), tn.randn(4, 4)
    with tn.autocast("cpu"):
        low = x @ w
        assert low.dtype == F.linear(x, w).dtype == tn.bfloat16
        assert F.conv2d(x[None, None], w[None, None]).dtype == tn.bfloat16
        assert tn.einsum("ij,jk->ik", x, w).dtype == tn.bfloat16  # through its parts
        assert F.mse_loss(low, x).dtype == F.cross_entropy(low, tn.arange(4)).dtype == tn.float32
        assert tn.cat([low, x]).dtype == (low + x).dtype == tn.float32
        assert tn.relu(low).dtype == tn.exp(low).dtype == tn.bfloat16
        assert F.prelu(x, x[0]).dtype == tn.nn.PReLU()(x).dtype == tn.bfloat16
        assert tn.relu(x).dtype == tn.float32
        double = x.double()
        assert (double @ double).dtype == tn.float64
        assert (tn.arange(4) @ tn.arange(4)).dtype == tn.int64
        out = tn.empty(4, 4)
        assert tn.mm(x, w, out=out) is out and out.dtype == tn.float32
        x.clone().addmm_(x, w)
    np.testing.assert_allclose(low.float().numpy(), x.numpy() @ w.numpy(), atol=0.1)
    assert (x @ w).dtype == tn.float32
    with tn.autocast("cpu", dtype=tn.float16):
        assert (x @ w).dtype == tn.float16


def test_regions_nest() -> None:
    x = tn.randn(2, 2)
    with tn.autocast("cpu"):
        assert tn.amp.is_autocast_enabled("cpu")
        with tn.autocast("cpu", enabled=False):
            assert (x @ x).dtype == tn.float32
            with tn.autocast("cpu", dtype=tn.float16):
                assert (x @ x).dtype == tn.float16
        assert (x @ x).dtype == tn.bfloat16
        assert tn.amp.get_autocast_dtype("cpu") == tn.bfloat16
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append((x @ x).dtype))
        thread.start()
        thread.join()
        assert seen == [tn.float32]  # a region is of its thread
        with pytest.raises(ZeroDivisionError), tn.autocast("cpu", dtype=tn.float16):
            raise ZeroDivisionError
        assert (x @ x).dtype == tn.bfloat16
    assert not tn.amp.is_autocast_enabled("cpu") and (x @ x).dtype == tn.float32

    @tn.autocast("cpu")
    def f(n: int) -> Any:
        return f(n - 1) if n else (x @ x).dtype

    assert f(3) == tn.bfloat16 and (x @ x).dtype == tn.float32


def test_regions_that_a_program_keeps_are_counted() -> None:
    before = tn.autocast_increment_nesting() - 1
    try:
        assert tn.autocast_increment_nesting() == before + 2
    finally:
        assert tn.autocast_decrement_nesting() == before + 1
        assert tn.autocast_decrement_nesting() == before
    assert tn.autocast_increment_nesting() == before + 1
    assert tn.autocast_decrement_nesting() == before


def test_bad_regions() -> None:
    with pytest.raises(ValueError, match="device_type"):
        tn.autocast(tn.device("cpu"))
    with pytest.warns(UserWarning, match="no such device"), tn.autocast("nowhere"):
        assert (tn.ones(2, 2) @ tn.ones(2, 2)).dtype == tn.float32
    assert not tn.amp.is_autocast_available("nowhere")


def test_gradients_have_the_dtype_of_the_parameter() -> None:
    w = tn.randn(3, 3, requires_grad=True)
    b = tn.randn(3, requires_grad=True)
    x = tn.randn(5, 3)
    with tn.autocast("cpu"):
        y = F.linear(x, w, b)
        loss = (F.linear(y, w) ** 2).mean()
    loss.backward()
    assert w.grad is not None and b.grad is not None
    assert w.grad.dtype == b.grad.dtype == tn.float32
    w2, b2 = (t.detach().clone().requires_grad_() for t in (w, b))
    (F.linear(F.linear(x, w2, b2), w2) ** 2).mean().backward()
    for low, full in ((w, w2), (b, b2)):
        np.testing.assert_allclose(low.grad.numpy(), full.grad.numpy(), rtol=0.1, atol=0.1)


def converted(y: Any) -> Any:
    """The node that converted the weight of a product."""
    return y.grad_fn.next_functions[1][0]


@pytest.mark.parametrize("cache", [True, False])
def test_parameters_are_converted_once(cache: bool) -> None:
    w, x = tn.randn(2, 2, requires_grad=True), tn.randn(2, 2)
    with tn.autocast("cpu", cache_enabled=cache):
        with tn.no_grad():
            assert not tn.mm(x, w).requires_grad
        first, second = tn.mm(x, w), tn.mm(x, w)
        assert first.requires_grad
        assert (converted(first) is converted(second)) == cache
        with tn.no_grad():
            w.mul_(2)
        third = tn.mm(x, w)
        np.testing.assert_allclose(third.float().detach(), 2 * first.float().detach(), rtol=1e-2)
    with tn.autocast("cpu", cache_enabled=cache):
        assert converted(tn.mm(x, w)) is not converted(third)


def test_nothing_else_is_kept_for_the_region() -> None:
    """Not what is no parameter: neither plain tensors and results nor views of parameters."""
    n, w = 1 << 18, tn.ones(1, 1, requires_grad=True)
    leaf, column = tn.ones(1, n, requires_grad=True), tn.ones(n, 1, dtype=tn.bfloat16)
    makes = [lambda: tn.ones(1, n), lambda: leaf * w, lambda: leaf[:], lambda: leaf.detach()]
    with tn.autocast("cpu"):
        for make in makes:
            before = memory.resident()
            for _ in range(40):
                assert tn.mm(make(), column).dtype == tn.bfloat16
            assert memory.resident() - before < 8 << 20


@pytest.mark.parametrize("count", [1, 600])
def test_lists_of_any_length_are_of_the_widest_dtype(count: int) -> None:
    short, long = tn.ones(1, dtype=tn.bfloat16), tn.tensor([1 / 3])
    with tn.autocast("cpu"):
        for many in ([*[short] * count, long], [long, *[short] * count], [*[long] * count, short]):
            for y in (tn.cat(many), tn.stack(many)):
                assert y.dtype == tn.float32
                assert sorted(set(y.flatten().tolist())) == [long.item(), 1.0]


def nets(m: Any) -> dict[str, Callable[[], Any]]:
    nn = m.nn
    return {
        "mlp": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.0),
            nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4), nn.LogSoftmax(1),
        ),
        "cnn": lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 2),
            nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
            nn.Softmax(1),
        ),
    }  # fmt: skip


@needs_torch
@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_net_against_torch(kind: str) -> None:
    """The dtype behind every layer, the losses, the gradients' dtypes."""
    values = np.random.default_rng(0).standard_normal((6, 1, 8, 8)).astype(np.float32)
    there = nets(torch)[kind]()
    here = nets(tn)[kind]()
    here.load_state_dict({k: tn.from_numpy(v.numpy()) for k, v in there.state_dict().items()})
    facts: list[Any] = []
    losses: list[Any] = []
    for m, net in ((torch, there), (tn, here)):
        x, target, seen, total = m.from_numpy(values.copy()), m.arange(6) % 4, [], []
        opt = m.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            opt.zero_grad()
            with m.autocast("cpu", dtype=m.bfloat16):
                y = x
                for layer in net:
                    y = layer(y)
                    seen.append((type(layer).__name__, str(y.dtype).split(".")[1]))
                loss = m.nn.functional.cross_entropy(y, target) + m.nn.functional.mse_loss(y, y * 0)
                seen.append(str(loss.dtype).split(".")[1])
            loss.backward()
            seen += [str(p.grad.dtype).split(".")[1] for p in net.parameters()]
            opt.step()
            total.append(loss.item())
        facts.append(seen)
        losses.append(total)
    assert facts[0] == facts[1]
    np.testing.assert_allclose(losses[0], losses[1], rtol=0.02)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_compute_again_as_before(reentrant: bool) -> None:
    """Backward stands outside of the region; what runs again there runs as it did inside."""
    net = tn.nn.Sequential(tn.nn.Linear(3, 3), tn.nn.Tanh(), tn.nn.Linear(3, 3))
    x, seen = tn.randn(2, 3, requires_grad=True), []

    def f(t: Any) -> Any:
        h = net[0](t)
        seen.append(h.dtype)
        return net[2](net[1](h))

    with tn.autocast("cpu"):
        y = tn.utils.checkpoint.checkpoint(f, x, use_reentrant=reentrant)
    y.float().sum().backward()
    assert seen == [tn.bfloat16, tn.bfloat16] and x.grad is not None
    want, x.grad = x.grad, None
    with tn.autocast("cpu"):
        y = net(x)
    y.float().sum().backward()
    assert tn.equal(x.grad, want)


def test_own_functions() -> None:
    class Square(tn.autograd.Function):
        @staticmethod
        @tn.amp.custom_fwd(device_type="cpu", cast_inputs=tn.float32)
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            assert x.dtype == (x @ x).dtype == tn.float32
            return x * x

        @staticmethod
        @tn.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            assert (x @ x).dtype == tn.float32
            return 2 * x * g

    x = tn.randn(2, 2, requires_grad=True)
    with tn.autocast("cpu"):
        y = Square.apply(x @ x)
    assert y.dtype == tn.float32
    y.sum().backward()
    assert x.grad is not None and x.grad.dtype == tn.float32


# -- GradScaler -----------------------------------------------------------------------------------


def test_scaler_scales_and_steps() -> None:
    scaler = tn.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    p = tn.tensor([1.0, 2.0], requires_grad=True)
    opt = tn.optim.SGD([p], lr=1.0)
    for want in (8.0, 16.0, 16.0, 32.0):
        before = p.detach().clone()
        opt.zero_grad()
        scaler.scale((p * p).sum()).backward()
        scaler.unscale_(opt)
        np.testing.assert_allclose(p.grad.numpy(), 2 * before.numpy())
        scaler.step(opt)
        np.testing.assert_allclose(p.detach().numpy(), -before.numpy())
        scaler.update()
        assert scaler.get_scale() == want
    a, b = scaler.scale([p.sum(), p.sum()])
    assert a.item() == b.item() == 32 * p.sum().item()


def test_scaler_leaves_bad_steps_out() -> None:
    scaler = tn.amp.GradScaler("cpu", init_scale=4.0)
    good, bad = (tn.ones(2, requires_grad=True) for _ in range(2))
    opts = [tn.optim.SGD([t], lr=1.0) for t in (good, bad)]
    scaler.scale(good.sum() + (bad * tn.tensor([1.0, float("inf")])).sum()).backward()
    for opt in opts:
        scaler.step(opt)
    assert good.tolist() == [0, 0] and bad.tolist() == [1, 1]
    scaler.update()
    assert scaler.get_scale() == 2.0
    scaler.update(new_scale=64.0)
    assert scaler.get_scale() == 64.0


def test_scaler_order_of_calls() -> None:
    scaler = tn.amp.GradScaler("cpu")
    p = tn.ones(1, requires_grad=True)
    opt = tn.optim.SGD([p], lr=0.1)
    for early in (scaler.update, lambda: scaler.step(opt), lambda: scaler.unscale_(opt)):
        with pytest.raises(AssertionError, match="_scale is None"):
            early()
    scaler.scale(p)
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.update()
    with pytest.raises(AssertionError, match="No inf checks"):
        scaler.step(opt)
    scaler = tn.amp.GradScaler("cpu")
    scaler.scale(p.sum()).backward()
    scaler.unscale_(opt)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(opt)
    scaler.step(opt)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(opt)
    with pytest.raises(RuntimeError, match="after step"):
        scaler.unscale_(opt)
    scaler.update()
    with pytest.raises(AssertionError, match="growth factor"):
        tn.amp.GradScaler("cpu", growth_factor=1.0)


def test_scaler_state() -> None:
    scaler = tn.amp.GradScaler("cpu", init_scale=2.0, growth_interval=5)
    p = tn.ones(1, requires_grad=True)
    opt = tn.optim.SGD([p], lr=0.1)
    scaler.scale(p.sum()).backward()
    scaler.step(opt)
    scaler.update()
    state = scaler.state_dict()
    assert state == {
        "scale": 2.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 5,
        "_growth_tracker": 1,
    }  # fmt: skip
    other = tn.amp.GradScaler("cpu")
    other.load_state_dict(state)
    assert other.state_dict() == state
    off = tn.amp.GradScaler("cpu", enabled=False)
    assert off.state_dict() == {} and off.get_scale() == 1.0 and off.scale(p) is p
    with pytest.raises(RuntimeError, match="empty"):
        other.load_state_dict({})


def test_settings_of_one_kind_of_device_by_their_older_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[tuple[Any, ...]]()
    monkeypatch.setattr(tn.amp, "set_autocast_dtype", lambda *a: asked.append(a))
    monkeypatch.setattr(tn.amp, "set_autocast_enabled", lambda *a: asked.append(a))
    tn.amp.set_autocast_gpu_dtype(tn.bfloat16)
    tn.amp.set_autocast_cpu_dtype(tn.float16)
    tn.amp.set_autocast_cpu_enabled(True)
    assert asked == [("cuda", tn.bfloat16), ("cpu", tn.float16), ("cpu", True)]


LOW = tn.bfloat16
KEPT: dict[str, Callable[[], tn.Tensor]] = {
    "grid": lambda: F.grid_sample(
        tn.ones(1, 2, 4, 4), tn.zeros(1, 3, 3, 2, dtype=LOW), align_corners=False
    ),
    "grid of volumes": lambda: F.grid_sample(
        tn.ones(1, 2, 4, 4, 4, dtype=LOW), tn.zeros(1, 3, 3, 3, 3), align_corners=False
    ),
    "fractional": lambda: F.fractional_max_pool2d(tn.ones(1, 4, 4, dtype=LOW), 2, output_size=2),
    "inv": lambda: tn.linalg.inv(tn.eye(3, dtype=LOW)),
    "solve": lambda: tn.linalg.solve(tn.eye(3, dtype=LOW), tn.ones(3, 1, dtype=LOW)),
    "cholesky": lambda: tn.linalg.cholesky(tn.eye(3, dtype=LOW)),
    "qr": lambda: tn.linalg.qr(tn.eye(3, dtype=LOW)).Q,
    "svdvals": lambda: tn.linalg.svdvals(tn.eye(3, dtype=LOW)),
    "eigvalsh": lambda: tn.linalg.eigvalsh(tn.eye(3, dtype=LOW)),
    "lstsq": lambda: tn.linalg.lstsq(tn.eye(3, dtype=LOW), tn.eye(3, dtype=LOW)).solution,
    "rfft": lambda: tn.fft.rfft(tn.ones(8, dtype=LOW)).real,
    "ifft2": lambda: tn.fft.ifft2(tn.ones(4, 4, dtype=LOW)).real,
    "bilinear": lambda: F.bilinear(tn.ones(2, 3), tn.ones(2, 3, dtype=LOW), tn.ones(4, 3, 3)),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_computed_in_float32_on_the_cpu(name: str) -> None:
    with tn.autocast("cpu", dtype=LOW):
        got = KEPT[name]()
    assert got.dtype == tn.float32
    assert got.isfinite().all()
