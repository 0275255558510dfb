"""Measures a binary of ours and its peers, in turn, several times over, and prints the medians; of the first step and
the peak memory the least. See tools/bench.

Every measurement is a process of its own, so that start-up and peak memory are measured alike for all.
"""

import argparse
import gzip
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from statistics import median

import cluster
import sum_model
from runs import Contestant, Measurement, RunFailed, busy_loops, run

TOOLS = Path(__file__).resolve().parent.parent
# A peer slower than this share of the best one of its dtype is measured once only.
FAR_BEHIND = 0.7
# The peer that computes the graphs of ours: our programs on a PJRT plugin instead of our kernels.
XLA = "XLA for CPUs, our graphs"
# Steps that our programs leave out of their speed.
OUR_WARMUP_STEPS = 5


@dataclass(frozen=True)
class Workload:
    """A training, the input of one alone, translation, or an evaluation."""

    model: str  # <model>_main, and of the peers' scripts
    batch_size: int  # examples; of the Transformer ids
    flags: tuple[str, ...] = ()  # of both
    peers: str = ""  # those of interest, by a pattern in their names
    rounds: int = 3
    warmup_steps: int = 20  # of the peers
    steps: int = 100  # timed ones of one measurement
    input_of: str = ""  # "train" or "validation": no training, but the input of that alone
    lengths: tuple[int, ...] = ()  # no training, but a beam search of sentences of so many ids
    sentences: bool = False  # of Multi30k instead of synthetic ones
    evaluates: bool = False  # no training, but an evaluation of what `steps` have trained
    distributed: bool = False  # by several processes

    @property
    def sentence_length(self) -> int | None:
        """Of the Transformer: a synthetic batch has as many sentences as each has ids."""
        trains = self.model == "transformer" and not self.lengths and not self.sentences
        return math.isqrt(self.batch_size) if trains else None


def resnet(dataset: str, size: int, **fields: object) -> Workload:
    peers = "^TensorFlow|channels last"  # the layout in which PyTorch's convolutions are faster
    return Workload("resnet", flags=(f"--dataset_name={dataset}", f"--resnet_size={size}"), peers=peers, **fields)


def resnet_input(dataset: str, **fields: object) -> Workload:
    return Workload("resnet", flags=(f"--dataset={dataset}",), **fields)


def transformer(params: str, **fields: object) -> Workload:
    """A parameter set, and what else it should have: "base,hidden_size=256"."""
    param_set, _, overrides = params.partition(",")
    flags = (f"--param_set={param_set}", *([f"--params_override={overrides}"] if overrides else []))
    return Workload("transformer", flags=flags, **fields)


# Of Multi30k's test_2016_flickr the first 16 sentences, with the vocabulary of 8192 subtokens.
MULTI30K_LENGTHS = (12, 21, 15, 21, 10, 30, 14, 32, 8, 15, 13, 20, 12, 12, 9, 15)
# Tokens of each translation, so that all do the same work.
DECODE_STEPS = 32


def ncf(dataset: str, batch_size: int, **fields: object) -> Workload:
    """Of the sizes that are usual for the data set: the official ones, or MLPerf's."""
    flags = [f"--dataset={dataset}"]
    if dataset == "ml-20m":
        flags += ["--num_factors=64", "--layers=256,256,128,64"]
    return Workload("ncf", batch_size=batch_size, flags=tuple(flags), **fields)


# Users that a peer evaluates at a time, where it is fastest.
NCF_EVAL_USERS = {"ml-1m": {"pytorch": 32, "tensorflow": 128}, "ml-20m": {"pytorch": 8, "tensorflow": 8}}


