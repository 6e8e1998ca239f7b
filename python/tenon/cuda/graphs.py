"""Work on a GPU that is captured once and replayed often."""

from __future__ import annotations

from typing import Any

from tenon._device import capture, streams
from tenon.cuda import _base

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing"]


class CUDAGraph(capture.Graph):
    """A graph of the driver's, with the memory that was allocated while it was captured."""

    def __init__(self, keep_graph: bool = False) -> None:
        _base.require("CUDAGraph")
        super().__init__(keep_graph)

    def capture_begin(
        self,
        pool: Any = None,
        capture_error_mode: str = "global",
        *,
        device: Any = None,
        stream: streams.Stream | None = None,
    ) -> None:
        """From here on the calling thread's work on the GPU is recorded and not done."""
        where = None if stream is not None else _base.module._name(device)
        super().capture_begin(pool, capture_error_mode, device=where, stream=stream)


class graph(capture.graph):  # noqa: N801 - PyTorch's name
    """`with tn.cuda.graph(g):` captures what is called inside, on a stream of its own unless one is
    given. `pool`: that of another graph, whose memory this one may use as well."""

    def __init__(
        self,
        cuda_graph: capture.Graph,
        pool: Any = None,
        stream: streams.Stream | None = None,
        capture_error_mode: str = "thread_local",
    ) -> None:
        _base.require("graph")
        where = _base.module._name()
        super().__init__(cuda_graph, pool, stream, capture_error_mode, device=where)


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs share."""
    return capture.graph_pool_handle()


def is_current_stream_capturing() -> bool:
    """Whether the calling thread's work is being captured."""
    return capture.is_current_stream_capturing()
