"""SummaryWriter: the bytes of event files, and what TensorBoard's own reader makes of them."""

from __future__ import annotations

import io
import math
import struct
import wave
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tenon as tn
from tenon.utils.tensorboard import SummaryWriter, _media, _records, summary


def test_checksum() -> None:
    # RFC 3720, B.4: CRC-32C of 32 bytes of zeros, and of the bytes 0 to 31.
    for data, crc in ((bytes(32), 0x8A9136AA), (bytes(range(32)), 0x46DD794E)):
        rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
        assert _records.masked_crc(data) == (rotated + 0xA282EAD8) & 0xFFFFFFFF


def test_wire_types() -> None:
    assert _records.integer(1, 300) == b"\x08\xac\x02"
    assert _records.integer(2, -1) == b"\x10" + b"\xff" * 9 + b"\x01"
    assert _records.text(2, "abc") == b"\x12\x03abc"
    assert _records.doubles(6, [1.0]) == b"\x32\x08" + struct.pack("<d", 1.0)


def test_png_and_wav_hold_the_numbers() -> None:
    pixels = tn.randint(0, 256, (3, 5, 3), generator=tn.Generator().manual_seed(0)).to(tn.uint8)
    data = _media.png(pixels)
    start = data.index(b"IDAT")
    size = struct.unpack(">I", data[start - 4 : start])[0]
    rows = np.frombuffer(zlib.decompress(data[start + 4 : start + 4 + size]), np.uint8)
    assert (rows.reshape(3, 16)[:, 1:].reshape(3, 5, 3) == pixels.numpy()).all()
    sound, frames = _media.wav(tn.tensor([0.0, 1.0, -1.0, 2.0]), 8000)
    with wave.open(io.BytesIO(sound)) as file:
        assert (file.getframerate(), file.getnframes(), frames) == (8000, 4, 4)
        assert struct.unpack("<4h", file.readframes(4)) == (0, 32767, -32767, 32767)


def events(folder: Path) -> list[bytes]:
    """The records of the one event file of a folder, whose checksums hold."""
    (path,) = folder.glob("events*")
    data, found = path.read_bytes(), []
    while data:
        size, crc = struct.unpack("<QI", data[:12])
        assert crc == _records.masked_crc(data[:8])
        found.append(data[12 : 12 + size])
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == _records.masked_crc(found[-1])
        data = data[16 + size :]
    return found


