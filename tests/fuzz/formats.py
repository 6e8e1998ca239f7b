"""Reads files and texts made by the rules of their format, which then go wrong in it: pickled
structures in zip archives, safetensors, npy, recorded programs, ONNX models, plugin manifests,
declarations, schemas and formulas.
A reader says what is wrong in an exception of its own; it never ends the process, hangs, or raises
what only a mistake in it would raise.

    python tests/fuzz/formats.py --seed 7 --cases 100000
    python tests/fuzz/formats.py --seed 7 --first 1234 --cases 1

The files of tests/fuzz/corpus, on which a reader failed once, are read before.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import models
import programs
import scripts
import tenon as tn
from tenon.io import npy, safetensors
from tenon.io.errors import FileFormatError

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 30  # for one case
EDGES = (
    0,
    1,
    2,
    7,
    255,
    256,
    2**15,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


def edge(rng: random.Random) -> int:
    return rng.choice(EDGES) if rng.random() < 0.3 else rng.randrange(9)


# ---- Pickled structures --------------------------------------------------------------------------

GLOBALS = [
    ("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_tensor_v3"),
    ("torch._utils", "_rebuild_parameter"), ("torch._utils", "_rebuild_parameter_with_state"),
    ("torch._tensor", "_rebuild_from_type_v2"), ("torch", "Tensor"), ("torch", "Size"),
    ("torch", "device"), ("torch", "float32"), ("torch", "complex64"), ("torch", "FloatStorage"),
    ("torch", "DoubleStorage"), ("torch.storage", "UntypedStorage"), ("collections", "OrderedDict"),
    ("collections", "defaultdict"), ("collections", "Counter"), ("builtins", "set"),
    ("builtins", "frozenset"), ("builtins", "bytearray"), ("builtins", "complex"),
    ("builtins", "list"), ("_codecs", "encode"), ("tenon", "_plugin_tensor"), ("os", "system"),
]  # fmt: skip
TEXTS = ["storage", "0", "1", "cpu", "conj", "neg", "latin1", "", "uint8", "acme:0", "\0", "ä" * 40]


def pickled_int(value: int) -> bytes:
    size = (value.bit_length() >> 3) + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def pickled_text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<L", len(raw)) + raw


class Pickle:
    """Writes a stream that keeps to the rules of the stack, as far as `rng` lets it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.out = bytearray(b"\x80\x02")
        self.memo = 0

    def value(self, depth: int) -> None:
        makers: list[Callable[[int], None]] = [
            self.number, self.text, self.plain, self.again, self.sequence, self.mapping,
            self.members, self.call, self.tensor, self.tensor,
        ]  # fmt: skip
        self.rng.choice(makers if depth else makers[:4])(depth - 1)
        if self.rng.random() < 0.4:
            self.out += b"q" + bytes([self.memo % 256])
            self.memo += 1
        if self.rng.random() < 0.02:
            self.out.append(self.rng.randrange(256))

    def number(self, _: int) -> None:
        value = edge(self.rng) * self.rng.choice((1, 1, 1, -1))
        self.out += self.rng.choice((pickled_int(value), b"K" + bytes([value & 255])))

    def text(self, _: int) -> None:
        self.out += pickled_text(self.rng.choice(TEXTS))

    def plain(self, _: int) -> None:
        self.out += self.rng.choice((b"N", b"\x88", b"\x89", b"G" + self.rng.randbytes(8), b"C\1a"))

    def again(self, _: int) -> None:
        self.out += b"h" + bytes([self.rng.randrange(self.memo)]) if 0 < self.memo < 256 else b"N"

    def many(self, depth: int, most: int = 4) -> None:
        for _ in range(self.rng.randrange(most)):
            self.value(depth)

    def sequence(self, depth: int) -> None:
        if self.rng.random() < 0.5:
            self.out += b"("
            self.many(depth)
            self.out += self.rng.choice((b"t", b"l"))
        else:
            self.out += b"]("
            self.many(depth)
            self.out += b"e"

    def mapping(self, depth: int) -> None:
        self.out += self.rng.choice((b"}", b"ccollections\nOrderedDict\n)R")) + b"("
        for _ in range(self.rng.randrange(4)):
            self.rng.choice((self.text, self.number, self.sequence))(0)
            self.value(depth)
        self.out += b"u"
        if self.rng.random() < 0.1:
            self.out += b"}" + pickled_text("_metadata") + b"Nsb"

    def members(self, depth: int) -> None:
        self.out += b"\x8f("
        self.many(min(depth, 1))
        self.out += b"\x90"

    def name(self, module: str, name: str) -> None:
        self.out += f"c{module}\n{name}\n".encode()

    def call(self, depth: int) -> None:
        self.name(*self.rng.choice(GLOBALS))
        self.out += b"("
        self.many(depth, 5)
        self.out += b"tR"

    def sizes(self) -> None:
        self.out += b"("
        for _ in range(self.rng.randrange(4)):
            self.number(0)
        self.out += b"t"

    def tensor(self, _: int) -> None:
        rng = self.rng
        version = rng.choice((2, 2, 3))
        self.name("torch._utils", f"_rebuild_tensor_v{version}")
        self.out += b"((" + pickled_text("storage")
        kind = rng.choice((*GLOBALS[10:13], GLOBALS[10]))
        self.name(*kind)
        self.out += pickled_text(rng.choice("0012")) + pickled_text("cpu")
        count = {"FloatStorage": 16, "DoubleStorage": 8, "UntypedStorage": 64}[kind[1]]
        self.out += pickled_int(count if rng.random() < 0.9 else edge(rng)) + b"tQ"
        self.number(0)
        self.sizes()
        self.sizes()
        self.out += rng.choice((b"\x88", b"\x89", b"\x89", b"N")) + b"ccollections\nOrderedDict\n)R"
        if version == 3:
            self.name("torch", rng.choice(("float32", "complex64", "Size")))
        if rng.random() < 0.3:
            self.out += b"}" + pickled_text(rng.choice(TEXTS)) + b"\x88s"
        self.out += b"tR"


