"""Several workers on this machine: how tests start them."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from official.faults import harness
from official.workers import launchers

REPLICAS = 4
AS_MANY_REPLICAS = f"--num_replicas={REPLICAS}"  # where the workers hold different numbers of them
# A multiple of the replicas; that of the other programs is one.
BATCH = {"mnist": ("--batch_size=8",), "resnet": ("--batch_size=8",)}


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine that nobody listens on, see launchers.free_ports."""
    return [f"127.0.0.1:{port}" for port in launchers.free_ports(count)]


def tf_configs(count: int, with_chief: bool = False) -> list[str]:
    """TF_CONFIG for each of so many workers on this machine."""
    return configs_of(free_addresses(count), with_chief)


def configs_of(addresses: list[str], with_chief: bool = False) -> list[str]:
    """TF_CONFIG for workers at these addresses, as TensorFlow's documents have it; the first is the chief."""
    count = len(addresses)
    if with_chief:
        cluster = {"chief": addresses[:1], "worker": addresses[1:]}
        tasks = [{"type": "chief", "index": 0}, *({"type": "worker", "index": i} for i in range(count - 1))]
    else:
        cluster = {"worker": addresses}
        tasks = [{"type": "worker", "index": i} for i in range(count)]
    return [json.dumps({"cluster": cluster, "task": task}) for task in tasks]


def addresses_of(configs: list[str]) -> list[str]:
    """The addresses of the workers in such values of TF_CONFIG, without a chief."""
    return json.loads(configs[0])["cluster"]["worker"]


def with_environment(variables: dict[str, str]) -> list[str]:
    """What stands before a command that gets these variables."""
    return ["env", *(f"{name}={value}" for name, value in variables.items())]


def count_records(model_dir: Path) -> int:
    """How many records a run has written to its metric.log."""
    log = model_dir / "metric.log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


class WorkersCase(harness.FaultTest):
    def start_workers(
        self,
        model_dir: Path,
        count: int,
        *flags: str,
        flags_of: dict | None = None,
        prefix_of: dict | None = None,
        log_of: dict | None = None,
        chief: bool = False,
        configs: list[str] | None = None,
    ) -> list[subprocess.Popen]:
        """Starts the processes of a run; `flags_of` has further flags of some of them, by number, `prefix_of` what
        stands before the command of some, `log_of` the files for the logs of some, `configs` the TF_CONFIG of each."""
        flags_of, prefix_of, log_of = flags_of or {}, prefix_of or {}, log_of or {}
        return [
            self.start_worker(
                model_dir, i, config, *flags, *flags_of.get(i, ()), prefix=prefix_of.get(i, ()), log=log_of.get(i)
            )
            for i, config in enumerate(configs or tf_configs(count, chief))
        ]

    def start_worker(
        self,
        model_dir: Path,
        number: int,
        config: str,
        *flags: str,
        prefix: Sequence[str] = (),
        log: Path | None = None,
    ) -> subprocess.Popen:
        # No worker but the chief has a directory.
        directory = model_dir if number == 0 else "/dev/null/none"
        command = self.command(directory, *BATCH.get(self.program.name, ()), *flags)
        environment = {**os.environ, "TF_CONFIG": config, "OMP_NUM_THREADS": "1"}
        return self.start([*prefix, *command], log=log, env=environment)

    def train_workers(self, model_dir: Path, count: int, *flags: str, chief: bool = False, steps: int = harness.STEPS):
        """Trains to step `steps`, which must succeed everywhere, and returns the outcomes."""
        processes = self.start_workers(model_dir, count, f"--max_train_steps={steps}", *flags, chief=chief)
        outcomes = [self.finish(process) for process in processes]
        for outcome in outcomes:
            self.assertEqual(outcome.code, 0, "\n".join(o.told for o in outcomes))
        for outcome in outcomes[1:]:
            self.assertEqual(outcome.stdout, "", outcome.told)  # results are the chief's
        return outcomes

    def train_alone(self, model_dir: Path, *flags: str, steps: int = harness.STEPS) -> None:
        self.train(model_dir, steps, f"--num_cpu_devices={REPLICAS}", *BATCH.get(self.program.name, ()), *flags)

    def wait_for_records(self, model_dir: Path, count: int) -> None:
        """Waits until a run has written so many records to its metric.log."""
        self.wait_until(lambda: count_records(model_dir) >= count, f"{count} records")
