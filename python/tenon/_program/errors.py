"""Errors that a compiler of programs raises, under PyTorch's names."""

from __future__ import annotations

from enum import Enum, auto

__all__ = [
    "BackendCompilerFailed", "FailOnRecompileLimitHit", "GuardOnDataDependentSymNode",
    "InternalTorchDynamoError", "InvalidBackend", "RecompileError", "ResetRequired", "SkipFrame",
    "TorchDynamoException", "TorchRuntimeError", "UncapturedHigherOrderOpError", "Unsupported",
    "UserError", "UserErrorType",
]  # fmt: skip


class TorchDynamoException(RuntimeError):
    """The base of the others."""


class Unsupported(TorchDynamoException):
    """A function that is no graph."""


class UserErrorType(Enum):
    """What is wrong with a program."""

    DYNAMIC_CONTROL_FLOW = auto()
    ANTI_PATTERN = auto()
    STANDARD_LIBRARY = auto()
    CONSTRAINT_VIOLATION = auto()
    DYNAMIC_DIM = auto()
    INVALID_INPUT = auto()
    INVALID_OUTPUT = auto()
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = auto()


class UserError(TorchDynamoException):
    """A program that cannot be exported as it is asked for."""

    def __init__(self, error_type: UserErrorType, msg: str, case_name: str | None = None) -> None:
        super().__init__(msg)
        self.error_type, self.message = error_type, msg


class InvalidBackend(TorchDynamoException):
    """There is no backend of that name."""


class GuardOnDataDependentSymNode(RuntimeError):
    """The course of a program depends on values of its tensors."""


class ConstraintViolationError(RuntimeError):
    """A size of the example is not what was said of it."""


# Of those that follow none is raised; programs name them in `except`.


class BackendCompilerFailed(TorchDynamoException):
    """A compiler's failure."""


class InternalTorchDynamoError(TorchDynamoException):
    """A failure of the tracer."""


class RecompileError(TorchDynamoException):
    """Another graph was needed where none was to be made."""


class ResetRequired(TorchDynamoException):
    """Graphs are left of something else."""


class TorchRuntimeError(TorchDynamoException):
    """An operator's error in a graph."""


class SkipFrame(TorchDynamoException):
    """A function that is left alone."""


class UncapturedHigherOrderOpError(TorchDynamoException):
    """A function of functions that is no graph."""


class FailOnRecompileLimitHit(Exception):
    """Too many graphs."""
