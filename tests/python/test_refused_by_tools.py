"""What splitting, quantization, hooks, futures, graphs, launched processes and archives refuse,
each with the words that only this check says; where PyTorch has the call, its class of error is
PyTorch's."""

from __future__ import annotations

import ast
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tenon as tn
from refusals import Refusal, by_name, check, check_beside, part, private
from tenon import build_plugin, onnx
from tenon._plugin import command, opcheck
from tenon._program import script_words
from tenon._program.errors import Unsupported
from tenon._torch._functorch import partitioners
from tenon.distributed import run as launch
from tenon.distributed.fsdp import _optim_state
from tenon.distributed.pipelining import stage
from tenon.fx.experimental.proxy_tensor import make_fx
from tenon.fx.passes.utils.matcher_utils import SubgraphMatcher
from tenon.io import safetensors, unpickle
from tenon.io.zip_reader import Archive, PyTorchFileReader
from tenon.nn.attention.varlen import varlen_attn
from tenon.utils import _pytree

Call = Callable[[Any], Any]


def chunks(lib: Any, shapes: list[tuple[int, ...]], dim: int, count: int) -> Any:
    return lib._chunk_cat([lib.ones(s) for s in shapes], dim, count)


def hooked(lib: Any, full_first: bool) -> Any:
    layer = lib.nn.Linear(2, 2)
    kinds = [layer.register_backward_hook, layer.register_full_backward_hook]
    for register in reversed(kinds) if full_first else kinds:
        register(lambda *_: None)


def loaded(lib: Any, entries: dict[str, tuple[int, ...]]) -> Any:
    return lib.nn.Linear(2, 3).load_state_dict({k: lib.ones(s) for k, s in entries.items()})


def finished_twice(lib: Any) -> Any:
    future = lib.futures.Future()
    future.set_result(1)
    future.set_result(2)


def batched(lib: Any, shape: tuple[int, ...] | None) -> Any:
    x = lib.ones(3, requires_grad=True)
    given = None if shape is None else lib.ones(shape)
    return lib.autograd.grad(x * 2, x, given, is_grads_batched=True)


def replaced(lib: Any, pattern: Callable[..., Any], replacement: Callable[..., Any]) -> Any:
    fx = part(lib, "fx")
    return fx.replace_pattern(fx.symbolic_trace(lambda x: x.relu() + x), pattern, replacement)


def without_attribute(lib: Any) -> Any:
    fx = part(lib, "fx")
    graph = fx.Graph()
    graph.output(graph.get_attr("weight"))
    module = fx.GraphModule({"weight": lib.ones(2)}, graph)
    del module.weight
    return fx.Interpreter(module).run()


def post_hook(lib: Any) -> Any:
    layer = lib.nn.Linear(2, 2)
    layer.register_load_state_dict_post_hook(lambda *_: "changed")
    return layer.load_state_dict(layer.state_dict())


