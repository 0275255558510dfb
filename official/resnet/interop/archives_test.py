"""The official archives of trained networks: what TensorFlow has written under their names, with ResNet-50's variables,
is evaluated, predicts as TensorFlow does and starts a new run.

Usage: MODULE RESNET_MAIN CHECKPOINT_TOOL [unittest argument...]
"""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

from official.resnet.interop import resnet_graph
from official.resnet.interop.resnet_graph import Network, ResnetGraph
from tools.interop import graph, harness

IMAGENET_MEANS = [123.68, 116.78, 103.94]
SYNTHETIC = ["--use_synthetic_data", "--batch_size=1", "--max_train_steps=1"]

tf.disable_resource_variables()  # as in 2018: a Saver puts others into one file, of the CPU

# The archives' folders, the version of their network and the step of their checkpoint.
ARCHIVES = [
    ("20180601_resnet_v1_imagenet_checkpoint", 1, 257706),
    ("20180601_resnet_v2_imagenet_checkpoint", 2, 258931),
]


class ArchivesTest(harness.InteropTest):
    def setUp(self) -> None:
        super().setUp()
        image = np.full([256, 256, 3], IMAGENET_MEANS) + np.kron(
            np.random.default_rng(2).normal(0, 3, [8, 8, 3]), np.ones([32, 32, 1])
        )
        pixels = np.rint(image).astype(np.uint8)
        self.photograph = self.folder / "photograph.png"
        self.photograph.write_bytes(tf.io.encode_png(pixels).numpy())
        # Of an image with a short side of 256 evaluation takes the middle as it is.
        self.features = (pixels[16:240, 16:240] - IMAGENET_MEANS)[np.newaxis].astype(np.float32)

    def write_checkpoint(self, folder: Path, version: int, step: int) -> np.ndarray:
        """As Estimator leaves it, in two files of data, as a training on GPUs does. TensorFlow's probabilities for the
        photograph."""
        folder.mkdir(parents=True)
        model = resnet_graph.build(Network("imagenet", 50, version))
        config = tf.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
        with model.graph.as_default(), tf.Session(config=config) as session:
            place_on_two_devices(model)
            graph.initialize(model, session, resnet_graph.drawn_values(model, seed=version), step)
            saver = tf.train.Saver(sharded=True, save_relative_paths=True)
            saver.save(session, str(folder / "model.ckpt"), global_step=step)
            tf.train.write_graph(model.graph, str(folder), "graph.pbtxt")
            probabilities = session.run(model.probabilities, {model.images: self.features})
        self.assertTrue((folder / f"model.ckpt-{step}.data-00001-of-00002").exists())
        self.assertTrue((folder / f"model.ckpt-{step}.meta").exists())
        return probabilities[0]

    def predicted(self, *flags: str) -> np.ndarray:
        predict = [f"--predict={self.photograph}", "--top_k=1001", "--output=json"]
        ours = np.zeros(1001)
        for one in json.loads(self.run_binary(*flags, *predict))["classes"]:
            ours[one["class"]] = one["probability"]
        return ours

    def refused(self, *flags: str) -> str:
        done = subprocess.run([self.binary, *flags], capture_output=True, text=True)
        self.assertNotIn(done.returncode, (0, 1, 139), done.stderr)
        return done.stderr

    def test_archives_of_checkpoints(self) -> None:
        for name, version, step in ARCHIVES:
            with self.subTest(name):
                written = self.folder / "written" / name
                expected = self.write_checkpoint(written, version, step)
                self.assertGreater(expected.max(), 1.1 / 1001, "the network knows nothing")
                archive = self.folder / f"{name}.tar.gz"
                with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
                    tar.add(written, name)
                network = [f"--resnet_version={version}", "--resnet_size=50"]

                for flags in (
                    [f"--model_dir={archive}", "--eval_only", *SYNTHETIC],
                    [f"--model_dir={archive}", f"--predict={self.photograph}"],
                    [f"--model_dir={self.folder}/new", f"--fine_tune={archive}", *SYNTHETIC],
                ):
                    with self.subTest(flags[:2]):
                        self.assertIn(f"tar xf {archive}", self.refused(*network, *flags))

                subprocess.run(["tar", "xf", archive], cwd=self.folder, check=True)
                extracted = f"--model_dir={self.folder / name}"
                evaluated = self.run_binary(*network, extracted, "--eval_only", *SYNTHETIC, "--output=json")
                self.assertEqual(json.loads(evaluated.splitlines()[0])["global_step"], step)
                ours = self.predicted(*network, extracted)
                np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-7)

                tuned = [f"--model_dir={self.folder / 'tuned' / name}", f"--fine_tune={self.folder / name}"]
                done = subprocess.run([self.binary, *network, *tuned, *SYNTHETIC], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, r"took (\d+) of \1 variables")

    def test_archives_of_saved_models(self) -> None:
        folder = self.folder / "resnet_v2_fp32_savedmodel_NHWC" / "1538687283"
        model = resnet_graph.build(Network("imagenet", 50, 2))
        with tf.Session(graph=model.graph) as session, model.graph.as_default():
            graph.initialize(model, session, resnet_graph.drawn_values(model, seed=3), step=225207)
            expected = session.run(model.probabilities, {model.images: self.features})[0]
            tf.saved_model.simple_save(session, str(folder), {"input": model.images}, {"output": model.probabilities})
        converted = self.folder / "converted"
        command = [checkpoint_tool, "convert", folder / "variables" / "variables", converted / "model.ckpt-0"]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        np.testing.assert_allclose(self.predicted(f"--model_dir={converted}"), expected, rtol=1e-4, atol=1e-7)


def place_on_two_devices(model: ResnetGraph) -> None:
    """Every other variable on a second CPU, where a training of the archives had a GPU."""
    for i, variable in enumerate(model.saved_variables):
        for op in (variable.op, variable.initializer, variable.value().op):
            op._set_device(f"/cpu:{i % 2}")


if __name__ == "__main__":
    checkpoint_tool = Path(sys.argv.pop(2)).absolute()
    harness.main()
