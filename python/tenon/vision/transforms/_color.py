"""Colors of pictures."""

from __future__ import annotations

from typing import Any

import tenon
from tenon import Tensor
from tenon.nn import functional as F
from tenon.vision.transforms._geometry import check, is_pil


def _top(img: Tensor) -> float:
    """The largest value that a picture of this dtype has."""
    return 1.0 if img.is_floating_point() else float(tenon.iinfo(img.dtype).max)


def _colors(img: Any, least: int = 2) -> None:
    """Raises for what is no picture of one or three channels."""
    check(img)
    if is_pil(img):
        return
    if img.ndim < least:
        raise TypeError(f"A picture should have at least {least} dimensions, not {img.ndim}")
    channels = img.shape[-3] if img.ndim > 2 else 1
    if channels not in (1, 3):
        raise TypeError(f"A picture should have 1 or 3 channels here, not {channels}")


def _blend(img: Tensor, other: Any, ratio: float) -> Tensor:
    """ratio of img, the rest of the other picture."""
    return (ratio * img + (1.0 - ratio) * other).clamp(0, _top(img)).to(img.dtype)


def _enhanced(img: Any, kind: str, factor: float) -> Any:
    from PIL import ImageEnhance

    return getattr(ImageEnhance, kind)(img).enhance(factor)


def _not_negative(factor: float, name: str) -> None:
    if factor < 0:
        raise ValueError(f"{name} ({factor}) is not non-negative.")


def _gray(img: Tensor) -> Tensor:
    red, green, blue = img.unbind(-3)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).to(img.dtype).unsqueeze(-3)


def rgb_to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """Without colors. A tensor of one channel stays one, whatever num_output_channels is."""
    _colors(img, 3)
    if is_pil(img):
        return to_grayscale(img, num_output_channels)
    if num_output_channels not in (1, 3):
        raise ValueError("num_output_channels should be either 1 or 3")
    gray = _gray(img) if img.shape[-3] == 3 else img.clone()
    return gray.expand(img.shape) if num_output_channels == 3 else gray


