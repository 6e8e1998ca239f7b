"""SummaryWriter: the bytes of event files, and what TensorBoard's own reader makes of them."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from pathlib import Path

import numpy as np
import pytest
import tenon as tn
from tenon.utils.tensorboard import SummaryWriter, _media, _records


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
