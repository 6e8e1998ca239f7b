"""Graphs: work that is captured once and replayed often, without the cost of asking for it."""

from __future__ import annotations

import ctypes as c
import gc
from types import TracebackType
from typing import Any

from tenon._device.streams import Stream, _device_of
from tenon._plugin.native import Library, _Device

__all__ = ["Graph", "graph", "graph_pool_handle", "is_current_stream_capturing"]

_library = Library()
_lib = _library.lib
for _name in ("end", "cancel", "replay", "reset"):
    getattr(_lib, f"tn_graph_{_name}").argtypes = [c.c_void_p]
_lib.tn_graph_new.argtypes = [c.POINTER(c.c_void_p)]
_lib.tn_graph_unref.argtypes = [c.POINTER(c.c_void_p)]
_lib.tn_graph_unref.restype = None
_lib.tn_graph_begin.argtypes = [c.c_void_p, _Device, c.c_void_p]


class Graph:
    """Operator calls that were captured, to be made again on the same memory.

    A replay reads what is in the tensors that the capture read, and writes the tensors that it
    wrote: new inputs are copied into the old ones.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._graph = c.c_void_p()
        _library.check(_lib.tn_graph_new(c.byref(self._graph)))

    def __del__(self) -> None:
        if getattr(self, "_graph", None):
            _lib.tn_graph_unref(c.byref(self._graph))

    def capture_begin(
        self,
        pool: Any = None,
        capture_error_mode: str = "global",
        *,
        device: Any = None,
        stream: Stream | None = None,
    ) -> None:
        """From here on the calling thread's work is recorded and not done."""
        where = _library.device(str(stream.device if stream else _device_of(device)))
        _library.check(_lib.tn_graph_begin(self._graph, where, stream._stream if stream else None))

    def capture_end(self) -> None:
        """What was recorded is the graph."""
        _library.check(_lib.tn_graph_end(self._graph))

    def replay(self) -> None:
        """Does what was recorded."""
        _library.check(_lib.tn_graph_replay(self._graph))

    def reset(self) -> None:
        """Gives up what was recorded, and the memory of it."""
        _library.check(_lib.tn_graph_reset(self._graph))

    def pool(self) -> tuple[int, int]:
        """A name of the graph's memory, for `pool=`. No graph takes another one's memory."""
        return (0, self._graph.value or 0)


class graph:  # noqa: N801 - PyTorch's name
    """`with tn.graph(g):` captures what is called inside.

    The device is that of `stream`, else `device`, else the CPU. A device that does not capture by
    itself is served by core, which records all work of the thread.
    """

    def __init__(
        self,
        cuda_graph: Graph,
        pool: Any = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        *,
        device: Any = None,
    ) -> None:
        self._graph, self._stream, self._device = cuda_graph, stream, device

    def __enter__(self) -> None:
        gc.collect()  # so that nothing old is freed meanwhile
        self._graph.capture_begin(device=self._device, stream=self._stream)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._graph.capture_end()
        else:
            _lib.tn_graph_cancel(self._graph._graph)


def graph_pool_handle() -> tuple[int, int]:
    """A name for memory that graphs share; they do not, and take it as a hint."""
    return (0, 1)


def is_current_stream_capturing() -> bool:
    """Whether the calling thread's work is being captured."""
    return bool(_lib.tn_graph_is_capturing())
