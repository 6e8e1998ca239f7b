"""Weights of models: published ones, read from the folder where PyTorch's hub keeps them, never
downloaded, and first ones."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import tenon
from tenon import Tensor, nn

_builders: dict[str, Any] = {}


class Weights(Enum):
    """Names of published weights of a model."""

    IMAGENET1K_V1 = "v1"
    IMAGENET1K_V2 = "v2"
    DEFAULT = "default"

    def get_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Only a model knows its files: make it with weights=."""
        raise NotImplementedError("make the model with weights=, or load its file by tenon.load")


def register(build: Any) -> Any:
    """Puts a function that makes a model on the list of `list_models`."""
    _builders[build.__name__] = build
    return build


def load_into(model: nn.Module, name: str, weights: Any, pretrained: Any = None) -> nn.Module:
    """The model with published weights, if some were asked for."""
    if not weights and not pretrained:
        return model
    folder = Path(tenon.hub.get_dir()) / "checkpoints"
    found = sorted(folder.glob(f"{name}-*.pth"))
    if not found:
        raise FileNotFoundError(
            f"{name}(weights={weights!r}): weights are not downloaded; put the published file "
            f"{name}-*.pth into {folder}"
        )
    model.load_state_dict(tenon.load(found[-1], weights_only=True))
    return model


def list_models(module: Any = None) -> list[str]:
    """Names that get_model knows, of a package of models if one is named."""
    return sorted(
        n for n, f in _builders.items()
        if module is None or f.__module__.rpartition(".")[0] == module.__name__
    )  # fmt: skip


def get_model_builder(name: str) -> Any:
    """The function that makes a model."""
    try:
        return _builders[name.lower()]
    except KeyError:
        raise ValueError(f"Unknown model {name}") from None


def get_model(name: str, **config: Any) -> nn.Module:
    """A model by its name."""
    return get_model_builder(name)(**config)


def initialize(model: nn.Module, linear: Callable[[Tensor], Any]) -> None:
    """First values of networks of small convolutions: weights of these by what they give out, norms
    as the identity, biases 0, and weights of linear layers as `linear` draws them."""
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out")
            if m.bias is not None:
                nn.init.zeros_(m.bias)
        elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.ones_(m.weight)
            nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Linear):
            linear(m.weight)
            nn.init.zeros_(m.bias)
