"""Names of grids: which whole numbers there are, and how scale and zero point follow from a range.

A tensor on a grid is a float tensor whose values are (q - zero_point) * scale; these are no dtypes
of tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QType:
    """A kind of whole numbers."""

    name: str
    low: int
    high: int
    is_floating_point = False
    is_complex = False

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


# Integers of fewer than eight bits, which no operator computes: names of what packages pack.
int1, int2, int3, int4, int5, int6, int7 = (
    QType(f"int{n}", -(2 ** (n - 1)), 2 ** (n - 1) - 1) for n in range(1, 8)
)
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (
    QType(f"uint{n}", 0, 2**n - 1) for n in range(1, 8)
)


class QFloat(QType):
    """A kind of numbers with a sign, an exponent and a fraction."""

    is_floating_point = True


# Two numbers of four bits in a byte, which no operator computes: a name, too.
float4_e2m1fn_x2 = QFloat("float4_e2m1fn_x2", -6, 6)


@dataclass(frozen=True)
class QScheme:
    """How a grid is laid."""

    name: str
    symmetric: bool
    per_channel: bool

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


qint8 = QType("qint8", -128, 127)
quint8 = QType("quint8", 0, 255)
qint32 = QType("qint32", -(1 << 31), (1 << 31) - 1)
quint4x2 = QType("quint4x2", 0, 15)
per_tensor_affine = QScheme("per_tensor_affine", False, False)
per_tensor_symmetric = QScheme("per_tensor_symmetric", True, False)
per_channel_affine = QScheme("per_channel_affine", False, True)
per_channel_symmetric = QScheme("per_channel_symmetric", True, True)
per_channel_affine_float_qparams = QScheme("per_channel_affine_float_qparams", False, True)
