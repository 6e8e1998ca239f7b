"""Plugins that do not keep the header's promises. Each is a few lines of C in the table below; a
process of its own loads it, does what the table says, and must get an error that names what lied.
After that the process computes on, so nothing was harmed."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import added
import as_user
import pytest

pytestmark = pytest.mark.skipif(not as_user.HAVE_CC, reason="there is no C compiler")

F = '"lie::f(Tensor x) -> Tensor"'
POINTWISE = f".kind = TN_OP_POINTWISE, .schema = {F}"
STRUCTURED = f'.kind = TN_OP_STRUCTURED, .schema = {F}, .shape = "same(x)"'
COMPOSITE = f".kind = TN_OP_COMPOSITE, .schema = {F}, .composite = made"
WITH_KERNEL = 'return kernel(h, t, "lie::f", 0, lies, TN_F32, 0);'
CALL = "tn.ops.lie.f(tn.ones(3))"


@dataclass(frozen=True)
class Lie:
    """What a plugin does, as C, and the words of the error that follows."""

    words: str
    fields: str = POINTWISE  # of the operator's descriptor
    kernel: str = ""  # the body of a kernel for float32
    before: str = ""  # C in front of activate
    activate: str = "return TN_OK;"
    call: str = CALL


def kernel_lie(words: str, kernel: str, fields: str = POINTWISE, call: str = CALL) -> Lie:
    return Lie(words, fields, kernel, activate=WITH_KERNEL, call=call)


def start_lie(words: str, activate: str, before: str = "") -> Lie:
    return Lie(words, activate=activate, before=before, call="")


def composite_lie(words: str, body: str) -> Lie:
    head = ("static tn_status made(const tn_host *h, void *c, const void *a, tn_view **rets) "
            "{ (void)h; (void)c; (void)a; (void)rets; ")  # fmt: skip
    return Lie(words, COMPOSITE, before=f"{head}{body} }}")


def rule_lie(words: str, body: str) -> Lie:
    head = ("static tn_status rule(const tn_host *h, void *c, const void *a, tn_out_shape *outs) "
            "{ (void)h; (void)c; (void)a; (void)outs; ")  # fmt: skip
    fields = f".kind = TN_OP_STRUCTURED, .schema = {F}, .infer = rule"
    return Lie(words, fields, "return TN_OK;", f"{head}{body} }}", WITH_KERNEL)


ROW = 'tn_kernel_row row = {.op = "exp", .fn = copy, .dtype = TN_F32};'
LAYER = """
static tn_status look(void *c, tn_layer_call *next, const tn_op_info *op, void *a, tn_view **rets)
{ (void)c; (void)next; (void)op; (void)a; (void)rets; %s }
"""
ADD_LAYER = """
    tn_layer_desc layer = {.struct_size = sizeof layer, .name = "lie", .call = look};
    return h->register_layer(t, &layer);"""
IN_LAYER = "with tn.layer('lie'): tn.ones(3) + 1"
ITSELF = """
    const tn_call_iface *i = (const tn_call_iface *)h->query("tn.call/1");
    struct { const tn_plan *plan; const tn_view *x; tn_view *out; } args;
    memcpy(&args, a, sizeof args);
    args.out = NULL;
    return i->invoke(i->find("lie::f"), &args, rets);
