"""Damaged and hostile files end a run with an exit status below 128 and a line that names the file."""

import collections
import gzip
import shutil
import struct

from official.faults import checkpoint_file, harness
from official.faults.programs import STEPS
from utils.fuzzing import make_corpus

FIRST = 3


class DataTest(harness.FaultTest):
    def test_idx_files(self) -> None:
        images, labels = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
        good = (self.data_dir / images).read_bytes()
        cases = [
            ("empty", images, b"", ["is empty"]),
            ("header cut", images, good[:10], ["header is cut", "expected 16 bytes, found 10"]),
            ("cut", images, good[:-1], [f"expected {len(good)} bytes (64 x 28 x 28), found {len(good) - 1}"]),
            ("left over", images, good + b"x", [f"expected {len(good)} bytes", f"found {len(good) + 1}"]),
            ("magic", images, b"\0\0\x08\1" + good[4:], ["Invalid magic number 2049"]),
            ("page", images, b"<!DOCTYPE html><html>404</html>", ["Invalid magic number", "(the file is an HTML page)"]),
            ("size", images, struct.pack(">4I", 2051, 64, 29, 28) + good[16:], ["Expected 28x28 images, found 29x28"]),
            ("count", images, struct.pack(">I", 2051) + b"\xff" * 4 + good[8:], ["4294967295 x 28 x 28"]),
            ("none", images, struct.pack(">4I", 2051, 0, 28, 28), ["0 images", "64 labels"]),
            ("fewer labels", labels, struct.pack(">2I", 2049, 1) + b"\1", ["64 images", "1 labels"]),
            ("label", labels, struct.pack(">2I", 2049, 64) + b"\x0a" * 64, ["labels from 0 to 9, found 10 at index 0"]),
            ("gzip cut", f"{images}.gz", gzip.compress(good)[:-9], ["gzip"]),
            ("gzip checksum", f"{images}.gz", gzip.compress(good)[:-8] + bytes(4) + gzip.compress(good)[-4:], ["checksum"]),
        ]
        for name, file, content, words in cases:
            with self.subTest(name):
                data_dir, model_dir = self.folder / f"data {name}", self.folder / f"model {name}"
                self.write_data(data_dir)
                (data_dir / file.removesuffix(".gz")).unlink()
                (data_dir / file).write_bytes(content)
                outcome = self.execute(self.command(model_dir, data_dir=data_dir))
                self.assert_refused(outcome, 65, data_dir / file, *words)

    def test_files_that_are_none(self) -> None:
        path = self.data_dir / "train-labels-idx1-ubyte"
        path.unlink()
        path.mkdir()
        self.assert_refused(self.run_steps(self.folder / "model", STEPS), 66, path, "it is a directory")
        path.rmdir()
        path.symlink_to(path.name)
        outcome = self.run_steps(self.folder / "model", STEPS)
        self.assertIn(outcome.code, (66, 69), outcome.told)
        path.unlink()
        self.execute(["mkfifo", str(path)])
        self.assert_refused(self.run_steps(self.folder / "model", STEPS), 66, path, "not a regular file")

    def test_no_data_and_no_network(self) -> None:
        """What is missing, what would help, and nothing is made under the name, which may be mistyped."""
        data_dir = self.folder / "mistyped" / "data"
        command = self.command(self.folder / "model", data_dir=data_dir)
        nowhere = {name: "http://127.0.0.1:1" for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy")}
        outcome = self.execute(command, env=nowhere)
        self.assert_refused(outcome, 69, f"there is no directory {data_dir} with the files", "`download_mnist_main ")
        self.assertIn("--use_synthetic_data", outcome.error)
        self.assertFalse(data_dir.parent.exists())

    def test_files_that_cannot_be_read(self) -> None:
        whole, model_dir = self.folder / "whole", self.folder / "model"
        self.train(model_dir, FIRST)
        for place in (self.data_dir, model_dir):
            journal = self.folder / f"journal of {place.name}"
            shutil.rmtree(whole, ignore_errors=True)
            self.copy(model_dir, whole.name)
            watched = whole if place == model_dir else place
            self.train(whole, env=self.with_fault(watched, "", 0, call="read", journal=journal))
            paths = [line.split("\t")[2] for line in journal.read_text().splitlines()]
            reads = collections.Counter(path.rsplit("/", 1)[1] for path in paths)
            self.assertGreater(reads.total(), 8, "the library has seen hardly any reads")
            for name, number in ((name, k) for name, n in reads.items() for k in sorted({1, 2, n} & set(range(n + 1)))):
                # On these depend only a warning about changed flags, an evaluation that is made again, and a new line
                # after one that was cut.
                if name in ("flags.txt", "evaluated_step", "metric.log", "benchmark_run.log"):
                    continue
                with self.subTest(f"read {number} of {name}"):
                    env = self.with_fault(place, "EIO", number, call="read", path=name)
                    outcome = self.run_steps(model_dir, STEPS, env=env)
                    self.assert_refused(outcome, 74, place / name, "bytes at offset", "Input/output error")
                    self.assertEqual(harness.latest_step(model_dir), FIRST)
        self.train(model_dir)
        self.assert_same_checkpoint(model_dir, whole)

    def test_missing_files_of_a_checkpoint(self) -> None:
        whole, model_dir = self.folder / "whole", self.folder / "model"
        self.train(whole)
        self.train(model_dir, FIRST)
        for suffix in (".index", ".data-00000-of-00001"):
            with self.subTest(suffix):
                damaged = self.copy(model_dir, f"without {suffix}")
                missing = damaged / f"model.ckpt-{FIRST}{suffix}"
                missing.unlink()
                outcome = self.train(damaged)
                self.assertIn(f"using {damaged}/model.ckpt-0, the latest intact checkpoint", outcome.stderr)
                self.assertIn(f"{missing}: No such file", outcome.stderr)
                self.assert_same_checkpoint(damaged, whole)
        nothing_whole = self.copy(model_dir, "nothing whole")
        for path in nothing_whole.glob("*.data-*"):
            path.unlink()
        self.assert_refused(self.run_steps(nothing_whole, STEPS), 65, "no checkpoint in", "is intact")

    def test_every_kind_of_damage_in_a_checkpoint(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, FIRST)
        for suffix in (".index", ".data-00000-of-00001"):
            name = f"model.ckpt-{FIRST}{suffix}"
            good = (model_dir / name).read_bytes()
            middle = len(good) // 2
            for damage, content in {
                "bit": good[:middle] + bytes([good[middle] ^ 4]) + good[middle + 1 :],
                "cut": good[:middle],
                "empty": b"",
                "zeros": bytes(len(good)),
            }.items():
                with self.subTest(f"{name}: {damage}"):
                    damaged = self.copy(model_dir, f"{damage} in {suffix}")
                    (damaged / name).unlink()
                    (damaged / name).write_bytes(content)
                    outcome = self.train(damaged, FIRST + 1)
                    self.assertIn(f"using {damaged}/model.ckpt-0", outcome.stderr)

    def test_hostile_indexes(self) -> None:
        indexes = {f"table {name}": data for name, data in make_corpus.tables().items()}
        for name, data in make_corpus.bundles().items():
            if name.endswith("_index"):
                (size,) = struct.unpack("<H", data[:2])
                indexes[f"bundle {name}"] = data[2 : 2 + size]
        for name, index in indexes.items():
            with self.subTest(name):
                model_dir = self.folder / name
                model_dir.mkdir()
                (model_dir / "model.ckpt-5.index").write_bytes(index)
                (model_dir / "model.ckpt-5.data-00000-of-00001").write_bytes(b"\0" * 64)
                (model_dir / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-5"\n')
                outcome = self.run_steps(model_dir, STEPS)
                self.assert_refused(outcome, 65, model_dir)

    def test_hostile_values(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, FIRST)
        int64, float32 = make_corpus.INT64, make_corpus.FLOAT
        for name, dtype, shape, data, words in [
            ("_run/index", int64, b"", struct.pack("<q", -1), ["_run/index", "-1"]),
            ("_run/index", int64, b"", struct.pack("<q", 2**62), ["_run/index", str(2**62)]),
            ("_run/index", float32, b"", bytes(4), ["_run/index", "float32"]),
            ("_run/epoch", int64, b"", struct.pack("<q", -(2**63)), ["_run/epoch", str(-(2**63))]),
            ("_run/epoch", int64, b"", struct.pack("<q", 2**31), ["_run/epoch", str(2**31)]),
            ("global_step", int64, b"", struct.pack("<q", -1), ["global_step", "-1"]),
            ("global_step", int64, b"", struct.pack("<q", 2**62), ["global_step", str(2**62)]),
            ("_run/dataset", int64, b"", bytes(8), ["_run/dataset"]),
            ("global_step", int64, make_corpus.shape(2), bytes(16), ["global_step", "int64[2]"]),
            ("conv2d/bias", float32, make_corpus.shape(31), bytes(124), ["conv2d/bias", "float32[31]", "float32[32]"]),
        ]:
            with self.subTest(f"{name} {data[:16].hex()}"):
                hostile = self.copy(model_dir, f"hostile {name.replace('/', ' ')} {len(data)} {data[:8].hex()}")
                checkpoint_file.replace_tensor(hostile / f"model.ckpt-{FIRST}", name.encode(), dtype, shape, data)
                self.assert_refused(self.run_steps(hostile, STEPS), 65, *words)

    @harness.of_every_program
    def test_bytes_behind_the_end_of_the_data(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, FIRST)
        for step in range(FIRST + 1):
            data = model_dir / f"model.ckpt-{step}.data-00000-of-00001"
            if data.exists():
                data.write_bytes(data.read_bytes() + b"x")
        size = data.stat().st_size
        outcome = self.run_steps(model_dir, STEPS)
        self.assert_refused(outcome, 65, data, f"holds {size} bytes, but its tensors end at byte {size - 1}")

    def test_a_checkpoint_of_another_model(self) -> None:
        model_dir = self.folder / "model"
        model_dir.mkdir()
        data = bytes(8)
        entries = {b"": make_corpus.HEADER, b"global_step": make_corpus.bundle_entry(make_corpus.INT64, b"", 0, data)}
        block = b"".join(make_corpus.entry(0, key, value) for key, value in sorted(entries.items()))
        index = make_corpus.one_block(make_corpus.seal(make_corpus.contents(block)))
        (model_dir / "model.ckpt-0.index").write_bytes(index)
        (model_dir / "model.ckpt-0.data-00000-of-00001").write_bytes(data)
        (model_dir / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"\n')
        outcome = self.run_steps(model_dir, STEPS)
        self.assert_refused(outcome, 65, "not of this model (mnist)", "it has no", "and", "more")

    def test_numbers_that_are_none(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, FIRST)
        bias = struct.pack("<32f", *[0.0] * 31, float("nan"))
        checkpoint_file.replace_tensor(
            model_dir / f"model.ckpt-{FIRST}", b"conv2d/bias", make_corpus.FLOAT, make_corpus.shape(32), bias
        )
        outcome = self.run_steps(model_dir, STEPS, "--save_checkpoints_steps=1")
        self.assert_refused(outcome, 1, f"step {FIRST + 1}", "conv2d")
        self.assertEqual(harness.latest_step(model_dir), FIRST)
        self.assertEqual(list(model_dir.glob(f"model.ckpt-{FIRST + 1}*")), [])
        outcome = self.run_steps(self.folder / "too fast", STEPS, "--learning_rate=1e38")
        self.assert_refused(outcome, 1, "step", "--learning_rate")


if __name__ == "__main__":
    harness.main()
