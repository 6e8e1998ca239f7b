"""The order of a result's dimensions in memory, which is PyTorch's: numbers that are drawn for its
elements, as dropout's, follow it. Strides are what PyTorch 2.13 gives; dimensions of size 1 are
left out."""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
from tenon.nn import functional as F


def operands() -> dict[str, tn.Tensor]:
    last = tn.channels_last
    return {
        "gaps": tn.randn(6, 4, 5).permute(2, 0, 1)[:, ::2],  # (5, 3, 4)
        "rows_with_gaps": tn.randn(3, 8)[:, ::2],
        "turned_with_gaps": tn.randn(4, 6).t()[::2],
        "expanded": tn.randn(3, 4, 1).expand(3, 4, 2).permute(2, 1, 0),
        "channels_last": tn.randn(2, 3, 4, 5).to(memory_format=last),
        "slice_of_channels": tn.randn(2, 6, 4, 5).to(memory_format=last)[:, ::2],
        "turned": tn.randn(6, 4, 5).permute(1, 2, 0),
    }


KEPT = {
    "gaps": (1, 20, 5), "rows_with_gaps": (4, 1), "turned_with_gaps": (1, 3),
    "expanded": (12, 1, 4), "channels_last": (60, 1, 15, 3), "slice_of_channels": (60, 1, 15, 3),
    "turned": (5, 1, 20),
}  # fmt: skip
KEEPING: dict[str, Any] = {
    "exp": lambda x: x.exp(), "compare": lambda x: x > 0, "numbers": lambda x: 2 * x - 1,
    "convert": lambda x: x.double(), "clone": lambda x: x.clone(), "like": tn.zeros_like,
    "drawn": tn.rand_like, "dropout": lambda x: F.dropout(x, 0.5), "sort": lambda x: x.sort()[0],
    "flip": lambda x: x.flip(0), "row": lambda x: tn.randn(x.shape[-1]) + x,
    "column": lambda x: tn.randn(x.shape[0], *[1] * (x.dim() - 1)) * x,
    "before a packed one": lambda x: x + x.clone(memory_format=tn.contiguous_format),
    "three": lambda x: tn.addcmul(x, x, x), "gelu": F.gelu,
}  # fmt: skip
PACKING: dict[str, Any] = {
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(0),
    "cumsum": lambda x: x.cumsum(0), "cumprod": lambda x: x.cumprod(0),
    "after a packed one": lambda x: x.clone(memory_format=tn.contiguous_format) + x,
}  # fmt: skip


@pytest.mark.parametrize("operand", KEPT)
@pytest.mark.parametrize("name", KEEPING)
def test_results_have_their_operands_order(name: str, operand: str) -> None:
    x = operands()[operand]
    assert KEEPING[name](x).stride() == KEPT[operand]


@pytest.mark.parametrize("operand", KEPT)
@pytest.mark.parametrize("name", PACKING)
def test_results_are_packed_by_rows(name: str, operand: str) -> None:
    assert PACKING[name](operands()[operand]).is_contiguous()


IMAGES: dict[str, Any] = {
    "conv2d": lambda x: F.conv2d(x, tn.randn(4, 4, 3, 3)),
    "grouped": lambda x: F.conv2d(x, tn.randn(4, 1, 3, 3), groups=4),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, tn.randn(4, 4, 3, 3)),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "places": lambda x: F.max_pool2d(x, 2, return_indices=True)[1],
    "avg_pool2d": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "pad": lambda x: F.pad(x, (1, 1)),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "a filter": lambda x: F.conv2d(
        x.contiguous(), tn.randn(4, 4, 3, 3).to(memory_format=tn.channels_last)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IMAGES)
