"""The dtypes beside the twelve that kernels know: unsigned integers, float8 and complex32.

What they convert to and from is compared with definitions in exact arithmetic, over all codes and
at all ties, and with PyTorch where it is installed.
"""

from __future__ import annotations

import copy
import io
import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn

UNSIGNED = ("uint16", "uint32", "uint64")
# exponent bits, fraction bits, bias, and what the code of all ones and that of -0 mean
EIGHT = {
    "float8_e4m3fn": (4, 3, 7, "nan"), "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"), "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
}  # fmt: skip
NEW = (*UNSIGNED, *EIGHT, "float8_e8m0fnu", "complex32")


def of(name: str) -> tn.dtype:
    return getattr(tn, name)


def value_of(name: str, code: int) -> Fraction | float:
    """What a code means, by the format's definition."""
    if name == "float8_e8m0fnu":
        return math.nan if code == 255 else Fraction(2) ** (code - 127)
    exponent_bits, fraction_bits, bias, ends = EIGHT[name]
    sign = -1 if code & 0x80 else 1
    exponent = (code & 0x7F) >> fraction_bits
    fraction = code & ((1 << fraction_bits) - 1)
    if ends == "fnuz" and code == 0x80:
        return math.nan
    if ends == "nan" and code & 0x7F == 0x7F:
        return math.nan
    if ends == "ieee" and exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if exponent == 0:
        return sign * Fraction(fraction, 1 << fraction_bits) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(fraction, 1 << fraction_bits)) * Fraction(2) ** (exponent - bias)


def codes() -> tn.Tensor:
    return tn.arange(256).to(tn.uint8)


@pytest.mark.parametrize("name", [*EIGHT, "float8_e8m0fnu"])
def test_every_code_of_float8(name: str) -> None:
    floats = codes().view(of(name)).float()
    for code, got in enumerate(floats.tolist()):
        want = value_of(name, code)
        if isinstance(want, float):
            assert math.isnan(got) if math.isnan(want) else got == want, (name, code)
        else:
            assert Fraction(got) == want, (name, code)
            if want == 0:
                assert math.copysign(1, got) == (-1 if code & 0x80 else 1)
    back = floats.to(of(name)).view(tn.uint8)
    numbers = ~floats.isnan()
    assert tn.equal(back[numbers], codes()[numbers])
    assert floats.to(of(name)).float().isnan().tolist() == floats.isnan().tolist()
    assert tn.equal(codes().view(of(name)).double().nan_to_num(1), floats.double().nan_to_num(1))


@pytest.mark.parametrize("name", list(EIGHT))
def test_every_tie_of_float8(name: str) -> None:
    """Halfway between two neighbours the even code wins; next to it the nearer one."""
    finite = [c for c in range(128) if not isinstance(value_of(name, c), float)]
    for low, high in zip(finite, finite[1:]):
        a, b = value_of(name, low), value_of(name, high)
        tie = float((a + b) / 2)
        even = low if low % 2 == 0 else high
        cases = [(tie, even), (math.nextafter(tie, 0), low), (math.nextafter(tie, 1e9), high)]
        for x, want in cases:
            near = float(np.float32(x))
            if near != x:  # float32, over which conversions go, has its own neighbours
                near = float(np.nextafter(np.float32(tie), np.float32(0 if x < tie else 1e9)))
            for sign in (1.0, -1.0):
                got = tn.tensor([sign * near]).to(of(name)).view(tn.uint8).item()
                negative = 0x80 if sign < 0 and (want or EIGHT[name][3] != "fnuz") else 0
                assert got == want | negative, (name, near, sign)
    # beyond the largest number
    top = float(value_of(name, finite[-1]))
    step = top - float(value_of(name, finite[-2]))
    inside, edge = top + step * 0.4999, top + step / 2
    assert tn.tensor([inside]).to(of(name)).float().item() == top
    for x in (edge, 2 * top, 1e30, math.inf):
        got = tn.tensor([x, -x]).to(of(name)).float()
        if EIGHT[name][3] == "ieee":
            assert got.tolist() == [math.inf, -math.inf]
        elif EIGHT[name][3] == "nan":
            assert got.tolist() == [top, -top]  # PyTorch keeps to the largest number here
        else:
            assert got.isnan().all(), (name, x)


