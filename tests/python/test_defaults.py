"""What arguments are where they are left out: PyTorch's numbers, texts and truth values."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any

import pytest
import stored
import tenon

MODULES = (
    "", ".accelerator", ".ao.quantization", ".autograd",
    ".autograd.functional", ".autograd.graph", ".autograd.profiler",
    ".compiler", ".distributed", ".distributed.checkpoint",
    ".distributed.fsdp", ".distributed.optim", ".distributed.pipelining", ".distributed.tensor",
    ".distributed.tensor.parallel", ".distributions", ".distributions.transforms", ".export",
    ".func", ".fx", ".hub", ".jit", ".library", ".masked", ".multiprocessing",
    ".nested", ".nn", ".nn.attention", ".nn.attention.flex_attention", ".nn.functional", ".nn.init",
    ".nn.parallel", ".nn.utils", ".nn.utils.parametrizations", ".nn.utils.parametrize",
    ".nn.utils.prune", ".nn.utils.rnn", ".nn.utils.stateless", ".onnx", ".optim",
    ".optim._functional",
    ".optim.lr_scheduler", ".optim.swa_utils", ".profiler", ".quasirandom", ".random",
    ".serialization", ".signal.windows", ".sparse", ".testing", ".utils._pytree",
    ".utils.benchmark", ".utils.checkpoint", ".utils.data",
    ".utils.flop_counter",
    ".ao.nn.intrinsic.qat", ".ao.nn.qat", ".ao.nn.quantized", ".ao.nn.quantized.dynamic",
    ".ao.quantization.quantize_fx", ".autograd.function", ".cuda", ".cuda.amp", ".cuda.comm",
    ".cuda.nccl", ".distributed._functional_collectives",
    ".distributed.algorithms.ddp_comm_hooks.post_localSGD_hook",
    ".distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    ".distributed.algorithms.model_averaging.averagers",
    ".distributed.algorithms.model_averaging.hierarchical_model_averager",
    ".distributed.checkpoint.staging", ".distributed.checkpoint.state_dict",
    ".distributed.fsdp.sharded_grad_scaler", ".distributed.fsdp.wrap", ".distributed.launcher",
    ".distributed.nn", ".distributed.pipelining.schedules", ".distributions.constraints",
    ".distributions.relaxed_bernoulli", ".distributions.relaxed_categorical", ".export.unflatten",
    ".fx.experimental.optimization", ".fx.experimental.proxy_tensor", ".fx.operator_schemas",
    ".fx.passes.infra.partitioner", ".fx.passes.pass_manager", ".fx.passes.split_module",
    ".fx.passes.split_utils", ".fx.passes.utils.common", ".fx.passes.utils.fuser_utils",
    ".fx.subgraph_rewriter", ".fx.traceback", ".nn._reduction", ".nn.attention.varlen", ".nn.grad",
    ".nn.modules.activation", ".nn.modules.module", ".nn.utils._named_member_accessor",
    ".nn.utils._per_sample_grad", ".nn.utils.spectral_norm", ".sparse._triton_ops_meta",
    ".utils._python_dispatch", ".utils._triton", ".utils.cpp_extension",
    ".utils.data.datapipes.iter", ".utils.data.datapipes.map",
)  # fmt: skip
# What is another default on purpose, or another word for the same.
OTHERS = {
    ("", "norm", "p"): "2 is the Frobenius norm of all elements",
    (".cuda", "graph.__init__", "capture_error_mode"): "other threads may go on meanwhile",
    (".hub", "load_state_dict_from_url", "weights_only"): "files from elsewhere run nothing",
    (".library", "opcheck", "test_utils"): "one of its tests is of a compiler that is not there",
}


def plain(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(plain(v) for v in value)
    return isinstance(value, bool | int | float | str)


def shown(value: Any) -> str:
    return f"({', '.join(map(shown, value))})" if isinstance(value, tuple | list) else repr(value)


def defaults(function: Any) -> dict[str, str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return {}
    found = {p.name: p.default for p in parameters if p.default is not p.empty}
    return {name: shown(value) for name, value in found.items() if plain(value)}


def functions(module: Any) -> Iterator[tuple[str, Any]]:
    """Those of a module and of its classes, each function where it is met first."""
    for name, thing in sorted(vars(module).items()):
        if name.startswith("_") or not callable(thing):
            continue
        if not inspect.isclass(thing):
            yield name, thing
            continue
        for key in ("__init__", "__call__", *sorted(k for k in vars(thing) if k[0] != "_")):
            member = inspect.getattr_static(thing, key, None)
            member = getattr(member, "__func__", member)
            if inspect.isfunction(member):
                yield f"{name}.{key}", member


@cache
def table(package: Any) -> dict[str, dict[str, dict[str, str]]]:
    """Of all modules, all functions of which any argument may be left out."""
    seen: set[int] = set()
    out: dict[str, dict[str, dict[str, str]]] = {}
    for name in MODULES:
        out[name] = {}
        for path, function in functions(importlib.import_module(f"{package.__name__}{name}")):
            if id(function) not in seen:
                seen.add(id(function))
                if got := defaults(function):
                    out[name][path] = got
    return out


def known(module: Any, path: str) -> dict[str, str]:
    """Our defaults of what PyTorch has at a path; none where we have nothing there."""
    found = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return defaults(found)


@pytest.mark.parametrize("name", MODULES)
def test_defaults_are_pytorchs(name: str) -> None:
    want = stored.of_torch(lambda torch: table(torch)[name])
    module = importlib.import_module(f"tenon{name}")
    asked = 0
    for path, values in want.items():
        mine = known(module, path)
        for argument, value in values.items():
            if argument in mine and (name, path, argument) not in OTHERS:
                asked += 1
                assert mine[argument] == value, f"{path}, {argument}"
    assert asked


# ---- Constants -----------------------------------------------------------------------------------

# What is another constant on purpose, or of another program, or counts.
OTHER_CONSTANTS = {
    "backend_list", "default_device_backend_map", "COMMON_NVCC_FLAGS", "git_version", "next_id",
}  # fmt: skip


def rooms() -> Iterator[str]:
    """The modules of Tenon that PyTorch may have, too."""
    for found in pkgutil.walk_packages(tenon.__path__, "tenon."):
        name = found.name.removeprefix("tenon")
        if "._" not in name and not name.startswith((".vision", ".array_api")):
            yield name


def constants_of(place: Any, where: str) -> Iterator[tuple[str, str]]:
    """Numbers, texts and truth values of a module or a class, and of the classes in it."""
    for name, value in sorted(vars(place).items(), key=lambda pair: pair[0]):
        if name.startswith("_"):
            continue
        if isinstance(value, Enum):
            value = value.value
        if plain(value):
            yield f"{where}.{name}", shown(value)
        elif inspect.isclass(value) and not inspect.isclass(place):
            yield from constants_of(value, f"{where}.{name}")


@cache
def constants(package: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ["", *rooms()]:
        try:
            place = importlib.import_module(f"{package.__name__}{name}")
        except ImportError:
            continue
        found |= dict(constants_of(place, name))
    return found


def test_constants_are_pytorchs() -> None:
    mine = constants(tenon)
    both = stored.of_torch(lambda torch: {k: v for k, v in constants(torch).items() if k in mine})
    shared = {k for k in both if k in mine and k.rpartition(".")[2] not in OTHER_CONSTANTS}
    assert {k: mine[k] for k in shared} == {k: both[k] for k in shared}
    assert len(shared) > 250


# ---- Operators, by their schemas -----------------------------------------------------------------

# Where functions are that operators are called by, and what the operators' names begin with there.
PLACES = (
    ("tenon", ""), ("tenon._C._ops", ""), ("tenon._C._nn", ""), ("tenon.nn.functional", ""),
    ("tenon.linalg", "linalg_"),
    ("tenon.special", "special_"), ("tenon.fft", "fft_"), ("tenon.sparse", "sparse_"),
)  # fmt: skip


def said(value: Any) -> bool:
    return value != [] and plain(value)


def schemas(torch: Any) -> dict[str, dict[str, list[Any]]]:
    """What arguments of PyTorch's operators are, in one of their forms each."""
    found: dict[str, dict[str, list[Any]]] = {}
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        for a in schema.arguments if space == "aten" else ():
            if a.has_default_value() and said(a.default_value):
                values = found.setdefault(name, {}).setdefault(a.name, [])
                if shown(a.default_value) not in values:
                    values.append(shown(a.default_value))
    return found


