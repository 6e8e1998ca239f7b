"""Checks that programs call as functions, each with an exception of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from tenon import _C
from tenon._C import Tensor

_Message = Callable[[], Any] | None


def _check_with(error_type: type[Exception], cond: Any, message: _Message) -> None:
    """Raises `error_type`, with what `message()` gives, where cond is False."""
    if isinstance(cond, Tensor):
        raise TypeError(
            "cond must be a bool, but got a Tensor. For tensor conditions, use "
            "torch._check_tensor_all() to assert that all elements are true."
        )
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        raise error_type("Expected cond to be True, but got False.")
    if not callable(message):
        raise TypeError("message must be a callable")
    raise error_type(str(message()))


def _check(cond: Any, message: _Message = None) -> None:
    """RuntimeError where cond is False."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: _Message = None) -> None:
    """IndexError where cond is False."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: _Message = None) -> None:
    """ValueError where cond is False."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: _Message = None) -> None:
    """TypeError where cond is False."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: _Message = None) -> None:
    """NotImplementedError where cond is False."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: Any, message: _Message = None, *, max: Any = None) -> None:
    """RuntimeError where i is less than 0 or more than max."""
    warnings.warn(
        "_check_is_size will be removed in a future PyTorch release along with "
        "guard_size_oblivious. Use _check(i >= 0) instead.",
        FutureWarning,
        stacklevel=2,
    )
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Any, message: _Message = None
) -> None:
    """Raises `error_type` where an element of cond, a tensor of bool, is False."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all()), message)


_check_tensor_all = partial(_check_tensor_all_with, RuntimeError)


def _assert_async(input: Tensor, assert_msg: str = "") -> None:
    """RuntimeError where the one element is zero; the value is looked at."""
    if not isinstance(input, Tensor):
        raise TypeError(
            f"_assert_async(): argument 'input' (position 1) must be Tensor, not "
            f"{type(input).__name__}"
        )
    if not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")
