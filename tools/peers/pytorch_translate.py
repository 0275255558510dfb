"""Prints how many tokens a second a beam search in PyTorch finds with an official Transformer that was not trained.

Keys and values are kept: those of the source once for all hypotheses of a sentence, which attend to them as queries of
one batch, those of what was decoded for each hypothesis, moved when hypotheses change places.
"""

import math

import torch
import translate
from torch import nn
from torch.nn import functional
from transformer_architecture import Architecture

EOS = 1


class Attention(nn.Module):
    def __init__(self, a: Architecture):
        super().__init__()
        self.num_heads = a.num_heads
        self.qkv = nn.Linear(a.hidden_size, 3 * a.hidden_size, bias=False)
        self.output_transform = nn.Linear(a.hidden_size, a.hidden_size, bias=False)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(-3, -2)

    def merge(self, x: torch.Tensor) -> torch.Tensor:
        return self.output_transform(x.transpose(-3, -2).flatten(-2))


class SourceAttention(nn.Module):
    def __init__(self, a: Architecture):
        super().__init__()
        self.num_heads = a.num_heads
        self.q = nn.Linear(a.hidden_size, a.hidden_size, bias=False)
        self.kv = nn.Linear(a.hidden_size, 2 * a.hidden_size, bias=False)
        self.output_transform = nn.Linear(a.hidden_size, a.hidden_size, bias=False)

    heads, merge = Attention.heads, Attention.merge


class Layer(nn.Module):
    def __init__(self, a: Architecture, decodes: bool):
        super().__init__()
        self.self_attention = Attention(a)
        self.source_attention = SourceAttention(a) if decodes else None
        self.norms = nn.ModuleList(nn.LayerNorm(a.hidden_size, eps=1e-6) for _ in range(3 if decodes else 2))
        self.feed_forward = nn.Sequential(
            nn.Linear(a.hidden_size, a.filter_size), nn.ReLU(), nn.Linear(a.filter_size, a.hidden_size)
        )


class Translator(nn.Module):
    def __init__(self, a: Architecture, dtype: torch.dtype):
        super().__init__()
        self.a, self.dtype, self.scale = a, dtype, a.hidden_size**0.5
        self.embedding = nn.Parameter(torch.randn(a.vocab_size, a.hidden_size) / self.scale)
        self.encoder = nn.ModuleList(Layer(a, decodes=False) for _ in range(a.num_layers))
        self.decoder = nn.ModuleList(Layer(a, decodes=True) for _ in range(a.num_layers))
        self.encoder_norm, self.decoder_norm = (nn.LayerNorm(a.hidden_size, eps=1e-6) for _ in range(2))
        self.register_buffer("positions", torch.tensor(a.positions(256)))
        self.to(dtype)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.embedding) * self.scale

    def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Ids [B, S] -> of each layer of the decoder keys and values [B, heads, S, head_size]."""
        x = self.embed(ids) + self.positions[: ids.shape[1]]
        for layer in self.encoder:
            attention = layer.self_attention
            q, k, v = (attention.heads(y) for y in attention.qkv(layer.norms[0](x)).chunk(3, -1))
            x = x + attention.merge(functional.scaled_dot_product_attention(q, k, v, attn_mask=mask))
            x = x + layer.feed_forward(layer.norms[1](x))
        x = self.encoder_norm(x)
        keys_and_values = []
        for layer in self.decoder:
            k, v = (layer.source_attention.heads(y) for y in layer.source_attention.kv(x).chunk(2, -1))
            keys_and_values.append((k.contiguous(), v.contiguous()))
        return keys_and_values

    def step(
        self,
        x: torch.Tensor,
        position: int,
        cache: list[torch.Tensor],
        source: list[tuple[torch.Tensor, torch.Tensor]],
        mask: torch.Tensor,
    ) -> torch.Tensor:
        """The newest token of each hypothesis [R, H], R = B * beam, to logits [R, vocab_size]."""
        for layer, cached, (k, v) in zip(self.decoder, cache, source):
            attention = layer.self_attention
            qkv = attention.qkv(layer.norms[0](x)).view(len(x), 3, attention.num_heads, -1)
            cached[:, :, :, position] = qkv[:, 1:]
            known = cached[:, :, :, : position + 1]
            q = qkv[:, 0].unsqueeze(2)
            attended = functional.scaled_dot_product_attention(q, known[:, 0], known[:, 1])
            x = x + attention.output_transform(attended.flatten(1))
            attention = layer.source_attention
            q = attention.heads(attention.q(layer.norms[1](x)).view(len(k), translate.BEAM_SIZE, -1))
            attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            x = x + attention.merge(attended).flatten(0, 1)
            x = x + layer.feed_forward(layer.norms[2](x))
        return functional.linear(self.decoder_norm(x), self.embedding)

    @torch.inference_mode()
    def translate(self, ids: torch.Tensor, lengths: torch.Tensor, steps: int) -> torch.Tensor:
        """Ids [B, S] -> the best translation of each [B, steps]."""
        batch, beam, a = len(ids), translate.BEAM_SIZE, self.a
        mask = (torch.arange(ids.shape[1]) < lengths[:, None])[:, None, None, :]
        source = self.encode(ids, mask)
        # Keys and values.
        shape = (batch * beam, 2, a.num_heads, steps, a.hidden_size // a.num_heads)
        cache = [torch.empty(shape, dtype=self.dtype) for _ in self.decoder]
        log_probs = torch.full((batch, beam), -math.inf)
        log_probs[:, 0] = 0
        translations = torch.zeros(batch, beam, steps, dtype=torch.int64)
        first_of_sentence = beam * torch.arange(batch)[:, None]
        x = torch.zeros(batch * beam, a.hidden_size, dtype=self.dtype)
        for position in range(steps):
            logits = self.step(x + self.positions[position], position, cache, source, mask).float()
            logits[:, EOS] = -math.inf
            # The best of each hypothesis, then of the sentence: no log probability of every token is needed.
            best, best_ids = logits.topk(2 * beam)
            best = best - logits.logsumexp(-1, keepdim=True) + log_probs.view(-1, 1)
            log_probs, places = best.view(batch, -1).topk(beam)
            ids_of_places = best_ids.view(batch, -1).gather(1, places)
            parents = places // (2 * beam)
            translations = translations.gather(1, parents.unsqueeze(-1).expand(-1, -1, steps))
            translations[:, :, position] = ids_of_places
            rows = (first_of_sentence + parents).flatten()
            for cached in cache:
                cached[:, :, :, : position + 1] = cached[:, :, :, : position + 1][rows]
            x = self.embed(ids_of_places.flatten())
        # All are as long, so the length penalty changes no order.
        return translations[:, 0]


def main() -> None:
    args, architecture = translate.parse()
    torch.set_default_device("cuda" if args.device == "gpu" else "cpu")
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
    translator = Translator(architecture, dtype).eval()
    lengths = torch.tensor(args.lengths)
    ids = torch.randint(2, architecture.vocab_size, (len(lengths), max(args.lengths)))

    def run() -> int:
        return translator.translate(ids, lengths, args.steps).cpu().numel()  # waits for a GPU

    translate.measure(run, args)


if __name__ == "__main__":
    main()
