"""Prints how many users a second an evaluation of neural collaborative filtering in PyTorch does."""

import contextlib
import math

import ncf_evaluation
import pytorch_ncf
import torch
from ncf_architecture import architecture


def main() -> None:
    p = ncf_evaluation.parser()
    p.add_argument("--compile", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    a = architecture(args)
    model = pytorch_ncf.NeuMF(a, sparse=False).eval()
    users = torch.randint(a.num_users, (args.batch_size, 1))
    items = torch.randint(a.num_items, (args.batch_size, ncf_evaluation.CANDIDATES))
    low_precision = torch.autocast("cpu", torch.bfloat16) if args.dtype == "bf16" else contextlib.nullcontext()

    def metrics(users: torch.Tensor, items: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Users [U, 1], their candidates [U, C], the held-out item first: the sums of HR and NDCG."""
        with low_precision:
            scores = model(users, items).float()
        rank = (scores[:, 1:] >= scores[:, :1]).sum(1)  # faster than topk
        hit = rank < ncf_evaluation.TOP_K
        return hit.sum(), (hit * math.log(2) / (rank + 2).log()).sum()

    evaluate = torch.compile(metrics) if args.compile else metrics
    with torch.inference_mode():
        ncf_evaluation.measure(lambda: float(evaluate(users, items)[0]), args)


if __name__ == "__main__":
    main()
