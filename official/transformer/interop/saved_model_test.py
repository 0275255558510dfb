"""TensorFlow loads our SavedModel of the Transformer and translates as we do. Usage: saved_model_test TRANSFORMER_MAIN
DECODE_IDS"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from official.transformer.interop import transformer_graph
from official.transformer.interop.transformer_graph import Network
from tools.interop import graph, harness

DECODE_IDS = os.path.abspath(sys.argv.pop(2))
NETWORK = Network(hidden_size=16, num_heads=4, filter_size=32, vocab_size=30, num_layers=2)
OVERRIDES = "hidden_size=16,num_heads=4,filter_size=32,vocab_size=30,num_hidden_layers=2,extra_decode_length=12"
EOS = 1
VOCABULARY = "".join(f"'{subtoken}'\n" for subtoken in ["<pad>", "<EOS>", *(f"w{i}_" for i in range(28))])


def write_checkpoint(folder: Path, seed: int) -> None:
    """As of a network that was trained for a step, surer of what it says than a new one."""
    model = transformer_graph.build(NETWORK)
    values = transformer_graph.drawn_values(model, seed)
    for name in values:
        if "embedding" in name:
            values[name] = values[name] * np.float32(2)
    with graph.session(model, threads=1) as sess:
        graph.initialize(model, sess, values, step=1)
        model.saver.save(sess, str(folder / "model.ckpt"), global_step=1)


def padded(sentences: list[list[int]], length: int = 0) -> np.ndarray:
    ids = np.zeros([len(sentences), length or max(map(len, sentences))], np.int64)
    for row, sentence in zip(ids, sentences):
        row[: len(sentence)] = sentence
    return ids


class SavedModelTest(harness.InteropTest):
    def export(self, seed: int) -> Path:
        model_dir, export_dir = self.folder / f"model{seed}", self.folder / f"export{seed}"
        model_dir.mkdir()
        write_checkpoint(model_dir, seed)
        vocab_file = self.folder / "vocab"
        vocab_file.write_text(VOCABULARY)
        flags = ["--param_set=tiny", f"--params_override={OVERRIDES}", "--use_synthetic_data", "--batch_size=16"]
        flags += [f"--model_dir={model_dir}", "--max_train_steps=1", f"--vocab_file={vocab_file}"]
        self.run_binary(*flags, f"--export_dir={export_dir}")
        (exported,) = export_dir.iterdir()
        self.assertRegex(exported.name, r"^\d{10}$")  # seconds since 1970
        self.assertEqual((exported / "assets.extra" / "vocab.txt").read_text(), VOCABULARY)
        return exported

    def ours(self, seed: int, sentences: list[list[int]]) -> list[tuple[float, list[int]]]:
        """Score and ids of each translation."""
        lines = "".join(" ".join(map(str, sentence)) + "\n" for sentence in sentences)
        command = [DECODE_IDS, str(self.folder / f"model{seed}"), OVERRIDES]
        done = subprocess.run(command, input=lines, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = [line.split() for line in done.stdout.splitlines()]
        return [(float(score), list(map(int, ids))) for score, *ids in words]

    def check(self, ours: list[tuple[float, list[int]]], answer: dict[str, np.ndarray]) -> None:
        self.assertEqual(answer["outputs"].dtype, np.int32)
        # A search goes on when its best translation is found, as long as others could become better.
        expected = padded([ids for _, ids in ours], length=answer["outputs"].shape[1])
        np.testing.assert_array_equal(expected, answer["outputs"])
        np.testing.assert_allclose([score for score, _ in ours], answer["scores"], rtol=1e-4)

    def test_translates_as_we_do(self) -> None:
        lengths = set()
        for seed in range(3):
            exported = self.export(seed)
            model = tf.saved_model.load(str(exported), tags=["serve"])
            self.assertEqual(set(model.signatures), {"translate", "serving_default"})
            rng = np.random.default_rng(seed)
            for size in (1, 6):
                sentences = [[*rng.integers(2, 30, rng.integers(1, 9)), EOS] for _ in range(size)]
                ours = self.ours(seed, sentences)
                lengths |= {len(ids) for _, ids in ours}
                ids = tf.constant(padded(sentences))
                for signature in ("translate", "serving_default"):
                    with self.subTest(seed=seed, size=size, signature=signature):
                        answer = model.signatures[signature](input=ids)
                        self.check(ours, {name: value.numpy() for name, value in answer.items()})
        self.assertGreater(len(lengths), 3, "all translations are as long")

    def test_loads_as_tensorflow_1_does(self) -> None:
        exported = self.export(seed=3)
        sentences = [[5, 9, EOS], [3, EOS]]
        with tf.compat.v1.Session(graph=tf.Graph()) as sess:
            meta_graph = tf.compat.v1.saved_model.load(sess, ["serve"], str(exported))
            signature = meta_graph.signature_def["translate"]
            self.assertEqual(signature.inputs["input"].name, "input_tensor:0")
            names = {key: tensor.name for key, tensor in signature.outputs.items()}
            answer = sess.run(names, {signature.inputs["input"].name: padded(sentences)})
        self.check(self.ours(3, sentences), answer)


if __name__ == "__main__":
    harness.main()
