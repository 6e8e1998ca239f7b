"""Where programs import `infer_schema` from."""

from tenon.library import infer_schema

__all__ = ["infer_schema"]
