"""Accepted and not used. Switches that programs restore are PyTorch's."""

from tenon._torch._settings import accept

compile_threads = 1
epilogue_fusion = fx_graph_cache = True
max_autotune = max_autotune_gemm = coordinate_descent_tuning = freezing = False
fallback_random = force_disable_caches = cpp_wrapper = debug = False

accept(__name__)
