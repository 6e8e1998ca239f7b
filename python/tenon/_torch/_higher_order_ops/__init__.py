"""Functions that take functions, where PyTorch keeps them."""

from tenon._program.control import cond
from tenon._program.scans import scan, while_loop
from tenon._torch._higher_order_ops.associative_scan import associative_scan
from tenon._torch._higher_order_ops.foreach_map import foreach_map
from tenon._torch._higher_order_ops.map import map

__all__ = ["associative_scan", "cond", "foreach_map", "map", "scan", "while_loop"]
