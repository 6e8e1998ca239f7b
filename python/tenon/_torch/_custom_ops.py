"""Names of operators in Python that packages import from `torch._custom_ops`."""

from tenon.library import get_ctx as get_ctx
from tenon.library import impl_abstract as impl_abstract
