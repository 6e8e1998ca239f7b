"""Writes into the real and imaginary parts of tensors, and how gradients go through them."""

from __future__ import annotations

import pytest
import stored
import tenon

COMPLEX = """
y.imag[...] = w * 3
y.imag = w * 3
y.real = w[0]
y.imag.copy_(w * 3)
y.imag.mul_(0).add_(w * 3)
y.imag.add_(w)
y.real.copy_(y.imag.clone() * w[0])
y[1:].imag.copy_(w[:1] * 3); y.imag.add_(w)
lib.view_as_real(y)[..., 1] = w * 3
lib.view_as_real(y)[:, 1].copy_(w)
lib.view_as_real(y).copy_(w[:, None] * 3)
lib.view_as_real(y[1:])[:, 1].mul_(w[:1])
y[1:] = w.sum() * 1j; y.real.mul_(w)
""".strip().split("\n")
REAL = """
lib.view_as_complex(y).mul_(2j * w[0])
lib.view_as_complex(y)[1].copy_(lib.complex(w[0], w[1]))
lib.view_as_complex(y[1:])[1:].real.copy_(w[:1] * 2)
lib.view_as_complex(y[1:]).imag.copy_(w[0] * 2)
""".strip().split("\n")


def gradients(lib, text, make, create):
    x, w = make(lib).requires_grad_(), lib.tensor([1.5, 2.0], dtype=lib.float64).requires_grad_()
    y = x * x
    exec(text, {"lib": lib, "y": y, "w": w})
    loss = (y.abs() ** 2 * lib.arange(1.0, 1.0 + y.numel()).view(y.shape)).sum()
    found = lib.autograd.grad(loss, (x, w), create_graph=create)
    return [y.detach(), *(g.detach().resolve_conj() for g in found)]


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("text", COMPLEX)
def test_of_complex_tensors(text, create):
    def run(lib):
        made = [1 + 2j, 2 - 1j]
        return gradients(lib, text, lambda lib: lib.tensor(made, dtype=lib.complex128), create)

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 1e-12)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("text", REAL)
def test_of_pairs_of_numbers(text, create):
    def run(lib):
        def make(lib):
            return lib.arange(1.0, 7.0, dtype=lib.float64).view(3, 2)

        return gradients(lib, text, make, create)

    stored.same(run(tenon), stored.of_torch(run), 1e-12, 1e-12)


def test_assigned_parts():
    def run(lib):
        x = lib.tensor([[1 + 2j, 3], [4j, 5]])
        part, real = x.T[1:], lib.ones(2)
        part.imag = lib.tensor([7, 8])
        part.real = True
        real.real = lib.zeros(())
        found = [x.clone(), real]
        for text in ("x.imag = lib.ones(3)", "real.imag = real", "x.real = 'a'", "x.imag = 1j"):
            try:
                exec(text, {"lib": lib, "x": x, "real": real})
                found.append("none")
            except Exception as err:
                found.append(type(err).__name__)
        return [*found, x]

    stored.same(run(tenon), stored.of_torch(run), 0)
    x = tenon.ones(2, dtype=tenon.complex64)
    with pytest.raises(AttributeError):
        del x.imag
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="leaf"):
        x.real = 0
