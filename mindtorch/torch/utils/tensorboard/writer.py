"""SummaryWriter: writes event files to a folder that TensorBoard watches
(torch.utils.tensorboard.writer)."""
import os
import socket
import time
from datetime import datetime

from tensorboard.compat.proto import event_pb2
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from mindtorch.torch.utils.tensorboard import summary as S
from mindtorch.torch.utils.tensorboard._arrays import figure_to_image, make_np

__all__ = ["FileWriter", "SummaryWriter"]


def _default_bins():
    """Returns the bucket limits of a histogram: from 1e-12 to 1e20 by factors of 1.1, on both sides
    of zero."""
    limits, v = [], 1e-12
    while v < 1e20:
        limits.append(v)
        v *= 1.1
    return [-v for v in reversed(limits)] + [0] + limits


class FileWriter:
    """Writer of summaries to one event file of a folder, in a background thread.

    At most `max_queue` records are queued, for at most `flush_secs` seconds.
    """

    def __init__(self, log_dir, max_queue=10, flush_secs=120, filename_suffix=""):
        self.event_writer = EventFileWriter(str(log_dir), max_queue, flush_secs, filename_suffix)

    def get_logdir(self):
        """Returns the folder."""
        return self.event_writer.get_logdir()

    def add_event(self, event, step=None, walltime=None):
        """Queues an Event with a step and a time in seconds (default: now)."""
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary, global_step=None, walltime=None):
        """Queues a Summary."""
        self.add_event(event_pb2.Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile, walltime=None):
        """Queues a graph, given as (GraphDef, RunMetadata)."""
        graph, metadata = graph_profile
        self.add_event(event_pb2.Event(graph_def=graph.SerializeToString()), None, walltime)
        self.add_event(event_pb2.Event(tagged_run_metadata=event_pb2.TaggedRunMetadata(tag="step1", run_metadata=metadata.SerializeToString())), None, walltime)

    def flush(self):
        """Waits until all queued records are in the file."""
        self.event_writer.flush()

    def close(self):
        """Writes the queued records and closes the file."""
        self.event_writer.close()

    def reopen(self):
        """Opens a new file in the folder after `close`; no effect if the writer is open."""
        self.event_writer.reopen()


