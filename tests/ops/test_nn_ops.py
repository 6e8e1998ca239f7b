"""Layers, losses and matrix products that the table does not sample: values, gradients and second
derivatives against PyTorch, finite differences and NumPy.

A case is a function of (library, its nn.functional, tensors); both libraries run the same one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
import tenon.nn.functional as tn_f
from tolerances import tolerance


@dataclass
class Case:
    name: str
    fn: Callable[..., Any]
    shapes: list[Any]  # a shape: normal numbers; an array: these values, no gradient
    positive: bool = False  # numbers in (0.1, 0.9) instead
    second: bool = True  # has second derivatives
    torch_second: bool = True  # PyTorch has them, too
    smooth: bool = True  # finite differences make sense
    tol: float = 1.0

    def inputs(self) -> list[tuple[np.ndarray, bool]]:
        """The numbers, and whether they take a gradient."""
        rng = np.random.default_rng(7)
        out = []
        for s in self.shapes:
            if isinstance(s, np.ndarray):
                out.append((s, False))
            elif self.positive:
                out.append((rng.uniform(0.1, 0.9, s), True))
            else:
                out.append((rng.standard_normal(s), True))
        return out


def labels(n: int, *shape: int, ignore: int | None = None) -> np.ndarray:
    t = np.random.default_rng(3).integers(0, n, shape)
    if ignore is not None:
        t.reshape(-1)[0] = ignore
    return t


def bools(*shape: int) -> np.ndarray:
    mask = np.random.default_rng(5).random(shape) < 0.7
    mask[..., 0] = True
    return mask


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(11).uniform(0.1, 0.9, shape)


def signs(*shape: int) -> np.ndarray:
    return np.sign(np.random.default_rng(13).standard_normal(shape))


CASES: list[Case] = []


def case(name: str, shapes: list[Any], fn: Callable[..., Any], **kw: Any) -> None:
    CASES.append(Case(name, fn, shapes, **kw))


# -- matrix products ---------------------------------------------------------------------------

for eq, ops in {
    "ij,jk->ik": [(3, 4), (4, 5)],
    "bij,bjk->bik": [(2, 3, 4), (2, 4, 5)],
    "ii->i": [(4, 4)],
    "ii": [(4, 4)],
    "i,j->ij": [(3,), (4,)],
    "...ij,...jk": [(2, 1, 3, 4), (5, 4, 2)],
    "ijk,il,jl->kl": [(2, 3, 4), (2, 5), (3, 5)],
    "bhqd,bhkd->bhqk": [(2, 2, 3, 4), (2, 2, 5, 4)],
    "ij->ji": [(3, 4)],
    "ij->": [(3, 4)],
    "ij,ij->ij": [(3, 4), (3, 4)],
    "a...b->...ba": [(2, 3, 4)],
    "ij,k->": [(2, 3), (4,)],
}.items():
    case(f"einsum {eq}", ops, lambda m, f, *t, eq=eq: m.einsum(eq, *t))
for a, b in [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((5, 1, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
]:
    case(f"matmul {a} {b}", [a, b], lambda m, f, x, y: m.matmul(x, y))
case("matmul transposed", [(4, 3), (5, 4)], lambda m, f, x, y: x.t() @ y.t())
case("mm strided", [(6, 8), (8, 5)], lambda m, f, x, y: m.mm(x[::2, ::2], y[::2]))
case("addmm", [(5,), (3, 4), (4, 5)], lambda m, f, c, x, y: m.addmm(c, x, y, beta=2, alpha=3))
case("linear", [(2, 3, 4), (5, 4), (5,)], lambda m, f, x, w, b: f.linear(x, w, b))
case(
    "linear transposed",
    [(3, 2, 4), (5, 4), (5,)],
    lambda m, f, x, w, b: f.linear(x.transpose(0, 1), w, b),
)
case("bilinear", [(3, 4), (3, 5), (2, 4, 5), (2,)], lambda m, f, x, y, w, b: f.bilinear(x, y, w, b))

# -- softmax, norms, scans ---------------------------------------------------------------------

for dim in (0, 1, -1):
    case(f"softmax {dim}", [(3, 4, 5)], lambda m, f, x, dim=dim: m.softmax(x, dim))
    case(f"log_softmax {dim}", [(3, 4, 5)], lambda m, f, x, dim=dim: m.log_softmax(x, dim))
    case(f"logsumexp {dim}", [(3, 4, 5)], lambda m, f, x, dim=dim: m.logsumexp(x, dim))
    case(f"cumsum {dim}", [(3, 4, 5)], lambda m, f, x, dim=dim: m.cumsum(x, dim))
    case(f"cumprod {dim}", [(3, 4, 5)], lambda m, f, x, dim=dim: m.cumprod(x, dim))
case("softmax wide", [(70, 33)], lambda m, f, x: m.softmax(x, 0), smooth=False)
case("logcumsumexp", [(3, 4)], lambda m, f, x: m.logcumsumexp(x, 1))
case("layer_norm", [(3, 4, 5), (5,), (5,)], lambda m, f, x, w, b: f.layer_norm(x, (5,), w, b))
case(
    "layer_norm 2", [(3, 4, 5), (4, 5), (4, 5)], lambda m, f, x, w, b: f.layer_norm(x, (4, 5), w, b)
)
case("layer_norm plain", [(3, 4)], lambda m, f, x: f.layer_norm(x, (4,)))
case("rms_norm", [(3, 4, 5), (5,)], lambda m, f, x, w: f.rms_norm(x, (5,), w))
case("group_norm", [(2, 6, 3), (6,), (6,)], lambda m, f, x, w, b: f.group_norm(x, 3, w, b))
case(
    "instance_norm",
    [(2, 3, 4, 2), (3,), (3,)],
    lambda m, f, x, w, b: f.instance_norm(x, weight=w, bias=b),
)
case(
    "batch_norm",
    [(4, 3, 2, 2), (3,), (3,)],
    lambda m, f, x, w, b: f.batch_norm(x, None, None, w, b, training=True),
)
case(
    "batch_norm 2d",
    [(5, 3), (3,), (3,)],
    lambda m, f, x, w, b: f.batch_norm(x, None, None, w, b, training=True),
)
case(
    "batch_norm eval",
    [(4, 3, 2), (3,), (3,)],
    lambda m, f, x, w, b: f.batch_norm(
        x, m.arange(3).to(x.dtype), m.arange(3).to(x.dtype) + 1, w, b
    ),
)

# -- convolution, pooling, resampling, padding --------------------------------------------------

for kw in [
    {},
    {"stride": 2},
    {"padding": 1},
    {"dilation": 2, "padding": 2},
    {"stride": (2, 1)},
    {"padding": "same"},
    {"padding": "valid"},
    {"stride": 3, "padding": 2},
]:
    case(
        f"conv2d {kw}",
        [(2, 3, 7, 6), (4, 3, 3, 2), (4,)],
        lambda m, f, x, w, b, kw=kw: f.conv2d(x, w, b, **kw),
    )
case("conv2d groups", [(2, 4, 5, 5), (6, 2, 3, 3)], lambda m, f, x, w: f.conv2d(x, w, groups=2))
case(
    "conv2d depthwise",
    [(1, 3, 5, 5), (3, 1, 3, 3)],
    lambda m, f, x, w: f.conv2d(x, w, groups=3, padding=1),
)
case("conv2d unbatched", [(3, 5, 5), (2, 3, 3, 3)], lambda m, f, x, w: f.conv2d(x, w))
case(
    "conv2d wide",
    [(3, 20, 9, 9), (70, 20, 3, 3)],
    lambda m, f, x, w: f.conv2d(x, w, padding=1),
    smooth=False,
)
case("conv1d", [(2, 3, 8), (4, 3, 3), (4,)], lambda m, f, x, w, b: f.conv1d(x, w, b, stride=2))
case("conv3d", [(1, 2, 4, 5, 3), (3, 2, 2, 3, 2)], lambda m, f, x, w: f.conv3d(x, w, padding=1))
case(
    "conv_transpose1d",
    [(2, 3, 5), (3, 4, 3)],
    lambda m, f, x, w: f.conv_transpose1d(x, w, stride=2),
)
for kw in [{}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2}]:
    case(
        f"conv_transpose2d {kw}",
        [(2, 3, 4, 3), (3, 2, 3, 3), (2,)],
        lambda m, f, x, w, b, kw=kw: f.conv_transpose2d(x, w, b, **kw),
    )
for kw in [{}, {"stride": (2, 1, 3), "padding": (1, 0, 2), "output_padding": (1, 0, 2)}]:
    case(
        f"conv_transpose3d {kw}",
        [(2, 3, 2, 4, 3), (3, 2, 3, 2, 4), (2,)],
        lambda m, f, x, w, b, kw=kw: f.conv_transpose3d(x, w, b, **kw),
    )
for kw in [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "dilation": 2, "stride": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
]:
    case(f"max_pool2d {kw}", [(2, 3, 7, 6)], lambda m, f, x, kw=kw: f.max_pool2d(x, **kw))
case(
    "max_pool2d_with_indices",
    [(2, 3, 7, 6)],
    lambda m, f, x: f.max_pool2d_with_indices(x, (3, 2), (2, 1), (1, 0))[0],
)
case("max_pool1d", [(2, 3, 7)], lambda m, f, x: f.max_pool1d(x, 3, 2))
for kw in [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False, "ceil_mode": True},
    {"kernel_size": 2, "divisor_override": 3},
]:
    case(f"avg_pool2d {kw}", [(2, 3, 7, 6)], lambda m, f, x, kw=kw: f.avg_pool2d(x, **kw))
case("avg_pool1d", [(2, 3, 7)], lambda m, f, x: f.avg_pool1d(x, 3, 2))
case("adaptive_avg_pool2d", [(2, 3, 7, 6)], lambda m, f, x: f.adaptive_avg_pool2d(x, (3, 4)))
case("adaptive_avg_pool2d 1", [(2, 3, 7, 6)], lambda m, f, x: f.adaptive_avg_pool2d(x, 1))
case("adaptive_avg_pool1d", [(2, 3, 7)], lambda m, f, x: f.adaptive_avg_pool1d(x, 3))
for mode, kw in [
    ("nearest", {}),
    ("bilinear", {"align_corners": False}),
    ("bilinear", {"align_corners": True}),
]:
    case(
        f"interpolate {mode} {kw}",
        [(2, 3, 4, 5)],
        lambda m, f, x, mode=mode, kw=kw: f.interpolate(x, size=(7, 3), mode=mode, **kw),
        tol=100,
    )
case(
    "interpolate scale",
    [(2, 3, 4, 5)],
    lambda m, f, x: f.interpolate(x, scale_factor=2, mode="nearest"),
)
for mode in ("constant", "reflect", "replicate", "circular"):
    case(
        f"pad {mode}", [(2, 3, 4, 5)], lambda m, f, x, mode=mode: f.pad(x, (1, 2, 2, 1), mode=mode)
    )
case("pad cut", [(2, 3, 4)], lambda m, f, x: f.pad(x, (-1, 2, 0, -1), value=1.5))

# -- embedding, attention ----------------------------------------------------------------------

case("embedding", [labels(6, 3, 4), (6, 5)], lambda m, f, i, w: f.embedding(i, w))
case(
    "embedding padding",
    [labels(6, 3, 4), (6, 5)],
    lambda m, f, i, w: f.embedding(i, w, padding_idx=2),
    smooth=False,
)
QKV = [(2, 4, 5, 3), (2, 4, 6, 3), (2, 4, 6, 2)]
case("attention", QKV, lambda m, f, q, k, v: f.scaled_dot_product_attention(q, k, v))
case(
    "attention causal",
    QKV,
    lambda m, f, q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True),
)
case(
    "attention scale", QKV, lambda m, f, q, k, v: f.scaled_dot_product_attention(q, k, v, scale=0.3)
)
case(
    "attention heads inside",
    [(2, 5, 4, 3), (2, 6, 4, 3), (2, 6, 4, 3)],
    lambda m, f, q, k, v: f.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    ),
    torch_second=False,
)
case(
    "attention mask",
    [bools(5, 6), *QKV],
    lambda m, f, mask, q, k, v: f.scaled_dot_product_attention(q, k, v, attn_mask=mask),
)
case(
    "attention bias",
    [(5, 6), *QKV],
    lambda m, f, mask, q, k, v: f.scaled_dot_product_attention(q, k, v, attn_mask=mask),
)
case(
    "attention groups",
    [(2, 4, 5, 3), (2, 2, 6, 3), (2, 2, 6, 2)],
    lambda m, f, q, k, v: f.scaled_dot_product_attention(q, k, v, enable_gqa=True),
)
case(
    "attention rank 3",
    [(2, 5, 3), (2, 6, 3), (2, 6, 2)],
    lambda m, f, q, k, v: f.scaled_dot_product_attention(q, k, v),
)
case(
    "attention long",
    [(1, 2, 150, 4), (1, 1, 200, 4), (1, 1, 200, 4)],
    smooth=False,
    second=False,
    fn=lambda m, f, q, k, v: f.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    ),
)

BLIND = bools(5, 6)  # the mask of a query that sees no key: its row is 0
BLIND[2] = False
for rank in (3, 4):
    case(
        f"attention mask of a blind row, rank {rank}",
        [BLIND, *(shape[4 - rank :] for shape in QKV)],
        lambda m, f, mask, q, k, v: f.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    )
    case(
        f"attention bias of a blind row, rank {rank}",
        [np.where(BLIND, 0.5, -np.inf), *(shape[4 - rank :] for shape in QKV)],
        lambda m, f, mask, q, k, v: f.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    )
LONG = [(1, 2, 150, 4), (1, 1, 200, 4), (1, 1, 200, 4)]
case(
    "attention mask of whole tiles",
    [
        np.arange(200) > np.arange(150)[:, None] % 3 * 65,
        (1, 2, 150, 4),
        (1, 1, 200, 4),
        (1, 1, 200, 4),
    ],
    smooth=False,
    second=False,
    fn=lambda m, f, mask, q, k, v: f.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, enable_gqa=True
    ),
)

# -- losses ------------------------------------------------------------------------------------

for red in ("none", "mean", "sum"):
    case(
        f"nll_loss {red}",
        [labels(4, 5, ignore=-100), (5, 4), numbers(4)],
        lambda m, f, t, x, w, red=red: f.nll_loss(x, t, w, reduction=red),
    )
    case(
        f"nll_loss 4d {red}",
        [labels(4, 2, 3, 2), (2, 4, 3, 2)],
        lambda m, f, t, x, red=red: f.nll_loss(x, t, reduction=red),
    )
    case(
        f"cross_entropy {red}",
        [labels(4, 5, ignore=-100), (5, 4)],
        lambda m, f, t, x, red=red: f.cross_entropy(x, t, reduction=red),
    )
    case(
        f"cross_entropy 4d {red}",
        [labels(4, 2, 3, 2), (2, 4, 3, 2)],
        lambda m, f, t, x, red=red: f.cross_entropy(x, t, reduction=red),
    )
    case(
        f"cross_entropy smooth {red}",
        [labels(4, 5, ignore=-100), (5, 4)],
        lambda m, f, t, x, red=red: f.cross_entropy(x, t, reduction=red, label_smoothing=0.2),
    )
    case(
        f"cross_entropy weights {red}",
        [labels(4, 5), (5, 4), numbers(4)],
        lambda m, f, t, x, w, red=red: f.cross_entropy(x, t, w, reduction=red, label_smoothing=0.1),
    )
    case(
        f"cross_entropy soft {red}",
        [(5, 4), (5, 4)],
        lambda m, f, t, x, red=red: f.cross_entropy(x, t.softmax(1), reduction=red),
    )
    case(
        f"mse_loss {red}",
        [(3, 4), (3, 4)],
        lambda m, f, x, y, red=red: f.mse_loss(x, y, reduction=red),
    )
    case(
        f"l1_loss {red}",
        [(3, 4), (3, 4)],
        lambda m, f, x, y, red=red: f.l1_loss(x, y, reduction=red),
    )
    case(
        f"smooth_l1_loss {red}",
        [(3, 4), (3, 4)],
        lambda m, f, x, y, red=red: f.smooth_l1_loss(x, y, reduction=red, beta=0.7),
    )
    case(
        f"huber_loss {red}",
        [(3, 4), (3, 4)],
        lambda m, f, x, y, red=red: f.huber_loss(x, y, reduction=red, delta=0.7),
    )
    case(
        f"binary_cross_entropy {red}",
        [(3, 4), numbers(3, 4)],
        positive=True,
        fn=lambda m, f, x, y, red=red: f.binary_cross_entropy(x, y, reduction=red),
    )
    case(
        f"bce_with_logits {red}",
        [(3, 4), numbers(3, 4), numbers(4)],
        lambda m, f, x, y, w, red=red: f.binary_cross_entropy_with_logits(
            x, y, reduction=red, pos_weight=w
        ),
    )
    case(
        f"kl_div {red}",
        [(3, 4), (3, 4)],
        positive=True,
        fn=lambda m, f, x, y, red=red: f.kl_div(x.log(), y, reduction=red),
    )
    case(
        f"soft_margin_loss {red}",
        [(3, 4), signs(3, 4)],
        lambda m, f, x, y, red=red: f.soft_margin_loss(x, y, reduction=red),
    )
    case(
        f"margin_ranking_loss {red}",
        [(5,), (5,), signs(5)],
        lambda m, f, x, y, t, red=red: f.margin_ranking_loss(x, y, t, margin=0.1, reduction=red),
    )
    case(
        f"hinge_embedding_loss {red}",
        [(5,), signs(5)],
        lambda m, f, x, t, red=red: f.hinge_embedding_loss(x, t, reduction=red),
    )
    case(
        f"gaussian_nll_loss {red}",
        [(5,), (5,), (5,)],
        positive=True,
        fn=lambda m, f, x, y, v, red=red: f.gaussian_nll_loss(x, y, v, full=True, reduction=red),
    )
    case(
        f"poisson_nll_loss {red}",
        [(5,), numbers(5)],
        positive=True,
        fn=lambda m, f, x, y, red=red: f.poisson_nll_loss(x, y * 5, reduction=red),
    )
case("cosine_similarity", [(3, 4), (3, 4)], lambda m, f, x, y: f.cosine_similarity(x, y, dim=1))

every_case = pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)


def tensors(lib: Any, c: Case, dtype: str) -> list[Any]:
    """The case's inputs as tensors of a library; floating ones require gradients."""
    out = []
    for a, wanted in c.inputs():
        if a.dtype != np.float64:
            out.append(lib.tensor(a.tolist(), dtype=lib.bool if a.dtype == np.bool_ else lib.int64))
            continue
        t = lib.tensor(a.tolist(), dtype=lib.float64).to(getattr(lib, dtype))
        out.append(t.requires_grad_() if wanted else t)
    return out


