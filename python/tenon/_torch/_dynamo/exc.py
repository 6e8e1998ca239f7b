"""Errors of PyTorch's tracer, which programs name in `except`."""

from tenon._program.errors import (
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    InternalTorchDynamoError,
    InvalidBackend,
    RecompileError,
    ResetRequired,
    SkipFrame,
    TorchDynamoException,
    TorchRuntimeError,
    UncapturedHigherOrderOpError,
    Unsupported,
    UserError,
    UserErrorType,
)

__all__ = [
    "BackendCompilerFailed", "FailOnRecompileLimitHit", "InternalTorchDynamoError",
    "InvalidBackend", "RecompileError", "ResetRequired", "SkipFrame", "TorchDynamoException",
    "TorchRuntimeError", "UncapturedHigherOrderOpError", "Unsupported", "UserError",
    "UserErrorType",
]  # fmt: skip
