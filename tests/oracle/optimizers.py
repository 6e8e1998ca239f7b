"""One optimizer of PyTorch's optim_db against Tenon's: ten steps of every setting, state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tenon as tn
import torch
from bridge import find, to_tenon
from compare import Different, Verdict, apart, check, pairs, refusal, verdict
from operators import words
from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

STEPS = 10


def entries() -> list[Any]:
    return list(optim_db)


def title(info: Any) -> str:
    return info.optim_cls.__name__


def start(lib: Any) -> list[Any]:
    """A matrix and a vector; matrices alone are what some optimizers take."""
    torch.manual_seed(3)
    values = [torch.randn(6, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)]
    made = values if lib is torch else to_tenon(values)
    return [v.requires_grad_() for v in made]


def loss(lib: Any, params: list[Any]) -> Any:
    out = lib.zeros((), dtype=lib.float64)
    for p in params:
        out = out + (p * p * p).sin().sum() + (p * p).sum()
    return out


# Precision of what an optimizer adds up in, where that is less than its parameters'.
ADDS_IN = {"Muon": torch.float32}


def nudge(params: list[torch.Tensor], dtype: torch.dtype, seed: int) -> None:
    """Every number of a start one unit in the last place of that dtype up or down."""
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in params:
            signs = torch.randint(0, 2, p.shape, generator=draw).double() * 2 - 1
            p.mul_(1 + signs * torch.finfo(dtype).eps)


def make(lib: Any, info: Any, kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    name = info.optim_cls.__name__
    cls = info.optim_cls if lib is torch else find(f"optim.{name}")
    params = start(lib)
    if name == "Muon":
        params = params[:1]
    return cls(params, **(kwargs if lib is torch else to_tenon(kwargs))), params


def go(lib: Any, optimizer: Any, params: list[Any], steps: int) -> None:
    def closure() -> Any:
        optimizer.zero_grad()
        value = loss(lib, params)
        value.backward()
        if type(optimizer).__name__ == "SparseAdam":
            for p in params:
                p.grad = p.grad.to_sparse()
        return value

    for _ in range(steps):
        optimizer.step(closure)


def settings(info: Any) -> list[Any]:
    return [c for c in info.optim_inputs_func(device="cpu") if "capturable" not in c.kwargs]


def within_rounding(info: Any, case: Any, got: list[Any], want: list[torch.Tensor]) -> bool:
    """Whether PyTorch itself goes as far from `want` when its start differs in the last place."""
    farthest, dtype = 0.0, ADDS_IN.get(title(info), torch.float64)
    for seed in range(8):
        theirs, params = make(torch, info, case.kwargs)
        nudge(params, dtype, seed)
        go(torch, theirs, params, STEPS)
        farthest = max(farthest, *(apart(a, b) for a, b in zip(params, want, strict=True)))
    return max(apart(a, b) for a, b in pairs(got, want)) <= farthest


def near(info: Any, case: Any, got: list[Any], want: list[torch.Tensor]) -> str | None:
    """Raises Different unless the parameters are PyTorch's, or as near as rounding leaves them."""
    try:
        check(got, want)
    except Different:
        if not within_rounding(info, case, got, want):
            raise
        return "rounding"
    return None


def steps(info: Any) -> Iterator[Verdict]:
    for case in settings(info):

        def ask(case: Any = case) -> str | None:
            theirs, want = make(torch, info, case.kwargs)
            go(torch, theirs, want, STEPS)
            mine, got = make(tn, info, case.kwargs)
            go(tn, mine, got, STEPS)
            return near(info, case, got, want)

        yield verdict(case.desc or words(case.kwargs), ask)


def state(info: Any) -> Iterator[Verdict]:
    """PyTorch's state_dict loads into Tenon's optimizer, which goes on as PyTorch's does."""
    for case in settings(info):

        def ask(case: Any = case) -> str | None:
            theirs, want = make(torch, info, case.kwargs)
            go(torch, theirs, want, 3)
            mine, got = make(tn, info, case.kwargs)
            for a, b in zip(got, want, strict=True):
                a.detach().copy_(to_tenon(b.detach()))
            mine.load_state_dict(to_tenon(theirs.state_dict()))
            go(torch, theirs, want, 3)
            go(tn, mine, got, 3)
            why = near(info, case, got, want)
            ours, his = mine.state_dict(), theirs.state_dict()
            for index, entry in his["state"].items():
                if sorted(ours["state"][index]) != sorted(entry):
                    raise Different(f"state {sorted(ours['state'][index])}, not {sorted(entry)}")
            for a, b in zip(ours["param_groups"], his["param_groups"], strict=True):
                if set(b) - set(a):
                    raise Different(f"groups lack {sorted(set(b) - set(a))}")
            return why

        yield verdict(case.desc or words(case.kwargs), ask)


def errors(info: Any) -> Iterator[Verdict]:
    for error in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        case = error.optimizer_error_input

        def call(lib: Any, case: Any = case, error: Any = error) -> None:
            turn = to_tenon if lib is tn else (lambda v: v)
            cls = find(f"optim.{info.optim_cls.__name__}") if lib is tn else info.optim_cls
            params = case.params if case.params is not None else start(torch)
            own = turn(params)
            for mine, theirs in zip(own, params, strict=True) if lib is tn else ():
                if isinstance(theirs, torch.Tensor) and theirs.grad is not None:
                    mine.grad = turn(theirs.grad)
            optimizer = cls(own, **turn(case.kwargs))
            if error.error_on == OptimizerErrorEnum.STEP_ERROR:
                optimizer.step()

        try:
            call(torch)
        except Exception as expected:
            what = f"{case.desc} {words(case.kwargs)}"
            yield refusal(what, lambda call=call: call(tn), expected)


SECTIONS = {"steps": steps, "state": state, "errors": errors}