def test_results_of_images_lie_as_they_do(name: str) -> None:
    x = tn.randn(2, 4, 6, 6).to(memory_format=tn.channels_last)
    got, want = IMAGES[name](x), None
    assert got.stride()[1] == 1
    assert got.is_contiguous(memory_format=tn.channels_last)
    tn.manual_seed(3)
    got = IMAGES[name](x)
    tn.manual_seed(3)
    want = IMAGES[name](x.contiguous())
    assert tn.equal(got, want)
    assert name == "a filter" or want.is_contiguous()


SHOWN: dict[str, Any] = {  # name: (a view of images whose channels lie together, whether it shows)
    "sliced": (lambda x: x[:, :, 1:, 1:], True),
    "every second": (lambda x: x[:, :, ::2, ::2], True),
    "one image": (lambda x: x[:1], True),
    "one image of its own": (lambda x: x[0][None], False),
    "one channel": (lambda x: x[:, :1], True),
    "one place": (lambda x: x[:, :, :1, :1], True),
    "channels by themselves": (lambda x: x[:, :, 0, 0][:, :, None, None], False),
    "turned": (lambda x: x.mT, False),
    "repeated": (lambda x: x[:, :1].expand(-1, 4, -1, -1), False),
}
LOOKED_AT: dict[str, Any] = {
    "conv2d": lambda x: F.conv2d(x, tn.randn(4, x.shape[1], 1, 1)),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 1),
    "cat": lambda x: tn.cat([x] * 3, 1),
    **{mode: lambda x, mode=mode: F.interpolate(x, (3, 3), mode=mode)
       for mode in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")},
    "pixel_shuffle": lambda x: F.pixel_shuffle(tn.cat([x] * 4, 1), 2),
}  # fmt: skip


@pytest.mark.parametrize("view", SHOWN)
@pytest.mark.parametrize("name", LOOKED_AT)
def test_views_of_images_show_how_they_lie(name: str, view: str) -> None:
    take, last = SHOWN[view]
    x = take(tn.randn(2, 4, 6, 6).to(memory_format=tn.channels_last))
    got = LOOKED_AT[name](x)
    assert got.is_contiguous(memory_format=tn.channels_last if last else tn.contiguous_format)
    assert got.stride(1) == 1 or not last or got.shape[1] == 1
    packed = LOOKED_AT[name](x.clone(memory_format=tn.contiguous_format))
    assert name == "conv2d" or tn.equal(got, packed)


def test_volumes_lie_as_they_did_too() -> None:
    x = tn.randn(2, 4, 5, 5, 5).to(memory_format=tn.channels_last_3d)
    assert F.conv3d(x, tn.randn(4, 4, 3, 3, 3)).stride() == (108, 1, 36, 12, 4)


def test_gradients_pass_through_channels_last() -> None:
    x = tn.randn(2, 4, 6, 6, dtype=tn.float64)
    w = tn.randn(3, 4, 3, 3, dtype=tn.float64)
    found = []
    for image in (x, x.to(memory_format=tn.channels_last)):
        image = image.clone().requires_grad_()
        out = F.max_pool2d(F.conv2d(image, w), 2)
        assert type(F.conv2d(image, w).grad_fn).__name__ == "ConvolutionBackward0"
        found.append(tn.autograd.grad(out.square().sum(), image)[0])
    assert tn.allclose(*found)


def test_broadcast_operands_have_a_say_where_they_go_on() -> None:
    turned = tn.randn(4, 4).t()
    assert (tn.randn(2, 1, 1) * turned).stride() == (16, 1, 4)
    assert (turned * tn.randn(2, 1, 1)).stride() == (16, 1, 4)
    assert tn.where(tn.ones(2, 1, 1) > 0, turned, 0.0).stride() == (16, 1, 4)
    assert (tn.randn(2, 1, 1, 1) + tn.randn(3, 4, 5).permute(2, 0, 1)).stride() == (60, 1, 20, 5)


def test_gradients_of_softmax_are_packed() -> None:
    x = tn.randn(6, 4, 5).permute(1, 2, 0).requires_grad_()
    for f in (tn.softmax, tn.log_softmax):
        (g,) = tn.autograd.grad(f(x, -1), x, tn.ones(4, 5, 6))
        assert g.is_contiguous()


