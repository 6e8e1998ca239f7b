"""`./dev mutate`: small changes of operators that a test must notice: README.md beside this."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import points
from libraries import LEAST, Build
from points import KINDS, ROOT, Mutant

HERE = Path(__file__).resolve().parent


def python(names: str) -> list[str]:
    """Files of tests/python by the words in their names."""
    return [f"tests/python/test_{name}.py" for name in names.split()]


LAYERS = python(
    "module layers layer_details layer_edges layer_errors layer_tools containers "
    "module_call parametrize prune"
)
STEPS = python(
    "optim optim_differentiable optim_functional optimizer optimizer_edges schedules foreach amp "
    "fused wrapped warnings"
)
TAPE = python(
    "autograd autograd_edges autograd_functions gradcheck graph forward_ad call_modes "
    "tensor vmap meta"
)
TRACKING = python(
    "autograd autograd_edges autograd_functions autograd_grad gradcheck graph forward_ad "
    "forward_functions call_modes profiler overrides overridable overridden_parts asked_functions "
    "wrapped tensor_types refused_in_training tools_in_detail"
)
LEFT = ["tests/ops/test_passes_leave_nothing.py"]
PROGRAMS = python("compile compile_default compile_graphs compile_random export fx jit script")
SPARSE = python("sparse sparse_reduce sparse_values")
REFUSED = python("refused_by_core refused_by_tensors refused_by_arguments refused_in_training")
# Which tests look at a room's code, the first that fits.
ROOMS = {
    "optim": [*STEPS, *REFUSED, "tests/plugins/test_optim_parts.py",
              "tests/plugins/test_made_of_parts.py"],
    "nn": ["tests/ops", *LAYERS, *REFUSED, *python("init flex_attention amp refused_by_layers")],
    "autograd": [*TAPE, *LEFT, *REFUSED, *python("autograd_grad rows_at_once")],
    "dispatch/operators/sparse": SPARSE,
    "dispatch/program": [*PROGRAMS, *python("fusion deferred capture programs export_parts "
                                             "refused_program_files"),
                         "tests/plugins/test_program_device.py"],
    "dispatch/added": ["tests/plugins", *python("library cpp_extension compile fusion")],
    "dispatch/call": ["tests/ops", "tests/plugins", *TAPE, *SPARSE, *REFUSED,
                      *python("profiler deferred amp capture arrays wrapped mistakes")],
    "dispatch/operators": ["tests/ops", *REFUSED,
                           *python("tensor index random sparse arguments options")],
    "dispatch/door": ["tests/plugins", *python("library")],
    "dispatch/device": ["tests/plugins", *python("capture random threads")],
    "dispatch": [*TAPE, *SPARSE, *LEFT, "tests/ops/test_out_overlap.py",
        *python("index random storage dtypes arrays threads deferred run "
        "complex_parts serialization capture library expressions")],
    "backends/cpu": ["tests/ops", *STEPS, *python("random sparse fusion compile")],
    "plugins": ["tests/plugins", *python("library command run")],
    "python/src/ffi": ["tests/plugins/test_ffi.py", "tests/plugins/test_ffi_calls.py"],
    "python/src/program": PROGRAMS,
    "python/src": [*TAPE, *SPARSE, *LEFT, *REFUSED, *python("index random storage dtypes arrays "
        "arguments options overrides tensor_types print lists_as_indices module deferred library "
        "special serialization vmap_calls saved_subclasses graph call_modes old_orders module_call "
        "wrapped")],
    "python/tenon/optim": STEPS,
    "python/tenon/distributions": python(
        "distributions distribution_facts distribution_details"),
    "python/tenon/vision": [*python("vision vision_beside refused_beside_layers "
                                     "torchvision_operators"),
                            "tests/ops/test_vision_ops.py"],
    "python/tenon/utils/data": python("data datasets distributed_sampler datapipes package_parts "
                                      "refused_beside_layers refused_by_arguments warnings"),
    "python/tenon/distributed": ["tests/processes"],
    "python/tenon/utils/tensorboard": python("tensorboard"),
    "python/tenon/utils": python("pytree flops graph gradcheck small_modules call_modes tensor "
                                 "beside_operators fx utils_details tools_in_detail expressions "
                                 "refused_in_training warnings"),
    "python/tenon/linalg": ["tests/ops/test_linalg.py", "tests/ops/test_linalg_general.py",
                            "tests/ops/test_linalg_complex.py",
                            *python("expressions lobpcg lowrank flops refused_by_tensors")],
    "python/tenon/signal": ["tests/ops/test_signal.py", *python("expressions")],
    "python/tenon/fft": ["tests/ops/test_fft.py", *python("expressions")],
    "python/tenon/special": python("expressions special"),
    "python/tenon/amp": python("amp expressions"),
    "python/tenon/sparse": [*SPARSE, *python("refused_by_tensors refused_by_packages expressions")],
    "python/tenon/hub": python("small_modules tools_in_detail"),
    "python/tenon/io": python("serialization gguf hostile_files old_files arrays storage sparse "
                              "pickle_streams meta whole_objects details_of_files refused_files "
                              "saved_subclasses"),
    "python/tenon/masked": python("masked masked_tensor"),
    "python/tenon/nested": python("nested refused_by_packages"),
    "python/tenon/ao": python("quantization quantization_graphs quantization_switches "
                                 "quantized_tensors"),
    "python/tenon/_transform": python("vmap vmap_calls vmap_gradients vmap_views forward_ad "
                                      "forward_functions per_sample_grads rows_at_once transforms "
                                      "refused_in_training expressions"),
    "python/tenon/autograd": TRACKING,
    "python/tenon/_tape": TRACKING,
    "python/tenon/_tensor": python("tensor index print expressions inner twins foreach amp "
                                   "tensor_types old_orders storage sparse conversions "
                                   "names_of_copies arrays options mistakes refused_by_tensors "
                                   "refused_by_core refused_by_arguments warnings"),
    "python/tenon/testing": python("testing"),
    "python/tenon/onnx": python("onnx onnx_load onnx_numbers onnx_operators onnx_rules "
                                "onnx_sizes"),
    "python/tenon/fx": python("fx fx_passes fx_patches fx_proxies fx_beside fx_beside_managers "
                              "fx_beside_modules fx_beside_passes fx_beside_writing compile "
                              "refused_by_graphs warnings"),
    "python/tenon/export": python("export export_calls export_parts export_program export_sizes "
                                  "jit_beside refused_by_graphs"),
    "python/tenon/jit": python("jit jit_beside script script_files refused_in_programs "
                               "refused_by_tools"),
    "python/tenon/_program": python("compile compile_default compile_graphs compile_random "
                                    "compile_seen export export_parts export_program export_sizes "
                                    "compile_told fx jit jit_beside script script_files "
                                    "read_sizes sizes_that_turn deferred package_parts "
                                    "refused_in_programs refused_by_graphs refused_by_tools"),
    "python/tenon/nn": [*LAYERS, "tests/ops/test_nn_ops.py", "tests/ops/test_rnn.py"],
    "python/tenon": ["tests/python"],
}  # fmt: skip


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev mutate", description="Mutation tests of the operators."
    )
    parser.add_argument("entries", nargs="*", help="operators by name; default: all")
    parser.add_argument("--code", nargs="+", type=Path, metavar="FILE",
                        help="not the table but these files, C of the library and the CPU plugin "
                        "or modules of Python")  # fmt: skip
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="with --code: what may kill")
    parser.add_argument(
        "--most",
        type=float,
        default=1e9,
        metavar="SECONDS",
        help="the shortest tests of a mutant, together no longer than this",
    )
    parser.add_argument("--kind", choices=KINDS, action="append", help="only such mutants")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants, drawn with --seed")
    parser.add_argument("--one-in", type=int, metavar="K", help="those that a draw with --seed "
                        "takes with a chance of 1 in K, whatever others there are")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--each", type=int, default=2, help="mutants of a formula at most (2)")
    parser.add_argument("--isa", default=LEAST, help="of the kernels: baseline, avx2 or avx512")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--far", action="store_true", help="let the living meet all quick tests")
    parser.add_argument("--near", action="store_true", help="only the tests of their entries")
    parser.add_argument("--again", type=Path, metavar="FILE", help="what lived in this --json")
    parser.add_argument("--json", type=Path, help="the result of every mutant, written after each")
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    parser.add_argument("--build", type=Path, default=ROOT / os.environ.get("TENON_BUILD", "build"))
    return parser.parse_args()


def chosen(found: list[Mutant], opts: argparse.Namespace) -> list[Mutant]:
    mutants = points.at_most(found, opts.each)
    if opts.kind:
        mutants = [m for m in mutants if m.kind in opts.kind]
    if opts.entries:
        mutants = [m for m in mutants if set(opts.entries) & set(m.entries)]
    if opts.again:
        before = json.loads(opts.again.read_text(encoding="utf-8"))["results"]
        mutants = [m for m in mutants if before.get(m.id, "killed") != "killed"]

    def drawn(m: Mutant) -> int:
        return int.from_bytes(hashlib.sha256(f"{opts.seed} {m.id}".encode()).digest())

    # What changes in the tree adds and removes few of the chosen, and with --one-in no others.
    if opts.one_in:
        mutants = [m for m in mutants if drawn(m) % opts.one_in == 0]
    if opts.sample:
        mutants = sorted(mutants, key=drawn)[: opts.sample]
    return mutants


def tests_of(files: list[Path]) -> list[str]:
    """What looks at files that belong to no entry, by their rooms."""
    found: dict[str, None] = {}
    for path in files:
        name = path.relative_to(points.ROOT).as_posix()
        for room, tests in ROOMS.items():
            if name.startswith(room):
                found |= dict.fromkeys(tests)
                break
        if path.suffix == ".py":
            found |= dict.fromkeys(python("defaults"))
    return list(found)


def allowed() -> dict[str, str]:
    """The mutants that may live, with the reasons."""
    rows = tomllib.loads((HERE / "living.toml").read_text(encoding="utf-8")).get("living", [])
    return {m: row["reason"] for row in rows for m in row["mutants"]}


def main() -> int:
    opts = options()
    build = Build(opts.build, opts.jobs, opts.isa)
    files = [path.resolve() for path in opts.code or []]
    found = build.collect() if not files else points.distinct(
        m for path in files for m in points.code_mutants(path))  # fmt: skip
    may_live = allowed()
    unknown = sorted(set(may_live) - {m.id for m in found}) if not files else []
    tests = opts.tests or tests_of(files)
    mutants = chosen(found, opts)
    if opts.list:
        print("\n".join(f"{m.kind}: {m.id}" for m in mutants))
        return 0
    began = time.monotonic()
    site = build.make(mutants, tests, opts.most, may_live)
    print(f"mutate: built in {time.monotonic() - began:.0f} s", file=sys.stderr)
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TENON_NUM_THREADS"), "1")
    # Mutants of kernels are compiled for one instruction set alone.
    env = {**os.environ, **one, "PYTHONPATH": str(site), "TENON_CPU_ISA": opts.isa}
    written = (opts.json or build.out / "results.json").resolve()
    command = [sys.executable, str(HERE / "runner.py"), str(build.out), str(opts.jobs)]
    command += [str(written), *(["far"] if opts.far else ["near"] if opts.near else [])]
    written.unlink(missing_ok=True)
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"mutate: the runner ended with {done.returncode}; {written}: what it got")
    results = json.loads(written.read_text(encoding="utf-8"))
    return report(build, results, may_live, unknown, began)


def report(
    build: Build,
    results: dict[str, object],
    may_live: dict[str, str],
    unknown: list[str],
    began: float,
) -> int:
    """Prints the table and the living; 1 where living.toml and what lives differ."""
    plan = json.loads((build.out / "mutants.json").read_text(encoding="utf-8"))["mutants"]
    outcome: dict[str, str] = results["results"]  # type: ignore[assignment]
    total, killed = Counter(m["kind"] for m in plan), Counter(
        m["kind"] for m in plan if outcome[m["id"]] == "killed")  # fmt: skip
    living = [m for m in plan if outcome[m["id"]] != "killed"]
    new = [m for m in living if m["id"] not in may_live]
    stale = [m["id"] for m in plan if outcome[m["id"]] == "killed" and m["id"] in may_live]
    for m in new:
        print(f"{outcome[m['id']]:9} {m['kind']:8} {m['id']}")
    for text in stale:
        print(f"killed, but living.toml lists it: {text}")
    for text in unknown:
        print(f"living.toml lists what is no mutant any more: {text}")
    for test in results["failing"]:  # type: ignore[attr-defined]
        print(f"fails without any mutant: {test}")
    for kind in KINDS:
        if total[kind]:
            print(f"{kind:9} {killed[kind]:5} killed of {total[kind]}")
    print(f"{sum(killed.values())} of {sum(total.values())} mutants killed, "
          f"{len(living) - len(new)} may live, {len(new)} live, "
          f"{time.monotonic() - began:.0f} s")  # fmt: skip
    return int(bool(new or stale or unknown or results["failing"]))


if __name__ == "__main__":
    sys.exit(main())
