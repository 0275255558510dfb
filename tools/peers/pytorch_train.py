"""Trains a model in PyTorch on constant random data and prints its speed."""

import argparse
import contextlib
from collections.abc import Callable

import ncf_architecture
import pytorch_ncf
import pytorch_resnet
import pytorch_transformer
import resnet_architecture
import timing
import torch
import transformer_architecture
from torch import nn


# The module, its batch (what it takes, such as images NCHW, then labels) and its optimizer.
Training = tuple[nn.Module, list[torch.Tensor], torch.optim.Optimizer]


def mnist(args: argparse.Namespace) -> Training:
    """The official CNN with Adam."""
    model = nn.Sequential(
        *(nn.Conv2d(1, 32, kernel_size=5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, kernel_size=5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Dropout(0.4), nn.Linear(1024, 10)),
    )
    batch = [torch.rand(args.batch_size, 1, 28, 28), torch.randint(10, (args.batch_size,))]
    return model, batch, torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)


def resnet(args: argparse.Namespace) -> Training:
    return pytorch_resnet.build(resnet_architecture.architecture(args), args.batch_size)


def transformer(args: argparse.Namespace) -> Training:
    return pytorch_transformer.build(transformer_architecture.architecture(args), args.batch_size, args.sentence_length)


def ncf(args: argparse.Namespace) -> Training:
    return pytorch_ncf.build(ncf_architecture.architecture(args), args.batch_size, args.sparse)


MODELS: dict[str, Callable[[argparse.Namespace], Training]] = {
    "mnist": mnist,
    "ncf": ncf,
    "resnet": resnet,
    "transformer": transformer,
}


def main() -> None:
    p = timing.parser()
    resnet_architecture.add_flags(p)
    transformer_architecture.add_flags(p)
    ncf_architecture.add_flags(p)
    p.add_argument("--sparse", action="store_true", help="of NCF: sparse gradients of embeddings, and SparseAdam")
    p.add_argument("--compile", action="store_true", help="torch.compile the forward and backward pass")
    p.add_argument("--cuda_graphs", action="store_true", help="with --compile: replay the compiled passes as CUDA graphs")
    p.add_argument("--channels_last", action="store_true")
    p.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    p.add_argument("--distributed", action="store_true", help="one of several processes, as torchrun tells them")
    args = p.parse_args()
    device = "cuda" if args.device == "gpu" else "cpu"
    torch.set_default_device(device)
    # On a GPU: algorithms are chosen by timing, and fp32 is not TF32, as in ours.
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)

    # Each worker has its share of the batch, and all speed is that of the whole.
    own = argparse.Namespace(**vars(args))
    if args.distributed:
        torch.distributed.init_process_group("gloo")
        own.batch_size = args.batch_size // torch.distributed.get_world_size()
    model, batch, optimizer = MODELS[args.model](own)
    if args.channels_last:
        model, batch[0] = model.to(memory_format=torch.channels_last), batch[0].to(memory_format=torch.channels_last)
    if args.distributed:
        model = nn.parallel.DistributedDataParallel(model)
    label_smoothing = 0.0
    if args.model == "transformer":
        label_smoothing = pytorch_transformer.label_smoothing(transformer_architecture.architecture(args))
    low_precision = contextlib.nullcontext()
    if args.dtype != "fp32":
        low_precision = torch.autocast(device, torch.bfloat16 if args.dtype == "bf16" else torch.float16)
    # The scale is constant, as ours is by default.
    scaler = torch.amp.GradScaler(device, init_scale=128, growth_interval=1 << 30, enabled=args.dtype == "fp16")

    def loss_of(*batch: torch.Tensor) -> torch.Tensor:
        with low_precision:
            logits = model(*batch[:-1])
        if args.model == "ncf":
            return pytorch_ncf.loss(logits.float(), batch[-1])
        return nn.functional.cross_entropy(logits.float(), batch[-1], label_smoothing=label_smoothing)

    mode = "reduce-overhead" if args.cuda_graphs else "default"
    forward = torch.compile(loss_of, mode=mode) if args.compile else loss_of

    def step() -> torch.Tensor:
        loss = forward(*batch)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    timing.measure(step, args)
    if args.distributed:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
