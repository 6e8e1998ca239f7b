"""Functions as graphs of their forward and backward pass, by the names of `functorch.compile`."""

from tenon._torch._functorch.aot_autograd import (
    aot_function,
    aot_module,
    aot_module_simplified,
    compiled_function,
    compiled_module,
    make_boxed_compiler,
    make_boxed_func,
)
from tenon._torch._functorch.compilers import (
    default_decompositions,
    memory_efficient_fusion,
    nop,
    print_compile,
    ts_compile,
)
from tenon._torch._functorch.partitioners import (
    default_partition,
    min_cut_rematerialization_partition,
)

__all__ = [
    "aot_function", "aot_module", "aot_module_simplified", "compiled_function", "compiled_module",
    "default_decompositions", "default_partition", "make_boxed_compiler", "make_boxed_func",
    "memory_efficient_fusion", "min_cut_rematerialization_partition", "nop", "print_compile",
    "ts_compile",
]  # fmt: skip
