"""Attention over a sequence that is cut among processes against the same in one process;
`test_sharding.py` starts it."""

import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from expected import expect
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import (
    _context_parallel_shard,
    _ContextParallel,
    _cp_options,
    _HeadTailLoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
    context_parallel_unshard,
    set_rotate_method,
)
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

dist.init_process_group(sys.argv[1])
RANK, SIZE = dist.get_rank(), dist.get_world_size()
MESH = init_device_mesh("cpu", (SIZE,))
TOKENS = 4 * SIZE


def numbers(*shape: int) -> torch.Tensor:
    values = np.random.default_rng(sum(shape) + 7 * len(shape)).standard_normal(shape)
    return torch.from_numpy(values)


def close(got: torch.Tensor, want: torch.Tensor, tol: float = 1e-9) -> None:
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), tol, tol * 1e-2)


def inputs(heads: int = 4, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    return [numbers(2, n, TOKENS, d).to(dtype) for n, d in ((4, 6), (heads, 6), (heads, 5))]


def compare(given: list[torch.Tensor], tol: float, **options) -> None:
    """Results and gradients of the parts are parts of those of the whole."""
    plain = [t.clone().requires_grad_() for t in given]
    want = F.scaled_dot_product_attention(*plain, **options)
    weights = torch.linspace(1, 2, want.numel(), dtype=torch.float64).view(want.shape)
    (want * weights).sum().backward()
    cut = [t.clone() for t in given]
    with context_parallel(MESH, buffers=[*cut, weights], buffer_seq_dims=[2] * 4):
        for t, whole in zip(cut, given):
            assert t.shape[2] * SIZE == whole.shape[2] and t.is_contiguous()
            t.requires_grad_()
        got = F.scaled_dot_product_attention(*cut, **options)
        (got * weights).sum().backward()
        found = [got, *(t.grad for t in cut)]
        wholes = context_parallel_unshard(MESH, found, [2] * 4)
        for t in cut:
            t.requires_grad_(False)
    for one, other in zip(wholes, (want, *(t.grad for t in plain))):
        assert one.dtype == other.dtype
        close(one.double(), other.double(), tol)
    for t, whole in zip(cut, given):
        assert torch.equal(t, whole)


def check_attention_of_a_sequence_that_is_cut() -> None:
    for method in ("allgather", "alltoall"):
        set_rotate_method(method)
        for balances in (True, False):
            _cp_options.enable_load_balance = balances
            for causal in (True, False):
                compare(inputs(), 1e-9, is_causal=causal)
                compare(inputs(), 1e-9, is_causal=causal, scale=0.7)
                compare(inputs(2), 1e-9, is_causal=causal, enable_gqa=True)
                compare(inputs(dtype=torch.bfloat16), 0.3, is_causal=causal)
    _cp_options.enable_load_balance = True
    set_rotate_method("allgather")


def check_layers_of_parts() -> None:
    """Layers that call attention by themselves: one optimizer step is that of one process."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True).double()
    x, y = numbers(2, TOKENS, 8), numbers(2, TOKENS, 8)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(TOKENS, dtype=torch.float64)
    want = layer(x, src_mask=mask, is_causal=True)
    (want - y).square().sum().backward()
    slopes = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    with context_parallel(MESH, buffers=[x, y], buffer_seq_dims=[1, 1], no_restore_buffers={y}):
        part = mask[: TOKENS // SIZE, : TOKENS // SIZE]
        got = layer(x, src_mask=part, is_causal=True)
        (got - y).square().sum().backward()
        close(context_parallel_unshard(MESH, [got], [1])[0], want)
    assert x.shape[1] == TOKENS and y.shape[1] == TOKENS // SIZE
    for p, slope in zip(layer.parameters(), slopes):
        dist.all_reduce(p.grad)
        close(p.grad, slope)


class Attends(torch.nn.Module):
    def forward(self, query, key, value, **options):
        return F.scaled_dot_product_attention(query, key, value, **options)


class Flex(torch.nn.Module):
    def forward(self, query, key, value, **options):
        return flex_attention(query, key, value, **options)


def check_modules_of_parts() -> None:
    balancer = _HeadTailLoadBalancer(TOKENS, SIZE, "cpu")
    per_document = [[2 * SIZE, 2 * SIZE], [4 * SIZE]]
    kinds = _ContextParallel.AttentionType
    for orders in (None, balancer, _PerDocumentHeadTailLoadBalancer(per_document, SIZE, "cpu")):
        given = inputs()
        cut = _context_parallel_shard(MESH, given, [2, 2, 2], orders)
        if not isinstance(orders, _PerDocumentHeadTailLoadBalancer):
            want = F.scaled_dot_product_attention(*given, is_causal=True)
            module = parallelize_module(Attends(), MESH, _ContextParallel(2, kinds.SDPA))
            got = module(*cut, is_causal=True)
            close(context_parallel_unshard(MESH, [got], [2], orders)[0], want)
        documents = torch.tensor([[n for n, size in enumerate(row) for _ in range(size)]
                                  for row in per_document])  # fmt: skip

        def sees(b, h, q_idx, kv_idx, documents=documents):
            return (documents[b, q_idx] == documents[b, kv_idx]) & (q_idx >= kv_idx)

        mask = create_block_mask(sees, 2, 1, TOKENS, TOKENS, "cpu", BLOCK_SIZE=2)
        want = flex_attention(*given, block_mask=mask)
        module = parallelize_module(Flex(), MESH, _ContextParallel(2, kinds.FLEX))
        (part,) = _context_parallel_shard(MESH, [mask], [2], orders)
        got = module(*cut, block_mask=part)
        close(context_parallel_unshard(MESH, [got], [2], orders)[0], want)
    found = _context_parallel_shard(MESH, {"x": torch.arange(TOKENS)}, {"x": 0}, balancer)
    order = balancer._generate_indices()[0].chunk(SIZE)[RANK]
    assert found["x"].tolist() == order.tolist()
    (back,) = context_parallel_unshard(MESH, [found["x"]], [0], balancer)
    assert back.tolist() == list(range(TOKENS))
    _cp_options.enable_load_balance = True


def check_mistakes() -> None:
    def enter(*buffers, dims, **options):
        with context_parallel(MESH, buffers=list(buffers), buffer_seq_dims=dims, **options):
            pass

    x = torch.ones(2, TOKENS)
    expect(NotImplementedError, "using around", lambda: set_rotate_method("around"))
    expect(ValueError, "same number of elements", lambda: enter(x, dims=[1, 1]))
    expect(ValueError, "must be a subset", lambda: enter(x, dims=[1], no_restore_buffers={x + 1}))
    odd = torch.ones(2, SIZE)
    expect(ValueError, f"{SIZE} tokens is not cut", lambda: enter(odd, dims=[1]))
    short = torch.ones(2, 2 * TOKENS)
    given = [torch.ones(1, 1, 2, 4)] * 3
    with context_parallel(MESH):
        mask = torch.ones(2, 2, dtype=torch.bool)
        expect(
            NotImplementedError,
            "attn_mask is not there",
            lambda: F.scaled_dot_product_attention(*given, attn_mask=mask),
        )
    assert x.shape == (2, TOKENS) and short.shape == (2, 2 * TOKENS)
    assert F.scaled_dot_product_attention(*given, attn_mask=mask).shape == (1, 1, 2, 4)


for name, check in list(globals().items()):
    if name.startswith("check_") and name[6:].startswith(tuple(sys.argv[2:]) or ""):
        check()
dist.destroy_process_group()
print("ok\n", end="")
