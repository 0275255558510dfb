"""Trains the official Transformer in PyTorch on batches of sentences, padded, and prints its speed.

The batches come from a file, three lines each: their sizes [B, S, T], the ids of the inputs, those of the targets.
"""

import contextlib

import pytorch_transformer
import timing
import torch
import transformer_architecture
from torch import nn


def read_batches(path: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    batches = []
    with open(path) as file:
        for sizes in file:
            sentences, inputs, targets = map(int, sizes.split())
            rows = [torch.tensor([int(word) for word in next(file).split()]) for _ in range(2)]
            batches.append((rows[0].view(sentences, inputs), rows[1].view(sentences, targets)))
    return batches


def main() -> None:
    p = timing.parser()
    transformer_architecture.add_flags(p)
    p.add_argument("--batches", required=True, help="the file")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    batches = read_batches(args.batches)
    sentences = sum(len(inputs) for inputs, _ in batches[args.warmup_steps : args.warmup_steps + args.steps])
    args.batch_size = sentences / args.steps

    a = transformer_architecture.architecture(args)
    model, optimizer = pytorch_transformer.build_model(a, length=256, pads=True)
    low_precision = torch.autocast("cpu", torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext()
    smoothing = pytorch_transformer.label_smoothing(a)
    following = iter(batches)

    def step() -> torch.Tensor:
        inputs, targets = next(following)
        with low_precision:
            logits = model(inputs, targets)
        loss = nn.functional.cross_entropy(logits.float(), targets.flatten(), ignore_index=0, label_smoothing=smoothing)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    timing.measure(step, args)


if __name__ == "__main__":
    main()
