"""What tools/tpu_compile answers to models, compilers and flags that are wrong. Usage: MODULE TPU_COMPILE_MAIN"""

import unittest

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments

(PROGRAM,) = programs_of_arguments(1)


class TpuCompileTest(ProgramTestCase):
    def test_flags(self) -> None:
        for flags, told in (
            ((), "flag --libtpu is required: "),
            (("--libtp=x",), "unknown flag --libtp; did you mean --libtpu?"),
            (("--libtpu=x", "--chips=0"), "flag --chips=0: needs an integer, at least 1"),
            (("--libtpu=x", "--dtype=fp16"), "flag --dtype=fp16: needs one of <fp32|bf16>"),
            (("--libtpu=x", "--batch=-1"), "flag --batch=-1: needs an integer, at least 0"),
        ):
            with self.subTest(flags):
                self.assert_refused(self.execute(PROGRAM, *flags), 2, f"FATAL Flags parsing error: {told}")

    def test_models_and_compilers(self) -> None:
        text = self.write("text.so", "no shared object")
        for words, code, told in (
            (("--libtpu=x", "mnist", "lenet"), 2, "there is no model lenet; the models are mnist, resnet-32-v1, "),
            ((f"--libtpu={self.folder / 'none.so'}",), 66, f"there is no PJRT plugin {self.folder / 'none.so'}"),
            ((f"--libtpu={text}", "mnist"), 2, f"{text} is not a PJRT plugin: it is no shared object"),
        ):
            with self.subTest(words):
                done = self.execute(PROGRAM, *words)
                self.assert_refused(done, code, f"tpu_compile: {told}")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
