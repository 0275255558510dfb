"""The official Transformer in TensorFlow, of its plain ops. All sentences have one length, so nothing masks padding."""

from collections.abc import Callable

import tensorflow as tf
from transformer_architecture import Architecture


class Network:
    """Layers are made first, with their variables; calling them computes."""

    def __init__(self, a: Architecture, length: int, compute: tf.DType):
        self.a, self.length, self.compute = a, length, compute
        self.variables: list[tf.Variable] = []  # trainable
        self.embedding = self.variable(tf.random.normal([a.vocab_size, a.hidden_size], stddev=a.hidden_size**-0.5))
        self.positions = tf.constant(a.positions(length), compute)
        self.later = tf.constant([[-1e9 if s > t else 0 for s in range(length)] for t in range(length)], compute)
        self.encoder = [self.layer(decodes=False) for _ in range(a.num_layers)]
        self.decoder = [self.layer(decodes=True) for _ in range(a.num_layers)]
        self.encoder_norm, self.decoder_norm = self.norm(), self.norm()

    def loss(self, inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Of ids [B, length]."""
        table = tf.cast(self.embedding, self.compute)
        x = self.dropout(self.embed(table, inputs) + self.positions)
        for layer in self.encoder:
            x = layer(x, None)
        encoded = self.encoder_norm(x)
        x = tf.pad(self.embed(table, targets), [[0, 0], [1, 0], [0, 0]])[:, :-1]
        x = self.dropout(x + self.positions)
        for layer in self.decoder:
            x = layer(x, encoded)
        x = tf.reshape(self.decoder_norm(x), [-1, self.a.hidden_size])
        logits = tf.cast(tf.matmul(x, table, transpose_b=True), tf.float32)
        sure, other = 1 - self.a.label_smoothing, self.a.label_smoothing / (self.a.vocab_size - 1)
        soft = tf.one_hot(tf.reshape(targets, [-1]), self.a.vocab_size, on_value=sure, off_value=other)
        return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=soft, logits=logits))

    def variable(self, value: tf.Tensor) -> tf.Variable:
        self.variables.append(tf.Variable(value))
        return self.variables[-1]

    def embed(self, table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def lookup(table: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            # Dense, as the logits' gradient is that this is added to.
            return tf.gather(table, ids), lambda d: tf.math.unsorted_segment_sum(d, ids, self.a.vocab_size)

        return lookup(table) * self.a.hidden_size**0.5

    def dropout(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.dropout(x, rate=self.a.dropout)

    def dense(self, inputs: int, units: int, bias: bool = False) -> Callable[[tf.Tensor], tf.Tensor]:
        limit = (6 / (inputs + units)) ** 0.5
        w = self.variable(tf.random.uniform([inputs, units], -limit, limit))
        b = self.variable(tf.zeros(units)) if bias else None

        def call(x: tf.Tensor) -> tf.Tensor:
            y = tf.matmul(tf.reshape(x, [-1, inputs]), tf.cast(w, self.compute))
            if b is not None:
                y = tf.nn.bias_add(y, tf.cast(b, self.compute))
            return tf.reshape(y, [-1, self.length, units])

        return call

    def norm(self) -> Callable[[tf.Tensor], tf.Tensor]:
        scale, bias = self.variable(tf.ones(self.a.hidden_size)), self.variable(tf.zeros(self.a.hidden_size))

        def call(x: tf.Tensor) -> tf.Tensor:
            x = tf.cast(x, tf.float32)
            centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
            variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
            return tf.cast(centred * tf.math.rsqrt(variance + 1e-6) * scale + bias, self.compute)

        return call

    def attention(self, causal: bool) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
        size, heads = self.a.hidden_size, self.a.num_heads
        project_q, project_k, project_v, project_output = (self.dense(size, size) for _ in range(4))

        def split(z: tf.Tensor) -> tf.Tensor:
            return tf.transpose(tf.reshape(z, [-1, self.length, heads, size // heads]), [0, 2, 1, 3])

        def call(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            q = split(project_q(x)) * tf.constant((size // heads) ** -0.5, self.compute)
            scores = tf.matmul(q, split(project_k(y)), transpose_b=True)
            probabilities = self.dropout(tf.nn.softmax(scores + self.later if causal else scores))
            attended = tf.transpose(tf.matmul(probabilities, split(project_v(y))), [0, 2, 1, 3])
            return project_output(tf.reshape(attended, [-1, self.length, size]))

        return call

    def layer(self, decodes: bool) -> Callable[[tf.Tensor, tf.Tensor | None], tf.Tensor]:
        """Each sublayer adds to the stream what it makes of its normalized value."""
        norms = [self.norm() for _ in range(3 if decodes else 2)]
        self_attention = self.attention(causal=decodes)
        encdec_attention = self.attention(causal=False) if decodes else None
        widen = self.dense(self.a.hidden_size, self.a.filter_size, bias=True)
        narrow = self.dense(self.a.filter_size, self.a.hidden_size, bias=True)

        def call(x: tf.Tensor, encoded: tf.Tensor | None) -> tf.Tensor:
            y = norms[0](x)
            x += self.dropout(self_attention(y, y))
            if encdec_attention is not None:
                x += self.dropout(encdec_attention(norms[1](x), encoded))
            return x + self.dropout(narrow(self.dropout(tf.nn.relu(widen(norms[-1](x))))))

        return call
