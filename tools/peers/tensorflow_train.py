"""Trains a model in TensorFlow on constant random data and prints its speed: the whole step is one graph."""

import argparse
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import ncf_architecture
import resnet_architecture
import tensorflow as tf
import tensorflow_ncf
import tensorflow_resnet
import tensorflow_transformer
import timing
import transformer_architecture


@dataclass
class Training:
    loss: Callable[..., tf.Tensor]  # of a batch
    variables: list[tf.Variable]
    batch: list[tf.Tensor]
    apply: Callable[[list[tf.Tensor]], None]  # updates the variables by their gradients


def glorot_uniform(*shape: int) -> tf.Variable:
    taps = 1
    for size in shape[:-2]:
        taps *= size
    limit = (6 / (taps * (shape[-2] + shape[-1]))) ** 0.5
    return tf.Variable(tf.random.uniform(shape, -limit, limit))


def mnist(args: argparse.Namespace, compute: tf.DType) -> Training:
    """The official CNN with Adam; images NHWC."""
    kernels = [glorot_uniform(5, 5, 1, 32), glorot_uniform(5, 5, 32, 64), glorot_uniform(3136, 1024), glorot_uniform(1024, 10)]
    biases = [tf.Variable(tf.zeros(kernel.shape[-1])) for kernel in kernels]

    def loss(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        w, b = ([tf.cast(v, compute) for v in group] for group in (kernels, biases))
        x = tf.cast(images, compute)
        for i in range(2):
            x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, w[i], strides=1, padding="SAME"), b[i]))
            x = tf.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME")
        x = tf.nn.relu(tf.nn.bias_add(tf.matmul(tf.reshape(x, [-1, 3136]), w[2]), b[2]))
        logits = tf.nn.bias_add(tf.matmul(tf.nn.dropout(x, rate=0.4), w[3]), b[3])
        logits = tf.cast(logits, tf.float32)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))

    batch = [tf.random.uniform([args.batch_size, 28, 28, 1]), random_labels(args.batch_size, 10)]
    variables = kernels + biases
    return Training(loss, variables, batch, Adam(variables, 1e-4).apply)


def resnet(args: argparse.Namespace, compute: tf.DType) -> Training:
    """An official residual network with momentum and weight decay; images NHWC."""
    a = resnet_architecture.architecture(args)
    network = tensorflow_resnet.Network(a, compute)
    images = tf.random.normal([args.batch_size, a.image_size, a.image_size, 3])
    optimizer = Momentum(network.variables, network.decays, 0.01)
    return Training(
        network.loss, network.variables, [images, random_labels(args.batch_size, a.num_classes)], optimizer.apply
    )


def transformer(args: argparse.Namespace, compute: tf.DType) -> Training:
    """An official Transformer with Adam; the batch are inputs and targets."""
    a = transformer_architecture.architecture(args)
    network = tensorflow_transformer.Network(a, args.sentence_length, compute)
    ids = tf.ones([args.batch_size, args.sentence_length], tf.int32)
    optimizer = Adam(network.variables, 1e-6, a.beta1, a.beta2, a.epsilon)
    return Training(network.loss, network.variables, [ids, tf.identity(ids)], optimizer.apply)


def ncf(args: argparse.Namespace, compute: tf.DType) -> Training:
    """Neural collaborative filtering with Adam; the batch are users, items and labels."""
    a = ncf_architecture.architecture(args)
    network = tensorflow_ncf.Network(a, compute)
    users, items = (random_labels(args.batch_size, rows) for rows in (a.num_users, a.num_items))
    labels = tf.cast(tf.random.uniform([args.batch_size]) < 0.2, tf.float32)
    return Training(network.loss, network.variables, [users, items, labels], Adam(network.variables, 0.001).apply)


def random_labels(batch_size: int, classes: int) -> tf.Tensor:
    return tf.random.uniform([batch_size], maxval=classes, dtype=tf.int32)


MODELS: dict[str, Callable[[argparse.Namespace, tf.DType], Training]] = {
    "mnist": mnist,
    "ncf": ncf,
    "resnet": resnet,
    "transformer": transformer,
}


# Optimizers are TensorFlow's own fused kernels: its Keras optimizers are slower.
class Momentum:
    def __init__(self, variables: list[tf.Variable], decays: list[float], learning_rate: float):
        self.variables, self.decays, self.learning_rate = variables, decays, learning_rate
        self.velocities = [tf.Variable(tf.zeros_like(v)) for v in variables]

    def apply(self, gradients: list[tf.Tensor]) -> None:
        for variable, decay, velocity, gradient in zip(self.variables, self.decays, self.velocities, gradients):
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=self.learning_rate,
                grad=gradient + decay * variable if decay else gradient,
                momentum=0.9,
            )


class Adam:
    def __init__(
        self,
        variables: list[tf.Variable],
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
    ):
        self.variables, self.learning_rate = variables, learning_rate
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.m = [tf.Variable(tf.zeros_like(v)) for v in variables]
        self.v = [tf.Variable(tf.zeros_like(v)) for v in variables]
        self.beta1_power, self.beta2_power = tf.Variable(beta1), tf.Variable(beta2)

    def apply(self, gradients: list[tf.Tensor]) -> None:
        for variable, m, v, gradient in zip(self.variables, self.m, self.v, gradients):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=self.beta1_power,
                beta2_power=self.beta2_power,
                lr=self.learning_rate,
                beta1=self.beta1,
                beta2=self.beta2,
                epsilon=self.epsilon,
                grad=tf.convert_to_tensor(gradient),  # of an embedding: dense, since Adam moves every row
            )
        self.beta1_power.assign(self.beta1_power * self.beta1)
        self.beta2_power.assign(self.beta2_power * self.beta2)


def main() -> None:
    p = timing.parser()
    resnet_architecture.add_flags(p)
    transformer_architecture.add_flags(p)
    ncf_architecture.add_flags(p)
    p.add_argument("--xla", action="store_true", help="compile the step with XLA")
    p.add_argument("--inter_op_threads", type=int, default=1)
    p.add_argument("--distributed", action="store_true", help="one of several workers, as TF_CONFIG tells them")
    args = p.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.inter_op_threads)
    tf.random.set_seed(1)

    # Each worker has its share of the batch, and all speed is that of the whole.
    strategy, own = None, argparse.Namespace(**vars(args))
    if args.distributed:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        own.batch_size = args.batch_size // strategy.num_replicas_in_sync
    with strategy.scope() if strategy else contextlib.nullcontext():
        training = MODELS[args.model](own, tf.bfloat16 if args.dtype == "bf16" else tf.float32)

    def replica_step(*batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = training.loss(*batch)
        gradients = tape.gradient(loss, training.variables)
        if strategy:
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        training.apply(gradients)
        return loss

    @tf.function(jit_compile=args.xla)
    def step(*batch: tf.Tensor) -> tf.Tensor:
        return strategy.run(replica_step, batch) if strategy else replica_step(*batch)

    timing.measure(lambda: step(*training.batch), args)


if __name__ == "__main__":
    main()
