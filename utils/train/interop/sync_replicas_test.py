"""The scripts of sync_replicas_test.cc, given to TensorFlow's SyncReplicasOptimizer: what they say is what it does."""

import json
import unittest

import tensorflow as tf

_SCRIPTS = "utils/train/sync_replicas_scripts.json"


class Chief:
    """A SyncReplicasOptimizer around GradientDescentOptimizer(1.0) for one variable, the parts of which are run by hand."""

    def __init__(self, script: dict) -> None:
        v1 = tf.compat.v1
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._variable = v1.get_variable("x", initializer=0.0, use_resource=False)
            self._step = v1.train.get_or_create_global_step()
            self._gradient = v1.placeholder(tf.float32, [])
            self._local_step = v1.placeholder(tf.int64, [])
            optimizer = v1.train.SyncReplicasOptimizer(
                v1.train.GradientDescentOptimizer(1.0),
                replicas_to_aggregate=script["replicas_to_aggregate"],
                total_num_replicas=script["num_workers"],
            )
            optimizer.apply_gradients([(self._gradient, self._variable)], global_step=self._step)
            (self._accumulator, _), = optimizer._accumulator_list
            self._apply = self._accumulator.apply_grad(self._gradient, local_step=self._local_step)
            self._num_accumulated = self._accumulator.num_accumulated()
            self._make_step = optimizer._chief_queue_runner.enqueue_ops[0]
            self._num_tokens = optimizer._sync_token_queue.size()
            self._token = optimizer._sync_token_queue.dequeue()
            # The optimizer refuses fewer tokens than it takes to begin; a script may begin without any.
            first = optimizer._sync_token_queue.enqueue_many(tf.fill([script["num_tokens"]], self._step))
            self._session = v1.Session(graph=self._graph)
            self._session.run([v1.global_variables_initializer()])
            self._session.run([optimizer.chief_init_op, optimizer.local_step_init_op])
            if script["num_tokens"] > 0:
                self._session.run(first)
        self._replicas_to_aggregate = script["replicas_to_aggregate"]
        self._waiting: list[int] = []

    def run(self, worker: int, local_step: int, gradient: float) -> list:
        """Applies a gradient, makes the step that has enough, and gives tokens to those who wait: the rest of an event."""
        before = self._session.run(self._num_accumulated)
        self._session.run(self._apply, {self._gradient: gradient, self._local_step: local_step})
        num_accumulated = self._session.run(self._num_accumulated)
        if num_accumulated >= self._replicas_to_aggregate:
            self._session.run(self._make_step)
        self._waiting.append(worker)
        tokens = []
        while self._waiting and self._session.run(self._num_tokens) > 0:
            tokens.append([self._waiting.pop(0), int(self._session.run(self._token))])
        variable, step = self._session.run([self._variable, self._step])
        return [bool(num_accumulated > before), float(variable), int(step), tokens]


class SyncReplicasTest(unittest.TestCase):
    def test_scripts(self) -> None:
        with open(_SCRIPTS, encoding="utf-8") as file:
            scripts = json.load(file)["scripts"]
        self.assertEqual(len(scripts), 6)
        for number, script in enumerate(scripts):
            chief = Chief(script)
            for index, (worker, local_step, gradient, *expected) in enumerate(script["events"]):
                with self.subTest(script=number, event=index):
                    is_taken, variable, step, tokens = chief.run(worker, local_step, gradient)
                    self.assertAlmostEqual(variable, expected[1], places=5)
                    self.assertEqual([is_taken, step, tokens], [expected[0], *expected[2:]])


if __name__ == "__main__":
    tf.compat.v1.disable_eager_execution()
    unittest.main(verbosity=2)
