"""tenon.testing: assert_close accepts what is close, and says what is not, in PyTorch's words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
from refusals import check_beside
from tenon.testing import assert_allclose, assert_close, make_tensor


def failure(*args: object, **options: object) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_close(*args, **options)
    return str(caught.value)


def test_tolerance_follows_dtype() -> None:
    for dtype, rtol in ((tn.float64, 1e-7), (tn.float32, 1.3e-6), (tn.bfloat16, 1.6e-2)):
        x = tn.full((3,), 1024.0, dtype=dtype)
        near, far = (x.to(tn.float64) * (1 + k * rtol) for k in (0.4, 4))
        assert_close(near.to(dtype), x)
        with pytest.raises(AssertionError):
            assert_close(far.to(dtype), x)
    with pytest.raises(AssertionError):
        assert_close(tn.tensor([1, 2]), tn.tensor([1, 3]))


def test_message_of_a_tensor() -> None:
    text = failure(tn.tensor([[1.0, 2.0], [3.0, 5.0]]), tn.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert text == (
        "Tensor-likes are not close!\n\n"
        "Mismatched elements: 1 / 4 (25.0%)\n"
        "Greatest absolute difference: 1.0 at index (1, 1) (up to 1e-05 allowed)\n"
        "Greatest relative difference: 0.25 at index (1, 1) (up to 1.3e-06 allowed)"
    )


def test_places_and_attributes() -> None:
    x = tn.ones(2)
    assert "for item ['a'][1]" in failure({"a": [x, x]}, {"a": [x, x + 1]})
    assert "attribute 'dtype'" in failure(x, x.double())
    assert "attribute 'shape'" in failure(x, tn.ones(3))
    assert "length of the sequences" in failure([x], [x, x])
    assert "keys of the mappings" in failure({"a": x}, {"b": x})
    assert "attribute 'stride()'" in failure(tn.ones(2, 3), tn.ones(3, 2).t(), check_stride=True)
    assert_close(x, x.double(), check_dtype=False)


def test_messages_are_those_of_pytorch() -> None:
    def run(lib: Any) -> list[str]:
        t, said = lib.tensor, []
        pairs = [
            (t([1.0, 2.0]), t([1.0, 3.0])), (1, 2), (1, 1.0), (1.5, 2.5), (1, 1 + 0j),
            ([1, 2], [1, 3]), (t(3), t(4)),
            (t(3.0), t(0.0)), (t([True, False]), t([True, True])), (t([1]), t([2])),
            (t([1 + 1j]), t([1 + 2j])), (np.float32(1), np.float32(2)), (np.float32(1), 1.0),
            (t([1], dtype=lib.uint8), t([255], dtype=lib.uint8)), (t([2**62]), t([2**62 + 1])),
            (lib.ones(2).to_sparse(), lib.zeros(2).to_sparse()), (t([1.0]), t([math.nan])),
            (lib.ones(2, device="meta"), lib.ones(2, device="meta")), (t([math.inf]), t([1.0])),
            tuple(lib.quantize_per_tensor(t([v]), 0.1, 0, lib.qint8) for v in (1.0, 2.0)),
        ]  # fmt: skip
        for options in ({}, {"rtol": 0.1, "atol": 0.0}, {"check_dtype": False}):
            said += [words(lib, actual, expected, **options) for actual, expected in pairs]
        return said

    stored.same(run(tn), stored.of_torch(run))


def words(lib: Any, actual: Any, expected: Any, **options: Any) -> str:
    """What assert_close says of two values."""
    try:
        return str(lib.testing.assert_close(actual, expected, **options))
    except Exception as err:
        return f"{type(err).__name__}: {err}".replace(lib.__name__, "it")


def test_messages_of_containers_layouts_and_places_are_those_of_pytorch() -> None:
    """Each with all options: which of them a message of one's own replaces, too."""

    def run(lib: Any) -> list[str]:
        eye, x = lib.eye(2), lib.arange(24.0).reshape(2, 3, 4)
        coo, csr, csc = eye.to_sparse(), eye.to_sparse_csr(), eye.to_sparse_csc()
        pairs = [
            ({"a": 1, "c": 2}, {"a": 1, "b": 2}), ([1], [1, 2]), (None, 1), (1, None), ("one", 1),
            ([{"k": 1}], [{"k": 2}]), (lib.ones(1), "one"), (coo, eye), (csr, coo), (csr, csc),
            ([x], [x + (x == 17)]), (x.to(lib.int8), (x + 2 * (x == 6)).to(lib.int8)),
            (lib.ones(2, 3), lib.ones(3, 2)), (lib.ones(2, 3), lib.ones(3, 2).t()),
            (csr, eye.flip(0).to_sparse_csr()), (csr, lib.ones(2, 2).to_sparse_csr()),
            (csr, (eye * 2).to_sparse_csr()), (csc, eye.flip(0).to_sparse_csc()),
            (coo, eye.flip(0).to_sparse()), ([coo], [(eye + eye * 1e-6 + 1e-3 * eye).to_sparse()]),
            (lib.ones(2), lib.ones(2, device="meta")), (lib.tensor([1.0]), lib.tensor([1.001])),
        ]  # fmt: skip
        options: list[dict[str, Any]] = [
            {}, {"rtol": 0.1, "atol": 0.0}, {"rtol": 0.0, "atol": 0.1}, {"check_layout": False},
            {"check_stride": True}, {"check_device": False}, {"check_dtype": False},
            {"msg": "mine"}, {"msg": lambda text: f"mine: {text}"},
        ]  # fmt: skip
        return [words(lib, *pair, **given) for given in options for pair in pairs]

    stored.same(run(tn), stored.of_torch(run))


