"""Calls what the package has in Python - layers, functions, optimizers, schedules, distributions,
data loaders, transforms, exporters, methods of tensors - with keywords out of their signatures and
values that nobody meant. Nothing here knows the op table: a function that is new in a module is in
it at once. A parameter that must be given gets, half of the time, what its name says.

    python tests/fuzz/python.py --seed 7 --cases 20000 [--only REGEX]
    python tests/fuzz/python.py --seed 7 --first 1234 --cases 1     says what happens in that case

Cases run in children with a limit of memory and of time. An exception is a right answer, unless it
is one that only a mistake in Tenon raises: SystemError, UnboundLocalError, an AssertionError or
KeyError that says nothing, a message that is empty. The death of a child is wrong, and so is a call
that computes for longer than `--slow` seconds, or waits for longer than a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import inspect
import mmap
import os
import random
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import evil
import numpy as np
import tenon as tn
from evil import FLOATS, Closed, Empties, EvilError, Lies, Raises, circle, nested

ROOMS = ("nn", "nn.functional", "nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize",
         "nn.utils.parametrizations", "nn.utils.prune", "nn.parameter", "optim",
         "optim.lr_scheduler", "optim.swa_utils", "utils.data", "utils.checkpoint", "utils._pytree",
         "distributions", "distributions.kl", "distributions.transforms",
         "distributions.constraints", "linalg", "fft", "special", "sparse", "func", "autograd",
         "autograd.functional", "autograd.forward_ad", "autograd.graph", "nested", "masked",
         "random", "jit", "fx", "export", "onnx", "amp", "testing", "library", "overrides",
         "storage", "futures", "vision.transforms", "vision.ops")  # fmt: skip
# What ends or stops the process because it was asked to, or changes the program that runs here.
LEFT_OUT = re.compile(
    r"(?:^|\.)(?:_|on_demand$|annotations$|os$|sys$|importlib$|fork$|wait$|set_num_threads$|"
    r"set_num_interop_threads$|breakpoint$|seed$|load_plugin$|hub|compile_plugin$|Path$|"
    r"Event$|Stream$|contextmanager$)"
)
INTS = (0, 1, 2, 3, 5, -1, -2, -3, 7, 64, 255, 2**16, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40,
        2**62, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**30)  # fmt: skip
TEXTS = ("", "mean", "sum", "none", "relu", "gelu", "tanh", "reflect", "zeros", "circular", "same",
         "valid", "ortho", "weight", "bias", "0", "cpu", "cpu:9", "meta", "float32", "min", "rel",
         "a.b", "ij,jk->ik", "{}", "i" * 300, "\udcff", "\0", "%s%n")  # fmt: skip
DTYPES = ("bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32", "float64",
          "complex64", "complex128")  # fmt: skip
SHAPES = ((), (0,), (1,), (3,), (4,), (2, 3), (3, 3), (4, 4), (0, 3), (2, 0, 4), (2, 3, 4),
          (2, 4, 4), (1, 4, 5, 5), (2, 4, 1, 3), (1, 4, 3, 4, 4), (1,) * 9, (7, 65))  # fmt: skip


class Sub(tn.Tensor):
    """A subclass of tensors, and nothing else."""


class Refuses(tn.Tensor):
    """A subclass that takes no call."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise EvilError("no call")


