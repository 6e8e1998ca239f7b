"""Fourier transforms: every size against NumPy in double precision, layouts, gradients, errors."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn
from tenon import fft

RNG = np.random.default_rng(5)
# Powers of two, products of small primes, primes up to what a pass does, and beyond.
SIZES = [*range(1, 42), 45, 49, 63, 64, 77, 96, 97, 121, 125, 127, 128, 129, 169, 210, 243, 251,
         256, 257, 360, 514, 521, 729, 1000, 1009, 1024, 1155, 2187, 2310, 4096, 5003]  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = RNG.standard_normal(shape)
    if dtype.startswith("complex"):
        x = x + 1j * RNG.standard_normal(shape)
    return x.astype(dtype)


def close(got: tn.Tensor, want: np.ndarray, factor: float = 1.0) -> None:
    """To the root mean square of what is wanted, a few units of precision."""
    got = got.numpy()
    assert got.shape == want.shape
    single = got.dtype in (np.float32, np.complex64)
    scale = np.sqrt(np.mean(np.abs(want) ** 2)) if want.size else 1
    limit = factor * (1e-6 if single else 1.5e-15) * np.log2(4 + want.size)
    assert not want.size or np.abs(got - want).max() <= limit * scale


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("rows", [1, 3, 19])
def test_sizes(rows: int, dtype: str) -> None:
    for n in SIZES:
        x = numbers((rows, n), dtype)
        wide = x.astype("complex128" if dtype.startswith("c") else "float64")
        close(fft.fft(tn.tensor(x)), np.fft.fft(wide))
        close(fft.ifft(tn.tensor(x)), np.fft.ifft(wide))
        if not dtype.startswith("c"):
            close(fft.rfft(tn.tensor(x)), np.fft.rfft(wide))
        close(fft.irfft(tn.tensor(x), 2 * n), np.fft.irfft(wide, 2 * n))
        close(fft.irfft(tn.tensor(x), 2 * n - 1), np.fft.irfft(wide, 2 * n - 1))


def test_frequencies() -> None:
    for n in (1, 2, 7, 10):
        close(fft.fftfreq(n, 0.1), np.fft.fftfreq(n, 0.1).astype("float32"))
        close(fft.rfftfreq(n, d=0.3, dtype=tn.float64), np.fft.rfftfreq(n, 0.3))
    with pytest.raises(RuntimeError, match="floating point"):
        fft.fftfreq(4, dtype=tn.int64)


@pytest.mark.parametrize("n", [6, 9, 12, 37, 64, 300])
def test_layouts(n: int) -> None:
    """Any dimension, strides, offsets, and results that are written where out= says."""
    x = numbers((5, n, 18), "complex64")
    t, r = tn.tensor(x), tn.tensor(x.real)
    again = np.tile(x[:, :1], (1, n, 1))
    for got, want in (
        (fft.fft(t, dim=1), np.fft.fft(x, axis=1)),
        (fft.fft(t.transpose(1, 2)), np.fft.fft(x.swapaxes(1, 2))),
        (fft.ifft(t[::2, :, 3:], dim=1), np.fft.ifft(x[::2, :, 3:], axis=1)),
        (fft.rfft(t.real[:, :, ::2], dim=1), np.fft.rfft(x.real[:, :, ::2], axis=1)),
        (fft.rfft(t.real.transpose(0, 1), dim=0), np.fft.rfft(x.real.swapaxes(0, 1), axis=0)),
        (fft.fft(t.real, dim=1), np.fft.fft(x.real, axis=1)),
        (fft.irfft(t, dim=1), np.fft.irfft(x, axis=1)),
        (fft.irfft(t[:, 1:], 2 * n - 3, dim=1), np.fft.irfft(x[:, 1:], 2 * n - 3, axis=1)),
        (fft.fft(t[:1].expand(3, n, 18), dim=1), np.fft.fft(np.tile(x[:1], (3, 1, 1)), axis=1)),
        # a line whose numbers are one and the same
        (fft.rfft(r[:, :1].expand(5, n, 18), dim=1), np.fft.rfft(again.real, axis=1)),
        (fft.fft(r[:1, :1, :1].expand(3, 4, n)), np.fft.fft(np.full((3, 4, n), x.real[0, 0, 0]))),
        (fft.rfftn(r[:, :1].expand(5, n, 18)), np.fft.rfftn(again.real)),
        (fft.ifft(t[:, :1].expand(5, n, 18), dim=1), np.fft.ifft(again, axis=1)),
        (fft.irfft(t[:, :1].expand(5, n, 18), dim=1), np.fft.irfft(again, axis=1)),
        (fft.fftn(t), np.fft.fftn(x)),
        (fft.irfftn(t, (4, n, 10), dim=(2, 1, 0)), None),
    ):
        if want is None:
            y = np.fft.ifft(
                np.fft.ifft(np.pad(x, ((0, 1), (0, 0), (0, 0)))[..., :4], axis=2), axis=1
            )
            want = np.fft.irfft(y, 10, axis=0)
        close(got, want)
    out = tn.empty(0, dtype=tn.complex64)
    assert fft.fft(t, dim=1, out=out) is out
    close(out, np.fft.fft(x, axis=1))
    wide = tn.zeros(5, 2 * n, 18, dtype=tn.complex64)
    fft.fft(t, dim=1, out=wide[:, ::2])
    close(wide[:, ::2], np.fft.fft(x, axis=1))
    assert not wide[:, 1::2].any()


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_columns(dtype: str) -> None:
    """Beside each other, as many as fill no vector or cross from one matrix to the next, lengths
    that the first cache holds and others; into the result and within it, with steps between."""
    for n in (1, 2, 4, 5, 8, 16, 64, 255, 256, 512, 729, 1000, 1009, 1024, 2310, 4096, 8192, 9000):
        for shape in ((n, 16), (n, 19), (3, n, 21), (2, n, 2)):
            x = numbers(shape, dtype)
            wide = x.astype("complex128")
            t = tn.tensor(x)
            close(fft.fft(t, dim=-2), np.fft.fft(wide, axis=-2))
            close(fft.ifft(t, dim=-2), np.fft.ifft(wide, axis=-2))
            close(fft.fft(t[..., ::2], dim=-2), np.fft.fft(wide[..., ::2], axis=-2))
            close(fft.ifft2(t[..., 1:]), np.fft.ifft2(wide[..., 1:]))
            close(fft.rfft(t.real, dim=-2), np.fft.rfft(wide.real, axis=-2))
            close(fft.irfft(t, 2 * n, dim=-2), np.fft.irfft(wide, 2 * n, axis=-2))
    assert fft.fft(tn.zeros(0, 5, dtype=tn.complex64)).shape == (0, 5)


def test_batches_agree_with_single_lines() -> None:
    for n in (8, 33, 300, 2048):
        x = tn.tensor(numbers((40, n), "complex128"))
        whole = fft.fft(x)
        for i in (0, 17, 39):
            np.testing.assert_allclose(fft.fft(x[i]).numpy(), whole[i].numpy(), atol=1e-11)


def test_same_bits_on_any_number_of_threads() -> None:
    before = tn.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3):
            tn.set_num_threads(threads)
            tn.manual_seed(0)
            x, z = tn.randn(100, 200), tn.randn(1 << 17, dtype=tn.complex64)
            results.append([fft.rfft2(x), fft.fft(z), fft.ifft(x, dim=0), fft.fft(z[:70001])])
    finally:
        tn.set_num_threads(before)
    for other in results[1:]:
        assert all(
            tn.equal(tn.view_as_real(a), tn.view_as_real(b)) for a, b in zip(results[0], other)
        )


@pytest.mark.parametrize("dims", [(-2, -1), (-1, -2), (2, 3), (1, 3), (1, 2), (0, 3)])
def test_images_that_the_caches_do_not_hold_together(dims: tuple[int, int]) -> None:
    real = np.transpose(numbers((10, 96, 3, 160), "float64"), (0, 2, 1, 3))
    several = real + 1j * np.flip(real, 3)
    before = tn.get_num_threads()
    try:
        for threads in (1, 2, 3):
            tn.set_num_threads(threads)
            half = np.fft.rfftn(real, axes=dims)
            size = [real.shape[d] for d in dims]
            close(fft.rfftn(tn.from_numpy(real), dim=dims), half)
            close(fft.irfftn(tn.from_numpy(half), size, dim=dims), real)
            z = tn.from_numpy(several)
            close(fft.fftn(z, dim=dims), np.fft.fftn(several, axes=dims))
            close(fft.ifftn(z, dim=dims, norm="ortho"),
                  np.fft.ifftn(several, axes=dims, norm="ortho"))  # fmt: skip
    finally:
        tn.set_num_threads(before)


def test_long_lines() -> None:
    for n in (1 << 18, 3 * 5 * 7 * 11 * 13 * 17, 100003, 2 * 50021):
        x = numbers((n,), "complex64")
        close(fft.fft(tn.tensor(x)), np.fft.fft(x.astype("complex128")))
        back = fft.ifft(fft.fft(tn.tensor(x)))
        close(back, x)
        close(fft.irfft(fft.rfft(tn.tensor(x.real)), n), x.real)


def test_more_plans_than_are_kept() -> None:
    x = numbers((400,), "complex128")
    for n in [*range(200, 300), *range(200, 210)]:
        close(fft.fft(tn.tensor(x[:n])), np.fft.fft(x[:n]))


def test_dtypes() -> None:
    assert fft.fft(tn.arange(4)).dtype == tn.complex64
    assert fft.rfft(tn.tensor([True, False])).dtype == tn.complex64
    assert fft.irfft(tn.ones(3)).dtype == tn.float32
    assert fft.hfft(tn.ones(3, dtype=tn.float64)).dtype == tn.float64
    assert fft.fftn(tn.tensor(2.0)).dtype == tn.complex64
    for dtype in (tn.float16, tn.bfloat16):
        with pytest.raises(RuntimeError, match="Unsupported dtype"):
            fft.fft(tn.ones(4, dtype=dtype))


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_gradients(name: str, norm: str | None) -> None:
    """First and second, of lines and of several dimensions, cut and filled."""
    real = name in ("rfft", "ihfft")
    dtype = tn.float64 if real else tn.complex128
    x = tn.randn(3, 5, 4, dtype=dtype, requires_grad=True)
    for n in (None, 3, 6):
        call = lambda x, n=n: getattr(fft, name)(x, n, 1, norm)  # noqa: E731
        assert tn.autograd.gradcheck(call, x)
    many = lambda x: getattr(fft, f"{name}n")(x, (2, 6), (0, 2), norm)  # noqa: E731
    assert tn.autograd.gradcheck(many, x)
    assert tn.autograd.gradgradcheck(many, x)
    if name == "fft":
        x = tn.randn(3, 4, dtype=tn.float64, requires_grad=True)
        assert tn.autograd.gradcheck(lambda x: fft.fftn(x, norm=norm), x)
        assert tn.autograd.gradgradcheck(lambda x: fft.fft(x, dim=0, norm=norm), x)


def test_vmap() -> None:
    x = tn.randn(3, 4, 5, dtype=tn.complex64)
    for call in (
        lambda t: fft.fft(t), lambda t: fft.irfft(t, 6, 0), lambda t: fft.fftn(t),
        lambda t: fft.ifft2(t), lambda t: fft.fftn(t, (2,)), lambda t: fft.fftshift(t),
        lambda t: fft.ifftshift(t, (0,)), lambda t: fft.irfftn(t, dim=(1, 0)),
    ):  # fmt: skip
        want = tn.stack([call(e) for e in x])
        np.testing.assert_allclose(tn.vmap(call)(x).numpy(), want.numpy(), atol=1e-6)


def test_errors() -> None:
    x, z = tn.ones(3, 4), tn.ones(3, 4, dtype=tn.complex64)
    for match, call in {
        "Invalid normalization mode": lambda: fft.fft(x, norm="no"),
        r"data points \(0\)": lambda: fft.fft(x, 0),
        r"data points \(-2\)": lambda: fft.irfft(x, -2),
        "real input tensor": lambda: fft.rfft(z),
        "dims must be unique": lambda: fft.fftn(x, dim=(0, -2)),
        "same length": lambda: fft.fft2(x, (2,)),
        "only has 2": lambda: fft.fftn(x, (2, 2, 2)),
        "at least one axis": lambda: fft.rfftn(tn.tensor(1.0)),
    }.items():
        with pytest.raises(RuntimeError, match=match):
            call()
    for call in (
        lambda: fft.fft(tn.tensor(1.0)), lambda: fft.fft2(tn.tensor(1.0), dim=(0,)),
        lambda: fft.fft(x, dim=2), lambda: fft.fftn(x, dim=(0, 5)), lambda: fft.fftshift(x, 3),
    ):  # fmt: skip
        with pytest.raises(IndexError, match=r"[Dd]imension"):
            call()


def test_nothing() -> None:
    assert fft.fft(tn.ones(0, 4)).shape == (0, 4)
    assert fft.irfft(tn.ones(0, 4)).shape == (0, 6)
    with pytest.raises(RuntimeError, match="data points"):
        fft.fft(tn.ones(4, 0))


def test_of_a_number() -> None:
    """No dimension is transformed: the number, in a complex dtype."""
    for transform in (tn.fft.fftn, tn.fft.ifftn):
        for dtype in (tn.float64, tn.complex128):
            assert complex(transform(tn.tensor(3.0, dtype=dtype))) == 3
