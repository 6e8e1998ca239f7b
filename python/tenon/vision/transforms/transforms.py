"""Transforms of pictures as modules. Random ones draw from the default generator."""

from __future__ import annotations

import math
import numbers
import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import tenon
from tenon import Tensor, nn
from tenon.vision.transforms import functional as F
from tenon.vision.transforms._geometry import InterpolationMode, mode_of, uniform

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "ConvertImageDtype", "FiveCrop", "GaussianBlur",
    "Grayscale", "InterpolationMode", "Lambda", "LinearTransformation", "Normalize", "PILToTensor",
    "Pad", "RandomAdjustSharpness", "RandomAffine", "RandomApply", "RandomAutocontrast",
    "RandomChoice", "RandomCrop", "RandomEqualize", "RandomErasing", "RandomGrayscale",
    "RandomHorizontalFlip", "RandomInvert", "RandomOrder", "RandomPosterize", "RandomResizedCrop",
    "RandomRotation", "RandomSolarize", "RandomVerticalFlip", "Resize", "TenCrop", "ToPILImage",
    "ToTensor",
]  # fmt: skip


def _setup_size(
    size: Any, error_msg: str = "Please provide only two dimensions (h, w) for size."
) -> Any:
    if isinstance(size, numbers.Number):
        return int(size), int(size)
    if isinstance(size, Sequence) and len(size) == 1:
        return size[0], size[0]
    if len(size) != 2:
        raise ValueError(error_msg)
    return size


def _told(*names: str, between: str = ", ") -> Callable[[Any], str]:
    """A __repr__ that says these attributes; of those with a ? only what is set."""

    def __repr__(self: Any) -> str:
        parts = []
        for name in names:
            value = getattr(self, name.rstrip("?"))
            if name.endswith("?") and value in (None, 0, InterpolationMode.NEAREST):
                continue
            name = name.rstrip("?")
            parts.append(f"{name}={value.value if isinstance(value, InterpolationMode) else value}")
        return f"{type(self).__name__}({between.join(parts)})"

    return __repr__


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, img: Any) -> Any:
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        lines = "".join(f"\n    {t}" for t in self.transforms)
        return f"{type(self).__name__}({lines}\n)"


class ToTensor:
    """functional.to_tensor."""

    def __call__(self, pic: Any) -> Tensor:
        return F.to_tensor(pic)

    __repr__ = _told()


class PILToTensor:
    """functional.pil_to_tensor."""

    def __call__(self, pic: Any) -> Tensor:
        return F.pil_to_tensor(pic)

    __repr__ = _told()


class ToPILImage:
    """functional.to_pil_image."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Any:
        return F.to_pil_image(pic, self.mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self.mode is None else f'mode={self.mode}'})"


class ConvertImageDtype(nn.Module):
    """functional.convert_image_dtype."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, image: Tensor) -> Tensor:
        return F.convert_image_dtype(image, self.dtype)


class Normalize(nn.Module):
    """functional.normalize."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        super().__init__()
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def forward(self, tensor: Tensor) -> Tensor:
        return F.normalize(tensor, self.mean, self.std, self.inplace)

    __repr__ = _told("mean", "std")


class Resize(nn.Module):
    """functional.resize."""

    def __init__(
        self,
        size: Any,
        interpolation: Any = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        if not isinstance(size, (int, Sequence)):
            raise TypeError(f"Size should be int or sequence. Got {type(size)}")
        if isinstance(size, Sequence) and len(size) not in (1, 2):
            raise ValueError("If size is a sequence, it should have 1 or 2 values")
        self.size = size
        self.max_size = max_size
        self.interpolation = mode_of(interpolation)
        self.antialias = antialias

    def forward(self, img: Any) -> Any:
        return F.resize(img, self.size, self.interpolation, self.max_size, self.antialias)

    __repr__ = _told("size", "interpolation", "max_size", "antialias")


class CenterCrop(nn.Module):
    """functional.center_crop."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = _setup_size(size)

    def forward(self, img: Any) -> Any:
        return F.center_crop(img, self.size)

    __repr__ = _told("size")


