"""Errors of PyTorch's tracer, which programs name in `except`; Tenon raises none of them."""


class TorchDynamoException(RuntimeError):
    """The base of the others."""


class Unsupported(TorchDynamoException):
    """A construct that cannot be traced."""


class UserError(Unsupported):
    """A construct that cannot be traced, with advice."""


class BackendCompilerFailed(TorchDynamoException):
    """A compiler's failure."""
