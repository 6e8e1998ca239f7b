"""Sequences that are cut among processes: attention over keys and values of all of them."""

from tenon.distributed.tensor.experimental._context_parallel._attention import (
    _context_parallel_shard,
    _ContextParallel,
    _disable_context_parallel_dispatcher,
    _enable_context_parallel_dispatcher,
    context_parallel,
    context_parallel_unshard,
    set_rotate_method,
)
from tenon.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _LoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
)
from tenon.distributed.tensor.experimental._context_parallel._options import (
    _cp_options,
    _RotateMethod,
)

__all__ = [
    "_ContextParallel", "_HeadTailLoadBalancer", "_LoadBalancer",
    "_PerDocumentHeadTailLoadBalancer", "_RotateMethod", "_context_parallel_shard", "_cp_options",
    "_disable_context_parallel_dispatcher", "_enable_context_parallel_dispatcher",
    "context_parallel", "context_parallel_unshard", "set_rotate_method",
]  # fmt: skip
