"""Operators that the package torchvision calls by name, when it is installed beside Tenon."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from tenon.vision import ops


@pytest.fixture
def registered(tmp_path: Path) -> Any:
    """The operators of torchvision's two libraries, which PyTorch's loader would be given."""
    (tmp_path / "torchvision").mkdir()
    for name in ("_C.so", "image.cpython-311.so"):
        library = tmp_path / "torchvision" / name
        library.touch()
        tn.ops.load_library(library)
    return tn.ops.torchvision


@pytest.fixture
def plane() -> tn.Tensor:
    return (tn.arange(640.0).reshape(2, 4, 8, 10) * 37 % 101).requires_grad_()


ROIS = [[0, 1, 0, 7, 6], [1, 2.5, 1.5, 8, 7.25], [0, 3, 3, 3, 3.0]]


@pytest.mark.parametrize(
    ("name", "more", "function"),
    [
        ("roi_align", (2, True), lambda x, r: ops.roi_align(x, r, 2, 0.9, 2, True)),
        ("roi_pool", (), lambda x, r: ops.roi_pool(x, r, 2, 0.9)),
        ("ps_roi_align", (2,), lambda x, r: ops.ps_roi_align(x, r, 2, 0.9, 2)),
        ("ps_roi_pool", (), lambda x, r: ops.ps_roi_pool(x, r, 2, 0.9)),
    ],
)
def test_regions_and_their_slopes(
    registered: Any,
    plane: tn.Tensor,
    name: str,
    more: tuple[Any, ...],
    function: Callable[..., Any],
) -> None:
    rois = tn.tensor(ROIS)
    want = function(plane, rois)
    slope = tn.linspace(-1, 1, want.numel()).reshape(want.shape)
    (gradient,) = tn.autograd.grad(want, plane, slope)
    got = getattr(registered, name)(plane.detach(), rois, 0.9, 2, 2, *more)
    if isinstance(got, tuple):
        got, *kept = got
    else:
        kept = []
    tn.testing.assert_close(got, want.detach())
    ratio, rest = (more[:1], ()) if name == "ps_roi_align" else ((), more)
    back = getattr(registered, f"_{name}_backward")(
        slope, rois, *kept, 0.9, 2, 2, *ratio, *plane.shape, *rest
    )
    tn.testing.assert_close(back, gradient)


def test_of_no_boxes_there_is_no_slope(registered: Any) -> None:
    none = tn.zeros(0, 5)
    assert registered.roi_align(tn.ones(1, 3, 4, 4), none, 1.0, 2, 2, 2, False).shape == (
        0,
        3,
        2,
        2,
    )
    back = registered._roi_align_backward(
        tn.ones(0, 3, 2, 2), none, 1.0, 2, 2, 1, 3, 4, 4, 2, False
    )
    assert tn.equal(back, tn.zeros(1, 3, 4, 4))


def test_slopes_of_deformed_convolutions(registered: Any) -> None:
    shapes = ((1, 4, 6, 6), (2, 4, 3, 3), (1, 18, 4, 4), (1, 9, 4, 4), (2,))
    tensors = [(tn.arange(tn.Size(s).numel()) * 29 % 17 / 17.0).reshape(s) for s in shapes]
    settings = (1, 1, 0, 0, 1, 1, 1, 1, True)
    leaves = [t.clone().requires_grad_() for t in tensors]
    x, w, offset, mask, bias = leaves
    want = ops.deform_conv2d(x, offset, w, bias, mask=mask)
    tn.testing.assert_close(registered.deform_conv2d(*tensors, *settings), want.detach())
    slopes = tn.autograd.grad(want.sum(), leaves)
    got = registered._deform_conv2d_backward(tn.ones_like(want), *tensors, *settings)
    for a, b in zip(got, slopes, strict=True):
        tn.testing.assert_close(a, b)


def test_quantized_boxes(registered: Any) -> None:
    boxes = tn.tensor([[0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]], dtype=tn.uint8)
    kept = registered.qnms(boxes, tn.tensor([5, 9, 1], dtype=tn.uint8), 0.5)
    assert kept.tolist() == [1, 2]
    plane = (tn.arange(32).reshape(1, 2, 4, 4) * 7 % 31).to(tn.uint8)
    rois = tn.tensor([[0, 0, 0, 6, 6]], dtype=tn.uint8)
    got = registered.qroi_align(plane, rois, 0.5, 3, 0.5, 0, 1.0, 2, 2, 2, False)
    want = ops.roi_align(plane.float(), rois.float() * 0.5, 2, 1.0, 2)
    assert got.dtype is tn.uint8
    assert tn.equal(got, want.round().to(tn.uint8))


def test_files_of_pictures(registered: Any, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    picture = (tn.arange(105).reshape(3, 5, 7) * 67 % 256).to(tn.uint8)
    space = tn.ops.image
    data = space.encode_png(picture, 6)
    space.write_file(str(tmp_path / "a.png"), data)
    assert tn.equal(space.decode_png(space.read_file(str(tmp_path / "a.png")), 3, False), picture)
    assert space.decode_image(data, 1, False).shape == (1, 5, 7)
    frames = [image.new("RGB", (4, 3), color) for color in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    moving = space.decode_gif(tn.frombuffer(bytearray(file.getvalue()), dtype=tn.uint8))
    assert moving.shape == (2, 3, 3, 4)
    assert (moving[:, :, 0, 0] > 250).tolist() == [[True, False, False], [False, False, True]]


def test_kernels_for_autocast() -> None:
    space = tn.library.Library("pytest_autocast", "DEF")
    space.define("twice(Tensor x) -> Tensor")
    space.impl("twice", lambda x: x * 2)
    space.impl("twice", lambda x: x * 3, "AutocastCPU")
    x = tn.ones(2)
    assert tn.ops.pytest_autocast.twice(x).tolist() == [2, 2]
    with tn.autocast("cpu", dtype=tn.bfloat16):
        assert tn.ops.pytest_autocast.twice(x).tolist() == [3, 3]
    space._destroy()


PROGRAM = """
import torch, torch.jit.annotations as annotations
from torch._custom_ops import get_ctx
from torch._dynamo.utils import is_compile_supported
from torch.onnx import register_custom_op_symbolic, symbolic_opset11
from torch.onnx.symbolic_helper import parse_args
keys = torch._C.DispatchKey
both = torch._C.DispatchKeySet(keys.AutocastCPU) | torch._C.DispatchKeySet(keys.AutocastCUDA)
assert both.has(keys.AutocastCUDA) and not both.has(keys.AutocastXPU)
a = torch.ones(2, 2)
with torch.autocast("cpu", dtype=torch.bfloat16):
    with torch._C._ExcludeDispatchKeyGuard(both):
        print((a @ a).dtype)
    print((a @ a).dtype)
register_custom_op_symbolic("a::b", parse_args("v", "i")(lambda g, x, n: x), 11)
print(annotations.BroadcastingList2[int], is_compile_supported("cpu"))
torch.manual_seed(0)
print(torch._sample_dirichlet(torch.ones(4, 3)).sum(1))
"""


def test_names_that_it_imports(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "tenon", "run", "p.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "torch.float32", "torch.bfloat16", "typing.List[int] True",
        "tensor([1., 1., 1., 1.])",
    ], done.stderr  # fmt: skip
