"""Prints how many users a second an evaluation of neural collaborative filtering in TensorFlow does."""

import math

import ncf_evaluation
import tensorflow as tf
import tensorflow_ncf
from ncf_architecture import architecture


def main() -> None:
    p = ncf_evaluation.parser()
    p.add_argument("--xla", action="store_true")
    args = p.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.random.set_seed(1)
    a = architecture(args)
    network = tensorflow_ncf.Network(a, tf.bfloat16 if args.dtype == "bf16" else tf.float32)
    shape = [args.batch_size, ncf_evaluation.CANDIDATES]
    users = tf.random.uniform([args.batch_size], maxval=a.num_users, dtype=tf.int32)
    items = tf.random.uniform(shape, maxval=a.num_items, dtype=tf.int32)

    @tf.function(jit_compile=args.xla)
    def metrics(users: tf.Tensor, items: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Users [U], their candidates [U, C], the held-out item first: the sums of HR and NDCG."""
        scores = network.scores(tf.repeat(users, shape[1]), tf.reshape(items, [-1]))
        scores = tf.reshape(scores, shape)
        rank = tf.reduce_sum(tf.cast(scores[:, 1:] >= scores[:, :1], tf.float32), 1)  # faster than top_k
        hit = tf.cast(rank < ncf_evaluation.TOP_K, tf.float32)
        return tf.reduce_sum(hit), tf.reduce_sum(hit * math.log(2) / tf.math.log(rank + 2))

    ncf_evaluation.measure(lambda: float(metrics(users, items)[0]), args)


if __name__ == "__main__":
    main()
