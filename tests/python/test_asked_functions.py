"""Names of functions that classes with __torch_function__ are asked about, and lists of them."""

import inspect
from typing import Any

import pytest
import tenon as tn
import tenon.nn.functional as F
from tenon import overrides

NAMES = {
    "add": tn.add,
    "Tensor.add": tn.Tensor.add,
    "Tensor.__add__": tn.Tensor.__add__,
    "Tensor.shape.__get__": tn.Tensor.shape.__get__,
    "Tensor.grad.__get__": tn.Tensor.grad.__get__,
    "nn.functional.relu": F.relu,
    "nn.functional.conv1d": tn.conv1d,
    "fft.fft": tn.fft.fft,
    "linalg.norm": tn.linalg.norm,
    "zeros": tn.zeros,
}


@pytest.mark.parametrize("name", NAMES)
def test_names_lead_back_to_the_function(name):
    assert overrides.resolve_name(NAMES[name]) == f"tenon.{name}"


@pytest.mark.parametrize("other", [3, [], len, lambda: None])
def test_what_is_no_function_of_tensors_has_no_name(other):
    assert overrides.resolve_name(other) is None


def test_functions_lie_where_programs_find_them():
    found = overrides.get_overridable_functions()
    assert tn.add in found[tn]
    assert F.cross_entropy in found[F]
    assert tn.fft.fft in found[tn.fft]
    assert tn.Tensor.add in found[tn.Tensor]
    assert tn.Tensor.shape.__get__ in found[tn.Tensor]
    assert tn.Tensor.__torch_function__ not in found[tn.Tensor]


def test_makers_and_settings_ask_nobody():
    ignored = overrides.get_ignored_functions()
    assert {tn.zeros, tn.arange, tn.manual_seed, tn.tensor, tn.save, tn.is_grad_enabled} <= ignored
    everywhere = {f for group in overrides.get_overridable_functions().values() for f in group}
    assert not ignored & everywhere


def test_lists_are_the_callers():
    overrides.get_overridable_functions()[tn].clear()
    overrides.get_ignored_functions().clear()
    assert tn.add in overrides.get_overridable_functions()[tn]
    assert overrides.get_ignored_functions()


def test_stand_ins_have_the_signature():
    stand_in = overrides.get_testing_overrides()[tn.add]
    assert inspect.signature(stand_in) == inspect.signature(tn.add)
    assert stand_in(1, 2) == -1


def _call(f, probe):
    """Calls f with the probe wherever its signature has no default, and is no number."""
    parameters = inspect.signature(f).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return f(*[2 if p.name == "n" else probe for p in needed])


def test_operators_that_are_listed_ask():
    """Of the operators of the table; a class that has none of its own is asked by each."""

    class Probe:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return "asked"

    found = overrides.get_overridable_functions()
    silent = []
    for f in {*found[tn], *found[tn.linalg], *found[tn.fft], *found[tn.special]}:
        name = getattr(f, "__name__", "_")
        if not getattr(f, "__module__", "").startswith("tenon._C.") or name.endswith("_"):
            continue
        try:
            if _call(f, Probe()) != "asked":
                silent.append(f)
        except (TypeError, ValueError):  # another order of arguments
            if "input" in inspect.signature(f).parameters:
                silent.append(f)
    assert not silent


def test_the_text_of_a_tensor_asks_once() -> None:
    asked = []

    class Watched(tn.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            asked.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    x = tn.ones(2).as_subclass(Watched)
    asked.clear()
    assert repr(x) == "Watched([1., 1.])"
    assert asked == ["__repr__"]
