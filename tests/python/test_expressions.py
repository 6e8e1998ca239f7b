"""Functions of the package that are no operators: what they give and refuse, beside PyTorch.

Each line of `expressions/ROOM.txt` is an expression that both libraries are asked, as `lib`;
`names` says what else it may use. An error counts by its class.
"""

from __future__ import annotations

import importlib
import math
import types
import warnings
import zlib
from collections import OrderedDict, defaultdict, deque, namedtuple
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refusals
import stored
import tenon

FOLDER = Path(__file__).parent / "expressions"
TEXTS = [
    (file.stem, text)
    for file in sorted(FOLDER.glob("*.txt"))
    for text in file.read_text(encoding="utf-8").splitlines()
]
Point, Pair = namedtuple("Point", "x y"), namedtuple("Pair", "x y")


def box(pytree: Any, **options: Any) -> Any:
    """A class that is registered as a node: its parts, and a letter that goes with them."""

    class Box:
        def __init__(self, parts: Any, letter: str = "c") -> None:
            self.parts, self.letter = parts, letter

    def apart(b: Any) -> tuple[Any, str]:
        return list(b.parts), b.letter

    pytree.register_pytree_node(Box, apart, Box, **options)
    return Box


def family(lib: Any) -> Any:
    """Waiting times that know only what every exponential family does."""

    class Waits(lib.distributions.ExponentialFamily):
        _mean_carrier_measure = 0.25

        def __init__(self, rate: Any, events: int = 0) -> None:
            self.rate, at = rate, rate.dim() - events
            super().__init__(rate.shape[:at], rate.shape[at:], validate_args=False)

        @property
        def _natural_params(self) -> tuple[Any, ...]:
            return (-self.rate,)

        def _log_normalizer(self, natural: Any) -> Any:
            dims = tuple(range(-len(self._event_shape), 0))
            return -(-natural).log().sum(dims) if dims else -(-natural).log()

    return Waits


def refused(call: Any) -> str:
    """What is an assertion there may be another error here."""
    try:
        call()
    except (AssertionError, ValueError, IndexError):
        return "refused"
    return "taken"


def optimizer(lib: Any) -> Any:
    """Two groups with rates of their own."""
    groups = [
        {"params": [lib.ones(2, requires_grad=True)]},
        {"params": [lib.ones(1, requires_grad=True)], "lr": 0.4},
    ]
    return lib.optim.SGD(groups, 0.2, 0.9)


def core(lib: Any) -> Any:
    """The names of PyTorch's extension module."""
    if lib is not tenon:
        return lib._C
    found = vars(refusals.private(lib, "_C_names")) | refusals.private(lib, "jit_types").TYPES
    inner = refusals.private(lib, "_functorch", "_C_functorch")
    return types.SimpleNamespace(**found, _functorch=inner)


