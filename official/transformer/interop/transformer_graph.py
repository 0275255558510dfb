"""The official Transformer as a TensorFlow 1.x graph, without dropout: what our own is compared with.

Written from the description of the network over padded batches, plainly; nothing is packed or fused.
"""

import math
from dataclasses import dataclass

import numpy as np
import tensorflow.compat.v1 as tf


@dataclass(frozen=True)
class Network:
    hidden_size: int
    num_heads: int
    filter_size: int
    vocab_size: int = 33708
    num_layers: int = 6
    label_smoothing: float = 0.1
    warmup_steps: int = 16000

    def logits(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Padded ids [B, S] and [B, T] -> [B, T, vocab_size], each from the targets before its own."""
        with tf.variable_scope("embedding_shared_weights/embedding_and_softmax"):
            weights = tf.get_variable("weights", [self.vocab_size, self.hidden_size])
        padding = tf.cast(tf.equal(inputs, 0), tf.float32)
        source_bias = -1e9 * padding[:, tf.newaxis, tf.newaxis, :]

        with tf.variable_scope("encoder_stack"):
            x = self.embed(weights, inputs) + self.positions(tf.shape(inputs)[1])
            for n in range(self.num_layers):
                with tf.variable_scope(f"layer_{n}"):
                    with tf.variable_scope("self_attention"):
                        y = layer_norm(x)
                        x += self.attend("self_attention", y, y, source_bias)
                    with tf.variable_scope("ffn"):
                        x += self.feed_forward(layer_norm(x)) * (1 - padding)[:, :, tf.newaxis]
            encoded = layer_norm(x)

        with tf.variable_scope("decoder_stack"):
            length = tf.shape(targets)[1]
            x = tf.pad(self.embed(weights, targets), [[0, 0], [1, 0], [0, 0]])[:, :-1]
            x += self.positions(length)
            later = -1e9 * (1 - tf.linalg.band_part(tf.ones([length, length]), -1, 0))
            for n in range(self.num_layers):
                with tf.variable_scope(f"layer_{n}"):
                    with tf.variable_scope("self_attention"):
                        y = layer_norm(x)
                        x += self.attend("self_attention", y, y, later)
                    with tf.variable_scope("encdec_attention"):
                        x += self.attend("attention", layer_norm(x), encoded, source_bias)
                    with tf.variable_scope("ffn"):
                        x += self.feed_forward(layer_norm(x))
            x = layer_norm(x)
        flat = tf.matmul(tf.reshape(x, [-1, self.hidden_size]), weights, transpose_b=True)
        return tf.reshape(flat, [-1, length, self.vocab_size])

    def embed(self, weights: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        known = tf.cast(tf.not_equal(ids, 0), tf.float32)[:, :, tf.newaxis]
        return tf.gather(weights, ids) * known * math.sqrt(self.hidden_size)

    def positions(self, length: tf.Tensor) -> tf.Tensor:
        """[length, hidden_size]: the sines of all timescales, then their cosines."""
        timescales = self.hidden_size // 2
        inverse = np.exp(-np.arange(timescales) * math.log(1e4) / (timescales - 1)).astype(np.float32)
        angles = tf.cast(tf.range(length), tf.float32)[:, tf.newaxis] * inverse
        return tf.concat([tf.sin(angles), tf.cos(angles)], axis=1)

    def attend(self, name: str, x: tf.Tensor, y: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """From positions of x to those of y."""

        def heads(z: tf.Tensor) -> tf.Tensor:
            split = tf.reshape(z, [tf.shape(z)[0], tf.shape(z)[1], self.num_heads, self.hidden_size // self.num_heads])
            return tf.transpose(split, [0, 2, 1, 3])

        with tf.variable_scope(name):
            q, k, v = (heads(dense(kind, z, self.hidden_size)) for kind, z in (("q", x), ("k", y), ("v", y)))
            q *= (self.hidden_size // self.num_heads) ** -0.5
            attended = tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) + bias), v)
            merged = tf.reshape(tf.transpose(attended, [0, 2, 1, 3]), tf.shape(x))
            return dense("output_transform", merged, self.hidden_size)

    def feed_forward(self, x: tf.Tensor) -> tf.Tensor:
        with tf.variable_scope("feed_foward_network"):  # as the checkpoints spell it
            y = tf.nn.relu(dense("filter_layer", x, self.filter_size, bias=True))
            return dense("output_layer", y, self.hidden_size, bias=True)

    def loss(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """The mean over all targets but padding; a prediction as sure as smoothing allows costs 0."""
        sure, other = 1 - self.label_smoothing, self.label_smoothing / (self.vocab_size - 1)
        least = -(sure * math.log(sure) + (self.vocab_size - 1) * other * math.log(other + 1e-20))
        soft = tf.one_hot(targets, self.vocab_size, on_value=sure, off_value=other)
        costs = tf.nn.softmax_cross_entropy_with_logits(labels=soft, logits=logits) - least
        counted = tf.cast(tf.not_equal(targets, 0), tf.float32)
        return tf.reduce_sum(costs * counted) / tf.reduce_sum(counted)

    def learning_rate(self, step: tf.Tensor) -> tf.Tensor:
        step, warmup = tf.cast(step, tf.float32), float(self.warmup_steps)
        return 2 * self.hidden_size**-0.5 * tf.minimum(1.0, step / warmup) * tf.math.rsqrt(tf.maximum(step, warmup))


NETWORKS = {"tiny": Network(32, 4, 256), "base": Network(512, 8, 2048)}


def dense(name: str, x: tf.Tensor, units: int, bias: bool = False) -> tf.Tensor:
    """[B, L, C] -> [B, L, units]"""
    channels = x.shape[-1]
    with tf.variable_scope(name):
        flat = tf.matmul(tf.reshape(x, [-1, channels]), tf.get_variable("kernel", [channels, units]))
        if bias:
            flat = tf.nn.bias_add(flat, tf.get_variable("bias", [units]))
    return tf.reshape(flat, [tf.shape(x)[0], tf.shape(x)[1], units])


def layer_norm(x: tf.Tensor) -> tf.Tensor:
    with tf.variable_scope("layer_normalization"):
        scale = tf.get_variable("layer_norm_scale", [x.shape[-1]])
        bias = tf.get_variable("layer_norm_bias", [x.shape[-1]])
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(x - mean), axis=-1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(variance + 1e-6) * scale + bias


@dataclass
class TransformerGraph:
    """Feed `inputs` [B, S] and `targets` [B, T] int32, padded with 0."""

    graph: tf.Graph
    inputs: tf.Tensor
    targets: tf.Tensor
    logits: tf.Tensor  # [B, T, vocab_size]
    loss: tf.Tensor  # scalar
    learning_rate: tf.Tensor  # of the next update
    global_step: tf.Variable
    variables: dict[str, tf.Variable]  # of the network, by name
    saved_variables: list[tf.Variable]  # with moments, powers of beta and global_step
    train_op: tf.Operation
    saver: tf.train.Saver


def build(network: Network) -> TransformerGraph:
    graph = tf.Graph()
    with graph.as_default():
        inputs = tf.placeholder(tf.int32, [None, None], "inputs")
        targets = tf.placeholder(tf.int32, [None, None], "targets")
        global_step = tf.train.get_or_create_global_step()
        with tf.variable_scope("model"):
            with tf.variable_scope("Transformer"):
                logits = network.logits(inputs, targets)
            loss = network.loss(logits, targets)
            trainable = tf.trainable_variables()
            # Every row of the embedding has a gradient, by the logits.
            gradients = [tf.convert_to_tensor(gradient) for gradient in tf.gradients(loss, trainable)]
            with tf.variable_scope("get_train_op"):
                learning_rate = network.learning_rate(global_step)
                adam = tf.train.AdamOptimizer(learning_rate, beta1=0.9, beta2=0.997, epsilon=1e-9)
                train_op = adam.apply_gradients(zip(gradients, trainable), global_step)
        return TransformerGraph(
            graph,
            inputs,
            targets,
            logits,
            loss,
            learning_rate,
            global_step,
            {v.op.name: v for v in trainable},
            tf.global_variables(),
            train_op,
            tf.train.Saver(save_relative_paths=True),  # a folder of checkpoints may be copied
        )


def drawn_values(model: TransformerGraph, seed: int) -> dict[str, np.ndarray]:
    """Weights as of a new run, but what is 0 or 1 there is varied, so that a mistake there shows."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, variable in model.variables.items():
        shape = variable.shape.as_list()
        if len(shape) == 1:
            value = np.float32(name.endswith("layer_norm_scale")) + rng.uniform(-0.1, 0.1, shape)
        elif "embedding" in name:
            value = rng.standard_normal(shape, np.float32) * shape[1] ** -0.5
        else:
            value = rng.uniform(-1, 1, shape) * math.sqrt(6 / sum(shape))
        values[name] = value.astype(np.float32)
    return values
