"""tenon.testing: assert_close accepts what is close, and says what is not, in PyTorch's words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import stored
import tenon as tn
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
            for actual, expected in pairs:
                try:
                    said.append(str(lib.testing.assert_close(actual, expected, **options)))
                except Exception as err:
                    said.append(f"{type(err).__name__}: {err}")
        return said

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
    with pytest.raises(ValueError, match="low"):
        make_tensor(2, dtype=tn.float32, device="cpu", low=1, high=1)