def checkpoint(rng: random.Random) -> bytes:
    writer = Pickle(rng)
    writer.value(5)
    file = io.BytesIO()
    with zipfile.ZipFile(
        file, "w", rng.choice((zipfile.ZIP_STORED,) * 9 + (zipfile.ZIP_DEFLATED,))
    ) as z:
        z.writestr("a/data.pkl", bytes(writer.out) + b".")
        z.writestr("a/version", b"3\n")
        if rng.random() < 0.3:
            z.writestr("a/byteorder", rng.choice((b"big", b"little", b"big", b"")))
        for key in "01":
            z.writestr(f"a/data/{key}", bytes(range(64)))
    data = bytearray(file.getvalue())
    if rng.random() < 0.3:  # a number of the directory or of its end
        start = data.find(b"PK\x01\x02") if rng.random() < 0.7 else data.rfind(b"PK\x05\x06")
        at, width = start + rng.randrange(4, 46), rng.choice((2, 4))
        data[at : at + width] = (edge(rng) % 256**width).to_bytes(width, "little")
    return bytes(data)


def old_checkpoint(rng: random.Random) -> bytes:
    """Pickles in a row, with two storages behind them."""
    writer = Pickle(rng)
    writer.value(5)
    value = {"x": [tn.ones(16), tn.ones(8).double()], "n": 1}
    file = io.BytesIO()
    tn.save(value, file, _use_new_zipfile_serialization=False)
    data = bytearray(file.getvalue())
    if rng.random() < 0.5:  # what the structure says is any
        start = data.index(b"\x80\x02}", data.index(b"type_sizes") + 40)
        data[start : data.index(b"\x80\x02]", start)] = writer.out + b"."
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(data))
        piece = rng.choice((b"", bytes([rng.randrange(256)]), rng.randbytes(4), b"Q", b"t", b"("))
        data[at : at + rng.randrange(len(piece) + 2)] = piece
    return bytes(data)