class SummaryWriter:
    """Writer of TensorBoard data to a folder (default: runs/ with the date, the time, the host name
    and `comment`).

    Args:
        purge_step: hides the records of earlier runs in the folder from this step on.
        max_queue, flush_secs: at most `max_queue` records are queued, for at most `flush_secs`
            seconds.
    """

    def __init__(self, log_dir=None, comment="", purge_step=None, max_queue=10, flush_secs=120, filename_suffix=""):
        if not log_dir:
            log_dir = os.path.join("runs", datetime.now().strftime("%b%d_%H-%M-%S") + "_" + socket.gethostname() + comment)
        self.log_dir, self.purge_step = log_dir, purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self.file_writer = self.all_writers = None
        self._get_file_writer()
        self.default_bins = _default_bins()

    def _get_file_writer(self):
        """Returns the writer of the folder itself; creates a new one after `close`."""
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                self.file_writer.add_event(Event(step=self.purge_step, session_log=SessionLog(status=SessionLog.START)))
                self.purge_step = None
        return self.file_writer

    def get_logdir(self):
        """Returns the folder."""
        return self.log_dir

    def _add(self, summary, global_step=None, walltime=None):
        self._get_file_writer().add_summary(summary, global_step, walltime)

    # -------------------------------------------------------------- scalars
    def add_scalar(self, tag, scalar_value, global_step=None, walltime=None, new_style=False, double_precision=False):
        """Adds a scalar: a Python or NumPy scalar or a one-element tensor (AssertionError for more
        elements)."""
        self._add(S.scalar(tag, scalar_value, new_style=new_style, double_precision=double_precision), global_step, walltime)

    def add_scalars(self, main_tag, tag_scalar_dict, global_step=None, walltime=None):
        """Adds several scalars to one chart: {name: scalar}, each in its own subfolder."""
        walltime = time.time() if walltime is None else walltime
        top = self._get_file_writer().get_logdir()
        for name, value in tag_scalar_dict.items():
            folder = top + "/" + main_tag.replace("/", "_") + "_" + name
            writer = self.all_writers.get(folder)
            if writer is None:
                writer = self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
            writer.add_summary(S.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag, tensor, global_step=None, walltime=None):
        """Adds a complete tensor of any shape."""
        self._add(S.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(self, tag, values, global_step=None, bins="tensorflow", walltime=None, max_bins=None):
        """Adds a histogram of values.

        `bins` is as in numpy.histogram, or "tensorflow" for exponential buckets. Raises ValueError
        if there are no values.
        """
        if isinstance(bins, str) and bins == "tensorflow":
            bins = self.default_bins
        self._add(S.histogram(tag, values, bins, max_bins=max_bins), global_step, walltime)

    def add_histogram_raw(self, tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts, global_step=None, walltime=None):
        """Adds a histogram from existing counts; raises ValueError unless each bucket has a limit.
        """
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(S.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts), global_step, walltime)

    # -------------------------------------------------------------- images, audio, text
    def add_image(self, tag, img_tensor, global_step=None, walltime=None, dataformats="CHW"):
        """Adds an image, floats from 0 to 1 or uint8; `dataformats` names the axes ("CHW", "HWC",
        "HW")."""
        self._add(S.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_images(self, tag, img_tensor, global_step=None, walltime=None, dataformats="NCHW"):
        """Adds a grid of images, eight per row."""
        self._add(S.image(tag, img_tensor, dataformats=dataformats), global_step, walltime)

    def add_image_with_boxes(self, tag, img_tensor, box_tensor, global_step=None, walltime=None, rescale=1, dataformats="CHW", labels=None):
        """Adds an image with boxes (N x 4: left, top, right, bottom, in pixels) and labels, if
        there is one per box."""
        boxes = make_np(box_tensor)
        labels = [labels] if isinstance(labels, str) else labels
        if labels is not None and len(labels) != len(boxes):
            labels = None
        self._add(S.image_boxes(tag, img_tensor, boxes, rescale=rescale, dataformats=dataformats, labels=labels), global_step, walltime)

    def add_figure(self, tag, figure, global_step=None, close=True, walltime=None):
        """Adds a matplotlib figure, or a list of figures, as an image; closes them unless `close`
        is False."""
        many = isinstance(figure, list)
        self.add_image(tag, figure_to_image(figure, close), global_step, walltime, dataformats="NCHW" if many else "CHW")

    def add_video(self, tag, vid_tensor, global_step=None, fps=4, walltime=None):
        """Adds videos (N x T x C x H x W, floats from 0 to 1 or uint8) as an animated GIF with
        `fps` frames per second."""
        self._add(S.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(self, tag, snd_tensor, global_step=None, sample_rate=44100, walltime=None):
        """Adds a mono audio signal with values from -1 to 1 and `sample_rate` samples per second.
        """
        self._add(S.audio(tag, snd_tensor, sample_rate=sample_rate), global_step, walltime)

    def add_text(self, tag, text_string, global_step=None, walltime=None):
        """Adds a Markdown text."""
        self._add(S.text(tag, text_string), global_step, walltime)

    # -------------------------------------------------------------- graphs and embeddings
    def add_onnx_graph(self, prototxt):
        """Not supported: TensorBoard shows graphs of modules (`add_graph`)."""
        raise NotImplementedError("SummaryWriter.add_onnx_graph is not supported: add_graph shows the graph of a module")

    def add_graph(self, model, input_to_model=None, verbose=False, use_strict_trace=True):
        """Adds the graph of a Module for example inputs (a tensor or a tuple of tensors), traced
        like torch.jit.trace in evaluation mode."""
        from mindtorch.torch.utils.tensorboard._graph import graph
        self._get_file_writer().add_graph(graph(model, input_to_model, verbose, use_strict_trace))

    @staticmethod
    def _encode(rawstr):
        """Encodes a tag as a folder name."""
        for c in "%/\\":
            rawstr = rawstr.replace(c, f"%{ord(c):02x}")
        return rawstr

    def add_embedding(self, mat, metadata=None, label_img=None, global_step=None, tag="default", metadata_header=None):
        """Adds an embedding: points (N x D) for the projector.

        Args:
            metadata: one label per point, or one row of labels per point with `metadata_header`.
            label_img: one image per point (N x C x H x W).
        """
        from google.protobuf import text_format

        from mindtorch.torch.utils.tensorboard import _embedding as E
        mat = make_np(mat)
        step = 0 if global_step is None else global_step
        images = None if label_img is None else make_np(label_img)
        if mat.ndim != 2:
            raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
        if metadata is not None and len(metadata) != len(mat):
            raise AssertionError("#labels should equal with #data points")
        if images is not None and len(images) != len(mat):
            raise AssertionError("#images should equal with #data points")
        top = self._get_file_writer().get_logdir()
        folder = f"{str(step).zfill(5)}/{self._encode(tag)}"
        if os.path.isdir(os.path.join(top, folder)):
            print("warning: Embedding dir exists, did you set global_step for add_embedding()?")
        os.makedirs(os.path.join(top, folder), exist_ok=True)
        if metadata is not None:
            E.write_labels(metadata, os.path.join(top, folder), metadata_header)
        if images is not None:
            E.write_sprite(images, os.path.join(top, folder))
        E.write_points(mat, os.path.join(top, folder))
        if not hasattr(self, "_projector_config"):
            self._projector_config = ProjectorConfig()
        self._projector_config.embeddings.append(E.entry(metadata, images, folder, step, tag))
        with open(os.path.join(top, "projector_config.pbtxt"), "w", encoding="utf-8") as f:
            f.write(text_format.MessageToString(self._projector_config))

    # -------------------------------------------------------------- curves, charts, meshes
    def add_pr_curve(self, tag, labels, predictions, global_step=None, num_thresholds=127, weights=None, walltime=None):
        """Adds a precision-recall curve of predictions (from 0 to 1) and labels (0 or 1)."""
        self._add(S.pr_curve(tag, make_np(labels), make_np(predictions), num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(self, tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall,
                         global_step=None, num_thresholds=127, weights=None, walltime=None):
        """Adds an existing precision-recall curve: six arrays of `num_thresholds` values."""
        self._add(S.pr_curve_raw(tag, true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts, precision, recall,
                                 num_thresholds, weights), global_step, walltime)

    def add_custom_scalars_multilinechart(self, tags, category="default", title="untitled"):
        """Adds a chart of several scalars; like `add_custom_scalars`, call it only once."""
        self._add(S.custom_scalars({category: {title: ["Multiline", tags]}}))

    def add_custom_scalars_marginchart(self, tags, category="default", title="untitled"):
        """Adds a chart of a scalar between a lower and an upper bound; requires three tags
        (AssertionError otherwise)."""
        if len(tags) != 3:
            raise AssertionError(f"a margin chart requires three tags (value, lower, upper), got {len(tags)}")
        self._add(S.custom_scalars({category: {title: ["Margin", tags]}}))

    def add_custom_scalars(self, layout):
        """Adds charts of scalars: {category: {title: ["Multiline", tags] or ["Margin", [value,
        lower, upper]]}}; call it only once."""
        self._add(S.custom_scalars(layout))

    def add_mesh(self, tag, vertices, colors=None, faces=None, config_dict=None, global_step=None, walltime=None):
        """Adds a 3D mesh or point cloud.

        Shapes: vertices and colors (B x N x 3), faces (B x M x 3) of indices. `config_dict` holds
        three.js settings.
        """
        self._add(S.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_hparams(self, hparam_dict, metric_dict, hparam_domain_discrete=None, run_name=None, global_step=None):
        """Adds hyperparameters and the resulting metrics, in a subfolder (`run_name`, default: the
        time)."""
        records = S.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with SummaryWriter(log_dir=folder) as w:
            for record in records:
                w._add(record, global_step)
            for name, value in metric_dict.items():
                w.add_scalar(name, value, global_step)

    # -------------------------------------------------------------- flush and close
    def flush(self):
        """Waits until all queued records are in the files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self):
        """Writes the queued records and closes the files; the next record opens new files."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_val, exc_tb):
        self.close()
