"""TensorFlow's side of the parity tests (tools/interop/reference.py)."""

from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

from official.transformer.interop import parity_case, transformer_graph
from official.transformer.interop.parity_case import Case
from official.transformer.interop.transformer_graph import NETWORKS, TransformerGraph
from tools.interop import graph, reference
from tools.interop.parity import write_bundle


def run(folder: Path, case: Case, side: str, threads: int) -> None:
    (folder / "initial").mkdir(parents=True, exist_ok=True)
    (folder / side).mkdir()
    inputs = parity_case.draw_inputs(case)
    model = transformer_graph.build(NETWORKS[case.param_set])
    with graph.session(model, threads) as sess:
        values = transformer_graph.drawn_values(model, case.seed)
        graph.initialize(model, sess, values, case.first_step)
        if side == reference.FIRST_SIDE:
            initial_saver(model, case).save(sess, str(folder / "initial" / "model.ckpt"), global_step=case.first_step)
        logits, loss = sess.run([model.logits, model.loss], feed_of(model, inputs))
        losses = train(sess, model, inputs, min(case.steps, 1))
        if case.steps:
            model.saver.save(sess, str(folder / side / "model.ckpt"), global_step=case.first_step + 1)
            losses = np.append(losses, train(sess, model, inputs, case.steps - 1))
    write_bundle(folder / side / "outputs", {"logits": logits, "evaluated/loss": loss, "losses": losses})
    if side == reference.FIRST_SIDE:
        write_bundle(folder / "inputs", inputs)


def initial_saver(model: TransformerGraph, case: Case) -> tf.train.Saver:
    """Without training nobody needs moments, which are twice as large as the network."""
    if case.steps:
        return model.saver
    with model.graph.as_default():
        return tf.train.Saver([*model.variables.values(), model.global_step], save_relative_paths=True)


def feed_of(model: TransformerGraph, inputs: dict[str, np.ndarray]) -> dict[tf.Tensor, np.ndarray]:
    return {model.inputs: inputs["inputs"], model.targets: inputs["targets"]}


def train(sess: tf.Session, model: TransformerGraph, inputs: dict[str, np.ndarray], steps: int) -> np.ndarray:
    """The loss before each update."""
    return graph.train(model, sess, [feed_of(model, inputs)] * steps)


if __name__ == "__main__":
    reference.main(Case, run)
