"""TensorFlow's side of the parity tests (tools/interop/reference.py)."""

from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

from official.recommendation.interop import neumf_graph, parity_case
from official.recommendation.interop.neumf_graph import NeuMfGraph
from official.recommendation.interop.parity_case import Case
from tools.interop import graph, reference
from tools.interop.parity import write_bundle


def run(folder: Path, case: Case, side: str, threads: int) -> None:
    (folder / "initial").mkdir(parents=True, exist_ok=True)
    (folder / side).mkdir()
    inputs = parity_case.draw_inputs(case)
    model = neumf_graph.build(case.network)
    with graph.session(model, threads) as sess:
        graph.initialize(model, sess, neumf_graph.drawn_values(model, case.seed))
        if side == reference.FIRST_SIDE:
            model.saver.save(sess, str(folder / "initial" / "model.ckpt"), global_step=0)
        outputs = {"losses": train(sess, model, inputs, case)}
        model.saver.save(sess, str(folder / side / "model.ckpt"), global_step=case.steps)
        outputs |= evaluate(sess, model, inputs, case)
    write_bundle(folder / side / "outputs", outputs)
    if side == reference.FIRST_SIDE:
        write_bundle(folder / "inputs", inputs)


def train(sess: tf.Session, model: NeuMfGraph, inputs: dict[str, np.ndarray], case: Case) -> np.ndarray:
    """The loss before each update."""
    batches = [inputs[name].reshape(-1, case.batch_size) for name in ("users", "items", "labels")]
    feeds = [dict(zip((model.users, model.items, model.labels), batch)) for batch in zip(*batches)]
    return graph.train(model, sess, (feeds[step % len(feeds)] for step in range(case.steps)))


def evaluate(
    sess: tf.Session, model: NeuMfGraph, inputs: dict[str, np.ndarray], case: Case
) -> dict[str, np.ndarray]:
    users, candidates = inputs["eval_users"], inputs["candidates"]
    # All items of each user at once, so that a candidate that is there twice has one score.
    feed = {model.users: users.repeat(case.num_items), model.items: np.tile(np.arange(case.num_items), len(users))}
    of_all = sess.run(model.scores, feed).reshape(len(users), case.num_items)
    scores = np.take_along_axis(of_all, candidates, axis=1)
    feed = {model.users: users, model.items: candidates[:, 0], model.labels: np.ones(len(users))}
    outputs = {"scores": scores.flatten()}
    for group, ranked in (
        ("evaluated", scores),
        ("without_repeats", np.where(inputs["repeated"], -np.inf, scores)),
    ):
        outputs[f"{group}/loss"] = sess.run(model.loss, feed)
        outputs |= {f"{group}/{name}": np.float32(v) for name, v in neumf_graph.ranking_metrics(ranked, k=10).items()}
    return outputs


if __name__ == "__main__":
    reference.main(Case, run)
