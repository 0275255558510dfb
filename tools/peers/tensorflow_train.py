"""Trains a model in TensorFlow on constant random data and prints its speed: the whole step is one graph."""

from collections.abc import Callable

import tensorflow as tf
import timing

Loss = Callable[..., tf.Tensor]


def glorot_uniform(*shape: int) -> tf.Variable:
    taps = 1
    for size in shape[:-2]:
        taps *= size
    limit = (6 / (taps * (shape[-2] + shape[-1]))) ** 0.5
    return tf.Variable(tf.random.uniform(shape, -limit, limit))


def mnist(batch_size: int, compute: tf.DType) -> tuple[Loss, list[tf.Variable], list[tf.Tensor], float]:
    """The official CNN: its loss, variables, batch (images NHWC, labels) and learning rate."""
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

    batch = [tf.random.uniform([batch_size, 28, 28, 1]), tf.random.uniform([batch_size], maxval=10, dtype=tf.int32)]
    return loss, kernels + biases, batch, 1e-4


MODELS: dict[str, Callable] = {"mnist": mnist}


class Adam:
    """TensorFlow's own fused kernel: its Keras optimizers are slower."""

    def __init__(self, variables: list[tf.Variable], learning_rate: float):
        self.variables, self.learning_rate = variables, learning_rate
        self.m = [tf.Variable(tf.zeros_like(v)) for v in variables]
        self.v = [tf.Variable(tf.zeros_like(v)) for v in variables]
        self.beta1_power, self.beta2_power = tf.Variable(0.9), tf.Variable(0.999)

    def apply(self, gradients: list[tf.Tensor]) -> None:
        for variable, m, v, gradient in zip(self.variables, self.m, self.v, gradients):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=self.beta1_power,
                beta2_power=self.beta2_power,
                lr=self.learning_rate,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-8,
                grad=gradient,
            )
        self.beta1_power.assign(self.beta1_power * 0.9)
        self.beta2_power.assign(self.beta2_power * 0.999)


def main() -> None:
    p = timing.parser()
    p.add_argument("--xla", action="store_true", help="compile the step with XLA")
    p.add_argument("--inter_op_threads", type=int, default=1)
    args = p.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.inter_op_threads)
    tf.random.set_seed(1)

    loss_of, variables, batch, learning_rate = MODELS[args.model](
        args.batch_size, tf.bfloat16 if args.dtype == "bf16" else tf.float32
    )
    optimizer = Adam(variables, learning_rate)

    @tf.function(jit_compile=args.xla)
    def step(*batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of(*batch)
        optimizer.apply(tape.gradient(loss, variables))
        return loss

    timing.measure(lambda: step(*batch), args)


if __name__ == "__main__":
    main()