def test_powers_of_two() -> None:
    kind = tn.float8_e8m0fnu
    for exponent in range(-126, 127):
        x = 2.0**exponent
        got = tn.tensor([x, 1.49 * x, 1.5 * x, 1.51 * x, -x]).to(kind).double().tolist()
        assert got == [x, x, 2 * x, 2 * x, x]
    assert tn.tensor([math.nan, math.inf]).to(kind).float().isnan().all()
    assert tn.tensor([0.0]).to(kind).double().item() == 2.0**-127


@pytest.mark.parametrize("name", NEW)
def test_conversions_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    other = getattr(torch, name)
    whole = name in UNSIGNED
    for source in ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"):
        if whole and not source.startswith(("int", "uint")):
            x = rng.uniform(0, 60000, 2000)
        else:
            x = rng.normal(size=2000) * 2.0 ** rng.integers(-20, 20, 2000)
        if source.startswith(("int", "uint")):
            x = rng.integers(-100 if source != "uint8" else 0, 100, 2000).astype(float)
        theirs = torch.from_numpy(x).to(getattr(torch, source))
        ours = tn.from_numpy(x).to(of(source))
        want = theirs.to(other)
        got = ours.to(of(name))
        assert got.view(tn.uint8).tolist() == want.view(torch.uint8).tolist(), (name, source)
        for target in ("float32", "float64", "float16", "bfloat16", "int64", "bool"):
            a = got.to(of(target)).double()
            b = want.to(getattr(torch, target)).double()
            if target == "int64" and not whole:
                finite = want.to(torch.complex64).real.abs() < 2.0**62  # else it is undefined
                a, b = tn.where(tn.from_numpy(finite.numpy()), a, 0.0), b.where(finite, 0)
            np.testing.assert_array_equal(a.numpy(), b.numpy(), err_msg=f"{name} {target}")


def test_all_floats_to_complex32() -> None:
    bits = tn.arange(65536).to(tn.int16)
    halves = bits.view(tn.float16)
    z = tn.stack([halves, halves.flip(0)], 1).view(tn.int16).reshape(-1).view(tn.complex32)
    wide = z.to(tn.complex64)
    real = halves.float()
    assert tn.equal(wide.real.nan_to_num(7), real.nan_to_num(7))
    assert tn.equal(wide.imag.nan_to_num(7), real.flip(0).nan_to_num(7))
    back = wide.to(tn.complex32).to(tn.complex64)
    assert tn.equal(back.real.nan_to_num(7), wide.real.nan_to_num(7))
    assert tn.tensor([1.5 + 2j]).to(tn.complex32).real.dtype is tn.float16
    assert tn.view_as_complex(tn.ones(2, 2, dtype=tn.float16)).dtype is tn.complex32
    assert (tn.ones(2, dtype=tn.float16) + 1j).dtype is tn.complex32
    assert tn.ones(2, dtype=tn.chalf).abs().dtype is tn.float16


def test_one_uint64_as_a_number() -> None:
    """As Python's number of that value; where only 64 bits with a sign have room, an error."""
    for value in (2**64 - 2, 2**63, 2**63 - 1, 5):
        x = tn.tensor(value, dtype=tn.uint64)
        assert x.item() == int(x) == value and float(x) == float(value)
        assert complex(x) == complex(value) and f"{x}" == f"{x:d}" == str(value) and bool(x)
    large = tn.tensor(2**64 - 2, dtype=tn.uint64)
    for use in (
        lambda: tn.zeros(large), lambda: tn.arange(3)[large], lambda: [1, 2][large],
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, IndexError)):
            use()
    assert tn.clamp(tn.tensor(3e19), max=large).item() == 2.0**64
    assert tn.arange(3)[tn.tensor(2, dtype=tn.uint64)].item() == 2


