"""Helpers around networks: gradient clipping, parameters as vectors, sequences, weight norm."""

from tenon._submodules import on_demand
from tenon.nn.utils import (
    clip_grad,
    convert_parameters,
    fusion,
    parametrizations,
    parametrize,
    prune,
    rnn,
)
from tenon.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from tenon.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from tenon.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from tenon.nn.utils.init import skip_init
from tenon.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from tenon.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from tenon.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad",
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "convert_parameters",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "fusion",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]

on_demand(globals())