def test_events_of_scalars(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", tn.tensor(0.5), 3, walltime=1.0)
        writer.add_scalars("both", {"a": 1, "b": 2.0}, 1)
    head, scalar = events(tmp_path)
    assert head.endswith(b"\x1a\x0dbrain.Event:2")
    value = b"\x0a\x04loss" + b"\x15" + struct.pack("<f", 0.5)
    inner = b"\x0a" + bytes([len(value)]) + value
    assert (
        scalar == b"\x09" + struct.pack("<d", 1.0) + b"\x10\x03\x2a" + bytes([len(inner)]) + inner
    )
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["both_a", "both_b"]


# ---- Messages, field by field --------------------------------------------------------------------


def fields(data: bytes) -> list[tuple[int, Any]]:
    """The fields of a message, in order: numbers, and bytes of what has a length."""

    def number() -> int:
        nonlocal data
        value = shift = 0
        while True:
            byte, data = data[0], data[1:]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    found: list[tuple[int, Any]] = []
    while data:
        key = number()
        kind, value = key & 7, None
        if kind == 0:
            value = number()
        elif kind == 2:
            size = number()
            value, data = data[:size], data[size:]
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[kind]
            (value,) = struct.unpack(form, data[:size])
            data = data[size:]
        found.append((key >> 3, value))
    return found


def inside(data: bytes, *path: int) -> list[Any]:
    """What stands at the end of a path of field numbers."""
    found: list[Any] = [data]
    for step in path:
        found = [v for part in found for n, v in fields(part) if n == step]
    return found


def only(data: bytes, *path: int) -> Any:
    (value,) = inside(data, *path)
    return value


def test_summaries_of_numbers_and_texts() -> None:
    new = summary.scalar("loss", 0.5, new_style=True)
    assert only(new, 1, 1) == b"loss" and only(new, 1, 9, 1, 1) == b"scalars"
    assert only(new, 1, 8, 1) == 1 and only(new, 1, 8, 5) == struct.pack("<f", 0.5)
    assert only(summary.scalar("loss", np.float32(0.5)), 1, 2) == 0.5
    said = summary.text_summary("note", "*hello*")
    assert only(said, 1, 1) == b"note/text_summary" and only(said, 1, 8, 8) == b"*hello*"
    assert only(said, 1, 8, 1) == 7 and only(said, 1, 8, 2, 2, 1) == 1
    assert only(said, 1, 9, 1, 1) == b"text" and only(said, 1, 9, 1, 2) == b"\x08\0"


def test_summaries_of_histograms() -> None:
    values = tn.tensor([-2.0, -1.5, 0.0, 0.25, 0.25, 3.0])

    def read(bins: Any) -> tuple[list[float], list[float]]:
        message = only(summary.histogram("h", values, bins), 1, 5)
        assert [v for n, v in fields(message) if n < 6] == [-2, 3, 6, 0, 15.375]
        return tuple([v for (v,) in struct.iter_unpack("<d", only(message, n))] for n in (6, 7))

    assert read(5) == ([-1, 0, 1, 2, 3], [2, 1, 2, 0, 1])
    assert read([-2.0, 0.0, 1.0, 4.0]) == ([0, 1, 4], [3, 2, 1])
    limits, counts = read("auto")
    assert sum(counts) == 6 and limits[0] == pytest.approx(-2 + 5 / 64) and limits[-1] == 3
    limits, counts = read("tensorflow")
    assert sum(counts) == 6 and counts[0] == counts[-1] == 0
    places = np.searchsorted(limits, values.numpy())
    assert [counts[i] for i in sorted(set(places))] == [1, 1, 1, 2, 1]
    own = [v for v in limits if v > 0]
    assert np.allclose(np.array(own[1:]) / own[:-1], 1.1) and 0.0 in limits
    assert all(abs(math.log(v / 1e-12, 1.1) % 1 - 0.5) > 0.49 for v in own[:5])
    same = only(summary.histogram("h", tn.ones(3), 2), 1, 5)
    assert only(same, 6) == struct.pack("<2d", 1.5, 2.0)
    assert only(same, 7) == struct.pack("<2d", 3, 0)


def test_summaries_of_pictures_and_sounds() -> None:
    for shape, form, want in (
        ((3, 4, 6), "CHW", (4, 6, 3)), ((4, 6, 3), "HWC", (4, 6, 3)), ((4, 6), "HW", (4, 6, 1)),
        ((3, 1, 4, 5), "NCHW", (4, 15, 1)), ((9, 4, 5, 3), "NHWC", (8, 40, 3)),
    ):  # fmt: skip
        message = only(summary.image("p", tn.rand(*shape), form), 1, 4)
        assert tuple(only(message, n) for n in (1, 2, 3)) == want
        assert only(message, 4).startswith(b"\x89PNG")
    tiles = _media.bytes_of_image(tn.arange(9.0).view(9, 1, 1, 1) / 255, "NCHW")
    assert tiles[..., 0].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 0, 0, 0, 0, 0, 0, 0]]
    message = only(summary.audio("s", tn.zeros(100), 8000), 1, 6)
    assert [v for n, v in fields(message) if n < 4] == [8000, 1, 100]
    assert only(message, 4)[:4] == b"RIFF" and only(message, 5) == b"audio/wav"


def test_summaries_of_precision_and_recall() -> None:
    made = summary.pr_curve("c", tn.tensor([0, 1, 1, 0]), tn.tensor([0.1, 0.9, 0.4, 0.6]), 3)
    assert inside(made, 1, 8, 2, 2, 1) == [6, 3] and only(made, 1, 8, 1) == 1
    assert only(made, 1, 9, 1, 1) == b"pr_curves" and only(made, 1, 9, 1, 2) == b"\x08\0\x10\3"
    rows = np.frombuffer(only(made, 1, 8, 5), "<f4").reshape(6, 3)
    # Thresholds 0, 1/2 and 1: true and false positives, negatives, precision, recall.
    want = [[2, 1, 0], [2, 1, 0], [0, 1, 2], [0, 1, 2], [0.5, 0.5, 0], [1, 0.5, 0]]
    np.testing.assert_allclose(rows, want)
    weighted = summary.pr_curve("c", [0, 1], [0.2, 0.8], 500, [3.0, 2.0])
    rows = np.frombuffer(only(weighted, 1, 8, 5), "<f4").reshape(6, 127)
    assert rows[:2, 0].tolist() == [2, 3] and rows[4, 0] == pytest.approx(0.4)


