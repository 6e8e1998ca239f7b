"""Derivatives of functions."""

from tenon.func import hessian, jacfwd, jacrev, jvp, linearize, vjp

__all__ = ["hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]
