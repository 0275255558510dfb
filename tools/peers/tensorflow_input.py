"""Prints how many images a second tf.data makes of ImageNet's TFRecord files, as the official ResNet used it."""

import argparse
import time

import tensorflow as tf

SIZE = 224
MEANS = [123.68, 116.78, 103.94]


def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the encoded image, its label and its boxes [1, number, 4]."""
    edges = [f"image/object/bbox/{edge}" for edge in ("ymin", "xmin", "ymax", "xmax")]
    features = tf.io.parse_single_example(
        record,
        {
            "image/encoded": tf.io.FixedLenFeature([], tf.string, ""),
            "image/class/label": tf.io.FixedLenFeature([], tf.int64, -1),
            **{edge: tf.io.VarLenFeature(tf.float32) for edge in edges},
        },
    )
    boxes = tf.stack([features[edge].values for edge in edges], axis=-1)[None]
    return features["image/encoded"], tf.cast(features["image/class/label"], tf.int32), boxes


def distort(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image, label, boxes = parse(record)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(image),
        boxes,
        min_object_covered=0.1,
        aspect_ratio_range=[0.75, 1.33],
        area_range=[0.05, 1.0],
        max_attempts=100,
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], size[:2]], 0)
    pixels = tf.io.decode_and_crop_jpeg(image, window, channels=3)
    return scale(tf.image.random_flip_left_right(pixels), SIZE, SIZE), label


def evaluate(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    image, label, _ = parse(record)
    pixels = tf.io.decode_jpeg(image, channels=3)
    sides = tf.cast(tf.shape(pixels)[:2], tf.float32)
    sides = tf.cast(sides * (256.0 / tf.reduce_min(sides)), tf.int32)
    top, left = tf.unstack((sides - SIZE) // 2)
    return scale(pixels, sides[0], sides[1])[top : top + SIZE, left : left + SIZE], label


def scale(pixels: tf.Tensor, height: tf.Tensor | int, width: tf.Tensor | int) -> tf.Tensor:
    return tf.compat.v1.image.resize_bilinear(pixels[None], [height, width])[0] - MEANS


def main() -> None:
    p = argparse.ArgumentParser()
    p.add_argument("--data_dir", required=True)
    p.add_argument("--split", choices=["train", "validation"], default="train")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--batch_size", type=int, default=32)
    p.add_argument("--seconds", type=float, default=10)
    args = p.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)

    files = sorted(tf.io.gfile.glob(f"{args.data_dir}/{args.split}-*-of-*"))
    dataset = tf.data.TFRecordDataset(files)
    if args.split == "train":
        dataset = dataset.shuffle(10000)
    dataset = dataset.repeat().map(distort if args.split == "train" else evaluate, num_parallel_calls=args.threads)
    dataset = dataset.batch(args.batch_size).prefetch(1)
    options = tf.data.Options()
    options.threading.private_threadpool_size = args.threads
    batches = iter(dataset.with_options(options))
    for _ in range(3):
        next(batches)
    start, processor_start, count = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - start < args.seconds:
        count += len(next(batches)[1])
    seconds, processor_seconds = time.perf_counter() - start, time.process_time() - processor_start
    print(f"{count / seconds:.1f} images/s, {count / processor_seconds:.1f} per second of processor time")


if __name__ == "__main__":
    main()
