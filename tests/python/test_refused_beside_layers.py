"""What distributions, data loaders, pictures, files, graphs and registries refuse, each with the
words that only this check says. Classes and most words are PyTorch 2.13's and torchvision's."""

from __future__ import annotations

import io
import json
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.distributions as D
import tenon.utils._pytree as pytree
import tenon.vision.transforms as T
import tenon.vision.transforms.functional as TF
from refusals import Refusal, by_name, check
from tenon import fx, nn
from tenon.io.safetensors import load
from tenon.utils import data
from tenon.vision import ops as vision_ops

f = tn.tensor([[0.5, -1.25, 2.0], [3.0, -0.5, 1.5], [-2.5, 0.25, 1.0]])
v, at = f[0], tn.tensor([2, 0, 1])
image = tn.zeros(3, 4, 4)
bytes_image = image.to(tn.uint8)
R, V, X, E, K = RuntimeError, ValueError, IndexError, TypeError, KeyError
A, N = AssertionError, NotImplementedError


class Stream(data.IterableDataset):
    def __iter__(self) -> Any:
        return iter([1, 2])


class Plain(D.Distribution):
    arg_constraints = {}  # noqa: RUF012


def safetensors(header: Any, body: bytes = b"") -> Callable[[], Any]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return lambda: load(struct.pack("<Q", len(text)) + text + body)


def traced() -> fx.GraphModule:
    return fx.symbolic_trace(lambda x: x.relu())


def moved_elsewhere() -> None:
    mine, other = traced().graph, traced().graph
    next(iter(mine.nodes)).append(next(iter(other.nodes)))


def loader(what: Any = (1, 2, 3), **given: Any) -> Callable[[], Any]:
    return lambda: data.DataLoader(what, **given)


