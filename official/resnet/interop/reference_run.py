"""TensorFlow's side of the parity tests (tools/interop/reference.py)."""

from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

from official.resnet.interop import parity_case, resnet_graph
from official.resnet.interop.parity_case import Case
from official.resnet.interop.resnet_graph import Network, ResnetGraph
from tools.interop import graph, reference
from tools.interop.parity import write_bundle


def build(case: Case) -> ResnetGraph:
    return resnet_graph.build(Network(case.dataset, case.size, case.version))


def run(folder: Path, case: Case, side: str, threads: int) -> None:
    (folder / "initial").mkdir(parents=True, exist_ok=True)
    (folder / side).mkdir()
    inputs = parity_case.draw_inputs(case)
    model = build(case)
    with graph.session(model, threads) as sess:
        graph.initialize(model, sess, resnet_graph.drawn_values(model, case.seed))
        if side == reference.FIRST_SIDE:
            model.saver.save(sess, str(folder / "initial" / "model.ckpt"), global_step=0)
        probabilities = sess.run(model.probabilities, {model.images: inputs["prediction_images"]})
        losses = train(sess, model, inputs, case)
        model.saver.save(sess, str(folder / side / "model.ckpt"), global_step=case.steps)
    write_bundle(folder / side / "outputs", {"losses": losses, "initial_probabilities": probabilities})
    if side == reference.FIRST_SIDE:
        write_bundle(folder / "inputs", inputs)


def train(sess: tf.Session, model: ResnetGraph, inputs: dict[str, np.ndarray], case: Case) -> np.ndarray:
    """The loss before each update."""
    feed = {model.images: inputs["images"], model.labels: inputs["labels"]}
    feed |= {model.training: True, model.learning_rate: case.learning_rate}
    return graph.train(model, sess, [feed] * case.steps)


if __name__ == "__main__":
    reference.main(Case, run)
