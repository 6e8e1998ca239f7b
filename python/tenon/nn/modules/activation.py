"""Activation functions as modules, and multi-head attention."""

from __future__ import annotations

import warnings
from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.nn import init
from tenon.nn.modules._options import options
from tenon.nn.modules.linear import NonDynamicallyQuantizableLinear
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter


@options
class _Inplace(Module):
    """A function without other options that may write its input."""

    inplace: bool = False


class ReLU(_Inplace):
    """max(0, input).

    Shapes: any.

    >>> nn.ReLU()(tn.tensor([-2.0, 3.0]))
    tensor([0., 3.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class SELU(_Inplace):
    """The self-normalising form of ELU.

    Shapes: any.

    >>> nn.SELU()(tn.tensor([0.0]))
    tensor([0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class SiLU(_Inplace):
    """input * sigmoid(input).

    Shapes: any.

    >>> nn.SiLU()(tn.tensor([0.0]))
    tensor([0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """input * tanh(softplus(input)).

    Shapes: any.

    >>> nn.Mish()(tn.tensor([0.0, 100.0]))
    tensor([  0., 100.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class Hardswish(_Inplace):
    """input * hardsigmoid(input).

    Shapes: any.

    >>> nn.Hardswish()(tn.tensor([-4.0, 0.0, 4.0]))
    tensor([-0., 0., 4.])
    """

    def extra_repr(self) -> str:
        return ""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


class Hardsigmoid(_Inplace):
    """(input + 3) / 6 cut to [0, 1].

    Shapes: any.

    >>> nn.Hardsigmoid()(tn.tensor([-4.0, 0.0, 4.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """

    def extra_repr(self) -> str:
        return ""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Sigmoid(Module):
    """1 / (1 + exp(-input)).

    Shapes: any.

    >>> nn.Sigmoid()(tn.tensor([0.0]))
    tensor([0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return tenon.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent.

    Shapes: any.

    >>> nn.Tanh()(tn.tensor([0.0]))
    tensor([0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return tenon.tanh(input)


class LogSigmoid(Module):
    """log(sigmoid(input)).

    Shapes: any.

    >>> nn.LogSigmoid()(tn.tensor([0.0]))
    tensor([-0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """input / (1 + |input|).

    Shapes: any.

    >>> nn.Softsign()(tn.tensor([0.0, 1.0]))
    tensor([0.0000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """input - tanh(input).

    Shapes: any.

    >>> nn.Tanhshrink()(tn.tensor([0.0]))
    tensor([0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


@options
class _WithAlpha(Module):
    alpha: float = 1.0
    inplace: bool = False


class ELU(_WithAlpha):
    """input where it is positive, else alpha * (exp(input) - 1).

    Shapes: any.

    >>> nn.ELU()(tn.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_WithAlpha):
    """ELU of input / alpha, times alpha.

    Shapes: any.

    >>> nn.CELU()(tn.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


@options
class LeakyReLU(Module):
    """input where it is positive, else negative_slope * input.

    Shapes: any.

    >>> nn.LeakyReLU(0.5)(tn.tensor([-2.0, 3.0]))
    tensor([-1.,  3.])
    """

    __constants__ = ["inplace", "negative_slope"]

    negative_slope: float = 0.01
    inplace: bool = False

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)


@options
class Threshold(Module):
    """input where it is above the threshold, else value.

    Shapes: any.

    >>> nn.Threshold(1.0, 20.0)(tn.tensor([0.5, 3.0]))
    tensor([20.,  3.])
    """

    threshold: float
    value: float
    inplace: bool = False

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)


class Hardtanh(Module):
    """input cut to [min_val, max_val].

    Shapes: any.

    >>> nn.Hardtanh()(tn.tensor([-4.0, 0.5, 4.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for old, new in (("min_value", "min_val"), ("max_value", "max_val")):
            if (min_value if old == "min_value" else max_value) is not None:
                warnings.warn(
                    f"keyword argument `{old}` is deprecated and rename to `{new}`",
                    FutureWarning,
                    stacklevel=2,
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(
                f"max_val must be larger than min_val, but got {self.max_val} and {self.min_val}"
            )

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        mark = ", inplace=True" if self.inplace else ""
        return f"min_val={self.min_val}, max_val={self.max_val}{mark}"


class ReLU6(Hardtanh):
    """input cut to [0, 6].

    Shapes: any.

    >>> nn.ReLU6()(tn.tensor([-2.0, 3.0, 9.0]))
    tensor([0., 3., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


@options
class GLU(Module):
    """The first half of input times the sigmoid of the second.

    Shapes: an even size along dim, half of which is left.

    >>> nn.GLU()(tn.zeros(2, 6)).shape
    tenon.Size([2, 3])
    """

    dim: int = -1

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)


@options
class GELU(Module):
    """input times the normal distribution function of input; "tanh" for the approximation.

    Shapes: any.

    >>> nn.GELU()(tn.tensor([0.0, 100.0]))
    tensor([  0., 100.])
    """

    approximate: str = "none"

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)


@options
class Softplus(Module):
    """log(1 + exp(beta * input)) / beta; linear above the threshold.

    Shapes: any.

    >>> nn.Softplus()(tn.tensor([0.0]))
    tensor([0.6931])
    """

    beta: float = 1.0
    threshold: float = 20.0

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


@options
class _Shrink(Module):
    lambd: float = 0.5

    def extra_repr(self) -> str:
        return str(self.lambd)


class Softshrink(_Shrink):
    """input moved towards zero by lambd.

    Shapes: any.

    >>> nn.Softshrink()(tn.tensor([0.25, 1.0]))
    tensor([0.0000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Hardshrink(_Shrink):
    """input where |input| > lambd, else 0.

    Shapes: any.

    >>> nn.Hardshrink()(tn.tensor([0.25, 1.0]))
    tensor([0., 1.])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class PReLU(Module):
    """LeakyReLU with a trained slope, one for all channels or one for each.

    Shapes: (N, C, *), or any with one parameter.

    >>> nn.PReLU(init=0.5)(tn.tensor([-2.0, 3.0])).detach()
    tensor([-1.,  3.])
    """

    __constants__ = ["num_parameters"]

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(tenon.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


@options
class _AlongDim(Module):
    dim: int | None = None


class Softmax(_AlongDim):
    """exp(input), normalised along dim.

    Shapes: any.

    >>> nn.Softmax(dim=1)(tn.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class LogSoftmax(_AlongDim):
    """The logarithm of Softmax.

    Shapes: any.

    >>> nn.LogSoftmax(dim=1)(tn.zeros(1, 2))
    tensor([[-0.6931, -0.6931]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmin(_AlongDim):
    """Softmax of -input.

    Shapes: any.

    >>> nn.Softmin(dim=1)(tn.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W).

    Shapes: (N, C, H, W) or (C, H, W).

    >>> nn.Softmax2d()(tn.zeros(2, 1, 1)).flatten()
    tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3)


class MultiheadAttention(Module):
    """Attention of several heads with input and output projections.

    Shapes: query (L, N, embed_dim), key and value (S, N, ...), or N first with batch_first; gives
        (L, N, embed_dim) and the weights (N, L, S).

    >>> nn.MultiheadAttention(8, 2, batch_first=True)(*[tn.rand(4, 5, 8)] * 3)[0].shape
    tenon.Size([4, 5, 8])
    """

    __constants__ = ["batch_first"]
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0,"
                f" got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = kdim if kdim is not None else embed_dim
        self.vdim = vdim if vdim is not None else embed_dim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def empty(*shape: int) -> Parameter:
            return Parameter(tenon.empty(shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = empty(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = empty(embed_dim, embed_dim)
            self.k_proj_weight = empty(embed_dim, self.kdim)
            self.v_proj_weight = empty(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        if bias:
            self.in_proj_bias = empty(3 * embed_dim)
        else:
            self.register_parameter("in_proj_bias", None)
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        if add_bias_kv:
            self.bias_k = empty(1, 1, embed_dim)
            self.bias_v = empty(1, 1, embed_dim)
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            init.xavier_uniform_(self.q_proj_weight)
            init.xavier_uniform_(self.k_proj_weight)
            init.xavier_uniform_(self.v_proj_weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
        if self.bias_v is not None:
            init.xavier_normal_(self.bias_v)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        swap = self.batch_first and query.dim() == 3
        if swap:
            # Equal inputs stay one object, so that they are projected in one product.
            same_key, same_value = key is query, value is key
            query = query.transpose(1, 0)
            key = query if same_key else key.transpose(1, 0)
            value = key if same_value else value.transpose(1, 0)
        result, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (result.transpose(1, 0) if swap else result), weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Both masks added up for each head, and 2; the second alone, and 1; or None twice.

        Shapes: attn_mask (length, length) or (batch * heads, length, length), key_padding_mask
        (batch, length), query (batch, length, embed_dim); the sum (batch, heads, length, length).
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        shape = (1, 1) if attn_mask.dim() == 2 else (batch, -1)
        merged = attn_mask.reshape(*shape, length, length)
        merged = merged.expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            padding = key_padding_mask.reshape(batch, 1, 1, length)
            merged = merged + padding.expand(-1, self.num_heads, -1, -1)
        return merged, 2


@options
class RReLU(Module):
    """Leaky ReLU with slopes drawn anew for every element while training.

    Shapes: any.

    >>> nn.RReLU().eval()(tn.tensor([3.0]))
    tensor([3.])
    """

    lower: float = 1.0 / 8
    upper: float = 1.0 / 3
    inplace: bool = False

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)
