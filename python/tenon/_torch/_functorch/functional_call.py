"""Calls of modules with other parameters."""

from tenon.func import functional_call, stack_module_state

__all__ = ["functional_call", "stack_module_state"]
