"""Tensors as Python sees them, beyond the extension's type: methods, text, pickling, settings.

Programs import two names from here, as from PyTorch's module of this name.
"""

from tenon._C import Tensor
from tenon._tensor.reduce import _rebuild_from_type_v2

__all__ = ["Tensor", "_rebuild_from_type_v2"]
