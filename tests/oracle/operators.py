"""One operator of PyTorch's op_db against Tenon's, section by section.

Every section calls both with every sample of the database and yields a verdict for each. Samples
that PyTorch itself refuses are left out.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import tenon as tn
import torch
import vary
from bridge import operator, processed, rebound, tensor_to_tenon, tensors, to_tenon, variant
from compare import (
    FREE,
    Different,
    Verdict,
    check,
    check_strides,
    check_values,
    nearer,
    refusal,
    turned,
    verdict,
)
from torch.testing._internal.common_methods_invocations import op_db

MAIN = (torch.float32, torch.int64, torch.bool, torch.complex64)
DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
# Their elements are whatever the memory held.
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
UNINITIALIZED |= {"new_empty_strided", "resize_", "resize_as_"}


def entries() -> list[Any]:
    """What of op_db is for users: no internals by their full path, nothing for one device alone."""
    return [op for op in op_db if not op.name.startswith(("torch.", "jiterator"))]


def title(info: Any) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


def main_dtype(info: Any) -> torch.dtype:
    return next((d for d in MAIN if d in info.dtypes), min(info.dtypes, key=str, default=MAIN[0]))


def words(value: Any) -> str:
    """A sample in one line."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(map(words, value)) + ")"
    if isinstance(value, dict):
        return ", ".join(f"{k}={words(v)}" for k, v in value.items())
    return repr(value)[:60]


def describe(sample: Any) -> str:
    parts = [words(v) for v in (sample.input, *sample.args)]
    parts += [f"{k}={words(v)}" for k, v in sample.kwargs.items()]
    return ", ".join(parts)


def samples(info: Any, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Any]:
    torch.manual_seed(0)
    return iter(list(info.sample_inputs("cpu", dtype, requires_grad=requires_grad)))


def arguments(sample: Any) -> tuple[list[Any], dict[str, Any]]:
    known: dict[Any, Any] = {}
    return [to_tenon(v, known) for v in (sample.input, *sample.args)], to_tenon(
        sample.kwargs, known
    )


def both_seeds() -> None:
    torch.manual_seed(42)
    tn.manual_seed(42)


