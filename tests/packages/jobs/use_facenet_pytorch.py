"""Faces: the nets of the detector with their weights, boxes of a picture, and embeddings."""

import numpy as np
import torch
from facenet_pytorch import MTCNN, InceptionResnetV1, fixed_image_standardization
from facenet_pytorch.models.mtcnn import ONet, PNet, RNet
from PIL import Image
from report import report

torch.manual_seed(0)
for kind, side in ((PNet, 24), (RNet, 24), (ONet, 48)):
    net = kind().eval()
    report(kind.__name__, [*net(torch.rand(2, 3, side, side))], 1e-3)
rng = np.random.default_rng(0)
y, x = np.mgrid[:160, :160]
picture = 180 - 60.0 * (((x - 80) / 45) ** 2 + ((y - 80) / 60) ** 2 < 1)
for cx, cy, r in ((62, 65, 7), (98, 65, 7), (80, 85, 5), (80, 110, 12)):
    picture[((x - cx) ** 2 + ((y - cy) * 1.6) ** 2) < r * r] = 30
picture = np.stack([picture, picture * 0.8, picture * 0.7], -1) + rng.normal(0, 3, (160, 160, 3))
image = Image.fromarray(picture.clip(0, 255).astype(np.uint8))
finder = MTCNN(thresholds=[0.3, 0.3, 0.2], keep_all=True, min_face_size=20, device="cpu")
boxes, chances = finder.detect(image)
report("found", -1 if boxes is None else len(boxes))
if boxes is not None:
    report("boxes", boxes, 1e-3)
    report("chances", list(chances), 1e-3)
    report("faces", finder.extract(image, boxes, None).mean((1, 2, 3)), 1e-3)
torch.manual_seed(1)
net = InceptionResnetV1(classify=True, num_classes=5, dropout_prob=0.1).train()
optimizer = torch.optim.SGD(net.parameters(), 1e-4)
faces = fixed_image_standardization(torch.rand(4, 3, 112, 112) * 255)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(faces), torch.tensor([0, 1, 2, 3]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss, 1e-3)
