"""The official MNIST model as a TensorFlow 1.x graph: what our own is compared with.

Variables carry the names of the official checkpoint (conv2d/kernel ... dense_1/bias, Adam's slots, global_step).
"""

from dataclasses import dataclass

import numpy as np
import tensorflow.compat.v1 as tf

# Trainable variables in the order in which the model uses them. Kernels: [height, width, in, out] and [in, out].
VARIABLES: dict[str, tuple[int, ...]] = {
    "conv2d/kernel": (5, 5, 1, 32),
    "conv2d/bias": (32,),
    "conv2d_1/kernel": (5, 5, 32, 64),
    "conv2d_1/bias": (64,),
    "dense/kernel": (3136, 1024),
    "dense/bias": (1024,),
    "dense_1/kernel": (1024, 10),
    "dense_1/bias": (10,),
}


@dataclass
class MnistGraph:
    """One graph, channels last. Feed `images` [B, 784] float32 in 0..1, `labels` [B] int32."""

    graph: tf.Graph
    images: tf.Tensor
    labels: tf.Tensor
    training: tf.Tensor  # bool scalar, default False: whether dropout acts
    logits: tf.Tensor
    loss: tf.Tensor  # scalar: mean cross entropy
    accuracy: tf.Tensor  # scalar: share of the batch
    variables: dict[str, tf.Variable]
    global_step: tf.Variable
    train_op: tf.Operation
    saver: tf.train.Saver


def build(learning_rate: float = 1e-4, dropout_rate: float = 0.4) -> MnistGraph:
    graph = tf.Graph()
    with graph.as_default():
        images = tf.placeholder(tf.float32, [None, 784], "images")
        labels = tf.placeholder(tf.int32, [None], "labels")
        training = tf.placeholder_with_default(False, [], "training")
        variables = {
            name: tf.get_variable(name, shape, initializer=tf.zeros_initializer()) for name, shape in VARIABLES.items()
        }

        x = tf.reshape(images, [-1, 28, 28, 1])
        for layer in ("conv2d", "conv2d_1"):
            x = tf.nn.conv2d(x, variables[f"{layer}/kernel"], strides=1, padding="SAME")
            x = tf.nn.relu(tf.nn.bias_add(x, variables[f"{layer}/bias"]))
            x = tf.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME")
        x = tf.reshape(x, [-1, 3136])
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, variables["dense/kernel"]), variables["dense/bias"]))
        if dropout_rate > 0:
            x = tf.cond(training, lambda: tf.nn.dropout(x, rate=dropout_rate), lambda: x)
        logits = tf.nn.bias_add(tf.matmul(x, variables["dense_1/kernel"]), variables["dense_1/bias"])

        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1, output_type=tf.int32), labels), tf.float32))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdamOptimizer(learning_rate).minimize(loss, global_step)
        return MnistGraph(
            graph, images, labels, training, logits, loss, accuracy, variables, global_step, train_op, tf.train.Saver()
        )


def session(model: MnistGraph, threads: int) -> tf.Session:
    config = tf.ConfigProto(intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads)
    return tf.Session(graph=model.graph, config=config)


def initialize(model: MnistGraph, sess: tf.Session, values: dict[str, np.ndarray]) -> None:
    """Sets the variables to `values`, and all else (slots, step) to what a new run has."""
    with model.graph.as_default():
        sess.run(tf.global_variables_initializer())
    for name, value in values.items():
        assign = model.variables[name].initializer
        sess.run(assign, {assign.inputs[1]: value})


def glorot_uniform_values(seed: int) -> dict[str, np.ndarray]:
    """Fresh weights of a new run: kernels Glorot uniform, biases 0. A pure function of `seed`."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, shape in VARIABLES.items():
        if len(shape) == 1:
            values[name] = np.zeros(shape, np.float32)
        else:
            taps = int(np.prod(shape[:-2]))
            limit = np.sqrt(6 / (taps * (shape[-2] + shape[-1])))
            values[name] = rng.uniform(-limit, limit, shape).astype(np.float32)
    return values


def sine_values(scale: float) -> dict[str, np.ndarray]:
    """Weights by rule: element i of a variable is scale * sin(0.7 i + length of its name)."""
    return {
        name: (scale * np.sin(0.7 * np.arange(np.prod(shape)) + len(name))).reshape(shape).astype(np.float32)
        for name, shape in VARIABLES.items()
    }
