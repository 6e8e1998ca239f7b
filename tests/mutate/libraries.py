"""A libtenon and a CPU plugin that hold all chosen mutants, beside the build they come from."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ctext
import points
from points import ROOT, Mutant, Source

LIBTENON = "libtenon.so"
CPU = "backends/cpu/tenon_cpu.so"
MODULE = "python/_C.abi3.so"
# One element type of each class that has formulas of its own has its kernels changed: bool, int64,
# bfloat16, float32, float64, complex64, complex128.
SLOTS = ("0", "5", "7", "8", "9", "10", "11")
LEAST = "baseline"  # the instruction set without any other's

GROW = """
#define MUTATE_GROW(e) _Generic((e), float: (e) * 1.01f, double: (e) * 1.01, \\
    float _Complex: (e) * 1.01f, double _Complex: (e) * 1.01, default: (e) + 1)
#define MUTATE_NOT(e) (!(e))
"""
# All libraries get this; only libtenon has descriptors. A process that a test starts is told by its
# environment which mutant is on, and in which file it notes what it reaches.
STATE = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int tni_mutant;
static unsigned char own[{size}];
unsigned char *tni_mutate_reached = own;
__attribute__((visibility("default"))) unsigned char *tn_mutate_{name}_reached(void);
unsigned char *tn_mutate_{name}_reached(void) {{ return tni_mutate_reached; }}
__attribute__((visibility("default"))) void tn_mutate_{name}(int number);
void tn_mutate_{name}(int number) {{
    tni_mutant = number;
    switch (number) {{
{rules}
    default: break;
    }}
}}
static __attribute__((constructor)) void inherit(void) {{
    const char *number = getenv("TN_MUTANT"), *file = getenv("TN_REACHED");
    if (number) tn_mutate_{name}(atoi(number));
    int fd = file ? open(file, O_RDWR) : -1;
    if (fd < 0) return;
    void *at = mmap(NULL, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) tni_mutate_reached = at;
    close(fd);
}}
"""
RESULTS = """
#include <tenon/ops.h>
#include "core_priv.h"
tn_status tni_mutate_grow(tn_tensor **slot);
tn_status tni_mutate_grow(tn_tensor **slot) {
    tn_tensor *t = *slot, *ret = NULL;
    if (!t) return TN_OK;
    int32_t dtype = tn_tensor_dtype(t);
    tn_status st = dtype == TN_BOOL ? tn_logical_not(t, &ret)
                   : dtype < TN_F16 ? tn_add_scalar(t, tn_scalar_int(1), tn_scalar_int(1), &ret)
                                    : tn_mul_scalar(t, tn_scalar_float(1.01), &ret);
    if (st != TN_OK) return st;
    tn_tensor_unref(slot);
    *slot = ret;
    return TN_OK;
}
tn_status tni_mutate_longer(tn_out_meta *out, int last);
tn_status tni_mutate_longer(tn_out_meta *out, int last) {
    if (out->ndim && !out->absent) out->shape[last ? out->ndim - 1 : 0]++;
    return TN_OK;
}
"""
HEAD = """extern int tni_mutant;
extern unsigned char *tni_mutate_reached;
int tni_mutate_grow();
int tni_mutate_longer();
"""