def tar_checkpoint(rng: random.Random) -> bytes:
    """A tar archive of storages, tensors and a structure."""
    kind = b"ctorch\nFloatStorage\n"
    rows, tensors = rng.randrange(3), rng.randrange(3)
    storages = pickled_number(rng, rows)
    for i in range(rows):
        storages += b"\x80\x02K" + bytes([i]) + pickled_text("cpu") + kind + b"\x87."
        storages += struct.pack("<q", 4 if rng.random() < 0.8 else edge(rng) % 2**63) + bytes(16)
    storages += b"\x80\x02](" + pickled_int(9) + b"K\x00" + pickled_int(edge(rng)) + b"K\x01te."
    shapes = pickled_number(rng, tensors)
    for i in range(tensors):
        shapes += b"\x80\x02K" + bytes([20 + i]) + b"K" + bytes([rng.choice((0, 1, 9))])
        shapes += b"ctorch\nFloatTensor\n\x87." + struct.pack("<q", 1)
        shapes += struct.pack("<3q", *(edge(rng) % 2**63 for _ in range(3)))
    structure = b"\x80\x02](" + b"".join(
        pickled_text(str(20 + i)) + b"Q" for i in range(rng.randrange(4))
    )
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, data in (("storages", storages), ("tensors", shapes), ("pickle", structure)):
            info = tarfile.TarInfo(name)
            whole = data + (b"e." if name == "pickle" else b"")
            info.size, info.mtime = len(whole), rng.choice((0, 1.5))
            archive.addfile(info, io.BytesIO(whole))
    data = bytearray(file.getvalue())
    for _ in range(rng.randrange(3)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def pickled_number(rng: random.Random, value: int) -> bytes:
    return b"\x80\x02" + pickled_int(value if rng.random() < 0.9 else edge(rng)) + b"."


# ---- Other files ---------------------------------------------------------------------------------


def tensors_file(rng: random.Random) -> bytes:
    header: dict[str, Any] = {}
    at = 0
    for i in range(rng.randrange(5)):
        shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
        kind, size = rng.choice((("F32", 4), ("U8", 1), ("C64", 8), ("F99", 2), (7, 1)))
        for n in shape:
            size *= n
        entry: dict[str, Any] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + size]}
        at += size
        if rng.random() < 0.2:
            wrong = (edge(rng), -1, 1.5, None, [], {}, "x", [edge(rng)], [edge(rng), edge(rng)])
            entry[rng.choice([*entry, "more"])] = rng.choice(wrong)
        header[rng.choice((f"t{i}", "a\0b", "../x", "ä", "__metadata__"))] = entry
    if rng.random() < 0.3:
        key = rng.choice(("k", "tenon.dtype.t0"))
        header["__metadata__"] = {key: rng.choice(("v", "posit16 x 2", "float32 none 4", 3))}
    raw = json.dumps(header).encode()
    if rng.random() < 0.2:
        raw = raw.replace(
            *rng.choice(((b"}", b""), (b":", b","), (b'"', b'"\\ud800'), (b"0", b"00")))
        )
    length = len(raw) if rng.random() < 0.9 else edge(rng) % 2**64
    return length.to_bytes(8, "little") + raw + bytes(at)


def array_file(rng: random.Random) -> bytes:
    shape = [rng.randrange(4) for _ in range(rng.randrange(4))]
    text = "(" + "".join(f"{n}, " for n in shape) + ")"
    fields = [("descr", repr(rng.choice(("<f4", ">f8", "|b1", "<c8", "|O", "<V3", "")))),
              ("fortran_order", rng.choice(("True", "False"))), ("shape", text)]  # fmt: skip
    rng.shuffle(fields)
    header = "{" + "".join(f"'{k}': {v}, " for k, v in fields) + "}"
    for _ in range(rng.randrange(3) if rng.random() < 0.4 else 0):
        at = rng.randrange(len(header))
        piece = rng.choice(
            ("'", "(", ")", ",", "1" * rng.randrange(40), "L", "{", " ", "-", "True", "")
        )
        header = header[:at] + piece + header[at + rng.randrange(2) :]
    raw, size = header.encode(), 1
    for n in shape:
        size *= n
    version = rng.choice((1, 2, 3, 3, 9))
    length = len(raw) if rng.random() < 0.9 else edge(rng)
    head = (
        (length % 2**16).to_bytes(2, "little")
        if version == 1
        else (length % 2**32).to_bytes(4, "little")
    )
    return b"\x93NUMPY" + bytes([version, 0]) + head + raw + bytes(size * rng.choice((1, 4, 8)))


