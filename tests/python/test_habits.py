"""What programs written for PyTorch rely on beside numbers: classes of errors, guards, names."""

from __future__ import annotations

import io
import pickle
import re

import pytest
import tenon as tn
from tenon import nn
from tenon.utils.data import DataLoader


def test_a_file_that_is_refused_is_one_that_cannot_be_unpickled() -> None:
    file = io.BytesIO()
    tn.save(nn.Linear(2, 2), file)
    file.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        tn.load(file)
    file.seek(0)
    with tn.serialization.safe_globals([nn.ReLU]):
        with pytest.raises(pickle.UnpicklingError, match="neither plain data nor named"):
            tn.load(file)


@pytest.mark.parametrize("name", ["batch_size", "sampler", "dataset", "drop_last"])
def test_a_loader_stays_what_it_is(name: str) -> None:
    loader = DataLoader(range(4), 2)
    with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader"):
        setattr(loader, name, None)
    loader.collate_fn = list
    assert list(loader) == [[0, 1], [2, 3]]
    assert len(list(pickle.loads(pickle.dumps(loader)))) == 2


class Exp(tn.autograd.Function):
    @staticmethod
    def forward(x: tn.Tensor) -> tn.Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: tn.autograd.function.FunctionCtx, inputs, output) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: tn.autograd.function.FunctionCtx, g: tn.Tensor) -> tn.Tensor:
        return g * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx: tn.autograd.function.FunctionCtx, t: tn.Tensor) -> tn.Tensor:
        return t * ctx.saved_tensors[0]


def test_a_function_may_save_for_both_ways() -> None:
    x = tn.tensor([0.0, 1.0], dtype=tn.float64)
    out, tangent = tn.func.jvp(Exp.apply, (x,), (tn.ones_like(x),))
    assert tn.allclose(out, tangent)
    with pytest.raises(TypeError, match="save_for_forward"):
        Exp.apply(x.requires_grad_()).grad_fn.save_for_forward(3)


def test_a_change_in_place_names_who_made_it() -> None:
    b = tn.ones(2, requires_grad=True) * 2
    c = b * b
    b.add_(1)
    text = "output 0 of Add, is at version 1; expected version 0 instead"
    with pytest.raises(RuntimeError, match=re.escape(text)):
        c.sum().backward()


def test_kinds_of_traced_and_scripted_programs_have_their_names() -> None:
    traced = tn.jit.trace(nn.Linear(2, 2), tn.ones(1, 2))
    assert type(traced).__name__ == "TopLevelTracedModule"
    assert isinstance(traced, tn.jit.ScriptModule)
    assert type(tn.jit.script(scripted)).__name__ == "ScriptFunction"
    file = io.BytesIO()
    tn.jit.save(traced, file)
    file.seek(0)
    assert isinstance(tn.jit.load(file), tn.jit.ScriptModule)


def scripted(x: tn.Tensor) -> tn.Tensor:
    return x + 1


def test_wrong_attributes_of_modules_are_named_as_users_name_them() -> None:
    module = nn.Sequential(nn.Linear(1, 1))
    with pytest.raises(TypeError, match=r"\(tenon.nn.Parameter or None required\)"):
        module.register_parameter("p", tn.ones(1))
    with pytest.raises(TypeError, match=r"child module '0' \(tenon.nn.Module or None expected\)"):
        setattr(module, "0", 3)


def test_no_numpy_array_of_bfloat16() -> None:
    with pytest.raises(TypeError, match="Got unsupported ScalarType BFloat16"):
        tn.ones(1, dtype=tn.bfloat16).numpy()


def test_code_of_graphs_names_functions_of_the_extension() -> None:
    graph = tn.fx.symbolic_trace(lambda x: nn.functional.gelu(x))
    assert "tenon._C._nn.gelu(x)" in graph.code
    assert tn.equal(graph(tn.ones(2)), nn.functional.gelu(tn.ones(2)))


MISTAKES = [
    (lambda: tn.mm(tn.ones(2, 2).long(), tn.ones(2, 2)), "got: long int != float"),
    (lambda: nn.Linear(2, 2)(tn.ones(2, 4).double()), "same dtype, but got Double and Float"),
    (lambda: nn.Linear(2, 2, bias=False)(tn.ones(2, 2).half()), "got: c10::Half != float"),
    (
        lambda: tn.addmm(tn.ones(1), tn.ones(1, 1).long(), tn.ones(1, 1)),
        "mat1 and mat2 must have the same dtype, but got Long and Float",
    ),
    (
        lambda: nn.Conv2d(3, 8, (3, 2), dilation=2)(tn.ones(1, 3, 2, 9)),
        "input size per channel: (2 x 9). Kernel size: (5 x 3). Kernel size can't be greater",
    ),
    (lambda: nn.Conv2d(3, 8, 3)(tn.ones(8, 8)), "conv2d, but got input of size: [8, 8]"),
    (
        lambda: nn.MaxPool2d(3)(tn.ones(1, 1, 2, 2)),
        "Given input size: (1x2x2). Calculated output size: (1x0x0). Output size is too small",
    ),
    (
        lambda: nn.functional.nll_loss(tn.ones(2, 4), tn.ones(2, 1).long()),
        "0D or 1D target tensor expected, multi-target not supported",
    ),
]


@pytest.mark.parametrize(("call", "text"), MISTAKES)
def test_common_mistakes_have_pytorchs_words(call, text: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(text)):
        call()


def test_numbers_of_tensors() -> None:
    x = tn.ones(2)
    assert isinstance(x._cdata, int)
    assert x._cdata == x._cdata
    assert len({t._cdata for t in (x, x.detach(), x[:], tn.ones(2))}) == 4


def test_loaders_that_keep_pytorchs_names_alone_have_a_length() -> None:
    class Own(DataLoader):
        def __init__(self, loader: DataLoader) -> None:
            for name in ("dataset", "batch_size", "_dataset_kind", "batch_sampler", "drop_last"):
                self.__dict__[name] = getattr(loader, name)

    assert len(Own(DataLoader(range(7), batch_size=3))) == 3