SHARED: dict[str, tuple[str, Call]] = {
    "sections twice": ("tensor_split() got", lambda t: t.tensor_split(t.ones(4), 2, sections=2)),
    "positions of bytes": (
        "to have dtype of long",
        lambda t: t.tensor_split(t.ones(4), t.tensor([1], dtype=t.int32)),
    ),
    "no chunks": ("positive num_chunks", lambda t: chunks(t, [(2, 2)], 0, 0)),
    "chunks of nothing": ("a non-empty input tensor list", lambda t: chunks(t, [], 0, 1)),
    "chunks from the end": ("non-negative dim when", lambda t: chunks(t, [(2, 2), (2,)], -1, 1)),
    "an empty chunk": ("non-empty tensor", lambda t: chunks(t, [(2, 2), (0, 2)], 0, 1)),
    "chunks of few dimensions": ("dim < ndim", lambda t: chunks(t, [(2, 2), (2,)], 1, 1)),
    "chunks of other rows": ("same sizes of 0", lambda t: chunks(t, [(2, 2), (3, 2)], 1, 1)),
    "grid of floats": (
        "expected qint8, quint8 or qint32",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.1, 0, t.float32),
    ),
    "axis behind the last": (
        "axis 2 of 2 dimensions",
        lambda t: t.quantize_per_channel(t.ones(2, 2), t.ones(2), t.zeros(2), 2, t.qint8),
    ),
    "gradients that are batched of none": (
        "is_grads_batched needs grad_outputs",
        lambda t: batched(t, None),
    ),
    "gradients that are a batch of numbers": (
        "grad_output[0] has a shape of []",
        lambda t: batched(t, (3,)),
    ),
    "a backward hook of the other kind": ("both regular", lambda t: hooked(t, full_first=False)),
    "a full hook before": ("both regular", lambda t: hooked(t, full_first=True)),
    "state of another size": (
        "Error(s) in loading state_dict for Linear:\n\tsize mismatch for weight",
        lambda t: loaded(t, {"weight": (2, 2), "bias": (3,)}),
    ),
    "state that lacks something": (
        'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "bias". ',
        lambda t: loaded(t, {"weight": (3, 2)}),
    ),
    "state with too much": (
        'Unexpected key(s) in state_dict: "more". ',
        lambda t: loaded(t, {"weight": (3, 2), "bias": (3,), "more": (1,)}),
    ),
    "a hook's value": ("not expected to return new values", post_hook),
    "a future's second value": ("the result was set before", finished_twice),
    "masked of another layout": (
        "expects strided tensor",
        lambda t: t.masked.softmax(t.eye(2).to_sparse(), 0, mask=t.ones(2, 2).bool()),
    ),
    "arguments of a replacement": (
        "the pattern takes 1 arguments, and its replacement 2",
        lambda t: replaced(t, lambda x: x.relu(), lambda x, y: x + y),
    ),
    "values of a replacement": (
        "the pattern returns 1 values, and its replacement 2",
        lambda t: replaced(t, lambda x: x.relu(), lambda x: (x, x)),
    ),
    "an attribute that is gone": ("nonexistent target weight", without_attribute),
    "a trace of the compiler": (
        "TracingContext",
        lambda t: private(t, "_guards").TracingContext.get(),
    ),
    "a grid's zero above its numbers": (
        "is above upper bound",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.1, 300, t.quint8),
    ),
    "a grid's zero below its numbers": (
        "below lower bound",
        lambda t: t.quantize_per_tensor(t.ones(2), 0.1, -1, t.quint8),
    ),
    "sparse layouts with blocks that have none": (
        "takes no blocksize",
        lambda t: t.ones(4, 4).to_sparse(layout=t.sparse_csc, blocksize=(2, 2)),
    ),
    "a diagonal twice": (
        "has a diagonal twice",
        lambda t: t.sparse.spdiags(t.ones(2, 3), t.tensor([1, 1]), (3, 4)),
    ),
    "what was not scripted": (
        "Freezing expects a ScriptModule as input",
        lambda t: t.jit.freeze(t.nn.Linear(1, 1).eval()),
    ),
    "a norm of spectra that is not there": (
        "spectral_norm of 'weight' not found in Linear(in_features=1,",
        lambda t: t.nn.utils.remove_spectral_norm(t.nn.Linear(1, 1)),
    ),
    "a norm of weights that is not there": (
        "weight_norm of 'bias' not found in Linear(in_features=1,",
        lambda t: t.nn.utils.remove_weight_norm(t.nn.Linear(1, 1), "bias"),
    ),
    "scores of three places": (
        "Expected 4 or 5 positional args, got 3",
        lambda t: part(t, "nn", "attention", "flex_attention").create_mask(
            lambda b, h, q: q >= 0, 1, 1, 2, 2, "cpu"
        ),
    ),
    "a module's signature": ("__signature__", lambda t: t.nn.Linear.__signature__),
    "a trace of a number": (
        "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from",
        lambda t: t.jit.trace(lambda x: 3, t.ones(2)),
    ),
    "a share of no time": (
        "expected a part of 0 us, got",
        lambda t: part(t, "autograd", "profiler_util")._format_time_share(1.0, 0.0),
    ),
}


@pytest.mark.parametrize("name", SHARED)
def test_refused_beside(name: str) -> None:
    check_beside(*SHARED[name])


def weights(**options: Any) -> Any:
    quantization = tn.ao.quantization
    observer = quantization.MinMaxObserver
    if "ch_axis" in options:
        observer = quantization.PerChannelMinMaxObserver
    layer = tn.nn.Linear(2, 2)
    layer.qconfig = quantization.QConfig(quantization.MinMaxObserver, observer.with_args(**options))
    return tn.ao.nn.quantized.dynamic.Linear.from_float(layer)