class Pad(nn.Module):
    """functional.pad."""

    def __init__(self, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> None:
        super().__init__()
        if not isinstance(padding, (numbers.Number, tuple, list)):
            raise TypeError(f"padding should be numbers, not a {type(padding).__name__}")
        if not isinstance(fill, (numbers.Number, tuple, list)):
            raise TypeError(f"fill should be numbers, not a {type(fill).__name__}")
        if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
        if isinstance(padding, (tuple, list)) and len(padding) not in (1, 2, 4):
            raise ValueError(f"padding should be 1, 2 or 4 numbers, not {len(padding)}")
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def forward(self, img: Any) -> Any:
        return F.pad(img, self.padding, self.fill, self.padding_mode)

    __repr__ = _told("padding", "fill", "padding_mode")


class Lambda:
    """A function."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"Argument lambd should be callable, got {type(lambd).__name__!r}")
        self.lambd = lambd

    def __call__(self, img: Any) -> Any:
        return self.lambd(img)

    __repr__ = _told()


class LinearTransformation(nn.Module):
    """A matrix on all values of a picture, after a mean was taken off."""

    def __init__(self, transformation_matrix: Tensor, mean_vector: Tensor) -> None:
        super().__init__()
        size = transformation_matrix.size(0)
        if size != transformation_matrix.size(1) or mean_vector.size(0) != size:
            raise ValueError(
                "transformation_matrix should be square, mean_vector of its size. Got "
                f"{tuple(transformation_matrix.size())} and {tuple(mean_vector.size())}"
            )
        if transformation_matrix.dtype != mean_vector.dtype:
            raise ValueError(
                f"One dtype is needed, not {transformation_matrix.dtype} and {mean_vector.dtype}"
            )
        self.transformation_matrix = transformation_matrix
        self.mean_vector = mean_vector

    def forward(self, tensor: Tensor) -> Tensor:
        size = self.transformation_matrix.size(0)
        if math.prod(tensor.shape[-3:]) != size:
            raise ValueError(f"The matrix takes {size} values, the picture is {tensor.shape[-3:]}")
        flat = tensor.reshape(-1, size) - self.mean_vector
        return (flat @ self.transformation_matrix.to(flat.dtype)).reshape(tensor.shape)

    def __repr__(self) -> str:
        matrix, mean = self.transformation_matrix.tolist(), self.mean_vector.tolist()
        return f"{type(self).__name__}(transformation_matrix={matrix}, mean_vector={mean})"


# ---- Chosen at random ----------------------------------------------------------------------------


class RandomApply(nn.Module):
    """Transforms, with a probability."""

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__()
        self.transforms = transforms
        self.p = p

    def forward(self, img: Any) -> Any:
        if self.p < tenon.rand(1):
            return img
        for t in self.transforms:
            img = t(img)
        return img

    def __repr__(self) -> str:
        lines = "".join(f"\n    {t}" for t in self.transforms)
        return f"{type(self).__name__}(\n    p={self.p}{lines}\n)"


class RandomTransforms:
    """Several transforms, of which something is drawn."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        if not isinstance(transforms, Sequence):
            raise TypeError("Argument transforms should be a sequence")
        self.transforms = transforms

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    __repr__ = Compose.__repr__


class RandomOrder(RandomTransforms):
    """Transforms in a random order."""

    def __call__(self, img: Any) -> Any:
        order = list(range(len(self.transforms)))
        random.shuffle(order)
        for i in order:
            img = self.transforms[i](img)
        return img


class RandomChoice(RandomTransforms):
    """One of several transforms."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]], p: Any = None) -> None:
        super().__init__(transforms)
        if p is not None and not isinstance(p, Sequence):
            raise TypeError("Argument p should be a sequence")
        self.p = p

    def __call__(self, *args: Any) -> Any:
        return random.choices(self.transforms, weights=self.p)[0](*args)

    def __repr__(self) -> str:
        return f"{super().__repr__()}(p={self.p})"


class _Sometimes(nn.Module):
    """A change that happens with a probability."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def changed(self, img: Any) -> Any:
        """The other picture."""
        raise NotImplementedError

    def forward(self, img: Any) -> Any:
        return self.changed(img) if tenon.rand(1) < self.p else img

    __repr__ = _told("p")


class RandomHorizontalFlip(_Sometimes):
    """functional.hflip, with a probability."""

    def changed(self, img: Any) -> Any:
        return F.hflip(img)


class RandomVerticalFlip(_Sometimes):
    """functional.vflip, with a probability."""

    def changed(self, img: Any) -> Any:
        return F.vflip(img)


class RandomGrayscale(_Sometimes):
    """functional.rgb_to_grayscale, with a probability; as many channels as before."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def changed(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, F.get_image_num_channels(img))


class RandomInvert(_Sometimes):
    """functional.invert, with a probability."""

    def changed(self, img: Any) -> Any:
        return F.invert(img)


class RandomAutocontrast(_Sometimes):
    """functional.autocontrast, with a probability."""

    def changed(self, img: Any) -> Any:
        return F.autocontrast(img)


class RandomEqualize(_Sometimes):
    """functional.equalize, with a probability."""

    def changed(self, img: Any) -> Any:
        return F.equalize(img)


class RandomPosterize(_Sometimes):
    """functional.posterize, with a probability."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def changed(self, img: Any) -> Any:
        return F.posterize(img, self.bits)

    __repr__ = _told("bits", "p", between=",")


class RandomSolarize(_Sometimes):
    """functional.solarize, with a probability."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def changed(self, img: Any) -> Any:
        return F.solarize(img, self.threshold)

    __repr__ = _told("threshold", "p", between=",")


class RandomAdjustSharpness(_Sometimes):
    """functional.adjust_sharpness, with a probability."""

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def changed(self, img: Any) -> Any:
        return F.adjust_sharpness(img, self.sharpness_factor)

    __repr__ = _told("sharpness_factor", "p", between=",")


class Grayscale(nn.Module):
    """functional.rgb_to_grayscale."""

    def __init__(self, num_output_channels: int = 1) -> None:
        super().__init__()
        self.num_output_channels = num_output_channels

    def forward(self, img: Any) -> Any:
        return F.rgb_to_grayscale(img, self.num_output_channels)

    __repr__ = _told("num_output_channels")


class RandomCrop(nn.Module):
    """A part of the picture, anywhere."""

    def __init__(
        self,
        size: Any,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__()
        self.size = tuple(_setup_size(size))
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """(top, left, height, width)."""
        _, h, w = F.get_dimensions(img)
        th, tw = output_size
        if h < th or w < tw:
            raise ValueError(
                f"Required crop size {(th, tw)} is larger than input image size {(h, w)}"
            )
        if w == tw and h == th:
            return 0, 0, h, w
        i = int(tenon.randint(0, h - th + 1, size=(1,)))
        j = int(tenon.randint(0, w - tw + 1, size=(1,)))
        return i, j, th, tw

    def forward(self, img: Any) -> Any:
        if self.padding is not None:
            img = F.pad(img, self.padding, self.fill, self.padding_mode)
        _, height, width = F.get_dimensions(img)
        if self.pad_if_needed and width < self.size[1]:
            img = F.pad(img, [self.size[1] - width, 0], self.fill, self.padding_mode)
        if self.pad_if_needed and height < self.size[0]:
            img = F.pad(img, [0, self.size[0] - height], self.fill, self.padding_mode)
        return F.crop(img, *self.get_params(img, self.size))

    __repr__ = _told("size", "padding")


class RandomResizedCrop(nn.Module):
    """A part of a random size and aspect, brought to a given size."""

    def __init__(
        self,
        size: Any,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        super().__init__()
        self.size = _setup_size(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = mode_of(interpolation)
        self.antialias = antialias

    @staticmethod
    def get_params(img: Any, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, ...]:
        """(top, left, height, width)."""
        _, height, width = F.get_dimensions(img)
        area = height * width
        log_ratio = tenon.log(tenon.tensor(ratio))
        for _ in range(10):
            target = area * tenon.empty(1).uniform_(scale[0], scale[1]).item()
            drawn = tenon.empty(1).uniform_(float(log_ratio[0]), float(log_ratio[1]))
            aspect = drawn.exp().item()
            w = round(math.sqrt(target * aspect))
            h = round(math.sqrt(target / aspect))
            if 0 < w <= width and 0 < h <= height:
                i = int(tenon.randint(0, height - h + 1, size=(1,)))
                j = int(tenon.randint(0, width - w + 1, size=(1,)))
                return i, j, h, w
        # Nothing fitted: the middle, with the nearest aspect.
        w, h = width, height
        if width / height < min(ratio):
            h = round(w / min(ratio))
        elif width / height > max(ratio):
            w = round(h * max(ratio))
        return (height - h) // 2, (width - w) // 2, h, w

    def forward(self, img: Any) -> Any:
        part = self.get_params(img, self.scale, self.ratio)
        return F.resized_crop(img, *part, self.size, self.interpolation, antialias=self.antialias)

    def __repr__(self) -> str:
        ranges = [tuple(round(v, 4) for v in r) for r in (self.scale, self.ratio)]
        return (
            f"{type(self).__name__}(size={self.size}, scale={ranges[0]}, ratio={ranges[1]}, "
            f"interpolation={self.interpolation.value}, antialias={self.antialias})"
        )


class FiveCrop(nn.Module):
    """functional.five_crop."""

    def __init__(self, size: Any) -> None:
        super().__init__()
        self.size = _setup_size(size)

    def forward(self, img: Any) -> Any:
        return F.five_crop(img, self.size)

    __repr__ = _told("size")


class TenCrop(nn.Module):
    """functional.ten_crop."""

    def __init__(self, size: Any, vertical_flip: bool = False) -> None:
        super().__init__()
        self.size = _setup_size(size)
        self.vertical_flip = vertical_flip

    def forward(self, img: Any) -> Any:
        return F.ten_crop(img, self.size, self.vertical_flip)

    __repr__ = _told("size", "vertical_flip")


class ColorJitter(nn.Module):
    """Brightness, contrast, saturation and hue, changed in a random order."""

    def __init__(
        self, brightness: Any = 0, contrast: Any = 0, saturation: Any = 0, hue: Any = 0
    ) -> None:
        super().__init__()
        self.brightness = self._range(brightness, "brightness")
        self.contrast = self._range(contrast, "contrast")
        self.saturation = self._range(saturation, "saturation")
        self.hue = self._range(hue, "hue", 0.0, (-0.5, 0.5), False)

    @staticmethod
    def _range(
        value: Any, name: str, center: float = 1.0, bound: Any = (0, math.inf), first: bool = True
    ) -> Any:
        """The range around the value that changes nothing; None: it is that value alone."""
        if isinstance(value, numbers.Number):
            if value < 0:
                raise ValueError(f"If {name} is a single number, it must be non negative.")
            found = [center - float(value), center + float(value)]
            if first:
                found[0] = max(found[0], 0.0)
        elif isinstance(value, (tuple, list)) and len(value) == 2:
            found = [float(value[0]), float(value[1])]
        else:
            raise TypeError(f"{name} should be a single number or a list/tuple with length 2.")
        if not bound[0] <= found[0] <= found[1] <= bound[1]:
            raise ValueError(f"{name} values should be between {bound}, but got {found}.")
        return None if found[0] == found[1] == center else tuple(found)

    @staticmethod
    def get_params(brightness: Any, contrast: Any, saturation: Any, hue: Any) -> tuple[Any, ...]:
        """The order, and the four factors."""
        order = tenon.randperm(4)
        ranges = (brightness, contrast, saturation, hue)
        return (order, *(None if r is None else uniform(r[0], r[1]) for r in ranges))

    def forward(self, img: Any) -> Any:
        order, *factors = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)
        change = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
        for i in order.tolist():
            if factors[i] is not None:
                img = change[i](img, factors[i])
        return img

    __repr__ = _told("brightness", "contrast", "saturation", "hue")


def _numbers(value: Any, name: str, *counts: int) -> None:
    """Raises unless the value is so many numbers."""
    if not isinstance(value, Sequence):
        raise TypeError(f"{name} should be a sequence of {' or '.join(map(str, counts))} numbers")
    if len(value) not in counts:
        raise ValueError(f"{name} should be {' or '.join(map(str, counts))} numbers")


def _fill(fill: Any) -> Any:
    """What a border shows: numbers."""
    if not isinstance(fill, (Sequence, numbers.Number, type(None))):
        raise TypeError("Fill should be either a sequence or a number.")
    return 0 if fill is None else fill


def _angles(value: Any, name: str, *counts: int) -> list[float]:
    if isinstance(value, numbers.Number):
        if value < 0:
            raise ValueError(f"If {name} is a single number, it must be positive.")
        return [-float(value), float(value)]
    _numbers(value, name, *counts)
    return [float(v) for v in value]


class RandomRotation(nn.Module):
    """functional.rotate by a random angle."""

    def __init__(
        self,
        degrees: Any,
        interpolation: Any = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Any = None,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        self.degrees = _angles(degrees, "degrees", 2)
        if center is not None:
            _numbers(center, "center", 2)
        self.interpolation = mode_of(interpolation)
        self.expand = expand
        self.center = center
        self.fill = _fill(fill)

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        """The angle."""
        return uniform(degrees[0], degrees[1])

    def forward(self, img: Any) -> Any:
        angle = self.get_params(self.degrees)
        return F.rotate(img, angle, self.interpolation, self.expand, self.center, self.fill)

    __repr__ = _told("degrees", "interpolation", "expand", "center?", "fill")


class RandomAffine(nn.Module):
    """functional.affine with random numbers."""

    def __init__(
        self,
        degrees: Any,
        translate: Any = None,
        scale: Any = None,
        shear: Any = None,
        interpolation: Any = InterpolationMode.NEAREST,
        fill: Any = 0,
        center: Any = None,
    ) -> None:
        super().__init__()
        self.degrees = _angles(degrees, "degrees", 2)
        for name, given in (("translate", translate), ("scale", scale), ("center", center)):
            if given is not None:
                _numbers(given, name, 2)
        if translate is not None and not all(0.0 <= t <= 1.0 for t in translate):
            raise ValueError("translation values should be between 0 and 1")
        if scale is not None and not all(s > 0 for s in scale):
            raise ValueError("scale values should be positive")
        self.translate = translate
        self.scale = scale
        self.shear = None if shear is None else _angles(shear, "shear", 2, 4)
        self.interpolation = mode_of(interpolation)
        self.fill = _fill(fill)
        self.center = center

    @staticmethod
    def get_params(
        degrees: Any, translate: Any, scale_ranges: Any, shears: Any, img_size: Sequence[int]
    ) -> tuple[Any, ...]:
        """(angle, translations, scale, shears)."""
        angle = uniform(degrees[0], degrees[1])
        moves = (0, 0)
        if translate is not None:
            reach = [float(t * s) for t, s in zip(translate, img_size)]
            moves = tuple(round(uniform(-r, r)) for r in reach)
        scale = 1.0 if scale_ranges is None else uniform(scale_ranges[0], scale_ranges[1])
        across = down = 0.0
        if shears is not None:
            across = uniform(shears[0], shears[1])
            down = uniform(shears[2], shears[3]) if len(shears) == 4 else 0.0
        return angle, moves, scale, (across, down)

    def forward(self, img: Any) -> Any:
        size = F.get_image_size(img)
        drawn = self.get_params(self.degrees, self.translate, self.scale, self.shear, size)
        return F.affine(
            img, *drawn, interpolation=self.interpolation, fill=self.fill, center=self.center
        )

    __repr__ = _told(
        "degrees", "translate?", "scale?", "shear?", "interpolation?", "fill?", "center?"
    )


class RandomErasing(nn.Module):
    """Other values in a random part of a tensor, with a probability."""

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: Any = 0,
        inplace: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(value, (numbers.Number, str, tuple, list)):
            raise TypeError("Argument value should be either a number or str or a sequence")
        if isinstance(value, str) and value != "random":
            raise ValueError("If value is str, it should be 'random'")
        for name, given in (("Scale", scale), ("Ratio", ratio)):
            if not isinstance(given, Sequence):
                raise TypeError(f"{name} should be a sequence")
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            warnings.warn("Scale and ratio should be of kind (min, max)", stacklevel=2)
        if scale[0] < 0 or scale[1] > 1:
            raise ValueError("Scale should be between 0 and 1")
        if not 0 <= p <= 1:
            raise ValueError("Random erasing probability should be between 0 and 1")
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    @staticmethod
    def get_params(img: Tensor, scale: Any, ratio: Any, value: Any = None) -> tuple[Any, ...]:
        """(top, left, height, width, values)."""
        channels, height, width = img.shape[-3:]
        log_ratio = tenon.log(tenon.tensor(ratio))
        for _ in range(10):
            target = height * width * tenon.empty(1).uniform_(scale[0], scale[1]).item()
            drawn = tenon.empty(1).uniform_(float(log_ratio[0]), float(log_ratio[1]))
            aspect = drawn.exp().item()
            h, w = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if not (h < height and w < width):
                continue
            if value is None:
                v = tenon.empty([channels, h, w], dtype=tenon.float32).normal_()
            else:
                v = tenon.tensor(value)[:, None, None]
            i = int(tenon.randint(0, height - h + 1, size=(1,)))
            j = int(tenon.randint(0, width - w + 1, size=(1,)))
            return i, j, h, w, v
        return 0, 0, height, width, img

    def forward(self, img: Tensor) -> Tensor:
        if tenon.rand(1) >= self.p:
            return img
        if isinstance(self.value, (int, float)):
            value: Any = [float(self.value)]
        else:
            value = None if isinstance(self.value, str) else [float(v) for v in self.value]
        if value is not None and len(value) not in (1, img.shape[-3]):
            raise ValueError(
                f"If value is a sequence, it should have one value or {img.shape[-3]} (number of "
                "input channels)"
            )
        part = self.get_params(img, self.scale, self.ratio, value)
        return F.erase(img, *part, self.inplace)

    __repr__ = _told("p", "scale", "ratio", "value", "inplace")


class GaussianBlur(nn.Module):
    """functional.gaussian_blur of a random width."""

    def __init__(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        super().__init__()
        self.kernel_size = _setup_size(kernel_size, "Kernel size should be a tuple/list of two")
        if any(k <= 0 or k % 2 == 0 for k in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        if isinstance(sigma, numbers.Number):
            sigma = (float(sigma), float(sigma))
        if not 0.0 < sigma[0] <= sigma[1]:
            raise ValueError("sigma values should be positive and of the form (min, max).")
        self.sigma = sigma

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        """The width."""
        return uniform(sigma_min, sigma_max)

    def forward(self, img: Any) -> Any:
        sigma = self.get_params(self.sigma[0], self.sigma[1])
        return F.gaussian_blur(img, self.kernel_size, [sigma, sigma])

    __repr__ = _told("kernel_size", "sigma")
