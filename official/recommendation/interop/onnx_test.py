"""ONNX Runtime loads our ONNX model of NeuMF, and answers as our predict does."""

import json
from pathlib import Path

import numpy as np

from official.recommendation.interop import ratings
from tools.interop import harness, onnx_session


class OnnxTest(harness.InteropTest):
    def ids(self, exported: Path, name: str) -> dict[int, int]:
        """The number by which the network knows what the ratings call so."""
        lines = (exported / "assets.extra" / name).read_text().splitlines()
        return {int(line): number for number, line in enumerate(lines)}

    def check(self, *model: str) -> None:
        data, export_dir = self.folder / "ratings.csv", self.folder / "export"
        ratings.write_ratings(data)
        flags = [f"--ratings_file={data}", f"--model_dir={self.folder / 'model'}", *model]
        self.run_binary(
            *flags, "--train_epochs=1", "--learning_rate=0.01", f"--export_dir={export_dir}", "--export_format=onnx"
        )
        output = self.run_binary(*flags, "--predict=1,28,178", f"--top_k={ratings.NUM_ITEMS}", "--output=json")
        (exported,) = export_dir.iterdir()
        self.assertEqual({path.name for path in exported.iterdir()}, {"model.onnx", "assets.extra"})
        users, items = self.ids(exported, "user_ids.txt"), self.ids(exported, "item_ids.txt")
        pairs, ours = [], []
        for line in output.splitlines():
            found = json.loads(line)
            for item in found["items"]:
                pairs.append([users[found["user"]], items[item["item"]]])
                ours.append(item["rating"])
        self.assertGreater(np.ptp(ours), 0.05)

        session = onnx_session.of_export(export_dir)
        inputs, outputs = onnx_session.signature(session)
        self.assertEqual(inputs, {"user_id": ["tensor(int32)", "batch"], "item_id": ["tensor(int32)", "batch"]})
        self.assertEqual(outputs, {"rating": ["tensor(float)", "batch", 1]})
        user_id, item_id = np.int32(pairs).T
        for size in (1, len(ours)):
            (rating,) = session.run(["rating"], {"user_id": user_id[:size], "item_id": item_id[:size]})
            np.testing.assert_allclose(rating[:, 0], ours[:size], rtol=0, atol=1e-5)

    def test_neumf(self) -> None:
        self.check("--num_factors=4", "--layers=16,8")

    def test_gmf(self) -> None:
        self.check("--model=gmf")

    def test_mlp(self) -> None:
        self.check("--model=mlp", "--loss=sigmoid")


if __name__ == "__main__":
    harness.main()
