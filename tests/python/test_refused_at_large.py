"""What is refused in rooms of all kinds, each with the words that only this check says; where
PyTorch has the call, its class of error is PyTorch's."""

from __future__ import annotations

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tenon as tn
from refusals import Refusal, by_name, check, check_beside, part, private
from tenon import onnx
from tenon._torch._dynamo import exc
from tenon.utils.tensorboard import _media
from tenon.vision import models
from tenon.vision.transforms import functional as pictures

Call = Callable[[Any], Any]
grid_of = part(tn, "ao", "quantization", "quantize").grid_of


def attention(lib: Any, key: int, value: int) -> Any:
    made = lib.nn.MultiheadAttention(4, 1)
    return made(lib.ones(3, 1, 4), lib.ones(*[1] * (key - 1), 4), lib.ones(*[1] * (value - 1), 4))


def per_sample(lib: Any, module: Any = None, **given: Any) -> Any:
    made = part(lib, "nn", "utils", "_per_sample_grad")
    return made.call_for_per_sample_grads(lib.nn.Linear(1, 1) if module is None else module,
                                          **given)  # fmt: skip


def with_samples(lib: Any) -> Any:
    net = lib.nn.Linear(1, 1)
    net.weight.grad_sample = lib.ones(1, 1, 1)
    return net


def parametrized(lib: Any, original: Any) -> Any:
    class Turned(lib.nn.Module):
        def forward(self, *parts: Any) -> Any:
            return parts[0]

        def right_inverse(self, x: Any) -> Any:
            return original

    net = lib.nn.Linear(1, 1)
    return part(lib, "nn", "utils", "parametrize").register_parametrization(net, "weight", Turned())


def pruned_twice(lib: Any) -> Any:
    prune = part(lib, "nn", "utils", "prune")
    one, two = prune.L1Unstructured(1), prune.L1Unstructured(1)
    one._tensor_name, two._tensor_name = "weight", "bias"
    return prune.PruningContainer(one).add_pruning_method(two)


def called_with(lib: Any, given: list[str]) -> Any:
    net = lib.nn.Linear(1, 1)
    stateless = part(lib, "nn", "utils", "stateless")
    with stateless._reparametrize_module(net, {n: lib.ones(1, 1) for n in given}, strict=True):
        return None


def fused(lib: Any, kinds: list[str], training: bool = False) -> Any:
    made = {"conv": lib.nn.Conv2d(1, 1, 1), "norm": lib.nn.BatchNorm2d(1),
            "relu": lib.nn.ReLU(), "tanh": lib.nn.Tanh()}  # fmt: skip
    net = lib.nn.Sequential(*[made[k] for k in kinds]).train(training)
    return part(lib, "ao", "quantization").fuse_modules(net, [[str(i) for i in range(len(kinds))]])


