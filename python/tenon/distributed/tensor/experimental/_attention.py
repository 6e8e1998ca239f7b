"""Attention over a sequence that is cut among processes."""

from tenon.distributed._absent import absent
from tenon.distributed.tensor.experimental import context_parallel

set_rotate_method = absent("torch.distributed.tensor.experimental._attention", "set_rotate_method")

__all__ = ["context_parallel", "set_rotate_method"]