class Pool:
    """Values of every kind, drawn from one seeded source."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.made: list[Any] = []  # tensors of this case, to be used twice
        self.is_deep = False  # an argument is, so that "too deep" is an answer

    def dense(self, shape: tuple[int, ...], dtype: str) -> Any:
        r = self.rng
        count = int(np.prod(shape))
        kind = r.randrange(8)
        if kind == 0:
            values = [r.choice(FLOATS) for _ in range(count)]
        elif kind == 1:
            values = [float(r.randrange(-300, 300)) for _ in range(count)]
        else:
            values = [r.random() if kind < 5 else float(r.randrange(0, 4)) for _ in range(count)]
        t = tn.tensor(values, dtype=tn.float64).reshape(shape)
        return t.to(getattr(tn, dtype))

    def tensor(self) -> Any:
        r = self.rng
        if self.made and r.randrange(8) == 0:
            return r.choice(self.made)
        dtype = (
            r.choice(DTYPES) if r.randrange(3) == 0 else r.choice(("float32", "float32", "int64"))
        )
        t = self.dense(r.choice(SHAPES), dtype)
        t = self.changed(t)
        self.made.append(t)
        return t

    def changed(self, t: Any) -> Any:
        """The tensor in a layout, or of a kind, that not everything takes."""
        r = self.rng
        change = r.randrange(40)
        real = t.is_floating_point() or t.is_complex()
        if change == 0 and t.dim():
            return t.transpose(0, -1)
        if change == 1:
            return t.unsqueeze(0).expand(3, *t.shape)
        if change == 2 and t.dim():
            return t[::2]
        if change == 3 and t.numel() > 4:
            return t.as_strided((3, 3), (1, 1))
        if change == 4 and t.is_complex():
            return t.conj()
        if change == 5 and t.is_complex():
            return t.conj().imag
        if change in (6, 7, 8) and real:
            return t.detach().requires_grad_()
        if change == 9 and real:
            return t.detach().requires_grad_() * 1
        if change == 10 and t.dim():
            return t.to_sparse()
        if change == 11 and t.dim() == 2:
            return t.to_sparse_csr()
        if change == 12:
            return t.to("meta")
        if change == 13:
            return t.as_subclass(Sub)
        if change == 14:
            return t.as_subclass(Refuses)
        if change == 15 and real:
            return tn.nn.Parameter(t.detach())
        if change == 16 and t.numel():
            return t.flatten()[:1].expand(2**8, 2**14)
        if change == 17 and real:
            with tn.inference_mode():
                return t.detach().clone()
        if change == 18 and t.dim() == 4:
            return t.contiguous(memory_format=tn.channels_last)
        if change == 19 and t.dtype is tn.float32 and t.dim():
            return tn.quantize_per_tensor(t.detach(), 0.1, 3, tn.qint8)
        if change == 20 and t.dtype is tn.float32:
            return tn.nested.nested_tensor([t.detach(), t.detach()])
        if change == 21:
            return tn.masked.masked_tensor(t.detach(), tn.ones_like(t, dtype=tn.bool))
        return t

    def endless(self) -> Any:
        """A container in itself, or so deep that it might as well be."""
        self.is_deep = True
        value = self.rng.choice((
            lambda: circle(list), lambda: circle(dict), lambda: nested(300), lambda: nested(3000),
        ))()  # fmt: skip
        return self.rng.choice((value, [1, value], (tn.ones(2), value)))

    def integer(self) -> int:
        r = self.rng
        return r.choice(INTS) if r.randrange(2) == 0 else r.randrange(-3, 5)

    def layer(self) -> Any:
        r = self.rng
        makers: tuple[Callable[[], Any], ...] = (
            lambda: tn.nn.Linear(4, 3), lambda: tn.nn.Conv2d(4, 2, 2), lambda: tn.nn.ReLU(),
            lambda: tn.nn.BatchNorm1d(4), lambda: tn.nn.Sequential(tn.nn.Linear(4, 4)),
            lambda: tn.nn.LSTM(4, 3), lambda: tn.nn.Embedding(5, 4), lambda: tn.nn.Identity(),
            lambda: tn.nn.ModuleList(), lambda: tn.nn.Module(),
        )  # fmt: skip
        return r.choice(makers)()

    def optimizer(self) -> Any:
        kind = self.rng.choice(("SGD", "Adam", "Adagrad", "LBFGS", "RMSprop"))
        p = tn.nn.Parameter(tn.ones(3))
        p.grad = tn.ones(3)
        return getattr(tn.optim, kind)([p], lr=0.1)

    def distribution(self) -> Any:
        d = tn.distributions
        return self.rng.choice((
            lambda: d.Normal(tn.zeros(3), tn.ones(3)), lambda: d.Bernoulli(0.5),
            lambda: d.Categorical(tn.ones(3)), lambda: d.Gamma(tn.ones(2, 2), 1.0),
            lambda: d.MultivariateNormal(tn.zeros(2), tn.eye(2)),
        ))()  # fmt: skip

    def function(self) -> Any:
        r = self.rng

        def raises(*_: Any, **__: Any) -> Any:
            raise EvilError("called")

        return r.choice((
            lambda *a, **_: a[0] * 2 if a else None, lambda *a, **_: a[0].sum() if a else 0,
            lambda *_, **__: None, lambda *a, **_: (a, {"x": a}), raises, tn.sin, tn.nn.ReLU(),
            lambda *_, **__: tn.ones(3, requires_grad=True).sum(), abs, lambda x: x.add_(1),
        ))  # fmt: skip

    def graph(self) -> Any:
        return tn.fx.symbolic_trace(tn.nn.Sequential(tn.nn.Linear(4, 4), tn.nn.ReLU()))

    def anything(self) -> Any:
        r = self.rng
        makers: tuple[Callable[[], Any], ...] = (
            self.tensor, self.tensor, self.integer, self.integer, lambda: r.choice(FLOATS),
            lambda: r.choice(TEXTS), lambda: None, lambda: r.choice((True, False)),
            lambda: complex(r.choice(FLOATS), r.choice(FLOATS)),
            lambda: getattr(tn, r.choice(DTYPES)), lambda: [self.tensor() for _ in range(2)],
            lambda: [], lambda: (), lambda: {}, lambda: object(), lambda: (None,),
            lambda: slice(None), lambda: ..., lambda: [[1], 2], lambda: np.float32(2),
            lambda: np.ones(2), lambda: tn.Size([2]), lambda: tn.device("cpu"), lambda: tn.Tensor,
            lambda: b"x", tn.Generator, Raises, lambda: Lies(r), self.function, self.layer,
            lambda: Empties(r, self.tensor()), lambda: [self.integer() for _ in range(3)],
            lambda: {"x": self.tensor()}, lambda: iter([self.integer()]), lambda: range(3),
            lambda: [r.choice(FLOATS), r.choice(FLOATS)], lambda: {self.integer(): None},
            self.distribution, self.optimizer, lambda: np.array([1, 2], ">i4"),
            lambda: np.array(["a"]), lambda: 2**70, lambda: [None] * 70, lambda: type,
            Closed, self.endless, self.endless,
        )  # fmt: skip
        return r.choice(makers)()

    def named(self, name: str) -> Any:
        """What a parameter of that name would take."""
        r = self.rng
        t: dict[str, Callable[[], Any]] = {
            "size": lambda: r.randrange(1, 5), "tensors": lambda: [self.tensor(), self.tensor()],
            "flag": lambda: r.choice((True, False)), "number": lambda: r.choice(FLOATS),
            "layer": self.layer, "optimizer": self.optimizer, "function": self.function,
            "params": lambda: self.parameters(), "distribution": self.distribution,
            "name": lambda: r.choice(("weight", "bias", "x")), "graph": self.graph,
            "sizes": lambda: [r.randrange(1, 4) for _ in range(r.randrange(1, 4))],
            "dataset": lambda: r.choice((list(range(5)), tn.utils.data.TensorDataset(tn.ones(4)))),
            "dict": lambda: {"x": self.tensor()}, "args": lambda: (self.tensor(),),
        }  # fmt: skip
        for kind, pattern in NAMES.items():
            if re.fullmatch(pattern, name):
                return t[kind]()
        return self.tensor()

    def parameters(self) -> Any:
        r = self.rng
        made = [tn.nn.Parameter(self.dense(r.choice(((3,), (2, 2), (), (0,))), "float32"))
                for _ in range(r.randrange(1, 3))]  # fmt: skip
        for p in made:
            if r.randrange(4):
                p.grad = tn.ones_like(p) if r.randrange(3) else tn.zeros_like(p).to_sparse()
        return made if r.randrange(3) else [{"params": made, "lr": self.anything()}]


NAMES = {
    "size": r".*(?:features|channels|size|groups|heads?|num_\w+|dim|depth|n|m|factor|rank|order|"
    r"step_size|T_max|T_0|n_classes|d_model|ndims|period)",
    "sizes": r"(?:shape|size|output_size|normalized_shape|dims|lengths|milestones|cutoffs|pad|"
    r"in_shape|out_shape|unflattened_size|split\w*)",
    "tensors": r"(?:tensors|inputs|outputs|schedulers|datasets|parts|\w*_list|matrices|sequences)",
    "flag": r"(?:bias|add_\w+|align_corners|upper|drop_last|training|inplace|keepdim|retain\w*)",
    "number": r"(?:eps|alpha|beta|lr|gamma|momentum|p|norm_type|max_norm|threshold|\w*_lr|rate|"
    r"lambd|margin|delta|value|clip_value|temperature)",
    "layer": r"(?:module|mod|model|m|conv|bn|linear|root|\w+_layer|models)",
    "optimizer": r"optimizer",
    "function": r"(?:f|fn|func|\w*lambda\w*|function|hook|closure|callable|pack_hook|unpack_hook)",
    "params": r"(?:params|parameters)",
    "distribution": r"(?:q|distribution|\w+_distribution)",
    "name": r"(?:name|fqn|tensor_name|type|mode|reduction)",
    "graph": r"(?:graph|gm|program|exported_program|ep)",
    "dataset": r"(?:dataset|data_source|sampler|batch|data)",
    "dict": r"(?:kwargs|parameter_and_buffer_dicts|state_dict|defaults)",
    "args": r"(?:args|primals|tangents|example_\w+)",
}


# ---- What is called ------------------------------------------------------------------------------

Target = tuple[str, Any, Any]  # its name, itself, its signature


def signature(what: Any) -> Any:
    try:
        return inspect.signature(what)
    except (TypeError, ValueError):
        return None


def ours(what: Any) -> bool:
    return str(getattr(what, "__module__", None) or "tenon").startswith("tenon")


def targets(only: str | None) -> list[Target]:
    out: list[Target] = []
    seen: set[int] = set()
    for room in ("", *ROOMS):
        name = f"tenon.{room}" if room else "tenon"
        module = importlib.import_module(name)
        for key in sorted(set(dir(module))):
            what = getattr(module, key, None)
            full = f"{name}.{key}"
            if callable(what) and ours(what) and id(what) not in seen and not LEFT_OUT.search(full):
                seen.add(id(what))
                out.append((full, what, signature(what)))
    for key in sorted(dir(tn.Tensor)):
        what = inspect.getattr_static(tn.Tensor, key)
        full = f"tenon.Tensor.{key}"
        if key.startswith("__") and key.endswith("__") and key in dir(object):
            continue
        if callable(getattr(tn.Tensor, key, None)):
            out.append((full, Method(key), signature(getattr(tn.Tensor, key))))
        elif inspect.isdatadescriptor(what):
            out.append((full, Attribute(key), None))
    return [t for t in out if only is None or re.search(only, t[0])]


class Method:
    """A method of whatever tensor comes first."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **keys: Any) -> Any:
        return getattr(args[0], self.name)(*args[1:], **keys)