WORKLOADS = {
    "mnist": Workload("mnist", batch_size=100),
    "resnet-cifar10-20": resnet("cifar10", 20, batch_size=128, warmup_steps=3, steps=20),
    "resnet-cifar10-32": resnet("cifar10", 32, batch_size=128, warmup_steps=3, steps=12),
    "resnet-cifar10-56": resnet("cifar10", 56, batch_size=128, warmup_steps=3, steps=8),
    "resnet-imagenet-50": resnet("imagenet", 50, batch_size=32, rounds=2, warmup_steps=1, steps=2),
    "transformer-tiny": transformer("tiny", batch_size=4096, rounds=2, warmup_steps=3, steps=10),
    "transformer-base": transformer("base", batch_size=576, rounds=2, warmup_steps=3, steps=5),
    "gpu-transformer-big": transformer("big", batch_size=16384, rounds=2, warmup_steps=10, steps=100),
    "distribute-mnist": Workload("mnist", batch_size=100, distributed=True),
    "distribute-resnet-cifar10-32": resnet("cifar10", 32, batch_size=128, warmup_steps=3, steps=12, distributed=True),
    "distribute-transformer-base": transformer(
        "base", batch_size=1936, rounds=2, warmup_steps=2, steps=4, distributed=True
    ),
    "transformer-decode": transformer("base", batch_size=16, lengths=MULTI30K_LENGTHS),
    "ncf-ml-1m-256": ncf("ml-1m", 256, warmup_steps=200, steps=5000),
    "ncf-ml-1m-98304": ncf("ml-1m", 98304, warmup_steps=3, steps=30),
    "ncf-ml-20m-65536": ncf("ml-20m", 65536, rounds=2, warmup_steps=2, steps=6),
    "ncf-ml-20m-1048576": ncf("ml-20m", 1 << 20, rounds=1, warmup_steps=1, steps=2),
    "ncf-eval-ml-1m": ncf("ml-1m", 256, steps=20000, evaluates=True),
    "ncf-eval-ml-20m": ncf("ml-20m", 2048, steps=2000, evaluates=True, rounds=2),
    "transformer-multi30k": transformer(
        "base,hidden_size=256,num_heads=4,filter_size=1024,num_hidden_layers=4",
        batch_size=2048,
        sentences=True,
        rounds=2,
        steps=60,
    ),
    "resnet-input-train": resnet_input("imagenet", batch_size=32, input_of="train"),
    "resnet-input-validation": resnet_input("imagenet", batch_size=32, input_of="validation"),
    "resnet-input-cifar10": resnet_input("cifar10", batch_size=128, input_of="train"),
}


def build(package: str, binary: str) -> Path:
    subprocess.run([TOOLS / "build", f"//{package}:{binary}"], check=True)
    return TOOLS.parent / "bazel-bin" / package / binary


def our_program(args: argparse.Namespace, package: str, binary: str) -> str:
    """The one that the command line names, or that it names the folder of; else it is built."""
    if args.binary:
        return args.binary
    return str(args.programs / binary if args.programs else build(package, binary))


def our_command(args: argparse.Namespace, workload: Workload, dtype: str) -> list[str]:
    folder = {"ncf": "recommendation"}.get(workload.model, workload.model)
    binary = our_program(args, f"official/{folder}", f"{workload.model}_main")
    command = [binary, *workload.flags, f"--num_gpus={1 if args.device == 'gpu' else 0}", "--log_format=json"]
    command += [f"--batch_size={workload.batch_size}", f"--dtype={dtype}"]
    # Ours draws its examples and negatives meanwhile, of ratings that it makes where there are none. The peers' are given.
    if workload.model == "ncf":
        command += ["--nodownload_if_missing"]
    elif not workload.sentences:
        command += ["--use_synthetic_data"]
    # Steps end the run, not epochs.
    command += [f"--max_train_steps={OUR_WARMUP_STEPS + workload.steps}"]
    return command + ["--train_epochs=1000000", "--epochs_between_evals=1000000"]


def script_command(args: argparse.Namespace, script: str, environment: str) -> list[str]:
    """Makes the Python environment where it is missing."""
    python = args.python
    if not python:
        made = subprocess.run([TOOLS / "python_env", environment], check=True, stdout=subprocess.PIPE, text=True)
        python = f"{made.stdout.strip()}/bin/python"
    return [python, str(TOOLS / "peers" / script)]


def pjrt_plugin(args: argparse.Namespace) -> str:
    """XLA for CPUs, which our programs can load if they are built after this."""
    if args.pjrt_plugin:
        return args.pjrt_plugin
    made = subprocess.run([TOOLS / "python_env", "pjrt"], check=True, stdout=subprocess.PIPE, text=True)
    os.environ["OFFICIAL_PJRT_ENV"] = environment = made.stdout.strip()
    (plugin,) = Path(environment).glob("lib/python3*/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so")
    return str(plugin)


