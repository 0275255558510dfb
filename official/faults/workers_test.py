"""Several workers end with the bits of one process with as many devices as they have replicas together."""

import os
import re
import signal
import time
from pathlib import Path

from official.faults import harness, workers
from official.faults.losses import ENDLESS
from official.faults.workers import REPLICAS, tf_configs
from utils.fuzzing import make_corpus


def write_photographs(folder: Path) -> int:
    """Writes ImageNet's records, 16 to train on and 4 to evaluate, and returns the bytes of the former."""
    grey = make_corpus.jpeg(64, 64, b"\x11\x11\x11")
    grey = grey[:2] + make_corpus.segment(0xFE, bytes(60000)) + grey[2:]  # with a long comment
    for name, count in (("train", 16), ("validation", 4)):
        records = b""
        for i in range(count):
            image = make_corpus.feature(b"image/encoded", make_corpus.field(1, make_corpus.field(1, grey)))
            label = make_corpus.feature(b"image/class/label", make_corpus.field(3, make_corpus.field(1, bytes([i + 1]))))
            records += make_corpus.record(make_corpus.field(1, image + label))
        (folder / f"{name}-00000-of-00001").write_bytes(records)
    return (folder / "train-00000-of-00001").stat().st_size


def bytes_read(trace: str, path: str) -> int:
    """How much the calls in strace's output have read from a file."""
    total, waiting = 0, set()
    for line in trace.splitlines():
        thread, call = line.split(None, 1)
        if f"<{path}>" in call and call.endswith("<unfinished ...>"):
            waiting.add(thread)
        elif f"<{path}>" in call or ("resumed>" in call and thread in waiting):
            waiting.discard(thread)
            if result := re.search(r"read\w*(?:\(| resumed>).* = (\d+)$", call):
                total += int(result[1])
    return total