@pytest.mark.parametrize(
    ("equation", "shapes", "strides"),
    [
        ("bij,bjk->bki", [(2, 3, 4), (2, 4, 5)], (15, 3, 1)),
        ("bn,nd->db", [(2, 3), (3, 4)], (2, 1)),
        ("bhij,hg->bgij", [(2, 16, 3, 4), (16, 16)], (192, 1, 64, 16)),
        ("ij,jk->ik", [(2, 3), (3, 4)], (4, 1)),
        ("bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], (72, 24, 6, 1)),
        ("bhst,bthd->bshd", [(2, 3, 5, 6), (2, 6, 3, 4)], (60, 4, 20, 1)),
        ("ijk,kl->ilj", [(2, 3, 4), (4, 5)], (15, 1, 5)),
        ("e,cd->ecd", [(2,), (4, 4)], (16, 4, 1)),
        ("i,j->ij", [(3,), (4,)], (4, 1)),
    ],
)
def test_products_of_einsum_lie_as_they_are_wanted(equation, shapes, strides) -> None:
    assert tn.einsum(equation, *map(tn.randn, shapes)).stride() == strides


PLACES: dict[str, Any] = {
    "columns apart": lambda m, n: ((2, m, 2 * n), lambda t: t[:, :, ::2]),
    "rows apart": lambda m, n: ((2, 2 * m, n), lambda t: t[:, ::2]),
    "wide rows": lambda m, n: ((2, m, n + 3), lambda t: t[:, :, 1 : n + 1]),
    "turned": lambda m, n: ((2, n, m), lambda t: t.transpose(1, 2)),
    "turned, apart": lambda m, n: ((2, n, 2 * m), lambda t: t[:, :, ::2].transpose(1, 2)),
    "entries inside": lambda m, n: ((m, n, 2), lambda t: t.permute(2, 0, 1)),
    "packed": lambda m, n: ((2, m, n), lambda t: t),
}


@pytest.mark.parametrize("dtype", [tn.float32, tn.float64, tn.bfloat16, tn.int32, tn.complex64])
@pytest.mark.parametrize("how", PLACES)
def test_products_go_where_they_are_sent(how: str, dtype: Any) -> None:
    """Results, and what they are added to, lie in memory as they like; one row or column, too."""
    for rows, inner, cols in ((3, 4, 5), (1, 4, 5), (3, 4, 1), (1, 3, 1), (3, 0, 2), (2, 1, 3)):
        a = (tn.arange(2 * rows * inner) % 5 - 2).reshape(2, rows, inner).to(dtype)
        b = (tn.arange(2 * inner * cols) % 7 - 3).reshape(2, inner, cols).to(dtype)
        wide = tn.complex128 if dtype is tn.complex64 else tn.float64
        want = tn.from_numpy(a.to(wide).numpy() @ b.to(wide).numpy()).to(dtype)
        for x, y in ((a, b), (a.mT.contiguous().mT, b.mT.contiguous().mT)):
            shape, part = PLACES[how](rows, cols)
            whole = tn.full(shape, 9, dtype=dtype)
            out = part(whole)
            tn.bmm(x, y, out=out)
            assert tn.equal(out, want), (rows, inner, cols)
            out.fill_(2).baddbmm_(x, y, beta=3, alpha=2)
            assert tn.equal(out, 2 * want + 6), (rows, inner, cols)
            tn.mm(x[1], y[1], out=out[1])
            assert tn.equal(out[1], want[1]), (rows, inner, cols)
            out[1].fill_(2).addmm_(x[1], y[1], beta=3)
            assert tn.equal(out[1], want[1] + 6), (rows, inner, cols)
            out.fill_(9)
            assert (whole == 9).all(), "what lies between was written"