def peer_command(
    args: argparse.Namespace, workload: Workload, script: str, environment: str, threads: int
) -> list[str]:
    command = script_command(args, script, environment) + [f"--model={workload.model}", *workload.flags]
    if workload.sentence_length:
        command += [f"--batch_size={workload.sentence_length}", f"--sentence_length={workload.sentence_length}"]
    else:
        command += [f"--batch_size={workload.batch_size}"]
    command += [f"--threads={threads}"]
    return command + [f"--warmup_steps={workload.warmup_steps}", f"--steps={workload.steps}"]


def contestants(args: argparse.Namespace, workload: Workload) -> list[Contestant]:
    """Ours, then each peer in each of its modes. With 16 bits the peers run in fp32, too: both ratios count."""
    name = " ".join([f"{workload.model}_main", *(flag.split("=")[1] for flag in workload.flags)])
    peer_dtypes = list(dict.fromkeys([*args.dtype, "fp32"]))

    def is_wanted(peer: str, dtype: str) -> bool:
        return bool(re.search(workload.peers, f"{peer} ({dtype})", re.IGNORECASE))

    xla_dtypes = [dtype for dtype in peer_dtypes if args.device == "cpu" and is_wanted(XLA, dtype)]
    plugin = pjrt_plugin(args) if xla_dtypes else ""
    field = []
    for dtype in args.dtype:
        command = our_command(args, workload, dtype)
        field.append(Contestant(name, dtype, command, ours=True))
        if args.cpu_devices:
            devices = f"--num_cpu_devices={args.cpu_devices}"
            field.append(Contestant(f"{name}, {args.cpu_devices} devices", dtype, [*command, devices], ours=True))
    for dtype in xla_dtypes:
        on_plugin = ["--distribution_strategy=tpu", f"--pjrt_plugin={plugin}"]
        field.append(Contestant(XLA, dtype, [*our_command(args, workload, dtype), *on_plugin]))
    tensorflow = {
        "TensorFlow graph": [],
        f"TensorFlow graph, {args.threads} inter-op threads": [f"--inter_op_threads={args.threads}"],
        "TensorFlow XLA": ["--xla"],
    }
    pytorch = {
        "PyTorch eager": [],
        "PyTorch eager, channels last": ["--channels_last"],
        "PyTorch compiled": ["--compile"],
        "PyTorch compiled, channels last": ["--compile", "--channels_last"],
    }
    if args.device == "gpu":
        tensorflow = {}  # its environments are for the CPU
        pytorch["PyTorch compiled, CUDA graphs"] = ["--compile", "--cuda_graphs"]
        pytorch["PyTorch compiled, CUDA graphs, channels last"] = ["--compile", "--cuda_graphs", "--channels_last"]
    if workload.model in ("transformer", "ncf"):  # no images
        pytorch = {name: flags for name, flags in pytorch.items() if "--channels_last" not in flags}
    if workload.model == "ncf":
        pytorch["PyTorch eager, sparse"] = ["--sparse"]
    for script, environment, modes in [
        ("tensorflow_train.py", "tensorflow-bench", tensorflow),
        ("pytorch_train.py", "pytorch", {name: [*flags, f"--device={args.device}"] for name, flags in pytorch.items()}),
    ]:
        wanted = [
            (name, dtype, flags)
            for dtype in peer_dtypes
            for name, flags in modes.items()
            if is_wanted(name, dtype)
        ]
        if wanted:
            command = peer_command(args, workload, script, environment, args.threads)
            for name, dtype, flags in wanted:
                field.append(Contestant(name, dtype, [*command, *flags, f"--dtype={dtype}"]))
    return field


