"""Names of PyTorch's extension module that programs and packages touch. `tenon run` adds them to
the extension module `tenon._C`, where it has none of that name."""

from __future__ import annotations

from typing import Any

from tenon import _C

_GLIBCXX_USE_CXX11_ABI = True


def _log_api_usage_once(event: str) -> None:
    """PyTorch's telemetry; nothing is recorded."""


def _get_tracing_state() -> None:
    """The trace that is being recorded: none, in PyTorch's sense of the word."""


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

    def __enter__(self) -> None:
        self._mode = _C.no_grad()
        self._mode.__enter__()

    def __exit__(self, *exc: object) -> None:
        self._mode.__exit__(*exc)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """What `Module.to` was asked for: device, dtype, non_blocking, memory_format."""
    from tenon.nn.modules import module

    return module._parse_to(*args, **kwargs)


def _is_alias_of(tensor: Any, other: Any) -> bool:
    """Whether both show the same memory."""
    return bool(tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def add() -> None:
    """Adds the names above, and the types of the script language, to the extension module."""
    import tenon
    from tenon._torch import jit_types
    from tenon._torch._functorch import _C_functorch

    _C._nn._parse_to = _parse_to
    _C._functorch = _C_functorch
    for name, value in jit_types.TYPES.items():
        value.__module__ = "torch"
        setattr(_C, name, value)
        setattr(tenon, name, value)
    for name, value in list(globals().items()):
        ours = getattr(value, "__module__", __name__) == __name__
        ours = ours or name == "_TensorMeta"
        if name not in ("add", "Any", "annotations") and not name.startswith("__") and ours:
            if not hasattr(_C, name):
                setattr(_C, name, value)
