"""Traced functions and modules: against the Python they come from, in files, in C programs."""

from __future__ import annotations

import copy
import io
import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from refusals import check_beside
from tenon import _program, jit, nn
from tenon._plugin import native

F = nn.functional


def cnn() -> nn.Module:
    tn.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4 * 16, 10),
    ).eval()  # fmt: skip


class Cut(nn.Module):
    """A function as a module."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: tn.Tensor) -> Any:
        return self.fn(x)


class Block(nn.Module):
    """A small language model over bytes; T is at most 16."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(16, width)
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, 256)

    def forward(self, ids: tn.Tensor) -> tn.Tensor:
        b, t = ids.shape
        x = self.tokens(ids) + self.places(tn.arange(t))
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).reshape(b, t, -1))


# ---- Numbers -------------------------------------------------------------------------------------


def test_module_with_other_batches() -> None:
    model = cnn()
    traced = jit.trace(model, tn.randn(2, 1, 8, 8))
    for n in (1, 2, 7):
        x = tn.randn(n, 1, 8, 8)
        assert tn.equal(traced(x), model(x))
    assert list(traced.state_dict()) == list(model.state_dict())
    assert "conv2d" in traced.code and "batch" in traced.code


def test_gradients_go_through() -> None:
    model = cnn()
    traced = jit.trace(model, tn.randn(2, 1, 8, 8))
    x = tn.randn(3, 1, 8, 8, requires_grad=True)
    model(x).square().sum().backward()
    wanted = [x.grad, *[p.grad for p in model.parameters()]]
    x.grad = None
    model.zero_grad()
    traced(x).square().sum().backward()
    for a, b in zip([x.grad, *[p.grad for p in traced.parameters()]], wanted, strict=True):
        assert tn.equal(a, b)


