"""Neural collaborative filtering in PyTorch."""

import torch
from ncf_architecture import Architecture
from torch import nn
from torch.nn import functional


class NeuMF(nn.Module):
    """With the initial values of the official one."""

    def __init__(self, a: Architecture, sparse: bool):
        super().__init__()

        def embedding(rows: int, size: int) -> nn.Embedding:
            table = nn.Embedding(rows, size, sparse=sparse)
            nn.init.xavier_uniform_(table.weight)
            return table

        self.mf_user, self.mf_item = embedding(a.num_users, a.num_factors), embedding(a.num_items, a.num_factors)
        half = a.layers[0] // 2
        self.mlp_user, self.mlp_item = embedding(a.num_users, half), embedding(a.num_items, half)
        layers: list[nn.Module] = []
        for sizes in zip(a.layers, a.layers[1:]):
            layers += [nn.Linear(*sizes), nn.ReLU()]
            nn.init.xavier_uniform_(layers[-2].weight)
        self.mlp = nn.Sequential(*layers)
        self.rating = nn.Linear(a.num_factors + a.layers[-1], 1)
        limit = (3 / self.rating.in_features) ** 0.5
        nn.init.uniform_(self.rating.weight, -limit, limit)
        for layer in (*layers[::2], self.rating):
            nn.init.zeros_(layer.bias)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """[B], [B] -> scores [B]; [U, 1], [U, C] -> [U, C]."""
        mf = self.mf_user(users) * self.mf_item(items)
        mlp = self.mlp(torch.cat(torch.broadcast_tensors(self.mlp_user(users), self.mlp_item(items)), dim=-1))
        return self.rating(torch.cat([mf, mlp], dim=-1)).squeeze(-1)


def loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.binary_cross_entropy_with_logits(scores - 1, labels)


class DenseAndSparseAdam:
    """Of embeddings only the rows in the batch move: less work than Adam, and another result."""

    def __init__(self, model: NeuMF):
        tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
        others = [p for layer in (model.mlp, model.rating) for p in layer.parameters()]
        self.optimizers = [torch.optim.SparseAdam(tables, lr=0.001), torch.optim.Adam(others, lr=0.001, fused=True)]

    def zero_grad(self, set_to_none: bool) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        for optimizer in self.optimizers:
            optimizer.step()


def build(a: Architecture, batch_size: int, sparse: bool) -> tuple:
    """The model, a batch and its optimizer."""
    model = NeuMF(a, sparse)
    users, items = (torch.randint(rows, (batch_size,)) for rows in (a.num_users, a.num_items))
    labels = (torch.rand(batch_size) < 0.2).float()
    optimizer = DenseAndSparseAdam(model) if sparse else torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    return model, [users, items, labels], optimizer