def weights_like(lib: Any, y: Any) -> Any:
    """Fixed numbers of y's shape, so that a weighted sum tells gradients apart."""
    w = np.cos(np.arange(y.numel())).reshape(tuple(y.shape))
    return lib.tensor(w.tolist(), dtype=lib.float64).to(y.dtype)


def derivatives(lib: Any, functional: Any, c: Case, dtype: str, order: int) -> list[Any]:
    """The value, then the gradients, then the gradients of a weighted sum of those."""
    ts = tensors(lib, c, dtype)
    leaves = [t for t in ts if t.requires_grad]
    y = c.fn(lib, functional, *ts)
    out = [y]
    grads = [y]
    for level in range(order):
        s = sum((t * weights_like(lib, t)).sum() for t in grads)
        grads = [None] * len(leaves)
        if s.requires_grad:
            grads = lib.autograd.grad(s, leaves, create_graph=level + 1 < order, allow_unused=True)
        grads = [lib.zeros_like(t) if g is None else g for g, t in zip(grads, leaves, strict=True)]
        out += grads
    return out


@every_case
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_against_torch(c: Case, dtype: str) -> None:
    order = (2 if c.second and c.torch_second else 1) if dtype == "float64" else 1
    if dtype == "bfloat16":
        order = 0
    theirs = stored.of_torch(lambda torch: derivatives(torch, torch.nn.functional, c, dtype, order))
    ours = derivatives(tn, tn_f, c, dtype, order)
    tol = c.tol * (10 if dtype == "float32" else 3 if dtype == "bfloat16" else 1)
    rtol, atol = (x * tol for x in tolerance(dtype))
    stored.same(ours, theirs, rtol, atol, c.name)