def test_training_updates_statistics() -> None:
    """What the trace calls again for its checks leaves no trace in the module."""
    model, twin = cnn().train(), cnn().train()
    x = tn.randn(4, 1, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = jit.trace(model, x)
    twin(x)
    assert tn.equal(model[1].running_mean, twin[1].running_mean)
    assert model[1].num_batches_tracked == 1
    y = tn.randn(4, 1, 8, 8)
    assert tn.equal(traced(y), twin(y))
    assert tn.equal(model[1].running_var, twin[1].running_var)


def test_structures() -> None:
    def fn(x: Any, scale: float = 2.0, *, other: dict[str, Any]) -> Any:
        return {"sum": x * scale + other["y"], "rest": (x, [scale, None])}

    x, y = tn.randn(3), tn.randn(3)
    given = {"other": {"y": y}}
    with pytest.raises(RuntimeError, match="Encountering a dict at the output of the tracer"):
        jit.trace(fn, (x, 3.0), example_kwarg_inputs=given)
    traced = jit.trace(fn, (x, 3.0), example_kwarg_inputs=given, strict=False)
    out = traced(y, 3.0, other={"y": x})
    assert tn.equal(out["sum"], y * 3.0 + x) and out["rest"][1] == [3.0, None]
    assert tn.equal(out["rest"][0], y)
    with pytest.raises(RuntimeError, match="recorded for arguments"):
        traced(y, 4.0, other={"y": x})


def test_results_with_names() -> None:
    traced = jit.trace(lambda x: x.max(dim=1), (tn.randn(2, 3),))
    x = tn.randn(4, 3)
    assert tn.equal(traced(x)[0], x.max(dim=1).values) and len(traced(x)) == 2


def test_writes_and_views() -> None:
    def fn(x: tn.Tensor) -> tuple[tn.Tensor, tn.Tensor]:
        y = x.clone()
        y[:, 0] = 7
        y.t()[1].add_(x[:, 1])
        z = y.view(-1)
        z.mul_(2)
        return y, z[::2]

    traced = jit.trace(fn, (tn.randn(3, 4),))
    x = tn.randn(5, 4)
    for a, b in zip(traced(x), fn(x), strict=True):
        assert tn.equal(a, b)


def test_an_input_that_is_written_is_written() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = jit.trace(lambda x: x.add_(1) * 2, (tn.zeros(2),))
    x = tn.ones(2)
    assert traced(x).tolist() == [4, 4] and x.tolist() == [2, 2]


def test_random_numbers_are_drawn_again() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        return F.dropout(x, 0.5) + tn.randn(3)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = jit.trace(fn, (tn.ones(3),))
    tn.manual_seed(3)
    wanted = [fn(tn.ones(3)), fn(tn.ones(3))]
    tn.manual_seed(3)
    assert all(tn.equal(traced(tn.ones(3)), w) for w in wanted)


def test_modes_are_part_of_it() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        with tn.no_grad():
            a = x * 2
        with tn.autocast("cpu"):
            b = x @ x
        return a + b.float() + x

    traced = jit.trace(fn, (tn.randn(4, 4),))
    x = tn.randn(4, 4, requires_grad=True)
    fn(x).sum().backward()
    wanted, x.grad = x.grad, None
    out = traced(x)
    assert tn.equal(out, fn(x))
    out.sum().backward()
    assert tn.equal(x.grad, wanted)


# ---- Warnings and errors -------------------------------------------------------------------------


def test_branches_on_values_warn_with_the_line() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        return x * 2 if x.sum() > 0 else x * 3

    with pytest.warns(jit.TracerWarning, match=r"test_jit\.py"):
        traced = jit.trace(fn, (tn.ones(2),), check_trace=False)
    assert traced(tn.ones(2)).tolist() == [2, 2]
    with pytest.warns(jit.TracerWarning, match="does not match"):
        jit.trace(fn, (tn.ones(2),), check_inputs=[(-tn.ones(2),)])


def test_state_that_a_trace_cannot_see_is_an_error() -> None:
    calls = []

    def counts(x: tn.Tensor) -> tn.Tensor:
        calls.append(1)
        return x + len(calls)

    with pytest.raises(jit.TracingCheckError, match="sanity"):
        jit.trace(counts, (tn.ones(1),))


@jit.script
def halves(x: tn.Tensor, times: int) -> tn.Tensor:
    for _ in range(times):
        x = x / 2 if bool(x.sum() > 3) else x + 1
    return x


def test_traces_through_scripts_take_each_course(tmp_path: Path) -> None:
    class Steps(tn.nn.Module):
        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return halves(x, 3)

    class Net(tn.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.steps = tn.nn.Linear(2, 2), jit.script(Steps())

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.steps(self.fc(x)) * 2

    @jit.script_if_tracing
    def flips(x: tn.Tensor) -> tn.Tensor:
        return x if x.sum() > 0 else -x

    net = Net()
    for fn in (net, lambda x: flips(x) + 1, lambda x: halves(x, 2)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            traced = jit.trace(fn, (tn.ones(1, 2),))
        for x in (tn.ones(1, 2), -tn.ones(1, 2), tn.full((3, 2), 9.0)):
            assert tn.equal(traced(x), fn(x))
        if getattr(fn, "__name__", "") == "<lambda>":
            with pytest.raises(OSError, match="Can't get source"):
                jit.save(traced, tmp_path / "steps.tng")
            continue
        jit.save(traced, tmp_path / "steps.tng")
        kept = jit.load(tmp_path / "steps.tng")
        for x in (tn.ones(1, 2), -tn.ones(1, 2), tn.full((3, 2), 9.0)):
            assert tn.equal(kept(x), fn(x))
    with tn.no_grad():
        net.fc.weight.zero_()
    assert tn.equal(jit.trace(net, (tn.ones(1, 2),)).fc.weight, tn.zeros(2, 2))


def test_copies_have_weights_of_their_own() -> None:
    traced = jit.trace(tn.nn.Linear(2, 2), (tn.ones(1, 2),))
    copied, x = copy.deepcopy(traced), tn.ones(1, 2)
    before = traced(x)
    with tn.no_grad():
        traced.weight.zero_()
    assert tn.equal(copied(x), before) and tn.equal(traced(x)[0], traced.bias)
    copied(x).sum().backward()
    assert copied.weight.grad is not None and traced.weight.grad is None
    function = copy.deepcopy(jit.trace(lambda x: x * 3, (tn.ones(2),)))
    assert function(tn.ones(2)).tolist() == [3, 3]
    scripted = copy.deepcopy(jit.script(Pooled()))
    assert scripted(tn.ones(1, 3, 4, 4)).shape == (1, 2)


def test_names_become_places() -> None:
    class Sum(tn.nn.Module):
        def forward(self, a: tn.Tensor, b: tn.Tensor, c: tn.Tensor) -> tn.Tensor:
            return a + 2 * b + 4 * c

    a, b, c = tn.ones(2), tn.zeros(2), tn.full((2,), 3.0)
    traced = jit.trace(Sum(), example_kwarg_inputs={"c": c, "a": a, "b": b})
    for got in (traced(a, b, c), traced(b=b, a=a, c=c)):
        assert got.tolist() == [13, 13]


def test_arrays_of_computed_values_warn() -> None:
    with pytest.warns(jit.TracerWarning, match="constant"):
        jit.trace(lambda x: x + tn.tensor((x * 2).numpy() + 1), (tn.ones(2),), check_trace=False)


def test_hidden_state_is_refused() -> None:
    hidden = tn.zeros(2)
    with pytest.raises(NotImplementedError, match="register_buffer"):
        jit.trace(lambda x: hidden.add_(x), (tn.ones(2),))
    assert not jit.is_tracing()


def test_statistics_that_no_module_has_are_named() -> None:
    mean, var = tn.zeros(3), tn.ones(3)
    with pytest.raises(NotImplementedError, match="batch_norm writes to a tensor that is no input"):
        tn.jit.trace(
            lambda x: tn.nn.functional.batch_norm(x, mean, var, training=True), tn.ones(2, 3)
        )


def test_wrong_inputs_are_named() -> None:
    traced = jit.trace(lambda image: image @ tn.ones(4, 4), (tn.randn(2, 4, 4),))
    with pytest.raises(RuntimeError, match=r"'image'.*\[batch.*4, 4\], not \[2, 4, 5\]"):
        traced(tn.randn(2, 4, 5))
    with pytest.raises((RuntimeError, TypeError), match="'image'.*float32, not float64"):
        traced(tn.randn(2, 4, 4, dtype=tn.float64))
    with pytest.raises(RuntimeError, match="recorded for arguments"):
        traced(tn.randn(2, 4, 4), 1)


class Pooled(tn.nn.Module):
    """Takes images of any size; a number among its arguments follows from the height."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = tn.nn.Conv2d(3, 4, 3, padding=1), tn.nn.Linear(4, 2)
        self.double = False

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        y = self.conv(x)[:, :, : x.shape[2] - 2].relu().mean((2, 3))
        return self.head(y * 2 if self.double else y)


def test_other_sizes_than_the_first() -> None:
    """A call that brings them records anew; the weights stay those of the traced module."""
    net = Pooled()
    traced = jit.trace(net, tn.randn(2, 3, 8, 8))
    before = dict(traced.named_parameters())
    for shape in ((2, 3, 10, 6), (5, 3, 4, 7), (1, 3, 8, 8)):
        x = tn.randn(*shape)
        assert tn.allclose(traced(x), net(x), atol=1e-6)
    assert all(p is before[n] for n, p in traced.named_parameters())
    with tn.no_grad():
        net.head.bias.add_(1)
    traced(tn.randn(1, 3, 12, 4)).sum().backward()
    assert tn.allclose(traced(x), net(x), atol=1e-6)
    assert traced.head.bias.grad.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="'x'.*, 3, .* not"):
        traced(tn.randn(1, 4, 8, 8))


CUTS = [
    slice(None, 6), slice(2, 6), slice(-6, None), slice(-6, -1), slice(None, -2), slice(3, None),
    slice(None, 100), slice(-100, None), slice(5, None, 2), slice(9, 4), slice(-3, 5),
]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("how", ["trace", "file", "export", "compile", "dynamic"])
def test_parts_are_cut_by_the_limits_that_were_given(how: str, cut: slice) -> None:
    """A limit beyond the first call's size must not become that size."""

    def fn(x: tn.Tensor) -> tn.Tensor:
        y = x * 2
        y[:, cut] += 1
        return x[:, cut].sum() + (y * y).sum()

    first = tn.ones(2, 5)
    if how == "export":
        length = tn.export.Dim("length", min=2)
        program = tn.export.export(Cut(fn), (first,), dynamic_shapes=({1: length},))
        made: Any = program.module()
    elif how in ("compile", "dynamic"):
        made = tn.compile(fn, dynamic=how == "dynamic" or None)
    else:
        made = jit.trace(fn, (first,))
    if how == "file":
        kept = io.BytesIO()
        jit.save(made, kept)
        kept.seek(0)
        made = jit.load(kept)
    for n in (5, 6, 4, 9, 64, 3):
        x = np.arange(2.0 * n, dtype=np.float32).reshape(2, n)
        y = x.astype(np.float64) * 2
        y[:, cut] += 1
        assert made(tn.from_numpy(x)).item() == x[:, cut].sum() + (y * y).sum(), n


def test_a_file_has_all_sizes_free_that_the_function_takes(tmp_path: Path) -> None:
    net = Pooled()
    jit.trace(net, tn.randn(2, 3, 8, 8)).save(tmp_path / "net.tng")
    loaded = jit.load(tmp_path / "net.tng")
    for shape in ((2, 3, 8, 8), (4, 3, 6, 12)):
        x = tn.randn(*shape)
        assert tn.allclose(loaded(x), net(x), atol=1e-6)
    shapes = [v["shape"] for v in loaded.program.data["values"] if v["role"] == "input"]
    assert shapes == [["batch", 3, "x_2", "x_3"]]
    assert [s["seen"] for s in loaded.program.data["symbols"]] == [2, 8, 8]


def test_sizes_stay_where_the_function_is_another_by_now() -> None:
    net = Pooled()
    traced = jit.trace(net, tn.randn(2, 3, 8, 8))
    net.double = True
    with pytest.raises(RuntimeError, match="'x'"):
        traced(tn.randn(2, 3, 10, 8))
    net.double = False
    assert traced(tn.randn(2, 3, 10, 8)).shape == (2, 2)


def test_sizes_that_inputs_share() -> None:
    """In two inputs a size is one, alone it cannot differ; and a function may take none."""
    traced = jit.trace(lambda a, b: (a * b).sum(1) + a[:, 0], (tn.ones(2, 3), tn.ones(2, 3)))
    assert traced(tn.ones(2, 5), tn.ones(2, 5)).tolist() == [6, 6]
    calls = []

    def fixed(x: tn.Tensor) -> tn.Tensor:
        calls.append(x.shape)
        return x + tn.ones(4, 6)

    traced = jit.trace(fixed, tn.ones(2, 4, 6))
    for _ in range(2):
        count = len(calls)
        with pytest.raises(RuntimeError, match="'x'"):
            traced(tn.ones(2, 3, 8))
    assert len(calls) == count  # what was refused once is not tried again


def test_sizes_that_follow_from_values() -> None:
    x = tn.tensor([1.0, -1.0, 2.0])
    traced = jit.trace(lambda x: x[x > 0].sum(), (x,), check_trace=False)
    assert traced(tn.tensor([3.0, 4.0, -1.0])).item() == 7
    assert traced(tn.tensor([3.0, 4.0, 5.0])).item() == 12


def test_sizes_stay_where_numbers_depend_on_them(tmp_path: Path) -> None:
    """The mean's divisor is a float that follows from the size: the size is fixed, in files. What
    was traced has a program for each size."""
    traced = jit.trace(lambda x: x.sum() * (1.0 / x.shape[0]), (tn.ones(4),))
    for n in (4, 5, 4, 8, 5):
        assert traced(tn.full((n,), 3.0)).item() == pytest.approx(3)
    traced.save(tmp_path / "x.tng")
    with pytest.raises(RuntimeError, match=r"\[4\], not \[5\]"):
        jit.load(tmp_path / "x.tng")(tn.ones(5))


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not traced"):
        jit.save(nn.Linear(2, 2), tmp_path / "x.tng")
    gen = tn.Generator()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = jit.trace(lambda x: x + tn.rand(2, generator=gen), (tn.ones(2),))
    with pytest.raises(NotImplementedError, match="generator"):
        traced.save(tmp_path / "x.tng")
    bad = tmp_path / "bad.tng"
    bad.write_bytes(b"no program")
    with pytest.raises(RuntimeError, match=r"bad\.tng.*no program"):
        jit.load(bad)
    moved = jit.trace(nn.Linear(2, 2), (tn.ones(1, 2),))
    with pytest.raises(RuntimeError, match="trace it again"):
        moved.double()


# ---- Files ---------------------------------------------------------------------------------------


def test_save_and_load(tmp_path: Path) -> None:
    model = cnn()
    traced = jit.trace(model, tn.randn(2, 1, 8, 8))
    x = tn.randn(3, 1, 8, 8)
    path = tmp_path / "net.tng"
    jit.save(traced, path, _extra_files={"labels": "a b"})
    extra = {"labels": ""}
    loaded = jit.load(path, _extra_files=extra)
    assert extra["labels"] == b"a b" and not loaded.training
    assert tn.equal(loaded(x), model(x))
    loaded(x).sum().backward()
    model(x).sum().backward()
    for (n, p), (m, q) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        assert n == m and tn.equal(p.grad, q.grad)
    other = cnn()
    with tn.no_grad():
        for p in other.parameters():
            p.mul_(0.5)
    loaded.load_state_dict(other.state_dict())
    assert tn.equal(loaded(x), other(x))
    buffer = io.BytesIO()
    traced.save(buffer)
    again = io.BytesIO()
    jit.trace(model, tn.randn(2, 1, 8, 8)).save(again)
    assert buffer.getvalue() == again.getvalue()
    buffer.seek(0)
    assert tn.equal(jit.load(buffer)(x), model(x))


def doubled(x: tn.Tensor) -> tn.Tensor:
    return x * 2


@pytest.mark.parametrize("kept", ["function", "module"])
@pytest.mark.parametrize("way", ["trace", "script"])
def test_ways_to_keep_a_program(kept: str, way: str, tmp_path: Path) -> None:
    """Each with files beside it, which are bytes where they come back, whatever they were."""
    made: Any = doubled if kept == "function" else nn.Linear(3, 2)
    made = jit.trace(made, (tn.ones(1, 3),)) if way == "trace" else jit.script(made)
    beside = {"words": "a b", "bytes": b"\xff\0"}
    made.save(tmp_path / "a.tng", _extra_files=beside)
    jit.save(made, tmp_path / "b.tng", _extra_files=beside)
    file = io.BytesIO()
    made.save(file, beside)
    x = tn.arange(6.0).reshape(2, 3)
    data = io.BytesIO(made.save_to_buffer(beside)), io.BytesIO(file.getvalue())
    for source in (tmp_path / "a.tng", str(tmp_path / "b.tng"), *data):
        found: dict[str, Any] = {"words": 0, "bytes": 0, "none": 0}
        assert tn.equal(jit.load(source, _extra_files=found)(x), made(x))
        assert found == {"words": b"a b", "bytes": b"\xff\0", "none": b""}
    for plain in (made.save_to_buffer(), (made.save(tmp_path / "c.tng"), "c.tng")[1]):
        source = io.BytesIO(plain) if isinstance(plain, bytes) else tmp_path / plain
        found = {"words": 0}
        jit.load(source, _extra_files=found)
        assert found == {"words": b""}


def test_no_file_and_no_place_for_programs(tmp_path: Path) -> None:
    check_beside(
        "The provided filename no/such.tng does not exist", lambda lib: lib.jit.load("no/such.tng")
    )
    check_beside("is a directory", lambda lib: lib.jit.load(tmp_path))
    jit.save(jit.trace(doubled, (tn.ones(1),)), tmp_path / "a.tng")
    with pytest.raises(NotImplementedError, match="map_location can only be 'cpu'"):
        jit.load(tmp_path / "a.tng", map_location="meta")
    assert jit.load(tmp_path / "a.tng", map_location="cpu")(tn.ones(2)).tolist() == [2, 2]


def test_a_file_of_the_mapping_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "net.tng"
    jit.trace(nn.Linear(2, 2), (tn.ones(1, 2),)).save(path)
    before = path.read_bytes()
    loaded = jit.load(path)
    with tn.no_grad():
        for p in loaded.parameters():
            p.zero_()
    assert loaded(tn.ones(1, 2)).tolist() == [[0, 0]]
    assert path.read_bytes() == before


def test_children_keep_names_and_kinds() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 1)))
    traced = jit.trace(net, tn.ones(1, 2))
    file = io.BytesIO()
    traced.save(file)
    file.seek(0)
    for made in (traced, jit.load(file)):
        assert [n for n, _ in made.named_modules()] == ["", "0", "1", "1.0", "1.1"]
        assert made.get_submodule("1.0").original_name == "ReLU"
        assert made.original_name == "Sequential" and not made.eval().get_submodule("1.0").training
        assert set(made.state_dict()) == set(net.state_dict())