SHARED: dict[str, tuple[str, Call]] = {
    "scan from nothing": (
        "scan() operator requires init leaves.",
        lambda t: private(t, "_higher_order_ops", "scan").scan(lambda c, x: (c, x), [], t.ones(2)),
    ),
    "map over numbers": (
        "Mapped xs can only consist of tensors. Got xs [3].",
        lambda t: private(t, "_higher_order_ops", "map").map(lambda x: x, 3),
    ),
    "edges and a range": (
        "bins that are edges leave no range to give",
        lambda t: t.histogram(t.ones(3), t.tensor([0.0, 1.0]), range=(0.0, 1.0)),
    ),
    "apply to a text": (
        "apply_: callable must return numbers, not 'a'",
        lambda t: t.ones(2).apply_(lambda v: "a"),
    ),
    "function of a model with buffers": (
        "make_functional(model): `model` has buffers. Please use make_functional_with_buffers",
        lambda t: private(t, "_functorch", "make_functional").make_functional(t.nn.BatchNorm1d(1)),
    ),
    "index of the processor": (
        "Expected a non cpu device, but got: cpu",
        lambda t: private(t, "_utils")._get_device_index("cpu"),
    ),
    "no accelerator": (
        "Cannot access accelerator device when none is available.",
        lambda t: t.accelerator.current_device_index(),
    ),
    "fused with a tanh": ("Cannot fuse modules: ", lambda t: fused(t, ["conv", "tanh"])),
    "fused in the other order": ("Cannot fuse modules: ", lambda t: fused(t, ["relu", "conv"])),
    "inverse of an oblong": (
        "prod(self.shape[ind:]) == prod(self.shape[:ind]), but got 6 != 4",
        lambda t: t.linalg.tensorinv(t.ones(4, 2, 3), 1),
    ),
    "solution of an oblong": (
        "prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got 6 != 4",
        lambda t: t.linalg.tensorsolve(t.ones(4, 2, 3), t.ones(4)),
    ),
    "pseudo-inverse of a Hermitian oblong": (
        "linalg.eigh: A must be batches of square matrices, but they are 2 by 3 matrices",
        lambda t: t.linalg.pinv(t.ones(2, 3), hermitian=True),
    ),
    "keys of two dimensions": (
        "For batched (3-D) `query`, expected `key` and `value` to be 3-D but found 2-D and 3-D",
        lambda t: attention(t, 2, 3),
    ),
    "values of two dimensions": (
        "For batched (3-D) `query`, expected `key` and `value` to be 3-D but found 3-D and 2-D",
        lambda t: attention(t, 3, 2),
    ),
    "lengths that are not whole": (
        "ctc_loss: input_lengths must be integral, but got tenon.float32",
        lambda t: t.nn.functional.ctc_loss(
            t.zeros(4, 1, 2), t.tensor([[1]]), t.tensor([4.0]), t.tensor([1])
        ),
    ),
    "lengths of targets that are not whole": (
        "ctc_loss: target_lengths must be integral, but got tenon.float64",
        lambda t: t.nn.functional.ctc_loss(
            t.zeros(4, 1, 2), t.tensor([[1]]), t.tensor([4]), t.tensor([1.0]).double()
        ),
    ),
    "copied": (
        ".to() does not accept copy argument",
        lambda t: t.nn.Linear(1, 1).to(t.float64, False, True),
    ),
    "copied by name": (
        ".to() does not accept copy argument",
        lambda t: t.nn.Linear(1, 1).to(t.float64, copy=True),
    ),
    "samples of a number": (
        "Can only make Expanded Weights of Tensors, got int",
        lambda t: part(t, "nn", "utils", "_expanded_weights").ExpandedWeight(3, 2, "sum"),
    ),
    "samples of a function": (
        "Module passed must be nn.Module, got builtin_function_or_method",
        lambda t: per_sample(t, len),
    ),
    "samples that are there": (
        "Current Expanded Weights accumulates the gradients, which will be incorrect for multiple",
        lambda t: per_sample(t, with_samples(t)),
    ),
    "originals of a number": (
        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got int",
        lambda t: parametrized(t, 3),
    ),
    "originals of numbers": (
        "Got element 1 of the sequence with type int.",
        lambda t: parametrized(t, [t.ones(1, 1), 3]),
    ),
    "pruned elsewhere": (
        "Can only add pruning methods acting on the parameter named 'weight'",
        pruned_twice,
    ),
    "parts that are missing": (
        "Error(s) in reparametrizing for Linear:\n\tMissing key(s): 'bias'.",
        lambda t: called_with(t, ["weight"]),
    ),
    "parts that are not there": (
        "Error(s) in reparametrizing for Linear:\n\tUnexpected key(s): 'gain'.",
        lambda t: called_with(t, ["weight", "bias", "gain"]),
    ),
    "numbers without gradients": (
        "requires_grad=True",
        lambda t: part(t, "testing").make_tensor(
            2, dtype=t.int64, device="cpu", requires_grad=True
        ),
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_refused_beside(name: str) -> None:
    check_beside(*SHARED[name])


def looked_at(x: tn.Tensor) -> tn.Tensor:
    return x + 1 if x.sum() > 0 else x


def lengths_of(boxes: Any) -> Any:
    return tn._torch._dynamo.export(looked_at)(boxes)


A, E, N, R, V = AssertionError, TypeError, NotImplementedError, RuntimeError, ValueError
ROOMS: list[Refusal] = [
    (R, "to_sparse() makes sparse layouts, not 3", lambda: tn.ones(2).to_sparse(layout=3)),
    (R, "reduction is 0 (none), 1 (mean) or 2 (sum), not 3",
     lambda: tn.kl_div(tn.zeros(2), tn.ones(2), 3)),
    (R, "reduction is 0 (none), 1 (mean) or 2 (sum), not -1",
     lambda: tn.kl_div(tn.zeros(2), tn.ones(2), -1)),
    (exc.Unsupported, "_dynamo.export: a tensor's value was looked at: ",
     lambda: lengths_of(tn.ones(2))),
    (N, "norms are folded in eval mode: call model.eval() first, or fuse_modules_qat",
     lambda: fused(tn, ["conv", "norm"], True)),
    (V, "layers are of 8 bits, not of", lambda: grid_of(SimpleNamespace(
        calculate_qparams=lambda: (tn.ones(1), tn.zeros(1)), quant_max=300, quant_min=0,
        dtype=tn.qint32))),
    (V, "Attempted to use an uninitialized parameter in Tensor.__len__. This error happens when",
     lambda: len(tn.nn.parameter.UninitializedParameter())),
    (E, "invalid argument type for dim parameter", lambda: tn.nn.Unflatten(1.5, (2, 3))),
    (V, "drop_last=True and uneven='pad' contradict each other",
     lambda: tn.utils.data.DistributedSampler([1, 2], 2, 0, drop_last=True, uneven="pad")),
    (V, "an image has 1, 3 or 4 channels, not 2",
     lambda: _media.bytes_of_image(np.zeros((2, 2, 2)), "HWC")),
    (V, "blocks length should be 3 instead of 2",
     lambda: models.GoogLeNet(blocks=[tn.nn.Linear, tn.nn.Linear])),
    (A, "Wrong image height! Expected 32 but got 16!", lambda: patches(16, 32)),
    (A, "Wrong image width! Expected 32 but got 16!", lambda: patches(32, 16)),
    (V, "Two sizes and two sigmas are needed, not [3, 3, 3]",
     lambda: pictures.gaussian_blur(tn.ones(1, 4, 4), [3, 3, 3])),
    (V, "Two sizes and two sigmas are needed, not [3, 3] and [1.0, 1.0, 1.0]",
     lambda: pictures.gaussian_blur(tn.ones(1, 4, 4), 3, [1.0, 1.0, 1.0])),
    (onnx.OnnxExporterError, "dynamic_axes needs tensors as arguments; use dynamic_shapes",
     lambda: onnx.export(Sums(), ([tn.ones(2), tn.ones(2)],), io.BytesIO(), input_names=["a", "b"],
                         dynamic_axes={"a": [0]})),
]  # fmt: skip


class Sums(tn.nn.Module):
    def forward(self, parts: list[tn.Tensor]) -> tn.Tensor:
        return parts[0] + parts[1]


def patches(height: int, width: int) -> Any:
    made = models.VisionTransformer(32, 16, 1, 1, 4, 4, num_classes=2)
    return made(tn.ones(1, 3, height, width))


CASES = by_name(room=ROOMS)


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    check(CASES[name])
