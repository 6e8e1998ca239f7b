"""Functions of the package beside those of nn.functional, methods that change a tensor's sizes."""

from __future__ import annotations

from typing import Any

import pytest
import tenon as tn
from tenon.nn import functional as F

X = tn.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
Y = tn.tensor([[0.25, 1.0, -2.0], [0.5, 0.75, 0.125]])
LABEL = tn.tensor([1, -1])
IMAGE = tn.arange(16.0).reshape(1, 4, 2, 2)
CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("cosine_embedding_loss", (X, Y, LABEL, 0.1, 2),
     lambda: F.cosine_embedding_loss(X, Y, LABEL, 0.1, reduction="sum")),
    ("kl_div", (X, Y.abs()), lambda: F.kl_div(X, Y.abs(), reduction="none")),
    ("poisson_nll_loss", (X, Y.abs(), True, True, 1e-8, 0),
     lambda: F.poisson_nll_loss(X, Y.abs(), True, True, reduction="none")),
    ("triplet_margin_loss", (X, Y, -X, 0.5, 1.0, 1e-6, True, 2),
     lambda: F.triplet_margin_loss(X, Y, -X, 0.5, 1.0, 1e-6, True, reduction="sum")),
    ("batch_norm", (X, tn.ones(3) * 2, tn.ones(3), tn.zeros(3), tn.ones(3), False, 0.1, 1e-5),
     lambda: F.batch_norm(X, tn.zeros(3), tn.ones(3), tn.ones(3) * 2, tn.ones(3))),
    ("instance_norm", (IMAGE, tn.ones(4) * 2, tn.ones(4), None, None, True, 0.1, 1e-5),
     lambda: F.instance_norm(IMAGE, None, None, tn.ones(4) * 2, tn.ones(4))),
    ("pixel_shuffle", (IMAGE, 2), lambda: F.pixel_shuffle(IMAGE, 2)),
    ("pixel_unshuffle", (IMAGE, 2), lambda: F.pixel_unshuffle(IMAGE, 2)),
    ("channel_shuffle", (IMAGE, 2), lambda: F.channel_shuffle(IMAGE, 2)),
    ("native_channel_shuffle", (IMAGE, 2), lambda: F.channel_shuffle(IMAGE, 2)),
    ("pairwise_distance", (X, Y), lambda: F.pairwise_distance(X, Y)),
    ("prelu", (X, tn.tensor([0.25])), lambda: F.prelu(X, tn.tensor([0.25]))),
    ("rrelu", (X,), lambda: F.rrelu(X)),
    ("alpha_dropout", (X, 0.5, False), lambda: X),
    ("feature_alpha_dropout", (IMAGE, 0.5, False), lambda: IMAGE),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "want"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_twins(name: str, args: tuple[Any, ...], want: Any) -> None:
    assert getattr(tn, name)(*args).equal(want())


@pytest.mark.parametrize(
    ("name", "args"),
    [("relu_", ()), ("celu_", (0.5,)), ("selu_", ()), ("threshold_", (0.1, 3.0)), ("rrelu_", ()),
     ("alpha_dropout_", (0.5, False)), ("sigmoid_", ()), ("tanh_", ())],
)  # fmt: skip
def test_twins_in_place(name: str, args: tuple[Any, ...]) -> None:
    x = X.clone()
    want = getattr(tn, name[:-1])(X, *args)
    getattr(tn, name)(x, *args)
    assert x.equal(want)


def test_twins_with_indices() -> None:
    row = tn.tensor([[[1.0, 4.0, 2.0, 3.0]]])
    values, indices = tn.adaptive_max_pool1d(row, 2)
    assert (values.tolist(), indices.tolist()) == ([[[4, 3]]], [[[1, 3]]])
    values, indices = tn.max_pool1d_with_indices(row, 2)
    assert (values.tolist(), indices.tolist()) == ([[[4, 3]]], [[[1, 3]]])


def test_ctc_loss_takes_its_reduction_as_a_number() -> None:
    log_probs = tn.randn(6, 2, 5).log_softmax(-1)
    args = (log_probs, tn.tensor([[1, 2], [3, 4]]), (6, 5), (2, 2))
    assert tn.ctc_loss(*args, 0, 2).equal(F.ctc_loss(*args, reduction="sum"))
    with pytest.raises(RuntimeError, match="reduction"):
        tn.kl_div(X, Y, 5)


def test_resize_keeps_what_fits() -> None:
    x = tn.arange(6)
    assert x.resize_(2, 2) is x
    assert x.tolist() == [[0, 1], [2, 3]]
    assert x.resize_((6,)).tolist() == [0, 1, 2, 3, 4, 5]
    assert x.resize_(2, 4)[0].tolist() == [0, 1, 2, 3]
    assert x.resize_as_(tn.empty(3)).tolist() == [0, 1, 2]
    part = tn.arange(6)[2:]
    assert part.resize_(2, 3)[0].tolist() == [2, 3, 4]
    image = tn.arange(16.0).resize_(1, 2, 2, 4, memory_format=tn.channels_last)
    assert image.stride() == (16, 1, 8, 2)
    with pytest.raises(RuntimeError, match="require grad"):
        tn.ones(2, requires_grad=True).resize_(1)
    with pytest.raises(RuntimeError):
        x.resize_(-1)


def test_methods_of_old_names() -> None:
    assert tn.tensor([2.0, 4.0]).__rdiv__(1).tolist() == [0.5, 0.25]
    parts = tn.arange(5).tensor_split(tn.tensor([1, 3]))
    assert [p.tolist() for p in parts] == [[0], [1, 2], [3, 4]]


def test_names_of_what_tensor_split_cuts_at() -> None:
    x = tn.arange(6)
    want = [[0, 1], [2, 3], [4, 5]]
    for more in ({"indices": (2, 4)}, {"sections": 3}, {"indices_or_sections": [2, 4]},
                 {"tensor_indices_or_sections": tn.tensor([2, 4])}):  # fmt: skip
        assert [p.tolist() for p in tn.tensor_split(x, **more)] == want
        assert [p.tolist() for p in x.tensor_split(**more, dim=0)] == want
    with pytest.raises(TypeError, match="tensor_split.*'parts'"):
        tn.tensor_split(x, parts=2)
    with pytest.raises(TypeError, match="several values"):
        tn.tensor_split(x, 2, sections=2)
    with pytest.raises(TypeError, match="indices_or_sections"):
        x.tensor_split()