@every_case
def test_gradients(c: Case) -> None:
    """First and second derivatives against finite differences."""
    if not c.smooth:
        pytest.skip("too large for finite differences")
    ts = tensors(tn, c, "float64")

    def fn(*args: Any) -> Any:
        return c.fn(tn, tn_f, *args)

    assert tn.autograd.gradcheck(fn, ts)
    if c.second:
        assert tn.autograd.gradgradcheck(fn, ts)


# -- NumPy references --------------------------------------------------------------------------


def test_conv2d_reference() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((4, 3, 3, 2))
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((2, 4, 3, 6))
    for i in range(3):
        for j in range(6):
            want[:, :, i, j] = np.einsum(
                "nchw,kchw->nk", wide[:, :, 2 * i : 2 * i + 3, j : j + 2], w
            )
    got = tn_f.conv2d(
        tn.tensor(x.tolist(), dtype=tn.float64),
        tn.tensor(w.tolist(), dtype=tn.float64),
        stride=(2, 1),
        padding=1,
    )
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_attention_reference() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 2, 70, 8)) for _ in range(3))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(8)
    s = np.where(np.tril(np.ones((70, 70), bool)), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    args = [tn.tensor(t.tolist(), dtype=tn.float64) for t in (q, k, v)]
    got = tn_f.scaled_dot_product_attention(*args, is_causal=True)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


def test_batch_norm_updates_running_statistics() -> None:
    x = np.random.default_rng(0).standard_normal((8, 3, 4))
    mean, var = tn.zeros(3, dtype=tn.float64), tn.ones(3, dtype=tn.float64)
    tn_f.batch_norm(
        tn.tensor(x.tolist(), dtype=tn.float64), mean, var, training=True, momentum=0.25
    )
    np.testing.assert_allclose(mean.numpy(), 0.25 * x.mean((0, 2)), rtol=1e-12)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * x.var((0, 2), ddof=1), rtol=1e-12)


