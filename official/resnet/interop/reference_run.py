"""TensorFlow's side of the parity tests, as a command: threads and oneDNN are fixed for a process's life.

  python -m official.resnet.interop.reference_run FOLDER SIDE THREADS

runs every case of FOLDER/cases.json, in FOLDER/<name of the case>. The side FIRST_SIDE writes what we start from.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from official.resnet.interop import parity_case, resnet_graph
from official.resnet.interop.parity_case import Case
from official.resnet.interop.resnet_graph import Network, ResnetGraph
from tools.interop.parity import write_bundle

FIRST_SIDE = "tensorflow"


def build(case: Case) -> ResnetGraph:
    return resnet_graph.build(Network(case.dataset, case.size, case.version))


def run(folder: Path, case: Case, side: str, threads: int) -> None:
    (folder / "initial").mkdir(parents=True, exist_ok=True)
    (folder / side).mkdir()
    inputs = parity_case.draw_inputs(case)
    model = build(case)
    with resnet_graph.session(model, threads) as sess:
        resnet_graph.initialize(model, sess, resnet_graph.drawn_values(model, case.seed))
        if side == FIRST_SIDE:
            model.saver.save(sess, str(folder / "initial" / "model.ckpt"), global_step=0)
        probabilities = sess.run(model.probabilities, {model.images: inputs["prediction_images"]})
        losses = train(sess, model, inputs, case.steps, case.learning_rate)
        model.saver.save(sess, str(folder / side / "model.ckpt"), global_step=case.steps)
    write_bundle(folder / side / "outputs", {"losses": losses, "initial_probabilities": probabilities})
    if side == FIRST_SIDE:
        write_bundle(folder / "inputs", inputs)


def train(
    sess: resnet_graph.tf.Session, model: ResnetGraph, inputs: dict[str, np.ndarray], steps: int, learning_rate: float
) -> np.ndarray:
    """The loss before each update."""
    feed = {model.images: inputs["images"], model.labels: inputs["labels"]}
    feed |= {model.training: True, model.learning_rate: learning_rate}
    return np.array([sess.run([model.loss, model.train_op], feed)[0] for _ in range(steps)], np.float32)


def run_in_own_process(folder: Path, side: str, threads: int, onednn: bool) -> None:
    command = [sys.executable, "-m", "official.resnet.interop.reference_run", str(folder), side, str(threads)]
    subprocess.run(command, env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(onednn))}, check=True)


def main() -> None:
    folder, side, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for case in parity_case.read_cases(folder):
        run(folder / case.name, case, side, threads)


if __name__ == "__main__":
    main()
