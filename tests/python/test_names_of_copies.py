"""What optimizers, schedules and tracers that began as copies of PyTorch's import from it."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import stored
import tenon


def of(lib: Any, path: str) -> Any:
    return importlib.import_module(f"{lib.__name__}.{path}")


def test_parts_of_optimizers() -> None:
    def look(lib: Any) -> list[Any]:
        parts = of(lib, "optim.optimizer")
        x = lib.tensor([[3.0]])
        found: list[Any] = [
            parts._get_value(x), parts._get_value(2.5), parts._to_scalar(2),
            tuple(parts._to_scalar(x).shape), tuple(parts._to_scalar(x[0, 0]).shape),
            parts._stack_if_compiling(7),
        ]  # fmt: skip
        params = [lib.ones(2), lib.tensor([1 + 2j])]
        grads = [lib.zeros(2), lib.tensor([3 + 4j])]
        parts._view_as_real(params, grads)
        found += [p.tolist() for p in (*params, *grads)]
        found += [str(parts._get_scalar_dtype()).split(".")[1]]
        lib.set_default_dtype(lib.float64)
        found += [str(parts._get_scalar_dtype(on)).split(".")[1] for on in (None, False, True)]
        lib.set_default_dtype(lib.float32)

        @parts._disable_dynamo_if_unsupported(single_tensor_fn=look)  # type: ignore[untyped-decorator]
        def less(a: int, b: int) -> int:
            return a - b

        found.append(less(3, 2))
        parts._device_dtype_check_for_fused(lib.ones(1))
        for bad in (lib.ones(1, dtype=lib.int64), lib.ones(1, device="meta")):
            with pytest.raises(RuntimeError, match="requires all the params to be floating"):
                parts._device_dtype_check_for_fused(bad)
        found += [isinstance(getattr(parts, f"_{n}_doc"), str) for n in (
            "params", "foreach", "fused", "maximize", "capturable", "differentiable")]  # fmt: skip
        return [*found, type(lib.ones(1)) in parts._foreach_supported_types]

    stored.same(look(tenon), stored.of_torch(look))


def test_schedules_of_a_program() -> None:
    def look(lib: Any) -> list[Any]:
        parts = of(lib, "optim.lr_scheduler")

        class Halved(parts.LRScheduler):  # type: ignore[misc, name-defined]
            def get_lr(self) -> list[Any]:
                parts._warn_get_lr_called_within_step(self)
                return [base / 2**self.last_epoch for base in self.base_lrs]

        optimizer = lib.optim.SGD([lib.ones(1)], 8.0)
        schedule = Halved(optimizer)
        found: list[Any] = []
        for _ in range(2):
            optimizer.step()
            schedule.step()
            found += schedule.get_last_lr()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found += schedule.get_lr()
            found.append([str(w.message) for w in told])
            with parts._enable_get_lr_call(schedule):
                found += schedule.get_lr()
            schedule.get_lr()
            found.append(len(told))
        return found

    stored.same(look(tenon), stored.of_torch(look))


def test_operators_of_generated_code() -> None:
    def look(lib: Any) -> list[Any]:
        graph = of(lib, "fx.graph")
        tables = (graph.magic_methods, graph.reflectable_magic_methods, graph.inplace_methods)

        def writes(x: Any, y: Any) -> Any:
            x <<= 2
            x >>= 1
            y @= y
            return x, y

        traced = of(lib, "fx").symbolic_trace(writes)
        y = lib.tensor([[1.0, 2.0], [3.0, 4.0]])
        out = traced(lib.tensor([3, 5]), y)
        code = traced.code.partition("return")[0].partition("\n    ")[2]
        return [*(sorted(t.items()) for t in tables), [t.tolist() for t in out], code]

    stored.same(look(tenon), stored.of_torch(look))


def test_small_helpers() -> None:
    def look(lib: Any) -> list[Any]:
        c10d, ddp = of(lib, "distributed.distributed_c10d"), of(lib, "nn.parallel.distributed")
        module, utils = of(lib, "nn.modules.module"), of(lib, "distributed.utils")
        tensors = [lib.full((1,), float(i)) for i in range(4)]
        nested = {"a": tensors[0], "b": [tensors[1], (tensors[2], 3)], "c": "text"}
        found: list[Any] = [
            module._addindent("a\nb\nc", 3), module._addindent("a", 3),
            [t.item() for t in ddp._find_tensors(nested)],
            c10d._GLOO_AVAILABLE, of(lib, "autograd")._is_checkpoint_valid(),
        ]  # fmt: skip
        utils._p_assert(True, "well")
        for raises in (True, False):
            try:
                utils._p_assert(False, "not well", raises)
            except AssertionError as err:
                found.append(str(err))
        x = lib.ones(1, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: found.append(of(lib, "autograd")._is_checkpoint_valid()))
        y.sum().backward(retain_graph=True)
        lib.autograd.grad(y.sum(), x)
        return found

    want = stored.of_torch(look)
    found = look(tenon)
    want[3] = found[3]  # whether an engine was built is a matter of the machine
    stored.same(found, want)
    ran: list[int] = []
    tenon.cuda._lazy_call(lambda: ran.append(1))
    assert bool(ran) == tenon.cuda.is_available()
