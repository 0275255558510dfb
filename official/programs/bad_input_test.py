"""What every program answers to flags and words that are wrong, and those that make files to input that is.

Usage: MODULE PROGRAM...
"""

import gzip
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from official.programs.program_test_case import ProgramTestCase, png, programs_of_arguments

PROGRAMS = {path.name: path for path in programs_of_arguments(len(sys.argv) - 1)}

# Without these flags a program says that they are required.
REQUIRED = {
    "translate_main": ("--vocab_file=v",),
    "compute_bleu_main": ("--translation=a", "--reference=b"),
    "imagenet_to_tfrecords_main": ("--images_dir=i", "--output_dir=o"),
    "decode_benchmark_main": ("--lengths=8",),
    "serve_main": ("--model_dir=r",),
}


class FlagsTest(ProgramTestCase):
    def assert_flags_refused(self, name: str, flags: tuple[str, ...], *words: str) -> str:
        """With one line that has the words, and one that names the help; returns the first."""
        done = self.execute(PROGRAMS[name], *flags)
        self.assertEqual((done.returncode, done.stdout), (2, ""), f"{done.args}\n{done.stderr}")
        error, hint = done.stderr.splitlines()
        self.assertTrue(error.startswith("FATAL Flags parsing error: "), error)
        for word in words:
            self.assertIn(word, error)
        self.assertEqual(hint, f"Try {name} --help for the common flags, --helpfull for all.")
        return error

    def test_unknown_flags(self) -> None:
        for name in PROGRAMS:
            with self.subTest(name):
                self.assert_flags_refused(
                    name, ("--dump_confg",), "unknown flag --dump_confg; did you mean --dump_config?"
                )
                error = self.assert_flags_refused(name, ("--qqqqqqqqqq=1",), "unknown flag --qqqqqqqqqq")
                self.assertNotIn("did you mean", error)

    def test_file_without_a_name(self) -> None:
        # It would translate standard input.
        self.assert_flags_refused("translate_main", ("--vocab_file=v", "--file="), "flag --file: names no file; ")

    def test_prediction_without_a_file(self) -> None:
        # It would train.
        config = self.write("dumped.flags", "--predict=\n")
        for name in ("mnist_main", "resnet_main"):
            with self.subTest(name):
                told = "flag --predict: names no file; "
                self.assert_flags_refused(name, ("--predict=",), told)
                self.assert_flags_refused(name, ("--predict=", "seven.png"), told)
                self.assert_flags_refused(name, (f"--flagfile={config}", "seven.png"), "'seven.png' is not a flag; ")
                done = self.execute(PROGRAMS[name], f"--flagfile={config}", "--dump_config")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_words_that_were_meant_as_flags(self) -> None:
        for name in ("mnist_main", "resnet_main", "ncf_main"):
            with self.subTest(name):
                told = "a boolean takes its value after =, as in --clean=True"
                self.assert_flags_refused(name, ("--clean", "True"), told)
                self.assert_flags_refused(name, ("\u2014batch_size=3",), "write --batch_size=3")

    def test_numbers_of_a_schedule(self) -> None:
        for flag in ("--lr_boundary_epochs=nan", "--lr_boundary_epochs=5,inf", "--lr_factors=1,inf", "--lr_factors=a"):
            self.assert_flags_refused(
                "resnet_main", (flag,), f"flag {flag}: needs a comma-separated list of finite numbers"
            )

    def test_surplus_words(self) -> None:
        taken = {
            "checkpoint_tool": (("ls", "a", "b"), "write: checkpoint_tool ls PATH; here are 2 words: a b"),
            "data_check": (("none",), "none"),
            "download_mnist_main": (("a", "b"), "write: download_mnist_main [DIRECTORY]; here are 2 words: a b"),
            "download_cifar10_main": (
                ("a", "b", "c"), "write: download_cifar10_main [DIRECTORY [ARCHIVE]]; here are 3 words: a b c"
            ),
            "download_movielens_main": (("a", "b"), "write: download_movielens_main [DIRECTORY]; here are 2 words: a b"),
            "generate_ratings_main": (
                ("ml-1m", "a", "b"), "write: generate_ratings_main <ml-1m|ml-20m> FILE; here are 3 words: ml-1m a b"
            ),
            "report_main": (("none",), "there is no directory none; name the --model_dir of a run"),
        }  # fmt: skip
        for name in PROGRAMS:
            with self.subTest(name):
                if name not in taken:
                    error = self.assert_flags_refused(name, (*REQUIRED.get(name, ()), "surplus"), "'surplus'")
                    self.assertRegex(error, "does not belong to a flag; flags begin with|use --predict=FILE")
                    continue
                words, told = taken[name]
                is_path = words == ("none",)  # any number of words, all of them paths
                self.assert_refused(self.execute(PROGRAMS[name], *words), 66 if is_path else 2, f"{name}: ", told)
        self.assertEqual(taken.keys() - PROGRAMS.keys(), set())

    def test_bad_values(self) -> None:
        """Of every flag whose values are not just any text."""
        for name, program in PROGRAMS.items():
            with self.subTest(name):
                full = self.execute(program, "--helpfull").stdout
                flags = re.findall(r"^  (?:-\S+ )?--(?:\[no\])?(\w+)\n((?:      .*\n)+)", full, re.M)
                checked = 0
                for flag, text in flags:
                    values = re.search(r"\((an? [a-z-]+|one of)[^()]*; default: ", text.replace("\n      ", " "))
                    if values is None or values[1] in ("a string", "a comma-separated"):
                        continue
                    checked += 1
                    given = f"--{flag}=no such value"
                    self.assert_flags_refused(name, (*REQUIRED.get(name, ()), given), f"flag {given}: needs ")
                self.assertGreater(checked, 0, flags)