def lengths(*ends: int, **options: Any) -> Any:
    q = tn.ones(4, 1, 2)
    starts, others = tn.tensor([0, 2, 4]), tn.tensor(ends)
    return varlen_attn(q, q, q, starts, others, 2, 2, **options)


def broken(x: Any) -> Any:
    private(tn, "_dynamo").graph_break()
    return x + 1


def parsed(text: str) -> Any:
    """The first statement of a text."""
    return ast.parse(text).body[0]


def replaced_vmap() -> Any:
    """vmap while a package has put a function of its own in the place of a part of it."""
    parts = private(tn, "_functorch", "vmap")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parts, "_process_batched_inputs", half_traced)
        return tn.vmap(half_traced, chunk_size=1)(x)


def of_the_other_pass() -> Any:
    """A graph that is to be cut where it reads what it was not given."""
    graph = tn.fx.Graph()
    graph.output((graph.placeholder("a"),))
    module = tn.fx.GraphModule({}, graph)
    return partitioners._extract(module, [], module.graph.output_node().args[0])


def half_traced(x: Any) -> Any:
    return x


def archive(path: Path, end: bytes) -> Archive:
    """A file of zip64 whose end is this."""
    path.write_bytes(bytes(100) + end + struct.pack("<4s4H2LH", b"PK\5\6", *[0xFFFF] * 4, 0, 0, 0))
    with open(path, "rb") as file:
        return Archive(file)


V, R, E, N = ValueError, RuntimeError, TypeError, NotImplementedError
S, NO = SystemExit, frozenset[str]()
x = tn.ones(2, 2)
TOOLS: list[Refusal] = [
    (V, "stream is None", lambda: x.to_device("cpu", stream=1)),
    (N, "attention with its sums has no dropout",
     lambda: tn.ops.aten._scaled_dot_product_flash_attention_for_cpu(x, x, x, 0.5)),
    (V, "symmetric grids of qint8", lambda: weights(dtype=tn.qint8, qscheme=tn.per_tensor_affine)),
    (V, "symmetric grids of qint8",
     lambda: weights(dtype=tn.quint8, qscheme=tn.per_tensor_symmetric)),
    (V, "along their first dimension (ch_axis=0)",
     lambda: weights(dtype=tn.qint8, qscheme=tn.per_channel_symmetric, ch_axis=1)),
    (V, "cu_seq_k has 1 sequences, cu_seq_q 2", lambda: lengths(0, 4)),
    (V, "cu_seq_k must rise from 0 to at most 4", lambda: lengths(0, 3, 2)),
    (V, "cu_seq_k must rise from 0 to at most 4", lambda: lengths(0, 2, 5)),
    (R, "jit.save: half_traced was not traced", lambda: tn.jit.save(half_traced, io.BytesIO())),
    (N, 'a decomposition_table with tracing_mode="symbolic"',
     lambda: make_fx(half_traced, {tn.ops.aten.relu.default: half_traced}, "symbolic")),
    (N, "make_fx: arguments are tensors, or containers of them",
     lambda: make_fx(lambda a: a[0])([x, 3])),
    (V, "the pattern returns nothing that it computes",
     lambda: SubgraphMatcher(tn.fx.symbolic_trace(lambda a: a).graph)),
    (onnx.OnnxExporterError, "onnx.export writes opset",
     lambda: onnx.export(tn.nn.ReLU(), (x,), io.BytesIO(), opset_version=99)),
    (N, "gradcheck: sparse inputs are checked with masked=True alone",
     lambda: tn.autograd.gradcheck(lambda a: a.to_dense(), (x.double().to_sparse(),))),
    (N, "gradgradcheck: sparse inputs are checked with masked=True alone",
     lambda: tn.autograd.gradgradcheck(lambda a: a.to_dense(), (x.double().to_sparse(),))),
    (Unsupported, "graph_break()`: fullgraph=True", lambda: tn.compile(broken, fullgraph=True)(x)),
    (N, "vmap: chunk_size does not go with replaced parts of it", replaced_vmap),
    (AssertionError, "a is computed by the other pass", of_the_other_pass),
    (V, 'no manifest in nowhere has "library": "a.so"',
     lambda: command.check_manifest(Path("nowhere/a.so"))),
    (unpickle.UnsafeContentError, "only constructors of plain data may be called",
     lambda: unpickle.construct(unpickle.Budget(9), "text", ())),
    (unpickle.FileFormatError, "bad arguments of text: ",
     lambda: unpickle.construct(unpickle.Budget(9), unpickle.Global("text", int), ("a",))),
    (unpickle.FileFormatError, "the arguments of text are no tuple",
     lambda: unpickle.construct(unpickle.Budget(9), unpickle.Global("text", int), [1])),
    (E, "is no named tuple", lambda: _pytree._class_at("tenon:Tensor")),
    (N, "Tenon records programs without it", lambda: private(tn, "_guards").TracingContext()),
]  # fmt: skip
PROCESSES: list[Refusal] = [
    (V, "expected optim_input or optim, got both",
     lambda: _optim_state.optimizer_of(tn.nn.Linear(1, 1), [], tn.optim.SGD([x]))),
    (E, "cannot exchange tensors of tenon.uint16",
     lambda: stage._described([tn.ones(2, dtype=tn.uint16)])),
    (S, "launch: at least 3 of 2 processes", lambda: launch.main(
        ["--nproc-per-node=2", "--min-ranks=3", "nowhere.py"])),
    (S, "launch: at least 0 of 2 processes", lambda: launch.main(
        ["--nproc-per-node=2", "--min-ranks=0", "nowhere.py"])),
    (S, "2 processes, -1 restarts", lambda: launch.main(
        ["--nproc-per-node=2", "--max-restarts=-1", "nowhere.py"])),
]  # fmt: skip
WORDS: list[Refusal] = [
    (build_plugin.BuildError, "no table [project]", lambda: build_plugin._project(None)),
    (build_plugin.BuildError, "write the values into pyproject.toml",
     lambda: build_plugin._project({"name": "a", "version": "1", "dynamic": ["version"]})),
    (V, "a script's fields are names and numbers",
     lambda: script_words._Formats().format("{0.real}", 1)),
    (V, "a script's fields are names and numbers",
     lambda: script_words._Formats().format("{0[1]}", [1, 2])),
    (V, "Lambda is no function", lambda: script_words.check(parsed("lambda: 1").value, NO)),
    (V, "defaults stand beside the text",
     lambda: script_words.check(parsed("def f(a, b=[]): return a"), NO)),
    (V, "defaults stand beside the text",
     lambda: script_words.check(parsed("def f(a, *, b=a): return a"), NO)),
    (V, "save_file(): the header would take", lambda: safetensors.save(
        {"a": x}, {"text": "a" * safetensors.MAX_HEADER})),
]  # fmt: skip
CASES = by_name(tool=TOOLS, process=PROCESSES, word=WORDS)