def alike(mine: Any, text: str) -> bool:
    """Whether a default is one that is written so; one number stands for one in each dimension."""
    value = eval(text)
    if isinstance(value, tuple) and not isinstance(mine, tuple | list):
        return all(alike(mine, shown(v)) for v in value)
    same = tuple(mine) == value if isinstance(value, tuple) else mine == value
    return same and isinstance(mine, bool) == isinstance(value, bool)


def test_defaults_of_operators_are_those_of_their_schemas() -> None:
    """Losses and bags aside: what they do is a word, or 0 where numbers are taken."""
    want, asked = stored.of_torch(schemas), 0
    places = [(name, attrgetter(name.removeprefix("tenon."))(tenon) if "." in name else tenon, pre)
              for name, pre in PLACES]  # fmt: skip
    for where, place, prefix in [*places, ("Tensor", tenon.Tensor, "")]:
        for name in sorted(n for n in dir(place) if not n.startswith("__")):
            function, values = getattr(place, name), want.get(prefix + name, {})
            try:
                parameters = inspect.signature(function).parameters if values else {}
            except (ValueError, TypeError):
                continue
            for argument, texts in values.items():
                mine = parameters[argument].default if argument in parameters else None
                word = argument == "reduction" or (name, argument) == ("embedding_bag", "mode")
                if mine is not None and said(mine) and not word:
                    asked += 1
                    assert any(alike(mine, v) for v in texts), f"{where}.{name}, {argument}: {mine}"
    assert asked > 700


