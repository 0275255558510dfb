"""The programs as a user runs them, one after another, and what they say to bad flags and bad text.

Usage: MODULE PREPARE_DATA_MAIN TRANSFORMER_MAIN TRANSLATE_MAIN COMPUTE_BLEU_MAIN [unittest argument...]
"""

import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments
from official.transformer.programs.texts import FLAGS, write_texts

prepare_data, transformer, translate_main, compute_bleu = programs_of_arguments(4)


class ProgramsTest(ProgramTestCase):
    """All tests use one network that is hardly trained."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        write_texts(cls.folder, "train", 200, seed=1)
        write_texts(cls.folder, "val", 20, seed=2)
        cls.source, cls.reference = cls.folder / "val.en", cls.folder / "val.de"
        cls.vocab, cls.model_dir = cls.folder / "data" / "vocab.ende.200", cls.folder / "model"
        cls.prepared = cls.execute(
            prepare_data, f"--raw_dir={cls.folder}", f"--data_dir={cls.folder / 'data'}", "--vocab_size=200"
        )
        cls.trained = cls.execute(
            transformer, *cls.train_flags(), *cls.bleu_flags(), f"--model_dir={cls.model_dir}", "--train_steps=2",
            "--steps_between_evals=1",
        )  # fmt: skip

    @classmethod
    def train_flags(cls) -> tuple[str, ...]:
        return (f"--data_dir={cls.folder / 'data'}", *FLAGS, "--batch_size=512", "--output=json")

    @classmethod
    def bleu_flags(cls) -> tuple[str, ...]:
        return (f"--bleu_source={cls.source}", f"--bleu_ref={cls.reference}", f"--vocab_file={cls.vocab}")

    def translate(self, *flags: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return self.execute(
            translate_main, f"--model_dir={self.model_dir}", f"--vocab_file={self.vocab}", *FLAGS, *flags, stdin=stdin
        )

    def test_the_way_of_a_text(self) -> None:
        self.assert_succeeded(self.prepared)
        self.assert_succeeded(self.trained)
        results = self.trained.stdout.splitlines()
        self.assertEqual([json.loads(result)["event"] for result in results], ["evaluation", "evaluation", "end"])
        self.assertIn('"bleu_uncased": ', results[1])
        output = self.folder / "translation"
        flags = (f"--model_dir={self.model_dir}", f"--vocab_file={self.vocab}", f"--file={self.source}")
        self.assert_succeeded(self.execute(translate_main, *flags, f"--file_out={output}"))
        self.assertEqual(len(output.read_bytes().split(b"\n")), 21)
        done = self.execute(compute_bleu, f"--translation={self.reference}", f"--reference={self.reference}")
        self.assert_succeeded(done)
        self.assertEqual(done.stdout, "Case-insensitive results: 100.000000\nCase-sensitive results: 100.000000\n")

    def test_the_network_of_the_training(self) -> None:
        translate = (f"--vocab_file={self.vocab}", "--text=one two")
        model_dir = f"--model_dir={self.model_dir}"
        found = self.execute(translate_main, model_dir, *translate)
        self.assert_succeeded(found, f"as {self.model_dir} was trained: --param_set=tiny --params_override=vocab_size=200,")
        self.assertEqual(self.execute(translate_main, model_dir, *translate, *FLAGS).stdout, found.stdout)
        # Parameters of the search come on top.
        self.assert_succeeded(self.execute(translate_main, model_dir, *translate, "--params_override=beam_size=1"))
        for flags, words in (
            (["--param_set=base"], ["--param_set=tiny, but this command has --param_set=base", "add --param_set=tiny"]),
            (["--params_override=hidden_size=32"], ["hidden_size=16", "hidden_size=32", "add --params_override=vocab_size=200,"]),
        ):
            with self.subTest(flags):
                done = self.execute(translate_main, model_dir, *translate, *flags)
                self.assert_refused(done, 2, f"FATAL Flags parsing error: the network in {model_dir} was trained with", *words)
        data = (f"--data_dir={self.folder / 'data'}", "--batch_size=512", "--train_steps=2", "--steps_between_evals=1")
        words = ["was trained with --param_set=tiny and --params_override=vocab_size=200,", "add --param_set=tiny --params_override="]
        self.assert_refused(self.execute(transformer, *data, model_dir), 2, "FATAL", model_dir, *words)
        export = (f"--vocab_file={self.vocab}", f"--export_dir={self.folder / 'export'}")
        done = self.execute(transformer, *data, model_dir, *export, "--params_override=beam_size=2")
        # Of a run that may train, of the parameters only the network's.
        network = "filter_size=32,hidden_size=16,num_hidden_layers=1,vocab_size=200"
        self.assert_succeeded(done, f"was trained: --param_set=tiny --params_override={network}\n")
        # Without flags.txt it is as for a checkpoint of TensorFlow.
        copy = self.folder / "copy"
        shutil.copytree(self.model_dir, copy)
        (copy / "flags.txt").unlink()
        done = self.execute(translate_main, f"--model_dir={copy}", *translate, "--param_set=tiny")
        self.assert_refused(done, 2, "is not of --param_set=tiny", "vocab_size=200")

    def test_the_vocabulary_of_the_training(self) -> None:
        lines = self.vocab.read_bytes().splitlines(keepends=True)
        other = self.write("other", b"".join(lines[:2] + lines[:1:-1]))  # as many subtokens, other ids
        digest = f"{len(lines)} subtokens, digest "
        model_dir, told = f"--model_dir={self.model_dir}", f"the network in --model_dir={self.model_dir} was trained with"
        words = [told, f"a vocabulary of {digest}", f"{other} has {digest}", "--vocab_file"]
        self.assert_refused(self.execute(translate_main, model_dir, f"--vocab_file={other}", "--text=one"), 2, *words)
        done = self.execute(translate_main, model_dir, f"--vocab_file={self.vocab}", "--text=one")
        self.assert_succeeded(done)
        self.assertNotIn("cannot be checked", done.stderr)
        # The training itself: the vocabulary lies beside its data, and in the checkpoint.
        steps = ("--train_steps=2", "--steps_between_evals=1")
        beside = [f"--vocab_file={other}", "is not the vocabulary that the data were made with", f"={self.vocab}"]
        for flags in (["--train_steps=3"], [f"--export_dir={self.folder / 'of_other'}"]):
            flags = [*self.train_flags(), *steps, f"--vocab_file={other}", *flags]
            self.assert_refused(self.execute(transformer, model_dir, *flags), 2, *beside)
        changed = self.folder / "changed"
        shutil.copytree(self.folder / "data", changed)
        shutil.copy(other, changed / self.vocab.name)
        done = self.execute(transformer, *self.train_flags(), model_dir, f"--data_dir={changed}", *steps)
        self.assert_refused(done, 2, told, f"{changed / self.vocab.name} has {digest}")

    def test_results_as_json(self) -> None:
        """An object a line on standard output, with all that the text tells."""

        def results(done: subprocess.CompletedProcess[str]) -> list[dict]:
            self.assert_succeeded(done)
            return [json.loads(line) for line in done.stdout.splitlines()]

        data = self.folder / "data"
        flags = (f"--raw_dir={self.folder}", f"--data_dir={data}", "--vocab_size=200", "--output=json")
        (prepared,) = results(self.execute(prepare_data, *flags, "--log_format=json"))
        self.assertEqual(prepared["vocab_file"], str(self.vocab))
        self.assertEqual(prepared["eval_sentences"], 20)
        self.assertEqual(prepared["vocab_size"], len(self.vocab.read_text().splitlines()))

        short = f"{FLAGS[1]},extra_decode_length=3"
        done = self.translate("--text=one two", short, "--output=json", "--log_format=json")
        (translated,) = results(done)
        self.assertEqual(translated["source"], "one two")
        self.assertEqual(self.translate("--text=one two", short).stdout, translated["translation"] + "\n")
        for line in done.stderr.splitlines():
            self.assertIn("event", json.loads(line))
        text, output = self.write("three lines", b"one\n\ntwo\n"), self.folder / "three translations"
        translations = results(self.translate(f"--file={text}", short, "--output=json"))
        self.assertEqual([t["source"] for t in translations], ["one", "", "two"])
        written = results(self.translate(f"--file={text}", f"--file_out={output}", short, "--output=json"))
        self.assertEqual(written, [{"file_out": str(output), "lines": 3}])
        self.assertEqual(output.read_text().splitlines(), [t["translation"] for t in translations])

        flags = (f"--translation={self.reference}", f"--reference={self.reference}", "--output=json")
        self.assertEqual(results(self.execute(compute_bleu, *flags)), [{"bleu_uncased": 100.0, "bleu_cased": 100.0}])
        self.assertEqual(results(self.execute(compute_bleu, *flags, "-bv", "cased")), [{"bleu_cased": 100.0}])

    def test_shipped_flags(self) -> None:
        flags = ("--flagfile=official/transformer/configs/multi30k.flags", "--use_synthetic_data", "--max_train_steps=1")
        self.assert_succeeded(self.execute(transformer, *flags, f"--model_dir={self.folder / 'shipped'}"))

    def test_flags_of_training(self) -> None:
        source, ref, vocab = self.bleu_flags()
        for flags, words in (
            ([source], ["--bleu_source=", "needs --bleu_ref"]),
            ([ref], ["--bleu_ref=", "needs --bleu_source"]),
            ([source, ref], ["--bleu_source=", "needs --vocab_file"]),
            ([f"--export_dir={self.folder / 'export'}"], ["--export_dir=", "needs --vocab_file"]),
            (["--stop_threshold=20"], ["--stop_threshold=20", "needs --bleu_source, --bleu_ref and --vocab_file"]),
            (["-bt", "20", vocab], ["--bleu_threshold=20", "needs --bleu_source"]),
            ([source, ref, vocab, "-bt", "20", "-st", "20"], ["--bleu_threshold=20", "another name of --stop_threshold"]),
            (["--train_steps=10", "--train_epochs=2"], ["--train_steps=10", "cannot be combined with --train_epochs"]),
            (["--train_steps=10", "--steps_between_evals=20"], ["--train_steps=10", "--steps_between_evals=20"]),
            (["--param_set=huge"], ["--param_set=huge", "<tiny|base|big>"]),
            (["--params_override=hidden=8"], ["hidden", "hidden_size"]),
            (["--params_override=hidden_size=many"], ["hidden_size=many"]),
            (["--params_override=hidden_size=30,num_heads=4"], ["hidden_size", "num_heads"]),
            (["--batch_size=0"], ["--batch_size=0", "at least 1"]),
            (["--export_dir=x"], ["--export_dir=x", "needs --vocab_file"]),
            (["--grad_accum_steps=0"], ["--grad_accum_steps=0", "at least 1"]),
        ):
            with self.subTest(flags):
                model_dir = self.folder / "refused"
                done = self.execute(transformer, *self.train_flags(), f"--model_dir={model_dir}", *flags)
                self.assert_refused(done, 2, "FATAL Flags parsing error: ", *words)
                self.assertFalse(model_dir.exists())

    def test_default_batch_size(self) -> None:
        data, *flags = self.train_flags()[:-2]
        *_, override = flags
        for more, size in (((), 1024), ((f"{override},default_batch_size=640",), 640)):
            with self.subTest(size):
                model_dir = self.folder / f"batch size {size}"
                steps = ("--train_steps=1", "--steps_between_evals=1", f"--model_dir={model_dir}")
                done = self.execute(transformer, data, *flags, *more, *steps)
                self.assert_succeeded(done, f"batch {size} (")

    def test_data_of_training(self) -> None:
        two_lines, nowhere = self.write("two_lines", b"a\nb\n"), self.folder / "nowhere"
        headless = self.write("headless", b"'the_'\n'a_'\n")
        bleu = self.bleu_flags()
        for code, flags, words in (
            (2, ["--batch_size=100"], ["100", "256"]),
            (2, ["--params_override=vocab_size=10"], ["ids up to", "but vocab_size is 10"]),
            (2, ["--params_override=vocab_size=10", *bleu], [f"--vocab_file={self.vocab}", "but vocab_size is 10"]),
            (65, [*bleu, f"--bleu_ref={two_lines}"], [f"--bleu_source={self.source} has 20", f"={two_lines} has 2,"]),
            (66, [*bleu, f"--bleu_source={nowhere}"], [nowhere]),
            (66, [*bleu, f"--bleu_ref={nowhere}"], [nowhere]),
            (66, [*bleu, f"--vocab_file={nowhere}"], [nowhere]),
            (65, [f"--vocab_file={headless}"], [f"{headless}:1: found 'the_', expected '<pad>'"]),
            (73, [bleu[2], f"--export_dir={two_lines}/export"], [f"--export_dir={two_lines}/export: cannot write in {two_lines}"]),
            (66, [f"--data_dir={self.folder}"], [self.folder, "train"]),
        ):
            with self.subTest(flags):
                model_dir = Path(tempfile.mkdtemp(dir=self.folder))
                done = self.execute(transformer, *self.train_flags(), f"--model_dir={model_dir}", *flags)
                self.assert_refused(done, code, "transformer_main: ", *words)
                self.assertFalse((model_dir / "checkpoint").exists())

    def test_flags_of_translation(self) -> None:
        a, nowhere = self.write("a", b"one\n"), self.folder / "nowhere"
        larger = self.write("larger", b"'<pad>'\n'<EOS>'\n" + b"".join(b"'%d_'\n" % i for i in range(300)))
        headless = self.write("headless", b"'the_'\n'a_'\n")
        for code, flags, words in (
            (2, ["--vocab_file="], ["FATAL", "--vocab_file"]),
            (2, ["--file_out=x"], ["FATAL", "--file_out=x", "--file"]),
            (2, ["--param_set=huge"], ["FATAL", "--param_set=huge"]),
            (2, ["--batch_size=0"], ["FATAL", "--batch_size=0"]),
            (2, ["--num_gpus=2"], ["FATAL", "--num_gpus=2", "one device"]),
            (73, [f"--file={a}", f"--file_out={self.folder}"], [f"--file_out={self.folder}: ", "it is a directory"]),
            (73, [f"--file={a}", f"--file_out={self.folder}/none/b"], [f"there is no directory {self.folder}/none; make"]),
            (2, [f"--vocab_file={larger}"], [f"--vocab_file={larger}", "302 subtokens"]),
            (65, [f"--vocab_file={headless}"], [f"{headless}:1: found 'the_', expected '<pad>'"]),
            (65, [f"--vocab_file={self.write('twice', b'_twice_' * 2)}"], [self.folder / "twice"]),
            (66, [f"--vocab_file={nowhere}"], [nowhere]),
            (66, [f"--model_dir={nowhere}"], ["there is no checkpoint in", nowhere]),
            (66, [f"--file={nowhere}"], [nowhere]),
            (65, [f"--file={self.write('invalid', b'one' + bytes([10, 255]))}"], [self.folder / "invalid", "line 2", "UTF-8"]),
        ):
            with self.subTest(flags):
                self.assert_refused(self.translate(*flags), code, *words)

    def test_odd_lines_to_translate(self) -> None:
        lines = [b"one\r", b"", b"two\0three", b"  four \t", "zwölf ☃".encode()]
        flags = (f"{FLAGS[1]},extra_decode_length=3", "--batch_size=4")
        done = self.translate(f"--file={self.write('odd', chr(10).encode().join(lines))}", *flags)
        self.assert_succeeded(done)
        translations = done.stdout.split("\n")
        self.assertEqual(len(translations), len(lines) + 1)  # the last is behind the last newline
        self.assertEqual(translations[1], "")
        plain = self.translate(*flags, stdin="one\nfour")
        self.assert_succeeded(plain)
        self.assertEqual(plain.stdout.split("\n")[0], translations[0])

    def test_bleu(self) -> None:
        def bleu(translation: Path, reference: Path, *flags: str) -> subprocess.CompletedProcess[str]:
            return self.execute(compute_bleu, f"--translation={translation}", f"--reference={reference}", *flags)

        odd = "one two, three four\0five\r\n\r\nsix ☃ seven".encode()
        same = odd.replace(b"\r\n", b"\n") + b"\n"
        done = bleu(self.write("odd text", odd), self.write("same text", same), "-bv", "CASED")
        self.assert_succeeded(done)
        self.assertEqual(done.stdout, "Case-sensitive results: 100.000000\n")
        nowhere, invalid = self.folder / "nowhere", self.write("invalid text", b"one\n\xc3(\n")
        for code, flags, words in (
            (2, (self.source, self.reference, "--bleu_variant=none"), ["FATAL", "--bleu_variant=none"]),
            (2, (self.source, self.reference, "--tokenize=14"), ["FATAL", "--tokenize=14"]),
            (2, (self.source, ""), ["FATAL", "--reference"]),
            (65, (self.source, self.write("two", b"a\nb\n")), [self.folder / "two", "has 2 lines", self.source, "has 20"]),
            (65, (invalid, self.reference), [f"{invalid}:2: byte 0xc3"]),
            (65, (self.write("no text", b"\n"), self.reference), ["no text has no sentences"]),
            (66, (nowhere, self.reference), [nowhere]),
            (66, (self.source, nowhere), [nowhere]),
        ):
            with self.subTest(flags):
                self.assert_refused(bleu(*flags), code, *words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
