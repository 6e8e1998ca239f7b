"""Fourier transforms on the device without the CPU's help, against NumPy in double precision; sizes
are those of each way: in shared memory, as a matrix, a matrix of matrices, by Bluestein's sum."""

from __future__ import annotations

import harness
import pytest

pytestmark = pytest.mark.skipif(not harness.is_built(), reason="no C++ compiler: no CUDA harness")

CHECK = """
import numpy as np
rng = np.random.default_rng(4)

def close(got, want, dtype, name):
    got = got.cpu().resolve_conj().numpy()
    assert got.shape == want.shape, (name, got.shape, want.shape)
    far = 1e-14 if dtype == "double" else 4e-6
    size = np.abs(want).max()
    assert np.abs(got - want).max() <= far * size * np.log2(want.size + 4), (name, dtype,
        np.abs(got - want).max() / size)

def check(x, dim=-1, n=None, norm="backward"):
    z = x + 1j * rng.normal(size=x.shape)
    how = {"dim": dim, "norm": norm}
    np_how = {"axis": dim, "norm": norm}
    for dtype, real, whole in (("double", tn.float64, tn.complex128),
                               ("single", tn.float32, tn.complex64)):
        a, b = tn.tensor(x, dtype=real, device="cuda"), tn.tensor(z, dtype=whole, device="cuda")
        name = (x.shape, dim, norm)
        length = x.shape[dim]
        close(tn.fft.fft(b, **how), np.fft.fft(z, **np_how), dtype, name)
        close(tn.fft.ifft(b, **how), np.fft.ifft(z, **np_how), dtype, name)
        close(tn.fft.fft(a, **how), np.fft.fft(x, **np_how), dtype, name)
        close(tn.fft.rfft(a, **how), np.fft.rfft(x, **np_how), dtype, name)
        for out in (2 * length - 2, 2 * length - 1):
            if out > 0:
                got = tn.fft.irfft(b, out, **how)
                close(got, np.fft.irfft(z, out, **np_how), dtype, (*name, out))
"""


def test_lengths() -> None:
    harness.script(
        CHECK
        + """
for n in (1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 30, 49, 64, 97, 210, 1024):
    check(rng.normal(size=(3, n)))
for n in (3000, 4096, 2 * 1009, 5003):
    check(rng.normal(size=(2, n)))
check(rng.normal(size=(1, 1)), norm="ortho")
x = tn.fft.rfft(tn.tensor(rng.normal(size=(4, 90)), device="cuda"))
assert (x.imag[:, 0] == 0).all().item() and (x.imag[:, 45] == 0).all().item()
y = tn.fft.fft(tn.tensor(rng.normal(size=(4, 90)), device="cuda"))
assert tn.equal(y[:, 1:].resolve_conj(), y[:, 1:].flip(1).conj().resolve_conj())
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_a_matrix_of_matrices() -> None:
    harness.script(
        CHECK
        + """
x = rng.normal(size=1 << 20) + 1j * rng.normal(size=1 << 20)
close(tn.fft.ifft(tn.tensor(x, device="cuda")), np.fft.ifft(x), "double", x.size)
""",
        TENON_FALLBACK="error",
    )


def test_layouts_dimensions_and_norms() -> None:
    harness.script(
        CHECK
        + """
for dim in (0, 1, 2):
    for norm in ("forward", "ortho"):
        check(rng.normal(size=(6, 35, 11)), dim, norm=norm)
check(rng.normal(size=(600, 1, 2)), 0)
check(rng.normal(size=(4096, 3)), 0)
z = rng.normal(size=(4, 6, 10)) + 1j * rng.normal(size=(4, 6, 10))
for turned in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
    t = tn.tensor(z, device="cuda").permute(*turned)[1:, ::2]
    want = z.transpose(turned)[1:, ::2]
    close(tn.fft.fftn(t), np.fft.fftn(want), "double", turned)
    close(tn.fft.ifft2(t), np.fft.ifft2(want), "double", turned)
    close(tn.fft.rfftn(t.real), np.fft.rfftn(want.real), "double", turned)
    close(tn.fft.irfftn(t), np.fft.irfftn(want, axes=(0, 1, 2)), "double", turned)
    close(tn.fft.fft(t.conj()), np.fft.fft(want.conj()), "double", turned)
assert tn.fft.fft(tn.zeros(0, 4, dtype=tn.complex64, device="cuda")).shape == (0, 4)
for name in ("_fft_c2c", "_fft_r2c", "_fft_c2r"):
    assert tn.cuda.fallback_count(name) == (0, 0), name
""",
        TENON_FALLBACK="error",
        TENON_MEMORY_CACHE="0",
    )


def test_gradients_as_the_cpu() -> None:
    harness.script(
        """
tn.manual_seed(1)
def run(device, x):
    x = x.to(device).requires_grad_()
    y = tn.fft.irfft(tn.fft.rfft(x) * tn.fft.fft(x, dim=0)[:, :8], 15)
    (y * tn.arange(15, device=device)).sum().backward()
    return x.grad.cpu()
x = tn.randn(6, 15, dtype=tn.float64)
assert tn.allclose(run("cuda", x), run("cpu", x))
""",
        TENON_FALLBACK="error",
    )
