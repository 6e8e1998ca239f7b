"""Products of groups and of scaled float8 numbers, and storages of other dtypes, beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import stored
import tenon as tn


def given(lib: Any, *size: int, scale: int = 37) -> Any:
    count = 1
    for n in size:
        count *= n
    return ((lib.arange(count) * scale % 101).float() / 50 - 1).reshape(size)


def ends(lib: Any, *at: int) -> Any:
    return lib.tensor(at, dtype=lib.int32)


GROUPED = {
    "rows": ((8, 16), (3, 16, 8), (2, 6, 8)),
    "an empty group": ((8, 16), (3, 16, 8), (2, 2, 8)),
    "columns": ((2, 5, 16), (16, 8), (4, 8)),
    "along": ((4, 16), (16, 8), (4, 16)),
    "batch": ((2, 5, 16), (2, 16, 8), ()),
}


@pytest.mark.parametrize("name", GROUPED)
def test_groups(name: str) -> None:
    left, right, at = GROUPED[name]

    def run(lib: Any) -> list[Any]:
        a, b = given(lib, *left).requires_grad_(), given(lib, *right, scale=53).requires_grad_()
        made = lib.nn.functional.grouped_mm(a, b, offs=ends(lib, *at) if at else None)
        made.square().sum().backward()
        return [made.detach(), a.grad, b.grad]

    stored.same(run(tn), stored.of_torch(run), rtol=1e-4, atol=1e-5)


def test_groups_that_do_not_fit() -> None:
    grouped, ones = tn.nn.functional.grouped_mm, tn.ones
    for a, b, offs, words in (
        (ones(2, 16), ones(2, 8, 4), ends(tn, 1, 2), "contraction dimension"),
        (ones(2, 16), ones(2, 16, 4), None, "Have to provide offsets"),
        (ones(2, 2, 16), ones(2, 16, 4), ends(tn, 1, 2), "Have to provide offsets"),
        (ones(2, 16), ones(2, 16, 4), ends(tn, 2, 1), "do not rise"),
        (ones(16), ones(2, 16, 4), None, "2 or 3 dimensional"),
    ):
        with pytest.raises(RuntimeError, match=words):
            grouped(a, b, offs=offs)


def test_scaled_products() -> None:
    def run(lib: Any) -> list[Any]:
        kind, f = lib.float8_e4m3fn, lib.nn.functional
        a, b = given(lib, 16, 32).to(kind), given(lib, 16, 32, scale=53).to(kind).t()
        two, half = lib.tensor(2.0), lib.tensor(0.5)
        rows, columns = given(lib, 16, 1), given(lib, 1, 16)
        whole, row = f.ScalingType.TensorWise, f.ScalingType.RowWise
        bias = given(lib, 16).to(lib.bfloat16)
        scaled = _scaled_mm if lib is tn else lib._scaled_mm
        return [
            f.scaled_mm(a, b, two, whole, half, whole, output_dtype=lib.float32),
            f.scaled_mm(a, b, rows, row, columns, row).float(),
            scaled(a, b, two, two, bias=bias, out_dtype=lib.bfloat16).float(),
            scaled(a, b, two, half).float(),
            scaled(a, b, two, half, scale_result=lib.tensor(0.25), out_dtype=kind).float(),
        ]

    from tenon.nn._scaled import _scaled_mm

    stored.same(run(tn), stored.of_torch(run), rtol=1e-2, atol=1e-3)
    kind = tn.nn.functional.ScalingType.BlockWise1x32
    with pytest.raises(NotImplementedError, match="no kernel for scales"):
        tn.nn.functional.scaled_mm(tn.ones(2, 2), tn.ones(2, 2), 1, kind, 1, kind)


def test_storages_of_other_dtypes() -> None:
    def run(lib: Any) -> list[Any]:
        t = lib.tensor([1.5, -2.0, 0.0])
        said = []
        for storage in (t.untyped_storage(), t.storage()):
            for name in ("float", "half", "double", "long", "bool", "complex_float"):
                made = getattr(storage, name)()
                said += [str(made.dtype).split(".")[-1], [str(n) for n in made.tolist()[:4]]]
        return said

    stored.same(run(tn), stored.of_torch(run))
    s = tn.ones(2).storage()
    assert s.resizable() and not s.is_sparse and s.double().data_ptr() != s.data_ptr()
