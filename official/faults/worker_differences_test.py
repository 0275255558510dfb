"""Workers that differ in what changes numbers, and so cannot train together, all say in what, with both values, and
exit with 2."""

import os
import re
import shutil
from pathlib import Path

from official.faults import harness, workers
from official.faults.programs import PROGRAMS

WORKERS = 3
FLAGS = (workers.AS_MANY_REPLICAS, "--max_train_steps=2")  # of all workers
LIBRARY = "utils/distribute/grpc/libofficial_cluster.so"
# Of the programs whose evaluations read files of their own.
EVALUATION_FILES = {
    "mnist": "t10k-*",
    "resnet": "cifar-10-batches-bin/test_batch.bin",
    "transformer": "wmt32k-dev-*",
}
SAME = "start all workers with the same program and flags"


class WorkerDifferencesTest(workers.WorkersCase):
    def assert_refused_everywhere(self, *words: str, **differences) -> None:
        """A run whose workers differ so (see outcomes) ends on all of them with a line that has these words."""
        for outcome in self.outcomes(**differences):
            self.assert_refused(outcome, 2, *words)
        self.assertEqual(list(self.folder.glob("model/*ckpt*")), [])

    def outcomes(
        self, flags_of: dict | None = None, prefix_of: dict | None = None, commands_of: dict | None = None
    ) -> list[harness.Outcome]:
        """How workers end of which some, by number, have further flags, something before their command, or another
        command."""
        flags_of, prefix_of, commands_of = flags_of or {}, prefix_of or {}, commands_of or {}
        processes = []
        for i, config in enumerate(workers.tf_configs(WORKERS)):
            if i in commands_of:
                processes.append(self.start(commands_of[i], env={**os.environ, "TF_CONFIG": config}))
                continue
            flags = (*FLAGS, *flags_of.get(i, ()))
            processes.append(self.start_worker(self.folder / "model", i, config, *flags, prefix=prefix_of.get(i, ())))
        return [self.finish(process) for process in processes]

    def test_no_difference(self) -> None:
        for outcome in self.outcomes():
            self.assertEqual(outcome.code, 0, outcome.told)

    def test_checkpoints_that_one_worker_keeps(self) -> None:
        alone = self.folder / "alone"
        self.train_alone(alone, steps=2)
        for worker in (0, 1):
            with self.subTest(worker=worker):
                for outcome in self.outcomes(flags_of={worker: ("--keep_best=loss:min:1",)}):
                    self.assertEqual(outcome.code, 0, outcome.told)
                model_dir = self.folder / "model"
                self.assert_same_checkpoint(model_dir, alone, step=2)
                self.assertEqual(harness.latest_step(model_dir / "best"), 2 if worker == 0 else 0)  # the chief's
                shutil.rmtree(model_dir)

    def test_a_flag(self) -> None:
        self.assert_refused_everywhere(
            f"worker 2 has flag --learning_rate 0.5, but worker 0 has 0.0001; {SAME}",
            flags_of={2: ("--learning_rate=0.5",)},
        )
        self.assert_refused_everywhere(
            f"worker 1 has flag --dtype fp32, but worker 0 has bf16; {SAME}", flags_of={0: ("--dtype=bf16",)}
        )
        self.assert_refused_everywhere(
            f"worker 1 has flag --learning_rate 0.02, but worker 0 has 0.01; {SAME}",
            flags_of={i: (f"--learning_rate=0.0{i + 1}",) for i in range(WORKERS)},
        )

        self.assert_refused_everywhere(
            f"worker 1 has flag --stop_threshold 0.9, but worker 0 has none; {SAME}",
            flags_of={1: ("--stop_threshold=0.9",)},
        )

    def test_the_number_of_replicas(self) -> None:
        self.assert_refused_everywhere(
            f"worker 1 has number of replicas 8, but worker 0 has 4; {SAME}", flags_of={1: ("--num_replicas=8",)}
        )

    def test_the_program(self) -> None:
        images = self.folder / "cifar10"
        self.program = PROGRAMS["resnet"]
        self.write_data(images)
        other = self.command("/dev/null/none", "--batch_size=8", workers.AS_MANY_REPLICAS, data_dir=images)
        self.program = PROGRAMS["mnist"]
        self.assert_refused_everywhere(
            f"worker 1 has program resnet_main, but worker 0 has mnist_main; {SAME}", commands_of={1: other}
        )

    @harness.of_every_program
    def test_the_data(self) -> None:
        difference = re.compile(
            r"worker 2 at \S+ has the data set (.*) \(training on (\d+) examples, (.*)\), "
            r"but worker 0 has \1 \(training on (\d+) examples, (.*)\); give all workers the same data"
        )
        for changes in ({"seed": 2}, {"times": 2}):
            with self.subTest(changes):
                other = self.folder / f"other {changes}"
                self.write_data(other, **changes)
                read_other, *_ = self.program.data_flags(other)
                outcomes = self.outcomes(flags_of={2: (read_other,)})
                for outcome in outcomes:
                    self.assertEqual(outcome.code, 2, outcome.told)
                    self.assertRegex(outcome.error, difference, outcome.told)
                _, count2, content2, count0, content0 = difference.search(outcomes[0].error).groups()
                self.assertNotEqual(content2, content0)
                self.assertEqual(count2 != count0, "times" in changes, outcomes[0].told)
        self.assertEqual(list(self.folder.glob("model/*ckpt*")), [])

    def test_the_data_of_evaluations(self) -> None:
        for name, files in EVALUATION_FILES.items():
            with self.subTest(name):
                self.program = PROGRAMS[name]
                self.data_dir = self.folder / name
                self.write_data(self.data_dir)
                other, second = self.folder / f"{name} other", self.folder / f"{name} second"
                shutil.copytree(self.data_dir, other)
                self.write_data(second, seed=2)
                for path in second.glob(files):
                    shutil.copy(path, other / path.relative_to(second))
                read_other, *_ = self.program.data_flags(other)
                words = ("worker 2 at ", " has the data set ", "evaluating on ", "; give all workers the same data")
                self.assert_refused_everywhere(*words, flags_of={2: (read_other,)})
                alone = self.folder / f"{name} model"
                self.train(alone, 1)
                (alone / "flags.txt").unlink()  # the chief alone would read it and have other flags
                flags = {i: ("--eval_only", f"--model_dir={alone}") for i in range(WORKERS)}
                for outcome in self.outcomes(flags_of=flags):
                    self.assertEqual(outcome.code, 0, outcome.told)
                self.assert_refused_everywhere(*words, flags_of={**flags, 2: (*flags[2], read_other)})

    @harness.of("resnet")
    def test_the_number_of_classes(self) -> None:
        labels = self.folder / "labels.txt"
        labels.write_text("background\ncat\ndog\n")
        flags = ("--use_synthetic_data", "--dataset_name=imagenet", "--resnet_size=18")
        named = (*flags, f"--label_file={labels}")
        self.assert_refused_everywhere(
            "worker 2 at ",
            "; 1001 classes), but worker 0 has ",
            "; 3 classes); give all workers the same data",
            flags_of={0: named, 1: named, 2: flags},
        )

    @harness.of("transformer")
    def test_the_texts_of_bleu(self) -> None:
        texts = {"vocab": "'<pad>'\n'<EOS>'\n'a_'\n", "one": "a\n", "two": "a a\n"}
        for name, text in texts.items():
            (self.folder / name).write_text(text)
        flags = (f"--bleu_source={self.folder}/one", f"--vocab_file={self.folder}/vocab")
        self.assert_refused_everywhere(
            "worker 1 at ",
            "BLEU of 1 lines, digest ",
            "; give all workers the same data",
            flags_of={i: (*flags, f"--bleu_ref={self.folder}/{'two' if i == 1 else 'one'}") for i in range(WORKERS)},
        )

    # ---- Other builds and machines ----

    def patched(self, old: str, new: str) -> list[str]:
        """The command of a copy of the program that has another text, of the same length, in place of this one."""
        folder, binary = self.folder / "patched", self.binaries[self.program.name]
        folder.mkdir()
        shutil.copy(binary.parents[2] / LIBRARY, folder)
        before = binary.read_bytes()
        after = before.replace(f"{old}\0".encode(), f"{new}\0".encode())
        self.assertNotEqual(before, after, "there is no such text")
        program = folder / binary.name
        program.write_bytes(after)
        program.chmod(0o755)
        return [str(program), *self.command("/dev/null/none", "--batch_size=8", *FLAGS)[1:]]

    def test_the_build(self) -> None:
        # Programs that tests build do not know their commit.
        other = self.patched("unknown", "c0ffee0")
        self.assertIn("commit c0ffee0, ", self.execute([other[0], "--version"]).stdout)
        self.assert_refused_everywhere(
            "worker 1 has program version ",
            " of commit c0ffee0, but worker 0 has ",
            f" of commit unknown; {SAME}",
            commands_of={1: other},
        )

    def test_the_vector_instructions(self) -> None:
        if "avx512f" in Path("/proc/cpuinfo").read_text().split():
            here, other = "AVX-512", "AVX2"
            differences = {"prefix_of": {1: workers.with_environment({"OFFICIAL_MAX_ISA": "avx2"})}}
        else:
            # A program that gives what this processor has another name stands for another processor.
            here, other = "AVX2", "AVX0"
            differences = {"commands_of": {1: self.patched(here, other)}}
        self.assert_refused_everywhere(
            f"worker 1 has vector instructions {other} (OFFICIAL_MAX_ISA=avx2 makes all so), but worker 0 has {here} (",
            SAME,
            **differences,
        )


if __name__ == "__main__":
    harness.main()
