"""Kernels that a plugin registers for operators which are composites: they run, on the CPU and on a
device, wherever the composite does not have to; values, gradients and forms are the operator's."""

from __future__ import annotations

from pathlib import Path

import as_user
import pytest
from cases import compile_text
from test_tutorial import blocks

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

HERE = Path(__file__).parent
PLUGIN = """
static tn_status activate(const tn_host *host, tn_txn *txn) {
    const tn_devices_iface *devices = host->query("tn.devices/1");
    enum { N = sizeof rows / sizeof rows[0] };
    return devices->register_kernels(txn, DEVICE, rows, sizeof rows[0], N);
}
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "composites", "1.0", "kernels for composites", activate);
}
"""


@pytest.mark.parametrize("checked", ["0", "1"])
@pytest.mark.parametrize("device", ["cpu", "slate"])
def test_kernels_of_composites_run(tmp_path: Path, device: str, checked: str) -> None:
    source = f'#define DEVICE "{device}"\n' + (HERE / "composites.h").read_text() + PLUGIN
    compile_text(source, tmp_path / "composites.so", "-lm")
    if device != "cpu":
        compile_text("".join(blocks("device.md", "c")), tmp_path / "slate.so")
    program = str(HERE / "composites_use.py")
    done = as_user.run(
        tmp_path, program, str(tmp_path), device, TENON_CHECK=checked, TENON_FALLBACK="allow"
    )
    assert done.returncode == 0, done.stdout + done.stderr
