"""The official residual networks in TensorFlow, of its plain ops: Keras layers are slower outside XLA."""

from collections.abc import Callable

import tensorflow as tf
from resnet_architecture import Architecture


class Network:
    """Layers are made first, with their variables; calling them computes."""

    def __init__(self, a: Architecture, compute: tf.DType):
        self.a, self.compute = a, compute
        self.variables: list[tf.Variable] = []  # trainable
        self.decays: list[float] = []  # of each
        filters, kernel, stride = a.first
        self.layers: list[Callable[[tf.Tensor], tf.Tensor]] = [self.conv(3, filters, kernel, stride)]
        if a.version == 1:
            self.layers.append(self.norm(filters))
        if a.pool:
            self.layers.append(lambda x: tf.nn.max_pool2d(x, 3, 2, "SAME"))
        channels, block = filters, self.block_v1 if a.version == 1 else self.block_v2
        for filters, stride, project in a.each_block():
            self.layers.append(block(channels, a.block_convolutions(filters, stride), stride, project))
            channels = filters * a.expansion
        if a.version == 2:
            self.layers.append(self.norm(channels))
        self.kernel = self.variable(tf.random.truncated_normal([channels, a.num_classes], stddev=channels**-0.5))
        self.bias = self.variable(tf.zeros(a.num_classes))

    def loss(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Without weight decay, which the optimizer adds."""
        x = tf.cast(images, self.compute)
        for layer in self.layers:
            x = layer(x)
        x = tf.matmul(tf.reduce_mean(x, [1, 2]), tf.cast(self.kernel, self.compute))
        logits = tf.cast(tf.nn.bias_add(x, tf.cast(self.bias, self.compute)), tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    def variable(self, value: tf.Tensor, decay: bool = True) -> tf.Variable:
        self.variables.append(tf.Variable(value))
        self.decays.append(self.a.weight_decay if decay else 0.0)
        return self.variables[-1]

    def conv(self, inputs: int, filters: int, kernel: int, stride: int) -> Callable[[tf.Tensor], tf.Tensor]:
        fan_in = kernel * kernel * inputs
        w = self.variable(tf.random.truncated_normal([kernel, kernel, inputs, filters], stddev=fan_in**-0.5))
        pad = (kernel - 1) // 2 if stride > 1 else 0

        def call(x: tf.Tensor) -> tf.Tensor:
            if pad:
                x = tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])
            return tf.nn.conv2d(x, tf.cast(w, self.compute), stride, "VALID" if stride > 1 else "SAME")

        return call

    def norm(self, channels: int, relu: bool = True) -> Callable[[tf.Tensor], tf.Tensor]:
        decay = self.a.image_size == 32  # CIFAR-10's are decayed as all else
        gamma, beta = self.variable(tf.ones(channels), decay), self.variable(tf.zeros(channels), decay)
        moving_mean, moving_variance = tf.Variable(tf.zeros(channels)), tf.Variable(tf.ones(channels))

        def call(x: tf.Tensor) -> tf.Tensor:
            y, mean, variance = tf.compat.v1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-5)
            moving_mean.assign_sub((moving_mean - mean) * (1 - 0.997))
            moving_variance.assign_sub((moving_variance - variance) * (1 - 0.997))
            return tf.nn.relu(y) if relu else y

        return call

    def block_v1(
        self, inputs: int, convolutions: list[tuple[int, int, int]], stride: int, project: bool
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        outputs, layers, channels = convolutions[-1][0], [], inputs
        for i, (filters, kernel, step) in enumerate(convolutions):
            layers += [self.conv(channels, filters, kernel, step), self.norm(filters, relu=i + 1 < len(convolutions))]
            channels = filters
        shortcut = [self.conv(inputs, outputs, 1, stride), self.norm(outputs, relu=False)] if project else []

        def call(x: tf.Tensor) -> tf.Tensor:
            y = x
            for layer in layers:
                y = layer(y)
            for layer in shortcut:
                x = layer(x)
            return tf.nn.relu(x + y)

        return call

    def block_v2(
        self, inputs: int, convolutions: list[tuple[int, int, int]], stride: int, project: bool
    ) -> Callable[[tf.Tensor], tf.Tensor]:
        outputs, layers, channels = convolutions[-1][0], [], inputs
        for filters, kernel, step in convolutions:
            layers += [self.norm(channels), self.conv(channels, filters, kernel, step)]
            channels = filters
        projection = self.conv(inputs, outputs, 1, stride) if project else None

        def call(x: tf.Tensor) -> tf.Tensor:
            y = layers[0](x)
            if projection is not None:
                x = projection(y)
            for layer in layers[1:]:
                y = layer(y)
            return x + y

        return call
