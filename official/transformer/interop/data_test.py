"""Holds the records that prepare_data_main writes, and the batches we read from them, against TensorFlow: tf.data reads
the records and makes the batches by the rules of upstream's input pipeline.

Usage: data_test BATCHES PREPARE_DATA_MAIN"""

import os
import random
import subprocess
import sys
import unittest

import tensorflow as tf

from official.transformer.interop import tokenizer
from tools.interop import harness

MULTI30K = os.environ.get("OFFICIAL_MULTI30K_DIR")
PREPARE = os.path.abspath(sys.argv.pop(2))


def buckets(batch_tokens: int, max_length: int = 256) -> list[tuple[int, int]]:
    """(max, batch size) of each: sentences that are shorter than max go there."""
    boundaries, length = [], 8
    while length < max_length:
        boundaries.append(length)
        length = max(length + 1, int(length * 1.1))
    return [(end, batch_tokens // end) for end in boundaries + [max_length + 1]]


def parse(record):
    features = tf.io.parse_single_example(
        record, {name: tf.io.VarLenFeature(tf.int64) for name in ("inputs", "targets")}
    )
    return tuple(tf.cast(tf.sparse.to_dense(features[name]), tf.int32) for name in ("inputs", "targets"))


def batches_by_tensorflow(files: list[str], batch_tokens: int, static: bool) -> list[list]:
    def length(inputs, targets):
        return tf.maximum(tf.size(inputs), tf.size(targets))

    ends = tf.constant([end for end, _ in buckets(batch_tokens)])
    sizes = tf.constant([size for _, size in buckets(batch_tokens)], tf.int64)
    pairs = tf.data.TFRecordDataset(files).map(parse).filter(lambda i, t: length(i, t) <= 256)
    if static:
        batches = pairs.padded_batch(batch_tokens // 256, padded_shapes=([256], [256]), drop_remainder=True)
    else:
        batches = pairs.group_by_window(
            key_func=lambda i, t: tf.cast(tf.reduce_sum(tf.cast(ends <= length(i, t), tf.int32)), tf.int64),
            reduce_func=lambda bucket, window: window.padded_batch(sizes[bucket], padded_shapes=([None], [None])),
            window_size_func=lambda bucket: sizes[bucket],
        )
    return [[inputs.numpy().tolist(), targets.numpy().tolist()] for inputs, targets in batches]


def sentences(count: int) -> list[str]:
    """Of 1 to 300 words, for where there is no Multi30k."""
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdeäöü", k=generator.randint(1, 6))) for _ in range(300)]
    return [" ".join(generator.choices(words, k=int(300 ** generator.random()))) for _ in range(count)]


class DataTest(harness.InteropTest):
    def setUp(self) -> None:
        super().setUp()
        if MULTI30K:
            self.text = {name: tokenizer.lines(f"{MULTI30K}/{name}") for name in ("train.en", "train.de")}
            self.text |= {name: tokenizer.lines(f"{MULTI30K}/{name}") for name in ("val.en", "val.de")}
        else:
            self.text = {"train.en": sentences(3000), "train.de": sentences(3000)}
            self.text |= {"val.en": sentences(200), "val.de": sentences(200)}
        for name, lines in self.text.items():
            (self.folder / name).write_text("".join(f"{line}\n" for line in lines))
        flags = [f"--raw_dir={self.folder}", f"--data_dir={self.folder}/data", "--vocab_size=2000"]
        subprocess.run([PREPARE, *flags], check=True)

    def files(self, tag: str) -> list[str]:
        return sorted(str(path) for path in (self.folder / "data").glob(f"*{tag}*"))

    def test_records_hold_the_sentences(self) -> None:
        vocabulary = tokenizer.lines(f"{self.folder}/data/vocab.ende.2000")
        subtokenizer = tokenizer.Subtokenizer([line[1:-1] for line in vocabulary])

        def ids(name: str) -> list[list[int]]:
            return [subtokenizer.encode(line.strip()) + [1] for line in self.text[name]]

        def records(files) -> list[list]:
            return [[i.numpy().tolist(), t.numpy().tolist()] for i, t in tf.data.TFRecordDataset(files).map(parse)]

        self.assertEqual(records(self.files("dev")), [list(pair) for pair in zip(ids("val.en"), ids("val.de"))])
        expected = [list(pair) for pair in zip(ids("train.en"), ids("train.de"))]
        files = self.files("train")
        self.assertEqual(len(files), 100)
        for shard, file in enumerate(files):
            self.assertEqual(sorted(records(file)), sorted(expected[shard::100]), file)

    def test_batches_are_those_of_tf_data(self) -> None:
        for tag, batch_tokens, form in (("train", 2048, "padded"), ("dev", 300, "padded"), ("dev", 4096, "static")):
            with self.subTest(tag=tag, form=form):
                lines = self.run_binary(f"{self.folder}/data", tag, str(batch_tokens), form).splitlines()
                ours = []
                for sizes, *rows in zip(lines[::3], lines[1::3], lines[2::3]):
                    count, *widths = map(int, sizes.split())
                    ids = [[int(word) for word in row.split()] for row in rows]
                    ours.append([[row[i * n : (i + 1) * n] for i in range(count)] for row, n in zip(ids, widths)])
                self.assertEqual(ours, batches_by_tensorflow(self.files(tag), batch_tokens, form == "static"))


if __name__ == "__main__":
    harness.main()
