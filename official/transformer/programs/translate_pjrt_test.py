"""translate_main on the device of a PJRT plugin, XLA for CPUs: its translations are those of the CPU.

Usage: MODULE PREPARE_DATA_MAIN TRANSFORMER_MAIN TRANSLATE_MAIN PLUGIN
"""

import unittest

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments
from official.transformer.programs.texts import FLAGS, write_texts
from third_party.pjrt.plugin_of_tests import plugin_of_tests

prepare_data, transformer, translate_main, xla_cpu = programs_of_arguments(4)
TPU = ("--distribution_strategy=tpu", f"--pjrt_plugin={plugin_of_tests(xla_cpu)}")


class PjrtTest(ProgramTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        write_texts(cls.folder, "train", 200, seed=1)
        write_texts(cls.folder, "val", 20, seed=2)
        data, cls.model_dir = cls.folder / "data", cls.folder / "model"
        cls.vocab = data / "vocab.ende.200"
        prepared = cls.execute(prepare_data, f"--raw_dir={cls.folder}", f"--data_dir={data}", "--vocab_size=200")
        # Until it translates word by word.
        network = (FLAGS[0], f"{FLAGS[1]},learning_rate_warmup_steps=50")
        steps = ("--train_steps=400", "--steps_between_evals=400", "--batch_size=512")
        trained = cls.execute(transformer, f"--data_dir={data}", f"--model_dir={cls.model_dir}", *network, *steps)
        for done in (prepared, trained):
            if done.returncode != 0:
                raise AssertionError(f"{done.args}\n{done.stderr}")

    def translate(self, *flags: object, stdin: str = ""):
        # Each length of a translation is a program, which the plugin compiles.
        where = (f"--model_dir={self.model_dir}", f"--vocab_file={self.vocab}", "--params_override=extra_decode_length=3")
        return self.execute(translate_main, *where, *flags, stdin=stdin)

    def test_translations_are_those_of_the_cpu(self) -> None:
        text = self.write("text", b"one two three\nfour\n\nfive six one\nten nine\n")
        on_cpu = self.translate(f"--file={text}", "--num_gpus=0")
        self.assert_succeeded(on_cpu)
        self.assertIn("vier\n\n", on_cpu.stdout)
        on_plugin = self.translate(f"--file={text}", *TPU)
        self.assert_succeeded(on_plugin, "by a PJRT plugin")
        self.assertEqual(on_plugin.stdout, on_cpu.stdout)

    def test_what_does_not_go_together_is_refused(self) -> None:
        missing = self.folder / "missing.so"
        for flags, words in (
            ([TPU[1]], ["FATAL", "--pjrt_plugin", "is for --distribution_strategy=tpu"]),
            ([*TPU, "--num_gpus=1"], ["FATAL", "--num_gpus=1", "is not for --distribution_strategy=tpu"]),
            (["--distribution_strategy=mirrored"], ["FATAL", "--distribution_strategy=mirrored", "<default|tpu>"]),
            ([TPU[0], f"--pjrt_plugin={missing}"], ["translate_main: --distribution_strategy=tpu: ", missing]),
        ):
            with self.subTest(flags):
                self.assert_refused(self.translate("--text=one", *flags), 2, *words)


if __name__ == "__main__":
    unittest.main()
