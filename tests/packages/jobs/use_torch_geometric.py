"""Graph convolutions and attention on a small graph, mini-batches of graphs."""

import torch
import torch_geometric as tg
from report import report
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, SAGEConv, global_mean_pool

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 1], [1, 2, 3, 4, 5, 0, 3, 5, 4]])
x, y = torch.randn(6, 4), torch.tensor([0, 1, 0, 1, 0, 1])


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([GCNConv(4, 8), GATConv(8, 4, heads=2), SAGEConv(8, 2)])

    def forward(self, x, edges):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x, edges))
        return self.layers[-1](x, edges)


net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(4):
    loss = torch.nn.functional.cross_entropy(net(x, edges), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report("loss", loss)
graphs = [Data(x=torch.randn(n, 4), edge_index=edges % n) for n in (3, 4, 5)]
for batch in DataLoader(graphs, batch_size=3):
    report("pooled", global_mean_pool(net(batch.x, batch.edge_index), batch.batch))
report("degrees", tg.utils.degree(edges[0], 6))
