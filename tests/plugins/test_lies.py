"""Plugins that do not keep the header's promises. Each is a few lines of C in the table below; a
process of its own loads it, does what the table says, and must get an error that names what lied.
After that the process computes on, so nothing was harmed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
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


def kernel_lie(
    words: str, kernel: str, fields: str = POINTWISE, call: str = CALL, before: str = ""
) -> Lie:
    return Lie(words, fields, kernel, before, WITH_KERNEL, call)


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
POLLS = """
#include <pthread.h>
static void *polls(void *call) { ((const tn_call *)call)->host->poll(); return NULL; }
"""
# Runs Python, as a plugin can that looks for the interpreter around it.
PYTHON = (
    'int (*take)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure"); '
    'void (*drop)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release"); '
    "void *(*eval)(const char *, int, void *, void *) = "
    '(void *(*)(const char *, int, void *, void *))dlsym(RTLD_DEFAULT, "PyRun_String"); '
    'void *(*fresh)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, "PyDict_New"); '
    'int gil = take(); void *names = fresh(); eval("%s", 257, names, names); drop(gil);'
)
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
    "scratch for no call": kernel_lie(
        "scratch: the call or room", "void *p; return call->host->scratch(NULL, 8, &p);"
    ),
    "scratch for nobody": kernel_lie(
        "scratch: the call or room", "return call->host->scratch(call, 8, NULL);"
    ),
    "a generator for nobody": kernel_lie(
        "rng_acquire: the call or room",
        "call->host->rng_release(call, NULL, NULL); call->host->rng_release(NULL, NULL, NULL);"
        "return call->host->rng_acquire(call, NULL, 1, NULL);",
    ),
    "keeps a generator": kernel_lie(
        "still holds a generator",
        "tn_rng r; return call->host->rng_acquire(call, NULL, 1, &r);",
        call=f"tn.rand(2)\ntry: {CALL}\nfinally: tn.rand(2)",
    ),
    "asks twice for a generator": kernel_lie(
        "this kernel holds a generator",
        "tn_rng r; tn_status st = call->host->rng_acquire(call, NULL, 1, &r);"
        "return st ? st : call->host->rng_acquire(call, NULL, 1, &r);",
        call=f"tn.rand(2)\ntry: {CALL}\nfinally: tn.rand(2)",
    ),
    "gives a generator back twice": kernel_lie(
        "", "tn_rng r; tn_status st = call->host->rng_acquire(call, NULL, 1, &r);"
        "call->host->rng_release(call, NULL, &r); call->host->rng_release(call, NULL, &r);"
        "return st;", call=f"{CALL}; tn.rand(2)",
    ),
    "fails with another's exception": kernel_lie(
        "its own", f'{PYTHON % "1 / 0"} return call->host->fail(TN_E_VALUE, -1, "its own");',
        before="#include <dlfcn.h>\n",
    ),
    "polls for ever": kernel_lie(
        "stopped by a thread", "for (;;) { tn_status st = call->host->poll(); if (st) return st; }",
        call="import os, threading\nthreading.Timer(0.2, os.kill, (os.getpid(), 2)).start()\n"
        f"try: {CALL}\nexcept KeyboardInterrupt: raise RuntimeError('stopped by a thread')",
    ),
    "polls on another thread": kernel_lie(
        "", "pthread_t other; pthread_create(&other, NULL, polls, (void *)call);"
        "pthread_join(other, NULL); return TN_OK;", before=POLLS,
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
        "the shape rule of plugin 'lie' gives result 0 more elements than there can be",
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
    "composite: calls nothing": composite_lie(
        "a call needs an operator",
        'const tn_call_iface *i = h->query("tn.call/1"); return i->invoke(NULL, (void *)a, rets);',
    ),
    "composite: calls with nothing": composite_lie(
        "a call needs an operator",
        'const tn_call_iface *i = h->query("tn.call/1");'
        'return i->find(NULL) ? TN_OK : i->invoke(i->find("exp"), NULL, rets);',
    ),
    "composite: calls for nothing": composite_lie(
        "a call needs an operator",
        'const tn_call_iface *i = h->query("tn.call/1");'
        'return i->invoke(i->find("exp"), (void *)a, NULL);',
    ),
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
    # Texts and numbers
    "a sentence that is no UTF-8": Lie("is not UTF-8", f'{POINTWISE}, .doc = "\\xff"', call=""),
    "a default that no int holds": Lie(
        "the default '99999999999999999999' of argument 'n' does not fit its type",
        '.kind = TN_OP_POINTWISE, .schema = "lie::f(Tensor x, int n=99999999999999999999) '
        '-> Tensor"', call="",
    ),
    "a number that no formula holds": Lie(
        "larger than int64 holds", f'{POINTWISE}, .gradient = "x: grad * 9223372036854775808"',
        call="",
    ),
    "a sum that no formula holds": kernel_lie(
        "larger than int64 holds", "return copy(call, args);",
        f'{POINTWISE}, .gradient = "x: grad * (9223372036854775807 + x.ndim)"',
        "tn.ops.lie.f(tn.ones(3, requires_grad=True)).sum().backward()",
    ),
    "more zeros than there is memory": kernel_lie(
        "out of memory", "return copy(call, args);",
        f'{POINTWISE}, .gradient = "x: zeros([1000000000000])"',
        "tn.ops.lie.f(tn.ones(3, requires_grad=True)).sum().backward()",
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
        "no device in slot 30", f"{ROW} return h->register_kernels(t, 30, &row, sizeof row, 1);"
    ),
    "kernels of meta": start_lie(
        "nothing to compute on", f"{ROW} return h->register_kernels(t, 31, &row, sizeof row, 1);"
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
    "dtype with a blank": start_lie(
        "a dtype's name is letters",
        "int32_t s; tn_dtype_desc d = {.struct_size = sizeof d, .bits = 8, .name = \"a b\"};"
        "return h->register_dtype(t, &d, &s);",
    ),
    "loads a plugin": start_lie(
        "nothing is loaded while a plugin starts",
        "tn_status (*load)(const char *) = "
        '(tn_status(*)(const char *))dlsym(dlopen("libtenon.so", RTLD_NOW | RTLD_NOLOAD), '
        '"tn_plugin_load");'
        'return load("/nowhere/x.so");', "#include <dlfcn.h>\n",
    ),
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


FLOATS = "float *x = (float *)p->data[1], *y = (float *)p->data[0]; (void)x; (void)y;"
PLAN = f"const tn_plan *p = ((const unary *)args)->plan; {FLOATS}"
VIEWS = (
    "tn_view *x = (tn_view *)(uintptr_t)((const unary *)args)->x, *y = ((const unary *)args)->out;"
    " (void)x; (void)y;"
)
OTHER_THREAD = """
#include <pthread.h>
static void *elsewhere(void *arg) {
    const tn_call *call = (const tn_call *)arg;
    void *p;
    return (void *)(intptr_t)call->host->scratch(call, 8, &p);
}
"""
# What only TENON_CHECK=1 sees: without it these kernels go on, or take the process down.
CHECKED = {
    "writes behind its result": kernel_lie(
        "'lie' wrote outside of its result", f"{PLAN} y[p->numel] = 1; return TN_OK;"
    ),
    "writes in front of its result": kernel_lie(
        "wrote outside of its result", f"{VIEWS} ((float *)y->data)[-1] = 1; return TN_OK;",
        STRUCTURED,
    ),
    "writes to its input": kernel_lie(
        "wrote to argument 'x'", f"{PLAN} x[0] = 5; return TN_OK;",
        call="x = tn.ones(3); tn.ops.lie.f(x)",
    ),
    "writes to a strided input": kernel_lie(
        "wrote to argument 'x'", f"{VIEWS} ((float *)x->data)[2] = 5; return TN_OK;", STRUCTURED,
        call="tn.ops.lie.f(tn.ones(4, 2).t()[0])",
    ),
    "changes a header": kernel_lie(
        "changed the header of 'x'", f"{VIEWS} x->ndim = 0; return TN_OK;", STRUCTURED
    ),
    "changes a size": kernel_lie(
        "changed sizes or strides of 'out'", f"{VIEWS} y->shape[0] = 2; return TN_OK;", STRUCTURED
    ),
    "replaces its result": kernel_lie(
        "changed its arguments", "((unary *)(uintptr_t)args)->out = NULL; return TN_OK;", STRUCTURED
    ),
    "replaces the memory of its result": kernel_lie(
        "replaced the memory of its result", f"{VIEWS} y->data = x->data; return TN_OK;", STRUCTURED
    ),
    "changes its plan": kernel_lie(
        "changed its plan", f"{PLAN} ((tn_plan *)(uintptr_t)p)->numel = 0; return TN_OK;"
    ),
    "asks for scratch on another thread": Lie(
        "plugin 'lie' failed", before=OTHER_THREAD, activate=WITH_KERNEL,
        kernel="pthread_t t; void *st; pthread_create(&t, NULL, elsewhere, (void *)call);"
        "pthread_join(t, &st); return (tn_status)(intptr_t)st;",
    ),
    "asks for scratch after its call": Lie(
        "scratch: it is for a kernel", before="static tn_call kept; static int calls;",
        activate=WITH_KERNEL,
        kernel="void *p; if (calls++) return call->host->scratch(&kept, 8, &p);"
        "kept = *call; return TN_OK;",
        call=f"{CALL}; {CALL}",
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


@pytest.mark.parametrize("what", CHECKED)
def test_a_lie_that_check_mode_sees(what: str, tmp_path: Path) -> None:
    done = run(CHECKED[what], tmp_path, TENON_CHECK="1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("body", ["__builtin_trap();", "abort();", "*(volatile int *)8 = 1;"])
def test_a_crash_is_named_in_check_mode(body: str, tmp_path: Path) -> None:
    lie = kernel_lie("", f"{body} return TN_OK;")
    done = run(lie, tmp_path, TENON_CHECK="1")
    assert done.returncode < 0
    assert "tenon: the process ends in plugin 'lie', lie::f\n" in done.stderr
    assert "tenon:" not in run(lie, tmp_path, TENON_CHECK="0").stderr


RUN_LIBRARY = """
import sys, tenon as tn
try:
    tn.load_library(sys.argv[1])
    tn.ops.lie.f(tn.ones(3))
