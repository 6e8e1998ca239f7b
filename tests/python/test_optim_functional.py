"""Steps as functions: torch.optim.adam.adam and its kin, which torch.optim._functional has, too."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import stored
import tenon as tn

ADAM = {
    "amsgrad": False,
    "beta1": 0.8,
    "beta2": 0.95,
    "lr": 0.05,
    "weight_decay": 0.1,
    "eps": 1e-6,
    "maximize": False,
}
MOMENTS = {"beta1": 0.8, "beta2": 0.95, "lr": 0.05, "weight_decay": 0.1, "eps": 1e-6}
RMS = {"lr": 0.05, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.1}
# Name, first values of the state's lists (None: an empty list), options.
STEPS: list[tuple[str, tuple[float | None, ...], dict[str, Any]]] = [
    ("adam", (0, 0, None), ADAM),
    ("adam", (0, 0, 0), {**ADAM, "amsgrad": True, "maximize": True}),
    ("adam", (0, 0, None), {**ADAM, "decoupled_weight_decay": True}),
    ("adamw", (0, 0, None), ADAM),
    ("nadam", (0, 0, 1), {**MOMENTS, "momentum_decay": 0.01}),
    ("radam", (0, 0), MOMENTS),
    ("radam", (0, 0), {**MOMENTS, "decoupled_weight_decay": True}),
    ("adamax", (0, 0), MOMENTS),
    ("rmsprop", (0, None, None), {**RMS, "momentum": 0, "centered": False}),
    ("rmsprop", (0, 0, 0), {**RMS, "momentum": 0.5, "centered": True, "maximize": True}),
    ("rmsprop", (0, 0, None), {**RMS, "momentum": 0, "centered": True}),
    ("adagrad", (0.1,), {"lr": 0.1, "weight_decay": 0.1, "lr_decay": 0.2, "eps": 1e-6,
                         "maximize": False}),
    ("adadelta", (0, 0), {"lr": 1.0, "rho": 0.8, "eps": 1e-5, "weight_decay": 0.1,
                          "maximize": True}),
    ("asgd", (0, 1, 0.05), {"lambd": 0.1, "lr": 0.05, "t0": 1.0, "alpha": 0.75,
                            "weight_decay": 0.1}),
    ("rprop", (0, 0.05), {"step_size_min": 1e-4, "step_size_max": 1.0, "etaminus": 0.5,
                          "etaplus": 1.2}),
]  # fmt: skip


def values(lib: Any, dtype: str, shift: float) -> list[Any]:
    parts = [lib.arange(6.0, dtype=lib.float64) + shift, lib.arange(4.0, dtype=lib.float64) - shift]
    parts = [part.sin() for part in parts]
    if dtype == "complex128":
        return [lib.complex(part, part.cos()) for part in parts]
    return [part.to(getattr(lib, dtype)) for part in parts]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(("name", "first", "options"), STEPS, ids=[s[0] for s in STEPS])
def test_steps(name: str, first: tuple[float | None, ...], options: Any, dtype: str) -> None:
    # Lists of single numbers, which are float32 as the counters are.
    counters = {"nadam": (2,), "asgd": (1, 2)}.get(name, ())

    def run(lib: Any) -> list[Any]:
        module = importlib.import_module(f"{lib.__name__}.optim.{name}")
        step = getattr(module, name)
        params = values(lib, dtype, 0.0)
        states: list[Any] = []
        for i, value in enumerate(first):
            if value is None:
                states.append([])
            elif i in counters:
                states.append([lib.tensor(float(value)) for _ in params])
            else:
                fill = complex(value, value) if "complex" in dtype else value
                states.append([lib.full_like(p, fill) for p in params])
        steps = [lib.tensor(0.0) for _ in params]
        path = []
        for t in range(4):
            grads = values(lib, dtype, 0.7 * t)
            complex_too = {"has_complex": "complex" in dtype}
            step(params, grads, *states, steps, foreach=False, **complex_too, **options)
            path += [p.clone() for p in params]
        return [path, states, steps]

    stored.same(run(tn), stored.of_torch(run), 1e-6 if counters else 1e-10, 1e-12)


@pytest.mark.parametrize("options", [
    {"momentum": 0}, {"momentum": 0.9, "dampening": 0.25},
    {"momentum": 0.9, "nesterov": True, "maximize": True},
], ids=str)  # fmt: skip
@pytest.mark.parametrize("rows", [False, True])
def test_sgd_fills_the_list_of_its_buffers(options: dict[str, Any], rows: bool) -> None:
    def run(lib: Any) -> list[Any]:
        sgd = importlib.import_module(f"{lib.__name__}.optim.sgd").sgd
        params, path = values(lib, "float64", 0.0), []
        decay = 0.0 if rows else 0.1
        rest = {"dampening": 0, "nesterov": False, "maximize": False, **options}
        buffers: list[Any] = [None, None]
        for t in range(3):
            grads = values(lib, "float64", 0.7 * t)
            if rows:
                grads[0] = grads[0].to_sparse()
            sgd(params, grads, buffers, rows, False, lr=0.1, weight_decay=decay, **rest)
            path += [p.clone() for p in params]
        dense = [b if b is None or b.layout == lib.strided else b.to_dense() for b in buffers]
        return [path, *([] if dense[0] is None else dense)]

    stored.same(run(tn), stored.of_torch(run), 1e-12, 1e-14)


def test_all_of_them_have_one_place() -> None:
    from tenon.optim import _functional

    for name in {step[0] for step in STEPS} | {"sgd"}:
        module = importlib.import_module(f"tenon.optim.{name}")
        assert getattr(_functional, name) is getattr(module, name)
    for name in ("Adam", "SGD", "RMSprop"):
        assert getattr(importlib.import_module(f"tenon.optim.{name.lower()}"), name)


def test_what_they_refuse() -> None:
    from tenon.optim._functional import adam, adamax, sgd

    p, g, m, v, t = (tn.ones(2) for _ in range(5))
    with pytest.raises(RuntimeError, match="adam: API has changed, `state_steps`"):
        adam([p], [g], [m], [v], [], [1], **ADAM)
    with pytest.raises(RuntimeError, match="adam does not support sparse gradients"):
        adam([p], [g.to_sparse()], [m], [v], [], [t[0]], **ADAM)
    with pytest.raises(NotImplementedError, match="differentiable=True"):
        adamax([p], [g], [m], [v], [t[0]], differentiable=True, **MOMENTS)
    with pytest.raises(NotImplementedError, match="adam: grad_scale and found_inf"):
        adam([p], [g], [m], [v], [], [t[0]], grad_scale=tn.ones(()), **ADAM)
    with pytest.raises(RuntimeError, match="weight_decay is not possible with sparse"):
        sgd([p], [g.to_sparse()], [None], weight_decay=0.1, momentum=0, lr=0.1, dampening=0,
            nesterov=False, maximize=False)  # fmt: skip
    assert p.tolist() == [1, 1] and t[0].item() == 1
