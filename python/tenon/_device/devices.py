"""`tenon.acme` for every device that a plugin serves: what can be asked of it."""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

from tenon import _C
from tenon._C import Generator, Tensor
from tenon._device import capture, streams
from tenon._plugin import native

_library = native.Library()


class _Chosen:
    """A with statement for `set_device`; None and -1 choose nothing."""

    def __init__(self, module: DeviceModule, device: Any) -> None:
        self._module, self._device = module, device
        self._before: list[int] = []

    def __enter__(self) -> None:
        if self._device is not None and self._device != -1:
            self._before.append(self._module.current_device())
            self._module.set_device(self._device)

    def __exit__(self, *exc: object) -> None:
        if self._before:
            self._module.set_device(self._before.pop())


class DeviceModule(ModuleType):
    """The functions of one kind of device; PyTorch's names where it has such functions."""

    Event = streams.Event
    stream = staticmethod(streams.stream)
    Graph = CUDAGraph = capture.Graph
    graph_pool_handle = staticmethod(capture.graph_pool_handle)
    is_current_stream_capturing = staticmethod(capture.is_current_stream_capturing)

    def __init__(self, kind: str) -> None:
        super().__init__(f"tenon.{kind}", f"Devices of the kind '{kind}', served by a plugin.")
        self._kind = kind

    def __getattr__(self, name: str) -> Any:
        """The types of tensors on these devices: `tenon.acme.FloatTensor`; `cpu.amp`."""
        if name == "amp" and self._kind == "cpu":
            from tenon._device import cpu_amp

            return cpu_amp
        from tenon._tensor import tensor_types

        return tensor_types.member(self.__name__, name, self._kind)

    def _name(self, device: Any = None) -> str:
        """One device by name; a number is an index, None the current one."""
        if isinstance(device, int):
            device = f"{self._kind}:{device}"
        found = _C.device(self._kind if device is None else device)
        if found.type != self._kind:
            raise ValueError(f"expected a device of the kind '{self._kind}', got '{found}'")
        index = self.current_device() if found.index is None else found.index
        return f"{self._kind}:{index}"

    def is_available(self) -> bool:
        """Whether there is such a device and its plugin works."""
        try:
            return self.device_count() > 0
        except MemoryError:
            raise
        except RuntimeError:
            return False

    def is_initialized(self) -> bool:
        """Whether such devices can be used: they need nothing that would have to be begun."""
        return self.is_available()

    def device_count(self) -> int:
        """How many devices of this kind there are."""
        return _C._device_count(self._kind)

    def current_device(self) -> int:
        """The index that the name without an index stands for on the calling thread."""
        return _library.current_device(self._kind)

    def set_device(self, device: Any) -> None:
        """Chooses what the name without an index stands for on the calling thread."""
        _library.set_current_device(self._name(device))

    def device(self, device: Any) -> _Chosen:
        """A with statement inside which the name without an index stands for that device."""
        return _Chosen(self, device)

    def get_device_name(self, device: Any = None) -> str:
        """One line about a device."""
        return _C._describe(self._name(device))

    def synchronize(self, device: Any = None) -> None:
        """Waits for all work on a device, and raises what went wrong in it."""
        _C._synchronize(self._name(device))

    def current_stream(self, device: Any = None) -> streams.Stream:
        """The stream that the calling thread's work on a device goes to."""
        return streams.current_stream(self._name(device))

    def Stream(self, device: Any = None, *, priority: int = 0) -> streams.Stream:  # noqa: N802
        """A new queue of work on a device."""
        return streams.Stream(self._name(device), priority=priority)

    def default_stream(self, device: Any = None) -> streams.Stream:
        """The queue of work that a device has by itself."""
        return streams.Stream._default(self._name(device))

    def graph(
        self,
        cuda_graph: capture.Graph,
        pool: Any = None,
        stream: streams.Stream | None = None,
        capture_error_mode: str = "global",
        *,
        device: Any = None,
    ) -> capture.graph:
        """`with tn.acme.graph(g):` captures what is called inside."""
        return capture.graph(cuda_graph, stream=stream, device=self._name(device))

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        """Bytes in use and held, now and at most; how often memory was asked for and freed; bytes
        that the device has and that are free, 0 where it does not say."""
        return _library.memory_stats(self._name(device))

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in use by tensors."""
        return self.memory_stats(device)["allocated"]

    def max_memory_allocated(self, device: Any = None) -> int:
        """The most bytes that were in use at once."""
        return self.memory_stats(device)["allocated_peak"]

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes held from the system."""
        return self.memory_stats(device)["reserved"]

    def max_memory_reserved(self, device: Any = None) -> int:
        """The most bytes that were held at once."""
        return self.memory_stats(device)["reserved_peak"]

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Starts the counting of peaks anew."""
        _library.memory_reset_peak(self._name(device))

    def empty_cache(self) -> None:
        """Gives unused memory back to the system."""
        for index in range(self.device_count()):
            _library.memory_empty_cache(self._name(index))

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Bytes that are free on a device, and all that it has."""
        name, stats = self._name(device), self.memory_stats(device)
        if not stats["total"]:
            raise RuntimeError(f"device '{name}' does not say how much memory it has")
        return stats["available"], stats["total"]

    def memory_summary(self, device: Any = None) -> str:
        """The statistics of a device's memory as a table."""
        stats = self.memory_stats(device)
        lines = [f"memory of {self._name(device)}, in bytes"]
        lines.append(f"{'':12}{'now':>20}{'at most':>20}")
        for what in ("allocated", "reserved"):
            lines.append(f"{what:12}{stats[what]:20,}{stats[what + '_peak']:20,}")
        kept = stats["reserved"] - stats["allocated"]
        lines.append(f"{'unused':12}{kept:20,}")
        if stats["total"]:
            lines.append(f"{'available':12}{stats['available']:20,}{stats['total']:20,}")
        lines.append(f"{stats['allocations']:,} allocations, {stats['frees']:,} frees")
        return "\n".join(lines)

    def _generator(self, device: Any = None) -> Generator:
        """The generator that work on a device draws from which names none."""
        return _C._default_generator(self._name(device))

    def manual_seed(self, seed: int) -> None:
        """Seeds the default generator of the current device."""
        self._generator().manual_seed(int(seed))

    def manual_seed_all(self, seed: int) -> None:
        """Seeds the default generators of all devices of this kind."""
        for index in range(self.device_count()):
            self._generator(index).manual_seed(int(seed))

    def initial_seed(self) -> int:
        """The seed that the default generator of the current device was last given."""
        return self._generator().initial_seed()

    def get_rng_state(self, device: Any = None) -> Tensor:
        """The state of a device's default generator as a uint8 tensor."""
        return self._generator(device).get_state()

    def set_rng_state(self, new_state: Tensor, device: Any = None) -> None:
        """Restores what `get_rng_state` gave."""
        self._generator(device).set_state(new_state)

    def fallback_count(self, op: str) -> tuple[int, int]:
        """How many calls of an operator ran in a wider dtype, and on the CPU."""
        return _library.fallback_count(op, self._kind)


class AbsentModule(DeviceModule):
    """A kind of device that PyTorch names and that no plugin serves: there are none, and what is
    asked of all of them is done."""

    def is_available(self) -> bool:
        """False."""
        return False

    def device_count(self) -> int:
        """0."""
        return 0

    def manual_seed(self, seed: int) -> None:
        """Seeds the generators of no device."""

    manual_seed_all = manual_seed

    def get_rng_state_all(self) -> list[Tensor]:
        """The states of no generators."""
        return []

    def empty_cache(self) -> None:
        """Frees nothing."""


@cache
def absent(kind: str) -> AbsentModule:
    """The one module of a kind that no plugin serves."""
    return AbsentModule(kind)
