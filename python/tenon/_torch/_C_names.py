"""Names of PyTorch's extension module that programs and packages touch. `tenon run` adds them to
the extension module `tenon._C`, where it has none of that name."""

from __future__ import annotations

import contextlib
import enum
import importlib
import threading
from typing import Any

from tenon import _C

_GLIBCXX_USE_CXX11_ABI = True
# Libraries and devices that nothing here is built for.
_has_eigen_sparse = _has_kleidiai = _has_magma = _has_mkldnn_acl = _has_mps = _has_xpu = False


def _log_api_usage_once(event: str) -> None:
    """PyTorch's telemetry; nothing is recorded."""


def _get_tracing_state() -> None:
    """The trace that is being recorded: none, in PyTorch's sense of the word."""


def _is_tracing() -> bool:
    """Whether a trace is being recorded, in PyTorch's sense of the word."""
    from tenon import jit

    return bool(jit.is_tracing())


def _current_graph_task_id() -> int:
    """The number of the backward pass that runs, -1 for none."""
    return int(_C._current_pass()[0]) or -1


def _get_cudnn_enabled() -> bool:
    """Whether convolutions may use cuDNN."""
    from tenon.backends import cudnn

    return bool(cudnn.enabled)


def _are_functorch_transforms_active() -> bool:
    """Whether the caller runs inside vmap or grad."""
    from tenon import func

    return getattr(func, "_depth", 0) > 0


def _get_accelerator() -> Any:
    """The device that is not the CPU, the CPU where there is none."""
    from tenon import accelerator

    found = accelerator.current_accelerator()
    return _C.device("cpu") if found is None else found


def _get_default_device() -> str:
    """Where new tensors are made."""
    from tenon import get_default_device

    return str(get_default_device())


def _cuda_isInBadFork() -> bool:  # noqa: N802 - PyTorch's name
    """Whether CUDA was used before this process was forked from another."""
    return False


def _cuda_clearCublasWorkspaces() -> None:  # noqa: N802 - PyTorch's name
    """Frees workspaces of cuBLAS; they are part of the cached memory here."""


def _get_privateuse1_backend_name() -> str:
    """The name of a device that a plugin adds, while it has no name."""
    return "privateuseone"


def _setting(on: Any = None) -> bool:
    return False


# Switches of the script compiler's code generators: taken, and read as off.
_jit_set_profiling_executor = _jit_set_profiling_mode = _jit_set_texpr_fuser_enabled = _setting
_jit_set_nvfuser_enabled = _jit_set_nvfuser_guard_mode = _setting
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _setting
_jit_can_fuse_on_cpu = _jit_can_fuse_on_gpu = _setting


_TensorMeta = type(_C.Tensor)


class Graph:
    """The script compiler's graph, in annotations."""


class Value:
    """A value of that graph, in annotations."""


class _AutoDispatchBelowAutograd:
    """Inside it operators compute and nothing is recorded: kernels for Autograd call them so."""

    _depths = threading.local()

    @classmethod
    def inside(cls) -> bool:
        """Whether this thread is inside one."""
        return getattr(cls._depths, "value", 0) > 0

    def _deepen(self, by: int) -> None:
        self._depths.value = getattr(self._depths, "value", 0) + by

    def __enter__(self) -> None:
        self._mode = _C.no_grad()
        self._mode.__enter__()
        self._deepen(1)

    def __exit__(self, *exc: object) -> None:
        self._deepen(-1)
        self._mode.__exit__(*exc)


class DispatchKey(enum.Enum):
    """Kinds of kernels that a call may be kept from, or that a package has implementations for."""

    AutocastCPU = "cpu"
    AutocastCUDA = "cuda"
    AutocastXPU = "xpu"
    Autograd = "Autograd"
    CompositeExplicitAutograd = "CompositeExplicitAutograd"
    CompositeImplicitAutograd = "CompositeImplicitAutograd"
    Functionalize = "Functionalize"
    AutogradCPU = "AutogradCPU"
    AutogradCUDA = "AutogradCUDA"
    AutogradMeta = "AutogradMeta"
    CPU = "CPU"
    CUDA = "CUDA"
    Meta = "Meta"


class DispatchKeySet:
    """A set of them."""

    def __init__(self, *keys: DispatchKey) -> None:
        self._keys = frozenset(keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, *other._keys)

    def has(self, key: DispatchKey) -> bool:
        """Whether a key is among them."""
        return key in self._keys


