"""YOLO from a description: detection, its loss, training steps, suppression, other heads."""

import os
import tempfile

os.environ["YOLO_CONFIG_DIR"] = tempfile.mkdtemp()
os.environ["YOLO_OFFLINE"] = "true"

import numpy as np
import torch
from report import report
from ultralytics import YOLO
from ultralytics.cfg import get_cfg
from ultralytics.nn.tasks import (
    ClassificationModel,
    DetectionModel,
    PoseModel,
    SegmentationModel,
)
from ultralytics.utils import ops
from ultralytics.utils.metrics import bbox_iou, box_iou, probiou
from ultralytics.utils.nms import non_max_suppression
from ultralytics.utils.tal import dist2bbox, make_anchors
from ultralytics.utils.torch_utils import ModelEMA, get_num_params

torch.manual_seed(0)
for kind in ("yolov8n.yaml", "yolo11n.yaml"):
    model = DetectionModel(kind, ch=3, nc=4, verbose=False)
    model.args = get_cfg()
    report("parameters", get_num_params(model))
    report("stride", model.stride)
    images = torch.rand(2, 3, 64, 64)
    batch = {
        "img": images,
        "cls": torch.tensor([[0.0], [2.0], [3.0]]),
        "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.3, 0.4, 0.2, 0.5], [0.6, 0.6, 0.5, 0.5]]),
        "batch_idx": torch.tensor([0.0, 0.0, 1.0]),
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    ema = ModelEMA(model)
    model.train()
    for _ in range(2):
        loss, parts = model(batch)
        loss.sum().backward()
        report("loss", list(parts.values()), 1e-3)
        report("norm", torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0), 2e-3)
        optimizer.step()
        optimizer.zero_grad()
        ema.update(model)
    model.eval()
    with torch.no_grad():
        out = model(images)[0]
    report("out", out.mean(2), 1e-3)
    fused = model.fuse(verbose=False)
    with torch.no_grad():
        report("fused", fused(images)[0].mean(2), 1e-3)
    found = non_max_suppression(out, conf_thres=1e-6, iou_thres=0.5, max_det=5)
    report("found", [len(f) for f in found])
    report("ema", sum(v.float().sum() for v in ema.ema.state_dict().values()), 1e-3)
for kind, model in (
    ("segment", SegmentationModel("yolov8n-seg.yaml", nc=3, verbose=False)),
    ("pose", PoseModel("yolov8n-pose.yaml", nc=1, verbose=False)),
    ("classify", ClassificationModel("yolov8n-cls.yaml", nc=5, verbose=False)),
):
    model.eval()
    with torch.no_grad():
        out = model(images)
    while isinstance(out, tuple):
        out = out[0]
    report(kind, out.mean((0, -1)), 1e-3)
torch.manual_seed(1)
boxes = torch.rand(6, 4) * 20
boxes[:, 2:] += boxes[:, :2]
report("iou", box_iou(boxes, boxes.flip(0)))
for name in ("GIoU", "DIoU", "CIoU"):
    report(name, bbox_iou(boxes[:3], boxes[3:], xywh=False, **{name: True}))
report("probiou", probiou(torch.rand(3, 5) + 0.5, torch.rand(3, 5) + 0.5))
report("xywh", ops.xyxy2xywh(boxes))
report("scale", ops.scale_boxes((64, 64), boxes.clone(), (100, 80)))
points, strides = make_anchors([torch.zeros(1, 1, 2, 2), torch.zeros(1, 1, 1, 1)], [8, 16])
report("anchors", points)
report("dist", dist2bbox(torch.rand(5, 4), points))
report("masks", ops.process_mask(torch.randn(4, 8, 8), torch.randn(6, 4), boxes, (32, 32)).float())
yolo = YOLO("yolov8n.yaml", verbose=False)
picture = np.arange(64 * 48 * 3, dtype=np.uint8).reshape(64, 48, 3)
result = yolo.predict(picture, imgsz=64, conf=1e-4, max_det=3, verbose=False, device="cpu")[0]
report("shape", result.orig_shape)
report("boxes", result.boxes.xyxy, 1e-3)
report("conf", result.boxes.conf, 1e-3)
