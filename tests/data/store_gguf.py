"""Makes numbers.gguf, a file with a tensor of each type that is read, and numbers.npz, the numbers
that llama.cpp's package finds in it. Needs `gguf` from PyPI.

    python tests/data/store_gguf.py
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

HERE = Path(__file__).parent


def main() -> None:
    rng = np.random.default_rng(0)
    numbers = {}
    writer = gguf.GGUFWriter(str(HERE / "numbers.gguf"), "llama")
    writer.add_uint32("llama.block_count", 2)
    writer.add_float32("llama.eps", 0.5)
    writer.add_bool("llama.flag", True)
    writer.add_string("general.name", "a model")
    writer.add_array("tokenizer.tokens", ["a", "b", "ä"])
    writer.add_array("tokenizer.scores", [1.5, -2.0])
    writer.add_int64("x.big", -(1 << 40))
    for kind, dtype in (("F32", np.float32), ("F16", np.float16), ("I32", np.int32)):
        values = (100 * rng.standard_normal((1, 2, 3))).astype(dtype)
        writer.add_tensor(kind, values)
        numbers[kind] = values
    for kind in (Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1):
        blocks = quants.quantize(rng.standard_normal((2, 64)).astype(np.float32), kind)
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        numbers[kind.name] = quants.dequantize(blocks, kind)
    for kind in (Type.Q4_K, Type.Q5_K, Type.Q6_K):  # any bytes, with finite factors
        blocks = rng.integers(0, 256, (2, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        factors = np.array([0.37, -1.25], np.float16).view(np.uint8)
        if kind == Type.Q6_K:
            blocks[:, -2:] = factors[:2]
        else:
            blocks[:, :4] = factors
        writer.add_tensor(kind.name, blocks, raw_dtype=kind)
        numbers[kind.name] = quants.dequantize(blocks, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    np.savez(HERE / "numbers.npz", **numbers)


main()
