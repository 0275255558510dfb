"""The pods of tools/cluster/kubernetes train with the bits of one process, also if some are lost. Usage: MODULE PROGRAM

The engines and the file systems, networks and users of pods are emulated (pods.py). The commands of the manifests get
further flags, so that they train for some steps on no data.
"""

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from official.workers import manifests, pods

STEPS = 40
FLAGS = [
    "--use_synthetic_data",
    "--batch_size=8",
    f"--max_train_steps={STEPS}",
    "--save_checkpoints_steps=8",
    "--intra_op_parallelism_threads=1",
    f"--start_timeout_secs={pods.DEADLINE}",
]
LIBRARY = "utils/distribute/grpc/libofficial_cluster.so"


def latest_step(model_dir: Path) -> int:
    state = model_dir / "checkpoint"
    return int(re.search(r"-(\d+)\"", state.read_text())[1]) if state.exists() else 0


class PodsTest(unittest.TestCase):
    program: Path

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))))
        programs = cls.folder / "programs"
        programs.mkdir()
        for file in (cls.program, cls.program.parents[2] / LIBRARY):
            shutil.copy(file, programs)
        cls.programs = programs
        alone = cls.folder / "alone"
        flags = [*FLAGS, "--num_replicas=4", "--train_epochs=40", f"--model_dir={alone}"]
        subprocess.run([cls.program, *flags], check=True, capture_output=True)
        cls.alone = cls.digest(alone)

    @staticmethod
    def digest(model_dir: Path) -> str:
        return hashlib.sha256((model_dir / f"model.ckpt-{STEPS}.data-00000-of-00001").read_bytes()).hexdigest()

    def run_job(self, name: str, flags: list[str], kill: tuple[int, ...] = ()) -> tuple[str, list[list[pods.Ended]]]:
        """Runs a manifest until its engine ends it. `kill` are the workers to be killed one after the other, each when
        the run has gone on from where it was before. Returns the result, and the pods that ended, in the groups in
        which the engine saw them."""
        controller, specs = pods.controller_of(name)
        to_kill, history = list(kill), []
        folder = self.enterContext(tempfile.TemporaryDirectory(dir=self.folder))
        self.cluster = self.enterContext(pods.Cluster(Path(folder), self.programs))
        self.model_dir = self.cluster.claim("mnist") / "model"
        step, until = 0, time.monotonic() + pods.DEADLINE
        again = specs
        while True:
            for spec in again:
                self.cluster.start(spec, flags)
            ended = []
            while not ended:
                self.assertLess(time.monotonic(), until, self.told(history))
                self.cluster.tell_names()
                if to_kill and (reached := latest_step(self.model_dir)) > step:
                    step = reached
                    self.cluster.pods[specs[to_kill.pop(0)].hostname].signal(signal.SIGKILL)
                time.sleep(0.02)
                ended = self.cluster.ended()
            settled = time.monotonic() + pods.SETTLE
            while self.cluster.pods and time.monotonic() < settled:
                time.sleep(0.02)
                ended += self.cluster.ended()
            history.append(ended)
            result, again = controller.judge(ended)
            if result:
                self.cluster.stop_all()
                return result, history
            for spec in again:
                if spec.hostname in self.cluster.pods:
                    self.cluster.pods.pop(spec.hostname).kill()

    def told(self, history: list[list[pods.Ended]]) -> str:
        running = "".join(f"{pod.name} runs\n{pod.output.read_text()}" for pod in self.cluster.pods.values())
        return "".join(f"{e.pod} ended with {e.code}\n{e.told}" for group in history for e in group) + running

    def test_a_run(self) -> None:
        for name in manifests.NAMES:
            with self.subTest(name):
                result, history = self.run_job(name, FLAGS)
                self.assertEqual(result, "Complete", self.told(history))
                self.assertEqual([e.code for group in history for e in group], [0] * 4, self.told(history))
                self.assertEqual(self.digest(self.model_dir), self.alone, self.told(history))

    def test_a_pod_is_killed(self) -> None:
        for name in manifests.NAMES:
            with self.subTest(name):
                _, specs = pods.controller_of(name)
                victims = (2, 0)
                result, history = self.run_job(name, FLAGS, kill=victims)
                told = self.told(history)
                self.assertEqual(result, "Complete", told)
                self.assertEqual(len(history), 3, told)
                for victim, ended in zip(victims, history):
                    codes = {each.pod: each.code for each in ended}
                    expected = {spec.hostname: 137 if i == victim else 138 for i, spec in enumerate(specs)}
                    self.assertEqual(codes, expected, told)
                self.assertEqual({each.code for each in history[2]}, {0}, told)
                self.assertEqual(self.digest(self.model_dir), self.alone, told)

    def test_a_wrong_flag(self) -> None:
        for name in manifests.NAMES:
            with self.subTest(name):
                result, (ended,) = self.run_job(name, [*FLAGS, "--batch_size=0"])
                self.assertIn(result, ("PodFailurePolicy", "Failed"))
                self.assertEqual({each.code for each in ended}, {2}, self.told([ended]))


if __name__ == "__main__":
    pods.enter_namespaces()
    PodsTest.program = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