class WorkersTest(workers.WorkersCase):
    @harness.of_every_program
    def test_any_number_of_workers_has_the_same_bits(self) -> None:
        alone = self.folder / "alone"
        self.train_alone(alone)
        for count, chief, flags in (
            (2, False, ("--num_cpu_devices=2",)),
            (4, True, ()),
            (3, False, (f"--num_replicas={REPLICAS}",)),
        ):
            with self.subTest(workers=count):
                model_dir = self.folder / f"workers{count}"
                self.train_workers(model_dir, count, *flags, chief=chief)
                self.assert_same_checkpoint(model_dir, alone)
                self.assert_same_metrics(model_dir, alone)

    @harness.of_every_program
    def test_others_continue_with_the_same_bits(self) -> None:
        alone, changing = self.folder / "alone", self.folder / "changing"
        self.train_alone(alone)
        replicas = f"--num_replicas={REPLICAS}"
        self.train_workers(changing, 4, steps=6)
        self.train_alone(changing, steps=13)
        self.train_workers(changing, 3, replicas)
        self.assert_same_checkpoint(changing, alone)

    def test_a_signal_to_any_worker_saves_the_same_step_everywhere(self) -> None:
        for receiver in (0, 1):
            with self.subTest(receiver=receiver):
                model_dir = self.folder / f"model{receiver}"
                processes = self.start_workers(model_dir, 2, *ENDLESS)
                self.wait_for_records(model_dir, 5)
                processes[receiver].send_signal(signal.SIGTERM)
                outcomes = [self.finish(process) for process in processes]
                step = harness.latest_step(model_dir)
                for i, outcome in enumerate(outcomes):
                    self.assertEqual(outcome.code, 143 if i == receiver else 138, outcome.told)
                    self.assertIn(f"stopped at step {step}", outcome.stderr, outcome.told)

    @harness.of("transformer")
    def test_a_signal_to_any_worker_ends_a_translation_everywhere(self) -> None:
        text, vocab = self.folder / "text", self.folder / "vocab"
        vocab.write_text("'<pad>'\n'<EOS>'\n'a_'\n")
        text.write_text("a a a\n" * 20000)
        bleu = (f"--bleu_source={text}", f"--bleu_ref={text}", f"--vocab_file={vocab}")
        for receiver in (0, 1):
            with self.subTest(receiver=receiver):
                model_dir = self.folder / f"model{receiver}"
                processes = self.start_workers(model_dir, 2, "--max_train_steps=2", *bleu)
                self.wait_until(lambda d=model_dir: any(d.glob("eval/events*")), "an evaluation: the translation is next")
                time.sleep(0.2)
                processes[receiver].send_signal(signal.SIGTERM)
                for i, outcome in enumerate([self.finish(process) for process in processes]):
                    self.assertEqual(outcome.code, 143 if i == receiver else 138, outcome.told)
                    self.assertIn("stopped in the evaluation at step 2", outcome.stderr, outcome.told)

    def test_a_slow_worker_changes_no_bits(self) -> None:
        alone, model_dir = self.folder / "alone", self.folder / "model"
        self.train_alone(alone)
        flags = (workers.AS_MANY_REPLICAS, f"--max_train_steps={harness.STEPS}")
        processes = self.start_workers(model_dir, 3, *flags)
        slow = processes[1]
        while processes[0].poll() is None:
            slow.send_signal(signal.SIGSTOP)
            time.sleep(0.15)
            slow.send_signal(signal.SIGCONT)
            time.sleep(0.05)
        for process in processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)
        self.assert_same_checkpoint(model_dir, alone)
        self.assert_same_metrics(model_dir, alone)

    def test_a_worker_reads_its_own_records_and_nothing_in_the_directory(self) -> None:
        size = write_photographs(self.data_dir)
        model_dir, trace = self.folder / "model", self.folder / "trace"
        flags = ("--dataset_name=imagenet", "--resnet_size=18", "--batch_size=8", "--train_epochs=1")
        command = [str(self.binaries["resnet"]), f"--data_dir={self.data_dir}", f"--model_dir={model_dir}", *flags]
        calls = "trace=%file,read,pread64,readv,preadv,preadv2,mmap"
        tracer = ["strace", "-f", "-qq", "-y", "-s", "0", "-e", calls, "-o", str(trace)]
        processes = [
            self.start(prefix + command, env={**os.environ, "TF_CONFIG": config})
            for prefix, config in zip(([], tracer), tf_configs(2))
        ]
        for process in processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, f"strace must be installed and permitted here\n{outcome.told}")
        text = trace.read_text()
        self.assertNotIn(str(model_dir), text)
        records = f"{self.data_dir}/train-00000-of-00001"
        self.assertNotIn("mmap", "".join(line for line in text.splitlines() if records in line))
        read = bytes_read(text, records)
        self.assertGreater(read, 0.4 * size, "the trace shows no reading")
        self.assertLess(read, 0.6 * size)

    def test_what_workers_cannot_do_is_refused_everywhere(self) -> None:
        for flags, words in (
            (("--collective_communication=nccl",), "--collective_communication=nccl sums between GPUs, and this run"),
            (("--all_reduce_alg=hierarchical_copy",), "--all_reduce_alg=hierarchical_copy is not for several workers"),
        ):
            with self.subTest(flags):
                for process in self.start_workers(self.folder / "refused", 2, "--max_train_steps=1", *flags):
                    outcome = self.finish(process)
                    self.assertEqual(outcome.code, 2, outcome.told)
                    self.assertIn(words, outcome.stderr)

    def test_a_chief_without_a_directory_ends_the_run(self) -> None:
        chief, worker = (self.finish(p) for p in self.start_workers(Path("/dev/null/none"), 2, "--max_train_steps=1"))
        self.assertNotIn(chief.code, (0, 138), chief.told)
        self.assertIn("/dev/null/none", chief.stderr)
        self.assertEqual(worker.code, 138, worker.told)
        self.assertRegex(worker.stderr, r"worker 0 at 127\.0\.0\.1:\d+ has failed: ")
        self.assertIn("/dev/null/none", worker.stderr)

    @harness.of("ncf")
    def test_a_chief_without_the_ratings_of_its_training_ends_the_run(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, 1)
        processes = self.start_workers(model_dir, 2, "--max_train_steps=2", flags_of={0: ("--ratings_file=",)})
        chief, worker = (self.finish(process) for process in processes)
        self.assertEqual(chief.code, 2, chief.told)
        self.assertIn(f"was trained with --ratings_file={self.data_dir}/ratings.csv; give that flag", chief.stderr)
        self.assertEqual(worker.code, 138, worker.told)
        self.assertRegex(worker.stderr, r"worker 0 at 127\.0\.0\.1:\d+ has failed: ")

    @harness.of("ncf")
    def test_the_training_in_the_directory_of_another_worker_does_not_matter(self) -> None:
        other, data_dir = self.folder / "other", self.folder / "movielens"
        self.train(other, 1)
        # As many as MovieLens 100K has.
        ratings = (f"{1 + i // 100}\t{1 + i // 100 * 7 % 1000 + i % 100}\t4\t{978300000 + i}\n" for i in range(100000))
        data_dir.mkdir()
        (data_dir / "u.data").write_text("".join(ratings))
        flags = ("--ratings_file=", "--dataset=ml-100k", f"--data_dir={data_dir}", "--num_eval_negatives=20")
        of_other = {1: (f"--model_dir={other}",)}
        for process in self.start_workers(self.folder / "model", 2, "--max_train_steps=1", *flags, flags_of=of_other):
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)


if __name__ == "__main__":
    harness.main()
