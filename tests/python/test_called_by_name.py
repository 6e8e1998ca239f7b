"""Functions that write into their first argument take it by PyTorch's name for it, `input`."""

from __future__ import annotations

import pytest
import tenon as tn

VALUES = [0.25, 0.5, -0.75]


def in_place() -> list[str]:
    """Functions in place that a tensor of three numbers is enough for."""
    names = []
    for name in dir(tn):
        if not name.endswith("_") or name.startswith("_") or not callable(getattr(tn, name)):
            continue
        try:
            getattr(tn, name)(tn.tensor(VALUES))
        except (TypeError, RuntimeError):
            continue
        names.append(name)
    return names


@pytest.mark.parametrize("name", in_place())
def test_one_argument(name: str) -> None:
    f, x = getattr(tn, name), tn.tensor(VALUES)
    assert f(input=x) is x
    tn.testing.assert_close(x, f(tn.tensor(VALUES)), equal_nan=True)


def test_there_are_many() -> None:
    assert len(in_place()) > 60


@pytest.mark.parametrize(
    ("name", "rest", "expected"),
    [
        ("add_", {"other": tn.ones(3), "alpha": 2}, [2.25, 2.5, 1.25]),
        ("fill_", {"value": 2}, [2.0, 2.0, 2.0]),
        ("clamp_", {"max": 0.3, "min": 0}, [0.25, 0.3, 0.0]),
        ("index_put_", {"indices": (tn.tensor([1]),), "values": tn.tensor(9.0)}, [0.25, 9, -0.75]),
        ("as_strided_", {"size": (2,), "stride": (2,)}, [0.25, -0.75]),
        ("resize_as_", {"the_template": tn.zeros(2)}, [0.25, 0.5]),
        ("dropout_", {"p": 0.5, "train": False}, VALUES),
    ],
)
def test_among_others(name: str, rest: dict, expected: list[float]) -> None:
    x = tn.tensor(VALUES)
    assert getattr(tn, name)(**rest, input=x) is x
    assert x.tolist() == tn.tensor(expected).tolist()


def test_what_is_no_tensor_is_named() -> None:
    with pytest.raises(TypeError, match="'input' .* must be Tensor"):
        tn.relu_(input=3)
    with pytest.raises(TypeError, match="multiple values"):
        tn.add_(tn.ones(2), 1, input=tn.ones(2))
    with pytest.raises(TypeError, match="multiple values"):
        tn.ones(2).zero_(input=tn.ones(2))
