"""The official NeuMF as a TensorFlow 1.x graph: what our own is compared with."""

from dataclasses import dataclass

import numpy as np
import tensorflow.compat.v1 as tf


@dataclass(frozen=True)
class Network:
    num_users: int
    num_items: int
    num_factors: int
    layers: tuple[int, ...]
    loss: str  # "softmax": since July 2018; "sigmoid": Keras's binary cross entropy, before

    def scores(self, users: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        """[N], [N] -> [N]"""
        mf = embed("embedding", users, self.num_users, self.num_factors)
        mf *= embed("embedding_1", items, self.num_items, self.num_factors)
        x = [
            embed("embedding_2", users, self.num_users, self.layers[0] // 2),
            embed("embedding_3", items, self.num_items, self.layers[0] // 2),
        ]
        x = tf.concat(x, axis=1)
        for i, size in enumerate(self.layers[1:]):
            x = tf.nn.relu(dense(f"dense_{i}" if i else "dense", x, size))
        return tf.squeeze(dense("rating", tf.concat([mf, x], axis=1), 1), 1)


def embed(name: str, ids: tf.Tensor, rows: int, size: int) -> tf.Tensor:
    with tf.variable_scope(name):
        return tf.gather(tf.get_variable("embeddings", [rows, size]), ids)


def dense(name: str, x: tf.Tensor, units: int) -> tf.Tensor:
    with tf.variable_scope(name):
        kernel, bias = tf.get_variable("kernel", [x.shape[1], units]), tf.get_variable("bias", [units])
        return tf.nn.bias_add(tf.matmul(x, kernel), bias)


def mean_loss(kind: str, scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Of scores [N] and labels [N] float32, 1 or 0."""
    if kind == "softmax":
        logits = tf.stack([tf.ones_like(scores), scores], axis=1)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.cast(labels, tf.int32), logits=logits)
    else:
        p = tf.clip_by_value(tf.sigmoid(scores), 1e-7, 1 - 1e-7)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=tf.log(p / (1 - p)))
    return tf.reduce_mean(losses)


def ranking_metrics(scores: np.ndarray, k: int) -> dict[str, float]:
    """HR and NDCG of the first k of [users, candidates], by the scores as sorted in ascending order. The candidate in
    column 0 is the one that was held out."""
    best = np.argsort(scores, axis=1, kind="stable")[:, : -k - 1 : -1]
    ranks = np.argwhere(best == 0)[:, 1]
    return {"HR": len(ranks) / len(scores), "NDCG": float(np.sum(np.log(2) / np.log(ranks + 2))) / len(scores)}


def repeated(items: np.ndarray) -> np.ndarray:
    """Which of [users, candidates] stand further to the left, too."""
    order = np.argsort(items, axis=1, kind="stable")
    ordered = np.take_along_axis(items, order, axis=1)
    repeats = np.zeros(items.shape, bool)
    np.put_along_axis(repeats, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return repeats


@dataclass
class NeuMfGraph:
    """Feed `users` and `items` [N] int32, to train `labels` [N] float32, too."""

    graph: tf.Graph
    users: tf.Tensor
    items: tf.Tensor
    labels: tf.Tensor
    scores: tf.Tensor  # [N]
    loss: tf.Tensor  # scalar
    variables: dict[str, tf.Variable]  # of the network, by name
    saved_variables: list[tf.Variable]  # with moments, powers of beta and global_step
    train_op: tf.Operation
    saver: tf.train.Saver


def build(network: Network) -> NeuMfGraph:
    graph = tf.Graph()
    with graph.as_default():
        users = tf.placeholder(tf.int32, [None], "users")
        items = tf.placeholder(tf.int32, [None], "items")
        labels = tf.placeholder(tf.float32, [None], "labels")
        scores = network.scores(users, items)
        loss = mean_loss(network.loss, scores, labels)
        variables = {v.op.name: v for v in tf.trainable_variables()}
        train_op = tf.train.AdamOptimizer(0.001).minimize(loss, tf.train.get_or_create_global_step())
        return NeuMfGraph(
            graph,
            users,
            items,
            labels,
            scores,
            loss,
            variables,
            tf.global_variables(),
            train_op,
            tf.train.Saver(save_relative_paths=True),  # a folder of checkpoints may be copied
        )


def drawn_values(model: NeuMfGraph, seed: int) -> dict[str, np.ndarray]:
    """Weights as of a new run, but biases are not 0, so that a mistake there shows, and user 0 and item 0 have so large
    factors that their score is about -25."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, variable in model.variables.items():
        shape = variable.shape.as_list()
        limit = 0.1 if len(shape) == 1 else np.sqrt(6 / sum(shape))
        values[name] = rng.uniform(-limit, limit, shape).astype(np.float32)
    weights = values["rating/kernel"][: values["embedding/embeddings"].shape[1], 0]
    size = np.sqrt(25 / np.sum(np.abs(weights)))
    values["embedding/embeddings"][0] = size
    values["embedding_1/embeddings"][0] = -size * np.sign(weights)
    return values
