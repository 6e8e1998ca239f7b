"""How a module is cut: by the columns or rows of its weights, or along a sequence; and in which
layout it takes and gives tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tenon import Tensor
from tenon.distributed.device_mesh import DeviceMesh
from tenon.distributed.tensor._api import DTensor, distribute_module, distribute_tensor
from tenon.distributed.tensor.placement_types import Placement, Replicate, Shard
from tenon.nn import Embedding, Linear
from tenon.nn.modules.module import Module
from tenon.nn.parameter import Parameter

__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput",
    "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel",
]  # fmt: skip


class ParallelStyle(ABC):
    """How parallelize_module cuts a module."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        """The module, cut."""

    def _cut(self, module: Module, name: str, mesh: DeviceMesh, placement: Placement) -> None:
        param = getattr(module, name, None)
        if param is not None:
            cut = distribute_tensor(
                param.detach(), mesh, [placement], src_data_rank=self.src_data_rank
            )
            module.register_parameter(name, Parameter(cut, param.requires_grad))


def _to_layout(value: Any, mesh: DeviceMesh, now: Any, wanted: Any) -> Any:
    """A tensor as a DTensor in a layout; `now` says how a plain one lies."""
    if not isinstance(value, DTensor):
        if not isinstance(value, Tensor):
            return value
        value = DTensor.from_local(value, mesh, now)
    if wanted is not None and tuple(wanted) != value.placements:
        value = value.redistribute(placements=wanted)
    return value


def _from_layout(value: Any, wanted: Any, local: bool) -> Any:
    if not isinstance(value, DTensor):
        return value
    if wanted is not None and tuple(wanted) != value.placements:
        value = value.redistribute(placements=wanted)
    return value.to_local() if local else value


class _OfWeights(ParallelStyle):
    """A linear layer or an embedding."""

    input_layouts: tuple[Placement, ...]
    output_layouts: tuple[Placement, ...]
    use_local_output: bool

    def _linear(self) -> dict[str, Placement]:
        raise NotImplementedError

    def _embedding(self) -> dict[str, Placement]:
        raise NotImplementedError

    def _desired(self, module: Module) -> tuple[Placement, ...]:
        raise NotImplementedError

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if isinstance(module, Linear):
            cuts = self._linear()
        elif isinstance(module, Embedding):
            cuts = self._embedding()
        else:
            raise NotImplementedError(
                f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!"
            )
        desired = self._desired(module)

        def partition(name: str, part: Module, mesh: DeviceMesh) -> None:
            for key, placement in cuts.items():
                self._cut(part, key, mesh, placement)

        def enter(part: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            return (_to_layout(inputs[0], mesh, self.input_layouts, desired), *inputs[1:])

        def leave(part: Module, output: Any, mesh: DeviceMesh) -> Any:
            return _from_layout(output, self.output_layouts, self.use_local_output)

        return distribute_module(module, device_mesh, partition, enter, leave)


class ColwiseParallel(_OfWeights):
    """Each process has some of the outputs of a linear layer, some columns of a table."""

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or Replicate(),)
        self.output_layouts = (output_layouts or Shard(-1),)
        self.use_local_output = use_local_output

    def _linear(self) -> dict[str, Placement]:
        return {"weight": Shard(0), "bias": Shard(0)}

    def _embedding(self) -> dict[str, Placement]:
        return {"weight": Shard(1)}

    def _desired(self, module: Module) -> tuple[Placement, ...]:
        return (Replicate(),)


class RowwiseParallel(_OfWeights):
    """Each process has some of the inputs of a linear layer, some rows of a table; results are
    summed."""

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or Shard(-1),)
        self.output_layouts = (output_layouts or Replicate(),)
        self.use_local_output = use_local_output

    def _linear(self) -> dict[str, Placement]:
        return {"weight": Shard(1), "bias": Replicate()}

    def _embedding(self) -> dict[str, Placement]:
        return {"weight": Shard(0)}

    def _desired(self, module: Module) -> tuple[Placement, ...]:
        return (Replicate(),) if isinstance(module, Embedding) else (Shard(-1),)


class SequenceParallel(ParallelStyle):
    """Each process has a part of the sequence; the weights, as of a LayerNorm, are whole."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.use_local_output = use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def enter(part: Module, inputs: Any, mesh: DeviceMesh) -> Any:
            wanted = self.sequence_sharding
            return (_to_layout(inputs[0], mesh, wanted, wanted), *inputs[1:])

        def leave(part: Module, output: Any, mesh: DeviceMesh) -> Any:
            return _from_layout(output, None, self.use_local_output)

        return distribute_module(module, device_mesh, None, enter, leave)


# ---- What goes in and comes out ------------------------------------------------------------------


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _one(placement: Placement | None) -> Sequence[Placement] | None:
    return None if placement is None else (placement,)


class PrepareModuleInput(ParallelStyle):
    """Brings a module's inputs to layouts; None leaves an input as it is."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts = None if input_layouts is None else _tuple(input_layouts)
        self.desired_input_layouts = (
            None if desired_input_layouts is None else _tuple(desired_input_layouts)
        )
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError(
                    "input_layouts and desired_input_layouts should have same length!"
                )
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        if self.input_kwarg_layouts.keys() != self.desired_input_kwarg_layouts.keys():
            raise AssertionError(
                "input_kwarg_layouts and desired_input_kwarg_layouts should have same length!"
            )
        self.use_local_output = use_local_output

    def _one_input(self, value: Any, mesh: DeviceMesh, now: Any, wanted: Any) -> Any:
        if now is None:
            return value
        value = _to_layout(value, mesh, _one(now), _one(wanted))
        return _from_layout(value, None, self.use_local_output)

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        layouts, wanted = self.input_layouts, self.desired_input_layouts

        def enter(part: Module, args: Any, kwargs: Any) -> Any:
            if layouts is not None and wanted is not None:
                if len(args) != len(layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                args = tuple(
                    self._one_input(a, device_mesh, now, then)
                    for a, now, then in zip(args, layouts, wanted, strict=True)
                )
            changed = {
                k: self._one_input(v, device_mesh, self.input_kwarg_layouts.get(k),
                                   self.desired_input_kwarg_layouts.get(k))
                for k, v in kwargs.items()
            }  # fmt: skip
            return args, changed

        module.register_forward_pre_hook(enter, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """Brings a module's outputs to layouts; None leaves an output as it is."""

    def __init__(
        self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True
    ) -> None:
        self.output_layouts = _tuple(output_layouts)
        self.desired_output_layouts = _tuple(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError(
                "output_layouts and desired_output_layouts should have same length!"
            )

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        def leave(part: Module, inputs: Any, outputs: Any) -> Any:
            several = _tuple(outputs)
            if len(several) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            changed = []
            for value, now, wanted in zip(several, self.output_layouts,
                                          self.desired_output_layouts, strict=True):  # fmt: skip
                if now is not None:
                    value = _to_layout(value, device_mesh, _one(now), _one(wanted))
                    value = _from_layout(value, None, self.use_local_output)
                changed.append(value)
            return tuple(changed) if isinstance(outputs, tuple) else changed[0]

        module.register_forward_hook(leave)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """PrepareModuleInput and PrepareModuleOutput."""

    def __init__(
        self,
        *,
        input_layouts: Any = None,
        desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Any,
        desired_output_layouts: Any,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )  # fmt: skip

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)