def test_uint64_whole_range() -> None:
    values = [0, 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1025, 2**64 - 1025, 2**64 - 1]
    x = tn.tensor(values, dtype=tn.uint64)
    assert x.tolist() == values and x[-1].item() == 2**64 - 1
    assert repr(x[4:6]).startswith("tensor([9223372036854775808, 9223372036854776833],")
    as_numpy = np.array(values, dtype=np.uint64)
    for kind, dtype in (("float32", np.float32), ("float64", np.float64)):
        np.testing.assert_array_equal(x.to(of(kind)).numpy(), as_numpy.astype(dtype))
    back = tn.tensor([0.0, 2.0**63, 2.0**64 - 2**11], dtype=tn.float64).to(tn.uint64)
    assert back.tolist() == [0, 2**63, 2**64 - 2**11]
    turned = x[tn.tensor([5, 0, 7, 3, 1, 6, 4, 2])]
    assert turned.sort()[0].tolist() == sorted(values)
    assert turned.sort(descending=True)[0].tolist() == sorted(values, reverse=True)
    assert turned.max().item() == 2**64 - 1 and turned.min().item() == 0
    assert turned.argmax().item() == 2 and turned.unique().tolist() == sorted(values)
    assert (x > x.flip(0)).tolist() == [a > b for a, b in zip(values, values[::-1])]
    assert (x > 5).tolist() == [v > 5 for v in values]
    assert x.clamp_max(7).tolist() == [min(v, 7) for v in values]
    assert tn.maximum(x, x.flip(0)).tolist() == [max(a, b) for a, b in zip(values, values[::-1])]
    other = tn.tensor(values[::-1], dtype=tn.uint64)
    for op in ("__add__", "__sub__", "__mul__"):
        want = getattr(as_numpy, op)(as_numpy[::-1])
        assert getattr(x, op)(other).tolist() == want.tolist()
    assert (x == other.flip(0)).all() and (~x).tolist() == (~as_numpy).tolist()
    with pytest.raises(NotImplementedError, match="floor_divide|div"):
        x // other.clamp_min(1)
    for rounded in (tn.floor, tn.ceil, tn.trunc, tn.round):
        assert rounded(x).tolist() == values
    with pytest.raises(NotImplementedError, match="decimals < 0"):
        tn.round(x, decimals=-1)
    assert x.masked_fill(x > 5, 7).tolist() == [min(v, 7) for v in values]
    assert tn.nansum(x[:3]).item() == 2**53 + 2
    assert tn.searchsorted(x, tn.tensor([2**63 + 1], dtype=tn.uint64)).item() == 5


@pytest.mark.parametrize("kind", ["int64", "uint8", "bool", "uint64"])
def test_uint64_beside_tensors_without_dimensions(kind: str) -> None:
    """They, Python's bools, and results of other dtypes are in the order that uint64 has."""
    values = [0, 1, 3, 2**63, 2**64 - 1]
    x, one = tn.tensor(values, dtype=tn.uint64), tn.tensor(1, dtype=of(kind))
    above = [v > 1 for v in values]
    assert (x > one).tolist() == (x > True).tolist() == (one < x).tolist() == above
    assert (x <= np.bool_(True)).tolist() == [not a for a in above]
    assert x.clone().gt_(one).tolist() == x.clone().gt_(1).tolist() == above
    assert tn.maximum(x, one).tolist() == [max(v, 1) for v in values]
    for out in (tn.uint64, tn.int64, tn.uint32, tn.float32):
        place = tn.empty(5, dtype=out)
        assert tn.gt(x, one, out=place) is place and place.tolist() == above
        assert tn.minimum(x, one, out=place) is place
        assert place.tolist() == [min(v, 1) for v in values]
        assert tn.maximum(x[:3], one, out=place.resize_(3)).tolist() == [1, 1, 3]
    large = tn.maximum(x, one, out=tn.empty(5, dtype=tn.float64))
    assert large.tolist() == [1, 1, 3, 2.0**63, 2.0**64]


@pytest.mark.parametrize("name", NEW)
def test_a_wider_result_is_the_one_that_was_given(name: str) -> None:
    x = tn.ones(2, dtype=of(name))
    place = tn.zeros(2, dtype=tn.complex64 if x.is_complex() else tn.float32)
    assert tn.add(x, 1, out=place) is place and place.tolist() == [2, 2]
    assert tn.mul(x, x, out=place) is place and place.tolist() == [1, 1]


