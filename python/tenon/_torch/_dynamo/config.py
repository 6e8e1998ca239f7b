"""Accepted and not used. Numbers and switches that programs compare or restore are PyTorch's."""

from tenon._torch._settings import accept

cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
assume_static_by_default = automatic_dynamic_shapes = dynamic_shapes = optimize_ddp = True
guard_nn_modules = inline_inbuilt_nn_modules = force_parameter_static_shapes = trace_numpy = True
suppress_errors = verbose = error_on_recompile = fail_on_recompile_limit_hit = False
capture_scalar_outputs = capture_dynamic_output_shape_ops = False
specialize_int = specialize_float = allow_rnn = compiled_autograd = False

accept(__name__)