def test_freeze() -> None:
    model = cnn()
    traced = jit.trace(model, tn.randn(2, 1, 8, 8))
    frozen = jit.freeze(traced)
    x = tn.randn(3, 1, 8, 8)
    assert tn.equal(frozen(x), model(x)) and not list(frozen.parameters())
    with pytest.raises(RuntimeError, match="eval"):
        jit.freeze(traced.train())


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
            self.b.weight = self.a.weight

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return self.b(self.a(x))

    model = Tied()
    jit.trace(model, (tn.ones(1, 3),)).save(tmp_path / "t.tng")
    loaded = jit.load(tmp_path / "t.tng")
    x = tn.randn(2, 3)
    assert tn.equal(loaded(x), model(x))
    assert len(list(loaded.parameters())) == 3


# ---- The command, and C --------------------------------------------------------------------------


def tenon(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tenon", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_command(tmp_path: Path) -> None:
    path = tmp_path / "net.tng"
    jit.trace(cnn(), tn.randn(2, 1, 8, 8)).save(path)
    assert "conv2d(" in tenon("graph", "show", str(path)).stdout
    assert tenon("graph", "show", "--dot", str(path)).stdout.startswith("digraph")
    assert json.loads(tenon("graph", "show", "--json", str(path)).stdout)["nodes"]
    assert "float32 [5, 10]" in tenon("graph", "run", "--size", "5", str(path)).stdout
    assert "median" in tenon("graph", "time", "--count", "3", str(path)).stdout
    path.write_bytes(path.read_bytes()[:100])
    broken = tenon("graph", "show", str(path))
    assert broken.returncode == 1 and "net.tng" in broken.stderr and not broken.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C programs, built as a user builds them."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")
    source = Path(__file__).resolve().parents[2] / "examples" / "c"
    folder = tmp_path_factory.mktemp("c")
    package = native.PACKAGE
    flags = [f"-I{package / 'include'}", f"-L{package}", "-ltenon", f"-Wl,-rpath,{package}"]
    for name in ("infer", "generate"):
        line = ["cc", "-Wall", "-Werror", str(source / f"{name}.c"), "-o", str(folder / name)]
        subprocess.run([*line, *flags], check=True)
    return folder


