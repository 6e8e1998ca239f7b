"""Assembly of a GPU inside a program."""

from __future__ import annotations

from tenon.distributed._absent import absent

inline_asm_elementwise = absent(
    "torch._higher_order_ops.inline_asm_elementwise", "inline_asm_elementwise",
    "a plugin's kernel can hold assembly",
)  # fmt: skip
