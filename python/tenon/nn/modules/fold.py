"""Windows out of pictures, and back."""

from tenon.nn.modules.vision import Fold, Unfold

__all__ = ["Fold", "Unfold"]
