"""Points that fill a cube evenly: Sobol's sequence, plain or scrambled.

The direction numbers are those of Joe and Kuo, `new-joe-kuo-6.21201`, in `_tensor/sobol.bin`:

- 21199 bytes: half of what each primitive polynomial, from the second on, is more than the one
  before it. The first is x + 1, and a polynomial is the number whose bits are its coefficients.
- a stream of bits, the lowest of a byte first: for each polynomial of degree s the numbers
  (m_2 - 1) / 2 to (m_s - 1) / 2, the i-th in i - 1 bits.
"""

from __future__ import annotations

from pathlib import Path

import tenon
from tenon import Generator, Tensor, dtype

__all__ = ["SobolEngine"]

_NUMBERS = Path(__file__).parent / "_tensor" / "sobol.bin"
_BITS, _DIMENSIONS = 30, 21201


def _first_numbers(dimensions: int) -> tuple[list[int], list[list[int]]]:
    """The polynomials of the dimensions after the first one, and their m_1 to m_s."""
    gaps = _DIMENSIONS - 2
    with _NUMBERS.open("rb") as file:
        polynomials = [3]
        for gap in file.read(max(dimensions - 2, 0)):
            polynomials.append(polynomials[-1] + 2 * gap)
        file.seek(gaps)
        degrees = [p.bit_length() - 1 for p in polynomials]
        stream = file.read(sum(s * (s - 1) // 2 for s in degrees) // 8 + 1)
    rows, place = [], 0
    for degree in degrees:
        length = degree * (degree - 1) // 2
        bits = int.from_bytes(stream[place // 8 : (place + length) // 8 + 1], "little")
        bits >>= place % 8
        row = [1]
        for width in range(1, degree):
            row.append(2 * (bits & ((1 << width) - 1)) + 1)
            bits >>= width
        rows.append(row)
        place += length
    return polynomials, rows


def _directions(dimensions: int) -> Tensor:
    """The direction numbers, a row for each dimension, as fractions of 2 ** 30."""
    columns = tenon.ones(dimensions, _BITS, dtype=tenon.int64)
    polynomials, rows = _first_numbers(dimensions)
    for degree in range(1, polynomials[dimensions - 2 if dimensions > 1 else 0].bit_length()):
        which = [i for i, p in enumerate(polynomials[: dimensions - 1]) if p >> degree == 1]
        if not which:
            continue
        at = slice(which[0] + 1, which[-1] + 2)
        columns[at, :degree] = tenon.tensor([rows[i] for i in which])
        coefficients = tenon.tensor([polynomials[i] for i in which])
        for j in range(degree, _BITS):
            last = columns[at, j - degree]
            value = last ^ (last << degree)
            for k in range(1, degree):
                term = columns[at, j - k] << k
                value = value ^ (term * ((coefficients >> (degree - k)) & 1))
            columns[at, j] = value
    return columns << tenon.arange(_BITS - 1, -1, -1)


class SobolEngine:
    """Draws points of Sobol's sequence in a cube of up to 21201 dimensions.

    With `scramble` the digits go through random triangular matrices and a random shift, which a
    `seed` decides.
    """

    MAXBIT = _BITS
    MAXDIM = _DIMENSIONS

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        with tenon.device("cpu"):
            self.sobolstate = _directions(dimension)
            if scramble:
                self._scramble()
            else:
                self.shift = tenon.zeros(dimension, dtype=tenon.int64)
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def _scramble(self) -> None:
        generator = None
        if self.seed is not None:
            generator = Generator()
            generator.manual_seed(self.seed)
        size = (self.dimension, self.MAXBIT)
        powers = tenon.pow(2, tenon.arange(self.MAXBIT))
        self.shift = (tenon.randint(2, size, generator=generator) * powers).sum(-1)
        matrices = tenon.randint(2, (*size, self.MAXBIT), generator=generator).tril()
        matrices.diagonal(0, -2, -1).fill_(1)
        places = tenon.arange(self.MAXBIT - 1, -1, -1)
        digits = (self.sobolstate.unsqueeze(-2) >> places.unsqueeze(-1)) & 1
        # Sums of at most 30 ones are exact in any floating type.
        mixed = tenon.bmm(matrices.to(tenon.float32), digits.to(tenon.float32)).to(tenon.int64) & 1
        self.sobolstate = (mixed << places.unsqueeze(-1)).sum(-2)

    def _walk(self, steps: Tensor) -> Tensor:
        """The state after so many steps from the present one."""
        done = max(self.num_generated - 1, 0)
        ahead = steps + done
        turned = (ahead ^ (ahead >> 1)) ^ (done ^ (done >> 1))
        state = self.quasi.expand(*steps.shape, -1)
        for bit in range(self.MAXBIT):
            chosen = (turned >> bit) & 1
            if chosen.any():
                state = state ^ (self.sobolstate[:, bit] * chosen.unsqueeze(-1))
        return state

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: dtype | None = None) -> Tensor:
        """The next n points, of shape (n, dimension)."""
        wanted = tenon.get_default_dtype() if dtype is None else dtype
        fresh = self.num_generated == 0
        with tenon.device("cpu"):
            states = self._walk(tenon.arange(1, n + (not fresh)))
        result = states.to(wanted) * 2.0**-self.MAXBIT
        if fresh:
            result = tenon.cat((self._first_point.to(wanted), result))
        if len(states):
            self.quasi = states[-1].clone()
        self.num_generated += n
        if out is not None:
            return out.resize_as_(result).copy_(result)
        return result

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: dtype | None = None) -> Tensor:
        """The next 2 ** m points, where with them the number of points is a power of two."""
        total = self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(2**m, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Back to the first point."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves out the next n points."""
        steps = n - (self.num_generated == 0)
        if steps > 0:
            self.quasi = self._walk(tenon.tensor([steps], device="cpu"))[0].clone()
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        shown = [f"dimension={self.dimension}"]
        shown += ["scramble=True"] if self.scramble else []
        shown += [f"seed={self.seed}"] if self.seed is not None else []
        return f"SobolEngine({', '.join(shown)})"
