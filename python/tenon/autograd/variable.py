"""Variable under PyTorch's module: what tensors were called while only some had gradients."""

from tenon.autograd import Variable

__all__ = ["Variable"]