class Build:
    """The commands of a build folder, and the libraries made beside it."""

    def __init__(self, folder: Path, jobs: int, isa: str = LEAST) -> None:
        self.folder, self.jobs, self.isa = folder.resolve(), jobs, isa
        self.out = self.folder / "mutate"
        rows = json.loads((self.folder / "compile_commands.json").read_text(encoding="utf-8"))
        self.units = {row["output"]: row for row in rows}

    def path_of(self, row: dict[str, Any]) -> Path:
        return Path(os.path.normpath(self.folder / row["file"]))

    def sources(self) -> list[Source]:
        """What libtenon is compiled from, generated files too."""
        paths = {self.path_of(r) for o, r in self.units.items() if o.startswith(LIBTENON + ".p/")}
        return [Source(str(p), p.read_text(encoding="utf-8")) for p in sorted(paths)]

    # -- writing -------------------------------------------------------------------------------

    def write(self, mutants: list[Mutant], reached: dict[tuple[str, str], int]) -> set[Path]:
        """The changed files below the output folder. Returns the originals that they replace."""
        files: dict[str, list[Mutant]] = {}
        for m in mutants:
            if m.code:
                files.setdefault(m.file, []).append(m)
        self.ranges: dict[str, list[tuple[int, int, Mutant]]] = {}
        shutil.rmtree(self.out / "backends", ignore_errors=True)
        if any(self.in_plugin(m) for m in mutants):
            shutil.copytree(ROOT / "backends", self.out / "backends")
        for name, group in files.items():
            target = self.target(Path(name))
            target.parent.mkdir(parents=True, exist_ok=True)
            text = self.changed(Path(name), group, reached, str(target))
            target.write_text(text, encoding="utf-8")
        return {Path(name) for name in files}

    def in_plugin(self, mutant: Mutant) -> bool:
        return Path(mutant.file).is_relative_to(ROOT / "backends")

    def in_module(self, mutant: Mutant) -> bool:
        return bool(mutant.code) and Path(mutant.file).is_relative_to(ROOT / "python" / "src")

    def target(self, path: Path) -> Path:
        """Where the changed copy of a file goes."""
        if path.is_relative_to(ROOT / "backends"):
            return self.out / path.relative_to(ROOT)
        inside = path.is_relative_to(ROOT) and not path.is_relative_to(self.folder)
        return self.out / "core" / ("_".join(path.relative_to(ROOT).parts) if inside else path.name)

    def changed(
        self, path: Path, mutants: list[Mutant], reached: dict[tuple[str, str], int], name: str
    ) -> str:
        text = path.read_text(encoding="utf-8")
        functions = {f.key: f for f in ctext.functions(text)}
        functions |= {f.name: f for f in functions.values()}
        by_function: dict[str, list[Mutant]] = {}
        for m in mutants:
            by_function.setdefault(m.function, []).append(m)
        pieces: list[str] = []
        at = 0
        line = 1
        ranges = self.ranges.setdefault(name, [])

        def add(piece: str, mutant: Mutant | None = None) -> None:
            nonlocal line
            pieces.append(piece)
            last = line + piece.count("\n")
            if mutant:
                ranges.append((line, last, mutant))
            line = last

        generated = path.is_relative_to(self.folder)
        add(HEAD + GROW + ("#include <tenon/ops.h>\n" if generated else ""))
        at = 0
        for key, group in sorted(by_function.items(), key=lambda x: _place(x[0], functions)):
            seen = f"tni_mutate_reached[{reached[(str(path), key)]}]"
            if key not in functions:
                place = int(key.split("@")[1])
                add(text[at:place])
                macro = text[place : text.index("\n", place)]
                head = re.match(r"#define RED_\w+\(\w+, \w+\) ", macro)
                assert head
                expr = macro[head.end() :]
                for m in group:
                    expr = f"tni_mutant == {m.number} ? ({m.code}) : {expr}"
                add(f"{head[0]}(({seen} = 1), {expr})")
                at = place + len(macro)
                continue
            fn = functions[key]
            add(text[at : fn.start] + ctext.prototype(text, fn))
            cases = []
            for m in group:
                own = f"{fn.name}_m{m.number}"
                add(m.code.replace("{NAME}", own), m)
                cases.append((m.number, own))
            add(ctext.plain_head(text, fn) + "{\n" + ctext.choose(fn, seen, cases, "tni_mutant"))
            at = fn.brace + 1
        add(text[at:])
        return "".join(pieces)

    # -- compiling -----------------------------------------------------------------------------

    def compile(self, output: str, source: Path, target: Path) -> tuple[str, str]:
        """Compiles `target` as the build compiles `source`; (object, messages of the compiler)."""
        row = self.units[output]
        words = shlex.split(row["command"])
        obj = self.out / "objects" / output
        obj.parent.mkdir(parents=True, exist_ok=True)
        drop = {"-MD"}
        made: list[str] = []
        skip = False
        for w in words:
            if skip:
                skip = False
            elif w in ("-MQ", "-MF", "-o", "-c"):
                skip = True
            elif w not in drop and not w.startswith("-W") and w != "-O3":
                made.append(self.include(w))
        level = "-O0" if output.startswith((LIBTENON, MODULE)) else "-O1"
        made += [level, "-w", "-fdiagnostics-color=never"]
        made += ["-iquote", str(source.parent), "-o", str(obj), "-c", str(target)]
        done = subprocess.run(made, cwd=self.folder, capture_output=True, text=True, check=False)
        return str(obj), done.stderr if done.returncode else ""

    def include(self, word: str) -> str:
        """A word of a command; a folder of the backends is the copy's."""
        if not word.startswith("-I"):
            return word
        path = Path(os.path.normpath(self.folder / word[2:]))
        inside = path.is_relative_to(ROOT / "backends") and (self.out / "backends").exists()
        return f"-I{self.target(path)}" if inside else word

    def units_of(self, originals: set[Path]) -> list[tuple[str, Path, Path]]:
        """(object, its source, what is compiled instead) for all that holds changed text."""
        found = []
        headers = {p for p in originals if p.suffix == ".h"}
        for output, row in self.units.items():
            path = self.path_of(row)
            if output.startswith((LIBTENON + ".p/", MODULE + ".p/")) and path in originals:
                found.append((output, path, self.target(path)))
            elif output.startswith("backends/cpu/") and (headers or path in originals):
                slot = re.search(r"-DTMPL_DTYPE=(\d+)", row["command"])
                isa = re.search(r"-DTMPL_ISA=(\w+)", row["command"])
                if slot and slot[1] not in SLOTS or isa and isa[1] != self.isa:
                    continue
                if path in originals:
                    found.append((output, path, self.target(path)))
                    continue
                used = self.headers_of(output) & headers
                scalar = {h for h in used if h.name.startswith("scalar")}
                if used - scalar or (scalar and path.name == "map_tu.c"):
                    found.append((output, path, self.target(path)))
        return found

    def headers_of(self, output: str) -> set[Path]:
        done = subprocess.run(["ninja", "-t", "deps", output], cwd=self.folder, text=True,
                              capture_output=True, check=True)  # fmt: skip
        lines = done.stdout.splitlines()[1:]
        return {Path(os.path.normpath(self.folder / line.strip())) for line in lines}

    def compile_all(self, originals: set[Path]) -> tuple[dict[str, str], set[int]]:
        """The new objects by the names of the old ones, and the mutants that are no C."""
        bad: set[int] = set()
        objects = {}
        with ThreadPoolExecutor(self.jobs) as pool:
            units = self.units_of(originals)
            made = list(pool.map(lambda u: self.compile(*u), units))
            for unit, (obj, messages) in zip(units, made, strict=True):
                objects[unit[0]] = obj
                if not messages:
                    continue
                found = self.blamed(messages)
                if not found:
                    raise SystemExit(f"mutate: {unit[2]} does not compile:\n{messages[:4000]}")
                bad |= found
        return objects, bad

    def blamed(self, messages: str) -> set[int]:
        """The mutants in whose text the errors are; without a bracket a text does not end there."""
        found = {int(n) for n in re.findall(r"In function .\w+_m(\d+)", messages)}
        for m in re.finditer(r"^([^\s:]+):(\d+):\d+: (?:fatal )?error", messages, re.M):
            name = os.path.normpath(self.folder / m[1])
            for first, last, mutant in self.ranges.get(name, []):
                if first <= int(m[2]) <= last:
                    found.add(mutant.number)
        return found

    def state(self, name: str, size: int, mutants: list[Mutant]) -> str:
        """The object that says which mutant is switched on."""
        rules = "\n".join(
            f"    case {m.number}: tni_op_{m.rule[0]}.{m.rule[1]} = {m.rule[2]}; break;"
            for m in mutants if m.rule[0]
        )  # fmt: skip
        core = name == "core"
        families = {p.name for p in map(self.path_of, self.units.values()) if p.stem[:3] == "op_"}
        heads = "".join(f'#include "{Path(f).stem}.h"\n' for f in sorted(families - {"op_list.c"}))
        text = (heads + RESULTS if core else "") + STATE.format(
            name=name, size=max(size, 1), rules=rules if core else ""
        )
        path = self.out / f"state_{name}.c"
        path.write_text(text, encoding="utf-8")
        prefix = {"core": LIBTENON, "module": MODULE}.get(name, "backends/cpu/")
        like = next(o for o, r in self.units.items() if o.startswith(prefix)
                    and (not core or "operators" in o))  # fmt: skip
        obj = self.compile_as(like, path)
        return obj

    def compile_as(self, output: str, path: Path) -> str:
        self.units[f"state_{path.name}.o"] = {**self.units[output], "output": ""}
        obj, messages = self.compile(f"state_{path.name}.o", self.path_of(self.units[output]), path)
        if messages:
            raise SystemExit(f"mutate: {path} does not compile:\n{messages[:4000]}")
        return obj

    def link(self, library: str, objects: dict[str, str], state: str) -> Path:
        # With -x the words of a long command stand here, not the name of a file that holds them.
        linkers = ["ninja", "-t", "compdb", "-x", "c_LINKER", "c_LINKER_RSP"]
        done = subprocess.run(linkers, cwd=self.folder, text=True, capture_output=True, check=True)
        rows = {row["output"]: row["command"] for row in json.loads(done.stdout)}
        words = shlex.split(rows[library])
        made = self.out / Path(library).name
        words = [objects.get(w, w) for w in words]
        words[words.index("-o") + 1] = str(made)
        words.insert(words.index("-o") + 2, state)
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"mutate: {library} does not link:\n{done.stderr[-4000:]}")
        return made

    def site(self, libraries: list[Path]) -> Path:
        """The package with these libraries in place of its own."""
        target = self.out / "site"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder / "site", target, symlinks=True)
        (target / "tenon" / "plugins").mkdir()
        for path in (self.folder / "plugins").glob("tenon_cpu.*"):
            shutil.copy2(path, target / "tenon" / "plugins" / path.name)
        for path in target.rglob("*.so"):
            real = next((made for made in libraries if made.name == path.name), path.resolve())
            if real != path:
                path.unlink()
                shutil.copy2(real, path)
        return target

    # -- all of it -----------------------------------------------------------------------------

    def make(
        self, mutants: list[Mutant], tests: list[str], most: float, may_live: Collection[str]
    ) -> Path:
        """Builds, numbers the mutants, leaves out those that are no C; writes mutants.json, with
        the tests to collect where mutants belong to no entry and the seconds that one may cost."""
        self.out.mkdir(parents=True, exist_ok=True)
        reached: dict[tuple[str, str], int] = {}
        for number, m in enumerate(mutants, 1):
            m.number = number
            if m.code:
                m.seen = reached.setdefault((m.file, m.function), len(reached))
        bad: set[int] = {0}
        made_of = len(mutants)
        while bad:  # what is compiled again without change comes from the compiler's cache
            objects, bad = self.compile_all(self.write(mutants, reached))
            mutants = [m for m in mutants if m.number not in bad]
        if left_out := made_of - len(mutants):
            print(f"mutate: {left_out} of {made_of} are no C and left out", file=sys.stderr)
        core = self.state("core", len(reached), mutants)
        made = [self.link(LIBTENON, objects, core)]
        if any(self.in_plugin(m) for m in mutants):
            made.append(self.link(CPU, objects, self.state("cpu", len(reached), mutants)))
        if any(self.in_module(m) for m in mutants):
            made.append(self.link(MODULE, objects, self.state("module", len(reached), mutants)))
        site = self.site(made)
        rows = [
            {k: v for k, v in asdict(m).items() if k != "code"}
            | {"id": m.id, "listed": m.id in may_live}
            for m in mutants
        ]
        plan = {"mutants": rows, "callers": points.callers(self.sources(), points.read_table())}
        plan |= {"tests": tests, "most": most}
        (self.out / "mutants.json").write_text(json.dumps(plan, indent=1), encoding="utf-8")
        return site

    def collect(self) -> list[Mutant]:
        """All mutants of the tree."""
        ops = points.read_table()
        by_name = {op.name: op for op in ops}
        found: list[Mutant] = []
        sources = {Path(s.path).name: s for s in self.sources()}
        generated = Path(sources["op_list.c"].path).parent
        found += points.formula_mutants(ops, generated)
        for source in sources.values():
            if Path(source.path).is_relative_to(self.folder):
                found += points.glue_mutants(source, by_name)
            else:
                found += points.function_mutants(source, by_name)
        found += points.descriptor_mutants(ops)
        found += points.kernel_mutants(by_name, self.isa != LEAST)
        found += points.reduction_mutants()
        return points.distinct(found)


def _place(key: str, functions: dict[str, ctext.Function]) -> int:
    return functions[key].start if key in functions else int(key.split("@")[1])