def test_nan_numbers_and_none() -> None:
    nan = tn.tensor([math.nan])
    with pytest.raises(AssertionError):
        assert_close(nan, nan)
    assert_close(nan, nan, equal_nan=True)
    assert_close(1.0, 1.0 + 1e-9)
    assert_close(None, None)
    with pytest.raises(AssertionError):
        assert_close(2**53 + 1, 2**53)
    with pytest.raises(TypeError):
        assert_close(tn.ones(1), "one")
    with pytest.raises(ValueError, match="'rtol' and 'atol' must be .* got no atol"):
        assert_close(1.0, 1.0, rtol=0.1)
    assert_close(np.ones(3), np.ones(3))
    assert failure(1.0, 2.0, msg=lambda text: "said: " + text).startswith("said: Scalars")


def test_old_form_converts() -> None:
    assert_allclose(tn.ones(2), [1.0, 1.0])
    with pytest.raises(AssertionError):
        assert_allclose(tn.ones(2), [1.0, 1.1])


@pytest.mark.parametrize("dtype", [tn.bool, tn.uint8, tn.int64, tn.float16, tn.complex64])
def test_make_tensor(dtype: tn.dtype) -> None:
    tn.manual_seed(0)
    x = make_tensor((50, 4), dtype=dtype, device="cpu", exclude_zero=True)
    assert x.dtype == dtype and x.shape == (50, 4) and bool((x != 0).all())
    assert not make_tensor(3, 4, dtype=dtype, device="cpu", noncontiguous=True).is_contiguous()


@pytest.mark.parametrize("dtype", "bool uint8 int8 int64 float16 float64 complex64".split())
@pytest.mark.parametrize("ends", [{}, {"low": 2.5}, {"high": 6.5}, {"low": 0, "high": 2},
                                  {"low": -9.5, "high": 300}], ids=str)  # fmt: skip
def test_made_numbers_fill_the_interval_of_pytorch(dtype: str, ends: dict[str, float]) -> None:
    def run(lib: Any) -> list[float]:
        lib.manual_seed(0)
        kind = getattr(lib, dtype)
        if kind == lib.bool and ends:
            return []
        x = lib.testing.make_tensor(4000, dtype=kind, device="cpu", **ends)
        parts = [x.real, x.imag] if x.is_complex() else [x]
        return [float(edge) for p in parts for edge in (p.min(), p.max())]

    want = stored.of_torch(run)
    np.testing.assert_allclose(run(tn), want, rtol=0, atol=0.002 * np.ptp([0, *want]))


def test_made_tensors_have_the_strides_of_pytorch() -> None:
    def run(lib: Any) -> list[Any]:
        make, found = lib.testing.make_tensor, []
        for size in ((), (1,), (3,), (2, 3), (2, 3, 4, 5)):
            for options in ({}, {"noncontiguous": True}, {"requires_grad": True}):
                x = make(*size, dtype=lib.float32, device="cpu", **options)
                found.append([list(x.shape), list(x.stride()), x.requires_grad])
        last = {"memory_format": lib.channels_last}
        found.append(list(make((2, 3, 4, 5), dtype=lib.int8, device="cpu", **last).stride()))
        return found

    stored.same(run(tn), stored.of_torch(run))


@pytest.mark.parametrize(
    ("words", "dtype", "options"),
    [
        ("`low` must be less than `high`, but got 1 >= 1", "int8", {"low": 1, "high": 1}),
        ("`low` must be less than `high`, but got 2 >= 1", "float32", {"low": 2, "high": 1}),
        ("cannot be NaN, but got nan and 9", "float32", {"low": math.nan}),
        ("cannot be NaN, but got -9 and nan", "float32", {"high": math.nan}),
        ("has [-128, 128)", "int8", {"low": 128, "high": 129}),
        ("has [0, 256)", "uint8", {"low": -9, "high": -1}),
        ("has [0, 2)", "bool", {"low": 2, "high": 4}),
        ("has [-65504.0, 65504.0)", "float16", {"low": 65504.0, "high": 1e5}),
        ("has [-9223372036854775808, 9223372036854775807)", "int64",
         {"low": 2**63 - 1, "high": 2**63}),
        ("exclude each other", "int8",
         {"noncontiguous": True, "memory_format": "contiguous_format"}),
        ("has no gradients", "int8", {"requires_grad": True}),
    ],
)  # fmt: skip
def test_tensors_that_cannot_be_made(words: str, dtype: str, options: dict[str, Any]) -> None:
    def make(lib: Any) -> Any:
        named = {k: getattr(lib, v) if isinstance(v, str) else v for k, v in options.items()}
        return lib.testing.make_tensor(2, dtype=getattr(lib, dtype), device="cpu", **named)

    check_beside(words, make)


def test_an_interval_of_one_number_is_deprecated() -> None:
    with pytest.warns(FutureWarning, match="low == high"):
        x = make_tensor(3, dtype=tn.float32, device="cpu", low=2, high=2)
    assert x.tolist() == [2.0] * 3