def widened(value: Any) -> Any:
    """Floats as float64: what PyTorch's answer to them is counts as exact."""
    if isinstance(value, torch.Tensor):
        wide = torch.complex128 if value.is_complex() else torch.float64
        return value.detach().to(wide) if value.is_complex() or value.is_floating_point() else value
    if isinstance(value, torch.dtype):
        return {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(value, value)
    if type(value) in (list, tuple):
        return type(value)(map(widened, value))
    return {k: widened(v) for k, v in value.items()} if isinstance(value, dict) else value


def same(info: Any, got: Any, want: Any, again: Any) -> str | None:
    """Raises Different unless the results are the same; or says why others count: vectors that are
    free, and values that are nearer to PyTorch's own float64 answer, which `again` returns."""
    known = info.name not in UNINITIALIZED
    try:
        check(got, want, known)
        return None
    except Different:
        check(got, want, values=False)
        if info.name in FREE:
            for a, b in zip(turned(info.name, got, want), tensors(want, torch.Tensor), strict=True):
                check_values(a, b)
            return "free"
        try:
            if nearer(got, want, again()):
                return "nearer"
        except Exception:  # no answer in float64: the first verdict stands
            pass
        raise


def compare_calls(
    info: Any, dtype: torch.dtype, theirs: Any, find: Any, inplace: bool = False,
    given: Iterator[Any] | None = None, laid: bool = False,
) -> Iterator[Verdict]:  # fmt: skip
    """theirs against the function that find returns, over the samples of a dtype or those given;
    laid: the strides of the results too."""
    for sample in samples(info, dtype) if given is None else given:
        if inplace and sample.broadcasts_input:
            continue
        held = sample.input
        if inplace and isinstance(held, torch.Tensor):
            sample.input = held.clone()  # the memory that is written, without what lies around it
            held = held.clone()
        both_seeds()
        try:
            want = theirs(held, *sample.args, **sample.kwargs)
        except Exception:
            continue

        def ask(sample: Any = sample, want: Any = want) -> str | None:
            mine = find()
            args, kwargs = arguments(sample)
            both_seeds()
            got = mine(*args, **kwargs)

            def again() -> Any:
                both_seeds()
                given = [widened(v) for v in (sample.input, *sample.args)]
                return theirs(*given, **widened(sample.kwargs))

            if inplace and isinstance(args[0], tn.Tensor) and got is not args[0]:
                raise Different("the result is not the tensor itself")
            if laid:
                check_strides(got, want)
                return None
            return same(info, got, want, again)

        yield verdict(describe(sample), ask)


def forward(info: Any) -> Iterator[Verdict]:
    yield from compare_calls(info, main_dtype(info), info.op, lambda: operator(info))


def dtypes(info: Any) -> Iterator[Verdict]:
    """The other dtypes that PyTorch has the operator for."""
    for dtype in DTYPES:
        if dtype in info.dtypes and dtype != main_dtype(info):
            for what, *wrong in compare_calls(info, dtype, info.op, lambda: operator(info)):
                yield f"{str(dtype)[6:]}: {what}", *wrong


def varied(info: Any) -> Iterator[Verdict]:
    """Samples in layouts, with values, sizes and second dtypes that the database does not try."""
    for what, change in vary.CHANGES.items():
        given = vary.varied(samples(info, main_dtype(info)), change)
        calls = compare_calls(info, main_dtype(info), info.op, lambda: operator(info), given=given)
        for words, *wrong in calls:
            yield f"{what}: {words}", *wrong
    for what, change in vary.LAYOUTS.items():
        for words, *wrong in differentiate(info, 1, change):
            yield f"gradients, {what}: {words}", *wrong


def strides(info: Any) -> Iterator[Verdict]:
    """Where the elements of results lie."""
    for what, change in {"plain": lambda t: t, **vary.LAYOUTS}.items():
        given = vary.varied(samples(info, main_dtype(info)), change)
        calls = compare_calls(
            info, main_dtype(info), info.op, lambda: operator(info), given=given, laid=True
        )
        for words, *wrong in calls:
            yield f"{what}: {words}", *wrong


def methods(info: Any) -> Iterator[Verdict]:
    if info.method_variant is not None:
        find = lambda: variant(info, info.method_variant)  # noqa: E731
        yield from compare_calls(info, main_dtype(info), info.method_variant, find)


def inplace(info: Any) -> Iterator[Verdict]:
    if info.inplace_variant is not None:
        find = lambda: variant(info, info.inplace_variant)  # noqa: E731
        yield from compare_calls(info, main_dtype(info), info.inplace_variant, find, inplace=True)


def out(info: Any) -> Iterator[Verdict]:
    """out= of the right shape, strided, and empty; the result is the tensor that was passed."""
    if not info.supports_out:
        return
    for sample in samples(info, main_dtype(info)):
        both_seeds()
        try:
            want = info.op(sample.input, *sample.args, **sample.kwargs)
            targets = torch.utils._pytree.tree_map(torch.empty_like, want)
            info.op(sample.input, *sample.args, **sample.kwargs, out=targets)
        except Exception:
            continue

        def again(sample: Any = sample) -> Any:
            both_seeds()
            given = [widened(v) for v in (sample.input, *sample.args)]
            return info.op(*given, **widened(sample.kwargs))

        def ask(sample: Any = sample, want: Any = want, again: Any = again) -> str | None:
            mine, why = operator(info), None
            sparse = any(t.layout is not torch.strided for t in tensors(want, torch.Tensor))
            for shaped in (torch.empty_like,) if sparse else (torch.empty_like, strided, nothing):
                args, kwargs = arguments(sample)
                targets = to_tenon(plain(torch.utils._pytree.tree_map(shaped, want)))
                both_seeds()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    got = mine(*args, **kwargs, out=targets)
                why = same(info, got, want, again) or why
                for a, b in zip(tensors(got, tn.Tensor), tensors(targets, tn.Tensor), strict=True):
                    if a is not b:
                        raise Different("the result is not out")
            return why

        yield verdict(describe(sample), ask)


def plain(value: Any) -> Any:
    """Named results as an ordinary tuple."""
    return tuple(value) if isinstance(value, tuple) else value


def strided(t: torch.Tensor) -> torch.Tensor:
    return torch.empty((*t.shape, 2), dtype=t.dtype)[..., 0]


def nothing(t: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=t.dtype)


def results(value: Any, kind: type) -> list[Any]:
    return [t for t in tensors(value, kind) if t.requires_grad]


def cotangents(outs: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.randn(t.shape, dtype=t.dtype) for t in outs]


def pulled(lib: Any, outs: list[Any], cots: list[Any], ins: list[Any], create: bool) -> list[Any]:
    """Gradients, zeros where there is none: PyTorch's None and its zeros mean the same."""
    grads = lib.autograd.grad(outs, ins, cots, create_graph=create, allow_unused=True)
    return [lib.zeros_like(t) if g is None else g for g, t in zip(grads, ins, strict=True)]


def with_history(info: Any, sample: Any, lib: Any, mine: Any) -> tuple[list[Any], list[Any]]:
    """The results with history, and the inputs that gradients are asked for."""
    wrap = info.gradcheck_wrapper  # makes inputs Hermitian or triangular that have to be
    mine = functools.partial(wrap if lib is torch else rebound(wrap), mine)
    if lib is torch:
        args, kwargs = [sample.input, *sample.args], sample.kwargs
        kind, process = torch.Tensor, sample.output_process_fn_grad
    else:
        args, kwargs = arguments(sample)
        kind, process = tn.Tensor, processed(sample.output_process_fn_grad)
    ins = [t for t in tensors([args, kwargs], kind) if t.requires_grad]
    both_seeds()
    return results(process(mine(*args, **kwargs)), kind), ins


def differentiate(info: Any, order: int, change: Any = None) -> Iterator[Verdict]:
    dtype = torch.float64 if torch.float64 in info.dtypes else torch.complex128
    if not info.supports_autograd or dtype not in info.dtypes:
        return
    drawn = samples(info, dtype, requires_grad=True)
    for sample in vary.varied(drawn, change) if change else drawn:
        try:
            outs, ins = with_history(info, sample, torch, info.op)
            if not ins or not outs:
                continue
            first = cotangents(outs)
            want = pulled(torch, outs, first, ins, order > 1)
            live = [i for i, g in enumerate(want) if order > 1 and g.requires_grad]
            second = cotangents([want[i] for i in live])
            if order > 1:
                want = pulled(torch, [want[i] for i in live], second, ins, False) if live else []
        except Exception:
            continue
        given = sample, first, live, second, want

        def ask(given: Any = given) -> None:
            sample, first, live, second, want = given
            outs, ins = with_history(info, sample, tn, operator(info))
            if len(outs) != len(first):
                raise Different(f"{len(outs)} results with history, not {len(first)}")
            got = pulled(tn, outs, to_tenon(first), ins, order > 1)
            if order > 1:
                pairs = [(got[i], tensor_to_tenon(c)) for i, c in zip(live, second, strict=True)]
                pairs = [(g, c) for g, c in pairs if g.requires_grad]
                inner, cots = [g for g, _ in pairs], [c for _, c in pairs]
                got = (
                    pulled(tn, inner, cots, ins, False) if inner else list(map(tn.zeros_like, ins))
                )
                got = got if live else []
            check(got, want)

        yield verdict(describe(sample), ask)


def gradients(info: Any) -> Iterator[Verdict]:
    yield from differentiate(info, 1)


def second(info: Any) -> Iterator[Verdict]:
    if info.supports_gradgrad:
        yield from differentiate(info, 2)


def errors(info: Any) -> Iterator[Verdict]:
    """What PyTorch refuses, Tenon refuses with the same class of exception and words."""
    if info.error_inputs_func is None:
        return
    torch.manual_seed(0)
    for case in list(info.error_inputs("cpu")):
        sample = case.sample_input
        try:
            info.op(sample.input, *sample.args, **sample.kwargs)
        except Exception as expected:

            def mine(sample: Any = sample) -> None:
                args, kwargs = arguments(sample)
                operator(info)(*args, **kwargs)

            yield refusal(describe(sample), mine, expected)


SECTIONS = {
    "forward": forward,
    "gradients": gradients,
    "second": second,
    "out": out,
    "inplace": inplace,
    "methods": methods,
    "errors": errors,
    "dtypes": dtypes,
    "varied": varied,
    "strides": strides,
}