def blocks_file(rng: random.Random) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def number() -> int:
        return rng.choice((1, 1, 2, 32, 256)) if rng.random() < 0.9 else edge(rng)

    settings, tensors = rng.randrange(3), rng.randrange(4)
    out = b"GGUF" + struct.pack(
        "<IQQ", rng.choice((2, 3, 3, 3, 1)), tensors,
        settings if rng.random() < 0.9 else edge(rng) % 2**64,
    )  # fmt: skip
    for i in range(settings):
        out += text(rng.choice((f"k{i}", "general.alignment")))
        kind = rng.choice((0, 4, 4, 6, 7, 8, 9, 9, 12, 13))
        out += struct.pack("<I", kind)
        out += text("v") if kind == 8 else struct.pack("<IQ", rng.choice((0, 8, 9)), number())
        out += rng.randbytes(8) if kind != 4 else b""
    offset = 0
    for i in range(tensors):
        dims = [number() for _ in range(rng.randrange(3))]
        out += text(f"t{i}") + struct.pack("<I", len(dims))
        out += struct.pack(f"<{len(dims)}Q", *(n % 2**64 for n in dims))
        out += struct.pack("<IQ", rng.choice((0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 24, 30, 99)), offset)
        offset += rng.choice((0, 32, 1024))
    return out + rng.randbytes(rng.choice((0, 64, 5000)))


def manifest(rng: random.Random) -> bytes:
    value: Any = {
        "manifest": 1, "name": "x", "version": "1", "library": "x.so",
        "abi": {"major": 1, "min_minor": 0}, "devices": ["x"], "ops": ["x::y@2"], "layers": [],
    }  # fmt: skip
    for _ in range(rng.randrange(4)):
        key = rng.choice([*value, "more"])
        value[key] = rng.choice(
            (None, True, edge(rng), -edge(rng), 1e300, "", "cpu", "../x.so", "x" * 300, [], {},
             [[]], {"major": edge(rng)}, [edge(rng)], ["cpu"], ["\ud83d\ude00"], ["x"] * 100)
        )  # fmt: skip
    raw = json.dumps(value).encode()
    if rng.random() < 0.3:
        at = rng.randrange(len(raw))
        piece = rng.choice(
            (b"[" * 40, b'{"a":' * 40, b"\\", b'"', b"\xff", b"\\ud800", b"\0", b"1e", b"")
        )
        raw = raw[:at] + piece + raw[at + rng.randrange(3) :]
    return raw


# ---- Texts ---------------------------------------------------------------------------------------

WORDS = {
    "formula": [
        "x", "y", "grad", "sin", "where", "sum", "pi", "(", ")", "(", ")", ",", "+", "-", "*", "/",
        "**", "<", "==", "&", "[", "]", "1", "2.5", "1e400", "'a'", ".shape", ".dtype", "[0]", "~",
        "dim=0", "%", "//", "none", ";", ":", "sqrt(x)", "9" * 40, "\0", "ä",
    ],
    "schema": [
        "Tensor", "Tensor?", "Tensor[]", "Tensor(a!)", "int", "int[2]", "float", "str", "Dim", " x",
        " y", ",", "*", "(", ")", "->", "=", "None", "1", "'", "x::y", "@2", "9" * 30, "\0", "ä",
    ],
    "declaration": [
        "double ", "int ", "void ", "const ", "*", "f", "g", "(", ")", ",", " x", " n", "[n]", " ",
        "struct ", "{", "}", ";", "typedef ", "unsigned ", "long ", "9" * 30, "[", "]", "...", "\0",
    ],
}  # fmt: skip
GOOD = {
    "formula": ["2/sqrt(pi) * exp(-x*x)", "where(x > 0, x, 0.1 * x)", "sum(x * x, dim=0)[0]"],
    "schema": ["(Tensor x, int[2] y) -> Tensor", "(Tensor x, float y=1.5) -> (Tensor, Tensor)"],
    "declaration": ["double f(double x)", "int g(const double x[n], int n)"],
}


def words(rng: random.Random, kind: str) -> str:
    if rng.random() < 0.3:
        return "".join(rng.choice(WORDS[kind]) for _ in range(rng.randrange(1, 30)))
    text = rng.choice(GOOD[kind])
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        text = (
            text[:at]
            + rng.choice(WORDS[kind]) * rng.choice((1, 1, 1, 300))
            + text[at + rng.randrange(3) :]
        )
    return text


