"""The kernels for NVRTC, which has no C headers but those that nvrtc.c hands to it: the limits that
they name, and where NVIDIA's own library is installed, the kernels themselves, without a GPU."""

from __future__ import annotations

import ctypes as c
import re
from pathlib import Path

import harness
import pytest
import test_nvcc

KERNELS = test_nvcc.BACKEND / "kernels"
COMMON = test_nvcc.BACKEND.parent / "common"
LIMIT = re.compile(r"\bU?INT(?:8|16|32|64)_(?:MAX|MIN|C)\b|\b(?:FLT|DBL|SIZE|UINTPTR)_\w+\b")
SLOTS = {"-1", "6", "8", "11"}  # none, half, float and complex


def given(name: str) -> str:
    """A C header as nvrtc.c has it, `stdint` or `math`."""
    text = (test_nvcc.BACKEND / "host" / "nvrtc.c").read_text(encoding="utf-8")
    found = re.search(rf'{name}_text\[\] =\s*((?:"(?:[^"\\]|\\.)*"\s*)+);', text)
    assert found, name
    parts = re.findall(r'"((?:[^"\\]|\\.)*)"', found[1])
    return "".join(parts).encode().decode("unicode_escape")


def headers() -> dict[str, str]:
    folders = [test_nvcc.generated(), COMMON, KERNELS, KERNELS / "args"]  # the last one wins
    files = [p for f in folders for pattern in ("*.h", "*.inc") for p in sorted(f.glob(pattern))]
    found = {p.name: p.read_text(encoding="utf-8") for p in files}
    return found | {
        "stdint.h": given("stdint"),
        "math.h": given("math"),
        "string.h": "",
        "stdbool.h": "",
    }


def test_limits_that_kernels_name_are_given() -> None:
    known = set(re.findall(r"#define (\w+)", given("stdint")))
    for path in [*KERNELS.rglob("*.cu"), *KERNELS.rglob("*.h")]:
        named = {m[0] for m in LIMIT.finditer(path.read_text(encoding="utf-8"))}
        assert named <= known, f"{path.name}: {named - known}"


def library() -> c.CDLL:
    return c.CDLL(str(harness.packaged("libnvrtc.so.1[23]")))


def compiled(source: Path, options: list[bytes]) -> str:
    """What NVRTC says of a source that it does not take."""
    nvrtc, program, bytes_ = library(), c.c_void_p(), c.c_size_t()
    given_headers = {k.encode(): v.encode() for k, v in headers().items()}
    n = len(given_headers)
    texts = (c.c_char_p * n)(*given_headers.values())
    names = (c.c_char_p * n)(*given_headers)
    nvrtc.nvrtcCreateProgram(
        c.byref(program), source.read_bytes(), source.name.encode(), n, texts, names
    )
    args = (c.c_char_p * len(options))(*options)
    failed = nvrtc.nvrtcCompileProgram(program, len(options), args)
    nvrtc.nvrtcGetProgramLogSize(program, c.byref(bytes_))
    log = c.create_string_buffer(bytes_.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(c.byref(program))
    return log.value.decode() if failed else ""


@pytest.mark.parametrize("source", test_nvcc.MODULES)
def test_kernels_are_taken(source: str) -> None:
    library()
    if harness.ON_GPU:
        pytest.skip("the GPU's suite launches them")
    for slot in set(test_nvcc.MODULES[source]) & SLOTS:
        options = [b"-arch=compute_80", b"-std=c++17", b"--fmad=false", b"-default-device"]
        options += [] if slot == "-1" else [f"-DTMPL_DTYPE={slot}".encode()]
        said = compiled(test_nvcc.BACKEND / source, options)
        assert not said, said