class _ExcludeDispatchKeyGuard:
    """Inside it no kernels of these kinds run: autocast for the devices is off."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self._devices = [k.value for k in keys._keys if k.name.startswith("Autocast")]

    def __enter__(self) -> None:
        from tenon import amp

        self._off = contextlib.ExitStack()
        for device in filter(amp.is_autocast_available, self._devices):
            self._off.enter_context(amp.autocast(device, enabled=False))

    def __exit__(self, *exc: object) -> None:
        self._off.close()


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """What `Module.to` was asked for: device, dtype, non_blocking, memory_format."""
    from tenon.nn.modules import module

    return module._parse_to(*args, **kwargs)


def _is_alias_of(tensor: Any, other: Any) -> bool:
    """Whether both show the same memory."""
    return bool(tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


# Names that are the package's own under another name: looked up when they are asked for.
_ELSEWHERE = {
    "_TensorBase": "Tensor", "TensorBase": "Tensor", "_VariableFunctions": "_C._ops",
    "_LinAlgError": "linalg.LinAlgError", "_OutOfMemoryError": "OutOfMemoryError",
    "_linalg": "linalg", "_special": "special", "_fft": "fft", "_sparse": "sparse", "_cpu": "cpu",
    "_distributed_c10d": "distributed.distributed_c10d", "Future": "futures.Future",
    "ScriptModule": "jit.ScriptModule", "ScriptFunction": "jit.ScriptFunction",
    "ScriptObject": "_program.jit_names.ScriptObject",
    "StorageBase": "storage._StorageBase", "Stream": "Stream", "Event": "Event",
    "_infer_size": "broadcast_shapes",
    "DisableTorchFunction": "_C.DisableTorchFunctionSubclass",
    "_from_dlpack": "utils.dlpack.from_dlpack", "_to_dlpack": "utils.dlpack.to_dlpack",
    "_is_torch_function_mode_enabled": "overrides._mode_enabled",
    "_has_torch_function": "overrides.has_torch_function",
    "_set_grad_enabled": "autograd.grad_mode.set_grad_enabled",
    "_get_cpu_capability": "backends.cpu.get_cpu_capability",
    "_get_deterministic_algorithms": "are_deterministic_algorithms_enabled",
    "_set_deterministic_algorithms": "use_deterministic_algorithms",
    "_get_float32_matmul_precision": "get_float32_matmul_precision",
    "_set_float32_matmul_precision": "set_float32_matmul_precision",
    "_get_default_dtype": "get_default_dtype", "_set_default_dtype": "set_default_dtype",
    "_set_default_tensor_type": "set_default_tensor_type",
    "_get_warnAlways": "is_warn_always_enabled", "_set_warnAlways": "set_warn_always",
    "_show_config": "__config__.show", "_parallel_info": "__config__.parallel_info",
}  # fmt: skip
_PREFIXED = ("_linalg", "_special", "_fft")  # whose functions are called linalg_inv there


class Tag(enum.Enum):
    """What PyTorch's library notes about operators, for its compilers."""

    core = enum.auto()
    cudagraph_unsafe = enum.auto()
    data_dependent_output = enum.auto()
    dynamic_output_shape = enum.auto()
    flexible_layout = enum.auto()
    generated = enum.auto()
    inplace = enum.auto()
    inplace_view = enum.auto()
    maybe_aliasing_or_mutating = enum.auto()
    needs_contiguous_strides = enum.auto()
    needs_exact_strides = enum.auto()
    needs_fixed_stride_order = enum.auto()
    nondeterministic_bitwise = enum.auto()
    nondeterministic_seeded = enum.auto()
    out = enum.auto()
    out_variant = enum.auto()
    pointwise = enum.auto()
    pt2_compliant_tag = enum.auto()
    reduction = enum.auto()
    view_copy = enum.auto()


class _Functions:
    """The functions of one of the package's modules, called linalg_inv for linalg.inv."""

    def __init__(self, prefix: str, module: Any) -> None:
        self._prefix, self._module = prefix, module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name.removeprefix(self._prefix))


def _find(path: str) -> Any:
    import tenon

    found: Any = tenon
    for part in path.split("."):
        if hasattr(found, "__path__") and not hasattr(found, part):
            found = importlib.import_module(f"tenon.{path.rpartition('.')[0]}")
        else:
            found = getattr(found, part)
    return found


def _look_up(name: str) -> Any:
    """What the extension module answers for names that it has not."""
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'torch._C' has no attribute '{name}'", name=name, obj=_C)
    found = _find(_ELSEWHERE[name])
    if name in _PREFIXED:
        found = _Functions(name.removeprefix("_") + "_", found)
    setattr(_C, name, found)
    return found


def add() -> None:
    """Adds the names above, and the types of the script language, to the extension module."""
    import tenon
    from tenon._torch import functions, jit_types
    from tenon._torch._functorch import _C_functorch

    _C._nn._parse_to = _parse_to
    _C.__getattr__ = _look_up
    _C._functorch = _C_functorch
    for name, value in jit_types.TYPES.items():
        value.__module__ = "torch"
        setattr(_C, name, value)
        setattr(tenon, name, value)
    for name, value in functions.all_of_them().items():
        if name not in vars(tenon):
            setattr(tenon, name, value)
    tenon.Tag = Tag
    tenon.StorageBase = tenon.storage._StorageBase
    for name, value in list(globals().items()):
        ours = getattr(value, "__module__", __name__) == __name__
        ours = ours or name == "_TensorMeta"
        if name not in ("add", "Any", "annotations") and not name.startswith("__") and ours:
            if not hasattr(_C, name):
                setattr(_C, name, value)
