"""An optimizer whose steps are local, and whose parameters are averaged now and then."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tenon.distributed.algorithms.model_averaging.averagers import ModelAverager
from tenon.optim import Optimizer

__all__ = ["PostLocalSGDOptimizer"]


class PostLocalSGDOptimizer(Optimizer):
    """Steps of another optimizer, each followed by the averager."""

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self._make_hook_dicts()
        self.optim, self.averager = optim, averager
        self.param_groups = optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The other optimizer's."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The other optimizer's, with the number of steps."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes back what state_dict gave."""
        self.optim.load_state_dict({k: v for k, v in state_dict.items() if k != "step"})
        if "step" in state_dict:
            self.averager.step = state_dict["step"]
        else:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. "
                "Setting step counter to 0.",
                stacklevel=2,
            )
            self.averager.step = 0

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the other optimizer, then the averager's turn."""
        result = self.optim.step(closure)
        self.averager.average_parameters(params=self.param_groups)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The other optimizer's."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The other optimizer's."""
        self.optim.add_param_group(param_group)
