"""ONNX Runtime loads our ONNX model of the Transformer and translates as we do. Usage: onnx_test TRANSFORMER_MAIN
DECODE_IDS CHECKPOINT_TOOL"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tools.interop import harness, onnx_session

CHECKPOINT_TOOL = os.path.abspath(sys.argv.pop(3))
DECODE_IDS = os.path.abspath(sys.argv.pop(2))
OVERRIDES = "hidden_size=16,num_heads=4,filter_size=32,vocab_size=30,num_hidden_layers=2,extra_decode_length=12"
EOS = 1
VOCABULARY = "".join(f"'{subtoken}'\n" for subtoken in ["<pad>", "<EOS>", *(f"w{i}_" for i in range(28))])


def padded(sentences: list[list[int]], length: int = 0) -> np.ndarray:
    ids = np.zeros([len(sentences), length or max(map(len, sentences))], np.int64)
    for row, sentence in zip(ids, sentences):
        row[: len(sentence)] = sentence
    return ids


class OnnxTest(harness.InteropTest):
    def change_checkpoint(self, model_dir: Path, seed: int) -> None:
        """Of a network that was trained for a step: surer of what it says, and with no bias or scale that is 0 or 1."""
        weights = self.folder / f"{seed}.safetensors"
        subprocess.run([CHECKPOINT_TOOL, "convert", model_dir, weights], check=True, capture_output=True)
        values, random = load_file(weights), np.random.default_rng(seed)
        for name, value in values.items():
            if "embedding" in name and "Adam" not in name:
                values[name] = value * np.float32(2)
            elif value.ndim == 1 and "Adam" not in name:
                values[name] = value + random.uniform(-0.1, 0.1, value.shape).astype(np.float32)
        save_file(values, weights)
        for file in model_dir.iterdir():
            if file.is_file():
                file.unlink()
        subprocess.run([CHECKPOINT_TOOL, "convert", weights, model_dir / "model.ckpt-1"], check=True, capture_output=True)

    def export(self, seed: int) -> tuple[Path, Path]:
        """The folders of the training and of the export."""
        model_dir, export_dir = self.folder / f"model{seed}", self.folder / f"export{seed}"
        vocab_file = self.folder / "vocab"
        vocab_file.write_text(VOCABULARY)
        flags = ["--param_set=tiny", f"--params_override={OVERRIDES}", "--use_synthetic_data", "--batch_size=16"]
        flags += [f"--model_dir={model_dir}", "--max_train_steps=1", f"--seed={seed}"]
        self.run_binary(*flags)
        self.change_checkpoint(model_dir, seed)
        self.run_binary(*flags, f"--vocab_file={vocab_file}", f"--export_dir={export_dir}", "--export_format=onnx")
        (exported,) = export_dir.iterdir()
        self.assertEqual((exported / "assets.extra" / "vocab.txt").read_text(), VOCABULARY)
        return model_dir, export_dir

    def ours(self, model_dir: Path, sentences: list[list[int]]) -> list[tuple[float, list[int]]]:
        """Score and ids of each translation."""
        lines = "".join(" ".join(map(str, sentence)) + "\n" for sentence in sentences)
        done = subprocess.run([DECODE_IDS, model_dir, OVERRIDES], input=lines, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        words = [line.split() for line in done.stdout.splitlines()]
        return [(float(score), list(map(int, ids))) for score, *ids in words]

    def test_translates_as_we_do(self) -> None:
        lengths = set()
        for seed in range(3):
            model_dir, export_dir = self.export(seed)
            session = onnx_session.of_export(export_dir)
            inputs, outputs = onnx_session.signature(session)
            self.assertEqual(inputs, {"input": ["tensor(int64)", "batch", "input_1"]})
            self.assertEqual(outputs["outputs"], ["tensor(int32)", "batch", "outputs_1"])
            self.assertEqual(outputs["scores"], ["tensor(float)", "batch"])
            rng = np.random.default_rng(seed)
            for size in (1, 6):
                with self.subTest(seed=seed, size=size):
                    sentences = [[*rng.integers(2, 30, rng.integers(1, 9)), EOS] for _ in range(size)]
                    ours = self.ours(model_dir, sentences)
                    lengths |= {len(ids) for _, ids in ours}
                    found, scores = session.run(["outputs", "scores"], {"input": padded(sentences)})
                    # A search goes on when its best translation is found, as long as others could become better.
                    np.testing.assert_array_equal(padded([ids for _, ids in ours], length=found.shape[1]), found)
                    np.testing.assert_allclose([score for score, _ in ours], scores, rtol=1e-4)
        self.assertGreater(len(lengths), 3, "all translations are as long")


if __name__ == "__main__":
    harness.main()
