"""ShapeProp: runs a graph and notes what every node gave."""

from __future__ import annotations

from typing import Any, NamedTuple

import tenon
from tenon.fx.interpreter import Interpreter
from tenon.fx.node import Node
from tenon.utils import _pytree


class TensorMetadata(NamedTuple):
    """What is known of a tensor beside its values."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


_FORMATS: dict[int, tuple[Any, ...]] = {  # by the number of dimensions
    0: (tenon.contiguous_format,),
    4: (tenon.contiguous_format, tenon.channels_last),
    5: (tenon.contiguous_format, tenon.channels_last_3d),
}


def _extract_tensor_metadata(t: Any, include_contiguity: bool = True) -> TensorMetadata:
    """What ShapeProp notes of a tensor."""
    forms = _FORMATS.get(t.dim(), _FORMATS[0]) if include_contiguity else ()
    form = next((f for f in forms if t.is_contiguous(memory_format=f)), None)
    return TensorMetadata(t.shape, t.dtype, t.requires_grad, t.stride(), form, False, {})


class ShapeProp(Interpreter):
    """`ShapeProp(gm).propagate(x)` sets `meta["tensor_meta"]` and `meta["type"]` of all nodes."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if any(isinstance(leaf, tenon.Tensor) for leaf in _pytree.tree_leaves(result)):
            n.meta["tensor_meta"] = _pytree.tree_map_only(
                tenon.Tensor, _extract_tensor_metadata, result
            )
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        return self.run(*args)