def modes(lib: Any) -> list[Any]:
    """What is said of modes below functions while two of them are entered."""
    m = importlib.import_module(f"{lib.__name__}.utils._python_dispatch")
    seen: list[str] = []

    class Noting(m.TorchDispatchMode):
        def __init__(self, letter: str) -> None:
            super().__init__()
            self.letter = letter

        def __torch_dispatch__(self, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
            seen.append(self.letter)
            return func(*args, **(kwargs or {}))

    def said() -> list[Any]:
        stack = [v.letter for v in m._get_current_dispatch_mode_stack()]
        now = m._get_current_dispatch_mode()
        return [stack, now and now.letter, not stack or m.is_in_torch_dispatch_mode()]

    def called() -> str:
        seen.clear()
        lib.ones(2).neg()
        return "".join(sorted(set(seen)))

    with Noting("a"), Noting("b"):
        found = [said(), called()]
        with m._pop_mode_temporarily() as top:
            found += [top.letter, said(), called()]
        found.append(said())
        with m._disable_current_modes():
            found += [said(), called()]
        found.append(said())
    return [*found, said()]


def schedules(lib: Any) -> dict[str, Any]:
    """What is asked about schedules of rates."""

    def rates(make: Any, steps: int = 8) -> Any:
        o = optimizer(lib)
        s, seen = make(lib.optim.lr_scheduler, lib.optim.swa_utils, o), []
        for _ in range(steps):
            seen.append([[g["lr"], g["momentum"]] for g in o.param_groups] + [s.get_last_lr()])
            o.step()
            s.step()
        return seen

    def plateau(make: Any, values: Any) -> Any:
        o = optimizer(lib)
        s, seen = make(lib.optim.lr_scheduler, o), []
        for v in values:
            s.step(v)
            seen.append([[g["lr"] for g in o.param_groups], s.get_last_lr(), s.num_bad_epochs])
        return seen

    def states(make: Any) -> Any:
        """What is saved, and how a second schedule goes on from it."""
        o, parts = optimizer(lib), (lib.optim.lr_scheduler, lib.optim.swa_utils)
        s = make(*parts, o)
        for _ in range(3):
            o.step()
            s.step(0.5) if "Plateau" in type(s).__name__ else s.step()
        saved = s.state_dict()
        keys = sorted(saved)
        other = optimizer(lib)
        again = make(*parts, other)
        again.load_state_dict(saved)
        rates = [g["lr"] for g in o.param_groups]
        for g, r in zip(other.param_groups, rates, strict=True):
            g["lr"] = r
        again.step(0.5) if "Plateau" in type(s).__name__ else again.step()
        named = {k: v for k, v in saved.items() if not k.startswith("_") or k == "_last_lr"}
        return keys, named, rates, [g["lr"] for g in other.param_groups]

    return {"rates": rates, "plateau": plateau, "states": states}


def names(lib: Any) -> dict[str, Any]:
    """What the texts may use."""

    def x(*shape: int) -> Any:
        return (lib.arange(math.prod(shape), dtype=lib.float64) * 1.7).sin().reshape(shape) * 3

    def y(*shape: int) -> Any:
        n = lib.arange(1, 1 + math.prod(shape), dtype=lib.float64)
        return (n * n * 0.37).sin().reshape(shape) * 3

    def image(*shape: int) -> Any:
        n = lib.arange(math.prod(shape))
        return (n * n * 37 % 256).reshape(shape).to(lib.uint8)

    def grad(f: Any, *values: Any, twice: bool = False) -> Any:
        """The gradients of a weighted sum of what f gives, or those of their sizes."""
        values = tuple(v.detach().clone().requires_grad_() for v in values)
        result = f(*values)
        weights = lib.arange(1, 1 + result.numel(), dtype=lib.float64).reshape(result.shape)
        first = lib.autograd.grad((result * weights).abs().sum(), values, create_graph=twice)
        return lib.autograd.grad(sum(v.abs().sum() for v in first), values) if twice else first

    def written(f: Any, *args: Any, **options: Any) -> Any:
        """Whether out= gets what f gives, and of which other dtypes it may be."""
        plain = f(*args, **options)
        one = isinstance(plain, lib.Tensor)
        values = [plain] if one else list(plain)
        given = [lib.empty(0, dtype=v.dtype) for v in values]
        found = f(*args, **options, out=given[0] if one else tuple(given))
        same = [g.equal(v) for g, v in zip(given, values, strict=True)]
        itself = found is given[0] if one else [g.data_ptr() == r.data_ptr() for g, r in
                                                zip(given, found, strict=True)]  # fmt: skip

        def other(kind: Any) -> str:
            wrong = tuple(lib.empty(0, dtype=kind) for _ in values)
            try:
                f(*args, **options, out=wrong[0] if one else wrong)
            except RuntimeError:
                return "refused"
            return "taken"

        kinds = (lib.float32, lib.complex64, lib.complex128, lib.int64)
        name = type(found).__name__.removesuffix("_out")
        return name, same, itself, [other(k) for k in kinds]

    def set_and_get(give: Any, get: Any, values: Any) -> Any:
        return [(give(v), get())[1] for v in values]

    floats = "float16 bfloat16 float32 float64 float8_e4m3fn float8_e5m2 float8_e4m3fnuz"
    floats += " float8_e5m2fnuz float8_e8m0fnu"
    ints = "uint8 int8 int16 int32 int64 uint16 uint32 uint64"
    kinds = "bool uint8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
    return {
        "lib": lib, "part": partial(refusals.part, lib),
        "private": partial(refusals.private, lib), "C": core(lib), "modes": modes,
        "p": lib.utils._pytree, "d": lib.distributions, "m": lib.masked,
        "c": lib.distributions.constraints, "u": lib.distributions.utils, "family": family,
        "mt": lib.masked.masked_tensor, "box": box, "refused": refused, "Point": Point,
        "Pair": Pair, **schedules(lib), "OrderedDict": OrderedDict,
        "defaultdict": defaultdict, "deque": deque,
        "namedtuple": namedtuple, "x": x, "y": y, "t": lib.tensor, "math": math,
        "set_and_get": set_and_get, "written": written, "F": lib.nn.functional,
        "image": image, "grad": grad,
        "inf": math.inf, "nan": math.nan, "np": np,
        "Z": [lib.tensor(z, dtype=lib.complex128) for z in (0, 1 + 2j, -3 + 0.5j, 400 - 1j)],
        "MINE": lib is tenon, "FLOATS": [getattr(lib, n) for n in floats.split()],
        "INTS": [getattr(lib, n) for n in ints.split()],
        "KINDS": [lib.ones(1, dtype=getattr(lib, n)) for n in kinds.split()],
        "LIMITS": ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"),
        "REDUCED": ("sum", "mean", "max", "min", "prod"),
        "L": lib.tensor([[2.0, 0, 0], [0.5, 1, 0], [-1, 0.25, 3]], dtype=lib.float64),
        "M": lib.tensor([[1, 1, 2, 1], [3, 3, 0, 3], [3, 3, 0, 3], [1, 1, 2, 1]]),
    }  # fmt: skip


def plain(value: Any) -> Any:
    """An answer that can be stored."""
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if value is None or isinstance(value, (bool, int, float)) or hasattr(value, "detach"):
        return value.to_dense() if getattr(value, "is_sparse", False) else value
    return (
        str(value).replace("torch.", "tenon.") if isinstance(value, str) else type(value).__name__
    )


def answer(lib: Any, text: str) -> Any:
    """What the text gives, or the name of what it raises."""
    rooms = "nn sparse linalg fft special masked utils._pytree distributions.utils optim.swa_utils"
    for module in rooms.split():
        importlib.import_module(f"{lib.__name__}.{module}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return plain(eval(text, names(lib)))
        except Exception as err:
            return f"{type(err).__name__.lstrip('_')} raised"


def label(room: str, text: str) -> str:
    """A name that stays when other lines come or go."""
    short = text if len(text) < 90 else f"{text[:80]}~{zlib.crc32(text.encode()):08x}"
    return f"{room}-{short}"


@pytest.mark.parametrize(("room", "text"), TEXTS, ids=[label(*t) for t in TEXTS])
def test_as_pytorch(room: str, text: str) -> None:
    stored.same(answer(tenon, text), stored.of_torch(lambda lib: answer(lib, text)), 1e-6, 1e-7)
