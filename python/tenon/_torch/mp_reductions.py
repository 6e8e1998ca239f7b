"""`torch.multiprocessing.reductions`: how tensors travel."""

from tenon.multiprocessing import _reduce as reduce_tensor
from tenon.multiprocessing import init_reductions

__all__ = ["init_reductions", "reduce_tensor"]
