"""Functions that do something else from some size on, however far from the recorded one: what a
program gives is what the function gives, or an error."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.export import Dim, export

SEEN = 32


def helper(n: int) -> int:
    return n if n < 300 else 300


def least(x: tn.Tensor) -> tn.Tensor:
    return x * min(x.shape[0], 64)


def most(x: tn.Tensor) -> tn.Tensor:
    return x * max(x.size(0), 4)


def called(x: tn.Tensor) -> tn.Tensor:
    return x * helper(x.shape[0])


def branch(x: tn.Tensor) -> tn.Tensor:
    return x * 2 if x.numel() < 1000 else x


def one_size(x: tn.Tensor) -> tn.Tensor:
    return x if x.shape[0] == 7 else x * 2


def multiple(x: tn.Tensor) -> tn.Tensor:
    return x if x.shape[0] % 128 == 0 else x * 2


def quotient(x: tn.Tensor) -> tn.Tensor:
    return x + x.shape[0] // 200


def shifted(x: tn.Tensor) -> tn.Tensor:
    return x + (x.shape[0] >> 9)


def ceiled(x: tn.Tensor) -> tn.Tensor:
    return x + math.ceil(x.shape[0] / 256)


def floored(x: tn.Tensor) -> tn.Tensor:
    return x + int(x.shape[0] * 0.004)


def root(x: tn.Tensor) -> tn.Tensor:
    return x + (1 if x.shape[0] ** 0.5 > 20 else 2)


def of_a_result(x: tn.Tensor) -> tn.Tensor:
    y = tn.cat([x, x])
    return x + (1 if y.shape[0] > 500 else 2)


def generator(x: tn.Tensor) -> tn.Tensor:
    return x * sum(1 for n in x.shape if n > 90)


def length(x: tn.Tensor) -> tn.Tensor:
    return x * 2 if len(x) < 100 else x


def next_step(x: tn.Tensor) -> tn.Tensor:
    return x[:: max(x.shape[0] // 100, 1)]


def next_stride(x: tn.Tensor) -> tn.Tensor:
    return x * min(x.t().contiguous().stride(0), 70)


# From here on numbers that nobody watches.
LIMITS = {"longest": 300}


class Settings:
    longest = 200


def whole(x: tn.Tensor) -> tn.Tensor:
    return x * min(int(x.shape[0]), 500)


def whole_half(x: tn.Tensor) -> tn.Tensor:
    return x + min(1, int(x.shape[0] * 0.5) // 125)


def whole_called(x: tn.Tensor) -> tn.Tensor:
    return x * helper(int(x.size(0)))


def limited(x: tn.Tensor) -> tn.Tensor:
    return x * 2 if int(x.shape[0]) < LIMITS["longest"] else x


def limited_by_object(x: tn.Tensor, settings: Any = Settings()) -> tn.Tensor:  # noqa: B008
    return x * 2 if int(x.shape[0]) != settings.longest else x


def padded(x: tn.Tensor) -> tn.Tensor:
    return tn.nn.functional.pad(x, (0, 0, 0, max(0, 128 - int(x.shape[0]))))


def text(x: tn.Tensor) -> tn.Tensor:
    return x * len(f"{x.shape[0]}")


def text_of_sizes(x: tn.Tensor) -> tn.Tensor:
    return x * (1 if "64" in repr(x.shape) else 2)


def key(x: tn.Tensor) -> tn.Tensor:
    return x * {7: 3, 64: 5}.get(x.shape[0], 2)


def member(x: tn.Tensor) -> tn.Tensor:
    return x * 2 if x.shape in {(64, 2), (7, 2)} else x


def of_an_array(x: tn.Tensor) -> tn.Tensor:
    return x * float(np.ceil(x.shape[0] / 100))


def clipped(x: tn.Tensor) -> tn.Tensor:
    return x * int(np.clip(x.shape[0], 0, 300))


def logarithm(x: tn.Tensor) -> tn.Tensor:
    return x * (1 if math.log(x.shape[0]) < 5 else 2)


def counted(x: tn.Tensor) -> tn.Tensor:
    return x * len([i for i in range(x.shape[0]) if i < 270])


TURNING = (
    least, most, called, branch, one_size, multiple, quotient, shifted, ceiled, floored, root,
    of_a_result, generator, length, next_step, next_stride, whole, whole_half, whole_called,
    limited, limited_by_object, padded, text, text_of_sizes, key, member, of_an_array, clipped,
    logarithm, counted,
)  # fmt: skip
SIZES = (33, 40, 3, 2, 7, 64, 65, 91, 128, 200, 251, 257, 260, 401, 520, 333, 600)


def made(size: int) -> tn.Tensor:
    return tn.tensor(np.random.default_rng(size).standard_normal((size, 2), dtype=np.float32))


class Calls(tn.nn.Module):
    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: tn.Tensor) -> Any:
        return self.fn(x)


def test_arrays_are_what_they_are_outside() -> None:
    """Numbers of NumPy have the dtype that a plain int gives them."""

    def scaled(x: tn.Tensor) -> tn.Tensor:
        return x + tn.from_numpy(np.ones(2, np.float32) * x.shape[0] / (x.shape[1] / 2))

    assert scaled(made(3)).dtype is tn.float32
    for run in (tn.jit.trace(scaled, (made(3),)), tn.compile(scaled)):
        assert run(made(3)).dtype is tn.float32


def right_or_refused(run: Callable[..., Any], fn: Callable[..., Any]) -> int:
    """How many sizes are taken, all of which must be right."""
    taken = 0
    for size in SIZES:
        try:
            got = run(made(size))
        except RuntimeError as err:
            assert "input" in str(err)
            continue
        taken += 1
        np.testing.assert_allclose(got, fn(made(size)), rtol=1e-6, err_msg=str(size))
    return taken


@pytest.mark.parametrize("fn", TURNING)
def test_named_sizes_are_refused(fn: Any) -> None:
    with pytest.raises(RuntimeError, match=r"Constraints violated \(n\)(.|\n)*\.py"):
        export(Calls(fn), (made(SEEN),), dynamic_shapes=({0: Dim("n", max=10000)},))


@pytest.mark.parametrize("fn", TURNING)
def test_hints_are_free_up_to_the_turn(fn: Any) -> None:
    program = export(Calls(fn), (made(SEEN),), dynamic_shapes=({0: Dim.DYNAMIC},)).module()
    assert 1 < right_or_refused(program, fn) < len(SIZES)


@pytest.mark.parametrize("fn", TURNING)
def test_traces_have_a_program_for_each_side(fn: Any, tmp_path: Path) -> None:
    traced = tn.jit.trace(fn, (made(SEEN),))
    assert right_or_refused(traced, fn) == len(SIZES)
    traced.save(tmp_path / "x.tng")
    assert 1 < right_or_refused(tn.jit.load(tmp_path / "x.tng"), fn) < len(SIZES)


@pytest.mark.parametrize("fn", TURNING)
@pytest.mark.parametrize("dynamic", (None, True))
@pytest.mark.parametrize("backend", (None, "eager"))
def test_compiled_functions_are_right(fn: Any, dynamic: Any, backend: Any) -> None:
    options = {} if backend is None else {"backend": backend}
    run = tn.compile(fn, dynamic=dynamic, **options)
    assert right_or_refused(run, fn) == len(SIZES)


def test_bounds_that_end_before_the_turn_are_taken() -> None:
    free = ({0: Dim("n", min=4, max=64)},)
    for fn in (least, most, called):
        program = export(Calls(fn), (made(SEEN),), dynamic_shapes=free).module()
        for size in (4, 5, 64):
            np.testing.assert_allclose(program(made(size)), fn(made(size)), rtol=1e-6)


def test_two_sizes_that_are_compared() -> None:
    """Which is larger is known within bounds that leave room for no other answer."""

    class Wider(tn.nn.Module):
        def forward(self, x: tn.Tensor, y: tn.Tensor) -> tn.Tensor:
            return x.sum() + y.sum() * (2 if x.shape[0] > y.shape[0] else 3)

    hints = ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    for a, b in ((9, 5), (5, 9)):
        program = export(Wider(), (made(a), made(b)), dynamic_shapes=hints).module()
        taken = 0
        for p in range(2, 14):
            for q in range(2, 14):
                try:
                    got = program(made(p), made(q))
                except RuntimeError:
                    continue
                taken += 1
                np.testing.assert_allclose(got, Wider()(made(p), made(q)), rtol=1e-4, atol=1e-5)
        assert taken > 20


def test_a_size_that_the_function_refuses() -> None:
    def checked(x: tn.Tensor) -> tn.Tensor:
        assert x.shape[0] <= 500, f"{x.shape[0]} rows"
        return x * 2

    with pytest.raises(RuntimeError, match="from 0 to 500"):
        export(Calls(checked), (made(SEEN),), dynamic_shapes=({0: Dim("n")},))
    program = export(Calls(checked), (made(SEEN),), dynamic_shapes=({0: Dim.AUTO},)).module()
    assert program(made(500)).shape == (500, 2)
    with pytest.raises(RuntimeError, match="500"):
        program(made(501))


def test_numbers_of_other_dtypes() -> None:
    traced = tn.jit.trace(lambda x: x / 2 + x.shape[0], (made(4),))
    for x in (made(6).double(), tn.arange(6).reshape(3, 2), made(4)):
        got = traced(x)
        assert got.dtype == (x / 2).dtype
        np.testing.assert_allclose(got, x / 2 + x.shape[0], rtol=1e-6)


def test_functions_that_are_others_by_now_are_not_called() -> None:
    net = Calls(lambda x: x @ tn.ones(x.shape[1], x.shape[1] // 2))
    traced = tn.jit.trace(net, (made(4),))
    net.fn = lambda x: x * 3
    with pytest.raises(RuntimeError, match="input"):
        traced(tn.ones(3, 6))


def test_what_comes_out_are_plain_numbers() -> None:
    seen: list[Any] = []

    def fn(x: tn.Tensor) -> Any:
        seen.append((x.shape[0], x.size(), x.shape[0] / 2))
        return x * 2, x.shape[0], x.shape

    with tn.no_grad():
        _, count, shape = tn.compile(fn)(made(3))
    assert (type(count), type(shape), type(shape[0])) == (int, tn.Size, int)
    number, size, half = seen[0]
    assert isinstance(number, int)
    assert (number, tuple(size), half) == (3, (3, 2), 1.5)
    for value in (number, half):  # kept by the function: as good as any
        assert pickle.loads(pickle.dumps(value)) == value
        assert type(pickle.loads(pickle.dumps(value))) in (int, float)
        assert repr(value) == f"{value}" == str(value)
        assert hash(value) == hash(3 if value == 3 else 1.5)
    assert [range(number)[-1], round(half), math.floor(half), number & 1, -number % 2] == [
        2, 2, 1, 1, 1,
    ]  # fmt: skip
