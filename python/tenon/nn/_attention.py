"""Attention: the operator with PyTorch's arguments, and the multi-head form around it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import tenon
from tenon import Tensor
from tenon._C import _nn
from tenon._tape import overridable

# What attends instead while a sequence is cut among processes (context_parallel).
_of_parts: Callable[..., Tensor] | None = None


def _attend(*args: Any, **kwargs: Any) -> Tensor:
    return (_of_parts or _nn.scaled_dot_product_attention)(*args, **kwargs)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value.

    Shapes: query (..., L, E), key (..., S, E), value (..., S, V) to (..., L, V); the mask
        broadcasts to (..., L, S).

    >>> F.scaled_dot_product_attention(*[tn.rand(2, 4, 5, 8)] * 3, is_causal=True).shape
    tenon.Size([2, 4, 5, 8])
    """
    return _attend(
        query,
        key,
        value,
        attn_mask,
        dropout_p,
        is_causal,
        scale=scale,
        enable_gqa=enable_gqa,
    )


def _as_float_mask(mask: Tensor | None, name: str, dtype: Any) -> Tensor | None:
    """A bool mask as numbers to add: -inf where it is True."""
    if mask is None:
        return None
    if mask.dtype == tenon.bool:
        return tenon.zeros_like(mask, dtype=dtype).masked_fill_(mask, float("-inf"))
    if not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    return mask


def _check_dims(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> None:
    """Everything belongs to one sequence or to a batch of them; masks would be broadcast else."""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D "
            "query tensor"
        )
    which, ndim = ("batched", 3) if query.dim() == 3 else ("unbatched", 2)
    whose = f"For {which} ({ndim}-D) `query`, expected"
    if key.dim() != ndim or value.dim() != ndim:
        raise AssertionError(
            f"{whose} `key` and `value` to be {ndim}-D but found {key.dim()}-D and "
            f"{value.dim()}-D tensors respectively"
        )
    if key_padding_mask is not None and key_padding_mask.dim() != ndim - 1:
        raise AssertionError(
            f"{whose} `key_padding_mask` to be `None` or {ndim - 1}-D but found "
            f"{key_padding_mask.dim()}-D tensor instead"
        )
    if attn_mask is None:
        return
    if attn_mask.dim() not in (2, 3):
        raise AssertionError(
            f"{whose} `attn_mask` to be `None`, 2-D or 3-D but found {attn_mask.dim()}-D tensor "
            "instead"
        )
    expected = (num_heads, query.shape[0], key.shape[0])
    if ndim == 2 and attn_mask.dim() == 3 and tuple(attn_mask.shape) != expected:
        raise AssertionError(
            f"Expected `attn_mask` shape to be {expected} but got {attn_mask.shape}"
        )


def _check_sizes(
    keys: Tensor,
    values: Tensor,
    heads: int,
    length: int,
    padding: Tensor | None,
    mask: Tensor | None,
    separate: bool,
) -> None:
    """Keys, values and masks have the sizes of one another, (length, batch, width)."""
    source, batch = keys.shape[:2]
    if separate and keys.shape[:2] != values.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {keys.shape[:2]} do not match value's "
            f"{values.shape[:2]}"
        )
    if not separate and keys.shape != values.shape:
        raise AssertionError(f"key shape {keys.shape} does not match value shape {values.shape}")
    if mask is not None:
        expected = (length, source) if mask.dim() == 2 else (batch * heads, length, source)
        if tuple(mask.shape) != expected:
            raise RuntimeError(
                f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be "
                f"{expected}."
            )
    if padding is not None and tuple(padding.shape) != (batch, source):
        raise AssertionError(
            f"expecting key_padding_mask shape of {(batch, source)}, but got {padding.shape}"
        )


def _grown(mask: Tensor | None) -> Tensor | None:
    """A mask with one more key, which everybody may look at."""
    return None if mask is None else _nn.pad(mask, (0, 1))