def test_summaries_of_hyperparameters() -> None:
    given = {"lr": 0.1, "name": "x", "on": True, "size": tn.tensor(3)}
    about, start, end = summary.hparams(given, {"acc": 1.0}, {"name": ["x", "y"]})
    assert [only(p, 1, 1) for p in (about, start, end)] == [
        b"_hparams_/experiment", b"_hparams_/session_start_info", b"_hparams_/session_end_info"
    ]  # fmt: skip
    assert all(only(p, 1, 9, 1, 1) == b"hparams" for p in (about, start, end))
    body = [only(p, 1, 9, 1, 2) for p in (about, start, end)]
    assert [only(b, 1) for b in body] == [0, 0, 0] and only(body[2], 4, 1) == 1
    infos = inside(body[0], 2, 5)
    assert [(only(i, 1), only(i, 4)) for i in infos] == [
        (b"lr", 3), (b"name", 1), (b"on", 2), (b"size", 3)
    ]  # fmt: skip
    assert inside(infos[1], 5, 1, 3) == [b"x", b"y"] and inside(infos[0], 5) == []
    assert only(body[0], 2, 6, 1, 2) == b"acc"
    pairs = inside(body[1], 3, 1)
    assert [only(p, 1) for p in pairs] == [k.encode() for k in given]
    assert [fields(only(p, 2)) for p in pairs] == [[(2, 0.1)], [(3, b"x")], [(4, 1)], [(2, 3.0)]]


def test_layouts_and_graphs() -> None:
    made = summary.custom_scalars({"all": {
        "lines": ["Multiline", ["a", "b"]], "band": ["Margin", ["v", "low", "high"]]}})  # fmt: skip
    assert only(made, 1, 1) == b"custom_scalars__config__"
    assert only(made, 1, 9, 1, 1) == b"custom_scalars" and only(made, 1, 8, 1) == 7
    layout = only(made, 1, 8, 8)
    assert only(layout, 1) == 0 and only(layout, 2, 1) == b"all"
    lines, band = inside(layout, 2, 2)
    assert only(lines, 1) == b"lines" and inside(lines, 2, 1) == [b"a", b"b"]
    assert fields(only(band, 3, 1)) == [(1, b"v"), (2, b"low"), (3, b"high")]

    net = tn.nn.Sequential(tn.nn.Linear(4, 3), tn.nn.Sequential(tn.nn.ReLU()), tn.nn.Linear(3, 1))
    graph = summary.graph(net, tn.ones(2, 4))
    nodes = [(only(n, 1), only(n, 2), inside(n, 3)) for n in inside(graph, 1)]
    assert nodes == [
        (b"input_0", b"Input", []), (b"Sequential/0", b"Linear", [b"input_0"]),
        (b"Sequential/1/0", b"ReLU", [b"Sequential/0"]),
        (b"Sequential/2", b"Linear", [b"Sequential/1/0"]),
        (b"output", b"Output", [b"Sequential/2"]),
    ]  # fmt: skip
    assert only(graph, 4, 1) == 22 and not net[0]._forward_hooks

    class Both(tn.nn.Module):
        def forward(self, x: Any, more: Any) -> Any:
            return {"sum": x + more[0], "same": x}

    both = summary.graph(Both(), (tn.ones(1), [tn.ones(1)]))
    nodes = [(only(n, 1), inside(n, 3)) for n in inside(both, 1)]
    assert nodes == [
        (b"input_0", []), (b"input_1", []), (b"Both", [b"input_0", b"input_1"]),
        (b"output", [b"Both", b"Both"]),
    ]  # fmt: skip