except (ImportError, RuntimeError) as e:
    print(e)
assert (tn.arange(4.0) + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
"""


def cxx_plugin(folder: Path, source: str) -> Path:
    """The source, compiled as C++."""
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    text, library = source, folder / "lie.so"
    text = text.replace("TN_PLUGIN_EXPORT", 'extern "C" TN_PLUGIN_EXPORT')
    command = ["c++", "-std=c++20", "-w", "-fPIC", "-shared", f"-I{as_user.SDK}", "-x", "c++", "-"]
    subprocess.run([*command, "-o", str(library)], input=text, text=True, check=True)
    return library


THROWN = {
    "std::runtime_error: no luck": 'throw std::runtime_error("no luck");',
    "std::out_of_range: far away": 'throw std::out_of_range("far away");',
    "int": "throw 1;",
    "std::bad_alloc": "throw std::bad_alloc();",
    "Two": "struct Two : One, std::exception {}; throw Two();",
}

CATCH = """
import sys, tenon as tn
tn.load_library(sys.argv[1])
kind = MemoryError if "bad_alloc" in sys.argv[2] else RuntimeError
for _ in range(3):
    try:
        CALL
    except kind as e:
        assert "lie::f" in str(e) and "plugin 'lie'" in str(e) and sys.argv[2] in str(e), e
    else:
        raise SystemExit("nothing was raised")
assert (tn.arange(4.0) + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
"""


@pytest.mark.parametrize("check", ["0", "1"])
@pytest.mark.parametrize("what", THROWN)
def test_an_exception_becomes_an_error(what: str, check: str, tmp_path: Path) -> None:
    """It leaves a C++ kernel, whose objects are destroyed, and stops where core called."""
    body = f"Counted here; {THROWN[what]}"
    head = """
        #include <stdexcept>
        #include <new>
        #include <cstdio>
        struct One { virtual ~One() {} };
        struct Counted { ~Counted() { puts("destroyed"); } };
    """
    library = cxx_plugin(tmp_path, head + program(kernel_lie("", body)))
    script = CATCH.replace("CALL", CALL)
    variables = {"TENON_CHECK": check, "TENON_PROBE": "off"}
    done = as_user.run(tmp_path, "-c", script, str(library), what, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("destroyed") == 3


@pytest.mark.parametrize("where", ["activate", "composite"])
def test_an_exception_outside_a_kernel(where: str, tmp_path: Path) -> None:
    body = 'throw std::runtime_error("no luck");'
    lie = start_lie("", body) if where == "activate" else composite_lie("", body)
    library = cxx_plugin(tmp_path, "#include <stdexcept>\n" + program(lie))
    words = "plugin 'lie': a C++ exception left a plugin's function: std::runtime_error: no luck"
    done = as_user.run(tmp_path, "-c", RUN_LIBRARY, str(library), TENON_PROBE="off")
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


TRUTHS = """
import tenon as tn
x = tn.randn(4, 6, requires_grad=True)
w = tn.randn(6, 5, requires_grad=True)
y = tn.nn.functional.layer_norm((x @ w).relu(), (5,)).softmax(-1)
y.square().mean().backward()
assert x.grad.shape == (4, 6) and w.grad.shape == (6, 5)
t = tn.arange(24.0).reshape(2, 3, 4).transpose(0, 2)
assert (t + t).sum().item() == 552 and t.add_(1).sum().item() == 300
assert tn.nonzero(tn.tensor([1, 0, 2])).tolist() == [[0], [2]]
assert tn.sort(tn.tensor([3.0, 1.0, 2.0])).values.tolist() == [1, 2, 3]
assert tn.unique(tn.tensor([3, 1, 3])).tolist() == [1, 3]
assert tn.cat([tn.ones(2), tn.zeros(1)]).tolist() == [1, 1, 0]
assert tn.rand(5).max() < 1 and tn.zeros(0).sum() == 0
out = tn.empty(3)
assert tn.exp(tn.zeros(3), out=out) is out and out.tolist() == [1, 1, 1]
"""


def test_truths_pass_check_mode() -> None:
    """The CPU's own kernels, which come through the same door."""
    done = subprocess.run(
        [sys.executable, "-c", TRUTHS], env={**os.environ, "TENON_CHECK": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


BORROWS = """
    const tn_call_iface *i = (const tn_call_iface *)call->host->query("tn.call/1");
    const unary *own = (const unary *)args;
    float *mine, *next;
    tn_status st = call->host->scratch(call, 64, (void **)&mine);
    for (int k = 0; k < 16; k++) mine[k] = 7;
    struct { const tn_plan *plan; const tn_view *x; tn_view *out; } a = {NULL, own->x, NULL};
    tn_view *r[1] = {NULL};
    if (!st) st = i->invoke(i->find(INNER), &a, r);
    i->release(r[0]);
    if (!st) st = call->host->scratch(call, 64, (void **)&next);
    for (int k = 0; !st && k < 16; k++) next[k] = 9;
    if (!st) memcpy(own->out->data, mine, 12);
    return st;
"""


@pytest.mark.parametrize("inner", ["exp", "lie::g"])
@pytest.mark.parametrize("check", ["0", "1"])
def test_borrowed_memory_outlives_calls_inside(inner: str, check: str, tmp_path: Path) -> None:
    """A kernel that has borrowed memory calls an operator, whose kernel may borrow as well."""
    inside = """static tn_status other(const tn_call *call, const void *args) {
        float *p;
        tn_call own = *call; /* what is borrowed for a copy of the call is given back as well */
        tn_status st = call->host->scratch(CALL, 64, (void **)&p);
        for (int k = 0; !st && k < 16; k++) p[k] = 5;
        return st ? st : copy(call, args);
    }""".replace("CALL", "call" if check == "1" else "&own")
    fields = f".kind = TN_OP_POINTWISE, .schema = {F.replace('lie::f', 'lie::g')}"
    activate = (
        f"tn_op_desc g = {{.struct_size = sizeof g, {fields}}}; st = h->register_op(t, &g);"
        'if (!st) st = kernel(h, t, "lie::g", 0, other, TN_F32, 0); if (st) return st;'
    )
    borrows = BORROWS.replace("INNER", f'"{inner}"')
    lie = Lie("", STRUCTURED, borrows, inside, activate + WITH_KERNEL, CALLED_TWICE)
    done = run(lie, tmp_path, TENON_CHECK=check)
    assert done.returncode == 0, done.stderr


CALLED_TWICE = "for _ in range(2): assert tn.ops.lie.f(tn.rand(3)).tolist() == [7.0, 7.0, 7.0]"
