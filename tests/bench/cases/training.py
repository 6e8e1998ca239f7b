"""Optimizers, and training steps of small networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from registry import case, fill, normal

optim = partial(case, "optim")
training = partial(case, "training")

# The matrices of a GPT-2 block and a few more: 14 M parameters.
LARGE = [(768, 768)] * 12 + [(3072, 768)] * 2 + [(768, 3072)]
SMALL = [(64,)] * 200


def optimizer(
    name: str,
    shapes: list[tuple[int, ...]],
    make_optimizer: Callable[[Any, list[Any]], Any],
    goal: float,
    moved: int,
    quick: bool = False,
    group: str = "optim",
) -> None:
    """`moved` is how many floats a step reads and writes for a parameter."""

    def make(T: Any) -> Callable[[], Any]:
        params = [normal(T, *s).requires_grad_() for s in shapes]
        for p in params:
            p.grad = normal(T, *p.shape) * 0.01
        opt = make_optimizer(T, params)

        def run():
            opt.step()
            return params[0]

        return run

    count = sum(s[0] * (s[1] if len(s) > 1 else 1) for s in shapes)
    case(group, goal, name=name, bytes=4.0 * moved * count, quick=quick)(make)


def adamw(T: Any, params: list[Any]) -> Any:
    return T.optim.AdamW(params, lr=1e-3)


optimizer("adamw_14M", LARGE, adamw, 0.6, 7)
optimizer("adamw_200x64", SMALL, adamw, 0.1, 7, quick=True)
optimizer("adamw_14M_fused", LARGE, lambda T, p: T.optim.AdamW(p, lr=1e-3, fused=True), 0.6, 7)
optimizer("adamw_200x64_fused", SMALL, lambda T, p: T.optim.AdamW(p, lr=1e-3, fused=True), 0.1, 7)
optimizer("sgd_momentum_14M", LARGE, lambda T, p: T.optim.SGD(p, 1e-3, momentum=0.9), 0.6, 5)


@optim(0.6, bytes=12.0 * sum(a * b for a, b in LARGE))
def clip_grad_norm_14M(T):
    params = [normal(T, *s).requires_grad_() for s in LARGE]
    for p in params:
        p.grad = normal(T, *p.shape)
    return lambda: T.nn.utils.clip_grad_norm_(params, 1.0)


# -- training steps ----------------------------------------------------------------------------


def stepper(opt: Any, loss_of: Callable[[], Any]) -> Callable[[], Any]:
    def run():
        loss = loss_of()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    return run


@case("overhead", 0.20, threads=(1,), quick=True)
def micrograd_mlp_step(T):
    nn = T.nn
    model = nn.Sequential(
        nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)
    )
    fill(T, model, 0.2)
    opt = T.optim.SGD(model.parameters(), lr=0.01)
    x, y = normal(T, 100, 2), normal(T, 100, 1)
    return stepper(opt, lambda: ((model(x) - y) ** 2).mean())


@training(0.6, flops=6.0 * 64 * (784 * 128 + 128 * 10), quick=True)
def digits_mlp_step(T):
    nn, F = T.nn, T.nn.functional
    model = fill(T, nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)))
    opt = T.optim.SGD(model.parameters(), lr=0.01)
    x, y = normal(T, 64, 784), T.arange(64) % 10
    return stepper(opt, lambda: F.cross_entropy(model(x), y))


def digits_cnn(T: Any) -> Any:
    nn = T.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


@training(0.9, flops=6.0 * 64 * (676 * 32 * 9 + 576 * 64 * 288 + 9216 * 128 + 1280))
def digits_cnn_step(T):
    model = fill(T, digits_cnn(T))
    opt = T.optim.SGD(model.parameters(), lr=0.01)
    x, y = normal(T, 64, 1, 28, 28), T.arange(64) % 10
    return stepper(opt, lambda: T.nn.functional.cross_entropy(model(x), y))


def gpt(T: Any, layers: int, heads: int, width: int, block: int, words: int) -> Any:
    """A decoder of pre-norm blocks, as GPT-2 has it."""
    nn, F = T.nn, T.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (
                z.view(b, t, heads, width // heads).transpose(1, 2)
                for z in self.qkv(self.ln1(x)).split(width, dim=2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, width))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.token, self.place = nn.Embedding(words, width), nn.Embedding(block, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

        def forward(self, ids):
            x = self.token(ids) + self.place(T.arange(ids.shape[1]))
            for b in self.blocks:
                x = b(x)
            return self.head(self.ln(x))

    return fill(T, Model())


def language_step(
    name: str, goal: float, layers: int, heads: int, width: int, words: int, batch: int
) -> None:
    block = 64

    def make(T: Any) -> Callable[[], Any]:
        model = gpt(T, layers, heads, width, block, words)
        opt = T.optim.AdamW(model.parameters(), lr=1e-3)
        ids = (T.arange(batch * block) * 31 % words).reshape(batch, block)
        target = ids.roll(-1, 1).reshape(-1)
        loss = T.nn.functional.cross_entropy
        return stepper(opt, lambda: loss(model(ids).view(-1, words), target))

    weights = layers * 12 * width**2 + width * words
    scores = layers * 2 * block * width
    training(goal, name=name, flops=6.0 * batch * block * (weights + scores))(make)


# nanoGPT's preset for the CPU, and two layers of GPT-2's width with its vocabulary.
language_step("nanogpt_cpu_step", 0.8, 4, 4, 128, 65, 12)
language_step("gpt2_width_2layer_b1_step", 0.85, 2, 12, 768, 50257, 1)


@training(0.3, flops=2.0 * 64 * (4 * 12 * 128**2 + 128 * 65))
def nanogpt_generate_token(T):
    model = gpt(T, 4, 4, 128, 64, 65)
    ids = (T.arange(64) * 31 % 65).reshape(1, 64)

    def run():
        with T.no_grad():
            return model(ids)[:, -1].argmax(-1)

    return run


# -- matrices of derivatives -------------------------------------------------------------------


@training(0.8, flops=2.0 * 512 * (64 * 256 + 256 * 512))
def jacobian_512x64(T):
    nn = T.nn
    model = fill(T, nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 512)))
    x = normal(T, 64)
    return lambda: T.func.jacrev(model)(x)


@training(0.8, flops=8.0 * 256**3)
def hessian_256(T):
    a, x = normal(T, 256, 256) / 16, normal(T, 256)
    return lambda: T.func.hessian(lambda v: (T.tanh(a @ v) ** 2).sum())(x)


@training(0.8)
def gradients_of_64_samples(T):
    nn = T.nn
    model = fill(T, nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)))
    params = dict(model.named_parameters())

    def loss(params: Any, x: Any, y: Any) -> Any:
        scores = T.func.functional_call(model, params, (x[None],))
        return nn.functional.cross_entropy(scores, y[None])

    each = T.vmap(T.func.grad(loss), in_dims=(None, 0, 0))
    x, y = normal(T, 64, 64), T.arange(64) % 10
    return lambda: each(params, x, y)["2.weight"]


@training(0.9)
def laplacian_of_1000_points(T):
    """A physics-informed network's second derivatives."""
    nn = T.nn
    layers = [nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)]
    net, x = fill(T, nn.Sequential(*layers)), normal(T, 1000, 2)
    each = T.vmap(lambda v: T.trace(T.func.hessian(lambda u: net(u)[0])(v)))
    return lambda: each(x)
