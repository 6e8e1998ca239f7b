"""Function transforms: vmap, gradients of functions, and functions of modules."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tenon
from tenon._transform.gradients import (
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
)
from tenon._transform.vmap import vmap
from tenon.nn.utils.stateless import _functional_call

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """A function that computes what func does, in-place operators included: a recording of it holds
    their writes where they happened, as all recordings do."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): Valid options for argument `remove` are: "
            f"'mutations' and 'mutations_and_views'. Got remove='{remove}'"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Batch normalisations below root forget their running statistics and take those of each batch:
    vmap cannot write what all elements share."""
    for module in root.modules():
        if isinstance(module, tenon.nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


def stack_module_state(models: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of several models of one class, stacked: what a vmap over
    functional_call takes."""
    models = list(models)
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(
            "stack_module_state: Expected all models to have the same training/eval mode."
        )
    for name, p in models[0].named_parameters():
        if any(m.get_parameter(name).requires_grad != p.requires_grad for m in models):
            raise RuntimeError(
                "stack_module_state: Expected parameters from each model to have the same "
                f".requires_grad, and those of {name} differ"
            )
    params, buffers = (
        {name: tenon.stack([dict(getattr(m, kind)())[name] for m in models]).detach()
         for name, _ in getattr(models[0], kind)()}
        for kind in ("named_parameters", "named_buffers")
    )  # fmt: skip
    for name, p in models[0].named_parameters():
        params[name].requires_grad_(p.requires_grad)
    return params, buffers


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls the module with these tensors in the place of its own; afterwards it has its own again.
    What the call puts in a buffer's place stands in the dictionary, if it was given alone.

    tie_weights: a tensor that stands under several names is replaced under all of them.
    """
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        if not isinstance(given, list | tuple):
            raise ValueError(
                "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but "
                f"got {type(given)}"
            )
        given = {}
        for part in parameter_and_buffer_dicts:
            twice = given.keys() & part.keys()
            if twice:
                raise ValueError(f"{sorted(twice)} appeared in multiple dictionaries")
            given.update(part)
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


for _name in __all__:
    globals()[_name].__module__ = __name__
