"""Neural collaborative filtering in TensorFlow, of its plain ops."""

import tensorflow as tf
from ncf_architecture import Architecture


class Network:
    def __init__(self, a: Architecture, compute: tf.DType):
        self.compute = compute
        self.variables: list[tf.Variable] = []
        half = a.layers[0] // 2
        self.tables = [
            self.matrix(rows, size) for size in (a.num_factors, half) for rows in (a.num_users, a.num_items)
        ]
        self.dense = [self.layer(*sizes) for sizes in zip(a.layers, a.layers[1:])]
        self.rating = self.layer(a.num_factors + a.layers[-1], 1)

    def scores(self, users: tf.Tensor, items: tf.Tensor) -> tf.Tensor:
        """[B], [B] -> [B]."""
        mf_user, mf_item, mlp_user, mlp_item = (
            tf.cast(tf.gather(table, ids), self.compute) for table, ids in zip(self.tables, [users, items] * 2)
        )
        x = tf.concat([mlp_user, mlp_item], axis=1)
        for kernel, bias in self.dense:
            x = tf.nn.relu(tf.nn.bias_add(tf.matmul(x, tf.cast(kernel, self.compute)), tf.cast(bias, self.compute)))
        kernel, bias = self.rating
        x = tf.matmul(tf.concat([mf_user * mf_item, x], axis=1), tf.cast(kernel, self.compute))
        return tf.cast(tf.squeeze(x, 1), tf.float32) + bias

    def loss(self, users: tf.Tensor, items: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Of [B] each."""
        logits = self.scores(users, items) - 1
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))

    def matrix(self, rows: int, columns: int) -> tf.Variable:
        limit = (6 / (rows + columns)) ** 0.5
        self.variables.append(tf.Variable(tf.random.uniform([rows, columns], -limit, limit)))
        return self.variables[-1]

    def layer(self, inputs: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
        kernel = self.matrix(inputs, outputs)
        self.variables.append(tf.Variable(tf.zeros([outputs])))
        return kernel, self.variables[-1]
