"""tenon.vision against Pillow, NumPy, plain loops, and itself: pictures of Pillow's and tensors."""

from __future__ import annotations

import gzip
import pickle

import numpy as np
import pytest
import tenon as tn
from tenon.utils.flop_counter import FlopCounterMode
from tenon.vision import datasets, io, models, ops, utils
from tenon.vision import transforms as T
from tenon.vision.transforms import functional as F

Image = pytest.importorskip("PIL.Image", reason="no Pillow")
ImageOps = pytest.importorskip("PIL.ImageOps", reason="no Pillow")


def picture(h: int = 37, w: int = 50) -> tn.Tensor:
    tn.manual_seed(0)
    return tn.randint(0, 256, (3, h, w), dtype=tn.uint8)


SAME = [
    "F.crop(x, -2, 3, 10, 60)", "F.center_crop(x, [15, 70])", "F.center_crop(x, 10)", "F.hflip(x)",
    "F.vflip(x)", "F.pad(x, [1, 2, 3, 4], fill=3)", "F.pad(x, 5, padding_mode='reflect')",
    "F.five_crop(x, 9)[3]", "F.ten_crop(x, 9)[7]", "F.invert(x)", "F.posterize(x, 3)",
    "F.solarize(x, 100)", "F.equalize(x)",
    "F.resize(x, (40, 60), T.InterpolationMode.NEAREST_EXACT)",
]  # fmt: skip
NEAR = [
    "F.resize(x, 16)", "F.resize(x, (9, 60), T.InterpolationMode.BICUBIC)",
    "F.adjust_brightness(x, 1.3)", "F.adjust_contrast(x, 0.6)", "F.adjust_saturation(x, 1.6)",
    "F.rgb_to_grayscale(x, 3)", "F.autocontrast(x)",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME + NEAR)
def test_tensors_are_treated_as_pillow_does(text):
    x = picture()
    names = {"F": F, "T": T}
    got = eval(text, {**names, "x": x}).numpy()
    want = np.array(eval(text, {**names, "x": F.to_pil_image(x)})).transpose(2, 0, 1)
    assert got.shape == want.shape
    room = 2 if text in NEAR else 0
    assert np.abs(got.astype(int) - want.astype(int)).max() <= room


def test_turns_of_quarters_are_turns_of_the_array():
    x = tn.rand(3, 9, 9)
    for count in range(4):
        for mode in (T.InterpolationMode.NEAREST, T.InterpolationMode.BILINEAR):
            got = F.rotate(x, 90.0 * count, mode)
            np.testing.assert_allclose(got.numpy(), np.rot90(x.numpy(), count, (1, 2)), atol=1e-5)
    moved = F.affine(x, 0, [2, -1], 1.0, [0.0, 0.0], fill=0.5)
    np.testing.assert_allclose(moved[:, :8, 2:].numpy(), x[:, 1:, :7].numpy(), atol=1e-6)
    assert (moved[:, 8] == 0.5).all()


def test_hue_is_that_of_the_color_circle():
    import colorsys

    x = tn.rand(3, 4, 5)
    got = F.adjust_hue(x, 0.2).numpy()
    for i in np.ndindex(4, 5):
        h, s, v = colorsys.rgb_to_hsv(*x[:, i[0], i[1]].tolist())
        want = colorsys.hsv_to_rgb((h + 0.2) % 1, s, v)
        np.testing.assert_allclose(got[:, i[0], i[1]], want, atol=1e-5)