@pytest.mark.parametrize(
    "name",
    "binary_cross_entropy_with_logits hinge_embedding_loss margin_ranking_loss triplet_margin_loss "
    "cosine_embedding_loss ctc_loss kl_div".split(),
)
def test_losses_by_numbers_are_not_reduced(name: str) -> None:
    assert inspect.signature(getattr(tenon, name)).parameters["reduction"].default == 0


# ---- What PyTorch has with TensorBoard alone, as its documentation says --------------------------

OF_EVENTS: dict[str, dict[str, Any]] = {
    "SummaryWriter.__init__": {
        "log_dir": None, "comment": "", "purge_step": None, "max_queue": 10, "flush_secs": 120,
        "filename_suffix": ""},
    "SummaryWriter.add_scalar": {
        "global_step": None, "walltime": None, "new_style": False, "double_precision": False},
    "SummaryWriter.add_scalars": {"global_step": None, "walltime": None},
    "SummaryWriter.add_histogram": {
        "global_step": None, "bins": "tensorflow", "walltime": None, "max_bins": None},
    "SummaryWriter.add_image": {"global_step": None, "walltime": None, "dataformats": "CHW"},
    "SummaryWriter.add_images": {"global_step": None, "walltime": None, "dataformats": "NCHW"},
    "SummaryWriter.add_figure": {"global_step": None, "close": True, "walltime": None},
    "SummaryWriter.add_video": {"global_step": None, "fps": 4, "walltime": None},
    "SummaryWriter.add_audio": {"global_step": None, "sample_rate": 44100, "walltime": None},
    "SummaryWriter.add_text": {"global_step": None, "walltime": None},
    "SummaryWriter.add_pr_curve": {
        "global_step": None, "num_thresholds": 127, "weights": None, "walltime": None},
    "SummaryWriter.add_hparams": {
        "hparam_domain_discrete": None, "run_name": None, "global_step": None},
    "SummaryWriter.add_graph": {
        "input_to_model": None, "verbose": False, "use_strict_trace": True},
    "SummaryWriter.add_embedding": {
        "metadata": None, "label_img": None, "global_step": None, "tag": "default",
        "metadata_header": None},
    "FileWriter.__init__": {"max_queue": 10, "flush_secs": 120, "filename_suffix": ""},
    "summary.scalar": {"new_style": False},
    "summary.histogram": {"bins": "tensorflow"},
    "summary.image": {"dataformats": "CHW"},
    "summary.audio": {"sample_rate": 44100},
    "summary.pr_curve": {"num_thresholds": 127, "weights": None},
}  # fmt: skip


@pytest.mark.parametrize("name", OF_EVENTS)
def test_defaults_of_event_files(name: str) -> None:
    function = attrgetter(name)(importlib.import_module("tenon.utils.tensorboard"))
    found = {p.name: p.default for p in inspect.signature(function).parameters.values()}
    assert {k: v for k, v in found.items() if v is not inspect.Parameter.empty} == OF_EVENTS[name]
