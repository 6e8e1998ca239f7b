"""pieces.py OUT: writes the tables of map_wide.h, map_wide_pow.h, map_wide_more.h. Polynomials for
32 or, for AVX2, 8 neighbouring intervals of a function: row 0 is what rounding took from row 1, the
constant terms, the other rows hold the powers upwards, and the last is what rounding took from the
slopes. Those that are centred have the middles in row 0, at which rounding takes next to nothing,
and the powers of the distance from there upwards. For powers of two row 0 is relative. For other
powers 1 / c and log2(c), with a c in each of 16 intervals; for logarithms 1 / c and log(c) in two
parts, with one in each of 32."""

import math
import struct
import sys
from collections.abc import Callable, Iterator


def normal(x: float) -> float:
    """The normal distribution's function."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def mills(a: float) -> float:
    """normal(-a) without the exponential that it falls by."""
    return normal(-a) * math.exp(a * a / 2.0)


def slope_mills(a: float) -> float:
    """The same for the derivative of x * normal(x) at -a."""
    return mills(a) - a / math.sqrt(2.0 * math.pi)


def fit(
    f: Callable[[float], float], start: float, width: float, degree: int, origin: float
) -> list[float]:
    """Coefficients in x - origin of the polynomial through f at the Chebyshev points."""
    n = degree + 1
    points = [width / 2.0 * (1.0 + math.cos(math.pi * (i + 0.5) / n)) for i in range(n)]
    at = [start - origin + t for t in points]
    divided = [f(origin + t) for t in at]
    for level in range(1, n):
        for i in range(n - 1, level - 1, -1):
            divided[i] = (divided[i] - divided[i - 1]) / (at[i] - at[i - level])
    poly = [0.0] * n
    for i in range(n - 1, -1, -1):
        for j in range(n - 1, 0, -1):
            poly[j] = poly[j - 1] - at[i] * poly[j]
        poly[0] = divided[i] - at[i] * poly[0]
    return poly


def single(x: float) -> float:
    """The float nearest to x."""
    exponent = math.frexp(x)[1] if x else 0
    unit = math.ldexp(1.0, max(exponent, -125) - 24)
    return round(x / unit) * unit


def rows(columns: list[list[float]]) -> Iterator[tuple[float, ...]]:
    """The table, with the rounding of the constant terms in front and of the slopes behind."""
    yield tuple(c[0] - single(c[0]) for c in columns)
    yield from zip(*columns, strict=True)
    yield tuple(c[1] - single(c[1]) for c in columns)


def write_rows(out: list[str], name: str, table: list[tuple[float, ...]]) -> None:
    """Appends a table of floats."""
    out.append(f"static const float {name}[{len(table)}][{len(table[0])}] = {{")
    out.extend("    {" + ", ".join(f"{single(x).hex()}f" for x in row) + "}," for row in table)
    out.append("};")


def write(out: list[str], name: str, columns: list[list[float]]) -> None:
    """Appends the table of polynomials."""
    write_rows(out, name, list(rows(columns)))


def intervals(count: int) -> Iterator[tuple[float, float]]:
    """The starts and widths of those that x from 0 to 15 falls into: number c starts where the
    exponent's last two bits and the fraction's first ones of x + 1 are c."""
    parts = count // 4
    for c in range(count):
        scale = 2.0 ** ((c // parts + 1) % 4)
        yield scale * (1.0 + c % parts / parts) - 1.0, scale / parts


def pieces(
    f: Callable[[float], float], count: int, degree: int, times_x: bool
) -> list[list[float]]:
    """Of f, or of x * f(x), which keeps its digits next to 0, for x from 0 to 15."""
    columns = []
    for start, width in intervals(count):
        if times_x and start == 0.0:
            columns.append([0.0, *fit(f, start, width, degree - 1, start)])
        elif times_x:
            columns.append(fit(lambda x: x * f(x), start, width, degree, start))
        else:
            columns.append(fit(f, start, width, degree, start))
    return columns


def write_centred(out: list[str], name: str, f: Callable[[float], float], degree: int) -> None:
    """Appends the table of f for x from 0 to 15."""
    columns = []
    for start, width in intervals(32):
        for step in range(4096):
            middle = start + width / 2.0 + math.ldexp(width, -17) * step
            poly = fit(f, start, width, degree, middle)
            if abs(poly[0] - single(poly[0])) < math.ldexp(max(abs(poly[0]), 0.0625), -31):
                break
        columns.append([middle, *poly])
    write_rows(out, name, list(zip(*columns, strict=True)))


def tanh_ratio(x: float) -> float:
    """tanh(x) / x."""
    return math.tanh(x) / x


def atan_ratio(x: float) -> float:
    """atan(x) / x."""
    return math.atan(x) / x


def erf_ratio(x: float) -> float:
    """erf(x / 2) / x."""
    return math.erf(x / 2.0) / x


def slow_erfc(x: float) -> float:
    """erfc(x) without the exponential that it falls by."""
    return math.erfc(x) * math.exp(x * x)


def write_logarithms(out: list[str], name: str, base: float) -> None:
    """Of 32 parts of [1, 2), those from 1.40625 on halved; both next to 1 have c = 1. Head times
    2^17 is whole: sums with multiples of the logarithm of 2 are exact."""
    inverses = [32.0 / (32.5 + i) * (2.0 if i >= 13 else 1.0) for i in range(32)]
    inverses[0] = inverses[31] = 1.0
    inverses = [single(c) for c in inverses]
    exact = [-math.log(c) / math.log(base) for c in inverses]
    heads = [round(x * 2.0**17) / 2.0**17 for x in exact]
    rests = [x - head for x, head in zip(exact, heads, strict=True)]
    inverses = [c / 2.0 if i >= 13 else c for i, c in enumerate(inverses)]
    write_rows(out, name, [tuple(inverses), tuple(heads), tuple(rests)])


def logarithms() -> str:
    """Of intervals that begin where the bits of a float are 0x3f330000 + i * 2^19; one holds 1."""
    inverses = []
    for i in range(16):
        ends = [struct.unpack("f", struct.pack("I", 0x3F330000 + (k << 19)))[0] for k in (i, i + 1)]
        inverses.append(1.0 if ends[0] <= 1.0 < ends[1] else 2.0 / (ends[0] + ends[1]))
    columns = ("0x0p+0" if c == 1.0 else (-math.log2(c)).hex() for c in inverses)
    table = [", ".join(c.hex() for c in inverses), ", ".join(columns)]
    return "static const double table_log[2][16] = {{" + "}, {".join(table) + "}};"


def main() -> None:
    """Writes the file named on the command line."""
    out = ["/* Generated by pieces.py. */"]
    out.append("#if defined(__AVX512F__)")
    powers = [2.0 ** (k / 32.0) for k in range(32)]
    rest = tuple(x / single(x) - 1.0 for x in powers)
    write_rows(out, "table_power", [rest, tuple(powers)])
    out.append(logarithms())
    for name, base in (("table_ln", math.e), ("table_log2", 2.0), ("table_log10", 10.0)):
        write_logarithms(out, name, base)
    write(out, "table_tanh", pieces(tanh_ratio, 32, 5, True))
    write(out, "table_atan", pieces(atan_ratio, 32, 5, True))
    write(out, "table_erf", pieces(erf_ratio, 32, 5, True))
    write_centred(out, "table_erfc", slow_erfc, 5)
    write_centred(out, "table_gelu", mills, 4)
    write_centred(out, "table_gelu_slope", slope_mills, 4)
    out.append("#else")
    write(out, "table_gelu", pieces(mills, 8, 8, True))
    write(out, "table_gelu_slope", pieces(slope_mills, 8, 8, False))
    out.append("#endif")
    with open(sys.argv[1], "w", encoding="ascii") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
