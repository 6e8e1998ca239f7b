"""What PyTorch's own texts show, where we once gave something else: a small case of each kind.

The expected values were worked out by hand or by NumPy.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
import tenon as tn
import tenon.nn.functional as F
from tenon import fx, nn
from tenon.autograd import functional
from tenon.autograd.graph import register_multi_grad_hook


@pytest.mark.parametrize("trained", [False, True])
def test_derivatives_with_a_graph_do_not_ask_for_inputs_that_require_one(trained: bool) -> None:
    x = tn.tensor([1.0, 2.0, 3.0], requires_grad=trained)
    v = tn.tensor([1.0, 0.5, 2.0])
    cube = lambda a: (a**3).sum()  # noqa: E731
    options: dict[str, Any] = {"create_graph": True}
    got = {
        "vjp": functional.vjp(lambda a: a**2, x, v, **options)[1],
        "jvp": functional.jvp(lambda a: a**2, x, v, **options)[1],
        "hvp": functional.hvp(cube, x, v, **options)[1],
        "vhp": functional.vhp(cube, x, v, **options)[1],
        "jacobian": functional.jacobian(lambda a: a**2, x, **options).diagonal() * v,
        "hessian": functional.hessian(cube, x, **options).diagonal() * v,
    }
    once, twice = [2.0, 2.0, 12.0], [6.0, 6.0, 36.0]
    for name, value in got.items():
        assert value.tolist() == (twice if "h" in name else once), name
        assert value.requires_grad, name
    if trained:  # and the graph leads to the inputs: d/dx of 2 x v
        assert tn.autograd.grad(got["vjp"].sum(), x)[0].tolist() == [2.0, 1.0, 4.0]


def test_gradients_of_convolutions_can_be_differentiated() -> None:
    weight = tn.arange(4.0).reshape(1, 1, 2, 2).requires_grad_()
    seed = tn.ones(1, 1, 2, 2)
    by_input = nn.grad.conv2d_input((1, 1, 3, 3), weight, seed)
    (got,) = tn.autograd.grad(by_input[0, 0, 1, 1], weight)
    assert got.flatten().tolist() == [1.0] * 4  # the middle sees every weight once
    x = tn.arange(9.0).reshape(1, 1, 3, 3)
    by_weight = nn.grad.conv2d_weight(x.requires_grad_(), (1, 1, 2, 2), seed)
    (got,) = tn.autograd.grad(by_weight[0, 0, 0, 0], x)
    assert got.flatten().tolist() == [1, 1, 0, 1, 1, 0, 0, 0, 0]
    assert not nn.grad.conv2d_weight(x.detach(), (1, 1, 2, 2), seed).requires_grad


def test_asarray_of_a_result_is_a_leaf() -> None:
    x = tn.ones(2, requires_grad=True)
    y = x + 2
    leaf = tn.asarray(y, requires_grad=False)
    assert leaf.is_leaf and not leaf.requires_grad and leaf.data_ptr() == y.data_ptr()
    assert tn.asarray(y).grad_fn is y.grad_fn and not tn.asarray([1.0]).requires_grad
    assert tn.asarray(y, requires_grad=True).grad_fn is y.grad_fn


def test_what_has_the_common_shape_is_not_expanded() -> None:
    x = tn.ones(2, 3, requires_grad=True) * 1
    row, same = tn.broadcast_tensors(tn.ones(3), x)
    assert same is x and row.shape == (2, 3) and row.stride() == (0, 1)
    assert tn.broadcast_tensors(x)[0] is x


def test_a_hook_on_several_gradients_waits_for_the_inputs_that_are_asked_for() -> None:
    a = tn.tensor([0.0, 1.0], requires_grad=True)
    b = tn.tensor([1.0], requires_grad=True)
    c = a * b
    seen: list[list[bool]] = []
    register_multi_grad_hook((a, b, c), lambda g: seen.append([x is not None for x in g]))
    c.sum().backward(inputs=(a,), retain_graph=True)
    c.sum().backward(retain_graph=True)
    tn.autograd.grad(c.sum(), b)
    assert seen == [[True, False, True], [True, True, True], [False, True, True]]


def test_autocast_to_a_dtype_that_is_none_of_its_own_is_off() -> None:
    x = tn.ones(2, 2)
    for dtype in (tn.float64, tn.float32, tn.int32):
        with pytest.warns(UserWarning, match="CPU autocast, but the target dtype is not supp"):
            region = tn.autocast("cpu", dtype=dtype)
        with region:
            assert (x @ x).dtype == tn.float32 and not tn.is_autocast_enabled("cpu")


def test_softmax_without_a_dimension_says_so() -> None:
    x = tn.tensor([[0.0, 0.0], [1.0, 1.0]])
    for name in ("softmax", "log_softmax", "softmin"):
        with pytest.warns(UserWarning, match=f"Implicit dimension choice for {name} has been"):
            got = getattr(F, name)(x)
        assert got.equal(getattr(F, name)(x, dim=1))
    with pytest.warns(UserWarning, match="for softmax") as seen:
        nn.Softmax()(x)
        F.softmax(x)
        F.upsample(tn.ones(1, 1, 2), scale_factor=2)
    assert [w.filename for w in seen] == [__file__] * 3


@pytest.mark.parametrize(
    ("q", "k", "padding", "mask", "error"),
    [
        ((3, 4), (3, 1, 4), None, None, "For unbatched .2-D. `query`, expected `key`"),
        ((3, 2, 4), (5, 4), None, None, "For batched .3-D. `query`, expected `key`"),
        ((3, 2, 4), (5, 2, 4), (5,), None, "expected `key_padding_mask` to be `None` or 2-D"),
        ((3, 2, 4), (5, 2, 4), (1, 5), None, "key_padding_mask shape of .2, 5., but got"),
        ((3, 2, 4), (5, 2, 4), None, (5,), "expected `attn_mask` to be `None`, 2-D or 3-D"),
        ((3, 2, 4), (5, 2, 4), None, (1, 5), "2D attn_mask is .*, but should be .3, 5."),
        ((3, 2, 4), (5, 2, 4), None, (2, 3, 5), "3D attn_mask is .*, but should be .4, 3, 5."),
        ((3, 4), (5, 4), None, (1, 3, 5), "Expected `attn_mask` shape to be .2, 3, 5."),
    ],
)
def test_attention_takes_masks_of_its_sizes_alone(
    q: Any, k: Any, padding: Any, mask: Any, error: str
) -> None:
    attention = nn.MultiheadAttention(4, 2)
    masks = {
        "key_padding_mask": None if padding is None else tn.zeros(padding),
        "attn_mask": None if mask is None else tn.zeros(mask),
    }
    with pytest.raises((AssertionError, RuntimeError), match=error):
        attention(tn.ones(q), tn.ones(k), tn.ones(k), **masks)


def encoder(**options: Any) -> Any:
    tn.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, **options)


def test_in_inference_an_encoder_leaves_zeros_behind_the_ends_of_sequences() -> None:
    x = tn.arange(24.0).sin().reshape(2, 3, 4)
    ends = tn.tensor([[False, False, False], [False, True, True]])
    model = encoder().eval()
    recorded = model(x, src_key_padding_mask=ends).detach()
    assert recorded[1, 1:].abs().min() > 0
    with tn.no_grad():
        got = model(x, src_key_padding_mask=ends)
        assert got[~ends].allclose(recorded[~ends], atol=1e-6) and (got[ends] == 0).all()
        # Not where a sequence has a hole, a mask stands beside, or it was not wanted.
        assert model(x, src_key_padding_mask=ends.flip(1)).abs().min() > 0
        assert model(x, tn.zeros(3, 3), ends).abs().min() > 0
        assert encoder(enable_nested_tensor=False).eval()(x, None, ends).abs().min() > 0
        tn.backends.mha.set_fastpath_enabled(False)
        assert model(x, src_key_padding_mask=ends).abs().min() > 0
        tn.backends.mha.set_fastpath_enabled(True)
        assert model.train()(x, src_key_padding_mask=ends).abs().min() > 0
    with pytest.warns(UserWarning, match="self_attn.batch_first was not True"):
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1)


class Labelled(tn.Tensor):
    pass


def test_a_parameter_of_a_class_of_its_own_keeps_it() -> None:
    data = tn.ones(2).as_subclass(Labelled)
    p = nn.Parameter(data)
    assert type(p) is Labelled and isinstance(p, nn.Parameter) and p.requires_grad
    assert not isinstance(data, nn.Parameter) and not isinstance(tn.ones(1), nn.Parameter)
    module = nn.Module()
    module.p = p
    assert [name for name, _ in module.named_parameters()] == ["p"]
    assert type(nn.Parameter(nn.Parameter(tn.ones(1)))) is nn.Parameter


def test_a_parameter_without_a_shape_has_none() -> None:
    lazy = nn.LazyLinear(3)
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized param"):
        _ = lazy.weight.shape
    lazy(tn.ones(1, 2))
    assert lazy.weight.shape == (3, 2)


def test_without_a_gpu_data_parallel_takes_any_ids() -> None:
    if tn.accelerator.is_available():
        pytest.skip("there is a GPU")
    net = nn.Linear(2, 1)
    x = tn.ones(3, 2)
    assert nn.DataParallel(net, device_ids=[0, 1])(x).equal(net(x))


def test_what_is_no_checkpoint_cannot_be_unpickled() -> None:
    with pytest.raises(pickle.UnpicklingError):
        tn.load(io.BytesIO(b"garbage"))


def test_arguments_of_a_node_change_by_assignment_only() -> None:
    graph = fx.symbolic_trace(lambda x: tn.cat([x, x], dim=0))
    node = list(graph.graph.nodes)[1]
    with pytest.raises(TypeError, match="'immutable_list' object does not support mutation"):
        node.args[0].append(1)
    with pytest.raises(TypeError, match="'immutable_dict' object does not support mutation"):
        node.kwargs["dim"] = 1
    node.kwargs = {"dim": 1}
    graph.recompile()
    assert graph(tn.ones(1, 2)).shape == (1, 4)
    assert type(pickle.loads(pickle.dumps(node.args[0][:0]))) is list


def test_traced_modules_say_what_they_take() -> None:
    assert "def forward(self, input : tenon.Tensor) -> tenon.Tensor:" in (
        fx.symbolic_trace(nn.ReLU()).code
    )
    assert "def forward(self, input):" in fx.symbolic_trace(nn.Sequential(nn.ReLU())).code


def test_numbers_are_no_data_of_a_tensor() -> None:
    for number in (2.5, 1j):
        with pytest.raises(TypeError, match="data must be a sequence"):
            tn.Tensor(number)
    assert tn.Tensor(2).shape == (2,) and tn.Tensor(np.array([2.5])).tolist() == [2.5]


def test_tensors_of_inference_have_no_version() -> None:
    with tn.inference_mode():
        x = tn.ones(1)
    with pytest.raises(RuntimeError, match="do not track version counter"):
        _ = x._version


def test_typed_storages_are_storages_and_properties_are_members() -> None:
    assert tn.is_storage(tn.TypedStorage(2)) and tn.is_storage(tn.ones(1).untyped_storage())
    assert tn.overrides.is_tensor_method_or_property(tn.Tensor.add)
    assert tn.overrides.is_tensor_method_or_property(tn.Tensor.shape.__get__)
    assert not tn.overrides.is_tensor_method_or_property(tn.add)


def test_upsample_names_its_successor() -> None:
    with pytest.warns(UserWarning, match="`nn.functional.upsample` is deprecated"):
        F.upsample(tn.ones(1, 1, 2), scale_factor=2)


def test_sparse_indices_may_be_of_any_integer_dtype_and_empty_ones_of_any() -> None:
    assert tn.sparse_coo_tensor(tn.empty(1, 0), [], [1]).shape == (1,)
    made = tn.sparse_coo_tensor(tn.tensor([[0, 2]], dtype=tn.int32), [1.0, 2.0], [3])
    assert made.to_dense().tolist() == [1, 0, 2]


def test_views_of_no_grad_mode_are_not_written_behind_the_graph() -> None:
    x = tn.ones(3, requires_grad=True)
    with tn.no_grad():
        whole, first = x.view(3), x[0]
        whole.mul_(2)
    writes = [
        lambda: whole.mul_(2),
        lambda: first.zero_(),
        lambda: first.copy_(tn.ones(())),
        lambda: whole.__setitem__(0, 5.0),
    ]
    for write in writes:
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being"):
            write()
    assert x.tolist() == [2.0] * 3
    plain = tn.ones(3)
    with tn.no_grad():
        part = plain[0]
    assert part.mul_(2).item() == 2.0 and x.detach()[0].mul_(2).item() == 4.0


def test_dual_tensors_show_their_tangent() -> None:
    with tn.autograd.forward_ad.dual_level():
        dual = tn.autograd.forward_ad.make_dual(tn.ones(2), tn.tensor([1.0, 2.0]))
        assert repr(dual) == "tensor([1., 1.], tangent=tensor([1., 2.]))"
        assert repr(tn.ones(1)) == "tensor([1.])"


def test_saved_tensors_may_be_written_where_that_is_allowed() -> None:
    a = tn.arange(3.0).requires_grad_()
    with tn.autograd.graph.allow_mutation_on_saved_tensors():
        b = a.clone()
        out = (b**2).sum()
        b.sin_()
        (got,) = tn.autograd.grad(out, a, create_graph=True)
        assert got.tolist() == [0.0, 2.0, 4.0]
        assert tn.autograd.grad(got.sum(), a)[0].tolist() == [2.0] * 3


def test_stances_decorate() -> None:
    stances: list[str] = []

    @tn.compiler.set_stance("force_eager")
    def inside() -> None:
        stances.append(tn.compiler._stance())

    inside()
    assert stances == ["force_eager"] and tn.compiler._stance() == "default"


def test_parametrizations_move_to_another_module() -> None:
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)
    nn.utils.parametrizations.weight_norm(a)
    assert nn.utils.parametrize.type_before_parametrizations(a) is nn.Linear
    assert nn.utils.parametrize.type_before_parametrizations(b) is nn.Linear
    got = nn.utils.parametrize.transfer_parametrizations_and_params(a, b)
    assert got is b and b.weight.equal(a.weight) and not b.bias.equal(a.bias)
    assert b.parametrizations.weight.original0 is a.parametrizations.weight.original0


def test_small_helpers() -> None:
    assert tn.GradScaler is tn.amp.GradScaler
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Conv3d(2, 3, 3), nn.Linear(2, 2))
    nn.utils.convert_conv2d_weight_memory_format(net, tn.channels_last)
    assert net[0].weight.is_contiguous(memory_format=tn.channels_last)
    assert net[1].weight.is_contiguous() and isinstance(net[0].weight, nn.Parameter)
    state = nn.ModuleDict({"module": nn.Linear(2, 1)}).state_dict()
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert sorted(state) == ["bias", "weight"]
    nn.Linear(2, 1).load_state_dict(state)
    assert repr(tn.jit.trace(nn.Linear(1, 1), tn.ones(1))) == "Linear(original_name=Linear)"


def test_a_policy_of_what_is_saved_changes_no_gradient() -> None:
    from functools import partial

    from tenon.utils import checkpoint

    x = tn.arange(4.0).reshape(2, 2).requires_grad_()

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        keep = op == tn.ops.aten.mm.default
        kinds = checkpoint.CheckpointPolicy
        return kinds.MUST_SAVE if keep else kinds.PREFER_RECOMPUTE

    contexts = partial(checkpoint.create_selective_checkpoint_contexts, policy)
    fn = lambda a: (a @ a).sin().sum()  # noqa: E731
    out = checkpoint.checkpoint(fn, x, use_reentrant=False, context_fn=contexts)
    assert tn.autograd.grad(out, x)[0].equal(tn.autograd.grad(fn(x), x)[0])
    with pytest.raises(TypeError):
        checkpoint.create_selective_checkpoint_contexts(5)


def test_tensors_whose_method_would_not_be_called_are_not_made() -> None:
    class Logged(tn.Tensor):
        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    for make in (
        lambda: tn.ones(2).as_subclass(Logged),
        lambda: tn.Tensor._make_subclass(Logged, tn.ones(2)),
        lambda: Logged([1.0]),
    ):
        with pytest.raises(NotImplementedError, match="__torch_dispatch__, which would not be"):
            make()


def test_dropout_of_channels_says_what_it_takes_for_channels() -> None:
    with pytest.warns(UserWarning, match="interpreted as shape .N, C, L."):
        got = nn.Dropout2d()(tn.ones(8, 8, 5))
    assert all(row.unique().numel() == 1 for row in got.flatten(0, 1))  # whole rows
    with pytest.warns(UserWarning, match="Received a 2-D input to dropout3d"):
        F.dropout3d(tn.ones(2, 3))
    with pytest.warns(UserWarning, match="1-D"), pytest.raises(RuntimeError, match="at least 2"):
        F.dropout2d(tn.ones(3))


def test_states_of_lazy_layers_are_lazy() -> None:
    lazy, other = nn.LazyLinear(3), nn.LazyLinear(3)
    state = lazy.state_dict()
    assert {type(v) for v in state.values()} == {nn.UninitializedParameter}
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert other.has_uninitialized_params()
    lazy(tn.ones(1, 2))
    other.load_state_dict(lazy.state_dict())
    assert other.weight.equal(lazy.weight) and type(lazy.state_dict()["weight"]) is tn.Tensor
    with pytest.raises(RuntimeError, match="load an uninitialized parameter into an initialized"):
        lazy.load_state_dict(nn.LazyLinear(3).state_dict())


def test_complex_numbers_follow_the_default_dtype() -> None:
    wants = {tn.float16: tn.complex32, tn.float32: tn.complex64, tn.float64: tn.complex128}
    for default, want in {**wants, tn.bfloat16: tn.complex64}.items():
        before = tn.get_default_dtype()
        tn.set_default_dtype(default)
        try:
            assert tn.tensor([1.5, 3j]).dtype == want
        finally:
            tn.set_default_dtype(before)


def test_lazy_norms_without_bias() -> None:
    for make in (nn.LazyBatchNorm1d, nn.LazyInstanceNorm1d):
        norm = make(affine=True, bias=False)
        assert norm(tn.rand(2, 3, 4)).shape == (2, 3, 4)
        assert norm.bias is None and norm.weight.shape == (3,)


def test_operators_are_registered_in_a_library() -> None:
    lib = tn.library.Library("said_by_docs", "FRAGMENT")

    @tn.library.custom_op("said_by_docs::double", mutates_args=(), tags=())
    def double(x: tn.Tensor) -> tn.Tensor:
        return x * 2

    tn.library.register_fake("said_by_docs::double", tn.empty_like, lib=lib)
    tn.library.register_kernel("said_by_docs::double", "cpu", lambda x: x + x, lib=lib)
    tn.library.register_autograd("said_by_docs::double", lambda ctx, g: g * 2, lib=lib)
    tn.library.register_vmap("said_by_docs::double", lambda i, d, x: (x * 2, d[0]), lib=lib)
    x = tn.ones(3, requires_grad=True)
    double(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 3 and double(tn.ones(2, device="meta")).shape == (2,)
    assert tn.vmap(double)(tn.ones(2, 3)).tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers_of_ones_own_check_as_ours_do(batch_first: bool) -> None:
    calls: list[Any] = []

    class Own(nn.LSTM):
        def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
            calls.append((tuple(input.shape), [tuple(h.shape) for h in hidden], batch_sizes))
            super().check_forward_args(input, hidden, batch_sizes)

    own = Own(2, 4, proj_size=3, batch_first=batch_first)
    x = tn.rand(5, 6, 2)  # samples and steps, or the other way round
    samples = 5 if batch_first else 6
    state = tn.zeros(1, samples, 3), tn.zeros(1, samples, 4)
    own(x, state)
    assert calls.pop() == ((5, 6, 2), [(1, samples, 3), (1, samples, 4)], None)
    assert own.get_expected_hidden_size(x, None) == (1, samples, 3)
    assert own.get_expected_cell_size(x, None) == (1, samples, 4)
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size"):
        own(x, (state[0], state[0]))
    one = own(x[0], (tn.zeros(1, 3), tn.zeros(1, 4)))[0]  # without a batch
    assert one.shape == (6, 3) and len(calls) == 2
    packed = nn.utils.rnn.pack_sequence([tn.rand(2, 2), tn.rand(3, 2)], enforce_sorted=False)
    hx = tn.rand(1, 2, 3), tn.rand(1, 2, 4)
    assert own.permute_hidden(hx, packed.sorted_indices)[1].equal(hx[1].flip(1))
    own(packed, hx)
    assert calls[-1][2].tolist() == [2, 2, 1]
    with pytest.raises(RuntimeError, match="input must have 3 dimensions, got 2"):
        own.check_input(x[0], None)