class FilesTest(ProgramTestCase):
    """Of programs that download or make files: one line, and nothing that is left half-written."""

    def setUp(self) -> None:
        # In the way of every folder and file that is to be made below it.
        self.blocked = self.write("file", "") / "below"
        self.usb = self.folder / "usb"
        self.usb.mkdir()
        self.output = self.folder / "output"
        self.addCleanup(shutil.rmtree, self.usb)
        self.addCleanup(shutil.rmtree, self.output, ignore_errors=True)

    def assert_nothing_made(self, name: str, code: int, flags: tuple[object, ...], *words: object) -> None:
        with self.subTest(f"{name} {flags}"):
            done = self.execute(PROGRAMS[name], *flags)
            self.assert_refused(done, code, *words)
            # Beside what the program does, there is the error alone.
            errors = [line for line in done.stderr.splitlines() if line.startswith((f"{name}: ", "FATAL "))]
            self.assertEqual(len(errors), 1, done.stderr)
            left = [path for path in self.output.rglob("*") if path.is_file()] if self.output.exists() else []
            self.assertEqual(left, [])

    def assert_copies_checked(self, name: str, archive: str, flags: tuple[object, ...] = ()) -> None:
        """Of --from_dir: without the archive, with another file of its name, and where nothing can be written."""
        copy = self.usb / archive
        from_dir = (*flags, f"--from_dir={self.usb}")
        self.assert_nothing_made(name, 66, from_dir, copy, "it should be a copy of http")
        copy.write_bytes(gzip.compress(b"not what is published"))
        self.assert_nothing_made(name, 65, from_dir, f"{copy} is not ", "publish", "expected ")
        copy.unlink()

    def test_download_mnist(self) -> None:
        name = "download_mnist_main"
        self.assert_copies_checked(name, "train-images-idx3-ubyte.gz", (self.output,))
        self.assert_copies_checked(name, "train-images-idx3-ubyte.gz", (f"--data_dir={self.output}",))
        self.assert_nothing_made(name, 73, (self.blocked, f"--from_dir={self.usb}"), self.blocked, "Not a directory")
        both = (self.output, "--data_dir=other")
        told = f"flag --data_dir=other: cannot be combined with the directory {self.output}; leave out one of them"
        self.assert_nothing_made(name, 2, both, told)

    def test_download_cifar10(self) -> None:
        name, archive = "download_cifar10_main", "cifar-10-binary.tar.gz"
        self.assert_copies_checked(name, archive, (self.output,))
        copy = self.write("copy.tar.gz", "not an archive")
        self.assert_nothing_made(name, 65, (self.output, copy), f"{copy} is not the published {archive}: its SHA-256 is ")
        self.assert_nothing_made(name, 66, (self.output, self.folder / "none"), "none", "it should be a copy of http")
        both = (self.output, copy, f"--from_dir={self.usb}")
        self.assert_nothing_made(name, 2, both, f"flag --from_dir={self.usb}: cannot be combined with the archive {copy}")

    def test_download_movielens(self) -> None:
        name = "download_movielens_main"
        self.assert_copies_checked(name, "ml-1m.zip", (self.output,))
        self.assert_copies_checked(name, "ml-20m.zip", (f"--data_dir={self.output}", "--dataset=ml-20m"))
        self.assert_nothing_made(name, 73, (self.blocked, f"--from_dir={self.usb}"), self.blocked, "Not a directory")

    def test_generate_ratings(self) -> None:
        name = "generate_ratings_main"
        for words in (), ("ml-1m",):
            self.assert_nothing_made(name, 2, words, f"write: {name} <ml-1m|ml-20m> FILE; here ")
        self.assert_nothing_made(name, 2, ("ml-5m", self.output), "there is no dataset \"ml-5m\"", "ml-100k|ml-1m|ml-20m")
        # It is known before ratings are made.
        self.assert_nothing_made(name, 73, ("ml-20m", self.blocked), self.blocked.parent, "Not a directory")
        self.assert_nothing_made(name, 73, ("ml-20m", self.usb), self.usb, "not a regular file")
        missing = self.folder / "none"
        told = f"there is no directory {missing}; make it first"
        self.assert_nothing_made(name, 73, ("ml-20m", missing / "file"), f"cannot write {missing / 'file'}: {told}")

    def test_prepare_data(self) -> None:
        name = "prepare_data_main"
        to_output = f"--data_dir={self.output}"
        self.assert_nothing_made(name, 2, (to_output, f"--from_dir={self.usb}"), "flag --from_dir=", "needs --download")
        raw = (f"--raw_dir={self.usb}", to_output)
        self.assert_nothing_made(name, 66, raw, f"there is no file {self.usb / 'train.en'}", "--raw_dir")
        copies = ("--download", f"--raw_dir={self.output}", to_output)
        self.assert_copies_checked(name, "training-parallel-nc-v12.tgz", copies)
        for file, lines in ("train.en", 2), ("train.de", 1), ("val.en", 1), ("val.de", 1):
            (self.usb / file).write_text("a b c\n" * lines)
        told = f"{self.usb / 'train.en'} has 2 lines, its translation {self.usb / 'train.de'} has 1"
        self.assert_nothing_made(name, 65, raw, told)
        (self.usb / "train.de").write_text("a b c\n" * 2)
        self.assert_nothing_made(name, 73, (raw[0], f"--data_dir={self.blocked}"), self.blocked, "Not a directory")
        self.assert_nothing_made(name, 2, (*raw, "--train_source=a,b"), "found 2 files of sentences and 1 of their")

    def test_imagenet_to_tfrecords(self) -> None:
        name = "imagenet_to_tfrecords_main"

        def flags(*more: str) -> tuple[str, ...]:
            return f"--images_dir={self.usb}", f"--output_dir={self.output}", *more

        self.assert_nothing_made(name, 66, (f"--images_dir={self.folder / 'none'}", flags()[1]), self.folder / "none")
        self.assert_nothing_made(name, 66, flags(), f"{self.usb} holds no images: expected a folder for each class")
        (self.usb / "cat").mkdir()
        for number in range(8):
            (self.usb / "cat" / f"{number}.png").write_bytes(png(4, bytes(48)))
        self.assert_nothing_made(name, 2, flags("--num_shards=9"), "9 files; try --num_shards=8")
        self.assert_nothing_made(name, 73, (flags()[0], f"--output_dir={self.blocked}"), self.blocked, "Not a directory")
        bad = self.usb / "cat" / "bad.png"
        bad.write_bytes(png(4, bytes(48))[:-30])
        self.assert_nothing_made(name, 65, flags("--num_shards=4"), f"{bad}: the PNG image")
        bad.unlink()
        done = self.execute(PROGRAMS[name], *flags("--num_shards=4"))
        self.assert_succeeded(done)
        self.assert_refused(self.execute(PROGRAMS[name], *flags()), 73, f"{self.output} already holds train-00000-of-00004")


if __name__ == "__main__":
    unittest.main(verbosity=2)
