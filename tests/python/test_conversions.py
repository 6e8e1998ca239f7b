"""What modules do with their parameters when they are converted and loaded, as `tenon.__future__`
says, and how scales of losses and their scalers move, beside PyTorch."""

from __future__ import annotations

import pickle
import warnings
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


# ---- GradScaler ----------------------------------------------------------------------------------


def optimizers(lib: Any, seen: list[Any]) -> dict[str, type]:
    """Optimizers that take the factor into account themselves, the newer and the older way."""

    class Newer(lib.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure: Any = None) -> None:
            scale = None if self.grad_scale is None else self.grad_scale.item()
            seen.append([scale, self.found_inf.item(), self.found_inf.dtype == lib.float32])

    class Older(lib.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure: Any = None, *, grad_scaler: Any = None) -> None:
            seen.append([grad_scaler.get_scale(), hasattr(self, "grad_scale")])

    return {"newer": Newer, "older": Older, "plain": lib.optim.SGD}


def life_of_a_scaler(lib: Any, kind: str, unscaled: bool) -> list[Any]:
    seen: list[Any] = []
    scaler = lib.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    seen.append([scaler._scale, scaler._growth_tracker, scaler._get_growth_tracker()])
    p = lib.tensor([1.0, 2.0], requires_grad=True)
    opt = optimizers(lib, seen)[kind]([p], lr=0.5)
    for factor in (1.0, float("inf"), 2.0, 1.0, 1.0):
        opt.zero_grad()
        scaler.scale((p * p * factor).sum()).backward()
        if unscaled:
            scaler.unscale_(opt)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            scaler.step(opt)
        seen.append([p.tolist(), p.grad.tolist()])
        try:
            pickle.dumps(scaler)
        except AssertionError:
            seen.append("not now")
        try:
            scaler.update()
        except AssertionError:
            seen.append("nothing was looked at")
            scaler.update(2.0)
        seen.append([scaler._scale.item(), scaler._growth_tracker.item(), scaler.state_dict()])
    scaler.update(lib.tensor(16.0))
    again = pickle.loads(pickle.dumps(scaler))
    seen.append([again._scale, again._growth_tracker, again.state_dict(), again.get_scale()])
    again.load_state_dict({**scaler.state_dict(), "scale": 32.0, "_growth_tracker": 1})
    scaled = again.scale([p.sum(), (p.sum(),)])
    return [*seen, scaled[0].item(), scaled[1][0].item(), again._growth_tracker.item()]


@pytest.mark.parametrize("kind", ["newer", "older", "plain"])
@pytest.mark.parametrize("unscaled", [False, True])
def test_lives_of_scalers(kind: str, unscaled: bool) -> None:
    mine = life_of_a_scaler(tn, kind, unscaled)
    theirs = stored.of_torch(lambda torch: life_of_a_scaler(torch, kind, unscaled))
    assert repr(mine) == repr(theirs)


def gradients_that_are_looked_at(lib: Any, which: str) -> Any:
    scaler = lib.amp.GradScaler("cpu", init_scale=4.0)
    p = lib.ones(3, 2, dtype=lib.float16 if "half" in which else lib.float32).requires_grad_()
    scaler.scale(p)
    if "sparse" in which:
        values = lib.full((3, 2), 60000.0 if "large" in which else 8.0, dtype=p.dtype)
        p.grad = lib.sparse_coo_tensor(lib.tensor([[0, 0, 2]]), values, (3, 2))
    else:
        p.grad = lib.full_like(p, 8.0)
    inverse, found = lib.tensor(0.25), lib.tensor(0.0)
    by_device = scaler._unscale_grads_(lib.optim.SGD([p], lr=1.0), inverse, found, "any" in which)
    grad = p.grad.to_dense() if "sparse" in which else p.grad
    return [[f.item() for f in by_device.values()], grad.tolist()]


WHICH = ("float", "half any", "sparse float", "sparse half any", "sparse large half any")


@pytest.mark.parametrize("which", WHICH)
def test_gradients_that_scalers_look_at(which: str) -> None:
    theirs = stored.of_torch(lambda torch: gradients_that_are_looked_at(torch, which))
    assert repr(gradients_that_are_looked_at(tn, which)) == repr(theirs)


def test_what_scalers_refuse() -> None:
    def on(call: Any) -> Any:
        return lambda lib: call(lib, lib.amp.GradScaler("cpu"))

    def given(new: Any) -> Any:
        return on(lambda lib, s: (s.scale(lib.ones(1)), s.update(new(lib))))

    check_beside("Attempted update but _scale is None", on(lambda lib, s: s.update()))
    check_beside("requires_grad=False", given(lambda lib: lib.ones(2)))
    check_beside("requires_grad=False", given(lambda lib: lib.ones(1, requires_grad=True)))
    check_beside("growth factor", lambda lib: lib.amp.GradScaler("cpu", growth_factor=1.0))
    check_beside("backoff factor", lambda lib: lib.amp.GradScaler("cpu", backoff_factor=1.0))
    check_beside("FP16", lambda lib: gradients_that_are_looked_at(lib, "half"))
