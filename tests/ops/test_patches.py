"""Windows of images as columns and back, elements between channels and places: against PyTorch and
against windows that are cut out one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F  # noqa: N812
from both import both, both_fail

# size, kernel, dilation, padding, stride
GEOMETRIES = [
    ((5, 6), (2, 3), (1, 1), (0, 0), (1, 1)),
    ((5, 6), (2, 3), (2, 1), (1, 2), (2, 1)),
    ((7, 4), (3, 1), (1, 3), (0, 1), (3, 2)),
    ((4, 4), (4, 4), (1, 1), (0, 0), (1, 1)),
    ((3, 3), (2, 2), (3, 3), (2, 2), (2, 3)),
]


def cut_out(x: np.ndarray, geometry: Any) -> np.ndarray:
    """Windows of (N, C, H, W), each cut out by itself."""
    _, kernel, dilation, padding, stride = geometry
    wide = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    columns = [
        wide[:, :, i : i + reach[0] : dilation[0], j : j + reach[1] : dilation[1]].reshape(
            len(x), -1
        )
        for i in range(0, wide.shape[2] - reach[0] + 1, stride[0])
        for j in range(0, wide.shape[3] - reach[1] + 1, stride[1])
    ]
    return np.stack(columns, 2)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_windows(geometry: Any) -> None:
    size, kernel, dilation, padding, stride = geometry
    x = np.random.default_rng(1).normal(size=(2, 3, *size))

    def unfold(m: Any, x: Any) -> Any:
        return m.nn.functional.unfold(x, kernel, dilation, padding, stride)

    columns = F.unfold(tn.tensor(x), kernel, dilation, padding, stride)
    assert np.array_equal(columns.numpy(), cut_out(x, geometry))
    both(unfold, x)
    both(unfold, x[0])
    both(unfold, x[:0])

    def fold(m: Any, x: Any) -> Any:
        return m.nn.functional.fold(x, size, kernel, dilation, padding, stride)

    windows = columns.shape[2]
    y = np.random.default_rng(2).normal(size=(2, 3 * kernel[0] * kernel[1], windows))
    both(fold, y)
    both(fold, y[1])
    both(fold, y[:0])
    # each is the transpose of the other: <unfold x, y> = <x, fold y>
    image = F.fold(tn.tensor(y), size, kernel, dilation, padding, stride).numpy()
    assert np.vdot(columns.numpy(), y) == pytest.approx(np.vdot(x, image), rel=1e-12)


@pytest.mark.parametrize("name", ["im2col", "col2im"])
def test_windows_by_their_operators(name: str) -> None:
    """As programs that were exported call them; gradients of first and second order."""
    rest = ((2, 3), (2, 1), (1, 0), (2, 1))
    shape, call = ((2, 3, 6, 7), lambda x: tn.ops.aten.im2col(x, *rest))
    if name == "col2im":
        shape, call = ((2, 18, 15), lambda x: tn.ops.aten.col2im(x, (6, 7), *rest))
    x = tn.tensor(np.random.default_rng(3).normal(size=shape), requires_grad=True)
    assert tn.autograd.gradcheck(call, (x,)) and tn.autograd.gradgradcheck(call, (x,))
    assert call(x).grad_fn.name() == ("Im2ColBackward0" if name == "im2col" else "Col2ImBackward0")
    assert call(x.detach().to("meta")).shape == call(x).shape
    batches = tn.stack([x.detach(), x.detach() * 2])
    assert tn.equal(tn.vmap(call)(batches), tn.stack([call(b) for b in batches]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "complex64", "bool"])
def test_dtypes(dtype: str) -> None:
    def run(m: Any) -> Any:
        x = (m.arange(48.0).reshape(1, 3, 4, 4) % 5).to(getattr(m, dtype))
        y = m.nn.functional.unfold(x, 2, padding=1)
        if dtype == "bool":
            return y
        return y, m.nn.functional.fold(y, (4, 4), 2, padding=1)

    both(run)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_between_channels_and_places(lead: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    both(lambda m, x: m.pixel_shuffle(x, 2), rng.normal(size=(*lead, 12, 3, 5)))
    both(lambda m, x: m.pixel_unshuffle(x, 3), rng.normal(size=(*lead, 2, 6, 9)))
    both(lambda m, x: m.nn.functional.pixel_shuffle(x, 1), rng.normal(size=(*lead, 2, 3, 4)))
    both(lambda m, x: m.pixel_shuffle(x, 2), rng.normal(size=(*lead, 8, 0, 5)), grad=False)
    x = tn.tensor(rng.normal(size=(*lead, 12, 4, 6)))
    assert tn.equal(tn.pixel_unshuffle(tn.pixel_shuffle(x, 2), 2), x)


def test_groups_of_channels() -> None:
    rng = np.random.default_rng(5)
    for shape in ((2, 6, 3), (2, 6, 3, 4), (1, 6, 2, 3, 2)):
        both(lambda m, x: m.channel_shuffle(x, 3), rng.normal(size=shape))
    both(lambda m, x: m.native_channel_shuffle(x, 2), rng.normal(size=(2, 4, 3, 3)), grad=False)


def test_channels_last_stays() -> None:
    def run(m: Any, x: Any) -> Any:
        x = x.contiguous(memory_format=m.channels_last)
        return m.pixel_shuffle(x, 2), m.pixel_unshuffle(x, 2), m.channel_shuffle(x, 4)

    both(run, np.random.default_rng(6).normal(size=(2, 8, 4, 6)))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda m: m.nn.functional.unfold(m.ones(1, 3, 4, 4), 5),
            "components must be at least one",
        ),
        (lambda m: m.nn.functional.unfold(m.ones(1, 3, 4, 4), 0), "kernel size should be greater"),
        (lambda m: m.nn.functional.unfold(m.ones(1, 3, 4, 4), 2, 0), "dilation should be greater"),
        (lambda m: m.nn.functional.unfold(m.ones(1, 3, 4, 4), 2, 1, -1), "padding should be non"),
        (lambda m: m.nn.functional.unfold(m.ones(1, 3, 4, 4), 2, 1, 0, 0), "stride should be"),
        (lambda m: m.nn.functional.unfold(m.ones(1, 0, 4, 4), 2), "Expected 3D or 4D"),
        (lambda m: m.nn.functional.fold(m.ones(1, 5, 9), 4, 2), "dimension 1 to be divisible"),
        (lambda m: m.nn.functional.fold(m.ones(1, 8, 8), 4, 2), "3 * 3 = 9"),
        (lambda m: m.nn.functional.fold(m.ones(8), 4, 2), "Expected 2D or 3D"),
        (lambda m: m.nn.functional.fold(m.ones(1, 8, 9), 4, (2, 0)), "kernel size should be"),
        (lambda m: m.pixel_shuffle(m.ones(4, 4), 2), "at least 3 dimensions"),
        (lambda m: m.pixel_shuffle(m.ones(4, 4, 4), 0), "positive upscale_factor"),
        (lambda m: m.pixel_shuffle(m.ones(6, 4, 4), 2), "divisible by 4"),
        (lambda m: m.pixel_unshuffle(m.ones(4, 4), 2), "at least 3 dimensions"),
        (lambda m: m.pixel_unshuffle(m.ones(4, 4, 4), -1), "positive downscale_factor"),
        (lambda m: m.pixel_unshuffle(m.ones(1, 3, 4), 2), "expects height"),
        (lambda m: m.pixel_unshuffle(m.ones(1, 4, 3), 2), "expects width"),
        (lambda m: m.channel_shuffle(m.ones(4, 4), 2), "> 2 dims"),
        (lambda m: m.channel_shuffle(m.ones(1, 4, 4), 0), "must be positive"),
        (lambda m: m.channel_shuffle(m.ones(1, 4, 4), 3), "divisible by groups"),
    ],
)
def test_refused(call: Any, error: str) -> None:
    both_fail(call, words=error)


def test_sizes_that_cannot_be() -> None:
    far = 2**62
    for call in (
        lambda: F.unfold(tn.ones(4, 4), 2),
        lambda: F.unfold(tn.ones(1, 1, 4, 4), 2, padding=far),
        lambda: F.unfold(tn.ones(1, 1, 4, 4), 2, dilation=far),
        lambda: F.fold(tn.ones(1, 4, 1), far, 2),
        lambda: F.fold(tn.ones(1, 4, 1), 2, (far, far)),
        lambda: tn.pixel_shuffle(tn.ones(4, 2, 2), far),
        lambda: tn.pixel_shuffle(tn.ones(0, 4, 2, 2), far),
        lambda: tn.pixel_unshuffle(tn.ones(0, 4, 2, 2), far),
        lambda: tn.channel_shuffle(tn.ones(0, 4, 2, 2), far),
    ):
        with pytest.raises(RuntimeError):
            call()


def test_one_node() -> None:
    """An exported network shows them as PyTorch's does."""

    class Net(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            columns = F.unfold(tn.pixel_shuffle(x, 2), 2)
            return tn.channel_shuffle(F.fold(columns, 4, 2), 1)

    nodes = tn.export.export(Net(), (tn.rand(1, 4, 2, 2),)).graph.nodes
    names = [str(n.target) for n in nodes if n.op == "call_function"]
    assert names == [
        "aten.pixel_shuffle.default",
        "aten.im2col.default",
        "aten.col2im.default",
        "aten.channel_shuffle.default",
    ]


WIDTHS = [*range(2, 10), 15, 16, 17, 31, 32, 33, 65, 1000]
EDGES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@pytest.mark.parametrize("mode", EDGES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64", "complex64"])
def test_padded_rows(dtype: str, mode: str) -> None:
    """Rows of every length, grown and cut at either end, packed and not; and what flows back."""
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        x = rng.integers(1, 15, (3, 2, 4, width)).astype(dtype)
        for left, right, top, low in ((1, 1, 1, 1), (0, 1, 2, 0), (1, 0, 0, 0), (-1, 1, 1, -1)):
            inner = x[..., max(-top, 0) : 4 + min(low, 0), max(-left, 0) : width + min(right, 0)]
            grown = [
                (0, 0),
                (0, 0),
                *((max(a, 0), max(b, 0)) for a, b in ((top, low), (left, right))),
            ]
            given = {"constant_values": 7} if mode == "constant" else {}
            if mode != "constant" and min(left, low) < 0:
                continue
            want = np.pad(inner, grown, mode=EDGES[mode], **given)
            more = {"value": 7.0} if mode == "constant" else {}
            for t in (tn.tensor(x), tn.tensor(x.swapaxes(1, 3).copy()).transpose(1, 3)):
                got = F.pad(t, (left, right, top, low), mode, **more)
                np.testing.assert_array_equal(got.numpy(), want)
            if "float" not in dtype:
                continue
            t = tn.tensor(x).requires_grad_()
            g = rng.integers(1, 9, want.shape).astype(dtype)
            F.pad(t, (left, right, top, low), mode, **more).backward(tn.tensor(g))
            places = np.arange(1.0, x.size + 1).reshape(x.shape)[
                ..., max(-top, 0) : 4 + min(low, 0), max(-left, 0) : width + min(right, 0)
            ]
            places = np.pad(places, grown, mode=EDGES[mode]).astype("i8")
            back = np.zeros(x.size + 1)
            np.add.at(back, places.ravel(), g.ravel().astype("f8"))
            np.testing.assert_array_equal(t.grad.numpy(), back[1:].reshape(x.shape))


@pytest.mark.parametrize("mode", ["constant", "replicate"])
def test_padding_longer_than_a_stretch(mode: str) -> None:
    """Ends and inner parts of a row that is worked on in pieces."""
    x = np.arange(1.0, 150001.0, dtype="f4")[None]
    t = tn.tensor(x).requires_grad_()
    got = F.pad(t, (70000, 140000), mode)
    want = np.pad(x, ((0, 0), (70000, 140000)), mode=EDGES[mode])
    np.testing.assert_array_equal(got.detach().numpy(), want)
    got.sum().backward()
    ends = (70001, 140001) if mode == "replicate" else (1, 1)
    assert (t.grad[0, 0].item(), t.grad[0, -1].item()) == ends
    assert (t.grad[0, 1:-1] == 1).all()
