"""What the door costs: `door.py` times calls that go through the plugin interface next to calls
that do the same without it. Times are the shortest of many rounds, which alternate.

    direct kernel       a kernel through a function pointer, its arguments ready
    dispatched kernel   the same from C by "tn.call/1", into a given result: checks, plan, kernel
    operator            x * y of 8 floats from Python: the built-in one, and one that a plugin adds
    with its gradient   the same, recorded, with a backward pass
    on a bare device    x * y on a device without kernels, and the copies that it cannot do without
    C library           erf of one double by tn.ffi

With --json only the figures that `./dev bench` shows: ratios, and seconds.
"""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tenon as tn

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 60

PLUGIN = r"""
#include <string.h>
#include <time.h>
#include <tenon/plugin.h>

typedef struct mul_args { const tn_plan *plan; const tn_view *a, *b; tn_view *out; } mul_args;
typedef struct time_args {
    const tn_plan *plan; const tn_view *x; int64_t n, direct; tn_view *out;
} time_args;

static tn_status mul(const tn_call *call, const void *args) {
    const tn_plan *p = ((const mul_args *)args)->plan;
    float *out = (float *)p->data[0];
    const float *a = (const float *)p->data[1], *b = (const float *)p->data[2];
    (void)call;
    if (!(p->flags & TN_PLAN_FLAT)) return TN_DECLINE;
    for (int64_t i = 0; i < p->numel; i++) out[i] = a[i] * b[i];
    return TN_OK;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Nanoseconds of one call of `mul`, over n calls: by pointer, or as operator door::mul. */
static tn_status timed(const tn_call *call, const void *args) {
    const time_args *a = (const time_args *)args;
    tn_view *x = (tn_view *)(uintptr_t)a->x, *ret;
    tn_kernel_fn volatile direct = mul;
    static tn_plan plan;
    const tn_call_iface *c = (const tn_call_iface *)call->host->query("tn.call/1");
    const tn_op_info *op = c->find("door::mul");
    mul_args in = {&plan, x, x, NULL};
    plan.flags = TN_PLAN_FLAT;
    plan.numel = x->numel;
    for (int k = 0; k < 3; k++) plan.data[k] = x->data;
    tn_status st = TN_OK;
    double start = now();
    for (int64_t i = 0; i < a->n && st == TN_OK; i++) {
        if (a->direct) {
            st = direct(call, &in);
            continue;
        }
        in = (mul_args){NULL, x, x, x};
        st = c->invoke(op, &in, &ret);
        if (st == TN_OK) c->release(ret);
    }
    *(double *)a->out->data = (now() - start) / (double)a->n;
    return st;
}

static tn_status rule(const tn_host *host, void *ctx, const void *args, tn_out_shape *outs) {
    (void)host, (void)ctx, (void)args;
    outs->dtype = TN_F64;
    outs->ndim = 0;
    return TN_OK;
}

static tn_status activate(const tn_host *host, tn_txn *txn) {
    const tn_op_desc ops[] = {
        {.struct_size = sizeof(tn_op_desc), .kind = TN_OP_POINTWISE, .dtype = "promote",
         .schema = "door::mul(Tensor a, Tensor b) -> Tensor",
         .gradient = "a: grad * b; b: grad * a"},
        {.struct_size = sizeof(tn_op_desc), .kind = TN_OP_STRUCTURED, .infer = rule,
         .schema = "door::timed(Tensor x, int n, bool direct) -> Tensor", .gradient = "none"},
    };
    const tn_kernel_row rows[] = {
        {.op = "door::mul", .fn = mul, .dtype = TN_F32},
        {.op = "door::timed", .fn = timed, .dtype = TN_F32},
    };
    tn_status st = host->register_op(txn, &ops[0]);
    if (st == TN_OK) st = host->register_op(txn, &ops[1]);
    return st == TN_OK ? host->register_kernels(txn, 0, rows, sizeof rows[0], 2) : st;
}

TN_PLUGIN_EXPORT tn_status tn_plugin_entry_v1(const tn_host *host, tn_plugin *ret_plugin) {
    (void)host;
    return tn_plugin_fill(ret_plugin, "door", "1.0", "what the door costs", activate);
}
"""


