"""Attention over a sequence that is cut among processes."""

from tenon.distributed.tensor.experimental._context_parallel import (
    _context_parallel_shard,
    _ContextParallel,
    _cp_options,
    _disable_context_parallel_dispatcher,
    _enable_context_parallel_dispatcher,
    _HeadTailLoadBalancer,
    _LoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
    _RotateMethod,
    context_parallel,
    context_parallel_unshard,
    set_rotate_method,
)

__all__ = [
    "_ContextParallel", "_HeadTailLoadBalancer", "_LoadBalancer",
    "_PerDocumentHeadTailLoadBalancer", "_RotateMethod", "_context_parallel_shard", "_cp_options",
    "_disable_context_parallel_dispatcher", "_enable_context_parallel_dispatcher",
    "context_parallel", "context_parallel_unshard", "set_rotate_method",
]  # fmt: skip
