"""The official ResNet as a TensorFlow 1.x graph: what our own is compared with.

Built of tf.layers, so that TensorFlow itself names the variables (resnet_model/conv2d/kernel, ...) and updates the
moving averages.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import tensorflow.compat.v1 as tf

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}  # ImageNet's, of the sizes that are compared


@dataclass(frozen=True)
class Network:
    """A member of the family. `training`, a bool scalar: with the batch's statistics, and moving averages updated."""

    dataset: str  # "cifar10" or "imagenet"
    size: int
    version: int

    @property
    def num_classes(self) -> int:
        return 10 if self.dataset == "cifar10" else 1001

    @property
    def weight_decay(self) -> float:
        return 2e-4 if self.dataset == "cifar10" else 1e-4

    def logits(self, x: tf.Tensor, training: tf.Tensor) -> tf.Tensor:
        """Images [B, H, W, 3] -> [B, num_classes]."""
        with tf.variable_scope("resnet_model"):
            if self.dataset == "cifar10":
                filters, blocks, bottleneck = 16, ((self.size - 2) // 6,) * 3, False
                x = conv(x, 16, kernel=3, stride=1)
            else:
                filters, blocks, bottleneck = 64, BLOCKS[self.size], self.size >= 50
                x = conv(x, 64, kernel=7, stride=2)
            if self.version == 1:
                x = tf.nn.relu(batch_norm(x, training))
            if self.dataset == "imagenet":
                x = tf.layers.max_pooling2d(x, pool_size=3, strides=2, padding="same")
            block = block_v1 if self.version == 1 else block_v2
            for layer, count in enumerate(blocks):
                for i in range(count):
                    stride = 2 if layer > 0 and i == 0 else 1
                    x = block(x, filters << layer, stride, project=i == 0, bottleneck=bottleneck, training=training)
            if self.version == 2:
                x = tf.nn.relu(batch_norm(x, training))
            return tf.layers.dense(tf.reduce_mean(x, [1, 2]), self.num_classes)

    def is_decayed(self, variable: tf.Variable) -> bool:
        return self.dataset == "cifar10" or "batch_normalization" not in variable.name


def conv(x: tf.Tensor, filters: int, kernel: int, stride: int) -> tf.Tensor:
    """With a stride, pads alike for every size of the input."""
    if stride > 1:
        before = (kernel - 1) // 2
        x = tf.pad(x, [[0, 0], [before, kernel - 1 - before], [before, kernel - 1 - before], [0, 0]])
    padding = "valid" if stride > 1 else "same"
    return tf.layers.conv2d(x, filters, kernel, stride, padding, use_bias=False)


def batch_norm(x: tf.Tensor, training: tf.Tensor) -> tf.Tensor:
    return tf.layers.batch_normalization(x, momentum=0.997, epsilon=1e-5, training=training, fused=True)


def convolutions(filters: int, stride: int, bottleneck: bool) -> list[tuple[int, int, int]]:
    """Filters, kernel and stride of a block's convolutions."""
    if bottleneck:
        return [(filters, 1, 1), (filters, 3, stride), (4 * filters, 1, 1)]
    return [(filters, 3, stride), (filters, 3, 1)]


def block_v1(
    x: tf.Tensor, filters: int, stride: int, project: bool, bottleneck: bool, training: tf.Tensor
) -> tf.Tensor:
    layers = convolutions(filters, stride, bottleneck)
    shortcut = batch_norm(conv(x, layers[-1][0], 1, stride), training) if project else x
    for i, layer in enumerate(layers):
        x = batch_norm(conv(x, *layer), training)
        if i + 1 < len(layers):
            x = tf.nn.relu(x)
    return tf.nn.relu(x + shortcut)


def block_v2(
    x: tf.Tensor, filters: int, stride: int, project: bool, bottleneck: bool, training: tf.Tensor
) -> tf.Tensor:
    layers = convolutions(filters, stride, bottleneck)
    shortcut = x
    x = tf.nn.relu(batch_norm(x, training))
    if project:
        shortcut = conv(x, layers[-1][0], 1, stride)
    x = conv(x, *layers[0])
    for layer in layers[1:]:
        x = conv(tf.nn.relu(batch_norm(x, training)), *layer)
    return x + shortcut


@dataclass
class ResnetGraph:
    """One graph, channels last. Feed `images` [B, H, W, 3] float32, `labels` [B] int32."""

    graph: tf.Graph
    images: tf.Tensor
    labels: tf.Tensor
    training: tf.Tensor  # bool scalar, default False
    learning_rate: tf.Tensor
    logits: tf.Tensor
    probabilities: tf.Tensor
    cross_entropy: tf.Tensor  # scalar: mean
    l2_loss: tf.Tensor  # scalar
    loss: tf.Tensor  # scalar: the sum of both
    variables: dict[str, tf.Variable]  # of the model, by name
    saved_variables: list[tf.Variable]  # with momenta and global_step
    trainable: list[str]
    train_op: tf.Operation
    saver: tf.train.Saver


def build(network: Network) -> ResnetGraph:
    graph = tf.Graph()
    with graph.as_default():
        images = tf.placeholder(tf.float32, [None, None, None, 3], "images")
        labels = tf.placeholder(tf.int32, [None], "labels")
        training = tf.placeholder_with_default(False, [], "training")
        learning_rate = tf.placeholder_with_default(0.1, [], "learning_rate")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tf.layers is deprecated
            logits = network.logits(images, training)
        cross_entropy = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        decayed = [tf.nn.l2_loss(v) for v in tf.trainable_variables() if network.is_decayed(v)]
        l2_loss = network.weight_decay * tf.add_n(decayed)
        loss = cross_entropy + l2_loss
        variables = {v.op.name: v for v in tf.global_variables()}
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            optimizer = tf.train.MomentumOptimizer(learning_rate, momentum=0.9)
            train_op = optimizer.minimize(loss, tf.train.get_or_create_global_step())
        return ResnetGraph(
            graph,
            images,
            labels,
            training,
            learning_rate,
            logits,
            tf.nn.softmax(logits),
            cross_entropy,
            l2_loss,
            loss,
            variables,
            tf.global_variables(),
            [v.op.name for v in tf.trainable_variables()],
            train_op,
            tf.train.Saver(save_relative_paths=True),  # a folder of checkpoints may be copied
        )


def drawn_values(model: ResnetGraph, seed: int) -> dict[str, np.ndarray]:
    """Weights as of a new run, but what is 0 or 1 there is varied, so that a mistake there shows."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, variable in model.variables.items():
        shape = variable.shape.as_list()
        if len(shape) == 1:
            value = np.float32(name.endswith(("/gamma", "/moving_variance"))) + rng.uniform(-0.1, 0.1, shape)
        else:
            value = np.clip(rng.standard_normal(shape, np.float32), -2, 2) / np.sqrt(np.prod(shape[:-1]))
        values[name] = value.astype(np.float32)
    return values
