"""Images through grids: PyTorch's words over the operators of the table."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import tenon
from tenon import Tensor
from tenon._tape import overridable

__all__ = ["affine_grid", "grid_sample"]

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _corners(given: bool | None) -> bool:
    if given is None:
        warnings.warn(
            "Default grid_sample and affine_grid behavior has changed to align_corners=False since "
            "1.3.0. Please specify align_corners=True if the old behavior is desired. See the "
            "documentation of grid_sample for details.",
            stacklevel=overridable.users_level(),
        )
    return bool(given)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """`input` at the places of `grid`, whose numbers go from -1 to 1 across an image.

    Shapes: input (N, C, H, W), grid (N, h, w, 2) to (N, C, h, w); volumes with one more.

    >>> F.grid_sample(tn.rand(1, 3, 4, 4), tn.zeros(1, 2, 2, 2), align_corners=False).shape
    tenon.Size([1, 3, 2, 2])
    """
    if mode not in _MODES:
        raise ValueError(
            "nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', "
            f"but got: '{mode}'"
        )
    if padding_mode not in _PADDINGS:
        raise ValueError(
            "nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or "
            f"'reflection', but got: '{padding_mode}'"
        )
    corners = _corners(align_corners)
    return tenon.grid_sampler(
        input, grid, _MODES.index(mode), _PADDINGS.index(padding_mode), corners
    )


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid of an affine map for an output of `size`, to be used with grid_sample.

    Shapes: theta (N, 2, 3), size (N, C, H, W) to (N, H, W, 2); volumes with one more.

    >>> F.affine_grid(tn.eye(2, 3)[None], (1, 1, 2, 2), align_corners=True)[0, 0]
    tensor([[-1., -1.],
            [ 1., -1.]])
    """
    corners = _corners(align_corners)
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    spatial = len(size) - 2
    if spatial not in (2, 3):
        raise NotImplementedError(
            "affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, "
            f"respectively. Got size {tuple(size)}."
        )
    if theta.dim() != 3 or theta.shape[1:] != (spatial, spatial + 1):
        raise ValueError(
            f"Expected a batch of {spatial}D affine matrices of shape Nx{spatial}x{spatial + 1} "
            f"for size {tuple(size)}. Got {tuple(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    return tenon.affine_grid_generator(theta, list(size), corners)


overridable.make_overridable(globals(), flags=("align_corners",))