def _project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weights: tuple[Tensor, Tensor, Tensor] | Tensor,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The three input projections; one product where inputs and weights allow it."""
    if isinstance(weights, Tensor):
        if query is key and key is value:
            q, k, v = _nn.linear(query, weights, bias).chunk(3, -1)
            return q, k, v
        weights = weights.chunk(3)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = (_nn.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases))
    return q, k, v


def _check_added(
    bias_k: Tensor | None, bias_v: Tensor | None, static_k: Tensor | None, static_v: Tensor | None,
    heads: int, head: int,
) -> None:  # fmt: skip
    """Checks the keys and values that stand behind the given ones, or in their place."""
    if (bias_k is None) != (bias_v is None):
        given, absent = ("bias_v", "bias_k") if bias_k is None else ("bias_k", "bias_v")
        raise AssertionError(f"{given} is set but {absent} is None")
    for name, fixed in (("key", static_k), ("value", static_v)):
        if fixed is None:
            continue
        if bias_k is not None:
            raise AssertionError(f"bias cannot be added to static {name}.")
        for dim, size in ((0, heads), (2, head)):
            if fixed.size(dim) != size:
                raise AssertionError(
                    f"expecting static_{name[0]}.size({dim}) of {size}, but got {fixed.size(dim)}"
                )


def _shares(q: Tensor, k: Tensor, mask: Tensor | None, drop: float) -> Tensor:
    """How much each position takes of each other one."""
    scores = (q * math.sqrt(1.0 / q.shape[-1])) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask
    shares = scores.softmax(-1)
    return tenon.dropout(shares, drop, True) if drop > 0.0 else shares


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention of (length, batch, width) or (length, width) inputs.

    Shapes: query (L, N, E), key and value (S, N, E); gives (L, N, E) and the weights (N, L, S).

    >>> result, weights = F.multi_head_attention_forward(*[tn.rand(5, 2, 8)] * 3, 8, 2,
    ...     tn.rand(24, 8), None, None, None, False, 0.0, tn.eye(8), None
    ... )
    >>> result.shape
    tenon.Size([5, 2, 8])
    """
    _check_dims(query, key, value, key_padding_mask, attn_mask, num_heads)
    batched = query.dim() == 3
    if not batched:
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise AssertionError(
            f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}"
        )
    head = width // num_heads
    if head * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module "
            "method `generate_square_subsequent_mask` to create this mask."
        )
    _check_sizes(
        key, value, num_heads, length, key_padding_mask, attn_mask, use_separate_proj_weight
    )
    if key_padding_mask is not None and attn_mask is not None:
        if key_padding_mask.dtype != attn_mask.dtype:
            warnings.warn(
                "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same "
                "type for both instead.",
                stacklevel=overridable.users_level(),
            )
    padding = _as_float_mask(key_padding_mask, "key_padding_mask", query.dtype)
    use_causal = is_causal and padding is None and not need_weights
    mask = None if use_causal else _as_float_mask(attn_mask, "attn_mask", query.dtype)
    weights = (
        (q_proj_weight, k_proj_weight, v_proj_weight)
        if use_separate_proj_weight
        else in_proj_weight
    )
    q, k, v = _project(query, key, value, weights, in_proj_bias)
    _check_added(bias_k, bias_v, static_k, static_v, batch * num_heads, head)
    if bias_k is not None and bias_v is not None:
        k = tenon.cat([k, bias_k.repeat(1, batch, 1)])
        v = tenon.cat([v, bias_v.repeat(1, batch, 1)])
        mask, padding = _grown(mask), _grown(padding)
    # From here on everything is (batch, heads, length, head).
    q = q.reshape(length, batch, num_heads, head).permute(1, 2, 0, 3)
    k, v = (
        x.reshape(x.shape[0], batch, num_heads, head).permute(1, 2, 0, 3)
        if fixed is None
        else fixed.view(batch, num_heads, fixed.shape[1], head)
        for x, fixed in ((k, static_k), (v, static_v))
    )
    if add_zero_attn:
        zeros = k.new_zeros((batch, num_heads, 1, head))
        k, v = tenon.cat([k, zeros], 2), tenon.cat([v, zeros], 2)
        mask, padding = _grown(mask), _grown(padding)
    if mask is not None and mask.dim() == 3:
        mask = mask.view(batch, num_heads, *mask.shape[1:])
    if padding is not None:
        padding = padding.view(batch, 1, 1, padding.shape[-1])
        mask = padding if mask is None else mask + padding
    drop = dropout_p if training else 0.0
    if need_weights:
        shares = _shares(q, k, mask, drop)
        attended = shares @ v
    else:
        shares = None
        attended = _attend(q, k, v, mask, drop, use_causal)
    attended = attended.permute(2, 0, 1, 3).reshape(length * batch, width)
    result = _nn.linear(attended, out_proj_weight, out_proj_bias)
    result = result.view(length, batch, out_proj_weight.shape[0])
    if shares is not None and average_attn_weights:
        shares = shares.mean(1)
    if not batched:
        result = result.squeeze(1)
        shares = shares.squeeze(0) if shares is not None else None
    return result, shares


overridable.make_overridable(globals())
