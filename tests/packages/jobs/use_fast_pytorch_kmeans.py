"""Clusters."""

import torch
from fast_pytorch_kmeans import KMeans
from report import report

torch.manual_seed(0)
x = torch.cat([torch.randn(30, 4) + k * 3 for k in range(3)])
for mode in ("euclidean", "cosine"):
    torch.manual_seed(1)
    kmeans = KMeans(n_clusters=3, mode=mode, init_method="kmeans++", max_iter=50)
    labels = kmeans.fit_predict(x + 4)
    report(mode, [labels, kmeans.centroids, kmeans.predict(x[:5] + 4)])
    if mode == "euclidean":
        report("similarity", kmeans.euc_sim(x[:5], kmeans.centroids))
