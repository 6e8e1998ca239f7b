"""ONNX: operators whose models hold for sizes that are free, and scales that give no whole size."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import nn
from tenon.export import Dim

onnx = pytest.importorskip("onnx")
from test_onnx import check, run_runtime  # noqa: E402
from test_onnx_operators import Of, normal  # noqa: E402

F = nn.functional
Fn = Callable[[tn.Tensor], tn.Tensor]
FREE: dict[str, Fn] = {
    "nearest": lambda x: F.interpolate(x[None], scale_factor=1.5),
    "linear": lambda x: F.interpolate(x[None], scale_factor=2.5, mode="linear"),
    "half": lambda x: F.interpolate(x[None, None], scale_factor=0.5, mode="bilinear"),
    "corners": lambda x: nn.UpsamplingBilinear2d(scale_factor=2)(x[None, None]),
    "sizes": lambda x: F.interpolate(x[None, None], (x.shape[0] * 2, x.shape[1]), mode="bilinear"),
    "fixed size": lambda x: F.interpolate(x[None], size=5, mode="linear"),
    "std": lambda x: x.std(1),
    "var": lambda x: x.var((0, 1), correction=2, keepdim=True),
    "whole std": lambda x: x.std(),
    "std and mean": lambda x: tn.cat(tn.std_mean(x, 0)),
    "roll": lambda x: x.roll((3, -2), (1, 0)),
    "roll flat": lambda x: x.roll(5),
    "halves": lambda x: tn.cat(x.chunk(2, 1)[::-1], 1),
    "glu": lambda x: F.glu(tn.cat((x, x), 1), 1),
    "narrow": lambda x: x.narrow(1, 1, x.shape[1] - 1),
    "narrow behind": lambda x: x.narrow(1, x.shape[1] - 1, 1),
    "select": lambda x: x.select(1, x.shape[1] - 1),
}
SIZES = ((4, 7), (8, 8), (5, 2), (2, 3), (9, 16), (33, 40))


def made(fn: Fn) -> tuple[nn.Module, bytes, str]:
    module = Of(fn).eval()
    free = ((({0: Dim.AUTO, 1: Dim.AUTO}),),)
    model = tn.onnx.export(module, (normal(4, 8),), dynamic_shapes=free).model_proto
    return module, model, model.graph.input[0].name


@pytest.mark.parametrize("name", FREE)
def test_free_sizes(name: str) -> None:
    module, model, given = made(FREE[name])
    for size in SIZES:
        x = normal(*size)
        (got,) = run_runtime(model, {given: x.numpy()})
        np.testing.assert_allclose(got, module(x).numpy(), rtol=2e-5, atol=2e-5, err_msg=str(size))


REFUSED: dict[str, tuple[Fn, str]] = {
    "a scale between floats": (lambda x: F.interpolate(x[None], scale_factor=0.7), "float32"),
    "attributes": (
        lambda x: F.avg_pool1d(x[None], x.shape[1]), "avg_pool1d: a number that follows"),
    "shapes": (lambda x: F.layer_norm(x, x.shape[1:]), "layer_norm: a number that follows"),
    "roots": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
        "attention: a number that follows"),
    "parts": (lambda x: x.tensor_split(2, 1)[0], "tensor_split: parts"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_fixed_sizes_in_onnx(name: str) -> None:
    fn, words = REFUSED[name]
    with pytest.raises(tn.onnx.OnnxExporterError, match=words):
        made(fn)


@pytest.mark.parametrize("scale", (1.5, 0.7, 1.3, (1.5, 2.0), (0.7, 1.3)))
@pytest.mark.parametrize("mode", ("nearest", "bilinear"))
@pytest.mark.parametrize("again", (False, True))
def test_scales_that_give_no_whole_size(scale: float, mode: str, again: bool) -> None:
    """Elements come from where the scale says, not the sizes, unless these are asked."""
    more = {"recompute_scale_factor": True} if again else {}
    fn = Of(lambda x: F.interpolate(x, scale_factor=scale, mode=mode, **more))
    check(fn, normal(1, 2, 5, 7), runs=(run_runtime,))


def test_options_of_an_export(tmp_path: Path) -> None:
    class Net(tn.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if tn.onnx.is_in_onnx_export() else x * 3

    net, x = Net(), tn.ones(2)
    assert not tn.onnx.is_in_onnx_export()
    assert tn.jit.trace(net, x)(x).tolist() == [3, 3]
    assert tn.export.export(net, (x,)).module()(x).tolist() == [3, 3]
    assert tn.compile(net)(x).tolist() == net(x).tolist() == [3, 3]
    made = tn.onnx.export(net, (x,), dynamo=True, training=tn.onnx.TrainingMode.EVAL)
    assert made(x)[0].tolist() == [2, 2] and not tn.onnx.is_in_onnx_export()
    made.save(tmp_path / "net.onnx", external_data=False)
    assert tn.onnx.load(tmp_path / "net.onnx")(x).tolist() == [2, 2]
    with pytest.raises(TypeError, match="no_such"):
        tn.onnx.export(net, (x,), no_such=1)
    for name, value in (
        ("export_params", False), ("training", tn.onnx.TrainingMode.TRAINING),
        ("custom_translation_table", {1: 2}), ("keep_initializers_as_inputs", True),
    ):  # fmt: skip
        with pytest.raises(tn.onnx.OnnxExporterError, match=name):
            tn.onnx.export(net, (x,), **{name: value})
    with pytest.raises(tn.onnx.OnnxExporterError, match="include_initializers"):
        made.save(tmp_path / "net.onnx", include_initializers=False)
    plain = tn.nn.Linear(2, 3).eval()
    again = tn.onnx.export(plain, (tn.ones(1, 2),), verify=True, optimize=False)
    from tenon import onnx

    node = again.model_proto.graph.initializer[0]
    node.raw_data = bytes(len(node.raw_data))
    with pytest.raises(tn.onnx.OnnxExporterError, match="another one"):
        onnx._verify(again)


class Looking(tn.nn.Module):
    def forward(self, x: tn.Tensor, shift: tn.Tensor) -> tn.Tensor:
        return (x * 2 if tn.equal(x, x) else x) + float(shift.sum())


def test_values_that_are_looked_at_are_constants_of_the_old_exporter() -> None:
    x, shift = tn.arange(6.0).reshape(2, 3), tn.ones(3)
    with pytest.raises(Exception, match="the module looks at values of tensors"):
        tn.onnx.export(Looking(), (x, shift))
    file = io.BytesIO()
    with pytest.warns(tn.jit.TracerWarning, match="a constant of the program") as seen:
        tn.onnx.export(
            Looking(), (x, shift), file, dynamo=False, input_names=["x", "shift"],
            dynamic_axes={"x": {0: "rows"}},
        )  # fmt: skip
    assert len(seen) == 1
    assert seen[0].filename == __file__
    more = tn.arange(12.0).reshape(4, 3)
    assert tn.equal(tn.onnx.load(file.getvalue())(more, shift), more * 2 + 3)
    with pytest.raises(NotImplementedError, match="cannot be made free"):  # the sum is another
        tn.onnx.export(
            Looking(), (x, shift), dynamo=False, input_names=["x", "shift"],
            dynamic_axes={"shift": {0: "shifts"}},
        )  # fmt: skip