@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_against_numpy(name: str) -> None:
    rng = np.random.default_rng(5)
    kind = np.dtype(name)
    a = rng.integers(0, 60000, (4, 5)).astype(kind)
    b = rng.integers(1, 60000, (4, 5)).astype(kind)
    x, y = tn.from_numpy(a.copy()), tn.from_numpy(b)
    assert x.dtype is of(name) and x.numpy().dtype == kind
    for got, want in (
        (x + y, a + b), (x - y, a - b), (x * y, a * b), (x & y, a & b), (x | y, a | b),
        (x ^ y, a ^ b), (x == y, a == b), (x < y, a < b), (x.t(), a.T), (x[1:, ::2], a[1:, ::2]),
        (tn.cat([x, y]), np.concatenate([a, b])), (x.sum(), a.sum(dtype=np.int64)),
        (x.amax(1), a.max(1)), (x.flip(0), a[::-1]), (x.sort(1)[0], np.sort(a, 1)),
        (x.bool(), a.astype(bool)), (tn.where(x > y, x, y), np.where(a > b, a, b)),
        (x + 1, a + kind.type(1)), (x / y, (a.astype(np.float32) / b.astype(np.float32))),
        (x.double().sqrt(), np.sqrt(a.astype(float))), (x[x > y], a[a > b]),
    ):  # fmt: skip
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
        if want.dtype == kind:
            assert got.dtype is of(name)
    x += 1
    np.testing.assert_array_equal(x.numpy(), a + kind.type(1))
    assert x.argmax().dtype is tn.int64 and (x > 0).dtype is tn.bool
    z = tn.zeros(3, dtype=of(name))
    z[1] = 5
    z.fill_(7)
    assert z.tolist() == [7, 7, 7] and tn.full((2,), 3, dtype=of(name)).tolist() == [3, 3]
    assert tn.arange(3, dtype=of(name)).tolist() == [0, 1, 2]
    assert tn.iinfo(of(name)).max == np.iinfo(kind).max and tn.iinfo(of(name)).min == 0
    assert not of(name).is_signed
    assert memoryview(tn.from_numpy(b)).format in "HIQL"
    again = tn.from_dlpack(np.from_dlpack(y))
    assert again.dtype is of(name) and tn.equal(again, y)


def test_promotion() -> None:
    torch = pytest.importorskip("torch")
    names = (*NEW, "bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "float64",
             "complex64", "complex128")  # fmt: skip
    for a in names:
        for b in names:
            try:
                want = str(torch.promote_types(getattr(torch, a), getattr(torch, b)))[6:]
            except RuntimeError as error:
                with pytest.raises(RuntimeError) as ours:
                    tn.promote_types(of(a), of(b))
                assert str(ours.value) == str(error)
                continue
            assert tn.promote_types(of(a), of(b)) is of(want), (a, b)


def test_promotion_in_calls() -> None:
    x = tn.ones(2, dtype=tn.uint16)
    text = "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote"
    with pytest.raises(RuntimeError, match=text + " UInt16 and Int"):
        x + tn.ones(2, dtype=tn.int32)
    with pytest.raises(RuntimeError, match="Float8 Types is not supported"):
        tn.cat([tn.ones(2).to(tn.float8_e5m2), tn.ones(2)])
    with pytest.raises(RuntimeError, match="Float8_e5m2 and Float"):
        tn.ones(2).to(tn.float8_e5m2) * tn.ones(2)
    assert (x * tn.tensor(2)).dtype is tn.uint16
    assert (x + 1.5).dtype is tn.float32 and (x + tn.ones(2)).dtype is tn.float32
    assert tn.result_type(x, 1) is tn.uint16
    assert tn.can_cast(tn.uint16, tn.int8) and not tn.can_cast(tn.float8_e5m2, tn.int32)
    assert tn.can_cast(tn.float16, tn.complex32) and not tn.can_cast(tn.complex32, tn.float64)


