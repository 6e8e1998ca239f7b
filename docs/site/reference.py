"""Pages of the reference: what help() says of every public name, and the op table by family."""

from __future__ import annotations

import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# The modules that have a page, as a reader looks for them.
MODULES = {
    "Tensors": [
        "tenon", "tenon.Tensor", "tenon.linalg", "tenon.fft", "tenon.special",
        "tenon.signal.windows", "tenon.random",
        "tenon.quasirandom", "tenon.sparse", "tenon.masked", "tenon.nested",
        "tenon.storage", "tenon.testing",
    ],
    "Derivatives": [
        "tenon.autograd", "tenon.autograd.functional", "tenon.autograd.forward_ad",
        "tenon.autograd.graph", "tenon.func", "tenon.utils.checkpoint",
    ],
    "Networks": [
        "tenon.nn", "tenon.nn.functional", "tenon.nn.init", "tenon.nn.utils", "tenon.nn.utils.rnn",
        "tenon.nn.utils.parametrize", "tenon.nn.utils.prune", "tenon.nn.attention",
        "tenon.nn.attention.flex_attention", "tenon.nn.parallel", "tenon.optim",
        "tenon.optim.lr_scheduler", "tenon.optim.swa_utils", "tenon.amp", "tenon.ao.quantization",
    ],
    "Data and files": [
        "tenon.utils.data", "tenon.serialization", "tenon.io.safetensors", "tenon.hub",
        "tenon.utils.tensorboard", "tenon.utils.dlpack", "tenon.vision.datasets",
        "tenon.vision.transforms.transforms", "tenon.vision.models", "tenon.vision.ops",
        "tenon.vision.utils",
    ],
    "Distributions": [
        "tenon.distributions", "tenon.distributions.transforms", "tenon.distributions.constraints",
    ],
    "Programs": [
        "tenon.compiler", "tenon.jit", "tenon.fx", "tenon.export", "tenon.onnx", "tenon.profiler",
        "tenon.utils.benchmark", "tenon.utils.flop_counter",
    ],
    "Processes and devices": [
        "tenon.distributed", "tenon.distributed.checkpoint", "tenon.distributed.fsdp",
        "tenon.distributed.tensor", "tenon.distributed.tensor.parallel",
        "tenon.distributed.pipelining", "tenon.distributed.device_mesh", "tenon.multiprocessing",
        "tenon.comm", "tenon.cuda", "tenon.accelerator",
    ],
    "Extending": [
        "tenon.library", "tenon.ops", "tenon.ffi", "tenon.overrides", "tenon.utils.cpp_extension",
    ],
}  # fmt: skip
_LABEL = re.compile(
    r"^(Dtypes|Errors|Formula|Gradient|Results?|Returns|Shapes?|Source|Step): +(.*)$"
)
_QUOTED = re.compile(r"(: |-> )'([^']*)'")  # annotations are texts
_OPERATORS = re.compile(r"^## .*?(?=^## |\Z)", re.S | re.M)


