"""Types of results that have names, each by the name of its operator: `values, indices = x.max(0)`.

Those of operators of the table are made when they are first asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tenon import _C
from tenon._C import Tensor
from tenon._tensor.print import named_result_repr, package_name


def add_type(made: type) -> type:
    """Takes the type of an operator's results, which the extension has made; gives the one to use,
    which is the first of that name."""
    made.__repr__ = named_result_repr
    made.__module__ = f"{package_name()}.return_types"
    return globals().setdefault(made.__name__, made)


def __getattr__(name: str) -> Any:
    made = None if name.startswith("_") else _C._result_type(name)
    if made is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return made


class linalg_cholesky_ex(NamedTuple):
    """Factors, and 0 or the order of the first minor that is not positive."""

    L: Tensor
    info: Tensor


class linalg_qr(NamedTuple):
    """A = Q R."""

    Q: Tensor
    R: Tensor


class linalg_slogdet(NamedTuple):
    """Signs of determinants, and logarithms of their absolute values."""

    sign: Tensor
    logabsdet: Tensor


class linalg_svd(NamedTuple):
    """A = U diag(S) Vh."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class linalg_eigh(NamedTuple):
    """A = V diag(L) V^T for eigenvalues L and eigenvectors V."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_eig(NamedTuple):
    """A V = V diag(L) for complex eigenvalues L and eigenvectors V."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_lu_factor(NamedTuple):
    """L below the diagonal and U from it on in one matrix, and the exchanges of rows, from 1."""

    LU: Tensor
    pivots: Tensor


class linalg_lu_factor_ex(NamedTuple):
    """LUFactor, and 0 or the number of a zero on the diagonal of U."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class linalg_lu(NamedTuple):
    """A = P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


class linalg_ldl_factor(NamedTuple):
    """L below the diagonal and D on it in one matrix, and the exchanges, from 1."""

    LD: Tensor
    pivots: Tensor


class linalg_ldl_factor_ex(NamedTuple):
    """LDL, and 0 or the number of a zero on the diagonal of D."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


class linalg_solve_ex(NamedTuple):
    """The solution, and 0 or the number of a zero on the diagonal of U."""

    result: Tensor
    info: Tensor


class linalg_lstsq(NamedTuple):
    """Solutions, sums of squared residuals of full-rank systems, ranks, singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class qr(NamedTuple):
    """A = Q R."""

    Q: Tensor
    R: Tensor


class svd(NamedTuple):
    """input = U diag(S) V^T."""

    U: Tensor
    S: Tensor
    V: Tensor


class triangular_solve(NamedTuple):
    """The solution and the coefficients that were used."""

    solution: Tensor
    cloned_coefficient: Tensor


class lu_unpack(NamedTuple):
    """A = P L U; empty what was not asked for."""

    P: Tensor
    L: Tensor
    U: Tensor


class histogram(NamedTuple):
    """What `histogram` returns."""

    hist: Tensor
    bin_edges: Tensor


class histogramdd(NamedTuple):
    """What `histogramdd` returns."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


for _made in list(globals().values()):
    if isinstance(_made, type) and issubclass(_made, tuple):
        _made.__repr__ = named_result_repr
del _made
