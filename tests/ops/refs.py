"""NumPy references that are longer than one line in the op table. Inputs are float64 or exact."""

from __future__ import annotations

import numpy as np


def sgn(x: np.ndarray) -> np.ndarray:
    """x / |x|, 0 at 0; works for complex numbers."""
    size = np.abs(x)
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size))