def find(name: str) -> Any:
    """A module, or the class at the end of a dotted name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(importlib.import_module(module), last)


def names_of(thing: Any) -> list[str]:
    """What a page tells of: a module's functions and classes, a class's members."""
    if not isinstance(thing, ModuleType):
        names = dir(thing)
    elif hasattr(thing, "__all__"):
        names = [n for n in thing.__all__ if callable(getattr(thing, n))]
    else:
        names = [n for n in dir(thing) if n[0] != "_" and _is_own(thing, getattr(thing, n))]
    return sorted((n for n in names if not n.startswith("_")), key=str.lower)


def _is_own(module: ModuleType, value: Any) -> bool:
    """What a module defines, or rooms beside it that have no page; not what it imports."""
    home = getattr(value, "__module__", None) or ""
    if isinstance(value, ModuleType) or not callable(value):
        return False
    if module.__name__ == "tenon":
        return home.startswith("tenon")
    parent = module.__name__.rpartition(".")[0]
    return home == module.__name__ or home.startswith(
        (f"{parent}._", f"{module.__name__}._", "tenon._C")
    )


def escape(text: str) -> str:
    """Prose as Markdown that shows just these characters."""
    return re.sub(r"([\\`*_<>\[\]|#])", r"\\\1", text)


def _code(lines: list[str]) -> str:
    return "```python\n" + "\n".join(lines) + "\n```"


def _block(lines: list[str]) -> str:
    """A paragraph of a docstring."""
    if lines[0].startswith(">>>"):
        return _code(lines)
    if all(line.startswith("    ") for line in lines):
        return _code([line[4:] for line in lines])
    out: list[str] = []
    for line in lines:
        label = _LABEL.match(line)
        if line.rstrip() == "Arguments:":
            out += ["", "**Arguments**", ""]
        elif label:
            text = (
                f"`{label[2]}`"
                if label[1] == "Formula" and "`" not in label[2]
                else escape(label[2])
            )
            out += ["", f"**{label[1]}** {text}"]
        elif (m := re.match(r"^    (\*{0,2}\w+): (.*)$", line)) and "**Arguments**" in out:
            out.append(f"- `{m[1]}`: {escape(m[2])}")
        else:
            out.append(("  " if line.startswith("    ") and "**Arguments**" in out else "")
                       + escape(line.strip()))  # fmt: skip
    return "\n".join(out).strip("\n")


def _head(name: str, value: Any, doc: str) -> tuple[str, str]:
    """The signature of a name, and its text without one."""
    first, _, rest = doc.partition("\n")
    short = name.rpartition(".")[2]
    if re.match(rf"\w*{re.escape(short)}\w*\(", first):  # an operator's text begins with its schema
        return first, rest.strip("\n")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return short, doc
    if inspect.isclass(value):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    return short + _QUOTED.sub(r"\1\2", str(signature)), doc


def entry(owner: Any, name: str) -> Iterator[str]:
    """What stands of one name: signature, text, arguments, examples."""
    static = inspect.getattr_static(owner, name, None)
    value = static if isinstance(static, property) else getattr(owner, name, static)
    doc = inspect.getdoc(value) or ""
    is_class = inspect.isclass(value)
    head, text = _head(name, value, doc) if callable(value) else (name, doc)
    kind = "class " if is_class else ""
    yield f"## {escape(name)}\n"
    yield _code([kind + re.sub(r" object at 0x\w+", "", head)]) + "\n"
    if is_class and issubclass(value, enum.Enum):
        yield "Members: " + ", ".join(f"`{m}`" for m in value.__members__) + ".\n"
    for lines in re.split(r"\n\s*\n", textwrap.dedent(text).strip("\n")):
        if lines.strip():
            yield _block(lines.splitlines()) + "\n"


def page(name: str) -> str:
    """The page of a module or class."""
    thing = find(name)
    intro = [
        _block(p.splitlines())
        for p in re.split(r"\n\s*\n", inspect.getdoc(thing) or "")
        if p.strip()
    ]
    parts = [f"# {name}\n", *(p + "\n" for p in intro)]
    for one in names_of(thing):
        parts += entry(thing, one)
    return "\n".join(parts) + "\n"


def operators(listing: Path) -> dict[str, str]:
    """The op table's pages by family, out of the reference that the generator wrote."""
    families: dict[str, list[str]] = {}
    for text in _OPERATORS.findall(listing.read_text(encoding="utf-8")):
        at = re.search(r"dispatch/ops/(\w+)\.toml", text)
        if at:
            head, _, rest = text.partition("\n")
            families.setdefault(at[1], []).append(f"## {escape(head[3:])}\n{rest.rstrip()}\n")
    return {k: f"# Operators: {k}\n\n" + "\n".join(v) for k, v in sorted(families.items())}