def test_conversions():
    x = picture()
    back = F.pil_to_tensor(F.to_pil_image(x))
    assert back.equal(x) and F.to_tensor(F.to_pil_image(x)).equal(x.float() / 255)
    assert F.convert_image_dtype(F.convert_image_dtype(x), tn.uint8).equal(x)
    assert F.convert_image_dtype(x, tn.int16).max() == int(x.max()) * 128
    y = F.normalize(x.float(), [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert float(y[2, 0, 0]) == pytest.approx((float(x[2, 0, 0]) - 3) / 6)
    with pytest.raises(TypeError, match="float tensor"):
        F.normalize(x, [0.0], [1.0])
    with pytest.raises(TypeError, match="Unexpected type"):
        F.hflip([1, 2])


def test_random_transforms_keep_what_they_promise():
    tn.manual_seed(0)
    x = picture()
    assert T.RandomCrop(20, padding=2)(x).shape == (3, 20, 20)
    assert T.RandomResizedCrop((24, 20))(F.to_pil_image(x)).size == (20, 24)
    flips = [T.RandomHorizontalFlip(0.3)(x).equal(x) for _ in range(300)]
    assert 170 < sum(flips) < 250
    assert T.RandomGrayscale(1.0)(x)[0].equal(T.RandomGrayscale(1.0)(x)[2])
    erased = T.RandomErasing(1.0, value=7)(x.float())
    share = float((erased == 7).all(0).float().mean())
    assert 0.005 < share < 0.4
    steps = T.Compose([T.ToPILImage(), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.ToTensor()])
    assert steps(x).shape == x.shape and "ColorJitter(" in repr(steps)
    assert T.RandomApply([T.RandomVerticalFlip(1.0)], 1.0)(x).equal(x.flip(1))


def boxes(n: int) -> tn.Tensor:
    t = tn.rand(n, 4) * 10
    t[:, 2:] += t[:, :2]
    return t


def iou(a, b):
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    inter = max(w, 0) * max(h, 0)
    area = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    return inter / (area[0] + area[1] - inter)


def test_boxes():
    tn.manual_seed(0)
    a, b = boxes(6), boxes(5)
    want = [[iou(p, q) for q in b.tolist()] for p in a.tolist()]
    np.testing.assert_allclose(ops.box_iou(a, b).numpy(), want, rtol=1e-4, atol=1e-6)
    for fmt in ("xywh", "cxcywh"):
        there = ops.box_convert(a, "xyxy", fmt)
        np.testing.assert_allclose(
            ops.box_convert(there, fmt, "xyxy").numpy(), a.numpy(), rtol=1e-5
        )
    apart = tn.tensor([[0.0, 0, 1, 1], [3, 0, 4, 1]])
    assert float(ops.generalized_box_iou(apart[:1], apart[1:])) == pytest.approx(-0.5)
    assert float(ops.distance_box_iou(apart[:1], apart[1:])) == pytest.approx(-9 / 17)
    assert ops.clip_boxes_to_image(tn.tensor([[-1.0, 2, 9, 4]]), (3, 5)).tolist() == [[0, 2, 5, 3]]
    masks = tn.zeros(1, 5, 6)
    masks[0, 1:3, 2:5] = 1
    assert ops.masks_to_boxes(masks).tolist() == [[2, 1, 4, 2]]


def test_suppression_is_the_loop_over_ranks():
    tn.manual_seed(0)
    t, scores, classes = boxes(40), tn.rand(40), tn.randint(0, 3, (40,))

    def loop(members):
        keep = []
        for i in sorted(members, key=lambda i: -float(scores[i])):
            if all(iou(t[i].tolist(), t[j].tolist()) <= 0.3 for j in keep):
                keep.append(i)
        return keep

    assert ops.nms(t, scores, 0.3).tolist() == loop(range(40))
    each = [k for c in range(3) for k in loop([i for i in range(40) if classes[i] == c])]
    assert sorted(ops.batched_nms(t, scores, classes, 0.3).tolist()) == sorted(each)
    with pytest.raises(RuntimeError, match="same number of elements"):
        ops.nms(t, scores[:3], 0.5)


def test_regions_are_means_of_samples():
    # Of a plane, samples are exact and means lie in the middle of a cell.
    y, x = tn.meshgrid(tn.arange(12.0), tn.arange(16.0), indexing="ij")
    plane = (2 * x - 3 * y).expand(1, 1, 12, 16).clone().requires_grad_()
    rois = tn.tensor([[0.0, 2.0, 1.0, 10.0, 7.0]])
    got = ops.roi_align(plane, rois, (3, 4), 1.0, 2, aligned=True)
    middle_x = 2 - 0.5 + 8 / 4 * (np.arange(4) + 0.5)
    middle_y = 1 - 0.5 + 6 / 3 * (np.arange(3) + 0.5)
    want = 2 * middle_x[None] - 3 * middle_y[:, None]
    np.testing.assert_allclose(got[0, 0].detach().numpy(), want, rtol=1e-5)
    got.sum().backward()
    assert float(plane.grad.sum()) == pytest.approx(12.0)
    listed = ops.roi_align(plane, [rois[:, 1:]], (3, 4), 1.0, -1, aligned=True)
    np.testing.assert_allclose(listed[0, 0].detach().numpy(), want, rtol=1e-5)


def test_layers():
    frozen, bn = ops.FrozenBatchNorm2d(3), tn.nn.BatchNorm2d(3).eval()
    tn.manual_seed(0)
    for t in (bn.weight.data, bn.bias.data, bn.running_mean, bn.running_var):
        t.uniform_(0.5, 1.5)
    frozen.load_state_dict(bn.state_dict())
    x = tn.randn(2, 3, 4, 4)
    np.testing.assert_allclose(frozen(x).numpy(), bn(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert not list(frozen.parameters())
    loss = ops.sigmoid_focal_loss(x, (x > 0).float(), alpha=-1, gamma=0)
    want = tn.nn.functional.binary_cross_entropy_with_logits(x, (x > 0).float(), reduction="none")
    assert tn.allclose(loss, want)
    kept = ops.stochastic_depth(tn.ones(1000, 2), 0.25, "row")
    assert kept.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert kept[:, 0].equal(kept[:, 1])


# Parameters, and thousands of millions of products of one picture, as torchvision publishes them.
PUBLISHED = {
    "alexnet": (61_100_840, 0.714), "googlenet": (6_624_904, 1.498),
    "inception_v3": (27_161_264, 5.713),
    "densenet121": (7_978_856, 2.834), "densenet161": (28_681_000, 7.728),
    "densenet169": (14_149_480, 3.36), "densenet201": (20_013_928, 4.291),
    "efficientnet_b0": (5_288_548, 0.386), "efficientnet_b1": (7_794_184, 0.687),
    "efficientnet_b2": (9_109_994, 1.088), "efficientnet_b3": (12_233_232, 1.827),
    "efficientnet_b4": (19_341_616, 4.394), "efficientnet_b5": (30_389_784, 10.266),
    "efficientnet_b6": (43_040_704, 19.068), "efficientnet_b7": (66_347_960, 37.746),
    "efficientnet_v2_s": (21_458_488, 8.366), "efficientnet_v2_m": (54_139_356, 24.582),
    "efficientnet_v2_l": (118_515_272, 56.08),
    "mobilenet_v2": (3_504_872, 0.301), "mobilenet_v3_large": (5_483_032, 0.217),
    "mobilenet_v3_small": (2_542_856, 0.057),
    "resnet18": (11_689_512, 1.814), "resnet34": (21_797_672, 3.664),
    "resnet50": (25_557_032, 4.089), "resnet101": (44_549_160, 7.801),
    "resnet152": (60_192_808, 11.514), "resnext50_32x4d": (25_028_904, 4.23),
    "resnext101_32x8d": (88_791_336, 16.414), "resnext101_64x4d": (83_455_272, 15.46),
    "wide_resnet50_2": (68_883_240, 11.398), "wide_resnet101_2": (126_886_696, 22.753),
    "shufflenet_v2_x0_5": (1_366_792, 0.04), "shufflenet_v2_x1_0": (2_278_604, 0.145),
    "shufflenet_v2_x1_5": (3_503_624, 0.296), "shufflenet_v2_x2_0": (7_393_996, 0.583),
    "squeezenet1_0": (1_248_424, 0.819), "squeezenet1_1": (1_235_496, 0.349),
    "vgg11": (132_863_336, 7.609), "vgg11_bn": (132_868_840, 7.609),
    "vgg13": (133_047_848, 11.308), "vgg13_bn": (133_053_736, 11.308),
    "vgg16": (138_357_544, 15.47), "vgg16_bn": (138_365_992, 15.47),
    "vgg19": (143_667_240, 19.632), "vgg19_bn": (143_678_248, 19.632),
    "vit_b_16": (86_567_656, 17.564), "vit_b_32": (88_224_232, 4.409),
    "vit_l_16": (304_326_632, 61.555), "vit_l_32": (306_535_400, 15.378),
    "vit_h_14": (632_045_800, 167.295),
}  # fmt: skip
OF_PICTURES = {
    "inception_v3": 299, "efficientnet_b1": 240, "efficientnet_b2": 288, "efficientnet_b3": 300,
    "efficientnet_b4": 380, "efficientnet_b5": 456, "efficientnet_b6": 528, "efficientnet_b7": 600,
    "efficientnet_v2_s": 384, "efficientnet_v2_m": 480, "efficientnet_v2_l": 480,
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_models_have_the_published_sizes(name):
    size = OF_PICTURES.get(name, 224)
    options = {"googlenet": {"aux_logits": False, "init_weights": False},
               "inception_v3": {"init_weights": False}}  # fmt: skip
    with tn.device("meta"):
        model = models.get_model(name, **options.get(name, {})).eval()
        with FlopCounterMode(display=False) as counted:
            assert model(tn.empty(1, 3, size, size)).shape == (1, 1000)
    count = sum(p.numel() for p in model.parameters())
    assert (count, round(counted.get_total_flops() / 2e9, 3)) == PUBLISHED[name]


def test_every_model_is_published():
    assert models.list_models() == sorted(PUBLISHED)


@pytest.mark.parametrize("kind", ["AlexNet", "SqueezeNet", "DenseNet", "GoogLeNet", "Inception3"])
def test_models_of_classes_have_a_thousand_classes(kind):
    with tn.device("meta"):
        more = {"init_weights": False} if kind in ("GoogLeNet", "Inception3") else {}
        last = [p for p in getattr(models, kind)(**more).parameters()][-1]
    assert last.shape == (1000,)


@pytest.mark.parametrize("name", ["googlenet", "inception_v3"])
@pytest.mark.parametrize("asked", [True, False])
def test_published_weights_bring_classes_of_the_middle_if_asked(name, asked, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    model = models.get_model(name, aux_logits=True, init_weights=False, num_classes=10)
    file = {"googlenet": "googlenet-1.pth", "inception_v3": "inception_v3_google-1.pth"}[name]
    tn.save(model.state_dict(), tmp_path / "hub" / "checkpoints" / file)
    loaded = models.get_model(name, weights="DEFAULT", num_classes=10, aux_logits=asked)
    assert loaded.aux_logits == asked and loaded.transform_input
    have = {k for k in model.state_dict() if asked or not k.lower().startswith("aux")}
    assert loaded.state_dict().keys() == have


def test_a_model_trains(tmp_path, monkeypatch):
    tn.manual_seed(0)
    model = models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=3)
    assert "layer2.0.downsample.0.weight" in model.state_dict()
    x, y = tn.randn(6, 3, 32, 32), tn.tensor([0, 1, 2, 0, 1, 2])
    optimizer = tn.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(6):
        loss = tn.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
    vit = models.VisionTransformer(16, 8, 1, 2, 8, 16, num_classes=3)
    assert vit(tn.rand(2, 3, 16, 16)).shape == (2, 3)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"squeezenet1_1-\*\.pth into"):
        models.squeezenet1_1(weights="DEFAULT")
    assert "vgg16_bn" in models.list_models()


def test_grids():
    x = tn.arange(7 * 2 * 3, dtype=tn.float32).view(7, 1, 2, 3)
    grid = utils.make_grid(x, nrow=3, padding=1, pad_value=-1)
    assert grid.shape == (3, 10, 13) and (grid[:, 0] == -1).all()
    assert grid[1, 4:6, 5:8].equal(x[4, 0])
    low = utils.make_grid(x, normalize=True)
    assert float(low.min()) == 0 and float(low.max()) == 1


def test_files_of_pictures(tmp_path):
    x = picture()
    io.write_png(x, tmp_path / "a.png")
    assert io.read_image(str(tmp_path / "a.png")).equal(x)
    assert io.decode_image(io.encode_png(x[:1])).equal(x[:1])
    assert io.read_image(tmp_path / "a.png", io.ImageReadMode.GRAY).shape == (1, 37, 50)
    assert (io.decode_jpeg(io.encode_jpeg(x, 95)).shape) == x.shape
    utils.save_image(x.float() / 255, tmp_path / "b.png")
    assert io.read_image(tmp_path / "b.png").equal(x)


def test_data_sets(tmp_path):
    raw = tmp_path / "MNIST" / "raw"
    with pytest.raises(RuntimeError, match="train-images-idx3-ubyte.*MNIST/raw"):
        datasets.MNIST(tmp_path)
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    pixels, labels = rng.integers(0, 256, (5, 28, 28), np.uint8), np.arange(5, dtype=np.uint8)
    head = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in pixels.shape)
    with gzip.open(raw / "train-images-idx3-ubyte.gz", "wb") as file:
        file.write(head + pixels.tobytes())
    (raw / "train-labels-idx1-ubyte").write_bytes(
        b"\0\0\x08\x01" + (5).to_bytes(4, "big") + labels.tobytes()
    )
    data = datasets.MNIST(tmp_path, transform=T.ToTensor())
    x, y = data[3]
    assert y == 3 and np.array_equal((x[0] * 255).round().numpy(), pixels[3]) and len(data) == 5
    assert "Split: Train" in repr(data)
    for missing in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
            (raw / name).unlink(missing_ok=True)
            if name != missing:
                (raw / name).write_bytes(b"\0\0\x08\x01" + (0).to_bytes(4, "big"))
        with pytest.raises(RuntimeError, match="t10k-images-idx3-ubyte.*MNIST/raw"):
            datasets.MNIST(tmp_path, train=False)
    (raw / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + (9).to_bytes(4, "big"))
    with pytest.raises(ValueError, match="holds 0 numbers, not 9"):
        datasets.MNIST(tmp_path)

    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    rows = rng.integers(0, 256, (2, 3072), np.uint8)
    for name in (*datasets.CIFAR10.train_list, "test_batch"):
        (folder / name).write_bytes(pickle.dumps({"data": rows, "labels": [4, 7]}, protocol=2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))
    cifar = datasets.CIFAR10(tmp_path)
    image, target = cifar[1]
    assert target == 7 and len(cifar) == 10 and cifar.class_to_idx["c"] == 2
    assert np.array_equal(np.array(image), rows[1].reshape(3, 32, 32).transpose(1, 2, 0))
    (folder / "test_batch").write_bytes(pickle.dumps(tn.nn.Linear))
    with pytest.raises(pickle.UnpicklingError, match="has no place"):
        datasets.CIFAR10(tmp_path, train=False)

    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        io.write_png(picture(4, 4), tmp_path / "pets" / name / "1.png")
    pets = datasets.ImageFolder(tmp_path / "pets")
    assert pets.classes == ["cat", "dog"] and pets[1][1] == 1 and pets[1][0].size == (4, 4)
    fake = datasets.FakeData(4, (3, 8, 8), transform=T.ToTensor())
    assert fake[2][0].equal(fake[2][0]) and not fake[2][0].equal(fake[3][0])
    loader = tn.utils.data.DataLoader(fake, batch_size=2)
    assert [b[0].shape for b in loader] == [(2, 3, 8, 8)] * 2


def test_conversions_of_the_second_form():
    from tenon.vision.transforms import v2

    picture = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    image = v2.ToImage()(picture)
    assert image.tolist() == picture.transpose(2, 0, 1).tolist()
    assert v2.functional.to_image(picture[..., 0]).tolist() == [picture[..., 0].tolist()]
    scaled = v2.ToDtype(tn.float32, scale=True)(image)
    np.testing.assert_allclose(scaled.numpy(), image.numpy() / 255.0, rtol=1e-6)
    assert v2.functional.to_dtype(image, tn.float64).tolist() == image.tolist()


@pytest.mark.parametrize("mode", ["RGB", "HSV", "YCbCr", "RGBA", "CMYK", "RGBX", "LA"])
def test_the_mode_of_a_picture_says_what_its_channels_are(mode):
    """They are not converted; a blurred picture has the mode that it had."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    x = (tn.arange(20 * bands) * 11 % 256).to(tn.uint8).view(bands, 4, 5)
    got = F.to_pil_image(x, mode)
    assert (got.mode, got.size) == (mode, (5, 4)) and F.pil_to_tensor(got).equal(x)
    assert F.to_pil_image(x.permute(1, 2, 0).numpy(), mode) == got
    blurred = F.gaussian_blur(got, 3, 0.7)
    assert blurred.mode == mode
    assert F.pil_to_tensor(blurred).equal(F.gaussian_blur(x, 3, 0.7))


@pytest.mark.parametrize(("make", "mode", "error"), [
    (lambda: tn.zeros(1, 2, 2), "RGB", r"Incorrect mode \(RGB\).*uint8. Should be L"),
    (lambda: tn.zeros(1, 2, 2), "F", None),
    (lambda: tn.zeros(1, 2, 2, dtype=tn.int32), "L", r"Incorrect mode \(L\).*int32. Should be I"),
    (lambda: tn.zeros(3, 2, 2), "CMYK", r"Only modes \['RGB', 'YCbCr', 'HSV'\]"),
    (lambda: tn.zeros(2, 2, 2), "RGB", r"Only modes \['LA'\]"),
    (lambda: np.zeros((2, 2, 5), np.uint8), None, "should not have > 4 channels. Got 5"),
])  # fmt: skip
def test_modes_that_do_not_fit_are_refused(make, mode, error):
    if error is None:
        assert F.to_pil_image(make(), mode).mode == mode
        return
    with pytest.raises(ValueError, match=error):
        F.to_pil_image(make(), mode)
    with pytest.raises(TypeError, match="Input type float64 is not supported"):
        F.to_pil_image(np.zeros((2, 2, 3)))


def test_small_things_of_transforms():
    """Interpolation by Pillow's numbers, dark pictures, drawn widths, ranges of no width."""
    x = picture()
    for number, name in ((0, "nearest"), (2, "bilinear"), (3, "bicubic")):
        got = F.resize(x, [3, 4], interpolation=number)
        assert got.equal(F.resize(x, [3, 4], interpolation=T.InterpolationMode(name)))
    with pytest.raises(ValueError, match="not 9"):
        F.resize(x, [3, 4], interpolation=9)
    dark = (tn.arange(600) % 37 + tn.arange(600) % 5 * 9).to(tn.uint8).view(1, 20, 30)
    want = ImageOps.equalize(F.to_pil_image(dark))
    assert F.pil_to_tensor(want).equal(F.equalize(dark))
    blur = T.GaussianBlur(3, (0.1, 5.0))
    assert len({str(blur(x).tolist()) for _ in range(6)}) > 1
    row = tn.tensor([0.0, 1e-6, 5e-7]).view(1, 1, 1, 3)
    assert utils.make_grid(row, normalize=True)[0, 0].tolist() == pytest.approx([0, 0.1, 0.05])


def test_a_star_brings_what_torchvision_brings():
    names: dict[str, object] = {}
    for part in ("models", "transforms", "ops", "datasets"):
        exec(f"from tenon.vision.{part} import *", names)
    assert {"resnet18", "VGG", "Compose", "Normalize", "InterpolationMode", "nms"} <= names.keys()


@pytest.mark.parametrize(
    ("code", "kind"),
    [(8, "uint8"), (9, "int8"), (11, "int16"), (12, "int32"), (13, "float32"), (14, "float64")],
)
def test_numbers_of_each_kind_of_a_file_of_digits(code, kind, tmp_path):
    values = (np.arange(6).reshape(2, 3) * 7 + 1).astype(kind)
    head = bytes([0, 0, code, 2]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    path = tmp_path / "numbers"
    path.write_bytes(head + values.astype(values.dtype.newbyteorder(">")).tobytes())
    read = datasets.mnist.read_sn3_pascalvincent_tensor(path)
    assert str(read.dtype) == f"tenon.{kind}" and np.array_equal(read.numpy(), values)
    empty = bytes([0, 0, code, 1, 0, 0, 0, 0])
    path.write_bytes(empty)
    assert datasets.mnist.read_sn3_pascalvincent_tensor(path).shape == (0,)


@pytest.mark.parametrize("data", [b"", b"\0\0\x08", b"\0\1\x08\0", b"\0\0\x0a\0"], ids=repr)
def test_files_that_hold_no_digits(data, tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="numbers is no file of MNIST's format"):
        datasets.mnist.read_sn3_pascalvincent_tensor(path)
