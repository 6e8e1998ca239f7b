"""What modules do with their parameters when they are converted and loaded, as `tenon.__future__`
says, and how a scale of losses moves, beside PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import stored
import tenon as tn
from refusals import check_beside, part


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    tn.__future__.set_overwrite_module_params_on_conversion(False)
    tn.__future__.set_swap_module_params_on_conversion(False)


def converted(lib: Any, how: str) -> list[Any]:
    """Facts about a layer, its weight and its gradient before and after."""
    future = part(lib, "__future__")
    setters = {
        "overwrite": future.set_overwrite_module_params_on_conversion,
        "swap": future.set_swap_module_params_on_conversion,
    }
    getters = (
        future.get_overwrite_module_params_on_conversion,
        future.get_swap_module_params_on_conversion,
    )
    chosen = how.split()
    for word in chosen:
        setters[word](True)
    try:
        layer = lib.nn.Linear(2, 2)
        weight, bias = layer.weight, layer.bias
        layer(lib.ones(1, 2)).sum().backward()
        grad = weight.grad
        layer.bias.requires_grad_(False)
        layer.double()
        facts = [
            [g() for g in getters], layer.weight is weight, layer.bias is bias,
            str(weight.dtype)[-7:], str(layer.weight.dtype)[-7:], layer.weight.grad is grad,
            str(layer.weight.grad.dtype)[-7:], layer.weight.grad.tolist(),
            [p.requires_grad for p in layer.parameters()],
        ]  # fmt: skip
        state = {"weight": lib.full((2, 2), 3.0), "bias": lib.zeros(2)}
        held = layer.weight
        for assign in (False, True):
            layer.load_state_dict(state, assign=assign)
            facts += [layer.weight is held, str(layer.weight.dtype)[-7:], layer.weight.tolist()]
        return facts
    finally:
        for word in chosen:
            setters[word](False)


@pytest.mark.parametrize("how", ["", "overwrite", "swap", "overwrite swap"])
def test_conversions(how: str) -> None:
    assert converted(tn, how) == stored.of_torch(lambda torch: converted(torch, how))


def test_what_cannot_be_swapped_is_said() -> None:
    import weakref

    tn.__future__.set_swap_module_params_on_conversion(True)
    layer = tn.nn.Linear(2, 2)
    watched = weakref.ref(layer.weight)
    with pytest.raises(RuntimeError, match="weakref"):
        layer.double()
    assert watched() is layer.weight


def scales(lib: Any, start: float, interval: int, found: list[int]) -> list[Any]:
    scale, steps = lib.tensor(start), lib.tensor(0, dtype=lib.int32)
    seen = []
    for f in found:
        back = lib._amp_update_scale_(scale, steps, lib.tensor(float(f)), 2.0, 0.5, interval)
        seen.append([back is scale, scale.item(), steps.item()])
    return seen


@pytest.mark.parametrize("case", range(3))
def test_scales(case: int) -> None:
    given = ((4.0, 2, [0, 0, 1, 0, 0, 0]), (3e38, 1, [0, 0, 1]), (1.0, 3, [1, 1, 0, 0, 0]))[case]
    assert scales(tn, *given) == stored.of_torch(lambda torch: scales(torch, *given))


def test_what_is_no_scale_is_refused() -> None:
    def update(*wrong: Any) -> Any:
        def call(lib: Any) -> Any:
            given = [lib.tensor(1.0), lib.tensor(0, dtype=lib.int32), lib.tensor(0.0)]
            given[wrong[0]] = wrong[1](lib)
            return lib._amp_update_scale_(*given, 2.0, 0.5, 1)

        return call

    check_beside("current_scale must be a float tensor", update(0, lambda t: t.tensor(1)))
    check_beside("growth_tracker must be an int tensor", update(1, lambda t: t.tensor(0)))
    check_beside("found_inf must be a float tensor", update(2, lambda t: t.tensor(1)))
    check_beside("of one element", update(2, lambda t: t.zeros(2)))
