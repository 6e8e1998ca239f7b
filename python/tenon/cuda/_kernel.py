"""Kernels from CUDA C that the user writes: `compile_kernel` and what it returns."""

from __future__ import annotations

import ctypes as c
import re
from collections.abc import Iterable, Sequence
from typing import Any

from tenon import _C
from tenon._device import streams
from tenon.cuda import _base, _table

LOG_BYTES = 1 << 16
LARGEST_GRID = (2**31 - 1, 65535, 65535)
LARGEST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024
PARAMETER_BYTES = 4096  # most that all parameters may have


def _kernels() -> Any:
    """The table "tenon.cuda.kernel/1"; needs a GPU."""
    return _base.library.interface("cuda", "tenon.cuda.kernel/1", _table.Kernels)[0]


def _property(device: int, name: str) -> int:
    value = c.c_int64()
    _base.library.check(_base.runtime().property(device, name.encode(), c.byref(value)))
    return value.value


def _parts(text: str) -> list[str]:
    """What stands between the commas up to the bracket that closes."""
    depth, parts = 0, [""]
    for char in text:
        depth += (char in "([{<") - (char in ")]}>")
        if depth < 0:
            break
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _blank(comment: re.Match[str]) -> str:
    return " " * len(comment.group())


def _look_at(source: str, name: str) -> tuple[str, int]:
    """The source with the kernel's name kept as it is, which C++ would otherwise change, and the
    number of the kernel's parameters."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ValueError(f"compile_kernel(): kernel_name must be a C identifier, not {name!r}")
    bounds = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
    kernel = rf'(extern\s*"C"\s*)?{bounds}__global__\s+{bounds}void\s+{bounds}{name}\s*\('
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", _blank, source, flags=re.S)
    found = re.search(kernel, plain)
    if not found:
        raise ValueError(
            f"compile_kernel(): kernel_source has no kernel '__global__ void {name}(...)'"
        )
    parameters = [p for p in _parts(plain[found.end() :]) if p.strip() not in ("", "void")]
    if not found.group(1):
        source = source[: found.start()] + 'extern "C" ' + source[found.start() :]
    return source, len(parameters)


def _sizes(what: str, value: Any, largest: Sequence[int]) -> Any:
    """Three sizes from a number or up to three of them."""
    given = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(given) <= 3 or not all(isinstance(n, int) for n in given):
        raise TypeError(f"kernel(): {what} must be one to three integers, not {value!r}")
    full = given + (1,) * (3 - len(given))
    if any(not 1 <= n <= most for n, most in zip(full, largest)):
        raise ValueError(f"kernel(): {what} must be within 1 and {tuple(largest)}, not {full}")
    return _table.Words(*full)


def _argument(at: int, value: Any, device: int) -> Any:
    """An argument as C passes it."""
    if isinstance(value, _C.Tensor):
        if value.device != _C.device("cuda", device) and not value.is_pinned():
            raise ValueError(
                f"kernel(): args[{at}] must be on the GPU of the kernel, cuda:{device}, or in "
                f"pinned memory, but is on {value.device}"
            )
        return c.c_void_p(value.data_ptr())
    if isinstance(value, (c._SimpleCData, c.Structure)):
        return value
    if isinstance(value, int):
        if not -(2**31) <= value < 2**31:
            raise ValueError(
                f"kernel(): args[{at}] = {value} does not fit an int; "
                "pass ctypes.c_int64 for a parameter of 64 bits"
            )
        return c.c_int(value)
    if isinstance(value, float):
        return c.c_double(value)
    raise TypeError(
        f"kernel(): args[{at}] must be a tensor, an int, a float or a number of ctypes, "
        f"not {type(value).__name__}"
    )


def _laid_out(values: Sequence[Any]) -> tuple[Any, Any]:
    """The arguments in memory, and the address of each. A kernel that takes more bytes than it is
    given finds zeros."""
    begin, offsets = 0, []
    for value in values:
        offsets.append(begin)
        begin += (c.sizeof(value) + 15) // 16 * 16
    room = c.create_string_buffer(begin + PARAMETER_BYTES)
    for value, offset in zip(values, offsets):
        c.memmove(c.addressof(room) + offset, c.addressof(value), c.sizeof(value))
    addresses = [c.addressof(room) + offset for offset in offsets]
    return room, (c.c_void_p * max(len(addresses), 1))(*addresses)


class Kernel:
    """A compiled kernel; calling it queues its work.

    An int is passed as C's int and a float as double, whatever the kernel says; ctypes.c_float(x),
    ctypes.c_int64(x) and their kin pass other types.
    """

    def __init__(self, name: str, nparams: int, device: int, handle: c.c_void_p) -> None:
        self.name = name
        self._nparams = nparams
        self.device = device
        self._handle = handle

    def __repr__(self) -> str:
        return f"<CUDA kernel '{self.name}' on cuda:{self.device}>"

    def _check_shared(self, what: str, value: Any) -> None:
        most = _property(self.device, "shared_memory_per_block_optin")
        if not isinstance(value, int) or not 0 <= value <= most:
            raise ValueError(f"kernel(): {what} must be within 0 and {most} bytes, not {value!r}")

    def set_shared_memory_config(self, shared_mem_bytes: int) -> None:
        """For programs that announce more than 48 KiB, as PyTorch wants it: a launch asks for what
        it is given by itself. Raises when the GPU has less."""
        self._check_shared("shared_mem_bytes", shared_mem_bytes)

    def __call__(
        self,
        grid: int | Sequence[int] = (1, 1, 1),
        block: int | Sequence[int] = (1, 1, 1),
        args: Iterable[Any] = (),
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Queues grid blocks of block threads on `stream`, else on the current one.

        The caller answers for what the kernel reads and writes: tensors are passed as pointers to
        their first elements, and must have the dtypes and strides that the kernel expects.
        """
        sizes = _sizes("grid", grid, LARGEST_GRID), _sizes("block", block, LARGEST_BLOCK)
        if sizes[1][0] * sizes[1][1] * sizes[1][2] > MOST_THREADS:
            raise ValueError(f"kernel(): block has more than {MOST_THREADS} threads: {block}")
        self._check_shared("shared_mem", shared_mem)
        if stream is None:
            stream = streams.current_stream(_C.device("cuda", self.device))
        elif not isinstance(stream, streams.Stream) or str(stream.device) != f"cuda:{self.device}":
            raise ValueError(f"kernel(): stream must be one of cuda:{self.device}, not {stream!r}")
        args = list(args or ())
        values = [_argument(i, value, self.device) for i, value in enumerate(args)]
        if len(values) != self._nparams:
            raise TypeError(
                f"kernel(): '{self.name}' takes {self._nparams} arguments, but args has "
                f"{len(values)}"
            )
        for tensor in args:
            if isinstance(tensor, _C.Tensor) and tensor.is_cuda:
                tensor.record_stream(stream)
        room, params = _laid_out(values)  # `room` lives until the launch has read it
        queue = stream.stream_id or None
        _base.library.check(
            _kernels().launch(self.device, self._handle, *sizes, shared_mem, queue, params)
        )


