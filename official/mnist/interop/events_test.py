"""TensorBoard's reader reads our event files."""

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from official.mnist.interop import idx
from tools.interop import harness


def read_events(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0, "images": 0}).Reload()


def scalars(events: EventAccumulator, tag: str) -> dict[int, float]:
    return {event.step: event.value for event in events.Scalars(tag)}


class EventsTest(harness.InteropTest):
    def test_scalars_and_text(self) -> None:
        data_dir, model_dir = self.folder / "data", self.folder / "model"
        idx.write_dataset(data_dir, "train", *idx.draw_examples(300, seed=1))
        idx.write_dataset(data_dir, "t10k", *idx.draw_examples(70, seed=2))
        self.run_binary(
            f"--data_dir={data_dir}",
            f"--model_dir={model_dir}",
            "--train_epochs=2",
            "--log_every_n_steps=1",
            "--hooks=ProfilerHook",
        )

        train = read_events(model_dir)
        losses = scalars(train, "loss")
        self.assertEqual(sorted(losses), [1, 2, 3, 4, 5, 6])
        for step, loss in harness.metric(model_dir, "loss").items():
            self.assertAlmostEqual(losses[step], loss, places=6)
        self.assertAlmostEqual(scalars(train, "learning_rate")[6], 1e-4)
        self.assertEqual(sorted(scalars(train, "train_accuracy_1")), [1, 2, 3, 4, 5, 6])
        self.assertIn("global_step/sec", train.Tags()["scalars"])
        text = [train.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in train.Tags()["tensors"]]
        self.assertTrue(any("batch_size" in value for value in text), f"no flags among the texts {text}")

        nodes = {node.name: node for node in train.Graph().node}
        self.assertEqual(nodes["conv2d/kernel"].op, "VariableV2")
        self.assertTrue(all(name.split(":")[0] in nodes for node in nodes.values() for name in node.input))
        self.assertEqual(train.Tags()["run_metadata"], ["step_1", "step_4"])  # the first of each train call
        devices = train.RunMetadata("step_1").step_stats.dev_stats
        self.assertEqual([device.device for device in devices], ["/device:CPU:0"])
        self.assertTrue(any(stats.node_name in nodes for stats in devices[0].node_stats))

        evaluation = read_events(model_dir / "eval")
        for tag in ("accuracy", "loss"):
            self.assertEqual(sorted(scalars(evaluation, tag)), [3, 6])
        samples = evaluation.Tensors("samples/text_summary")
        self.assertEqual([event.step for event in samples], [3, 6])
        table = make_ndarray(samples[-1].tensor_proto)
        self.assertEqual(table.shape, (17, 3))
        self.assertEqual([cell.decode() for cell in table[0]], ["class", "prediction", "probability"])
        _, labels = idx.draw_examples(70, seed=2)
        self.assertEqual([int(row[0]) for row in table[1:]], list(labels[:16]))
        (image,) = evaluation.Images("samples/image/15")
        self.assertEqual((image.width, image.height), (28, 28))
        self.assertAlmostEqual(scalars(evaluation, "accuracy")[6], harness.metric(model_dir, "accuracy")[6], places=6)


if __name__ == "__main__":
    harness.main()
