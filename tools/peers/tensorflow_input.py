"""Prints how many images a second tf.data makes of ImageNet's TFRecord files or CIFAR-10's binary files, by the
pipelines of the official ResNet."""

from collections.abc import Callable

import resnet_input
import tensorflow as tf

SIZE = resnet_input.IMAGENET_SIZE

Example = tuple[tf.Tensor, tf.Tensor]  # image, label


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


def distort(record: tf.Tensor) -> Example:
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


def evaluate(record: tf.Tensor) -> Example:
    image, label, _ = parse(record)
    pixels = tf.io.decode_jpeg(image, channels=3)
    sides = tf.cast(tf.shape(pixels)[:2], tf.float32)
    sides = tf.cast(sides * (resnet_input.IMAGENET_SHORT_SIDE / tf.reduce_min(sides)), tf.int32)
    top, left = tf.unstack((sides - SIZE) // 2)
    return scale(pixels, sides[0], sides[1])[top : top + SIZE, left : left + SIZE], label


def scale(pixels: tf.Tensor, height: tf.Tensor | int, width: tf.Tensor | int) -> tf.Tensor:
    return tf.compat.v1.image.resize_bilinear(pixels[None], [height, width])[0] - resnet_input.IMAGENET_MEANS


def parse_cifar10(record: tf.Tensor) -> Example:
    size = resnet_input.CIFAR10_SIZE
    values = tf.io.decode_raw(record, tf.uint8)
    planes = tf.reshape(values[1:], [3, size, size])
    return tf.cast(tf.transpose(planes, [1, 2, 0]), tf.float32), tf.cast(values[0], tf.int32)


def distort_cifar10(record: tf.Tensor) -> Example:
    image, label = parse_cifar10(record)
    size = resnet_input.CIFAR10_SIZE
    padded = size + 2 * resnet_input.CIFAR10_BORDER
    image = tf.image.random_crop(tf.image.resize_with_crop_or_pad(image, padded, padded), [size, size, 3])
    return tf.image.per_image_standardization(tf.image.random_flip_left_right(image)), label


def evaluate_cifar10(record: tf.Tensor) -> Example:
    image, label = parse_cifar10(record)
    return tf.image.per_image_standardization(image), label


def main() -> None:
    args = resnet_input.parse_args(__doc__)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)

    train = args.split == "train"
    shuffle_buffer = 10000
    make: Callable[[tf.Tensor], Example]
    if args.dataset == "imagenet":
        records = tf.data.TFRecordDataset(sorted(tf.io.gfile.glob(f"{args.data_dir}/{args.split}-*-of-*")))
        make = distort if train else evaluate
    else:
        files = tf.io.gfile.glob(f"{args.data_dir}/cifar-10-batches-bin/{'data' if train else 'test'}_batch*.bin")
        records = tf.data.FixedLengthRecordDataset(sorted(files), 1 + 3 * resnet_input.CIFAR10_SIZE**2)
        make = distort_cifar10 if train else evaluate_cifar10
        shuffle_buffer = 50000
    if train:
        records = records.shuffle(shuffle_buffer)
    # As upstream; faster than map() and batch(), since each image is made in its place in the batch.
    together = tf.data.experimental.map_and_batch(make, args.batch_size, num_parallel_calls=args.threads)
    dataset = records.repeat().apply(together).prefetch(1)
    options = tf.data.Options()
    options.threading.private_threadpool_size = args.threads
    resnet_input.measure(dataset.with_options(options), args.seconds)


if __name__ == "__main__":
    main()