def test_what_a_writer_is_given_goes_to_its_summary(tmp_path: Path) -> None:
    pictures = tn.rand(2, 3, 4, 5)
    with SummaryWriter(tmp_path, purge_step=7) as writer:
        assert writer.get_logdir() == str(tmp_path) == writer._get_file_writer().get_logdir()
        writer.add_images("pictures", pictures, 1)
        writer.add_video("video", pictures[None], 2)
        writer.add_audio("sound", tn.zeros(8), 3, 100)
        writer.add_text("note", "a", 4)
        writer.add_pr_curve("curve", [1, 0], [0.5, 0.5], 5, 9)
        writer.add_custom_scalars({"all": {}})
        writer.add_graph(tn.nn.ReLU(), tn.ones(1))
        writer.flush()
        first, purge, *rest = events(tmp_path)
        with pytest.raises(ValueError, match="input_to_model is missing"):
            writer.add_graph(tn.nn.ReLU())
        writer.add_hparams({"lr": 0.1}, {"acc": 0.5}, run_name="run", global_step=6)
        points, named = [[1.0, 2.0], [3.0, 4.0]], [["a", 1], ["b", 2]]
        writer.add_embedding(points, named, pictures, 3, "t", ["n", "k"])
    assert only(first, 3) == b"brain.Event:2"
    assert (only(purge, 7, 1), only(purge, 2)) == (1, 7)
    assert [inside(e, 2) for e in rest] == [[1], [2], [3], [4], [5], [], []]
    assert [only(e, 5, 1, 1) for e in rest[:-1]] == [
        b"pictures", b"video", b"sound", b"note/text_summary", b"curve", b"custom_scalars__config__"
    ]  # fmt: skip
    assert [tuple(only(e, 5, 1, 4, n) for n in (1, 2)) for e in rest[:2]] == [(4, 10)] * 2
    assert only(rest[-1], 4) == summary.graph(tn.nn.ReLU(), tn.ones(1))
    run = events(tmp_path / "run")
    assert only(run[-1], 5, 1, 1) == b"acc" and only(run[-1], 2) == 6 and len(run) == 5
    folder = tmp_path / "00003" / "t"
    assert (folder / "tensors.tsv").read_text() == "1.0\t2.0\n3.0\t4.0\n"
    assert (folder / "metadata.tsv").read_text() == "n\tk\na\t1\nb\t2\n"
    assert (folder / "sprite.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "projector_config.pbtxt").read_text().splitlines() == [
        "embeddings {", 'tensor_name: "t:00003"', 'tensor_path: "00003/t/tensors.tsv"',
        'metadata_path: "00003/t/metadata.tsv"',
        'sprite { image_path: "00003/t/sprite.png" single_image_dim: 5 single_image_dim: 4 }', "}",
    ]  # fmt: skip


def test_bad_input(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ValueError, match="no element"):
            writer.add_histogram("h", tn.zeros(0))
        with pytest.raises(ValueError, match="dimensions 'CHW'"):
            writer.add_image("i", tn.zeros(2, 3))
        with pytest.raises(ValueError, match="1, 3 or 4 channels"):
            writer.add_image("i", tn.zeros(2, 3, 3))
        with pytest.raises(ValueError, match="hyperparameter 'x'"):
            writer.add_hparams({"x": [1]}, {})


def test_tensorboard_reads_everything(tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="no TensorBoard"
    )
    net = tn.nn.Sequential(tn.nn.Linear(4, 3), tn.nn.ReLU(), tn.nn.Linear(3, 1))
    numbers = tn.linspace(-2, 2, 1000)
    with SummaryWriter(tmp_path) as writer:
        for i in range(5):
            writer.add_scalar("loss", 1 / (i + 1), i)
        writer.add_histogram("weights", numbers, 7)
        writer.add_image("picture", tn.rand(3, 4, 6), 1)
        writer.add_images("pictures", tn.rand(3, 1, 4, 4), 1)
        writer.add_audio("sound", tn.zeros(100), 1, 8000)
        writer.add_text("note", "*hello*", 2)
        writer.add_pr_curve("curve", tn.tensor([0, 1, 1, 0]), tn.tensor([0.1, 0.9, 0.4, 0.6]))
        writer.add_graph(net, tn.ones(2, 4))
        writer.add_hparams({"lr": 0.1, "name": "x", "on": True}, {"acc": 1.0}, run_name="run")
    found = reader.EventAccumulator(str(tmp_path), size_guidance={"histograms": 0}).Reload()
    assert [round(e.value, 6) for e in found.Scalars("loss")] == [1, 0.5, 0.333333, 0.25, 0.2]
    histogram = found.Histograms("weights")[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num) == (-2, 2, 1000)
    want = np.histogram(numbers.double().numpy(), [-np.inf, *histogram.bucket_limit])[0]
    assert np.abs(np.array(histogram.bucket) - want).max() <= 1  # numbers on a border
    assert histogram.sum == pytest.approx(float(numbers.double().sum()), abs=1e-9)
    assert (found.Images("picture")[0].width, found.Images("picture")[0].height) == (6, 4)
    assert (found.Images("pictures")[0].width, found.Images("pictures")[0].height) == (12, 4)
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val[0] == b"*hello*"
    names = [node.name for node in found.Graph().node]
    assert names == ["input_0", "Sequential/0", "Sequential/1", "Sequential/2", "output"]
    assert list(found.Graph().node[3].input) == ["Sequential/1"]