def to_grayscale(img: Any, num_output_channels: int = 1) -> Any:
    """A picture of Pillow's without colors."""
    if not is_pil(img):
        raise TypeError("Input should be PIL Image")
    gray = img.convert("L")
    if num_output_channels == 1:
        return gray
    if num_output_channels != 3:
        raise ValueError("num_output_channels should be either 1 or 3")
    from PIL import Image

    return Image.merge("RGB", (gray, gray, gray))


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """0 gives black, 1 the picture."""
    _colors(img)
    if is_pil(img):
        return _enhanced(img, "Brightness", brightness_factor)
    _not_negative(brightness_factor, "brightness_factor")
    return _blend(img, 0.0, brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """0 gives gray, 1 the picture."""
    _colors(img)
    if is_pil(img):
        return _enhanced(img, "Contrast", contrast_factor)
    _not_negative(contrast_factor, "contrast_factor")
    kind = img.dtype if img.is_floating_point() else tenon.float32
    gray = _gray(img) if img.shape[-3] == 3 else img
    mean = gray.to(kind).mean((-3, -2, -1), keepdim=True)
    return _blend(img, mean, contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """0 gives a picture without colors, 1 the picture."""
    _colors(img)
    if is_pil(img):
        return _enhanced(img, "Color", saturation_factor)
    _not_negative(saturation_factor, "saturation_factor")
    return img if img.shape[-3] == 1 else _blend(img, _gray(img), saturation_factor)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """gain * value ** gamma, for values in 0..1."""
    _colors(img)
    _not_negative(gamma, "gamma")
    if is_pil(img):
        table = [int((255 + 1 - 1e-3) * gain * pow(v / 255.0, gamma)) for v in range(256)]
        return img.convert("RGB").point(table * 3).convert(img.mode)
    from tenon.vision.transforms.functional import convert_image_dtype

    kind = img.dtype
    values = img if img.is_floating_point() else convert_image_dtype(img, tenon.float32)
    return convert_image_dtype((gain * values**gamma).clamp(0, 1), kind)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Colors turned by a part of a circle, -0.5 to 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    _colors(img, 3)
    if is_pil(img):
        if img.mode in ("L", "1", "I", "F"):
            return img
        from PIL import Image

        h, s, v = img.convert("HSV").split()
        h = h.point([(n + int(hue_factor * 255)) % 256 for n in range(256)])
        return Image.merge("HSV", (h, s, v)).convert(img.mode)
    if img.shape[-3] == 1:
        return img
    from tenon.vision.transforms.functional import convert_image_dtype

    kind = img.dtype
    hue, saturation, value = _hsv(convert_image_dtype(img, tenon.float32))
    return convert_image_dtype(_rgb((hue + hue_factor) % 1.0, saturation, value), kind)


def _hsv(img: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r, g, b = img.unbind(-3)
    most, least = img.max(-3).values, img.min(-3).values
    flat = most == least
    spread = most - least
    one = tenon.ones_like(most)
    saturation = spread / tenon.where(flat, one, most)
    divisor = tenon.where(flat, one, spread)
    rc, gc, bc = (most - r) / divisor, (most - g) / divisor, (most - b) / divisor
    hue = (most == r) * (bc - gc)
    hue = hue + ((most == g) & (most != r)) * (2.0 + rc - bc)
    hue = hue + ((most != g) & (most != r)) * (4.0 + gc - rc)
    return (hue / 6.0 + 1.0).fmod(1.0), saturation, most


def _rgb(h: Tensor, s: Tensor, v: Tensor) -> Tensor:
    sector = (h * 6.0).floor()
    f = h * 6.0 - sector
    p = (v * (1.0 - s)).clamp(0.0, 1.0)
    q = (v * (1.0 - s * f)).clamp(0.0, 1.0)
    t = (v * (1.0 - s * (1.0 - f))).clamp(0.0, 1.0)
    index = (sector.long() % 6).unsqueeze(0)
    channels = ((v, q, p, p, t, v), (t, v, v, q, p, p), (p, p, t, v, v, q))
    return tenon.stack([tenon.stack(c).gather(0, index)[0] for c in channels], dim=-3)


def invert(img: Any) -> Any:
    """Light and dark swapped."""
    _colors(img, 3)
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.invert(img)
    return _top(img) - img if img.is_floating_point() else int(_top(img)) - img


def posterize(img: Any, bits: int) -> Any:
    """The first bits of each value."""
    _colors(img, 3)
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.posterize(img, bits)
    if img.dtype != tenon.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    return img & (-(1 << (8 - bits)) & 255)


def solarize(img: Any, threshold: float) -> Any:
    """Values from the threshold on inverted."""
    _colors(img, 3)
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.solarize(img, threshold)
    if threshold > _top(img):
        raise TypeError(f"The threshold should not exceed {_top(img)}, the largest value")
    return tenon.where(img >= threshold, invert(img), img)


def autocontrast(img: Any) -> Any:
    """Each channel spread over all values."""
    _colors(img, 3)
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.autocontrast(img)
    top = _top(img)
    kind = img.dtype if img.is_floating_point() else tenon.float32
    low, high = (f(dim=(-2, -1), keepdim=True).to(kind) for f in (img.amin, img.amax))
    scale = top / (high - low)
    flat = high == low
    low = tenon.where(flat, 0.0, low)
    scale = tenon.where(flat, 1.0, scale)
    return ((img - low) * scale).clamp(0, top).to(img.dtype)


def equalize(img: Any) -> Any:
    """Each channel with as many of one value as of another."""
    _colors(img, 3)
    if is_pil(img):
        from PIL import ImageOps

        return ImageOps.equalize(img)
    if img.dtype != tenon.uint8:
        raise TypeError(f"Only torch.uint8 image tensors are supported, but found {img.dtype}")
    return tenon.stack([_equalized(c) for c in img.reshape(-1, *img.shape[-2:])]).reshape(img.shape)


def _equalized(channel: Tensor) -> Tensor:
    counts = tenon.bincount(channel.flatten().long(), minlength=256)
    used = counts[counts != 0]
    step = int(used[:-1].sum()) // 255
    if step == 0:
        return channel
    table = (counts.cumsum(0) + step // 2) // step
    table = F.pad(table, [1, 0])[:-1].clamp(0, 255).to(tenon.uint8)
    return table[channel.long()]


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """0 gives a blurred picture, 1 the picture."""
    _colors(img)
    if is_pil(img):
        return _enhanced(img, "Sharpness", sharpness_factor)
    _not_negative(sharpness_factor, "sharpness_factor")
    if img.shape[-1] <= 2 or img.shape[-2] <= 2:
        return img
    kernel = tenon.ones(3, 3)
    kernel[1, 1] = 5.0
    soft = _convolved(img, kernel / kernel.sum())
    blurred = img.clone()
    blurred[..., 1:-1, 1:-1] = soft
    return _blend(img, blurred, sharpness_factor)


def _convolved(img: Tensor, kernel: Tensor) -> Tensor:
    """Each channel by itself, without a border."""
    from tenon.vision.transforms._geometry import computed

    channels = img.shape[-3]
    weight = kernel.expand(channels, 1, *kernel.shape)
    return computed(img, lambda x: F.conv2d(x, weight.to(x.dtype), groups=channels))


def _bell(size: int, sigma: float) -> Tensor:
    half = (size - 1) * 0.5
    x = tenon.linspace(-half, half, steps=size)
    weights = (-0.5 * (x / sigma).pow(2)).exp()
    return weights / weights.sum()


def gaussian_blur(img: Any, kernel_size: Any, sigma: Any = None) -> Any:
    """Blurred by a bell curve; its width follows from the kernel's size where none is given."""
    from tenon.vision.transforms.functional import pad, pil_to_tensor, to_pil_image

    check(img)
    if not isinstance(kernel_size, (int, list, tuple)):
        raise TypeError(f"kernel_size should be one number or two, not {kernel_size!r}")
    sizes = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if sigma is None:
        sigma = [k * 0.15 + 0.35 for k in sizes]
    if not isinstance(sigma, (int, float, list, tuple)):
        raise TypeError(f"sigma should be a number or two, not a {type(sigma).__name__}")
    sigmas = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else [float(s) for s in sigma]
    sigmas = sigmas * 2 if len(sigmas) == 1 else sigmas
    if len(sizes) != 2 or len(sigmas) != 2:
        raise ValueError(f"Two sizes and two sigmas are needed, not {sizes} and {sigmas}")
    for k, s in zip(sizes, sigmas):
        if k % 2 == 0 or k < 0:
            raise ValueError(f"kernel_size should have odd and positive integers. Got {sizes}")
        if s <= 0.0:
            raise ValueError(f"sigma should have positive values. Got {sigmas}")
    if is_pil(img):
        return to_pil_image(gaussian_blur(pil_to_tensor(img), sizes, sigmas), img.mode)
    kernel = _bell(sizes[1], sigmas[1]).unsqueeze(1) @ _bell(sizes[0], sigmas[0]).unsqueeze(0)
    wide = pad(img, [sizes[0] // 2, sizes[1] // 2], padding_mode="reflect")
    return _convolved(wide, kernel)
