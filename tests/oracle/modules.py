"""One module of PyTorch's module_db against Tenon's: results, gradients, initial values, state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tenon as tn
import torch
from bridge import find, tensors, to_tenon
from compare import Different, Verdict, check, refusal, verdict
from operators import pulled, results, words
from torch.testing._internal.common_modules import ModuleErrorEnum, module_db


def entries() -> list[Any]:
    return list(module_db)


def title(info: Any) -> str:
    return info.name.removeprefix("nn.")


def describe(case: Any) -> str:
    built = case.constructor_input
    parts = [words(v) for v in built.args]
    return ", ".join(parts + [f"{k}={words(v)}" for k, v in built.kwargs.items()])


def cases(info: Any, dtype: torch.dtype, training: bool) -> list[Any]:
    torch.manual_seed(0)
    return list(info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=training))


def theirs_of(info: Any, case: Any, dtype: torch.dtype, training: bool) -> Any:
    torch.manual_seed(7)
    made = info.module_cls(*case.constructor_input.args, **case.constructor_input.kwargs)
    return made.to(dtype).train(training)


def mine_of(info: Any, case: Any, dtype: torch.dtype, training: bool) -> Any:
    tn.manual_seed(7)
    cls = find(f"nn.{info.module_cls.__name__}")
    made = cls(*to_tenon(case.constructor_input.args), **to_tenon(case.constructor_input.kwargs))
    return made.to(to_tenon(dtype)).train(training)


def load(mine: Any, theirs: Any) -> None:
    """Tenon's module gets the state of PyTorch's, and has the same keys."""
    state = {k: to_tenon(v) for k, v in theirs.state_dict().items()}
    mine.load_state_dict(state)


def inputs(case: Any) -> tuple[Any, Any]:
    given = case.forward_input
    return list(given.args), dict(given.kwargs)


def forward(info: Any) -> Iterator[Verdict]:
    yield from run(info, torch.float32, False)


def gradients(info: Any) -> Iterator[Verdict]:
    yield from run(info, torch.float64, True)


def run(info: Any, dtype: torch.dtype, backward: bool) -> Iterator[Verdict]:
    for training in (False, True) if info.train_and_eval_differ else (True,):
        for case in cases(info, dtype, training):
            if case.forward_input is None:
                continue

            def ask(case: Any = case, training: bool = training) -> None:
                theirs = theirs_of(info, case, dtype, training)
                targs, tkwargs = inputs(case)
                margs, mkwargs = to_tenon(targs), to_tenon(tkwargs)
                mine = mine_of(info, case, dtype, training)
                if not info.is_lazy:
                    load(mine, theirs)
                torch.manual_seed(42)
                want = theirs(*targs, **tkwargs)
                tn.manual_seed(42)
                got = mine(*margs, **mkwargs)
                if info.is_lazy:
                    load(mine, theirs)
                    got, want = mine(*margs, **mkwargs), theirs(*targs, **tkwargs)
                check(got, want)
                if backward:
                    check_gradients(mine, theirs, (margs, mkwargs, got), (targs, tkwargs, want))

            yield verdict(describe(case), ask)


def check_gradients(mine: Any, theirs: Any, my_call: Any, their_call: Any) -> None:
    outs = results(their_call[2], torch.Tensor)
    if not outs:
        return
    cots = [torch.randn(t.shape, dtype=t.dtype) for t in outs]
    ins = [t for t in tensors(their_call[:2], torch.Tensor) if t.requires_grad]
    ins += [p for p in theirs.parameters() if p.requires_grad]
    my_ins = [t for t in tensors(list(my_call[:2]), tn.Tensor) if t.requires_grad]
    my_ins += [p for p in mine.parameters() if p.requires_grad]
    want = pulled(torch, outs, cots, ins, False)
    got = pulled(tn, results(my_call[2], tn.Tensor), to_tenon(cots), my_ins, False)
    check(got, want)


def initial(info: Any) -> Iterator[Verdict]:
    """The same seed draws the same parameters, bit for bit."""
    for case in cases(info, torch.float32, True):
        if info.is_lazy:
            continue
        theirs = theirs_of(info, case, torch.float32, True)
        want = theirs.state_dict()
        if not want:
            continue

        def ask(case: Any = case, want: Any = want) -> None:
            state = mine_of(info, case, torch.float32, True).state_dict()
            if list(state) != list(want):
                raise Different(f"keys {list(state)}, not {list(want)}")
            for name, value in want.items():
                if not torch.equal(torch.from_dlpack(state[name].detach().clone()), value):
                    raise Different(f"other values of {name}")

        yield verdict(describe(case), ask)


def state(info: Any) -> Iterator[Verdict]:
    """The state of a module goes into PyTorch's, and comes back."""
    for case in cases(info, torch.float32, True)[:3]:
        if info.is_lazy:
            continue
        theirs = theirs_of(info, case, torch.float32, True)

        def ask(case: Any = case, theirs: Any = theirs) -> None:
            mine = mine_of(info, case, torch.float32, True)
            load(mine, theirs)
            check(list(mine.state_dict().values()), list(theirs.state_dict().values()))

        yield verdict(describe(case), ask)


def errors(info: Any) -> Iterator[Verdict]:
    if info.module_error_inputs_func is None:
        return
    torch.manual_seed(0)
    made = info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=False, training=True
    )
    for error in list(made):
        case = error.module_error_input

        def call(lib: str, case: Any = case, error: Any = error) -> None:
            cls = info.module_cls if lib == "torch" else find(f"nn.{info.module_cls.__name__}")
            turn = (lambda v: v) if lib == "torch" else to_tenon
            module = cls(*turn(case.constructor_input.args), **turn(case.constructor_input.kwargs))
            if error.error_on == ModuleErrorEnum.FORWARD_ERROR:
                args, kwargs = inputs(case)
                module(*turn(args), **turn(kwargs))

        try:
            call("torch")
        except Exception as expected:
            yield refusal(describe(case), lambda call=call: call("tenon"), expected)


SECTIONS = {
    "forward": forward,
    "gradients": gradients,
    "initial": initial,
    "state": state,
    "errors": errors,
}
