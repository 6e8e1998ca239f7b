"""Names that once were experimental."""

from tenon._torch._functorch.apis import chunk_vmap
from tenon._torch.functorch.experimental import control_flow as control_flow
from tenon.func import (
    functionalize,
    hessian,
    jacfwd,
    jvp,
    replace_all_batch_norm_modules_,
)

__all__ = [
    "chunk_vmap", "control_flow", "functionalize", "hessian", "jacfwd", "jvp",
    "replace_all_batch_norm_modules_",
]  # fmt: skip
