"""Networks for pictures, whose parameters have the names of the published checkpoints."""

# ruff: noqa: F403
from __future__ import annotations

from typing import Any

# No __all__: what asks for everything gets every network.
from tenon.vision.models._weights import Weights as Weights
from tenon.vision.models._weights import get_model as get_model
from tenon.vision.models._weights import get_model_builder as get_model_builder
from tenon.vision.models._weights import list_models as list_models
from tenon.vision.models.alexnet import *
from tenon.vision.models.densenet import *
from tenon.vision.models.efficientnet import *
from tenon.vision.models.googlenet import *
from tenon.vision.models.inception import *
from tenon.vision.models.mobilenetv2 import *
from tenon.vision.models.mobilenetv3 import *
from tenon.vision.models.resnet import *
from tenon.vision.models.shufflenetv2 import *
from tenon.vision.models.squeezenet import *
from tenon.vision.models.vgg import *
from tenon.vision.models.vision_transformer import *


def __getattr__(name: str) -> Any:
    if name.endswith("_Weights"):
        return Weights
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