@pytest.mark.parametrize("name", CASES)
def test_refused_with_words(name: str) -> None:
    check(CASES[name])


def test_the_end_of_a_large_archive(tmp_path: Path) -> None:
    """Its place is read, and the file is refused where nothing stands there."""
    right = struct.pack("<4sLQL", b"PK\6\7", 0, 0, 1)
    for end in (b"PK\6\6" + right[4:], right[:16] + struct.pack("<L", 2)):
        with pytest.raises(
            tn.serialization.FileFormatError, match="zip64 archive's end is damaged"
        ):
            archive(tmp_path / "a", end)
    with pytest.raises(tn.serialization.FileFormatError, match="directory does not fit the file"):
        archive(tmp_path / "a", right)


def test_a_record_that_is_not_there(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("a/one", b"1")
    reader = PyTorchFileReader(str(tmp_path / "a.zip"))
    assert reader.get_record("one") == b"1"
    with pytest.raises(RuntimeError, match="the file has no record 'two'"):
        reader.get_record("two")


def test_operators_whose_gradients_are_wrong() -> None:
    """opcheck says what an operator's backward lacks."""

    class Cut(tn.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: tn.Tensor) -> tn.Tensor:
            return a * 2

        @staticmethod
        def backward(ctx: Any, g: tn.Tensor) -> tn.Tensor:
            return g

    leaf = tn.ones(2, requires_grad=True)
    opcheck.test_autograd_registration(Cut.apply, (leaf,), {})
    with pytest.raises(opcheck.OpCheckError, match="no result requires grad although an argument"):
        opcheck.test_autograd_registration(lambda a: a.detach() * 2, (leaf,), {})