@pytest.mark.parametrize("name", NEW)
def test_moves_and_text(name: str) -> None:
    x = tn.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]).to(of(name))
    assert x.t()[1:].tolist() == [[2, 16], [4, 32]]
    assert tn.cat([x, x], 1).shape == (2, 6) and x[tn.tensor([1])].tolist() == [[8, 16, 32]]
    assert tn.stack([x, x]).dtype is of(name) and x.repeat(2, 1).shape == (4, 3)
    y = x.clone()
    y[0] = x[1]
    assert y.tolist()[0] == [8, 16, 32]
    assert (x == x).all() and x.flip(1).tolist()[0] == [4, 2, 1]
    assert x.roll(1, 1).tolist()[0] == [4, 1, 2]
    unit = {1: tn.uint8, 2: tn.int16, 4: tn.int32, 8: tn.int64}[x.element_size()]
    assert tn.equal(x.view(unit).view(of(name)).view(unit), x.view(unit))
    digits = {"complex32": "1.+0.j"}.get(name, "1" if name in UNSIGNED else "1.")
    assert repr(x[0, :1]) == f"tensor([{digits}], dtype=tenon.{name})"
    assert tn.zeros(2, dtype=of(name)).shape == (2,) and x.to("meta").dtype is of(name)
    if name == "float8_e8m0fnu":
        return
    assert tn.full((2,), 2, dtype=of(name)).tolist() == [2, 2]
    assert (x * x).dtype is of(name) and (x * x).tolist()[0] == [1, 4, 16]


def test_limits() -> None:
    torch = pytest.importorskip("torch")
    for name in (*EIGHT, "float8_e8m0fnu", "complex32"):
        want, got = torch.finfo(getattr(torch, name)), tn.finfo(of(name))
        for fact in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "dtype"):
            assert getattr(got, fact) == getattr(want, fact), (name, fact)


@pytest.mark.parametrize("name", NEW)
def test_files(name: str, tmp_path: Path) -> None:
    from tenon.io import safetensors

    x = tn.tensor([1.0, 2.0, 4.0]).to(of(name))
    file = io.BytesIO()
    tn.save({"x": x, "part": x[1:]}, file)
    file.seek(0)
    got = tn.load(file)
    assert got["x"].dtype is of(name) and got["x"].tolist() == [1, 2, 4]
    assert got["part"].tolist() == [2, 4] and got["part"].storage_offset() == 1
    if name != "complex32":
        safetensors.save_file({"x": x}, tmp_path / "x.safetensors")
        back = safetensors.load_file(tmp_path / "x.safetensors")["x"]
        assert back.dtype is of(name) and back.tolist() == [1, 2, 4]


