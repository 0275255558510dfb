"""mnist_main with a PJRT plugin, XLA for CPUs, one of whose functions does not return: the run ends and says which.

Usage: MODULE MNIST_MAIN PLUGIN HANGING_PLUGIN
"""

import os
import unittest
from pathlib import Path
from unittest import mock

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments
from third_party.pjrt.plugin_of_tests import plugin_of_tests

mnist_main, xla_cpu, hanging_plugin = programs_of_arguments(3)
plugin = plugin_of_tests(xla_cpu)
STEPS = 6
LIMIT = 10  # in which XLA for CPUs does what does not hang, also on a busy machine


class PjrtHangTest(ProgramTestCase):
    @classmethod
    def run_mnist(cls, used: Path, model_dir: str, *flags: object):
        return cls.execute(mnist_main, "--distribution_strategy=tpu", f"--pjrt_plugin={used}",
                           f"--model_dir={cls.folder / model_dir}", "--use_synthetic_data", "--batch_size=4",
                           f"--max_train_steps={STEPS}", "--save_checkpoints_steps=2", *flags)

    def hang(self, function: str, after: int, model_dir: str, what: str, flag: str) -> None:
        """A run in which `function` hangs after so many calls ends, and says `what` it has waited for."""
        settings = {"HANGING_PLUGIN_OF": str(plugin), "HANGING_CALL": function, "HANGING_AFTER": str(after)}
        with mock.patch.dict(os.environ, settings):
            done = self.run_mnist(hanging_plugin, model_dir, f"--{flag}={LIMIT}")
        message = (f"mnist_main: {what}: the PJRT plugin {hanging_plugin} has not done this within {LIMIT} s; "
                   f"--{flag} sets how long it may take")
        self.assert_refused(done, 1, message)

    def test_each_call(self) -> None:
        for function, after, what in (("GetPjrtApi", 0, "loading"),
                                      ("PJRT_Plugin_Initialize", 0, "initializing"),
                                      ("PJRT_Client_Create", 0, "looking for devices"),
                                      ("PJRT_Client_BufferFromHostBuffer", 0, "copying to a device"),
                                      ("PJRT_LoadedExecutable_Execute", 0, "running a program"),
                                      ("PJRT_Event_OnReady", 0, "copying to a device"),
                                      ("PJRT_Buffer_ToHostBuffer", 0, "copying from a device"),
                                      ("PJRT_Buffer_Destroy", 0, "freeing a buffer")):
            with self.subTest(function=function):
                self.hang(function, after, function, what, "all_reduce_timeout_secs")

    def test_compilation(self) -> None:
        self.hang("PJRT_Client_Compile", 0, "compilation", "compiling a program", "compile_timeout_secs")

    def test_a_run_goes_on_from_the_checkpoint_before(self) -> None:
        self.assert_succeeded(self.run_mnist(plugin, "whole"))
        self.hang("PJRT_LoadedExecutable_Execute", 5, "parts", "running a program", "all_reduce_timeout_secs")
        self.assertTrue((self.folder / "parts/model.ckpt-2.index").exists())
        self.assertFalse((self.folder / f"parts/model.ckpt-{STEPS}.index").exists())
        self.assert_succeeded(self.run_mnist(plugin, "parts"))
        name = f"model.ckpt-{STEPS}.data-00000-of-00001"
        self.assertEqual((self.folder / "whole" / name).read_bytes(), (self.folder / "parts" / name).read_bytes())


if __name__ == "__main__":
    unittest.main()
