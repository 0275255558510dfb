"""What the official models as TensorFlow 1.x graphs share, which our own are compared with."""

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
import tensorflow.compat.v1 as tf

tf.get_logger().setLevel("ERROR")


class Model(Protocol):
    graph: tf.Graph
    variables: dict[str, tf.Variable]  # of the network, by name
    saved_variables: list[tf.Variable]  # with the optimizer's and global_step
    loss: tf.Tensor
    train_op: tf.Operation


def session(model: Model, threads: int) -> tf.Session:
    config = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    config.graph_options.rewrite_options.disable_meta_optimizer = True  # takes longer than the tests' few steps
    return tf.Session(graph=model.graph, config=config)


def initialize(model: Model, sess: tf.Session, values: dict[str, np.ndarray], step: int = 0) -> None:
    """Sets the network's variables to `values` and global_step to `step`, and all else to what a new run has."""
    initializers = {model.variables[name].initializer: value for name, value in values.items()}
    initializers[tf.train.get_global_step(model.graph).initializer] = np.int64(step)
    feed = {initializer.inputs[1]: value for initializer, value in initializers.items()}
    sess.run([v.initializer for v in model.saved_variables], feed)


def train(model: Model, sess: tf.Session, feeds: Iterable[dict[tf.Tensor, Any]]) -> np.ndarray:
    """One step for each feed. The loss before each update."""
    return np.array([sess.run([model.loss, model.train_op], feed)[0] for feed in feeds], np.float32)


def sine_values(model: Model, scale: float) -> dict[str, np.ndarray]:
    """Weights by rule: element i of a variable is scale * sin(0.7 i + length of its name), and 1 more where a new
    variable is 1."""
    values = {}
    for name, variable in model.variables.items():
        value = scale * np.sin(0.7 * np.arange(np.prod(variable.shape)) + len(name))
        value += float(name.endswith(("/gamma", "/moving_variance", "layer_norm_scale")))
        values[name] = value.reshape(variable.shape).astype(np.float32)
    return values