def empty_environment() -> dict[str, str]:
    kept = ("LD_LIBRARY_PATH", "TENON_PLUGIN_PATH", "TENON_CPU_ISA")  # kernels round as here
    return {k: os.environ[k] for k in kept if k in os.environ}


def test_c_runs_an_exported_network(programs: Path, tmp_path: Path) -> None:
    model, image = cnn(), tn.randn(1, 1, 8, 8)
    jit.trace(model, image).save(tmp_path / "net.tng")
    image.numpy().tofile(tmp_path / "image.f32")
    line = [str(programs / "infer"), "net.tng", "image.f32"]
    out = subprocess.run(
        line, cwd=tmp_path, env=empty_environment(), capture_output=True, text=True, timeout=60
    )
    assert out.returncode == 0, out.stderr
    got = np.array(out.stdout.split(), dtype=np.float64)
    np.testing.assert_allclose(got, model(image).detach().numpy()[0], rtol=1e-6)
    model, image = (
        Pooled(),
        tn.randn(1, 3, 6, 9),
    )  # its sizes are free, and those it was traced with
    jit.trace(model, image).save(tmp_path / "net.tng")
    image.numpy().tofile(tmp_path / "image.f32")
    out = subprocess.run(line, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60)
    got = np.array(out.stdout.split(), dtype=np.float64)
    np.testing.assert_allclose(got, model(image).detach().numpy()[0], rtol=1e-5)
    assert "float32 [1, 2]" in tenon("graph", "run", str(tmp_path / "net.tng")).stdout
    (tmp_path / "net.tng").write_bytes((tmp_path / "net.tng").read_bytes()[:-70])
    out = subprocess.run(line, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=60)
    assert out.returncode == 1 and "cut off" in out.stderr


