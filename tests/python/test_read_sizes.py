"""Numbers that are read of results whose sizes stop growing: right, or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import _program

SHORT, OTHER, LONG = 8, 12, 100


def read(x: tn.Tensor) -> tn.Tensor:
    y = x[:, :64]
    return y * y.shape[1]


def only_read(x: tn.Tensor) -> tn.Tensor:
    return x * x.exp()[:, :64].size(1)


def of_a_sum(x: tn.Tensor) -> tn.Tensor:
    y = tn.cat([x, x], 1)[:, :50]
    return x.sum() * y.size()[1]


def pointwise(x: tn.Tensor) -> tn.Tensor:
    y = (x[:, :64] + 1).relu()
    return y * len(y.t())


def elements(x: tn.Tensor) -> tn.Tensor:
    return x.narrow(1, 0, min(x.shape[1], 8)).sum() + x[0, :64].numel()


def steps(x: tn.Tensor) -> tn.Tensor:
    return x.mean() * x[:, :64].contiguous().stride(0)


def memory(x: tn.Tensor) -> tn.Tensor:
    return x.mean() * x[:, :64].detach().data.nbytes


def without_history(x: tn.Tensor) -> tn.Tensor:
    y = x[:, :64]
    return x.sum(1) * y.data.shape[1]


def twice(x: tn.Tensor) -> tn.Tensor:
    first, second = tn.slice_copy(x, 1, 0, 64), tn.slice_copy(x, 1, 0, 64)
    return first.sum() + second.sum() * second.shape[1]


def in_a_group(x: tn.Tensor) -> tn.Tensor:
    y = tn.nn.functional.softsign(x[:, :64].exp() * 2) + 1
    return x.sum() * y.shape[1] + y.sum()


CUT = (in_a_group, read, only_read, of_a_sum, pointwise, steps, memory, without_history, twice)


def rows(x: tn.Tensor) -> tn.Tensor:
    """Another size of what is cut."""
    y = x[:, :64]
    return y.sum(1) + y.shape[0]


def before(x: tn.Tensor) -> tn.Tensor:
    """The size of what is not cut yet."""
    return x[:, :64].sum() * x.shape[1]


def unread(x: tn.Tensor) -> tn.Tensor:
    return x[:, :64].sum(1) + x.reshape(x.shape[1], x.shape[0]).sum()


def whole(x: tn.Tensor) -> tn.Tensor:
    y = x.exp().reshape(x.shape).t().contiguous()
    return y.reshape(y.shape[0] * y.shape[1]) / y.numel()


RIGHT = (rows, before, unread, whole)


def exported(fn: Callable[[tn.Tensor], tn.Tensor]) -> Any:
    class Calls(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return fn(x)

    size = tn.export.Dim("size", min=2, max=1000)
    return tn.export.export(Calls(), (made(SHORT),), dynamic_shapes=({1: size},))


def made(size: int) -> tn.Tensor:
    return tn.tensor(np.random.default_rng(size).standard_normal((3, size), dtype=np.float32))


def of_a_file(fn: Callable[[tn.Tensor], tn.Tensor], folder: Path) -> Any:
    tn.export.save(exported(fn), folder / "a.tng")
    return tn.export.load(folder / "a.tng").module()


def of_parts(fn: Callable[[tn.Tensor], tn.Tensor], folder: Path) -> Any:
    return exported(fn).run_decompositions().module()


def of_a_trace(fn: Callable[[tn.Tensor], tn.Tensor], folder: Path) -> Any:
    traced = tn.jit.trace(fn, (made(SHORT),))
    traced(made(OTHER))
    return traced


WAYS = {
    "export": lambda fn, folder: exported(fn).module(),
    "file": of_a_file, "parts": of_parts, "trace": of_a_trace,
}  # fmt: skip


@pytest.fixture(params=WAYS)
def program(request: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    yield lambda fn: WAYS[request.param](fn, tmp_path)


@pytest.mark.parametrize("fn", CUT)
def test_what_no_longer_follows_is_an_error(program: Any, fn: Any) -> None:
    """A trace, whose function is at hand, has another program for such sizes."""
    run = program(fn)
    np.testing.assert_allclose(run(made(OTHER)), fn(made(OTHER)), rtol=1e-5)
    if isinstance(run, tn.jit.ScriptFunction):
        for size in (LONG, OTHER, 70, LONG):
            np.testing.assert_allclose(run(made(size)), fn(made(size)), rtol=1e-5)
        return
    with pytest.raises(RuntimeError, match="does not follow from .* = 100"):
        run(made(LONG))


@pytest.mark.parametrize("fn", RIGHT)
def test_what_is_cut_beside_it_is_right(program: Any, fn: Any) -> None:
    run = program(fn)
    for size in (OTHER, LONG):
        np.testing.assert_allclose(run(made(size)), fn(made(size)), rtol=1e-5)


@pytest.mark.parametrize("fn", (*CUT, *RIGHT, elements))
@pytest.mark.parametrize("backend", (None, "eager"))
@pytest.mark.parametrize("dynamic", (None, True))
def test_compiled_functions_are_right(fn: Any, backend: Any, dynamic: Any) -> None:
    options = {} if backend is None else {"backend": backend}
    run = tn.compile(fn, dynamic=dynamic, **options)
    for size in (SHORT, OTHER, 9, LONG, 64, 63, LONG):
        np.testing.assert_allclose(run(made(size)), fn(made(size)), rtol=1e-5)


def test_parts_of_composites_read_the_sizes_of_their_inputs(tmp_path: Path) -> None:
    def flat(x: tn.Tensor) -> tn.Tensor:
        return x[:, :64].reshape(3, -1)

    np.testing.assert_array_equal(exported(flat).module()(made(LONG)), flat(made(LONG)))
    run = of_parts(flat, tmp_path)
    np.testing.assert_array_equal(run(made(OTHER)), flat(made(OTHER)))
    with pytest.raises(RuntimeError, match="slice gives the shape .3, 64.*does not follow"):
        run(made(LONG))


@pytest.mark.parametrize("fn", CUT)
@pytest.mark.parametrize("way", ("reference", "runtime", "loaded"))
def test_models_of_onnx_look_too(fn: Any, way: str) -> None:
    pytest.importorskip("onnx")
    tests = pytest.importorskip("test_onnx")

    class Calls(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return fn(x)

    model = tn.onnx.export(Calls(), (made(SHORT),), dynamic_axes={"x": {1: "size"}}).model_proto
    run = getattr(tests, f"run_{way}")
    for size in (OTHER, 9):
        got = run(model, {"x": made(size).numpy()})[0]
        np.testing.assert_allclose(got, fn(made(size)), rtol=1e-4)
    with pytest.raises(Exception, match=r"out of (range|bounds)|indices element out of"):
        run(model, {"x": made(LONG).numpy()})


def test_several_sizes_at_once() -> None:
    class Both(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            y = tn.cat([x, x])[:40, :30].contiguous()
            return y.reshape(y.shape[0] * y.shape[1]) + y.shape[0]

    dims = ({0: tn.export.Dim("a", min=2, max=99), 1: tn.export.Dim("b", min=2, max=99)},)
    made = tn.export.export(Both(), (tn.ones(3, 5),), dynamic_shapes=dims)
    run = made.module()
    for shape in ((7, 9), (20, 30)):
        x = tn.rand(shape)
        np.testing.assert_array_equal(run(x), Both()(x))
    for shape, name in (((21, 9), "a = 21"), ((7, 31), "b = 31")):
        with pytest.raises(RuntimeError, match=name):
            run(tn.rand(shape))
    pytest.importorskip("onnx")
    tests = pytest.importorskip("test_onnx")
    model = tn.onnx.export(made).model_proto
    x = tn.rand(7, 9)
    np.testing.assert_array_equal(tests.run_loaded(model, {"x": x.numpy()})[0], Both()(x))
    for shape in ((21, 9), (7, 31)):
        with pytest.raises(RuntimeError, match="does_not_follow"):
            tests.run_loaded(model, {"x": tn.rand(shape).numpy()})
    again = _program.load(made.program.to_bytes())
    assert again.to_bytes() == made.program.to_bytes()
    assert again.data == made.program.data


def test_what_stays_of_equal_results_has_their_rules() -> None:
    data = exported(twice).program.data
    (ruled,) = [i for i, v in enumerate(data["values"]) if "rules" in v]
    (total,) = [n for n in data["nodes"] if n["op"] == "sum"]
    assert total["args"]["input"] == {"v": ruled}, total


def test_recordings_that_reach_the_cut_do_not_agree() -> None:
    def recorded(size: int) -> Any:
        x = made(size)
        return _program.record(lambda: [read(x)], {"x": x})[0]

    program = recorded(SHORT)
    program.generalize(recorded(OTHER), [0], 1, 2, 1000, "size")
    program.agrees("size", [lambda: recorded(64)])
    with pytest.raises(RuntimeError, match="mul. has a number that follows"):
        program.agrees("size", [lambda: recorded(LONG)])


@pytest.mark.parametrize("matters", (False, True))
def test_sizes_that_matter_must_agree(matters: bool) -> None:
    def recorded(size: int) -> Any:
        def call() -> list[tn.Tensor]:
            y = x[:, :64]
            return [y.sum() * y.shape[0] * (x.shape[1] if matters else 1)]

        x = made(size)
        return _program.record(call, {"x": x})[0]

    program = recorded(SHORT)
    program.generalize(recorded(OTHER), [0], 1, 2, 1000, "size")
    program.agrees("size", [lambda: recorded(64)])
    if not matters:
        program.agrees("size", [lambda: recorded(LONG)])
        return
    with pytest.raises(RuntimeError, match="gives a size that follows from it by no rule"):
        program.agrees("size", [lambda: recorded(LONG)])


def test_files_without_rules_are_of_the_version_that_holds_them() -> None:
    assert exported(whole).program.to_bytes()[8] == 3
    assert exported(lambda x: x[:, :64].sum(1)).program.to_bytes()[8] == 1


# ---- Sizes that follow from values ---------------------------------------------------------------

# Of a vector; the first three numbers have nothing to do with a size.
LOOSE: list[Any] = [
    lambda x: x[x > 0] * 2,
    lambda x: (x[x > 0].sin().cos(), x[x > 1].sin().cos()),
    lambda x: tn.cat([x.nonzero().view(-1), x.unique().flip(0)]),
    lambda x: tn.where(x > 1)[0],
    lambda x: x.masked_select(x > 0).reshape(1, -1) @ x[x > 0].unsqueeze(1),
    lambda x: tn.bincount(x.long()).cumsum(0),
    lambda x: x.repeat_interleave(x.long()).sort().values,
    # Sizes that are read.
    lambda x: x.sum() + tn.zeros(x.nonzero().shape[0]),
    lambda x: x[x > 0].mean() * len(x[x > 0]),
    lambda x: x.sum() / (x[x > 0] + 1).numel(),
    lambda x: x + x.unique().sin().size(0),
]
READ = 7  # the first of those


@pytest.mark.parametrize("i", range(len(LOOSE)))
def test_sizes_that_follow_from_values_differ_until_they_are_read(i: int) -> None:
    fn = LOOSE[i]

    class Net(tn.nn.Module):
        def forward(self, x: Any) -> Any:
            return fn(x)

    x = tn.tensor([1.0, 0, 2, 3])
    program = tn.export.export(Net(), (x,))
    again = _program.load(program.program.to_bytes())
    assert again.to_bytes() == program.program.to_bytes()
    again.optimize(_program.DEAD | _program.COMMON | _program.FOLD)
    runs: dict[str, Any] = {
        "exported": program.module(), "traced": tn.jit.trace(fn, (x,), check_trace=False),
        "compiled": tn.compile(fn), "file": lambda x: again(x),
    }  # fmt: skip
    for given in ([1.0, 0, 2, 3], [0.0, 0, 2, 3], [1.0, 2, 2, 0], [1.0, 1, 1, 2], [0.0, 0, 0, 0]):
        x = tn.tensor(given)
        want = tn.utils._pytree.tree_leaves(fn(x))
        for name, run in runs.items():
            try:
                got = tn.utils._pytree.tree_leaves(run(x))
            except RuntimeError as err:
                assert i >= READ and name != "compiled" and "recorded" in str(err), name
                continue
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6, err_msg=name)


def test_models_of_onnx_hold_such_sizes() -> None:
    pytest.importorskip("onnx")
    tests = pytest.importorskip("test_onnx")

    class Net(tn.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.sum() + tn.zeros(x.nonzero().shape[0]), x[x > 0]

    model = tn.onnx.export(tn.export.export(Net(), (tn.tensor([1.0, 0, 2]),))).model_proto
    got = tests.run_loaded(model, {"x": np.array([3, 4, 0], np.float32)})
    np.testing.assert_array_equal(got[0], [7, 7])
    np.testing.assert_array_equal(got[1], [3, 4])
    with pytest.raises(RuntimeError, match="does_not_follow"):
        tests.run_loaded(model, {"x": np.array([3, 4, 5], np.float32)})


def test_a_size_that_follows_from_two() -> None:
    """Steps of a rule go on from each other, in each run."""

    class Flat(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            y = x.flatten()
            return tn.arange(y.shape[0]) + y

    rows, columns = (tn.export.Dim(name, min=1, max=50) for name in ("rows", "columns"))
    run = tn.export.export(
        Flat(), (tn.ones(2, 3),), dynamic_shapes=({0: rows, 1: columns},)
    ).module()
    for size in ((4, 5), (7, 1), (1, 7)):
        x = tn.rand(*size)
        want = np.arange(x.numel()) + x.numpy().ravel()
        np.testing.assert_allclose(run(x).numpy(), want, rtol=1e-6)
