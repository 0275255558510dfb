"""TensorFlow loads our SavedModel of NeuMF, and answers as our predict does."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from official.recommendation.interop import ratings
from tools.interop import harness


class SavedModelTest(harness.InteropTest):
    def ids(self, exported: Path, name: str) -> dict[int, int]:
        """The number by which the network knows what the ratings call so."""
        lines = (exported / "assets.extra" / name).read_text().splitlines()
        return {int(line): number for number, line in enumerate(lines)}

    def check(self, *model: str) -> None:
        data, export_dir = self.folder / "ratings.csv", self.folder / "export"
        ratings.write_ratings(data)
        flags = [f"--ratings_file={data}", f"--model_dir={self.folder / 'model'}", *model]
        # The threshold ends the training after the first of the epochs.
        training = ["--train_epochs=3", "--learning_rate=0.01", "--hr_threshold=0", f"--export_dir={export_dir}"]
        self.assertEqual(self.run_binary(*flags, *training, "--output=json").count('"evaluation"'), 1)
        output = self.run_binary(*flags, "--predict=1,28,178", f"--top_k={ratings.NUM_ITEMS}", "--output=json")
        (exported,) = export_dir.iterdir()
        users, items = self.ids(exported, "user_ids.txt"), self.ids(exported, "item_ids.txt")
        self.assertEqual(len(users), ratings.NUM_USERS)
        pairs, ours = [], []
        for line in output.splitlines():
            found = json.loads(line)
            for item in found["items"]:
                pairs.append([users[found["user"]], items[item["item"]]])
                ours.append(item["rating"])
        self.assertEqual(len(ours), 3 * (len(items) - ratings.RATINGS_PER_USER))
        self.assertGreater(np.ptp(ours), 0.05)

        user_id, item_id = np.int32(pairs).T
        served = tf.saved_model.load(str(exported), tags=["serve"])
        for signature in ("predict", "serving_default"):
            with self.subTest(signature):
                answer = served.signatures[signature](user_id=tf.constant(user_id), item_id=tf.constant(item_id))
                self.assertEqual(set(answer), {"rating"})
                self.assertEqual(answer["rating"].shape, [len(ours), 1])
                np.testing.assert_allclose(np.ravel(answer["rating"]), ours, rtol=0, atol=1e-5)
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], str(exported))
            signature = meta_graph.signature_def["serving_default"]
            feeds = {signature.inputs["user_id"].name: user_id[:1], signature.inputs["item_id"].name: item_id[:1]}
            (answer,) = session.run(signature.outputs["rating"].name, feeds)
            np.testing.assert_allclose(answer, ours[:1], rtol=0, atol=1e-5)

    def test_neumf(self) -> None:
        self.check("--num_factors=4", "--layers=16,8")

    def test_gmf(self) -> None:
        self.check("--model=gmf")

    def test_mlp(self) -> None:
        self.check("--model=mlp", "--loss=sigmoid")


if __name__ == "__main__":
    harness.main()
