"""The official Transformer in PyTorch. Sentences of one length need no mask; others are padded with 0 at their ends."""

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

    def forward(self, x: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """From positions of x [B, T, H] to those of y [B, S, H] that the mask [B, 1, 1, S] leaves."""

        def heads(z: torch.Tensor) -> torch.Tensor:
            return z.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

        attended = functional.scaled_dot_product_attention(
            *(heads(self.q(x)), heads(self.k(y)), heads(self.v(y))),
            attn_mask=mask,
            dropout_p=self.dropout,
            is_causal=self.causal,
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

    def forward(
        self, x: torch.Tensor, encoded: torch.Tensor | None = None, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The mask is that of the encoder's positions. What follows a target is hidden from it, so padding is too."""
        y = self.norms[0](x)
        x = x + self.dropout(self.self_attention(y, y, None if self.self_attention.causal else mask))
        if self.encdec_attention is not None:
            x = x + self.dropout(self.encdec_attention(self.norms[1](x), encoded, mask))
        return x + self.dropout(self.feed_forward(self.norms[-1](x)))


class Transformer(nn.Module):
    def __init__(self, a: Architecture, length: int, pads: bool = False):
        """Sentences of at most so many ids."""
        super().__init__()
        self.pads = pads
        self.scale = a.hidden_size**0.5
        self.embedding = nn.Parameter(torch.randn(a.vocab_size, a.hidden_size) / self.scale)
        self.register_buffer("positions", torch.tensor(a.positions(length)))
        self.encoder = nn.ModuleList(Layer(a, decodes=False) for _ in range(a.num_layers))
        self.decoder = nn.ModuleList(Layer(a, decodes=True) for _ in range(a.num_layers))
        self.encoder_norm, self.decoder_norm = norm(a), norm(a)
        self.dropout = nn.Dropout(a.dropout)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Ids [B, S] and [B, T] -> logits [B * T, vocab_size]."""
        mask = (inputs != 0)[:, None, None, :] if self.pads else None
        x = self.dropout(self.embed(inputs) + self.positions[: inputs.shape[1]])
        for layer in self.encoder:
            x = layer(x, mask=mask)
        encoded = self.encoder_norm(x)
        x = self.dropout(functional.pad(self.embed(targets), (0, 0, 1, -1)) + self.positions[: targets.shape[1]])
        for layer in self.decoder:
            x = layer(x, encoded, mask)
        return functional.linear(self.decoder_norm(x).flatten(0, 1), self.embedding)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.embedding) * self.scale


def norm(a: Architecture) -> nn.LayerNorm:
    return nn.LayerNorm(a.hidden_size, eps=1e-6)


def build(a: Architecture, sentences: int, length: int) -> tuple[nn.Module, list[torch.Tensor], torch.optim.Optimizer]:
    """The module, its batch (inputs, targets, labels) and Adam. The labels are the targets in one row."""
    model, optimizer = build_model(a, length)
    ids = torch.ones(sentences, length, dtype=torch.int64)
    return model, [ids, ids.clone(), ids.flatten()], optimizer


def build_model(a: Architecture, length: int, pads: bool = False) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Transformer(a, length, pads)
    for parameter in model.parameters():
        if parameter.dim() == 2 and parameter is not model.embedding:
            nn.init.xavier_uniform_(parameter)
    return model, torch.optim.Adam(model.parameters(), lr=1e-6, betas=(a.beta1, a.beta2), eps=a.epsilon, fused=True)


def label_smoothing(a: Architecture) -> float:
    """PyTorch's spreads over all ids what the official one spreads over all others."""
    return a.label_smoothing * a.vocab_size / (a.vocab_size - 1)
