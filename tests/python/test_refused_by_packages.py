"""What quantization, distributions, nested and masked tensors, the array API, pictures and
libraries of operators refuse, each with the words that only this check says; where PyTorch has the
call, its class of error is PyTorch's."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
import tenon.nn.functional as F
from refusals import Refusal, by_name, check, check_beside, part
from tenon import array_api as xp
from tenon._plugin import schema_parts, skeleton
from tenon._torch import functions as private
from tenon.ao.nn.quantized.dynamic import Int4WeightLinear as four_bits
from tenon.fx.experimental.proxy_tensor import make_fx
from tenon.io import safetensors
from tenon.nn._linear_loss import LinearCrossEntropyOptions as LossOptions
from tenon.nn.attention.varlen import varlen_attn
from tenon.sparse import _triton_ops_meta, semi_structured
from tenon.utils import benchmark, cpp_extension
from tenon.utils.tensorboard import _media
from tenon.vision import datasets, models
from tenon.vision import ops as vision_ops
from tenon.vision import transforms as T
from tenon.vision.transforms import functional as TF

Call = Callable[[Any], Any]


def quantization(lib: Any) -> Any:
    return part(lib, "ao", "quantization")


def nested(lib: Any, *sizes: int) -> Any:
    return lib.nested.nested_tensor([lib.ones(n, 2) for n in sizes])


def normal(lib: Any) -> Any:
    return lib.distributions.MultivariateNormal(lib.zeros(2), lib.eye(2))


class Anything:
    pass


SHARED: dict[str, tuple[str, Call]] = {
    "grid without zero": (
        "must be ordered and include zero",
        lambda t: quantization(t).MinMaxObserver(quant_min=1, quant_max=3),
    ),
    "grid in the other order": (
        "must be ordered and include zero",
        lambda t: quantization(t).MinMaxObserver(quant_min=3, quant_max=-1),
    ),
    "one grid from channels": (
        "grid is one per tensor",
        lambda t: quantization(t).MinMaxObserver(qscheme=t.per_channel_affine),
    ),
    "channels from one grid": (
        "grid is one per channel",
        lambda t: quantization(t).PerChannelMinMaxObserver(qscheme=t.per_tensor_affine),
    ),
    "observer for a class": (
        "QConfig received observer instance",
        lambda t: quantization(t).QConfig(quantization(t).MinMaxObserver(), Anything),
    ),
    "backend": (
        "backend: abacus not supported",
        lambda t: quantization(t).get_default_qconfig("abacus"),
    ),
    "fused without a layer": (
        "Cannot fuse modules",
        lambda t: quantization(t).fuse_modules(
            t.nn.Sequential(t.nn.ReLU(), t.nn.ReLU()).eval(), ["0", "1"]
        ),
    ),
    "zero below": (
        "zero_point -1 is below lower bound",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.1, -1, t.quint8),
    ),
    "zero above": (
        "zero_point 256 is above upper bound",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.1, 256, t.quint8),
    ),
    "grid of whole numbers": (
        "Quantize only works on Float Tensor",
        lambda t: t.quantize_per_tensor(t.ones(2, dtype=t.int64), 0.1, 0, t.quint8),
    ),
    "too few grids": (
        "scales and zero points",
        lambda t: t.quantize_per_channel(t.ones(2, 2), t.ones(1), t.zeros(1), 0, t.qint8),
    ),
    "mean of no dimension": (
        "loc must be at least one-dimensional",
        lambda t: t.distributions.MultivariateNormal(t.tensor(0.0), t.eye(1)),
    ),
    "factor of one dimension": (
        "cov_factor must be at least two-dimensional",
        lambda t: t.distributions.LowRankMultivariateNormal(t.zeros(2), t.ones(2), t.ones(2)),
    ),
    "diagonal of another size": (
        "cov_diag must be a batch of vectors",
        lambda t: t.distributions.LowRankMultivariateNormal(t.zeros(2), t.ones(2, 1), t.ones(3)),
    ),
    "density of a number": (
        "The value argument to log_prob must be a Tensor",
        lambda t: normal(t).log_prob(3.0),
    ),
    "base of too small a shape": (
        "base_distribution needs to have shape with size at least",
        lambda t: t.distributions.TransformedDistribution(
            t.distributions.Normal(0.0, 1.0), t.distributions.transforms.StickBreakingTransform()
        ),
    ),
    "two corrections": (
        "Only one of unbiased and correction",
        lambda t: t.masked.var(t.ones(2), 0, unbiased=True, correction=1),
    ),
    "nested in another layout": (
        "nested tensors are strided or jagged",
        lambda t: t.nested.nested_tensor([t.ones(1)], layout=t.sparse_coo),
    ),
    "nested of two ranks": (
        "must have the same dimension",
        lambda t: t.nested.nested_tensor([t.ones(1), t.ones(1, 1)]),
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_refused_with_words_and_pytorchs_class(name: str) -> None:
    check_beside(*SHARED[name])


A, V, E, X = AssertionError, ValueError, TypeError, IndexError
R, N = RuntimeError, NotImplementedError
f, image = tn.ones(2, 3), tn.zeros(3, 4, 4)


def vit() -> Any:
    return models.VisionTransformer(4, 2, 1, 1, 4, 4)


def grid(dtype: Any, per_channel: bool) -> Any:
    kinds = part(tn, "ao", "quantization")
    observer = (kinds.PerChannelMinMaxObserver if per_channel else kinds.MinMaxObserver)()
    observer(f)
    return part(tn, "ao", "quantization", "quantize").grid_of(observer)


def fused_with_a_hook() -> None:
    model = tn.nn.Sequential(tn.nn.Linear(2, 2), tn.nn.ReLU()).eval()
    model[1].register_forward_hook(lambda *_: None)
    quantization(tn).fuse_modules(model, ["0", "1"])


def two_tensors(begin: int, end: int) -> Any:
    """A file of two tensors in 20 bytes, the second in these."""
    header = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
              "b": {"dtype": "F32", "shape": [2], "data_offsets": [begin, end]}}  # fmt: skip
    return of_text(json.dumps(header).encode(), bytes(20))


def of_text(text: bytes, data: bytes = b"") -> Any:
    return safetensors.load(struct.pack("<Q", len(text)) + text + data)


ARRAYS: list[Refusal] = [
    (V, "arange: step is not zero", lambda: xp.arange(0, 3, 0)),
    (E, "complex numbers do not become", lambda: xp.astype(f * 1j, tn.float32)),
    (V, "broadcast_shapes:", lambda: xp.broadcast_shapes((2,), (3,))),
    (V, "an axis stands twice in (0, 0)", lambda: xp.expand_dims(f, axis=(0, 0))),
    (X, "axis 4 is not one of an array with 3", lambda: xp.expand_dims(f, axis=4)),
    (V, "squeeze: axis 0 has size 2", lambda: xp.squeeze(f, axis=0)),
    (V, "reshape: this takes a copy", lambda: xp.reshape(f.t(), (6,), copy=False)),
    (V, "an array without dimensions", lambda: xp.nonzero(tn.tensor(1.0))),
    (V, "say the axis of an array with several", lambda: xp.take(f, tn.tensor([0]))),
    (V, "with other than one dimension", lambda: xp.cumulative_sum(f)),
    (V, "cross: vectors have 3 elements, not 2", lambda: xp.linalg.cross(f[:, :2], f[:, :2])),
    (V, "vectors of one length, not 3 and 2", lambda: xp.linalg.vecdot(f, f[:, :2])),
    (V, "axis counts from the end", lambda: xp.linalg.vecdot(f, f, axis=0)),
]
PICTURES: list[Refusal] = [
    (V, "mode has to be either 'batch' or 'row'",
     lambda: vision_ops.stochastic_depth(f, 0.5, "column")),
    (V, "Resize of tensors has no mode", lambda: TF.resize(image, [2, 2], T.InterpolationMode.BOX)),
    (V, "If size is a sequence, it should have 1 or 2 values", lambda: T.Resize([1, 2, 3])),
    (V, "is bigger than input size", lambda: TF.five_crop(image, [9, 9])),
    (V, "transformation_matrix should be square",
     lambda: T.LinearTransformation(tn.ones(2, 3), tn.ones(2))),
    (V, "One dtype is needed",
     lambda: T.LinearTransformation(tn.eye(2), tn.ones(2, dtype=tn.float64))),
    (V, "is not non-negative", lambda: TF.adjust_brightness(image, -0.1)),
    (V, "Unsupported SqueezeNet version 2_0", lambda: models.SqueezeNet("2_0")),
    (V, "length of inception_blocks should be 7",
     lambda: models.Inception3(inception_blocks=[1])),
    (V, "expected stages_repeats as list of 3", lambda: models.ShuffleNetV2([1], [1] * 5)),
    (V, "expected stages_out_channels as list of 5",
     lambda: models.ShuffleNetV2([1] * 3, [1])),
    (V, "illegal stride value", lambda: models.shufflenetv2.InvertedResidual(4, 4, 4)),
    (V, "only supports groups=1", lambda: models.resnet.BasicBlock(4, 4, groups=2)),
    (N, "Dilation > 1 not supported", lambda: models.resnet.BasicBlock(4, 4, dilation=2)),
    (V, "Only transforms or transform/target_transform can be passed as argument",
     lambda: datasets.VisionDataset(".", transforms=abs, transform=abs)),
    (V, "Only transforms or transform/target_transform can be passed as argument",
     lambda: datasets.VisionDataset(".", transforms=abs, target_transform=abs)),
    (N, "make the model with weights=", lambda: models.ResNet18_Weights.DEFAULT.get_state_dict()),
    (V, "The inverted_residual_setting should not be empty", lambda: models.EfficientNet([], 0.1)),
    (E, "should be List[MBConvConfig]", lambda: models.EfficientNet([3], 0.1)),
    (V, "The inverted_residual_setting should not be empty", lambda: models.MobileNetV3([], 8)),
    (E, "should be List[InvertedResidualConfig]", lambda: models.MobileNetV3([3], 8)),
    (A, "Input shape indivisible by patch size!",
     lambda: models.VisionTransformer(9, 4, 1, 1, 4, 4)),
    (A, "Expected (batch_size, seq_length, hidden_dim) got (3, 4)",
     lambda: vit().encoder(tn.ones(3, 4))),
    (A, "Expected (batch_size, seq_length, hidden_dim) got (3, 4)",
     lambda: vit().encoder.layers[0](tn.ones(3, 4))),
    (E, "Only torch.uint8 image tensors are supported", lambda: TF.posterize(image, 2)),
    (E, "Only torch.uint8 image tensors are supported", lambda: TF.equalize(image)),
    (V, "tensors are moved with modes NEAREST and BILINEAR",
     lambda: TF.rotate(image, 30.0, T.InterpolationMode.BICUBIC)),
]  # fmt: skip
LIBRARY = tn.library.Library("refused_here", "DEF")
LIBRARIES: list[Refusal] = [
    (E, "takes *args, and arguments have names",
     lambda: tn.library.custom_op("refused_here::many", mutates_args=())(lambda *args: None)),
    (V, "'aten' is no namespace", lambda: tn.library.Library("aten", "DEF")),
    (V, "Unsupported library kind: 'OTHER'", lambda: tn.library.Library("refused_here", "OTHER")),
    (V, "a schema is of the form", lambda: LIBRARY.define("name Tensor")),
    (N, "take no key sets", lambda: LIBRARY.impl("name", print, with_keyset=True)),
    (E, "the kernel must be callable, not int", lambda: LIBRARY.impl("name", 3)),
    (R, "only adds kernels", lambda: tn.library.Library("refused_here", "IMPL").define("n()")),
    (V, "there is no custom_op 'refused_here::nobody'",
     lambda: tn.library.register_autograd("refused_here::nobody", print)),
    (V, "expected one of", lambda: tn.multiprocessing.set_sharing_strategy("by mail")),
    (V, "expected one of allow, warn, error", lambda: tn.set_fallback_policy("never")),
    (V, "load_inline: 'a b' is no identifier", lambda: tn.load_inline("", "a b")),
    (V, "load_inline: language is 'c' or 'c++', not 'rust'",
     lambda: tn.load_inline("", "refused", language="rust")),
    (V, "is longer than 32 characters", lambda: skeleton.check_name("a" * 33, "ops")),
    (V, "cannot be a plugin's name", lambda: skeleton.check_name("A", "ops")),
    (V, "it means something else", lambda: skeleton.check_name("while", "ops")),
    (AttributeError, "Tenon keeps no schema of 'aten::nobody'",
     lambda: schema_parts.aten("nobody", "default")),
    (V, "'add(Tensor x)' is no schema", lambda: schema_parts.FunctionSchema("add(Tensor x)")),
    (R, "standalone programs are not built here",
     lambda: cpp_extension.load("refused", [], is_standalone=True)),
    (V, "global_setup is for C++ statements", lambda: benchmark.Timer("1", global_setup="int a;")),
    (V, "only Python statements are timed, not 'c++'",
     lambda: benchmark.Timer("1", language="c++")),
    (N, "profile.export_stacks: no stacks are recorded",
     lambda: tn.profiler.profile().export_stacks("nowhere")),
    (V, "Unknown source: 'mail'", lambda: tn.hub.list("nowhere", source="mail")),
    (V, "task_done() called too many times",
     lambda: tn.multiprocessing.get_context("spawn").JoinableQueue().task_done()),
    (E, "all_reduce(): expected tensors, got int", lambda: tn.comm.all_reduce([f, 3])),
    (E, "all_reduce(): expected a list of tensors, got Tensor", lambda: tn.comm.all_reduce(f)),
    (V, "all_reduce(): expected at least one tensor", lambda: tn.comm.all_reduce([])),
    (V, "copies are ordered by the current stream", lambda: f.to_device("cpu", stream=1)),
    (E, "builtins:int is no named tuple", lambda: tn.utils._pytree.treespec_loads(
        '[1, {"type": "collections.namedtuple", "context": "builtins:int", "children_spec": []}]')),
    (V, "cu_seq_k has 2 sequences, cu_seq_q 1", lambda: varlen_attn(
        *[tn.ones(2, 1, 8)] * 3, *[tn.tensor(n, dtype=tn.int32) for n in ([0, 2], [0, 1, 2])],
        2, 2)),
    (R, "jit.save: abs was not traced", lambda: tn.jit.save(abs, "nowhere.pt")),
    (N, "attention with its sums has no dropout",
     lambda: tn.ops.aten._scaled_dot_product_flash_attention_for_cpu(*[image[None]] * 3, 0.5)),
    (N, 'a decomposition_table with tracing_mode="symbolic"',
     lambda: make_fx(tn.sin, {"sin": tn.cos}, "symbolic")),
    (N, "make_fx: arguments are tensors, or containers of them",
     lambda: make_fx(lambda d, k: d["a"] + k)({"a": f}, 3)),
    (N, "lobpcg: tracker is not called", lambda: tn.lobpcg(tn.eye(4), tracker=print)),
    (N, "_convert_indices_from_csr_to_coo: batches are not served",
     lambda: private._convert_indices_from_csr_to_coo(f, f)),
    (V, "an image of shape (3, 4, 4) has not the dimensions 'HW'",
     lambda: _media.bytes_of_image(image, "HW")),
    (V, "an image of shape (3, 4, 4) has not the dimensions 'XYZ'",
     lambda: _media.bytes_of_image(image, "XYZ")),
    (R, "item(): the element is masked out",
     lambda: tn.masked.masked_tensor(f[:1, 0], tn.tensor([False])).item()),
    (V, "a layer gives need one grid per tensor", lambda: grid(tn.qint8, per_channel=True)),
    (N, "0, 1: modules with hooks are not fused", lambda: fused_with_a_hook()),
    (V, "fusing Conv2d and BatchNorm2d: the batch norm has no running statistics",
     lambda: tn.nn.utils.fuse_conv_bn_eval(
         tn.nn.Conv2d(1, 1, 1).eval(), tn.nn.BatchNorm2d(1, track_running_stats=False).eval())),
    (V, "pads with zeros, as many as numbers say: padding_mode='zeros' and padding='same'",
     lambda: tn.ao.nn.quantized.Conv2d._like(tn.nn.Conv2d(1, 1, 3, padding="same"))),
    (R, "vmap: 'histc' runs for each element, and there is none",
     lambda: tn.vmap(lambda x: x.histc(3))(tn.zeros(0, 3))),
    (V, "devices: expected at least one device, got none", lambda: tn.comm.broadcast(f, [])),
    (V, "3 columns are not of groups of 2", lambda: four_bits(tn.nn.Linear(3, 1), 2)),
    (V, "9 columns are not of groups of 3, an even number",
     lambda: four_bits(tn.nn.Linear(9, 1), 3)),
    (V, "invalid acc_policy: 'loose'", lambda: LossOptions(acc_policy="loose")),
    (V, "invalid chunking_method: 'aspect_ratio:0'",
     lambda: LossOptions(chunking_method="aspect_ratio:0")),
    (V, "batch_chunk_size must be positive int or None, got 0",
     lambda: LossOptions(batch_chunk_size=0)),
    (V, "acc_dtype must be a floating dtype or None", lambda: LossOptions(acc_dtype=tn.int64)),
    (N, "no kernels of Triton to tune", lambda: _triton_ops_meta.minimize(abs)),
    (N, "no kernels of Triton to tune", lambda: _triton_ops_meta.update("", "", (), (), ())),
    (N, "SparseSemiStructuredTensor: there are no semi-structured sparse tensors",
     lambda: tn.sparse.to_sparse_semi_structured(tn.ones(16, 16))),
    (N, "SparseSemiStructuredTensorCUTLASS: there are no semi-structured sparse tensors",
     lambda: semi_structured.SparseSemiStructuredTensorCUTLASS(tn.ones(16, 16))),
    (R, "do not rise within 4", lambda: F.grouped_mm(
        tn.ones(4, 2), tn.ones(2, 2, 2), offs=tn.tensor([3, 2], dtype=tn.int32))),
]  # fmt: skip
FILES: list[Refusal] = [
    (E, "metadata must be a dict from str to str",
     lambda: safetensors.save_file({"a": f}, "nowhere.safetensors", {"a": 1})),
    (E, "expected a dict from str to Tensor",
     lambda: safetensors.save_file({1: f}, "nowhere.safetensors")),
    (R, "shorter than 8 bytes", lambda: safetensors.load(b"1234567")),
    (E, "expected a path or a file to read, not int", lambda: tn.load(3)),
    (R, "safetensors: more than", lambda: of_text(
        b"{" + b'"data_offsets"' * (safetensors.MAX_TENSORS + 1))),
    (R, "safetensors: the tensor 'b' overlaps another", lambda: two_tensors(4, 12)),
    (R, "safetensors: the tensor 'b' leaves a gap before it", lambda: two_tensors(12, 20)),
    (R, "safetensors: the tensors take 16 bytes, the file holds 20", lambda: two_tensors(8, 16)),
]  # fmt: skip
CASES = by_name(array=ARRAYS, picture=PICTURES, library=LIBRARIES, file=FILES)


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    check(CASES[name])


def test_folders_of_pictures(tmp_path: Path) -> None:
    """Folders without classes, and classes without pictures."""
    with pytest.raises(FileNotFoundError, match="Couldn't find any class folder in"):
        datasets.ImageFolder(tmp_path)
    for name in ("cats", "dogs", "emus"):
        (tmp_path / name).mkdir()
    (tmp_path / "dogs" / "1.png").touch()
    with pytest.raises(FileNotFoundError, match="no valid file for the classes cats, emus"):
        datasets.ImageFolder(tmp_path)
    assert datasets.ImageFolder(tmp_path, allow_empty=True).imgs == [
        (str(tmp_path / "dogs" / "1.png"), 1)
    ]


def test_dependencies_of_a_repository(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text("dependencies = ['json', 'no_such_package']\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package"):
        tn.hub.list(str(tmp_path), source="local")


def test_embedding_with_too_few_labels(tmp_path: Path) -> None:
    with (
        tn.utils.tensorboard.SummaryWriter(str(tmp_path)) as writer,
        pytest.raises(AssertionError, match="#labels should equal with #data points"),
    ):
        writer.add_embedding(f, ["one"])