def test_norms_and_what_they_keep() -> None:
    """native_layer_norm and native_batch_norm return the mean and 1 / the standard deviation."""
    rng = np.random.default_rng(0)
    x, w, b = rng.standard_normal((4, 3, 5)), rng.standard_normal(5), rng.standard_normal(5)
    mean, rstd = x.mean(-1, keepdims=True), 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-3)
    got = tn.native_layer_norm(tn.tensor(x), [5], tn.tensor(w), tn.tensor(b), 1e-3)
    for mine, want in zip(got, ((x - mean) * rstd * w + b, mean, rstd), strict=True):
        np.testing.assert_allclose(mine.numpy(), want, rtol=1e-12, atol=1e-12)
    c, d = rng.standard_normal((2, 3, 1))
    mean, rstd = x.mean((0, 2)), 1 / np.sqrt(x.var((0, 2)) + 1e-3)
    running = [tn.zeros(3, dtype=tn.float64), tn.ones(3, dtype=tn.float64)]
    args = tn.tensor(x), tn.tensor(c[:, 0]), tn.tensor(d[:, 0]), *running
    got = tn.native_batch_norm(*args, True, 0.25, 1e-3)
    want = (x - mean[:, None]) * rstd[:, None] * c + d
    for mine, other in zip(got, (want, mean, rstd), strict=True):
        np.testing.assert_allclose(mine.numpy(), other, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(running[0].numpy(), 0.25 * mean, rtol=1e-12)
    np.testing.assert_allclose(running[1].numpy(), 0.75 + 0.25 * x.var((0, 2), ddof=1), rtol=1e-12)


@pytest.mark.parametrize("size", [(6, 5), (2, 9), (1, 1)], ids=str)
def test_upsampling_by_name(size: tuple[int, int]) -> None:
    """upsample_nearest2d and upsample_bilinear2d are what interpolate calls, and keep its sizes."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 3))
    rows, columns = (np.arange(n) * m // n for n, m in zip(size, x.shape[2:], strict=True))
    t = tn.tensor(x)
    got = tn.upsample_nearest2d(t, size)
    np.testing.assert_array_equal(got.numpy(), x[:, :, rows][:, :, :, columns])
    want = np.zeros((2, 3, *size))
    for i, j in np.ndindex(*size):
        y, v = (max((k + 0.5) * m / n - 0.5, 0) for k, n, m in zip((i, j), size, (4, 3)))
        y0, v0 = int(y), int(v)
        y1, v1 = min(y0 + 1, 3), min(v0 + 1, 2)
        p, q = y - y0, v - v0
        want[:, :, i, j] = (
            x[:, :, y0, v0] * (1 - p) * (1 - q) + x[:, :, y0, v1] * (1 - p) * q
            + x[:, :, y1, v0] * p * (1 - q) + x[:, :, y1, v1] * p * q
        )  # fmt: skip
    got = tn.upsample_bilinear2d(t, size, False)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 5, 4, 3), (3, 70, 2, 2)])
def test_channels_last_gives_the_same(shape: tuple[int, ...]) -> None:
    x = tn.tensor(np.random.default_rng(0).standard_normal(shape).tolist(), dtype=tn.float64)
    last = x.contiguous(memory_format=tn.channels_last)
    w = tn.tensor(
        np.random.default_rng(1).standard_normal((4, shape[1], 2, 2)).tolist(), dtype=tn.float64
    )
    for fn in (
        lambda t: tn_f.conv2d(t, w),
        lambda t: tn_f.batch_norm(t, None, None, training=True),
        lambda t: tn_f.max_pool2d(t, 2),
        lambda t: tn.softmax(t, 1),
    ):
        np.testing.assert_allclose(fn(last).numpy(), fn(x).numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    tn.manual_seed(0)
    a, b = tn.randn(300, 200), tn.randn(200, 260)
    x, w = tn.randn(9, 8, 20, 20), tn.randn(33, 8, 3, 3).requires_grad_()
    before = tn.get_num_threads()

    def run() -> list[Any]:
        y = tn_f.conv2d(x, w, padding=1)
        (g,) = tn.autograd.grad(y, w, tn.ones_like(y))
        z = tn_f.layer_norm(a, (200,))
        return [a @ b, y, g, z, tn.softmax(a, 0)]

    try:
        tn.set_num_threads(1)
        want = run()
        tn.set_num_threads(threads)
        got = run()
    finally:
        tn.set_num_threads(before)
    for g, r in zip(got, want, strict=True):
        assert g.detach().numpy().tobytes() == r.detach().numpy().tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (0, 3)], ids=str)
def test_pad_by_nothing(shape: tuple[int, ...]) -> None:
    """No amounts at all are allowed and copy, numbers included; so does the gradient."""
    x = np.random.default_rng(0).standard_normal(shape)
    t = tn.tensor(x, requires_grad=True)
    for padded in [tn_f.pad(t, []), tn.constant_pad_nd(t, [])]:
        np.testing.assert_array_equal(padded.detach().numpy(), x)
        t.grad = None
        (padded * padded).sum().backward()
        np.testing.assert_array_equal(t.grad.numpy(), 2 * x)


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda: tn.mm(tn.ones(2, 3), tn.ones(4, 5)), r"\(2x3 and 4x5\)"),
        (lambda: tn_f.linear(tn.ones(2, 3), tn.ones(4, 5)), r"\(2x3 and 5x4\)"),
        (
            lambda: tn.bmm(tn.ones(2, 3, 4), tn.ones(2, 5, 6)),
            "Expected size for first two dimensions",
        ),
        (lambda: tn.dot(tn.ones(2), tn.ones(3)), "inconsistent tensor size"),
        (lambda: tn_f.conv2d(tn.ones(1, 2, 5, 5), tn.ones(1, 3, 3, 3)), "to have 3 channels"),
        (lambda: tn_f.max_pool2d(tn.ones(1, 1, 2, 2), 5), "too small"),
        (lambda: tn_f.embedding(tn.tensor([7]), tn.ones(3, 2)), "out of range"),
        (lambda: tn_f.cross_entropy(tn.ones(2, 3), tn.tensor([0, 5])), "out of bounds"),
        (lambda: tn.einsum("ij,jk", tn.ones(2, 3)), "fewer operands"),
        (lambda: tn_f.mse_loss(tn.ones(2), tn.ones(2), reduction="other"), "not a valid value"),
        (
            lambda: tn_f.soft_margin_loss(tn.ones(2), tn.ones(2), reduction="batchmean"),
            "batchmean is not a valid value",
        ),
        (
            lambda: tn_f.l1_loss(tn.ones(2), tn.ones(2), weight=tn.ones(1)),
            "Weights and input must have the same size",
        ),
    ],
)
def test_errors(fn: Callable[[], Any], text: str) -> None:
    with pytest.raises((RuntimeError, ValueError, IndexError), match=text):
        fn()


def taps_of_planes(
    x: np.ndarray, w: np.ndarray, g: np.ndarray, stride: int, padding: int, dilation: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A convolution with one input channel per group and its gradients, tap by tap in float64."""
    each = w.shape[0] // x.shape[1]
    width = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    wide = np.repeat(np.pad(x, width), each, axis=1)
    y, gx, gw = np.zeros(g.shape), np.zeros(wide.shape), np.zeros(w.shape)
    for i, j in np.ndindex(*w.shape[2:]):
        rows = slice(i * dilation, i * dilation + stride * (g.shape[2] - 1) + 1, stride)
        columns = slice(j * dilation, j * dilation + stride * (g.shape[3] - 1) + 1, stride)
        tap = w[:, 0, i, j].reshape(1, -1, 1, 1)
        y += wide[:, :, rows, columns] * tap
        gx[:, :, rows, columns] += g * tap
        gw[:, 0, i, j] = (g * wide[:, :, rows, columns]).sum((0, 2, 3))
    gx = gx.reshape(x.shape[0], x.shape[1], each, *wide.shape[2:]).sum(2)
    inside = slice(padding, padding + x.shape[2]), slice(padding, padding + x.shape[3])
    return y, gx[:, :, inside[0], inside[1]], gw


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    ("each", "kernel", "stride", "padding", "dilation", "size"),
    [
        (1, 3, 1, 1, 1, (20, 37)),
        (1, 3, 2, 1, 1, (20, 37)),
        (2, 5, 2, 2, 1, (19, 64)),
        (4, 3, 3, 0, 2, (21, 40)),
        (1, 1, 2, 0, 1, (7, 5)),
        (3, 4, 1, 5, 3, (11, 16)),
        (1, 3, 4, 1, 1, (17, 90)),
    ],
)
def test_groups_of_one_channel(
    each: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    size: tuple[int, int],
    dtype: str,
) -> None:
    """Small integers, whose sums are exact; an infinity touches no gradient but its own taps'."""
    rng = np.random.default_rng(4)
    x = rng.integers(-2, 3, (3, 6, *size)).astype("f8")
    w = rng.integers(-2, 3, (6 * each, 1, kernel, kernel)).astype("f8")
    x[1, 2, 3, -1] = np.inf
    kind = getattr(tn, dtype)
    tx = tn.tensor(x).to(kind).requires_grad_()
    tw = tn.tensor(w).to(kind).requires_grad_()
    y = tn.nn.functional.conv2d(
        tx, tw, None, stride=stride, padding=padding, dilation=dilation, groups=6
    )
    g = rng.integers(-1, 2, y.shape).astype("f8")
    y.backward(tn.tensor(g).to(kind))
    with np.errstate(invalid="ignore"):
        expected = taps_of_planes(x, w, g, stride, padding, dilation)
    for actual, exact in zip((y, tx.grad, tw.grad), expected, strict=True):
        rounded = tn.tensor(exact).to(kind).double().numpy()
        np.testing.assert_array_equal(actual.detach().double().numpy(), rounded)


