"""Where packages register decompositions for PyTorch's compiler, which nobody reads."""

from tenon._torch._decomp import register_decomposition

__all__ = ["register_decomposition"]
