"""Places of grids, to the last bit: at whole numbers a gradient is another on either side."""

from __future__ import annotations

from typing import Any

import pytest
import stored
import tenon as tn


@pytest.mark.parametrize("size", [(1, 1, 28, 28), (1, 1, 7, 10), (1, 1, 3, 5, 6)], ids=str)
def test_an_image_at_its_own_places(size: tuple[int, ...]) -> None:
    def run(lib: Any) -> list[Any]:
        axes = len(size) - 2
        theta = lib.eye(axes, axes + 1)[None]
        grids = lib.nn.functional.affine_grid(theta, size, align_corners=False)[0]
        line = [grids[(0,) * i + (slice(None),) + (0,) * (axes - 1 - i)] for i in range(axes)]
        return [places[:, axes - 1 - i] for i, places in enumerate(line)]

    stored.same(run(tn), stored.of_torch(run), 0.0, 0.0)
