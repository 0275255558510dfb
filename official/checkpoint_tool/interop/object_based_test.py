"""checkpoint_tool and what tf.train.Checkpoint writes: variables have the names that they have in TensorFlow.

Usage: MODULE CHECKPOINT_TOOL [unittest argument...]
"""

import json
import unittest

import tensorflow as tf
from official.programs.program_test_case import ProgramTestCase, programs_of_arguments

(tool,) = programs_of_arguments(1)


class ObjectBasedTest(ProgramTestCase):
    def test_variables_and_slots_have_the_names_of_the_program(self) -> None:
        kernel = tf.Variable(tf.random.normal((4, 3), seed=1), name="dense/kernel")
        twins = [tf.Variable(float(i), name="twin") for i in range(2)]
        step = tf.Variable(7, dtype=tf.int64, name="global_step")
        checkpoint = tf.train.Checkpoint(layer=tf.train.Checkpoint(weights=kernel), twins=twins, step=step)
        prefix = checkpoint.write(str(self.folder / "objects"))
        names = {"dense/kernel": kernel, "twins/0": twins[0], "twins/1": twins[1], "global_step": step}

        listed = self.execute(tool, "ls", prefix, "--output=json")
        self.assert_succeeded(listed)
        found = {line["name"] for line in map(json.loads, listed.stdout.splitlines()) if "name" in line}
        self.assertEqual(found, set(names), listed.stdout)

        self.assert_succeeded(self.execute(tool, "verify", prefix))
        written = self.folder / "model.ckpt-7"
        self.assert_succeeded(self.execute(tool, "rename", prefix, written, "--map=^twins/=twin_"))
        reader = tf.train.load_checkpoint(str(written))
        self.assertEqual(
            set(reader.get_variable_to_shape_map()), {"dense/kernel", "twin_0", "twin_1", "global_step"}
        )
        self.assertEqual(reader.get_tensor("dense/kernel").tobytes(), kernel.numpy().tobytes())
        self.assertEqual(reader.get_tensor("twin_1"), 1.0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