def test_c_lets_a_model_write(programs: Path, tmp_path: Path) -> None:
    tn.manual_seed(0)
    model = Block().eval()
    ids = tn.randint(0, 256, (1, 9))
    with tn.no_grad():
        exported = tn.export.export(
            model, (ids,), dynamic_shapes={"ids": {1: tn.export.Dim("t", min=1, max=16)}}
        )
    tn.export.save(exported, tmp_path / "gpt.tng")
    text = list(b"abc")
    for _ in range(8):
        with tn.no_grad():
            text.append(int(model(tn.tensor([text]))[0, -1].argmax()))
    out = subprocess.run(
        [str(programs / "generate"), "gpt.tng", "abc", "8"],
        cwd=tmp_path,
        env=empty_environment(),
        capture_output=True,
        timeout=60,
    )
    assert out.returncode == 0, out.stderr
    assert list(out.stdout[:-1]) == text


def test_programs_keep_their_note() -> None:
    program = _program.record(lambda: [tn.ones(1)], {})[0]
    program.note = "a note"
    assert _program.load(program.to_bytes()).note == "a note"


def test_files_take_other_sizes_where_small_ones_are_refused() -> None:
    """Of five pixels half are less than the window: that says nothing of sizes beyond."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2)).eval()
    file = io.BytesIO()
    jit.save(jit.trace(model, tn.randn(1, 1, 5, 5)), file)
    file.seek(0)
    loaded = jit.load(file)
    for shape in ((1, 1, 5, 5), (2, 1, 6, 6), (3, 1, 9, 7)):
        x = tn.randn(shape)
        assert tn.allclose(loaded(x), model(x), atol=1e-6)
    with pytest.raises(RuntimeError):
        loaded(tn.randn(1, 1, 2, 2))


class _Scaled(tn.autograd.Function):
    """x * k with a gradient that no operator of its forward has."""

    @staticmethod
    def forward(ctx: Any, x: tn.Tensor, k: float) -> tn.Tensor:
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx: Any, grad: tn.Tensor) -> Any:
        return grad * ctx.k * 10, None


def test_functions_with_a_gradient_of_their_own(tmp_path: Path) -> None:
    x = tn.ones(2, requires_grad=True)
    traced = jit.trace(lambda x: _Scaled.apply(x, 2.0) + 1, (tn.ones(2),))
    assert not traced(tn.ones(2)).requires_grad
    assert tn.autograd.grad(traced(x).sum(), x)[0].tolist() == [20, 20]
    with pytest.warns(jit.TracerWarning, match="backward no file holds"):
        jit.save(traced, tmp_path / "f.tng")
    loaded = jit.load(tmp_path / "f.tng")
    assert tn.autograd.grad(loaded(x).sum(), x)[0].tolist() == [2, 2]


def test_what_has_its_own_gradient_is_called_where_one_is_asked_for() -> None:
    calls = []

    def doubled(x: tn.Tensor) -> tn.Tensor:
        calls.append(x)
        return _Scaled.apply(x, 2.0)

    traced, x = jit.trace(doubled, (tn.ones(2),)), tn.ones(2, requires_grad=True)
    calls.clear()
    with tn.no_grad():
        assert not traced(x).requires_grad
    assert not calls and traced.original_name == "doubled"
    assert traced(x).requires_grad and len(calls) == 1
    summed = jit.trace(lambda parts: parts[0]["a"] * 2 + parts[0]["b"], ([{"a": x, "b": x + 1}],))
    assert summed([{"b": tn.zeros(2), "a": tn.ones(2)}]).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="interface must be applied to a class"):
        jit.interface("Adds")


def test_sizes_become_free_without_a_check() -> None:
    net = nn.Linear(3, 2)
    traced = jit.trace(net, (tn.ones(1, 3),), check_trace=False)
    net.load_state_dict(nn.Linear(3, 2).state_dict())
    assert tn.equal(traced(tn.ones(4, 3)), net(tn.ones(4, 3)))


def _put(x: tn.Tensor, i: tn.Tensor) -> tn.Tensor:
    x = x.clone()
    x[i] = 0.0
    x[:, i] += 1
    x[i, i] = x[-1, i] * 2
    return x


def _updates_what_it_took(x: tn.Tensor, i: tn.Tensor) -> tn.Tensor:
    part = x[i]
    x.mul_(2)
    return part + x[0]


@pytest.mark.parametrize("how", ["trace", "file", "export"])
def test_places_that_tensors_give(how: str, tmp_path: Path) -> None:
    class Net(nn.Module):
        def forward(self, x: tn.Tensor, i: tn.Tensor) -> Any:
            return x[i], x[i, 1:], x[:, i], x[..., i, None], x[i][i], x[0, i], _put(x, i)

    x, made = tn.arange(9.0).view(3, 3), Net()
    program: Any
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if how == "export":
            program = tn.export.export(made, (x, tn.tensor(0))).module()
        else:
            program = jit.trace(made, (x, tn.tensor(0)))
    if how == "file":
        jit.save(program, tmp_path / "places.tng")
        program = jit.load(tmp_path / "places.tng")
    for i in (1, 2, -1):
        got, want = program(x, tn.tensor(i)), made(x, tn.tensor(i))
        assert all(tn.equal(a, b) for a, b in zip(got, want, strict=True))
    with pytest.raises(IndexError):
        program(x, tn.tensor(3))


def test_places_are_not_written_by_another_name() -> None:
    x, i = tn.ones(2, 2), tn.tensor(0)
    for fn in (_updates_what_it_took, lambda x, i: x[i].add_(1) + x):
        with pytest.raises(NotImplementedError, match=r"x\[i\], with a tensor i, is a copy"):
            jit.trace(fn, (x, i))


def test_places_in_loops_and_after_writes() -> None:
    def fn(x: tn.Tensor, i: tn.Tensor) -> Any:
        x = x.clone()
        row = x[i]
        for k in range(2):
            x[k] = x[i] * 2 + row.sum() if k == 0 else x[k]
        x[i] -= x[i].mean()
        return x[i] + x

    x = tn.arange(4.0).view(2, 2)
    traced = jit.trace(fn, (x, tn.tensor(0)))
    assert all(tn.equal(traced(x, tn.tensor(i)), fn(x, tn.tensor(i))) for i in (0, 1))


def test_what_fork_begins_is_a_future() -> None:
    made = tn.jit.fork(lambda x, k: x * k, tn.ones(2), k=3)
    assert type(made) is tn.jit.Future is tn.futures.Future and made.done()
    assert tn.jit.wait(made).tolist() == made.value().tolist() == [3, 3]
