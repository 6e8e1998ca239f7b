"""What the arguments of layers, losses, optimizers and schedules mean, as help() tells it.

Arguments of one name mean one thing everywhere, so that each is explained once. A class that was
given to `describe` shows its own text and, below, its parameters with defaults and meanings; that
is put together when somebody reads it.
"""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

MEANINGS = {
    # sizes and channels
    "in_features": "size of the last dimension of the input",
    "out_features": "size of the last dimension of the result",
    "in1_features": "size of the last dimension of the first input",
    "in2_features": "size of the last dimension of the second input",
    "in_channels": "channels of the input", "out_channels": "channels of the result",
    "num_features": "channels of the input", "num_channels": "channels of the input",
    "num_groups": "groups that the channels are divided into",
    "groups": "groups of channels that do not see each other",
    "normalized_shape": "sizes of the last dimensions, which are normalised together",
    "output_size": "sizes of the result", "size": "sizes of the result, or how many neighbours",
    "output_ratio": "sizes of the result as parts of the input's",
    "scale_factor": "the result's sizes over the input's",
    "upscale_factor": "by how much both sizes grow", "downscale_factor": "by how much both shrink",
    "unflattened_size": "the sizes that the dimension is split into",
    "start_dim": "the first of the dimensions that are joined", "end_dim": "the last of them",
    "dim": "the dimension that the function goes along", "keepdim": "keeps it, with size 1",
    "n_classes": "number of classes", "num_classes": "number of classes",
    "num_parameters": "1, or one for each channel", "init": "what parameters begin with",
    # windows
    "kernel_size": "size of the window: an int, or one for each dimension",
    "stride": "from window to window; a pooling's kernel_size unless given",
    "padding": "what is added at each end of a dimension; a convolution's 'same' keeps the sizes",
    "padding_mode": "what is added: 'zeros', 'reflect', 'replicate' or 'circular'",
    "output_padding": "what the result is longer by, at one end",
    "dilation": "from element to element of the window",
    "ceil_mode": "counts windows that go beyond the end",
    "return_indices": "gives the places of the maxima too",
    "count_include_pad": "takes zeros of the padding into the mean",
    "divisor_override": "what sums are divided by instead of the window's size",
    "norm_type": "the p of the norm", "value": "what is put in",
    # parameters
    "bias": "has an additive parameter", "device": "where parameters are made",
    "dtype": "dtype of the parameters", "affine": "has a weight and a bias for each channel",
    "elementwise_affine": "has a weight, and a bias, for each element",
    "eps": "a small number that keeps divisions and logarithms finite",
    "momentum": "share of the newest batch in running statistics; of the last step in an optimizer",
    "track_running_stats": "keeps mean and variance of the batches for evaluation",
    "process_group": "processes whose batches are looked at together",
    "recompute_scale_factor": "takes the scale from the sizes of the result",
    "align_corners": "the corners of both grids are the same points",
    # functions
    "inplace": "writes the result over the input", "alpha": "a factor; the exponent's slope",
    "beta": "where one form goes over into the other", "lambd": "the bound around zero, or decay",
    "threshold": "the bound", "negative_slope": "slope below zero",
    "lower": "least slope", "upper": "greatest slope", "min_val": "lower bound",
    "max_val": "upper bound", "min_value": "older name of min_val",
    "max_value": "older name of max_val", "approximate": "'none' or 'tanh'",
    "p": "probability of a zero; the exponent of a norm or a margin", "k": "the additive constant",
    # losses
    "reduction": "'mean', 'sum', or 'none' for one number per sample",
    "size_average": "older form of reduction", "reduce": "older form of reduction",
    "weight": "a factor for each class or element", "pos_weight": "a factor of positive targets",
    "ignore_index": "the class that counts for nothing",
    "label_smoothing": "share of the target that is spread over all classes",
    "margin": "the distance that is wanted", "full": "adds what does not depend on the input",
    "log_input": "the input is the logarithm of the rate",
    "log_target": "targets are log probabilities", "blank": "the class of no label",
    "zero_infinity": "counts losses that are infinite as zero", "delta": "where the line begins",
    "swap": "takes the nearer of both distances to the negative",
    "distance_function": "distance of two tensors; the 2-norm unless given",
    "cutoffs": "where each cluster of classes begins", "div_value": "divides widths of clusters",
    "head_bias": "the head has a bias", "options": "accepted, changes no result",
    # tables
    "num_embeddings": "rows of the table", "embedding_dim": "size of a row",
    "padding_idx": "the row that has no gradient", "max_norm": "rows are cut to that norm",
    "scale_grad_by_freq": "divides a row's gradient by how often it is used",
    "sparse": "the gradient is a sparse tensor", "mode": "how to combine, or interpolate: a word",
    "include_last_offset": "the last offset is the end",
    # sequences
    "input_size": "size of an input vector", "hidden_size": "size of the state",
    "num_layers": "layers on top of each other", "batch_first": "the batch is dimension 0, not 1",
    "dropout": "probability of a zero between layers or in weights",
    "bidirectional": "goes both ways",
    "proj_size": "size of the projected state, 0 for none", "nonlinearity": "'tanh' or 'relu'",
    "num_chunks": "gates", "embed_dim": "size of a vector, all heads together",
    "num_heads": "number of heads", "nhead": "number of heads", "d_model": "size of a vector",
    "kdim": "size of a key; embed_dim unless given",
    "vdim": "size of a value; embed_dim unless given",
    "add_bias_kv": "adds a learned key and value", "add_zero_attn": "adds a key and value of zeros",
    "dim_feedforward": "width of the feed-forward block",
    "activation": "'relu', 'gelu' or a function", "layer_norm_eps": "eps of the norms",
    "norm_first": "normalises before each block instead of behind it",
    "num_encoder_layers": "layers of the encoder", "num_decoder_layers": "layers of the decoder",
    "custom_encoder": "an encoder of your own", "custom_decoder": "a decoder of your own",
    "encoder_layer": "what is copied for each layer",
    "decoder_layer": "what is copied for each layer",
    "norm": "a module behind the last layer", "enable_nested_tensor": "accepted, changes no result",
    "mask_check": "accepted, changes no result",
    # containers
    "modules": "modules to begin with", "parameters": "parameters to begin with",
    "values": "values to begin with", "module": "what is called",
    "device_ids": "devices to call it on", "output_device": "where results are gathered",
    # optimizers
    "params": "parameters, or dictionaries of them with options of their own",
    "lr": "how far a step goes", "weight_decay": "pulls parameters towards zero",
    "betas": "how slowly the means of gradients and of their squares change",
    "rho": "how slowly the mean of squares changes", "dampening": "lessens the newest gradient",
    "nesterov": "looks ahead by the momentum", "amsgrad": "keeps the largest mean of squares",
    "maximize": "goes up instead of down", "foreach": "accepted, changes no result",
    "fused": "accepted, changes no result", "capturable": "keeps the count of steps on the device",
    "differentiable": "not there yet",
    "centered": "divides by the variance, not by the mean square",
    "decoupled_weight_decay": "decays apart from the gradient, as AdamW does",
    "momentum_decay": "how the momentum changes", "lr_decay": "how lr shrinks with the steps",
    "initial_accumulator_value": "what sums of squares begin with",
    "t0": "the step from which on means are taken", "d": "bound on the size of a step",
    "beta2_decay": "how the mean of squares slows down",
    "etas": "factors after a sign that changed or stayed",
    "step_sizes": "least and greatest step", "ns_coefficients": "coefficients of the iteration",
    "ns_steps": "how many iterations", "adjust_lr_fn": "how lr follows from the matrix's sizes",
    "max_iter": "iterations of a step", "max_eval": "evaluations of a step",
    "tolerance_grad": "ends where gradients are smaller", "history_size": "updates to remember",
    "tolerance_change": "ends where changes are smaller",
    "line_search_fn": "None or 'strong_wolfe'",
    "defaults": "options of groups that do not say them",
    # schedules
    "optimizer": "whose lr it sets", "last_epoch": "the epoch to go on from; -1 begins",
    "gamma": "the factor", "factor": "the factor", "step_size": "epochs between two changes",
    "milestones": "epochs of the changes", "lr_lambda": "function of the epoch: a factor of lr",
    "total_iters": "epochs until it ends", "start_factor": "the first factor",
    "end_factor": "the last factor", "power": "exponent of the curve",
    "T_max": "epochs from the highest to the lowest", "eta_min": "the lowest lr",
    "T_0": "epochs of the first cycle", "T_mult": "each cycle is longer by this factor",
    "base_lr": "the lowest lr", "max_lr": "the highest lr", "step_size_up": "steps upwards",
    "step_size_down": "steps downwards", "scale_fn": "function that shrinks the cycles",
    "scale_mode": "'cycle' or 'iterations': what scale_fn is given",
    "cycle_momentum": "moves the momentum the other way", "base_momentum": "its lowest value",
    "max_momentum": "its highest value", "total_steps": "steps of the whole cycle",
    "epochs": "epochs of the whole cycle", "steps_per_epoch": "steps of one of them",
    "pct_start": "share of the cycle that goes upwards", "anneal_strategy": "'cos' or 'linear'",
    "div_factor": "max_lr over the first lr", "final_div_factor": "the first lr over the last",
    "three_phase": "goes down to the first lr before it ends",
    "schedulers": "schedules, one after the other or together",
    "patience": "epochs without progress before a change", "cooldown": "epochs of rest behind it",
    "threshold_mode": "'rel' or 'abs': how the threshold counts", "min_lr": "the lowest lr",
}  # fmt: skip


def arguments(cls: type[Any]) -> str:
    """The parameters of a class's constructor, one a line."""
    lines = []
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in MEANINGS:
            empty = parameter.default is parameter.empty
            given = "" if empty else f" ({parameter.default!r} unless given)"
            text = f"{name}: {MEANINGS[name]}{given}"
            lines.append(textwrap.indent(textwrap.fill(text, 88, subsequent_indent="    "), "    "))
    return "\n".join(["\n\nArguments:", *lines]) if lines else ""


class _Text:
    """A class's text, with its arguments."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __get__(self, instance: Any, owner: type[Any]) -> str:
        return inspect.cleandoc(self._text) + arguments(owner)


def describe(*classes: Any) -> None:
    """Adds the arguments to the texts of classes."""
    for cls in classes:
        if isinstance(cls, type) and type(cls.__dict__.get("__doc__")) is str:
            cls.__doc__ = _Text(cls.__doc__)  # type: ignore[assignment]
