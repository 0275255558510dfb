"""ONNX Runtime loads our ONNX model, and answers as our predict does."""

import json

import numpy as np

from official.mnist.interop import idx
from tools.interop import harness, onnx_session


class OnnxTest(harness.InteropTest):
    def test_answers_as_our_predict_does(self) -> None:
        for data_format in ("channels_first", "channels_last"):
            with self.subTest(data_format):
                self.folder = self.folder / data_format
                self.check(f"--data_format={data_format}")

    def check(self, flag: str) -> None:
        data_dir, model_dir, export_dir = self.folder / "data", self.folder / "model", self.folder / "export"
        idx.write_dataset(data_dir, "train", *idx.draw_examples(300, seed=1))
        idx.write_dataset(data_dir, "t10k", *idx.draw_examples(70, seed=2))
        flags = [f"--data_dir={data_dir}", f"--model_dir={model_dir}", "--ema_decay=0.5", flag]
        # Of a moving average, which is what predictions use.
        training = ["--train_epochs=3", f"--export_dir={export_dir}", "--export_format=both"]
        self.run_binary(*flags, *training)
        output = self.run_binary(*flags, f"--predict={data_dir}/t10k-images-idx3-ubyte", "--output=json")
        ours = [json.loads(line) for line in output.splitlines()]

        (exported,) = export_dir.iterdir()
        self.assertEqual({path.name for path in exported.iterdir()}, {"model.onnx", "saved_model.pb", "variables"})
        session = onnx_session.of_export(export_dir)
        inputs, outputs = onnx_session.signature(session)
        self.assertEqual(inputs, {"image": ["tensor(float)", "batch", 28, 28]})
        self.assertEqual(
            outputs, {"classes": ["tensor(int64)", "batch"], "probabilities": ["tensor(float)", "batch", 10]}
        )
        images = idx.read_dataset(data_dir, "t10k")[0].reshape(-1, 28, 28)
        for size in (1, len(images)):
            classes, probabilities = session.run(["classes", "probabilities"], {"image": images[:size]})
            np.testing.assert_array_equal([row["class"] for row in ours[:size]], classes)
            np.testing.assert_allclose([row["probabilities"] for row in ours[:size]], probabilities, rtol=0, atol=1e-5)


if __name__ == "__main__":
    harness.main()