class Attribute:
    """An attribute, read or set."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **_: Any) -> Any:
        if len(args) > 1:
            setattr(args[0], self.name, args[1])
        return getattr(args[0], self.name)


def text_of(value: Any) -> str:
    if isinstance(value, tn.Tensor):
        with tn._C.DisableTorchFunctionSubclass(), contextlib.suppress(Exception):
            kind = "" if value.layout is tn.strided else f" {value.layout}"
            grad = " grad" if value.requires_grad else ""
            strides = list(value.stride()) if not kind else ""
            name = type(value).__name__
            return f"<{name} {value.dtype} {list(value.shape)} {strides}{kind}{grad}>"
        return f"<{type(value).__name__}>"
    if type(value) in (list, tuple):
        return "[" + ", ".join(text_of(v) for v in value) + "]"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (Raises, Lies, Empties)):
        return type(value).__name__
    return ascii(value)[:100]


def arguments(pool: Pool, what: Any, sign: Any) -> tuple[list[Any], dict[str, Any]]:
    r = pool.rng
    first = [pool.tensor()] if isinstance(what, (Method, Attribute)) else []
    if sign is None or r.randrange(25) == 0:
        return first + [pool.anything() for _ in range(r.randrange(4))], {}
    args: list[Any] = []
    keys: dict[str, Any] = {}
    hostile = r.choice((0, 1, 1, 1, 2, 9))  # of ten values
    by_name = False
    for p in sign.parameters.values():
        if p.name == "self" and first:
            continue
        if p.kind is p.VAR_POSITIONAL:
            args += [] if by_name else [pool.named(p.name) for _ in range(r.randrange(3))]
            by_name = True
            continue
        if p.kind is p.VAR_KEYWORD:
            if r.randrange(12) == 0:
                keys[r.choice(TEXTS)] = pool.anything()
            continue
        given = r.randrange(3) == 0
        if p.default is not p.empty and not given and r.randrange(10) >= hostile:
            by_name = by_name or p.kind is p.POSITIONAL_OR_KEYWORD
            continue
        value = pool.anything() if r.randrange(10) < hostile else pool.named(p.name)
        if p.default is not p.empty and r.randrange(2):
            value = spoiled(pool, p.default)
        if p.name == "num_workers":  # so many processes would be started
            value = r.choice((0, 0, -1, None, 1.5, "x", float("nan")))
        if p.kind is p.POSITIONAL_ONLY or (not by_name and p.kind is not p.KEYWORD_ONLY):
            args.append(value)
        else:
            keys[p.name] = value
    return first + args, keys


def spoiled(pool: Pool, value: Any) -> Any:
    """Another value of the kind that the default has."""
    r = pool.rng
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return pool.integer()
    if isinstance(value, float):
        return r.choice(FLOATS)
    if isinstance(value, str):
        return r.choice(TEXTS)
    if isinstance(value, tuple):
        return tuple(spoiled(pool, v) for v in value)
    return pool.anything()


# ---- What happens to a result --------------------------------------------------------------------


def look_at(pool: Pool, result: Any) -> None:
    """Reads elements, computes gradients, runs what came back."""
    r = pool.rng
    if isinstance(result, tn.Tensor):
        if result.numel() > 10**6:
            return
        if result.requires_grad and r.randrange(2):
            result.sum().abs().backward()
        repr(result)
        result.detach().tolist()
    elif isinstance(result, tn.nn.Module):
        use_layer(pool, result)
    elif isinstance(result, tn.optim.Optimizer):
        for _ in range(2):
            result.step(lambda: tn.ones(())) if r.randrange(2) else result.step()
        kept = result.state_dict()
        if r.randrange(3) == 0:
            kept = damaged(pool, kept)
        result.load_state_dict(kept)
        result.step()
    elif isinstance(result, tn.optim.lr_scheduler.LRScheduler):
        for _ in range(3):
            result.step()
        kept = result.state_dict()
        result.load_state_dict(damaged(pool, kept) if r.randrange(3) == 0 else kept)
        result.step()
    elif isinstance(result, tn.distributions.Distribution):
        use_distribution(pool, result)
    elif isinstance(result, (tuple, list)):
        for member in result[:4]:
            look_at(pool, member)
    elif isinstance(result, dict):
        for member in list(result.values())[:4]:
            look_at(pool, member)
    elif isinstance(result, (str, bytes)):
        len(result)
    elif isinstance(result, Iterator) or hasattr(type(result), "__iter__"):
        for member, _ in zip(result, range(6), strict=False):
            look_at(pool, member)
    elif hasattr(type(result), "__enter__"):
        with result:
            tn.ones(2, requires_grad=True).sum().backward()
    elif callable(result):
        look_at(pool, result(*[pool.anything() for _ in range(r.randrange(3))]))
    else:
        repr(result)


def damaged(pool: Pool, value: Any) -> Any:
    """The same structure with members of other kinds."""
    r = pool.rng
    if r.randrange(8) == 0:
        return pool.anything()
    if isinstance(value, dict):
        return {k: damaged(pool, v) for k, v in value.items() if r.randrange(10)}
    if isinstance(value, list):
        return [damaged(pool, v) for v in value] * r.choice((1, 1, 1, 2))
    return value


def use_layer(pool: Pool, layer: Any) -> None:
    r = pool.rng
    repr(layer)
    sign = signature(layer.forward)
    for _ in range(3):
        with contextlib.suppress(EvilError, ValueError, TypeError, RuntimeError, IndexError):
            args, keys = arguments(pool, layer, sign)
            result = layer(*args, **keys)
            if isinstance(result, tn.Tensor) and result.numel() < 10**6:
                if result.requires_grad:
                    result.sum().abs().backward()
                result.detach().tolist()
    way = r.randrange(6)
    if way == 0:
        layer.load_state_dict(damaged(pool, layer.state_dict()))
    elif way == 1:
        layer.load_state_dict(damaged(pool, layer.state_dict()), strict=False, assign=True)
    elif way == 2:
        layer.to(pool.anything())
    elif way == 3:
        args, keys = arguments(pool, layer, sign)
        tn.func.functional_call(layer, damaged(pool, dict(layer.named_parameters())), *args)
    elif way == 4:
        name = r.choice([k for k in dir(layer) if not k.startswith("_")])
        method = getattr(layer, name)
        if callable(method) and name not in ("share_memory", "compile"):
            args, keys = arguments(pool, layer, signature(method))
            method(*args, **keys)
    elif way == 5:
        for name, _ in list(layer.named_parameters(recurse=False)):
            if r.randrange(2):
                setattr(layer, name, pool.anything())
        args, keys = arguments(pool, layer, sign)
        layer(*args, **keys)


def use_distribution(pool: Pool, d: Any) -> None:
    repr(d)
    names = ("sample", "rsample", "log_prob", "cdf", "icdf", "entropy", "mean", "variance", "mode",
             "expand", "enumerate_support", "perplexity", "stddev", "support")  # fmt: skip
    for name in pool.rng.sample(names, 4):
        with contextlib.suppress(
            EvilError, ValueError, TypeError, RuntimeError, NotImplementedError
        ):
            method = getattr(d, name)
            if callable(method):
                args, keys = arguments(pool, d, signature(method))
                method = method(*args, **keys)
            if isinstance(method, tn.Tensor) and method.numel() < 10**6:
                method.tolist()


# ---- What is wrong -------------------------------------------------------------------------------

MAPPINGS = re.compile(r"(?:Dict|dict|pop|getitem|get_\w+|del\w*|State|Interpreter|Graph)")


def complaint(e: BaseException, is_deep: bool) -> str | None:
    """Why the exception is none that a user should see."""
    if isinstance(e, (EvilError, StopIteration, NotImplementedError)) or theirs(e):
        return None
    said = str(e)
    if isinstance(e, SystemError | UnboundLocalError | NameError):
        return "a mistake"
    if isinstance(e, (AssertionError, MemoryError)) and not said:
        return "says nothing" if isinstance(e, AssertionError) else None
    if isinstance(e, KeyError) and (not e.args or len(said.split()) < 3):
        return "names a key alone"
    if isinstance(e, RecursionError):
        return None if is_deep else "too deep"
    return None if said.strip() else "says nothing"


def theirs(e: BaseException) -> bool:
    """It comes from functions of these files, which were handed over."""
    last = traceback.extract_tb(e.__traceback__)[-1]
    return last.filename in (__file__, evil.__file__) and last.name != "run_case"


class SlowError(BaseException):
    """A call takes too long; no `except Exception` takes it for an answer."""


def run_case(pool: Pool, what: list[Target], note: Callable[[str], None]) -> BaseException | None:
    name, fn, sign = pool.rng.choice(what)
    with tn._C.DisableTorchFunctionSubclass():
        args, keys = arguments(pool, fn, sign)
    named = ", ".join(f"{k}={text_of(v)}" for k, v in keys.items())
    note(f"{name}({text_of(args)[1:-1]}{', ' if args and keys else ''}{named})")
    wrong: BaseException | None = None
    try:
        look_at(pool, fn(*args, **keys))
    except Exception as e:
        wrong = e
    with tn._C.DisableTorchFunctionSubclass():
        for t in pool.made[:6]:  # what the call left of its arguments
            with contextlib.suppress(RuntimeError, TypeError, NotImplementedError):
                look_at(pool, t)
    return wrong


# ---- Children ------------------------------------------------------------------------------------


def limits() -> None:
    if "asan" in os.environ.get("LD_PRELOAD", ""):  # its shadow alone is larger than any limit
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def child(seed: int, first: int, last: int, what: list[Target], board: mmap.mmap, slow: float,
          pipe: int, verbose: bool) -> None:  # fmt: skip
    def interrupt(*_: object) -> None:
        raise SlowError

    signal.signal(signal.SIGPROF, interrupt)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    limits()
    own = open(pipe, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    for n in range(first, last):
        text = ""

        def note(call: str, n: int = n) -> None:
            nonlocal text
            text = call
            said = f"{n} {call}".encode(errors="backslashreplace")[:8000]
            board[: len(said) + 1] = said + b"\0"

        note("before its call")
        tn.manual_seed(n)
        pool = Pool(random.Random(f"{seed}:{n}"))
        signal.setitimer(signal.ITIMER_PROF, slow)
        e: BaseException | None
        try:
            e = run_case(pool, what, note)
        except SlowError as late:
            e = late
            line = text.replace("\n", " ")
            own.write(f"case {n}: slower than {slow:g} s: {line}\n")
            if verbose:
                traceback.print_exception(late)
        except BaseException as odd:
            e = odd
        signal.setitimer(signal.ITIMER_PROF, 0)
        if isinstance(e, SlowError):
            continue
        wrong = None
        with contextlib.suppress(Exception):  # its text holds arguments, which may say anything
            wrong = complaint(e, pool.is_deep) if e is not None else None
        if isinstance(e, (KeyboardInterrupt, SystemExit)):
            wrong = "ends the program"
        if wrong:
            line = text.replace("\n", " ")
            last_line = traceback.extract_tb(e.__traceback__)[-1]
            at = f"{last_line.filename.rpartition('tenon/')[2]}:{last_line.lineno}"
            own.write(f"case {n}: {type(e).__name__}, {wrong}: {str(e)[:200]!r} {at}: {line}\n")
        if verbose:
            print(text, file=sys.stderr)
            traceback.print_exception(e) if e else print("no exception", file=sys.stderr)


def hold(pid: int, pipe: int, wait: float, found: list[str]) -> int:
    """Waits for a child while it says something; returns how it ended."""
    os.set_blocking(pipe, False)
    rest = b""
    end = time.monotonic() + wait
    while time.monotonic() < end:
        if select.select([pipe], [], [], 0.5)[0]:
            data = os.read(pipe, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            found += [line.decode(errors="replace") for line in lines]
    else:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return -signal.SIGALRM
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(options: argparse.Namespace, what: list[Target]) -> list[str]:
    board = mmap.mmap(-1, 1 << 14)
    found: list[str] = []
    n, last = options.first, options.first + options.cases
    end = time.monotonic() + options.seconds
    while n < last and time.monotonic() < end:
        upto = min(last, n + options.batch)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(read)
            if not options.verbose:
                null = os.open(os.devnull, os.O_RDWR)
                for fd in (0, 1):
                    os.dup2(null, fd)
            if options.cases > 1:
                os.dup2(os.open(options.errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            try:
                child(options.seed, n, upto, what, board, options.slow, write, options.verbose)
            except BaseException:
                traceback.print_exc()
                os._exit(77)
            os._exit(0)
        os.close(write)
        before = len(found)
        with contextlib.suppress(ProcessLookupError):
            os.setpgid(pid, pid)
        rc = hold(pid, read, 60 + options.batch * options.slow, found)
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what it started
        n = upto
        if rc:
            case, _, call = board[:].partition(b"\0")[0].decode(errors="replace").partition(" ")
            how = "hangs" if rc == -signal.SIGALRM else f"ends with {rc}"
            if options.cases > 1:
                how += " " + " ".join(
                    Path(options.errors).read_text(errors="replace").split()[-30:]
                )
            found.append(f"case {case}: {how}: {call}")
            n = int(case) + 1
        for line in found[before:]:
            print(line, flush=True)
    options.done = n - options.first
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10**9)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=16, help="cases of one child")
    parser.add_argument("--only", help="names that this expression finds")
    parser.add_argument("--slow", type=float, default=5, help="seconds of computing")
    options = parser.parse_args()
    options.verbose = options.cases == 1
    warnings.simplefilter("ignore")
    what = targets(options.only)
    folder = tempfile.TemporaryDirectory(prefix="tenon-fuzz-")
    options.errors = os.path.join(folder.name, "stderr")
    before = os.getcwd()
    os.chdir(folder.name)
    try:
        found = run(options, what)
    finally:
        os.chdir(before)
        folder.cleanup()
    print(f"{options.done} cases of {len(what)} functions, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
