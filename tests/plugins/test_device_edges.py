"""Devices at the edge of what the door allows: none is there, memory or statuses that are none."""

from __future__ import annotations

from pathlib import Path

import as_user
import pytest
from cases import compile_text
from test_tutorial import blocks

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

COUNT = ".count = 1,"
GOT = 'return *ret_data ? TN_OK : host->fail(TN_E_MEMORY, -1, "slate: no room");'
USE = "import sys, tenon as tn\ntn.load_plugin(sys.argv[1])\n"
RAISES = """
for _ in range(2):
    try:
        tn.ones(3, device="slate")
    except (RuntimeError, ImportError) as err:
        assert "slate" in str(err) and {word!r} in str(err), err
    else:
        raise AssertionError("there was memory")
assert tn.ones(0, device="slate").shape == (0,) and tn.ones(2).sum() == 2
"""
IN = "memcpy((char *)dst + dst_offset, src, bytes);"
OUT = "memcpy(dst, (const char *)src + src_offset, bytes);"
SYNC = "static tn_status slate_sync(void *ctx, int32_t device) {"
FAILS = """
for call in (lambda: tn.tensor([1.0]).to("slate").cpu(), lambda: tn.slate.synchronize()):
    try:
        call()
    except Exception as err:
        assert "slate" in str(err) and {word!r} in str(err), err
        break
else:
    raise AssertionError("nothing failed")
assert tn.ones(2).sum() == 2
"""
NONE = """
assert not tn.slate.is_available() and tn.slate.device_count() == 0
assert tn.tensor([2.0]).tolist() == [2.0]
try:
    tn.ones(1, device="slate")
except RuntimeError as err:
    assert "slate" in str(err), err
else:
    raise AssertionError("there is no such device")
"""


@pytest.mark.parametrize(
    ("old", "new", "program"),
    [
        (COUNT, ".count = 0,", NONE),
        (GOT, "*ret_data = NULL; return TN_OK;", RAISES.format(word="TN_OK and NULL")),
        (GOT, "return (tn_status)77;", RAISES.format(word="77")),
        (GOT, "return TN_DECLINE;", RAISES.format(word="slate")),
        (GOT, "return TN_E_DEVICE;", RAISES.format(word="did not say why")),
        (IN, "return TN_DECLINE;", FAILS.format(word="copy_in")),
        (IN, "return (tn_status)77;", FAILS.format(word="77")),
        (OUT, "return TN_DECLINE;", FAILS.format(word="a copy or a wait")),
        (OUT, "return TN_E_VALUE;", FAILS.format(word="did not say why")),
        (SYNC, SYNC + "if (device >= 0) return TN_DECLINE;", FAILS.format(word="wait")),
    ],
    ids=[
        "no chip",
        "OK and NULL",
        "no status",
        "declines",
        "says nothing",
        "declines to copy in",
        "no status of a copy",
        "declines to copy out",
        "copies out, says nothing",
        "declines to wait",
    ],
)
def test_a_device_that(tmp_path: Path, old: str, new: str, program: str) -> None:
    source = "".join(blocks("device.md", "c"))
    assert source.count(old) == 1
    compile_text(source.replace(old, new), tmp_path / "slate.so")
    done = as_user.run(tmp_path, "-c", USE + program, str(tmp_path / "slate.so"))
    assert done.returncode == 0, done.stderr


def test_a_device_that_says_it_is_the_cpu(tmp_path: Path) -> None:
    """NumPy would read its handles as addresses."""
    source = "".join(blocks("device.md", "c")).replace(".dl_device = 12,", ".dl_device = 1,")
    source = source.replace(".flags = TN_DEV_ADDRESSABLE,", ".flags = 0,")
    compile_text(source, tmp_path / "slate.so")
    done = as_user.run(tmp_path, "-c", USE, str(tmp_path / "slate.so"))
    assert "device 'slate' says to DLPack that it is the CPU" in done.stderr