def compile_kernel(
    kernel_source: str,
    kernel_name: str,
    compute_capability: str | None = None,
    cuda_include_dirs: Sequence[str] | None = None,
    nvcc_options: Sequence[str] | None = None,
    device: Any = None,
) -> Kernel:
    """Compiles CUDA C with NVRTC and returns the kernel of that name, to be called with `grid`,
    `block`, `args`, `shared_mem` and `stream`.

    What comes out is kept in memory and in the cache on disk. Source that does not compile raises
    RuntimeError with NVRTC's log. `compute_capability` may only name that of the GPU.
    """
    for what, value in (("kernel_source", kernel_source), ("kernel_name", kernel_name)):
        if not isinstance(value, str):
            raise TypeError(f"compile_kernel(): {what} must be str, not {type(value).__name__}")
    options = [f"-I{folder}" for folder in cuda_include_dirs or ()] + list(nvcc_options or ())
    if not all(isinstance(option, str) for option in options):
        raise TypeError("compile_kernel(): nvcc_options must be strings")
    index = _base.index_of(device, "compile_kernel")
    capability = f"{_property(index, 'major')}{_property(index, 'minor')}"
    if compute_capability is not None and str(compute_capability) != capability:
        raise ValueError(
            f"compile_kernel(): compute_capability must be that of cuda:{index}, '{capability}', "
            f"not {compute_capability!r}"
        )
    source, nparams = _look_at(kernel_source, kernel_name)
    handle, log = c.c_void_p(), c.create_string_buffer(LOG_BYTES)
    listed = (c.c_char_p * max(len(options), 1))(*(option.encode() for option in options))
    status = _kernels().compile(
        index,
        source.encode(),
        kernel_name.encode(),
        listed,
        len(options),
        c.byref(handle),
        log,
        LOG_BYTES,
    )
    if status and log.value:
        raise RuntimeError(
            f"compile_kernel(): '{kernel_name}' does not compile:\n"
            + log.value.decode(errors="replace").rstrip()
        )
    _base.library.check(status)
    return Kernel(kernel_name, nparams, index, handle)
