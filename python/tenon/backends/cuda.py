"""Settings that programs write for CUDA; they change nothing on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tenon.backends import _options


class _Matmul:
    """Precision of matrix products."""

    @property
    def allow_fp16_reduced_precision_reduction(self) -> bool:
        """Whether partial sums of a float16 product may be rounded to float16."""
        return bool(_options.get("TENON_CUDA_REDUCED_F16", 1))

    @allow_fp16_reduced_precision_reduction.setter
    def allow_fp16_reduced_precision_reduction(self, allow: bool) -> None:
        _options.put("reduced_f16", "TENON_CUDA_REDUCED_F16", bool(allow))

    @property
    def allow_bf16_reduced_precision_reduction(self) -> bool:
        """Whether partial sums of a bfloat16 product may be rounded to bfloat16."""
        return bool(_options.get("TENON_CUDA_REDUCED_BF16", 1))

    @allow_bf16_reduced_precision_reduction.setter
    def allow_bf16_reduced_precision_reduction(self, allow: bool) -> None:
        _options.put("reduced_bf16", "TENON_CUDA_REDUCED_BF16", bool(allow))

    @property
    def allow_tf32(self) -> bool:
        """Whether products of float32 may be computed in TF32."""
        return _options.text("TENON_CUDA_TF32") == "1"

    @allow_tf32.setter
    def allow_tf32(self, allow: bool) -> None:
        # The plugin reads the variable when it is loaded, which this must not do: a program may
        # still want to fork.
        import tenon

        _options.say("TENON_CUDA_TF32", int(bool(allow)))
        if any(p["name"] == "tenon-cuda" and p["active"] for p in tenon.plugins()):
            tenon.cuda._settings().allow_tf32(bool(allow))


matmul = _Matmul()


def is_built() -> bool:
    """Whether GPUs are part of this build."""
    return True


def _switch(name: str) -> tuple[Any, Any]:
    state = {"on": True}

    def enabled() -> bool:
        return state["on"]

    def enable(on: bool) -> None:
        state["on"] = bool(on)

    enabled.__name__ = f"{name}_enabled"
    enable.__name__ = f"enable_{name}"
    return enabled, enable


flash_sdp_enabled, enable_flash_sdp = _switch("flash_sdp")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _switch("mem_efficient_sdp")
math_sdp_enabled, enable_math_sdp = _switch("math_sdp")


def cudnn_sdp_enabled() -> bool:
    """Whether cuDNN may compute attention of half precision."""
    return bool(_options.get("TENON_CUDNN_SDP", 1))


def enable_cudnn_sdp(on: bool) -> None:
    """Lets cuDNN compute attention of half precision, or leaves it to our own kernel."""
    _options.put("cudnn_sdp", "TENON_CUDNN_SDP", bool(on))


@contextmanager
def sdp_kernel(*args: Any, **kwargs: Any) -> Iterator[None]:
    """A with statement, or a decorator, that names attention kernels; there is one here."""
    yield
