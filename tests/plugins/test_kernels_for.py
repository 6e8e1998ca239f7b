"""A plugin that brings kernels for a device of another plugin, through what that one publishes."""

from __future__ import annotations

from pathlib import Path

import as_user
import pytest
from cases import compile_text
from test_tutorial import blocks

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

# The device of the tutorial, which also tells how its kernels are counted.
NATIVE = """
static int64_t launches;
static void count(void *ctx) { (void)ctx; launches++; }
static int64_t counted(void *ctx) { (void)ctx; return launches; }
static const struct { void (*launch)(void *); int64_t (*counted)(void *); } native =
    {count, counted};
static const void *query(void *ctx, const char *name) {
    (void)ctx;
    return strcmp(name, "slate.native/1") == 0 ? &native : NULL;
}
static tn_status activate("""

OPS = r"""
#include <tenon/op_args.h>
#include <tenon/plugin.h>
typedef struct native { void (*launch)(void *); int64_t (*counted)(void *); } native;
static const tn_devices_iface *devices;
static tn_status twice(const tn_call *call, const void *args) {
    const tn_neg_args *a = args;
    void *ctx;
    const native *n = devices->query(call->device_slot, "slate.native/1", &ctx);
    tn_rows r;
    if (!n || devices->query(call->device_slot, "slate.native/2", &ctx))
        return call->host->fail(TN_E_STATE, -1, "no way to launch");
    n->launch(ctx);
    for (tn_rows_start(&r, a->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++)
            *TN_ROW(float, r, 0, i) = n->counted(ctx) > 0 ? 2 * *TN_ROW(const float, r, 1, i) : 0;
    return TN_OK;
}
static tn_status activate(const tn_host *host, tn_txn *txn) {
    static const tn_kernel_row rows[] = {
        {.op = "twice::twice", .fn = twice, .dtype = TN_F32},
    };
    static const tn_op_desc op = {.struct_size = sizeof op, .kind = TN_OP_POINTWISE,
        .args_bytes = sizeof(tn_neg_args), .schema = "twice::twice(Tensor input) -> Tensor",
        .gradient = "input: 2 * grad"};
    devices = host->query("tn.devices/1");
    if (!devices) return host->fail(TN_E_PLUGIN, -1, "this Tenon has no tn.devices/1");
    tn_status st = host->register_op(txn, &op);
    if (st != TN_OK) return st;
    if (devices->register_kernels(txn, "", rows, sizeof rows[0], 1) == TN_OK ||
        devices->register_kernels(txn, "a name that is far too long for a device", rows,
                                  sizeof rows[0], 1) == TN_OK)
        return host->fail(TN_E_PLUGIN, -1, "a bad name was taken");
    return devices->register_kernels(txn, "slate", rows, sizeof rows[0], 1);
}
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "twice", "1.0", "twice on a slate", activate);
}
"""

USE = """
import sys, tenon as tn
ops, device = sys.argv[1:]
def use():
    x = tn.ones(2, 3, device="slate", requires_grad=True)
    y = tn.ops.twice.twice(x.t())
    y.sum().backward()
    assert y.device.type == "slate" and y.tolist() == [[2.0, 2.0]] * 3
    assert x.grad.tolist() == [[2.0] * 3] * 2
    assert "twice" in tn.explain("twice::twice", device="slate", dtype=tn.float32)
tn.set_fallback_policy("allow")
tn.load_library(ops)                    # before the device is there
try:
    tn.ops.twice.twice(tn.ones(2))      # and nowhere else
except NotImplementedError as err:
    assert "twice::twice" in str(err)
else:
    raise AssertionError("there was a kernel")
try:
    tn.ones(2, device="slate")
except RuntimeError as err:
    assert "slate" in str(err)
else:
    raise AssertionError("the device is not there")
tn.load_plugin(device)
use()
kept = tn.ones(2, device="slate")
for _ in range(3):                      # the device goes and comes, the kernels stay
    tn.retire_plugin("slate")
    tn.load_plugin(device)
    use()
    assert (kept * 2).tolist() == [2.0, 2.0]
tn.retire_plugin("twice")
tn.load_plugin(ops)
use()
"""


LYING = r"""
#include <stdio.h>
#include <tenon/op_args.h>
#include <tenon/plugin.h>
static tn_status activate(const tn_host *host, tn_txn *txn) {
    const tn_devices_iface *devices = host->query("tn.devices/1");
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "nobody%d", i);
        tn_status st = devices->register_kernels(txn, name, NULL, sizeof(tn_kernel_row), 0);
        if (st != TN_OK) return st;
    }
    return host->fail(TN_E_PLUGIN, -1, "it never meant to");
}
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "lying", "1.0", "names without devices", activate);
}
"""

LOAD = """
import sys, tenon as tn
for _ in range(4):
    try:
        tn.load_plugin(sys.argv[1])
    except (RuntimeError, ImportError) as err:
        assert "it never meant to" in str(err), err
    else:
        raise AssertionError("it was loaded")
"""


def test_names_of_a_plugin_that_fails_take_no_slots(tmp_path: Path) -> None:
    compile_text(LYING, tmp_path / "lying.so")
    done = as_user.run(tmp_path, "-c", LOAD, str(tmp_path / "lying.so"))
    assert done.returncode == 0, done.stderr


def test_kernels_for_the_device_of_another(tmp_path: Path) -> None:
    device = "".join(blocks("device.md", "c"))
    assert device.count("static tn_status activate(") == device.count(".sync = slate_sync,") == 1
    device = device.replace("static tn_status activate(", NATIVE.lstrip("\n"))
    device = device.replace(".sync = slate_sync,", ".sync = slate_sync, .query = query,")
    libraries = []
    for name, text in (("twice", OPS), ("slate", device)):
        libraries.append(str(tmp_path / f"{name}.so"))
        compile_text(text, tmp_path / f"{name}.so")
    done = as_user.run(tmp_path, "-c", USE, *libraries)
    assert done.returncode == 0, done.stderr
