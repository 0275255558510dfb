"""TensorFlow's own runs of the MNIST model, as commands of their own: threads and oneDNN are fixed for a process's life.

  python -m official.mnist.interop.reference_run init --model_dir=DIR [--seed=N]
  python -m official.mnist.interop.reference_run losses --model_dir=DIR --data_dir=DIR --steps=N [--threads=1|2]
  python -m official.mnist.interop.reference_run train --data_dir=DIR --train_epochs=N
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from official.mnist.interop import idx


def write_initial_checkpoint(model_dir: Path, seed: int) -> None:
    """Writes what a new run would save at step 0, with the Saver's usual names."""
    from official.mnist.interop import mnist_graph

    model = mnist_graph.build()
    with mnist_graph.session(model, threads=1) as sess:
        mnist_graph.initialize(model, sess, mnist_graph.glorot_uniform_values(seed))
        model.saver.save(sess, str(model_dir / "model.ckpt"), global_step=0)


def losses(model_dir: Path, images: np.ndarray, labels: np.ndarray, steps: int, threads: int) -> list[float]:
    """Trains on one fixed batch without dropout, from the checkpoint in `model_dir`: the loss before each update."""
    from official.mnist.interop import mnist_graph

    model = mnist_graph.build(dropout_rate=0)
    with mnist_graph.session(model, threads) as sess:
        model.saver.restore(sess, mnist_graph.tf.train.latest_checkpoint(str(model_dir)))
        feed = {model.images: images, model.labels: labels}
        return [float(sess.run([model.loss, model.train_op], feed)[0]) for _ in range(steps)]


def losses_in_own_process(model_dir: Path, data_dir: Path, steps: int, threads: int, onednn: bool) -> list[float]:
    """As `losses` on the training set in `data_dir`, with oneDNN's kernels on or off."""
    command = [sys.executable, "-m", "official.mnist.interop.reference_run", "losses"]
    command += [f"--model_dir={model_dir}", f"--data_dir={data_dir}", f"--steps={steps}", f"--threads={threads}"]
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(onednn))}
    return json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout)


def train(data_dir: Path, train_epochs: int, batch_size: int, seed: int) -> None:
    """Trains as the official program does by default, and prints the test accuracy after each epoch."""
    from official.mnist.interop import mnist_graph

    images, labels = idx.read_dataset(data_dir, "train")
    test_images, test_labels = idx.read_dataset(data_dir, "t10k")
    model = mnist_graph.build()
    rng = np.random.default_rng(seed)
    with mnist_graph.session(model, threads=0) as sess:
        mnist_graph.initialize(model, sess, mnist_graph.glorot_uniform_values(seed))
        for epoch in range(1, train_epochs + 1):
            order = rng.permutation(len(images))
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                feed = {model.images: images[batch], model.labels: labels[batch], model.training: True}
                sess.run(model.train_op, feed)
            feed = {model.images: test_images, model.labels: test_labels}
            loss, accuracy = sess.run([model.loss, model.accuracy], feed)
            print(json.dumps({"epoch": epoch, "loss": float(loss), "accuracy": float(accuracy)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["init", "losses", "train"])
    parser.add_argument("--model_dir", type=Path)
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--train_epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=100)
    args = parser.parse_args()
    if args.command == "init":
        write_initial_checkpoint(args.model_dir, args.seed)
    elif args.command == "losses":
        images, labels = idx.read_dataset(args.data_dir, "train")
        print(json.dumps(losses(args.model_dir, images, labels, args.steps, args.threads)))
    else:
        train(args.data_dir, args.train_epochs, args.batch_size, args.seed)


if __name__ == "__main__":
    main()
