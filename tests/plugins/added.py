"""Plugins with operators out of a few lines of C, for the tests of this folder."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import as_user
import pytest
import tenon as tn


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """load_inline keeps what it compiles; here in a folder of the session."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


def make(source: Path, folder: Path) -> Path:
    """A plugin out of one source file, with nothing but the installed headers."""
    flags = ["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-fPIC", "-shared"]
    command = ["c++", "-std=c++11"] if source.suffix == ".cpp" else ["cc", "-std=c11"]
    library = folder / f"{source.stem}.so"
    command += [*flags, f"-I{as_user.SDK}", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    return library


HEAD = r"""
#include <stdlib.h>
#include <string.h>
#include <tenon/plugin.h>
typedef struct unary { const tn_plan *plan; const tn_view *x; tn_view *out; } unary;
static tn_status copy(const tn_call *call, const void *args) {
    (void)call;
    tn_rows r;
    for (tn_rows_start(&r, ((const unary *)args)->plan); tn_rows_next(&r);)
        for (int64_t i = 0; i < r.n; i++) *TN_ROW(float, r, 0, i) = *TN_ROW(const float, r, 1, i);
    return TN_OK;
}
static tn_status kernel(const tn_host *h, tn_txn *t, const char *op, uint64_t sig,
                        tn_kernel_fn fn, int32_t dtype, int32_t priority) {
    tn_kernel_row row = {op, sig, fn, NULL, dtype, priority, 0, 0};
    return h->register_kernels(t, 0, &row, sizeof row, 1);
}
"""
TAIL = """
TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *h, tn_plugin *p) {
    (void)h;
    return tn_plugin_fill(p, "@NAME@", "1.0", "a test", activate);
}
"""


def source(name: str, fields: str, more: str = "return TN_OK;", before: str = "") -> str:
    """A plugin with one operator whose descriptor has these fields."""
    return "\n".join([
        HEAD, before,
        "static tn_status activate(const tn_host *h, tn_txn *t) {",
        f"    tn_op_desc op = {{.struct_size = sizeof op, {fields}}};",
        "    tn_status st = h->register_op(t, &op);",
        "    if (st != TN_OK) return st;",
        f"    {more}", "}", TAIL.replace("@NAME@", name),
    ])  # fmt: skip


def load(name: str, fields: str, more: str = "return TN_OK;", before: str = "") -> Any:
    """Loads that plugin; its operators are in the namespace of its name."""
    tn.load_inline(source(name, fields, more, before), name, flags=["-Wno-unused-function"])
    return getattr(tn.ops, name)


POINTWISE = ".kind = TN_OP_POINTWISE, .schema = "
STRUCTURED = ".kind = TN_OP_STRUCTURED, .schema = "
COMPOSITE = ".kind = TN_OP_COMPOSITE, .schema = "
REDUCTION = ".kind = TN_OP_REDUCTION, .schema = "
