"""Types of the script language as objects: programs and packages name them in annotations and in
checks of what a script says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Type:
    """A type, equal to every other one that is written the same."""

    _text = ""

    @classmethod
    def get(cls) -> Type:
        """The type itself, of those that have no parts."""
        return cls()

    @property
    def annotation_str(self) -> str:
        """As it is written in annotations."""
        return str(self)

    def kind(self) -> str:
        """The name of the class."""
        return type(self).__name__

    def containedTypes(self) -> list[Type]:  # noqa: N802 - PyTorch's name
        """The parts."""
        return []

    def isSubtypeOf(self, other: Type) -> bool:  # noqa: N802 - PyTorch's name
        """Whether each value of this type is one of the other."""
        if isinstance(self, OptionalType):
            return all(part.isSubtypeOf(other) for part in (NoneType(), self.getElementType()))
        if isinstance(self, UnionType):
            return all(part.isSubtypeOf(other) for part in self.containedTypes())
        if isinstance(other, OptionalType):
            return isinstance(self, NoneType) or self.isSubtypeOf(other.getElementType())
        if isinstance(other, UnionType):
            return any(self.isSubtypeOf(part) for part in other.containedTypes())
        if isinstance(other, NumberType):
            return isinstance(self, (IntType, FloatType, ComplexType, NumberType))
        return isinstance(other, AnyType) or self == other

    def str(self) -> str:
        """As it is written in annotations."""
        return self.__str__()

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return self.__str__()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class _Of(Type):
    """A type with parts."""

    def __init__(self, *parts: Type) -> None:
        self._parts = list(parts)

    def containedTypes(self) -> list[Type]:  # noqa: N802 - PyTorch's name
        """The parts."""
        return list(self._parts)

    def __str__(self) -> str:
        return f"{self._text}[{', '.join(map(str, self._parts))}]"


class _OfOne(_Of):
    """A type with one part."""

    def __init__(self, element: Type) -> None:
        super().__init__(element)

    def getElementType(self) -> Type:  # noqa: N802 - PyTorch's name
        """The part."""
        return self._parts[0]


def _plain(name: str, text: str) -> type[Type]:
    return type(name, (Type,), {"_text": text, "__doc__": f"The type `{text}`."})


AnyType = _plain("AnyType", "Any")
BoolType = _plain("BoolType", "bool")
ComplexType = _plain("ComplexType", "complex")
DeviceObjType = _plain("DeviceObjType", "Device")
FloatType = _plain("FloatType", "float")
IntType = _plain("IntType", "int")
NoneType = _plain("NoneType", "NoneType")
NumberType = _plain("NumberType", "number")
PyObjectType = _plain("PyObjectType", "PyObject")
StreamObjType = _plain("StreamObjType", "Stream")
StringType = _plain("StringType", "str")
SymBoolType = _plain("SymBoolType", "bool")
SymIntType = _plain("SymIntType", "int")
TensorType = _plain("TensorType", "Tensor")


class ListType(_OfOne):
    """The type `List[...]`."""

    _text = "List"

    @staticmethod
    def ofTensors() -> ListType:  # noqa: N802 - PyTorch's name
        """A list of tensors."""
        return ListType(TensorType())

    @staticmethod
    def ofInts() -> ListType:  # noqa: N802 - PyTorch's name
        """A list of whole numbers."""
        return ListType(IntType())

    @staticmethod
    def ofFloats() -> ListType:  # noqa: N802 - PyTorch's name
        """A list of numbers."""
        return ListType(FloatType())

    @staticmethod
    def ofBools() -> ListType:  # noqa: N802 - PyTorch's name
        """A list of truth values."""
        return ListType(BoolType())

    @staticmethod
    def ofStrings() -> ListType:  # noqa: N802 - PyTorch's name
        """A list of texts."""
        return ListType(StringType())


class OptionalType(_OfOne):
    """The type `Optional[...]`."""

    _text = "Optional"

    @staticmethod
    def ofTensor() -> OptionalType:  # noqa: N802 - PyTorch's name
        """A tensor, or None."""
        return OptionalType(TensorType())


class FutureType(_OfOne):
    """The type `Future[...]`."""

    _text = "Future"


class RRefType(_OfOne):
    """The type `RRef[...]`."""

    _text = "RRef"


class DictType(_Of):
    """The type `Dict[key, value]`."""

    _text = "Dict"

    def __init__(self, key: Type, value: Type) -> None:
        super().__init__(key, value)

    def getKeyType(self) -> Type:  # noqa: N802 - PyTorch's name
        """The keys' type."""
        return self._parts[0]

    def getValueType(self) -> Type:  # noqa: N802 - PyTorch's name
        """The values' type."""
        return self._parts[1]


class TupleType(_Of):
    """The type `Tuple[...]`."""

    _text = "Tuple"

    def __init__(self, elements: Iterable[Type]) -> None:
        super().__init__(*elements)

    def elements(self) -> list[Type]:
        """The parts."""
        return self.containedTypes()


class UnionType(_Of):
    """The type `Union[...]`, whose parts are in the order of their names."""

    _text = "Union"

    def __init__(self, elements: Iterable[Type]) -> None:
        super().__init__(*sorted(elements, key=str))


TYPES: dict[str, Any] = {
    name: value
    for name, value in globals().items()
    if isinstance(value, type) and issubclass(value, Type) and not name.startswith("_")
}