"""
THREAD = """
#include <pthread.h>
static const tn_host *kept;
static tn_txn *txn;
static void *elsewhere(void *arg) {
    tn_op_desc op = {.struct_size = sizeof op, .kind = TN_OP_POINTWISE,
                     .schema = "lie::g(Tensor x) -> Tensor"};
    *(tn_status *)arg = kept->register_op(txn, &op);
    return NULL;
}
"""
LIES = {
    # What a kernel returns
    "status 9999": kernel_lie("plugin 'lie' returned status 9999", "return 9999;"),
    "status -1": kernel_lie("plugin 'lie' returned status -1", "return -1;"),
    "no text": kernel_lie("lie::f: plugin 'lie' failed and did not say why", "return TN_E_VALUE;"),
    "fail without a text": kernel_lie(
        "a failure without a text", "return call->host->fail(TN_E_VALUE, -1, NULL);"
    ),
    "an exception that is none": kernel_lie("exception", "return TN_E_HOST;"),
    "always declines": kernel_lie("not implemented", "return TN_DECLINE;"),
    "resizes nothing": kernel_lie(
        "is NULL", "return call->host->resize_output(call, NULL, 1, NULL);", STRUCTURED
    ),
    "resizes to 99 dimensions": kernel_lie(
        "0 to 64 dimensions",
        "int64_t s[99] = {0}; return call->host->resize_output(call, "
        "((const unary *)args)->out, 99, s);",
        STRUCTURED,
    ),
    "too much scratch": kernel_lie(
        "memory", "void *p; return call->host->scratch(call, UINT64_MAX / 2, &p);"
    ),
    "replaces the result": kernel_lie(
        "", "((unary *)(uintptr_t)args)->out = NULL; return TN_OK;", STRUCTURED
    ),
    # What a shape rule says
    "rule: status": rule_lie("plugin 'lie' returned status 77", "return 77;"),
    "rule: declines": rule_lie("plugin 'lie' returned status 100", "return TN_DECLINE;"),
    "rule: huge": rule_lie(
        "larger than the address space",
        "outs->ndim = 2; outs->shape[0] = outs->shape[1] = INT64_MAX; return TN_OK;",
    ),
    "rule: more memory than there is": rule_lie(
        "memory", "outs->ndim = 1; outs->shape[0] = INT64_C(1) << 46; return TN_OK;"
    ),
    "rule: negative": rule_lie(
        "impossible shape", "outs->ndim = 1; outs->shape[0] = -1; return TN_OK;"
    ),
    "rule: rank": rule_lie("impossible shape", "outs->ndim = 65; return TN_OK;"),
    "rule: dtype": rule_lie("impossible shape", "outs->dtype = -7; return TN_OK;"),
    # Composites and layers
    "composite: no result": composite_lie("plugin 'lie' returned no tensor", "return TN_OK;"),
    "composite: declines": composite_lie("plugin 'lie' returned status 100", "return TN_DECLINE;"),
    "composite: itself": composite_lie("nested 64 deep", ITSELF),
    "layer: no result": Lie(
        "layer 'lie' neither went on nor made a result", before=LAYER % "return TN_OK;",
        activate=ADD_LAYER, call=IN_LAYER,
    ),
    "layer: status": Lie(
        "plugin 'lie' returned status 4711", before=LAYER % "return 4711;", activate=ADD_LAYER,
        call=IN_LAYER,
    ),
    "layer: declines": Lie(
        "plugin 'lie' returned status 100", before=LAYER % "return TN_DECLINE;",
        activate=ADD_LAYER, call=IN_LAYER,
    ),
    # Registrations
    "no function": start_lie("lacks", 'return kernel(h, t, "exp", 0, NULL, TN_F32, 0);'),
    "rows of 0 bytes": start_lie(
        "1 rows of 0 bytes", f"{ROW} return h->register_kernels(t, 0, &row, 0, 1);"
    ),
    "huge rows": start_lie(
        "rows of 4294967295 bytes", f"{ROW} return h->register_kernels(t, 0, &row, ~0u, 2);"
    ),
    "-1 rows": start_lie(
        "4294967295 rows",
        f"{ROW} return h->register_kernels(t, 0, &row, sizeof row, (uint32_t)-1);",
    ),
    "rows that are NULL": start_lie(
        "is NULL", "return h->register_kernels(t, 0, NULL, sizeof(tn_kernel_row), 3);"
    ),
    "slot of no device": start_lie(
        "no device in slot 31", f"{ROW} return h->register_kernels(t, 31, &row, sizeof row, 1);"
    ),
    "dtype that is none": start_lie(
        "there is no dtype 200",
        'const tn_call_iface *i = (const tn_call_iface *)h->query("tn.call/1");'
        'return kernel(h, t, "exp", i->find("exp")->sig, copy, 200, 0);',
    ),
    "no descriptor": start_lie(
        "register_op: an argument is NULL", "return h->register_op(t, NULL);"
    ),
    "no device": start_lie(
        "register_device: an argument is NULL", "return h->register_device(t, NULL, NULL);"
    ),
    "no layer": start_lie("is NULL", "return h->register_layer(t, NULL);"),
    "no dtype": start_lie("is NULL", "return h->register_dtype(t, NULL, NULL);"),
    "no txn": start_lie("the txn given", "return h->register_op(NULL, &op);"),
    "device with a colon": start_lie(
        "a device's name is letters",
        "int32_t s; void *f = (void *)copy; tn_device_desc d = {.struct_size = sizeof d,"
        '.name = "a:1", .alloc = f, .free = f, .copy_in = f, .copy_out = f, .copy_within = f,'
        ".sync = f}; return h->register_device(t, &d, &s);",
    ),
    "empty tables": start_lie(
        "needs a name", "int32_t s; tn_device_desc d = {0}; return h->register_device(t, &d, &s);"
    ),
    "activate: status": start_lie("plugin 'lie' returned status 55", "return 55;"),
    "activate: no text": start_lie("did not say why", "return TN_E_VALUE;"),
    "another thread registers": start_lie(
        "the thread that runs it",
        "pthread_t other; tn_status got = TN_OK; kept = h; txn = t;"
        "pthread_create(&other, NULL, elsewhere, &got); pthread_join(other, NULL);"
        'return got ? h->fail(got, -1, "it is for activate, on the thread that runs it") : TN_OK;',
        THREAD,
    ),
    "activate calls an operator": start_lie(
        "nothing is loaded while a plugin starts",
        'const tn_call_iface *i = (const tn_call_iface *)h->query("tn.call/1"); tn_view *r[1];'
        "struct { const tn_plan *p; tn_ints size; int64_t rest[10]; tn_view *out; } a;"
        'memset(&a, 0, sizeof a); return i->invoke(i->find("zeros"), &a, r);',
    ),
    "registers after activate": Lie(
        "the thread that runs it",
        before="static const tn_host *kept; static tn_txn *txn;",
        kernel="tn_op_desc op = {.struct_size = sizeof op, .kind = TN_OP_POINTWISE, .schema = "
        '"lie::late(Tensor x) -> Tensor"}; (void)call; (void)args;'
        "return kept->register_op(txn, &op);",
        activate=f"kept = h; txn = t; {WITH_KERNEL}",
    ),
}  # fmt: skip


def program(lie: Lie) -> str:
    """The C of a plugin that lies."""
    kernel = (
        "static tn_status lies(const tn_call *call, const void *args) "
        f"{{ (void)call; (void)args; {lie.kernel} }}"
    )
    return added.source("lie", lie.fields, lie.activate, f"{lie.before}\n{kernel}")


RUN = """
import sys
import tenon as tn
text, call, words = sys.argv[1:]
try:
    tn.load_inline(text, "lie", flags=["-w"])
    exec(call)
except Exception as err:
    assert words and words in str(err), (type(err), err)
else:
    assert not words, "nothing was noticed"
assert (tn.arange(4.0) + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
"""


def run(lie: Lie, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    arguments = ["-c", RUN, program(lie), lie.call, lie.words]
    return as_user.run(folder, *arguments, XDG_CACHE_HOME=str(folder), **variables)


@pytest.mark.parametrize("what", LIES)
def test_a_lie_is_named(what: str, tmp_path: Path) -> None:
    done = run(LIES[what], tmp_path)
    assert done.returncode == 0, done.stderr
