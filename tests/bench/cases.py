"""Benchmark cases. Each takes the framework module (tenon or torch: the same calls) and returns the
function to time and a check value that both frameworks must agree on.

`goal` is the ratio of our time to PyTorch's that the project aims for; `limit` counts what the
hardware must at least do: ("flop", n) or ("byte", n).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Made = tuple[Callable[[], Any], Callable[[], float]]


@dataclass(frozen=True)
class Case:
    name: str
    group: str
    make: Callable[[Any], Made]
    goal: float
    limit: tuple[str, float] | None = None
    threads: tuple[int, ...] = (1, 2)


CASES: dict[str, Case] = {}


def case(
    group: str,
    goal: float,
    limit: tuple[str, float] | None = None,
    threads: tuple[int, ...] = (1, 2),
) -> Callable[[Callable[[Any], Made]], Callable[[Any], Made]]:
    def add(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
        name = make.__name__
        CASES[name] = Case(name, group, make, goal, limit, (1,) if group == "overhead" else threads)
        return make

    return add


def ramp(T: Any, *shape: int) -> Any:
    """Reproducible values in [-2, 2) that both frameworks make bit for bit."""
    n = 1
    for s in shape:
        n *= s
    return ((T.arange(n) * 7919 % 1009).to(T.float32) / 252.25 - 2.0).reshape(*shape)


def total(x: Any) -> float:
    return float(x.detach().double().sum())


def simple(fn: Callable[[], Any]) -> Made:
    return fn, lambda: total(fn())


# -- overhead ----------------------------------------------------------------------------------


@case("overhead", 0.10)
def add_8(T):
    a, b = ramp(T, 8), ramp(T, 8)
    return simple(lambda: a + b)


@case("overhead", 0.05)
def mul_scalar_8(T):
    a = ramp(T, 8)
    return simple(lambda: a * 2.0)


@case("overhead", 0.15)
def view_index_t(T):
    a = ramp(T, 8, 8)

    def run():
        a.view(4, 16)
        a[0]
        return a.t()

    return simple(run)


@case("overhead", 0.15)
def index_8(T):
    a = ramp(T, 8)
    return simple(lambda: a[0])


@case("overhead", 0.15)
def slice_8(T):
    a = ramp(T, 8)
    return simple(lambda: a[1:5])


@case("overhead", 0.10)
def add_out_8(T):
    a, b, c = ramp(T, 8), ramp(T, 8), ramp(T, 8)
    return simple(lambda: T.add(a, b, out=c))


@case("overhead", 0.10)
def add_grad_8(T):
    a, b = ramp(T, 8).requires_grad_(), ramp(T, 8)
    return simple(lambda: a + b)


@case("overhead", 0.10)
def chain10_fwd_bwd_8(T):
    a, g = ramp(T, 8).requires_grad_(), T.ones(8)

    def run():
        a.grad = None
        y = a
        for _ in range(10):
            y = y * a
        y.backward(g)
        return a.grad

    return simple(run)


@case("overhead", 0.10)
def sum_8(T):
    a = ramp(T, 8)
    return simple(lambda: a.sum())


@case("overhead", 0.10)
def matmul_8x8(T):
    a, b = ramp(T, 8, 8), ramp(T, 8, 8)
    return simple(lambda: a @ b)


@case("overhead", 0.20)
def linear_module_8x8(T):
    T.manual_seed(0)
    m, x = T.nn.Linear(8, 8), ramp(T, 8, 8)
    return (lambda: m(x)), lambda: float(m(x).shape[0])


@case("overhead", 0.20)
def micrograd_mlp_step(T):
    T.manual_seed(0)
    nn = T.nn
    model = nn.Sequential(
        nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)
    )
    opt = T.optim.SGD(model.parameters(), lr=0.01)
    x, y = ramp(T, 100, 2), ramp(T, 100, 1)

    def run():
        loss = ((model(x) - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return run, lambda: 1.0


# -- memory, elementwise -----------------------------------------------------------------------

M1, M16 = 1 << 20, 1 << 24


@case("memory", 0.25, ("byte", 12 * M16))
def add_16M(T):
    a, b = ramp(T, M16), ramp(T, M16)
    return simple(lambda: a + b)


@case("memory", 1.0, ("byte", 12 * M16))
def add_16M_out(T):
    a, b = ramp(T, M16), ramp(T, M16)
    c = a + b
    return simple(lambda: T.add(a, b, out=c))


def unary(name: str, goal: float) -> None:
    def make(T):
        a = ramp(T, M1)
        fn = getattr(T, name, None) or getattr(T.nn.functional, name)
        return simple(lambda: fn(a))

    make.__name__ = f"{name}_1M"
    case("elementwise", goal, ("byte", 8 * M1))(make)


unary("exp", 0.6)
unary("tanh", 0.4)
unary("sigmoid", 0.4)


@case("elementwise", 0.6, ("byte", 8 * M1))
def log_1M(T):
    a = ramp(T, M1).abs() + 0.5
    return simple(lambda: a.log())


@case("elementwise", 0.4, ("byte", 8 * M1))
def gelu_1M(T):
    a = ramp(T, M1)
    return simple(lambda: T.nn.functional.gelu(a))


@case("elementwise", 0.6, ("byte", 8 * M1))
def add_row_broadcast_1024(T):
    a, b = ramp(T, 1024, 1024), ramp(T, 1024)
    return simple(lambda: a + b)


@case("elementwise", 0.6, ("byte", 12 * M1))
def add_transposed_1024(T):
    a, b = ramp(T, 1024, 1024), ramp(T, 1024, 1024).t()
    return simple(lambda: a + b)


# -- reductions --------------------------------------------------------------------------------


def reduction(name: str, fn: Callable[[Any], Any], n: int, goal: float) -> None:
    def make(T):
        a = ramp(T, n) if n == M16 else ramp(T, 1024, 1024)
        return simple(lambda: fn(a))

    make.__name__ = name
    case("reduction", goal, ("byte", 4 * n))(make)


reduction("sum_16M", lambda a: a.sum(), M16, 1.0)
reduction("mean_16M", lambda a: a.mean(), M16, 1.0)
reduction("max_16M", lambda a: a.max(), M16, 1.0)
reduction("sum_dim0_1024", lambda a: a.sum(0), M1, 1.0)
reduction("sum_dim1_1024", lambda a: a.sum(1), M1, 1.0)
reduction("max_dim1_1024", lambda a: a.max(1)[0], M1, 1.0)
reduction("var_dim1_1024", lambda a: a.var(1), M1, 0.2)


# -- rows --------------------------------------------------------------------------------------


@case("rows", 0.6, ("byte", 20 * M1))
def softmax_1024_fwd_bwd(T):
    a, g = ramp(T, 1024, 1024).requires_grad_(), ramp(T, 1024, 1024)

    def run():
        a.grad = None
        T.nn.functional.softmax(a, dim=1).backward(g)
        return a.grad

    return simple(run)


@case("rows", 0.6, ("byte", 20 * M1))
def layernorm_1024_fwd_bwd(T):
    a, g = ramp(T, 1024, 1024).requires_grad_(), ramp(T, 1024, 1024)
    w, b = T.ones(1024).requires_grad_(), T.zeros(1024).requires_grad_()

    def run():
        a.grad = w.grad = b.grad = None
        T.nn.functional.layer_norm(a, (1024,), w, b).backward(g)
        return a.grad

    return simple(run)


@case("rows", 0.3, ("byte", 12 * 256 * 50257))
def cross_entropy_256x50257(T):
    a = ramp(T, 256, 50257).requires_grad_()
    y = T.arange(256) * 190

    def run():
        a.grad = None
        T.nn.functional.cross_entropy(a, y).backward()
        return a.grad

    return simple(run)


# -- matrix products ---------------------------------------------------------------------------


def gemm(n: int) -> None:
    def make(T):
        a, b = ramp(T, n, n), ramp(T, n, n)
        return simple(lambda: a @ b)

    make.__name__ = f"matmul_{n}"
    case("gemm", 1.0, ("flop", 2.0 * n**3))(make)


for _n in (64, 128, 512, 2048):
    gemm(_n)


@case("gemm", 0.6, ("flop", 2.0 * 64 * 32**3))
def bmm_64x32(T):
    a, b = ramp(T, 64, 32, 32), ramp(T, 64, 32, 32)
    return simple(lambda: T.bmm(a, b))


# -- optimizers --------------------------------------------------------------------------------


def adamw(name: str, shapes: list[tuple[int, ...]], goal: float) -> None:
    def make(T):
        params = [ramp(T, *s).requires_grad_() for s in shapes]
        for p in params:
            p.grad = ramp(T, *p.shape) * 0.01
        opt = T.optim.AdamW(params, lr=1e-3)

        def run():
            opt.step()
            return params[0]

        return run, lambda: 1.0

    make.__name__ = name
    count = sum(a * b for a, b in ((s + (1,))[:2] for s in shapes))
    case("optim", goal, ("byte", 28.0 * count))(make)


adamw("adamw_14M", [(768, 768)] * 12 + [(3072, 768)] * 2 + [(768, 3072)], 0.6)
adamw("adamw_200x64", [(64,)] * 200, 0.1)


# -- training ----------------------------------------------------------------------------------


@case("training", 0.6)
def digits_mlp_step(T):
    T.manual_seed(0)
    nn, F = T.nn, T.nn.functional
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    opt = T.optim.SGD(model.parameters(), lr=0.01)
    x, y = ramp(T, 64, 784), T.arange(64) % 10

    def run():
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return run, lambda: 1.0


@case("training", 0.9)
def digits_cnn_step(T):
    T.manual_seed(0)
    nn, F = T.nn, T.nn.functional
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    opt = T.optim.SGD(model.parameters(), lr=0.01)
    x, y = ramp(T, 64, 1, 28, 28), T.arange(64) % 10

    def run():
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return run, lambda: 1.0


@case("training", 0.8)
def nanogpt_cpu_step(T):
    """nanoGPT's CPU preset: 4 layers, 4 heads, width 128, block 64, batch 12."""
    T.manual_seed(0)
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(128), nn.LayerNorm(128)
            self.qkv, self.proj = nn.Linear(128, 384), nn.Linear(128, 128)
            self.up, self.down = nn.Linear(128, 512), nn.Linear(512, 128)

        def forward(self, x):
            q, k, v = (
                z.view(12, 64, 4, 32).transpose(1, 2)
                for z in self.qkv(self.ln1(x)).split(128, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(12, 64, 128))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(65, 128), nn.Embedding(64, 128)
            self.blocks = nn.ModuleList([Block() for _ in range(4)])
            self.ln, self.head = nn.LayerNorm(128), nn.Linear(128, 65, bias=False)

        def forward(self, ids):
            x = self.token(ids) + self.place(T.arange(64))
            for b in self.blocks:
                x = b(x)
            return self.head(self.ln(x))

    model = Model()
    opt = T.optim.AdamW(model.parameters(), lr=1e-3)
    ids = (T.arange(12 * 64) * 31 % 65).reshape(12, 64)
    target = ids.roll(-1, 1).reshape(-1)

    def run():
        loss = F.cross_entropy(model(ids).view(-1, 65), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return run, lambda: 1.0