@pytest.mark.parametrize("transposed", [False, True])
def test_complex_convolutions(transposed: bool) -> None:
    """Values and gradients are those of the four real convolutions that the product stands for."""
    rng = np.random.default_rng(11)
    shapes = ((2, 4, 5, 6), (4, 2, 3, 2), (4,))

    def number(shape: tuple[int, ...]) -> tn.Tensor:
        return tn.from_numpy(rng.normal(size=shape) + 1j * rng.normal(size=shape))

    x, w, b = (number(s).requires_grad_() for s in shapes)
    name = "conv_transpose2d" if transposed else "conv2d"
    conv = functools.partial(getattr(tn_f, name), stride=(2, 1), padding=1, groups=2)
    got = conv(x, w, b)
    (xr, xi), (wr, wi), (br, bi) = ((t.real, t.imag) for t in (x, w, b))
    want = tn.complex(conv(xr, wr, br) - conv(xi, wi), conv(xr, wi, bi) + conv(xi, wr))
    assert got.dtype == tn.complex128
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), atol=1e-12)
    assert tn.autograd.gradcheck(conv, (x, w, b))
    with pytest.raises(RuntimeError, match="should be the same"):
        conv(x, w.real)


def test_refusals_of_layers() -> None:
    """What no formula takes is refused, and what misses `out` writes to it."""
    x = tn.ones(1, 1, 4, 4)
    for call, words in (
        (lambda: tn_f.huber_loss(x, x, delta=0.0), "non-positive"),
        (lambda: tn_f.rrelu(x, 0.3, 0.1), "less than or equal"),
        (lambda: tn_f.prelu(x, tn.ones(1, 1)), "scalar or 1D"),
        (lambda: tn_f.max_unpool2d(x, tn.zeros(1, 1, 4, 1, dtype=tn.int64), 2), "shape of indices"),
        (lambda: tn_f.adaptive_avg_pool2d(x, (-2, 1)), "greater than or equal to 0"),
        (lambda: tn_f.avg_pool2d(x, 2, divisor_override=0), "not zero"),
        (lambda: tn_f.triplet_margin_with_distance_loss(x, x, x[0]), "number of dimensions"),
        (lambda: tn.linalg.cross(tn.ones(2, 3), tn.ones(3)), "same number of dimensions"),
    ):
        with pytest.raises(RuntimeError, match=words):
            call()
    for words, given in (("margin", {"margin": 0.0}), ("reduction", {"reduction": "abc"})):
        with pytest.raises(ValueError, match=words):
            tn_f.triplet_margin_with_distance_loss(x, x, x, **given)
    with pytest.raises(IndexError, match="no dimensions"):
        tn.roll(tn.tensor(1.0), 0, 0)
    for call in (
        functools.partial(tn_f.softshrink, x, 0.5),
        functools.partial(tn_f.avg_pool2d, x, 2),
        functools.partial(tn_f.avg_pool3d, x, (1, 2, 2)),
    ):
        given = tn.empty(0)
        assert call(out=given) is given
        assert tn.equal(given, call())


def test_volumes_without_batch_lose_whole_channels() -> None:
    kept = tn_f.dropout3d(tn.ones(64, 2, 2, 2)).flatten(1)
    assert (kept == kept[:, :1]).all() and 0 < (kept[:, 0] == 0).sum() < 64
    assert tn.linalg.matrix_power(tn.eye(2, requires_grad=True), 0).requires_grad
    assert len(tn.gradient(tn.arange(4.0), spacing=None)) == 1


def test_gradient_of_a_pool_without_results() -> None:
    x = tn.ones(1, 2, 3, requires_grad=True)
    tn_f.adaptive_avg_pool2d(x, (0, 1)).sum().backward()  # a division by 0 ended the process
    assert x.grad.tolist() == tn.zeros(1, 2, 3).tolist()
