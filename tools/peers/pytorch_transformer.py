"""The official Transformer in PyTorch. Sentences are all of one length, so nothing masks padding."""

import torch
from torch import nn
from torch.nn import functional
from transformer_architecture import Architecture


class Attention(nn.Module):
    def __init__(self, a: Architecture, causal: bool):
        super().__init__()
        self.num_heads, self.causal, self.dropout = a.num_heads, causal, a.dropout
        self.q, self.k, self.v, self.output_transform = (
            nn.Linear(a.hidden_size, a.hidden_size, bias=False) for _ in range(4)
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """From positions of x [B, T, H] to those of y [B, S, H]."""

        def heads(z: torch.Tensor) -> torch.Tensor:
            return z.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

        attended = functional.scaled_dot_product_attention(
            heads(self.q(x)), heads(self.k(y)), heads(self.v(y)), dropout_p=self.dropout, is_causal=self.causal
        )
        return self.output_transform(attended.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Each sublayer adds to the stream what it makes of its normalized value."""

    def __init__(self, a: Architecture, decodes: bool):
        super().__init__()
        self.self_attention = Attention(a, causal=decodes)
        self.encdec_attention = Attention(a, causal=False) if decodes else None
        self.norms = nn.ModuleList(norm(a) for _ in range(3 if decodes else 2))
        self.feed_forward = nn.Sequential(
            *(nn.Linear(a.hidden_size, a.filter_size), nn.ReLU(), nn.Dropout(a.dropout)),
            nn.Linear(a.filter_size, a.hidden_size),
        )
        self.dropout = nn.Dropout(a.dropout)

    def forward(self, x: torch.Tensor, encoded: torch.Tensor | None = None) -> torch.Tensor:
        y = self.norms[0](x)
        x = x + self.dropout(self.self_attention(y, y))
        if self.encdec_attention is not None:
            x = x + self.dropout(self.encdec_attention(self.norms[1](x), encoded))
        return x + self.dropout(self.feed_forward(self.norms[-1](x)))


class Transformer(nn.Module):
    def __init__(self, a: Architecture, length: int):
        super().__init__()
        self.scale = a.hidden_size**0.5
        self.embedding = nn.Parameter(torch.randn(a.vocab_size, a.hidden_size) / self.scale)
        self.register_buffer("positions", torch.tensor(a.positions(length)))
        self.encoder = nn.ModuleList(Layer(a, decodes=False) for _ in range(a.num_layers))
        self.decoder = nn.ModuleList(Layer(a, decodes=True) for _ in range(a.num_layers))
        self.encoder_norm, self.decoder_norm = norm(a), norm(a)
        self.dropout = nn.Dropout(a.dropout)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Ids [B, L] -> logits [B * L, vocab_size]."""
        x = self.dropout(self.embed(inputs) + self.positions)
        for layer in self.encoder:
            x = layer(x)
        encoded = self.encoder_norm(x)
        x = self.dropout(functional.pad(self.embed(targets), (0, 0, 1, -1)) + self.positions)
        for layer in self.decoder:
            x = layer(x, encoded)
        return functional.linear(self.decoder_norm(x).flatten(0, 1), self.embedding)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.embedding) * self.scale


def norm(a: Architecture) -> nn.LayerNorm:
    return nn.LayerNorm(a.hidden_size, eps=1e-6)


def build(a: Architecture, sentences: int, length: int) -> tuple[nn.Module, list[torch.Tensor], torch.optim.Optimizer]:
    """The module, its batch (inputs, targets, labels) and Adam. The labels are the targets in one row."""
    model = Transformer(a, length)
    for parameter in model.parameters():
        if parameter.dim() == 2 and parameter is not model.embedding:
            nn.init.xavier_uniform_(parameter)
    ids = torch.ones(sentences, length, dtype=torch.int64)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6, betas=(a.beta1, a.beta2), eps=a.epsilon, fused=True)
    return model, [ids, ids.clone(), ids.flatten()], optimizer


def label_smoothing(a: Architecture) -> float:
    """PyTorch's spreads over all ids what the official one spreads over all others."""
    return a.label_smoothing * a.vocab_size / (a.vocab_size - 1)