def distributed_contestants(args: argparse.Namespace, workload: Workload) -> list[Contestant]:
    """Ours in one process and in several, and the peers in several, of as many threads together."""
    name, workers = f"{workload.model}_main", args.workers
    threads_each = max(1, args.threads // workers)
    field = []
    for dtype in args.dtype:
        command = our_command(args, workload, dtype)
        field.append(Contestant(f"{name}, 1 process", dtype, command, ours=True))
        title = f"{name}, {workers} processes"
        if args.mbit:
            command = [*command, "--insecure_cluster"]
        field.append(Contestant(title, dtype, command, True, workers=workers, environment=cluster.tf_config))
    for title, script, packages, environment, flags in [
        ("TensorFlow MultiWorkerMirrored", "tensorflow_train.py", "tensorflow-bench", cluster.tf_config, []),
        ("PyTorch DDP, gloo", "pytorch_train.py", "pytorch", cluster.torchrun, []),
        ("PyTorch DDP, gloo, channels last", "pytorch_train.py", "pytorch", cluster.torchrun, ["--channels_last"]),
    ]:
        if workload.model == "transformer" and "--channels_last" in flags:  # no images
            continue
        for dtype in dict.fromkeys([*args.dtype, "fp32"]):
            if re.search(workload.peers, f"{title} ({dtype})", re.IGNORECASE):
                command = [*peer_command(args, workload, script, packages, threads_each), "--distributed"]
                command += [*flags, f"--dtype={dtype}"]
                field.append(Contestant(title, dtype, command, workers=workers, environment=environment))
    return field


def input_contestants(args: argparse.Namespace, workload: Workload, folder: Path) -> list[Contestant]:
    """All read the same examples, which are made in `folder`; PyTorch reads photographs as the files they are."""
    split = f"--split={workload.input_of}"
    common = [*workload.flags, split, f"--batch_size={workload.batch_size}"]
    ours = [str(build("official/resnet/input_benchmark", "input_benchmark_main")), *common]
    tensorflow = script_command(args, "tensorflow_input.py", "tensorflow-bench") + common
    pytorch = script_command(args, "pytorch_input.py", "pytorch") + common
    data = pytorch_data = f"--data_dir={folder}"
    variants = {"input_benchmark_main": []}
    if "--dataset=imagenet" in workload.flags:
        converter = build("official/resnet/imagenet", "imagenet_to_tfrecords_main")
        images = str(args.images_dir)
        command = [converter, f"--images_dir={images}", f"--output_dir={folder}", split, "--num_shards=4"]
        subprocess.run(command, check=True)
        pytorch_data = f"--data_dir={images}"
        if workload.input_of == "train":
            variants["input_benchmark_main, reduced decoding"] = ["--fast_jpeg"]
    else:
        write_cifar10(folder / "cifar-10-batches-bin")
    measured = [f"--seconds={args.seconds}"]
    field = [
        Contestant(name, "fp32", [*ours, data, *flags, *measured, f"--num_threads={args.threads}"], ours=True)
        for name, flags in variants.items()
    ]
    measured.append(f"--threads={args.threads}")
    field.append(Contestant("TensorFlow tf.data", "fp32", [*tensorflow, data, *measured]))
    field.append(Contestant("PyTorch DataLoader, Pillow", "fp32", [*pytorch, pytorch_data, *measured]))
    return field


def decode_contestants(args: argparse.Namespace, workload: Workload) -> list[Contestant]:
    """With 16 bits the peers run in fp32 too, which on the CPU is all that CTranslate2 computes in except int8."""
    work = [*workload.flags, f"--lengths={','.join(map(str, workload.lengths))}", f"--steps={DECODE_STEPS}"]
    work += [f"--threads={args.threads}", f"--seconds={args.seconds}"]
    ours = [our_program(args, "official/transformer/decode_benchmark", "decode_benchmark_main"), *work]
    ours.append(f"--num_gpus={1 if args.device == 'gpu' else 0}")
    work.append(f"--device={args.device}")
    field = [Contestant("decode_benchmark_main", dtype, [*ours, f"--dtype={dtype}"], ours=True) for dtype in args.dtype]
    for name, script, environment, dtypes in [
        ("PyTorch eager", "pytorch_translate.py", "pytorch", []),
        ("CTranslate2", "ctranslate2_translate.py", "ctranslate2", [] if args.device == "gpu" else ["fp32"]),
    ]:
        for dtype in dtypes or dict.fromkeys([*args.dtype, "fp32"]):
            if re.search(workload.peers, f"{name} ({dtype})", re.IGNORECASE):
                command = [*script_command(args, script, environment), *work, f"--dtype={dtype}"]
                field.append(Contestant(name, dtype, command))
    return field


def evaluation_contestants(args: argparse.Namespace, workload: Workload, folder: Path) -> list[Contestant]:
    """Ours evaluates what it has trained before: how fast it is depends on how many users hit. The peers score random
    candidates with a network that is not trained, which is all the same to them."""
    dataset = workload.flags[0].split("=")[1]
    train = [*our_command(args, workload, "fp32"), f"--model_dir={folder}/model"]
    subprocess.run(train, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rate = r"evaluated \d+ examples in [\d.]+ s: ([\d.]+) examples/s"
    evaluate = [f"--model_dir={folder}/model", "--eval_only"]
    field = [
        Contestant(f"ncf_main {dataset}", dtype, [*our_command(args, workload, dtype), *evaluate], ours=True, rate=rate)
        for dtype in args.dtype
    ]
    if args.device == "gpu":
        return field  # the peers' scripts are for the CPU
    modes = {"tensorflow": {"graph": [], "XLA": ["--xla"]}, "pytorch": {"eager": [], "compiled": ["--compile"]}}
    for script, environment, title in [
        ("tensorflow", "tensorflow-bench", "TensorFlow"),
        ("pytorch", "pytorch", "PyTorch"),
    ]:
        command = [*script_command(args, f"{script}_ncf_evaluation.py", environment), *workload.flags]
        command += [f"--batch_size={NCF_EVAL_USERS[dataset][script]}"]
        command += [f"--threads={args.threads}", f"--seconds={args.seconds}"]
        for dtype in dict.fromkeys([*args.dtype, "fp32"]):
            for mode, flags in modes[script].items():
                name = f"{title} {mode}"
                if re.search(workload.peers, f"{name} ({dtype})", re.IGNORECASE):
                    field.append(Contestant(name, dtype, [*command, *flags, f"--dtype={dtype}"]))
    return field


def translation_contestants(
    args: argparse.Namespace, workload: Workload, folder: Path
) -> tuple[list[Contestant], float]:
    """All train on the same batches of Multi30k's sentences, in the order in which they are there; also how many ids
    of targets, padding not counted, a pair of sentences has among those that are timed."""
    raw, data = folder / "raw", folder / "data"
    raw.mkdir()
    for name in ("train.en", "train.de", "val.en", "val.de"):
        path = args.multi30k_dir / name
        text = path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())
        (raw / name).write_bytes(text)
    prepare = build("official/transformer/prepare", "prepare_data_main")
    subprocess.run([prepare, f"--raw_dir={raw}", f"--data_dir={data}", "--vocab_size=8192"], check=True)
    vocab_size = len((data / "vocab.ende.8192").read_text().splitlines())
    flags = [f"{f},vocab_size={vocab_size}" if f.startswith("--params_override") else f for f in workload.flags]
    workload = replace(workload, flags=tuple(flags), warmup_steps=OUR_WARMUP_STEPS)

    command = [build("official/transformer/interop", "batches"), data, "train", str(workload.batch_size), "padded"]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    timed = range(workload.warmup_steps, workload.warmup_steps + workload.steps)
    if len(lines) < 3 * timed.stop:
        sys.exit(f"tools/bench: an epoch of Multi30k has {len(lines) // 3} batches; give fewer --steps")
    batches = folder / "batches.txt"
    batches.write_text("".join(f"{line}\n" for line in lines[: 3 * timed.stop]))
    sentences = sum(int(lines[3 * i].split()[0]) for i in timed)
    ids = sum(word != "0" for i in timed for word in lines[3 * i + 2].split())

    field = []
    pytorch = script_command(args, "pytorch_translation.py", "pytorch")
    for dtype in args.dtype:
        ours = [*our_command(args, workload, dtype), f"--data_dir={data}", "--noshuffle"]
        field.append(Contestant("transformer_main", dtype, ours, ours=True))
    for dtype in dict.fromkeys([*args.dtype, "fp32"]):
        command = [*pytorch, f"--model={workload.model}", *workload.flags, f"--batches={batches}", "--batch_size=0"]
        command += [f"--threads={args.threads}", f"--warmup_steps={workload.warmup_steps}", f"--steps={workload.steps}"]
        field.append(Contestant("PyTorch eager, padded", dtype, [*command, f"--dtype={dtype}"]))
    return field, ids / sentences


def write_cifar10(folder: Path) -> None:
    """Writes files like those of CIFAR-10's binary version: pixels of noise cost what others do."""
    folder.mkdir()
    for name in [*(f"data_batch_{i + 1}.bin" for i in range(5)), "test_batch.bin"]:
        folder.joinpath(name).write_bytes(b"".join(b"\x07" + os.urandom(3 * 32 * 32) for _ in range(10000)))


def speed(runs: list[Measurement]) -> float:
    return median(r.examples_per_sec for r in runs)


def best_peer(results: dict[str, list[Measurement]], field: list[Contestant], dtype: str) -> str | None:
    rivals = [c.title for c in field if c.dtype == dtype and not c.ours and results[c.title]]
    return max(rivals, key=lambda title: speed(results[title]), default=None)


def measure(
    field: list[Contestant],
    rounds: int,
    args: argparse.Namespace,
    network: cluster.Network,
    save: Callable[[dict[str, list[Measurement]]], None],
) -> dict[str, list[Measurement]]:
    """Round by round, so that what else the machine does falls on all alike. Saves the results after each run. Ends
    with the output of a process that fails; with --keep_going a peer that fails is out of the field, without results.
    """
    results: dict[str, list[Measurement]] = {c.title: [] for c in field}
    best: dict[str, float] = {}  # of each dtype, a peer's speed in the first round
    for i in range(rounds):
        if i == 1:
            best = {c.dtype: speed(results[best_peer(results, field, c.dtype)]) for c in field if not c.ours}
        for c in list(field):
            if i > 0 and not c.ours and speed(results[c.title][:1]) < FAR_BEHIND * best[c.dtype]:
                continue
            print(f"round {i + 1} of {rounds}: {c.title}", end="", file=sys.stderr, flush=True)
            try:
                results[c.title].append(run(c, args.threads, args.run_seconds, network))
                print(f", {results[c.title][-1].examples_per_sec:.4g} examples/s", file=sys.stderr)
            except RunFailed as failure:
                if c.ours or not args.keep_going:
                    sys.exit(f"\n{failure}")
                print(f"\n{failure}", file=sys.stderr)
                results[c.title].clear()
                field.remove(c)
            save(results)
    return results


def print_results(results: dict[str, list[Measurement]], field: list[Contestant], tokens: float | None) -> None:
    """Of sentences the speed is that of their target tokens, of which one has so many."""
    unit, per_example = ("tokens/s", tokens) if tokens else ("examples/s", 1)
    # A peer in fp32 is compared with ours in fp32, if that runs too.
    ours = {c.dtype: c.title for c in reversed(field) if c.ours}
    first = next(c.title for c in field if c.ours)
    trains = any(r.first_step_ms for runs in results.values() for r in runs)
    first_step = f"{'first step':>13}" if trains else ""
    print(f"{'':<56}{unit:>11}{'of runs':>9}{'best':>11}{'ours is':>9}{first_step}{'peak memory':>13}")
    for c in field:
        runs = results[c.title]
        ratio = speed(results[ours.get(c.dtype, first)]) / speed(runs)
        first_step = f"{min(r.first_step_ms for r in runs) / 1000:>11.2f} s" if trains else ""
        print(
            f"{c.title:<56}{per_example * speed(runs):>11.4g}{len(runs):>9}"
            f"{per_example * max(r.examples_per_sec for r in runs):>11.4g}"
            f"{ratio:>8.2f}x{first_step}{min(r.peak_mb for r in runs):>10.0f} MB"
        )
    others = median(r.other_cores for runs in results.values() for r in runs)
    print(f"during the runs other processes kept {others:.1f} cores busy")
    for c in field:
        if c.ours:
            for dtype in dict.fromkeys([c.dtype, "fp32"]):
                rival = best_peer(results, field, dtype)
                if rival:
                    ratio = speed(results[c.title]) / speed(results[rival])
                    print(f"{c.title} against the best {dtype} peer, {rival}: {ratio:.2f}x")


def print_sums(results: dict[str, list[Measurement]], field: list[Contestant], args: argparse.Namespace) -> None:
    """What the processes of a distributed training cost and sent. The CPU time of ours, which is that of the whole
    processes, has the start and the evaluation in it."""
    print(f"{'a step':<56}{'CPU':>11}{'sent by a worker':>18}{'its sums':>12}{'hidden':>9}")
    for c in field:
        runs = [r for r in results[c.title] if r.cpu_ms]
        cpu, sent, sums, waited = (
            median(getattr(r, name) for r in runs) for name in ("cpu_ms", "sent_mb", "sum_ms", "sum_waited_ms")
        )
        row = f"{c.title:<56}{cpu:>8.4g} ms"
        if c.workers > 1:
            row += f"{sent:>15.4g} MB"
        if sums:
            row += f"{sums:>9.4g} ms{max(0, 1 - waited / sums):>9.0%}"
        print(row)
        if sums and args.mbit:
            # As between two workers: with more, too, a worker's time is that of what it sends.
            model = 2 * sum_model.LATENCY_MS + sent * 8e3 / args.mbit
            print(f"  {sent:.4g} MB through {args.mbit} Mbit/s take {model:.4g} ms; these sums {sums / model:.2f}x of that")


def processor(device: str) -> str:
    if device == "gpu":
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        if not shutil.which(query[0]):
            return "a GPU"
        return subprocess.run(query, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0]
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.machine()


def program(path: str) -> str:
    """The absolute path of a file that can be executed, here or in $PATH: each measurement runs in its own directory."""
    found = shutil.which(os.path.abspath(path)) or shutil.which(path)
    if not found:
        raise argparse.ArgumentTypeError(f"there is no program {path} that can be executed")
    return os.path.abspath(found)


def directory(path: str) -> Path:
    if not Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"there is no directory {path}")
    return Path(path).absolute()