def per_call(run: Callable[[], object], n: int) -> Callable[[], float]:
    """Nanoseconds of one of n calls."""

    def once() -> float:
        start = time.perf_counter_ns()
        for _ in range(n):
            run()
        return (time.perf_counter_ns() - start) / n

    return once


def shortest(rounds: int, **cases: Callable[[], float]) -> dict[str, float]:
    """The least of each case's times; rounds alternate between the cases."""
    best = dict.fromkeys(cases, float("inf"))
    gc.disable()
    for _ in range(rounds):
        for name, case in cases.items():
            best[name] = min(best[name], case())
    gc.enable()
    return best


def kernels() -> dict[str, float]:
    x = tn.ones(8)
    return shortest(
        ROUNDS,
        direct=lambda: tn.ops.door.timed(x, 5000, True).item(),
        dispatched=lambda: tn.ops.door.timed(x, 5000, False).item(),
    )


def operators(grad: bool) -> dict[str, float]:
    x, y, one = tn.ones(8, requires_grad=grad), tn.ones(8, requires_grad=grad), tn.ones(8)

    def run(mul: Callable[..., tn.Tensor]) -> Callable[[], object]:
        def step() -> None:
            mul(x, y).backward(one)
            x.grad = y.grad = None

        return step if grad else lambda: mul(x, y)

    return shortest(
        ROUNDS, built_in=per_call(run(tn.mul), 100), of_a_plugin=per_call(run(tn.ops.door.mul), 100)
    )


def bare_device() -> dict[str, float]:
    """A call on stand-ins, and what of it is not the door's: copies in and out, the operator."""
    x = tn.ones(8, device="acme")
    host = tn.ones(8)

    def by_hand() -> tn.Tensor:
        return (x.cpu() * x.cpu()).to("acme")

    return shortest(
        ROUNDS,
        fallback=per_call(lambda: x * x, 50),
        copy_out=per_call(x.cpu, 50),
        copy_in=per_call(lambda: host.to("acme"), 50),
        on_the_host=per_call(lambda: host * host, 50),
        by_hand=per_call(by_hand, 50),
    )


def c_library() -> dict[str, float]:
    erf = tn.ffi.bind("libm.so.6", "double erf(double)")
    return shortest(ROUNDS, erf=per_call(lambda: erf(0.5), 200))


def show(title: str, times: dict[str, float]) -> None:
    print(f"{title:<20}" + ", ".join(f"{name.replace('_', ' ')} {ns:.1f} ns"
                                     for name, ns in times.items()))  # fmt: skip


def load() -> None:
    """The device of plugins/examples, which has no kernels, and the operators above."""
    include = Path(tn.__file__).parent / "include"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "acme.so"
        source = ROOT / "plugins" / "examples" / "device" / "acme.c"
        command = ["cc", "-O2", "-fPIC", "-shared", f"-I{include}", str(source), "-o", str(library)]
        subprocess.run(command, check=True)
        tn.load_plugin(str(library))
    tn.load_inline(PLUGIN, "door")


def figures(measured: dict[str, dict[str, float]]) -> dict[str, float]:
    """What has a goal: a plugin's operator to a built-in one; a fallback beyond its copies and the
    operator itself, and a C function, in seconds."""
    plain, recorded = measured["operator"], measured["with its gradient"]
    bare = measured["on a bare device"]
    return {
        "plugin_op": plain["of_a_plugin"] / plain["built_in"],
        "plugin_op_fwd_bwd": recorded["of_a_plugin"] / recorded["built_in"],
        "fallback_extra": max(bare["fallback"] - bare["by_hand"], 0.0) * 1e-9,
        "ffi_call": measured["C library"]["erf"] * 1e-9,
    }


def main() -> int:
    if not shutil.which("cc"):
        print("there is no C compiler", file=sys.stderr)
        return 1
    tn.set_num_threads(1)
    tn.set_fallback_policy("allow")
    load()
    measured = {
        "kernel": kernels(),
        "operator": operators(grad=False),
        "with its gradient": operators(grad=True),
        "on a bare device": bare_device(),
        "C library": c_library(),
    }
    if "--json" in sys.argv[1:]:
        print(json.dumps(figures(measured)))
        return 0
    for title, times in measured.items():
        show(title, times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
