"""Where programs import `custom_op` from."""

from tenon.library import CustomOpDef, custom_op

__all__ = ["CustomOpDef", "custom_op"]
