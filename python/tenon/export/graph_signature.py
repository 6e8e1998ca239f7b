"""What goes into and comes out of an exported graph, by name and kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = [
    "ConstantArgument", "ExportGraphSignature", "InputKind", "InputSpec", "OutputKind",
    "OutputSpec", "TensorArgument",
]  # fmt: skip


@dataclass
class TensorArgument:
    """A value of the graph."""

    name: str


@dataclass
class ConstantArgument:
    """A number, a text or None."""

    name: str
    value: Any = None


class InputKind(Enum):
    """What an input is of the module."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4


class OutputKind(Enum):
    """What an output is. Writes stand in the graph, so that all are results."""

    USER_OUTPUT = 1
    BUFFER_MUTATION = 3
    USER_INPUT_MUTATION = 7


@dataclass
class InputSpec:
    """An input: its name in the graph, and what it is called in the module."""

    kind: InputKind
    arg: TensorArgument | ConstantArgument
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        kept = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{_of(self.target)}{kept}"


@dataclass
class OutputSpec:
    """An output."""

    kind: OutputKind
    arg: TensorArgument | ConstantArgument
    target: str | None

    def __str__(self) -> str:
        return f"{self.arg.name}: {self.kind.name}{_of(self.target)}"


def _of(target: str | None) -> str:
    return "" if target is None else f" target='{target}'"


def _shown(arg: TensorArgument | ConstantArgument) -> Any:
    return arg.name if isinstance(arg, TensorArgument) else arg.value


@dataclass
class ExportGraphSignature:
    """Inputs and outputs of a graph in order."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def __str__(self) -> str:
        takes, gives = ("\n".join(map(str, s)) for s in (self.input_specs, self.output_specs))
        return f"\n# inputs\n{takes}\n\n# outputs\n{gives}\n"

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(s.target for s in self.input_specs if s.kind is kind and s.target)

    def _inputs(self, kind: InputKind) -> dict[str, str]:
        return {s.arg.name: s.target for s in self.input_specs if s.kind is kind and s.target}

    @property
    def parameters(self) -> tuple[str, ...]:
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Buffers that are no part of a state_dict."""
        return tuple(
            s.target for s in self.input_specs
            if s.kind is InputKind.BUFFER and s.persistent is False and s.target
        )  # fmt: skip

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """Names of the call's tensors, and values of its other arguments."""
        return tuple(_shown(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        return tuple(_shown(s.arg) for s in self.output_specs)

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        return self._inputs(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        return self._inputs(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        return self._inputs(InputKind.CONSTANT_TENSOR)

    @property
    def buffers_to_mutate(self) -> dict[str, str]:
        """Outputs that are new values of buffers: none, since the graph writes to them."""
        return {}

    @property
    def parameters_to_mutate(self) -> dict[str, str]:
        """Outputs that are new values of parameters: none, since the graph writes to them."""
        return {}

    @property
    def user_inputs_to_mutate(self) -> dict[str, str]:
        """Outputs that are new values of inputs: none, since the graph writes to them."""
        return {}

    @property
    def backward_signature(self) -> None:
        """An exported graph has no backward part."""
        return None
