"""SummaryWriter: numbers, pictures and text of a training, in files that TensorBoard shows."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import tenon
from tenon.utils.tensorboard import _media, summary
from tenon.utils.tensorboard._records import double, integer, text, write_record

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """Appends events to one file of a folder, which it makes. Threads may share it."""

    def __init__(
        self, log_dir: Any, max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = ""
    ) -> None:
        self._folder = Path(log_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._suffix = filename_suffix
        self._max_queue, self._flush_secs = max_queue, flush_secs
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None
        self._waiting, self._flushed = 0, time.monotonic()

    def get_logdir(self) -> str:
        """The folder."""
        return str(self._folder)

    def reopen(self) -> None:
        """Starts a file, where none is open."""
        if self._file is None:
            name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
            path = self._folder / f"{name}.{os.getpid()}.{id(self)}{self._suffix}"
            self._file = open(path, "ab")
            write_record(self._file, double(1, time.time()) + text(3, "brain.Event:2"))

    def add_event(
        self, what: bytes, step: int | None = None, walltime: float | None = None
    ) -> None:
        """Appends an event: the encoded fields after time and step."""
        data = double(1, time.time() if walltime is None else walltime)
        data += integer(2, int(step)) if step is not None else b""
        with self._lock:
            self.reopen()
            assert self._file is not None
            write_record(self._file, data + what)
            self._waiting += 1
            late = time.monotonic() - self._flushed > self._flush_secs
            if self._waiting >= self._max_queue or late:
                self._flush()

    def add_summary(
        self, summary: bytes, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Appends a summary."""
        self.add_event(text(5, summary), global_step, walltime)

    def add_graph(self, graph: bytes, walltime: float | None = None) -> None:
        """Appends a graph."""
        self.add_event(text(4, graph), None, walltime)

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()
        self._waiting, self._flushed = 0, time.monotonic()

    def flush(self) -> None:
        """Hands what was written to the system."""
        with self._lock:
            self._flush()

    def close(self) -> None:
        """Closes the file; a later event starts another."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


class SummaryWriter:
    """Writes what `add_...` is given to event files below `log_dir`, or else `runs/DATE_HOST`."""

    def __init__(
        self,
        log_dir: Any = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            now = datetime.now().strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{now}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step = purge_step
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer = FileWriter(self.log_dir, *self._options)
        self.all_writers: dict[str, FileWriter] = {self.log_dir: self.file_writer}
        if purge_step is not None:  # what an interrupted run wrote from this step on is hidden
            self.file_writer.add_event(text(7, integer(1, 1)), purge_step)
        self.file_writer.reopen()

    def _get_file_writer(self) -> FileWriter:
        return self.file_writer

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def _add(self, what: bytes, step: Any, walltime: float | None) -> None:
        self.file_writer.add_summary(what, step, walltime)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None,
        walltime: float | None = None, new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A number."""
        self._add(summary.scalar(tag, scalar_value, new_style), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Numbers that share a chart; each has a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._options)
            self.all_writers[folder].add_summary(
                summary.scalar(main_tag, value), global_step, walltime
            )

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = "tensorflow",
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How the elements of a tensor are spread."""
        self._add(summary.histogram(tag, values, bins), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """A picture: uint8, or floats in [0, 1]."""
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None,
        walltime: float | None = None, dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Pictures, side by side."""
        self._add(summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """A figure of matplotlib, or several."""
        several = figure if isinstance(figure, (list, tuple)) else [figure]
        pictures = []
        for one in several:
            one.canvas.draw()
            pixels = tenon.frombuffer(bytearray(one.canvas.buffer_rgba()), dtype=tenon.uint8)
            width, height = one.canvas.get_width_height()
            pictures.append(pixels.view(height, width, 4)[..., :3].permute(2, 0, 1))
            if close:
                import matplotlib.pyplot as plt

                plt.close(one)
        self.add_images(tag, tenon.stack(pictures), global_step, walltime)

    def add_video(
        self, tag: str, vid_tensor: Any, global_step: int | None = None, fps: float = 4,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Frames (N, T, C, H, W), shown as a row of pictures."""
        frames = tenon.as_tensor(vid_tensor)
        self.add_images(tag, frames.flatten(0, 1), global_step, walltime)

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Sound in [-1, 1]."""
        self._add(summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Text, shown as Markdown."""
        self._add(summary.text_summary(tag, text_string), global_step, walltime)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None,
        num_thresholds: int = 127, weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Precision and recall of predictions in [0, 1]."""
        what = summary.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._add(what, global_step, walltime)

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Any] | None = None, run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Hyperparameters and what came of them, as a run below the folder."""
        parts = summary.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self.log_dir, run_name or str(time.time()))
        with SummaryWriter(folder) as inner:
            for part in parts:
                inner.file_writer.add_summary(part)
            for name, value in metric_dict.items():
                inner.add_scalar(name, value, global_step)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Any]]) -> None:
        """Charts of several scalars, by category."""
        self._add(summary.custom_scalars(layout), None, None)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False,
        use_strict_trace: bool = True,
    ) -> None:  # fmt: skip
        """The modules of a model, which is called once."""
        if input_to_model is None:
            raise ValueError("add_graph: input_to_model is missing; the model is called with it")
        self.file_writer.add_graph(summary.graph(model, input_to_model))

    def add_embedding(
        self, mat: Any, metadata: Any = None, label_img: Any = None,
        global_step: int | None = None, tag: str = "default", metadata_header: Any = None,
    ) -> None:  # fmt: skip
        """Rows of a matrix as points for the projector, with a label and a picture for each."""
        rows = tenon.as_tensor(mat).detach().cpu()
        step = f"{global_step or 0:05d}"
        folder = Path(self.log_dir) / step / tag
        folder.mkdir(parents=True, exist_ok=True)
        lines = ("\t".join(map(repr, row)) for row in rows.tolist())
        (folder / "tensors.tsv").write_text("\n".join(lines) + "\n")
        config = [f'tensor_name: "{tag}:{step}"', f'tensor_path: "{step}/{tag}/tensors.tsv"']
        if metadata is not None:
            if len(metadata) != len(rows):
                raise AssertionError("#labels should equal with #data points")
            named = [metadata_header, *metadata] if metadata_header else metadata
            text_lines = ["\t".join(map(str, m)) if isinstance(m, (list, tuple)) else str(m)
                          for m in named]  # fmt: skip
            (folder / "metadata.tsv").write_text("\n".join(text_lines) + "\n")
            config.append(f'metadata_path: "{step}/{tag}/metadata.tsv"')
        if label_img is not None:
            pixels = _media.bytes_of_image(label_img, "NCHW")
            (folder / "sprite.png").write_bytes(_media.png(pixels))
            height, width = label_img.shape[2:]
            config.append(
                f'sprite {{ image_path: "{step}/{tag}/sprite.png" '
                f"single_image_dim: {width} single_image_dim: {height} }}"
            )
        with open(Path(self.log_dir) / "projector_config.pbtxt", "a", encoding="utf-8") as file:
            file.write("embeddings {\n" + "\n".join(config) + "\n}\n")

    def flush(self) -> None:
        """Hands what was written to the system."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        """Closes the files."""
        for writer in self.all_writers.values():
            writer.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
