"""Pictures as sequences of patches: vision transformers."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import tenon
from tenon import Tensor, nn
from tenon.vision.models._weights import load_into, register
from tenon.vision.ops.misc import MLP, Conv2dNormActivation

__all__ = ["VisionTransformer", "vit_b_16", "vit_b_32", "vit_h_14", "vit_l_16", "vit_l_32"]

_NORM = partial(nn.LayerNorm, eps=1e-6)


class ConvStemConfig(NamedTuple):
    """One convolution in front of the patches."""

    out_channels: int
    kernel_size: int
    stride: int
    norm_layer: Callable[..., nn.Module] = nn.BatchNorm2d
    activation_layer: Callable[..., nn.Module] = nn.ReLU


class MLPBlock(MLP):
    """The two linear layers of a block."""

    def __init__(self, in_dim: int, mlp_dim: int, dropout: float) -> None:
        super().__init__(
            in_dim, [mlp_dim, in_dim], activation_layer=nn.GELU, inplace=None, dropout=dropout
        )
        for m in self.modules():
            if isinstance(m, nn.Linear):
                nn.init.xavier_uniform_(m.weight)
                nn.init.normal_(m.bias, std=1e-6)


class EncoderBlock(nn.Module):
    """Attention, then linear layers, both behind a norm and beside a shortcut."""

    def __init__(
        self,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = _NORM,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = norm_layer(hidden_dim)
        self.self_attention = nn.MultiheadAttention(
            hidden_dim, num_heads, dropout=attention_dropout, batch_first=True
        )
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLPBlock(hidden_dim, mlp_dim, dropout)

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 3:
            raise AssertionError(
                f"Expected (batch_size, seq_length, hidden_dim) got {tuple(input.shape)}"
            )
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    """Blocks, after a learned position is added."""

    def __init__(
        self,
        seq_length: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float,
        attention_dropout: float,
        norm_layer: Callable[..., nn.Module] = _NORM,
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(tenon.empty(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        layers = OrderedDict()
        for i in range(num_layers):
            layers[f"encoder_layer_{i}"] = EncoderBlock(
                num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer
            )
        self.layers = nn.Sequential(layers)
        self.ln = norm_layer(hidden_dim)

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 3:
            raise AssertionError(
                f"Expected (batch_size, seq_length, hidden_dim) got {tuple(input.shape)}"
            )
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


def _stem(configs: list[ConvStemConfig], hidden_dim: int) -> nn.Sequential:
    """The convolutions in the place of the one that cuts patches."""
    made = nn.Sequential()
    channels = 3
    for i, config in enumerate(configs):
        made.add_module(
            f"conv_bn_relu_{i}",
            Conv2dNormActivation(
                channels, config.out_channels, config.kernel_size, config.stride,
                norm_layer=config.norm_layer, activation_layer=config.activation_layer,
            ),
        )  # fmt: skip
        channels = config.out_channels
    made.add_module("conv_last", nn.Conv2d(channels, hidden_dim, kernel_size=1))
    return made


class VisionTransformer(nn.Module):
    """Patches, a class token, an encoder and a head."""

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        mlp_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        num_classes: int = 1000,
        representation_size: int | None = None,
        norm_layer: Callable[..., nn.Module] = _NORM,
        conv_stem_configs: list[ConvStemConfig] | None = None,
    ) -> None:
        super().__init__()
        if image_size % patch_size:
            raise AssertionError("Input shape indivisible by patch size!")
        self.image_size = image_size
        self.patch_size = patch_size
        self.hidden_dim = hidden_dim
        self.mlp_dim = mlp_dim
        self.attention_dropout = attention_dropout
        self.dropout = dropout
        self.num_classes = num_classes
        self.representation_size = representation_size
        self.norm_layer = norm_layer
        self.conv_proj = (
            nn.Conv2d(3, hidden_dim, patch_size, patch_size)
            if conv_stem_configs is None
            else _stem(conv_stem_configs, hidden_dim)
        )
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(tenon.zeros(1, 1, hidden_dim))
        self.encoder = Encoder(
            self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout,
            attention_dropout, norm_layer,
        )  # fmt: skip
        heads: OrderedDict[str, nn.Module] = OrderedDict()
        if representation_size is None:
            heads["head"] = nn.Linear(hidden_dim, num_classes)
        else:
            heads["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            heads["act"] = nn.Tanh()
            heads["head"] = nn.Linear(representation_size, num_classes)
        self.heads = nn.Sequential(heads)
        if isinstance(self.conv_proj, nn.Conv2d):
            nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / (3 * patch_size**2)))
            nn.init.zeros_(self.conv_proj.bias)
        else:
            last = self.conv_proj.conv_last
            nn.init.normal_(last.weight, mean=0.0, std=math.sqrt(2.0 / last.out_channels))
            nn.init.zeros_(last.bias)
        if representation_size is not None:
            nn.init.trunc_normal_(self.heads.pre_logits.weight, std=math.sqrt(1 / hidden_dim))
            nn.init.zeros_(self.heads.pre_logits.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def _process_input(self, x: Tensor) -> Tensor:
        """(batch, patches, hidden)."""
        n, _, h, w = x.shape
        for name, size in (("height", h), ("width", w)):
            if size != self.image_size:
                raise AssertionError(
                    f"Wrong image {name}! Expected {self.image_size} but got {size}!"
                )
        return self.conv_proj(x).reshape(n, self.hidden_dim, -1).permute(0, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self._process_input(x)
        x = tenon.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])


def _builder(name: str, patch: int, layers: int, heads: int, hidden: int, mlp: int) -> Any:
    def build(
        *, weights: Any = None, progress: bool = True, pretrained: Any = None, **kwargs: Any
    ) -> VisionTransformer:
        del progress
        size = kwargs.pop("image_size", 224)
        model = VisionTransformer(size, patch, layers, heads, hidden, mlp, **kwargs)
        return load_into(model, name, weights, pretrained)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"A vision transformer with patches of {patch} and {layers} layers."
    return register(build)


vit_b_16 = _builder("vit_b_16", 16, 12, 12, 768, 3072)
vit_b_32 = _builder("vit_b_32", 32, 12, 12, 768, 3072)
vit_l_16 = _builder("vit_l_16", 16, 24, 16, 1024, 4096)
vit_l_32 = _builder("vit_l_32", 32, 24, 16, 1024, 4096)
vit_h_14 = _builder("vit_h_14", 14, 32, 16, 1280, 5120)