def file(path: str) -> str:
    if not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {path}")
    return os.path.abspath(path)


def at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text} is not a number of at least {least}")
        return int(text)

    return number


def seconds(text: str) -> float:
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or float(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0, such as 0.5 or 60")
    return float(text)


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text} is not a regular expression: {error}") from error
    return text


def workloads_named(word: str) -> list[str]:
    """Those whose names begin with the parts of the word."""
    return [name for name in WORKLOADS if f"{name}-".startswith(f"{word}-")]


def new_file(path: str) -> Path:
    directory(os.path.dirname(path) or ".")
    if Path(path).is_dir():
        raise argparse.ArgumentTypeError(f"{path} is a directory")
    return Path(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="tools/bench",
        description="Measures our training and translation against the peers'.",
        epilog=f"Workloads: {', '.join(WORKLOADS)}; by the beginning of their names several: resnet, resnet-cifar10.",
    )
    parser.add_argument("workload", nargs="+", help="what to train; see below")
    parser.add_argument("--batch_size", type=at_least(1), help="examples (Transformer: ids); default: the workload's")
    parser.add_argument("--dtype", default="fp32", help="of the computation: fp32, bf16, on GPUs fp16, or fp32,bf16")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--cpu_devices", type=at_least(1), help="measure ours on so many devices of the CPU, too")
    parser.add_argument("--threads", type=at_least(1), default=len(os.sched_getaffinity(0)), help="default: one per core")
    parser.add_argument("--busy", type=at_least(0), default=0, help="so many busy loops on the same cores all the while")
    parser.add_argument("--workers", type=at_least(2), default=2, help="processes of distribute; they share the threads")
    parser.add_argument("--mbit", type=at_least(1), help="distribute: through links of so many Mbit/s between namespaces (root)")
    parser.add_argument("--rounds", type=at_least(1), help="over all; default: the workload's")
    parser.add_argument("--warmup_steps", type=at_least(1), help="of a peer, not timed; default: the workload's")
    parser.add_argument("--steps", type=at_least(1), help="timed steps of one measurement; default: the workload's")
    parser.add_argument("--peers", type=pattern, help="only peers whose name matches this, as in --peers='eager.*bf16'")
    parser.add_argument("--images_dir", type=directory, help="photographs in folders by class, for ImageNet's input")
    parser.add_argument("--multi30k_dir", type=directory, help="train.en, train.de, val.en, val.de, or these as .gz")
    parser.add_argument("--seconds", type=at_least(1), default=10, help="of one measurement of an input or a translation")
    parser.add_argument("--binary", type=program, help="our program; default: built now")
    parser.add_argument("--programs", type=directory, help="our programs, by their names; default: built now")
    parser.add_argument("--python", type=program, help="runs the peers; default: an environment made for each")
    parser.add_argument("--pjrt_plugin", type=file, help="XLA for CPUs; default: that of tools/python_env pjrt")
    parser.add_argument("--json", type=new_file, help="also write all measurements to this file, after each of them")
    parser.add_argument("--keep_going", action="store_true", help="a peer that fails is left out")
    parser.add_argument("--run_seconds", type=seconds, help="a process that takes longer has failed")
    args = parser.parse_args()
    args.dtype = args.dtype.split(",")
    dtypes = {"fp32", "bf16", "fp16"} if args.device == "gpu" else {"fp32", "bf16"}
    if not set(args.dtype) <= dtypes:
        parser.error(f"--dtype={','.join(args.dtype)} is not of {', '.join(sorted(dtypes))}")
    unknown = [f"'{word}'" for word in args.workload if not workloads_named(word)]
    if unknown:
        parser.error(f"there is no workload {' or '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    names = [name for word in args.workload for name in workloads_named(word)]
    photographs = [name for name in names if WORKLOADS[name].input_of and "--dataset=imagenet" in WORKLOADS[name].flags]
    if photographs and not args.images_dir:
        names = [name for name in names if name not in photographs]
        if not names:
            parser.error(f"{' '.join(args.workload)} needs --images_dir=DIR, photographs in folders by class")
        print(f"without --images_dir there is no {', '.join(photographs)}", file=sys.stderr)
    if any(WORKLOADS[name].sentences for name in names) and not args.multi30k_dir:
        names = [name for name in names if not WORKLOADS[name].sentences]
        if not names:
            parser.error(f"{' '.join(args.workload)} needs --multi30k_dir=DIR, the sentences of Multi30k")
        print("without --multi30k_dir there is no transformer-multi30k", file=sys.stderr)
    given = {key: value for key, value in vars(args).items() if value is not None}

    measurements = {}
    for name in dict.fromkeys(names):
        workload = WORKLOADS[name]
        workload = replace(workload, **{f.name: given[f.name] for f in fields(workload) if f.name in given})
        with tempfile.TemporaryDirectory() as folder:
            tokens = workload.sentence_length
            if workload.lengths:
                field, tokens = decode_contestants(args, workload), 1.0
            elif workload.input_of:
                field = input_contestants(args, workload, Path(folder))
            elif workload.evaluates:
                field = evaluation_contestants(args, workload, Path(folder))
            elif workload.sentences:
                field, tokens = translation_contestants(args, workload, Path(folder))
            elif workload.distributed:
                field = distributed_contestants(args, workload)
            else:
                field = contestants(args, workload)

            def save(results: dict[str, list[Measurement]]) -> None:
                if args.json:
                    of_all = {**measurements, name: {title: [asdict(r) for r in of] for title, of in results.items()}}
                    args.json.write_text(json.dumps(of_all, indent=1))

            workers = max(c.workers for c in field)
            mbit = args.mbit if workers > 1 else None
            with cluster.network(workers, mbit) as network, busy_loops(args.busy, args.threads):
                results = measure(field, workload.rounds, args, network, save)
        beside = f", beside {args.busy} busy loop{'s' if args.busy > 1 else ''}" if args.busy else ""
        print(f"{name}, batch {workload.batch_size}, {args.threads} threads, {processor(args.device)}{beside}")
        without_steps = workload.input_of or workload.lengths or workload.evaluates
        runs = "runs" if without_steps else f"runs of {workload.steps} steps"
        libraries = sorted({run.library for of in results.values() for run in of if run.library})
        if libraries:
            print(f"against {', '.join(libraries)}")
        least = "memory" if without_steps else "first step and memory"
        print(f"medians of interleaved {runs}, of {least} the least; a much slower peer is run once")
        print_results(results, field, tokens)
        if workload.distributed:
            print_sums(results, field, args)
        print(flush=True)
        measurements[name] = {title: [asdict(r) for r in runs] for title, runs in results.items()}


if __name__ == "__main__":
    main()
