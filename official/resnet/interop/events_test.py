"""TensorBoard's reader finds the images of a batch in our event files, scaled as TensorFlow scales them."""

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tools.interop import harness


def summary_images(images: np.ndarray, count: int) -> list[np.ndarray]:
    """The pixels that tf.summary.image of TensorFlow 1 shows of the first `count` images."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        written = session.run(tf.compat.v1.summary.image("images", tf.constant(images, tf.float32), count))
    summary = tf.compat.v1.Summary.FromString(written)
    return [tf.io.decode_png(value.image.encoded_image_string).numpy() for value in summary.value]


class EventsTest(harness.InteropTest):
    def test_images(self) -> None:
        data_dir, model_dir = self.folder / "data" / "cifar-10-batches-bin", self.folder / "model"
        data_dir.mkdir(parents=True)
        planes = np.random.default_rng(1).integers(0, 256, [8, 3, 32, 32], np.uint8)
        labels = np.arange(8, dtype=np.uint8).reshape(8, 1)
        records = np.concatenate([labels, planes.reshape(8, -1)], axis=1).tobytes()
        for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
            (data_dir / f"{name}.bin").write_bytes(records)
        flags = ["--dataset_name=cifar10", "--resnet_size=8", "--batch_size=8", "--noshuffle", "--noaugment"]
        steps = ["--max_train_steps=3", "--log_every_n_steps=2"]
        self.run_binary(*flags, *steps, f"--data_dir={data_dir.parent}", f"--model_dir={model_dir}")

        pixels = tf.constant(planes.transpose(0, 2, 3, 1), tf.float32)
        expected = summary_images(np.stack([tf.image.per_image_standardization(image) for image in pixels]), 6)
        events = EventAccumulator(str(model_dir), size_guidance={"images": 0}).Reload()
        self.assertEqual(sorted(events.Tags()["images"]), [f"images/image/{i}" for i in range(6)])
        for i, theirs in enumerate(expected):
            images = events.Images(f"images/image/{i}")
            self.assertEqual([image.step for image in images], [1, 2])
            self.assertEqual((images[0].width, images[0].height), (32, 32))
            ours = tf.io.decode_png(images[0].encoded_image_string).numpy()
            self.assertLessEqual(np.abs(ours.astype(int) - theirs.astype(int)).max(), 1)
            self.assertGreater(np.mean(ours == theirs), 0.99)


if __name__ == "__main__":
    harness.main()