NUMBERS: list[Refusal] = [
    (V, "cache_size must be 0 or 1", lambda: D.ExpTransform(cache_size=2)),
    (V, "Shape mismatch: expected", lambda: D.ReshapeTransform((2, 3), (6,)).forward_shape((3, 2))),
    (V, "Expected value.dim() >= 1 but got 0",
     lambda: D.constraints.independent(D.constraints.real, 1).check(tn.tensor(1.0))),
    (V, "`concentration` parameter must be at least one-dimensional",
     lambda: D.Dirichlet(tn.tensor(1.0))),
    (V, "`probs` parameter must be at least one-dimensional",
     lambda: D.Categorical(tn.tensor(0.5))),
    (N, "does not implement mode", lambda: Plain().mode),
    (N, "does not implement expand", lambda: Plain().expand((2,))),
    (V, "The right-most size of value must match event_shape",
     lambda: D.MultivariateNormal(tn.zeros(2), tn.eye(2)).log_prob(tn.zeros(3))),
    (V, "Value is not broadcastable with batch_shape+event_shape",
     lambda: D.Normal(tn.zeros(2), tn.ones(2)).log_prob(tn.zeros(3))),
    (V, "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual 2 vs 1",
     lambda: D.Independent(D.Normal(tn.zeros(2), tn.ones(2)), 2)),
    (N, "No KL(p || q) is implemented for p type Normal and q type StudentT",
     lambda: D.kl_divergence(D.Normal(0.0, 1.0), D.StudentT(3.0))),
    (V, "with different event shapes cannot be computed",
     lambda: D.kl_divergence(*(D.MultivariateNormal(tn.zeros(n), tn.eye(n)) for n in (2, 3)))),
    (V, "loc must be at least one-dimensional",
     lambda: D.LowRankMultivariateNormal(tn.tensor(0.0), tn.ones(1, 1), tn.ones(1))),
    (V, "loc must be at least one-dimensional", lambda: D.MultivariateNormal(tn.tensor(0.0), f)),
    (V, "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified",
     lambda: D.MultivariateNormal(tn.zeros(3))),
    (V, "covariance_matrix must be at least two-dimensional",
     lambda: D.MultivariateNormal(tn.zeros(3), tn.ones(3))),
    (A, "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified",
     lambda: D.Wishart(tn.tensor(3.0))),
    (V, "must be at least two-dimensional", lambda: D.Wishart(tn.tensor(3.0), tn.ones(2))),
    (V, "The mixture distribution has to be an instance of Categorical",
     lambda: D.MixtureSameFamily(D.Normal(0.0, 1.0), D.Normal(tn.zeros(2), tn.ones(2)))),
    (V, "The component distribution has to be an instance of Distribution",
     lambda: D.MixtureSameFamily(D.Categorical(tn.ones(2)), 3)),
    (V, "transforms must be a Transform or list of Transforms, but was",
     lambda: D.TransformedDistribution(D.Normal(0.0, 1.0), 3)),
    (V, "Input is not a flattened lower-diagonal number",
     lambda: D.CorrCholeskyTransform().forward_shape((2,))),
    (V, "Input is not square", lambda: D.CorrCholeskyTransform().inverse_shape((2, 3))),
    (V, "Uniform is not defined when low>= high", lambda: D.Uniform(1.0, 1.0)),
    (V, "must all be instances of Number, torch.Tensor", lambda: D.Normal("a", 1.0)),
    (V, "The parameter probs has invalid values",
     lambda: D.ContinuousBernoulli(1.5, validate_args=True)),
    (V, "`low` must be less than `high`, but got 2 >= 1",
     lambda: tn.testing.make_tensor(3, dtype=tn.float32, device="cpu", low=2, high=1)),
]  # fmt: skip
LOADERS: list[Refusal] = [
    (V, "sampler option is mutually exclusive with shuffle", loader(sampler=[0], shuffle=True)),
    (V, "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler",
     loader(batch_sampler=[[0]], batch_size=2)),
    (V, "num_workers option should be non-negative", loader(num_workers=-1)),
    (V, "prefetch_factor option could only be specified in multiprocessing",
     loader(prefetch_factor=2)),
    (V, "persistent_workers option needs num_workers > 0", loader(persistent_workers=True)),
    (V, "IterableDataset: expected unspecified shuffle option, but got shuffle=True",
     loader(Stream(), shuffle=True)),
    (V, "DataLoader with IterableDataset: expected unspecified sampler option",
     loader(Stream(), sampler=[0])),
    (N, "Subclasses of Dataset should implement __getitem__", lambda: data.Dataset()[0]),
    (A, "Size mismatch between tensors", lambda: data.TensorDataset(v, v[:2])),
    (V, "Supported either ``tuple``", lambda: data.StackDataset([1], a=[1])),
    (V, "Size mismatch between datasets", lambda: data.StackDataset([1], [1, 2])),
    (A, "Invalid profiler schedule arguments",
     lambda: tn.profiler.schedule(wait=-1, warmup=0, active=1)),
    (A, "Step must be non-negative. Got -1",
     lambda: tn.profiler.schedule(wait=0, warmup=0, active=1)(-1)),
    (V, "is already registered as pytree node",
     lambda: pytree.register_pytree_node(list, list, lambda x, _: x)),
    (E, "Expected `treespec` to be instance of TreeSpec but got item of type",
     lambda: pytree.tree_unflatten([1], 3)),
    (E, "Argument must be a type, a tuple of types, or a callable", lambda: pytree.map_only(3)),
    (R, "none of output has requires_grad=True, this checkpoint() is not necessary",
     lambda: tn.utils.checkpoint.checkpoint(
         lambda x: x.detach(), v.clone().requires_grad_(), use_reentrant=True).sum().backward()),
    (V, "Passing `context_fn` or `debug` is only supported when use_reentrant=False",
     lambda: tn.utils.checkpoint.checkpoint(tn.sin, v, use_reentrant=True, debug=True)),
]  # fmt: skip
GRAPHS: list[Refusal] = [
    (A, "Attempting to move a Node into a different Graph", moved_elsewhere),
    (R, "from wrong graph", lambda: traced().graph.erase_node(list(traced().graph.nodes)[-1])),
    (A, "is no kind of node", lambda: fx.Graph().create_node("jump", "x")),
    (R, "trace() needs example_inputs", lambda: tn.jit.trace(nn.ReLU())),
    (R, "Freezing is currently only implemented for modules in eval mode",
     lambda: tn.jit.freeze(tn.jit.trace(nn.ReLU().train(), v))),
    (V, "Expected `mod` to be an instance of `nn.Module`, got", lambda: tn.export.export(3, (v,))),
    (A, "Cannot create Dim with inconsistent min=3, max=2",
     lambda: tn.export.Dim("n", min=3, max=2)),
    (V, "Unsupported library kind: 'SOME'", lambda: tn.library.Library("words_a", "SOME")),
    (R, "a library of kind IMPL only adds kernels",
     lambda: tn.library.Library("words_b", "IMPL").define("g(Tensor x) -> Tensor")),
    (V, "a name is of the form 'namespace::name', not 'alone'",
     lambda: tn.library.custom_op("alone", mutates_args=())(lambda x: x)),
    (V, "hub: expected 'owner/name[:ref]', not 'abc'", lambda: tn.hub.load("abc", "m")),
    (V, "Unknown source: 'web'. Allowed values: 'github' | 'local'",
     lambda: tn.hub.load("a/b", "m", source="web")),
    (R, "jagged layout only supports dim=1",
     lambda: tn.nested.narrow(f, 0, at, at, layout=tn.jagged)),
    (V, "data.size() must equal mask.size()", lambda: tn.masked.masked_tensor(f, v > 0)),
    (R, "dim=0 appears twice", lambda: tn.masked.sum(f, (0, 0), mask=f > 0)),
    (V, "isdtype: kind is one of",
     lambda: f.__array_namespace__().isdtype(tn.float32, "number")),
]  # fmt: skip
PICTURES: list[Refusal] = [
    (V, "Unsupported Bounding Box Conversions for given in_fmt abc and out_fmt xyxy",
     lambda: vision_ops.box_convert(tn.ones(1, 4), "abc", "xyxy")),
    (V, "Invalid Value for arg 'reduction': 'some",
     lambda: vision_ops.sigmoid_focal_loss(v, v, reduction="some")),
    (A, "The boxes tensor shape is not correct as Tensor[K, 5]",
     lambda: vision_ops.roi_align(image[None], tn.ones(1, 4), 2)),
    (V, "brightness_factor (-1) is not non-negative", lambda: TF.adjust_brightness(image, -1)),
    (V, "hue_factor (0.6) is not in [-0.5, 0.5]", lambda: TF.adjust_hue(image, 0.6)),
    (V, "num_output_channels should be either 1 or 3", lambda: TF.rgb_to_grayscale(image, 2)),
    (E, "Input should be PIL Image", lambda: TF.to_grayscale(image)),
    (V, "kernel_size should have odd and positive integers",
     lambda: TF.gaussian_blur(image, [2, 3])),
    (V, "sigma should have positive values", lambda: TF.gaussian_blur(image, [3, 3], [0.0, 1.0])),
    (E, "pic should be PIL Image. Got", lambda: TF.pil_to_tensor(image)),
    (E, "pic should be PIL Image or ndarray. Got", lambda: TF.to_tensor(image)),
    (E, "img should be Tensor Image. Got", lambda: TF.normalize(np.zeros(3), [0.0], [1.0])),
    (V, "std evaluated to zero after conversion to", lambda: TF.normalize(image, [0.0], [0.0])),
    (V, "Size must be an int or a 1 or 2 element tuple/list, not",
     lambda: TF.resize(image, [1, 2, 3])),
    (V, "Padding must be an int or a 1, 2, or 4 element tuple, not",
     lambda: TF.pad(image, [1, 2, 3])),
    (V, "must be strictly greater than the requested size for the smaller edge size = 4",
     lambda: TF.resize(image, 4, max_size=4)),
    (V, "pic should not have > 4 channels. Got 5 channels",
     lambda: TF.to_pil_image(tn.zeros(5, 2, 2))),
    (E, "pic should be Tensor or ndarray. Got", lambda: TF.to_pil_image([1])),
    (R, "The cast from", lambda: TF.convert_image_dtype(image, tn.int64)),
    (E, "Size should be int or sequence. Got", lambda: T.Resize(1.5)),
    (E, "padding should be numbers, not a str", lambda: T.Pad("a")),
    (E, "fill should be numbers, not a", lambda: T.Pad(1, fill="a")),
    (E, "Argument lambd should be callable, got 'int'", lambda: T.Lambda(3)),
    (V, "If degrees is a single number, it must be positive", lambda: T.RandomRotation(-1)),
    (V, "If brightness is a single number, it must be non negative",
     lambda: T.ColorJitter(brightness=-1)),
    (V, "Kernel size value should be an odd and positive number", lambda: T.GaussianBlur(2)),
    (V, "Unknown model net", lambda: tn.vision.models.get_model("net")),
    (V, "Invalid backend 'cv'. Options are 'PIL'", lambda: tn.vision.set_image_backend("cv")),
]  # fmt: skip
ITEM = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
FILES: list[Refusal] = [
    (R, "safetensors: the header has a key twice",
     safetensors(b'{"a":%s,"a":%s}' % ((json.dumps(ITEM).encode(),) * 2), bytes(4))),
    (R, "has the unknown dtype 'F9'", safetensors({"a": ITEM | {"dtype": "F9"}}, bytes(4))),
    (R, "lies outside of the file", safetensors({"a": ITEM | {"data_offsets": [4, 0]}}, bytes(4))),
    (R, "has no valid data_offsets", safetensors({"a": ITEM | {"data_offsets": [0]}}, bytes(4))),
    (R, "the tensors take 4 bytes, the file holds 8", safetensors({"a": ITEM}, bytes(8))),
    (R, "__metadata__ is no dict from text to text",
     safetensors({"__metadata__": {"a": 1}, "b": ITEM}, bytes(4))),
    (R, "the header is no JSON", safetensors(b'{"a":', b"")),
    (R, "the header is no UTF-8", safetensors(b'{"\xff":1}', b"")),
    (E, "is a defaultdict whose factory is no plain type",
     lambda: tn.save(defaultdict(lambda: 3), io.BytesIO())),
    (E, "save(): expected a path or a file to write, not int", lambda: tn.save(v, 3)),
    (E, "load(): expected a path or a file to read, not int", lambda: tn.load(3)),
    (V, "load(): mmap=True needs a path", lambda: tn.load(io.BytesIO(b""), mmap=True)),
]  # fmt: skip
CASES = by_name(
    number=NUMBERS, loader=LOADERS, graph=GRAPHS, picture=PICTURES, file=FILES,
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_refused_by_the_check_that_is_meant(name: str) -> None:
    check(CASES[name])
