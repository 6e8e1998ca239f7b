"""Arguments that change or vanish while they are read."""

from __future__ import annotations

import numpy as np
import pytest
import tenon as tn


def test_sizes_in_an_array_of_floats_are_refused() -> None:
    for _ in range(50):  # the array's elements are temporary objects
        with pytest.raises(TypeError, match="found element of type float at pos 0"):
            tn.roll(tn.zeros(3), (1, 1), np.ones(2))


def test_a_list_that_shrinks_while_it_is_read() -> None:
    class Shrinks:
        def __index__(self) -> int:
            sizes.clear()
            return 1

    sizes = [Shrinks(), 2, 3]
    with pytest.raises(IndexError):
        tn.zeros(sizes)