@pytest.mark.parametrize("name", NEW)
def test_files_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.tensor([1.0, 2.0, 4.0]).to(getattr(torch, name))
    file: Any = io.BytesIO()
    torch.save(theirs, file)
    file.seek(0)
    assert tn.load(file).tolist() == [1, 2, 4]
    file = io.BytesIO()
    tn.save(tn.tensor([1.0, 2.0, 4.0]).to(of(name))[1:], file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    assert back.dtype is getattr(torch, name) and back.tolist() == [2, 4]
    if name != "float8_e8m0fnu":
        assert tn.from_dlpack(theirs).dtype is of(name)


def test_numpy_refuses_what_it_lacks() -> None:
    for name in ("float8_e5m2", "complex32"):
        with pytest.raises(TypeError):
            tn.zeros(2, dtype=of(name)).numpy()


# ---- Whole numbers that no int64 holds ------

TOP = (2**63, 2**63 + 2**40 + 1, 2**64 - 1)
U64 = tn.uint64


@pytest.mark.parametrize("number", TOP)
def test_numbers_beyond_int64_keep_their_bits_in_uint64(number: int) -> None:
    ones = tn.ones(2, dtype=U64)
    made = [
        tn.full((2,), number, dtype=U64), tn.zeros(2, dtype=U64).fill_(number),
        tn.full_like(ones, number), ones.new_full((2,), number), ones * number,
        tn.where(tn.tensor(False), ones, number),
        tn.constant_pad_nd(tn.ones(0, dtype=U64), (1, 1), number),
    ]  # fmt: skip
    for t in made:
        assert t.dtype is U64 and t.tolist() == [number] * 2
    assert tn.scalar_tensor(number, dtype=U64).item() == number
    assert (made[0] == number).all() and not (ones == number).any()
    assert (ones & number).tolist() == [number & 1] * 2


@pytest.mark.parametrize("number", TOP)
def test_numbers_beyond_int64_are_rounded_in_floats(number: int) -> None:
    ones = tn.ones(2)
    made = [
        ones * number, number * ones, tn.full((2,), number, dtype=tn.float32),
        ones.clone().fill_(number),
        ones.clamp(min=number), ones.masked_fill(tn.tensor(True), number), ones / (1 / number),
        ones.new_zeros(2).add(1, alpha=number), tn.where(tn.tensor(False), ones, number),
    ]  # fmt: skip
    for t in made:
        assert t.dtype is tn.float32 and t.tolist() == pytest.approx([float(number)] * 2, rel=1e-6)
    assert (ones < number).all() and (ones != number).all() and (tn.ones(2) ** number == 1).all()
    assert tn.arange(0, number, 2**62, dtype=tn.float64).tolist() == [
        float(i) for i in range(0, number, 2**62)
    ]
    item = tn.zeros(2, dtype=U64)
    item[0] = number
    assert item.tolist() == [number, 0] and int(item[0]) == number


@pytest.mark.parametrize("name", ["int8", "int32", "int64", "uint16", "uint32"])
def test_numbers_beyond_a_whole_dtype_are_refused_where_it_is_filled(name: str) -> None:
    dtype = of(name)
    for number in (*TOP, *([2**40, -(2**40)] if name != "int64" else [])):
        for call in (
            lambda: tn.full((2,), number, dtype=dtype),  # noqa: B023
            lambda: tn.zeros(2, dtype=dtype).fill_(number),  # noqa: B023
        ):
            with pytest.raises(RuntimeError, match="without overflow"):
                call()
    for number in (2**64, -(2**63) - 1):
        with pytest.raises(OverflowError):
            tn.ones(2, dtype=dtype) + number
    with pytest.raises(ValueError, match="Overflow"):
        tn.ones(2)[2**63]


def test_whole_tensors_compute_with_the_bits_of_large_numbers() -> None:
    ones = tn.ones(2, dtype=tn.int64)
    assert (ones + 2**63).tolist() == [1 - 2**63] * 2
    assert (ones * (2**64 - 1)).tolist() == [-1, -1]
    assert tn.tensor(2**63, dtype=tn.bool).item() is True
    assert tn.tensor([2**63], dtype=tn.bool).tolist() == [True]
    padded = tn.nn.functional.pad(tn.zeros(1, dtype=tn.bool), (1, 1), value=256)
    assert padded.tolist() == [True, False, True]


def test_copies_of_finfo_are_of_its_dtype_and_change_no_other():
    before = {kind: repr(tn.finfo(kind)) for kind in (tn.float16, tn.float32, tn.float64)}
    for kind, text in before.items():
        info = tn.finfo(kind)
        copies = (copy.copy(info), copy.deepcopy(info), pickle.loads(pickle.dumps(info)))
        assert all(repr(other) == text and other == info for other in copies)
        with pytest.raises(AttributeError, match="max"):
            info.max = 1.0
    assert {kind: repr(tn.finfo(kind)) for kind in before} == before
    with pytest.raises(TypeError, match="floating point"):
        tn.finfo([tn.float32])


@pytest.mark.parametrize("dtype", [tn.uint8, tn.uint16, tn.uint32, tn.uint64])
def test_floats_below_zero_are_no_natural_numbers(dtype: tn.dtype) -> None:
    """As data; a tensor that is converted wraps around."""
    for data in (-1.5, [0.0, -3.0], [[1, -0.5]]):
        with pytest.raises(RuntimeError, match="without overflow"):
            tn.tensor(data, dtype=dtype)
    assert tn.tensor([-0.0, 2.75], dtype=dtype).tolist() == [0, 2]
    assert tn.tensor([-1.5]).to(dtype).tolist() == [tn.iinfo(dtype).max]


def test_the_type_that_a_value_overflows() -> None:
    for dtype, name in (
        (tn.int8, "int8_t"), (tn.int16, "int16_t"), (tn.int32, "int"), (tn.uint8, "uint8_t"),
        (tn.float16, "c10::Half"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=f"to type {name} without overflow"):
            tn.full((2,), 1e30, dtype=dtype)