def read_text(kind: str, text: str) -> None:
    if kind == "formula":
        tn.ffi.bind("libm.so.6", "double erf(double x)", derivative=text)
    elif kind == "declaration":
        tn.ffi.library().cdef(text if text.endswith(";") else text + ";")
    else:
        tn.library.custom_op("fuzz::op", lambda x, y=None: x, mutates_args=(), schema=text)


# ---- Running -------------------------------------------------------------------------------------

FILES: dict[str, tuple[Callable[[random.Random], bytes], Callable[[Path], Any]]] = {
    "pt": (checkpoint, tn.load),
    "safetensors": (tensors_file, safetensors.load_file),
    "npy": (array_file, npy.load),
    "pth": (old_checkpoint, tn.load),
    "tar": (tar_checkpoint, tn.load),
    "gguf": (blocks_file, tn.load),
    "tng": (programs.program_file, programs.read_program),
    "jit": (models.noted_program, models.read_noted),
    "onnx": (models.model_file, models.read_model),
    "script": (scripts.script_file, scripts.read_script),
}
SAID = (FileFormatError, OSError)  # what readers of files raise on purpose
# Texts are arguments: what is wrong with them is the caller's mistake.
SAID_OF_TEXTS = (ValueError, TypeError, RuntimeError, AttributeError, OSError)


def use(value: Any) -> None:
    """Looks at all that was read."""
    stack, seen = [value], 0
    while stack and seen < 1000:
        v = stack.pop()
        seen += 1
        if isinstance(v, tn.Tensor):
            if v.numel() < 10_000 and max(v.shape, default=0) < 10_000:  # [2**32, 0] has many lists
                v.tolist()
        elif isinstance(v, dict):
            stack += [*v.keys(), *v.values()]
        elif isinstance(v, list | tuple | set | frozenset):
            stack += v


def read_file(path: Path) -> None:
    try:
        use(FILES[path.suffix[1:]][1](path))
    except SAID:
        pass


def read_manifests(folder: Path) -> None:
    """A process reads manifests once, so it gets many."""
    code = "import tenon as tn; assert tn.plugins(); assert tn.ones(2).sum().item() == 2"
    env = {**os.environ, "TENON_PLUGIN_PATH": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"the manifests in {folder}: {done.returncode}")
    for path in folder.iterdir():
        path.unlink()


def hung(number: int, frame: Any) -> None:
    raise TimeoutError("the case hangs")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, hung)
    if "asan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    folder = Path(tempfile.mkdtemp(prefix="tenon-formats-"))
    manifests = folder / "manifests"
    manifests.mkdir()
    for path in sorted(CORPUS.iterdir()):
        signal.alarm(SECONDS)
        read_file(path)
    kinds = [
        "pt",
        "pth",
        "tar",
        "gguf",
        "tng",
        "jit",
        "onnx",
        "script",
        "safetensors",
        "npy",
        "json",
        "formula",
        "schema",
        "declaration",
    ]
    for n in range(options.first, options.first + options.cases):
        rng = random.Random(f"{options.seed}:{n}")
        kind = kinds[n % len(kinds)]
        path = folder / f"case.{kind}"
        signal.alarm(SECONDS)
        try:
            if kind in WORDS:
                path.write_text(text := words(rng, kind), encoding="utf-8")
                try:
                    read_text(kind, text)
                except SAID_OF_TEXTS:
                    pass
            elif kind == "json":
                (manifests / f"case{n}.json").write_bytes(manifest(rng))
            else:
                path.write_bytes(FILES[kind][0](rng))
                read_file(path)
        except BaseException as err:
            print(
                f"--seed {options.seed} --first {n} --cases 1: {type(err).__name__}: {err}\n{path}"
            )
            raise
        if len(os.listdir(manifests)) == 500:
            signal.alarm(0)
            read_manifests(manifests)
    signal.alarm(0)
    if os.listdir(manifests):
        read_manifests(manifests)
    for path in folder.glob("case.*"):
        path.unlink()
    manifests.rmdir()
    folder.rmdir()
    print(f"{options.cases} cases")


if __name__ == "__main__":
    main()
