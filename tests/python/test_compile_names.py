"""What programs say to `compile` beside what it compiles: names of PyTorch, and what they do."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon import compiler
from tenon._program.errors import InvalidBackend, Unsupported
from tenon._torch import _dynamo as dynamo


class Seen:
    """A backend that counts."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example: Any) -> Any:
        self.graphs.append(gm)
        return gm.forward


def broken(x: tn.Tensor) -> tn.Tensor:
    x = x + 1
    dynamo.graph_break()
    return x * 2


def test_fullgraph_refuses_breaks_with_all_backends() -> None:
    x = tn.ones(1)

    class Net(tn.nn.Module):
        forward = staticmethod(broken)

    for backend in ("inductor", "eager", "aot_eager", Seen()):
        for fn in (broken, Net()):
            fast = tn.compile(fn, backend=backend, fullgraph=True)
            for _ in range(2):
                with pytest.raises(Unsupported):
                    fast(x)
            with compiler.set_stance("force_eager"):
                assert fast(x).item() == 4
            assert tn.compile(fn, backend=Seen())(x).item() == 4
    whole = tn.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    assert whole(x).item() == 2 and broken(x).item() == 4  # nothing is left of it


def test_the_default_backend() -> None:
    seen = Seen()
    assert compiler.get_default_backend() == "inductor"
    compiler.set_default_backend(seen)
    try:
        assert tn.compile(lambda x: x + 1)(tn.ones(1)).item() == 2
        assert len(seen.graphs) == 1 and compiler.get_default_backend() is seen
        assert tn.compile(lambda x: x + 1, backend="eager")(tn.ones(1)).item() == 2
        assert len(seen.graphs) == 1
    finally:
        compiler.set_default_backend(None)
    assert compiler.get_default_backend() == "inductor"
    with pytest.raises(InvalidBackend):
        tn.compile(lambda x: x, backend="no such")


def test_former_names() -> None:
    seen, x = Seen(), tn.ones(2)
    assert dynamo.optimize(seen)(lambda x: x + 1)(x).tolist() == [2, 2] and len(seen.graphs) == 1
    with pytest.raises(Unsupported):
        dynamo.optimize_assert("eager")(broken)(x)
    dynamo.reset_code_caches()
    assert dynamo.is_dynamo_supported()

    @compiler.nested_compile_region
    def layer(x: tn.Tensor) -> tn.Tensor:
        return x.sin()

    fast = tn.compile(lambda x: layer(x) + layer(x), backend=seen, fullgraph=True)
    assert tn.allclose(fast(x), 2 * x.sin()) and len(seen.graphs) == 2
    made = compiler.wrap_numpy(lambda a, k: {"s": np.sin(a) * k})(x, k=2)
    assert tn.allclose(made["s"], 2 * x.sin())


def test_hooks_of_the_compiled_module_run() -> None:
    seen: list[str] = []
    net = tn.nn.Linear(2, 2)
    call = tn.compile(net)
    for _ in range(2):
        call(tn.ones(1, 2))
    hook = call.register_forward_hook(lambda m, args, out: seen.append(type(m).__name__))
    call(tn.ones(1, 2))
    hook.remove()
    call(tn.ones(1, 2))
    assert seen == ["OptimizedModule"]


def test_functions_that_are_not_compiled_are_told_so() -> None:
    @tn.compiler.disable
    def outside() -> bool:
        return tn.compiler.is_compiling()

    call = tn.compile(lambda x: (x + 1, tn.compiler.is_compiling(), outside()), backend=Seen())
    assert call(tn.ones(1))[1:] == (True, False)


def test_modes_around_a_backends_graphs() -> None:
    def fn(x: tn.Tensor) -> tn.Tensor:
        y = x * 2
        return tn.stack([y, y @ y]) if y.sum() > 0 else y

    call, x = tn.compile(fn, backend=Seen()), tn.eye(3)
    for _ in range(2):
        with tn.inference_mode():
            assert tn.equal(call(x), fn(x))
        with tn.autocast("cpu", dtype=tn.bfloat16):
            assert tn.equal(call(x), fn(x)) and call(x).dtype == fn(x).dtype

    def writes(x: tn.Tensor) -> tn.Tensor:
        y = x * 2
        first = y.sum() > 0
        y.neg_()
        return y if first else x

    call = tn.compile(writes, backend=Seen())
    with tn.inference_mode():
        for x in (tn.ones(2), -tn.ones(2), tn.ones(2)):
            assert tn.equal(call(x), writes(x))


SETTINGS = ModuleType("settings_of_this_test")
SETTINGS.inner = ModuleType("settings_of_this_test.inner")  # type: ignore[attr-defined]
weight, bias = tn.ones(1), None  # as the attributes of layers are called


def first(x: tn.Tensor) -> tn.Tensor:
    return x * SETTINGS.k


def handed(settings: Any, x: tn.Tensor) -> tn.Tensor:
    return x * settings.k


class Holds(tn.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.settings = SETTINGS

    def forward(self, x: tn.Tensor) -> tn.Tensor:
        return x * self.settings.k


@pytest.mark.parametrize("backend", ["inductor", Seen()])
@pytest.mark.parametrize(
    "fn",
    [
        first,
        lambda x: first(x) * SETTINGS.j,
        lambda x: x * SETTINGS.inner.j + x * SETTINGS.j + first(x) + handed(SETTINGS.inner, x),
        lambda x: handed(SETTINGS, x),
        lambda x, m=SETTINGS: x * m.k,
        lambda x: x * getattr(SETTINGS, "k"),  # noqa: B009
        lambda x: x * SETTINGS.__dict__["k"],
        lambda x: x * (2 if hasattr(SETTINGS, "new") else 1),
        Holds(),
    ],
)
def test_names_of_modules_are_read_anew(fn: Any, backend: Any) -> None:
    x = tn.ones(2)
    for module in (SETTINGS, SETTINGS.inner):
        vars(module).update(k=2.0, j=3.0)
        vars(module).pop("new", None)
    call = tn.compile(fn, backend=backend)
    for _ in range(4):
        assert tn.equal(call(x), fn(x))
    for module, name in ((SETTINGS, "k"), (SETTINGS, "j"), (SETTINGS.inner, "k"),
                         (SETTINGS.inner, "j"), (SETTINGS, "new")):  # fmt: skip
        setattr(module, name, 5.0)
        for _ in range(2):
            assert tn.equal(call(x), fn(x)), name


def test_names_of_attributes_are_no_globals() -> None:
    """`self.weight` is not what the program calls `weight` elsewhere, in its training loop say."""
    global weight, bias

    class Net(tn.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = tn.nn.Parameter(tn.ones(2)), None

        def forward(self, x: tn.Tensor) -> tn.Tensor:
            return x * self.weight if self.bias is None else x

    seen = Seen()
    call = tn.compile(Net(), backend=seen)
    for i in range(4):
        weight, bias = call(tn.ones(2)), i
    assert len(seen.graphs) == 1


def test_settings_have_values_that_programs_restore() -> None:
    from tenon._torch._dynamo import config

    before = config.recompile_limit, config.suppress_errors
    assert before == (8, False) and config.cache_size_limit < 64
    with config.patch(recompile_limit=64, suppress_errors=True):
        assert config.recompile_limit == 64 and config.suppress_errors is True
    assert (config.recompile_limit, config.suppress_errors) == before
