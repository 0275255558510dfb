"""A run that was stopped and started again ends with the same bits as one that was not."""

from official.faults import harness
from official.faults.programs import STEPS, STEPS_PER_EPOCH


class ResumeTest(harness.FaultTest):
    def setUp(self) -> None:
        super().setUp()
        self.whole = self.folder / "whole"
        self.train(self.whole)

    @harness.of_every_program
    def test_any_step_in_an_epoch_and_its_ends(self) -> None:
        for first in (1, STEPS_PER_EPOCH - 1, STEPS_PER_EPOCH, STEPS_PER_EPOCH + 1, STEPS - 1):
            model_dir = self.folder / f"stopped at {first}"
            self.train(model_dir, first)
            resumed = self.train(model_dir)
            self.assertIn(f"resumed from {model_dir}/model.ckpt-{first}", resumed.stderr)
            self.assert_same_checkpoint(model_dir, self.whole, f"stopped at step {first}")
            self.assertEqual(harness.metrics(model_dir)[1], harness.metrics(self.whole)[1])

    @harness.of_every_program
    def test_a_stop_after_each_step(self) -> None:
        model_dir = self.folder / "model"
        for step in range(1, STEPS + 1):
            self.train(model_dir, step)
        self.assert_same_checkpoint(model_dir, self.whole)

    def test_narrow_types(self) -> None:
        for flags in (["--dtype=bf16"], ["--dtype=fp16"], ["--dtype=fp16", "--loss_scale=dynamic"]):
            name = " ".join(flags)
            whole, stopped = self.folder / f"whole {name}", self.folder / f"stopped {name}"
            self.train(whole, STEPS, *flags)
            self.train(stopped, STEPS_PER_EPOCH, *flags)
            self.train(stopped, STEPS, *flags)
            self.assert_same_checkpoint(stopped, whole, name)
            self.assertNotEqual(harness.metrics(whole)[0], harness.metrics(self.whole)[0], f"{name} changes nothing")

    @harness.of_every_program
    def test_two_replicas(self) -> None:
        # With a partial last batch in each epoch.
        whole, stopped = self.folder / "whole of two", self.folder / "stopped of two"
        flag = "--num_cpu_devices=2"
        self.train(whole, STEPS, flag)
        for step in (1, STEPS_PER_EPOCH, STEPS_PER_EPOCH + 2, STEPS):
            self.train(stopped, step, flag)
        self.assert_same_checkpoint(stopped, whole)

    def test_any_number_of_threads(self) -> None:
        for threads in (1, 2, 3):
            stopped = self.folder / f"{threads} threads"
            self.train(stopped, STEPS_PER_EPOCH + 2, f"--intra_op_parallelism_threads={threads}")
            self.train(stopped, STEPS, f"--intra_op_parallelism_threads={4 - threads}")
            self.assert_same_checkpoint(stopped, self.whole, f"{threads} threads, then {4 - threads}")

    def test_any_number_of_processors(self) -> None:
        for name, prefix, threads in (("one", ["taskset", "--cpu-list", "0"], 0), ("many", [], 64)):
            model_dir = self.folder / f"{name} processors"
            command = self.command(model_dir, f"--max_train_steps={STEPS}", f"--intra_op_parallelism_threads={threads}")
            outcome = self.execute([*prefix, *command])
            self.assertEqual(outcome.code, 0, outcome.told)
            self.assert_same_checkpoint(model_dir, self.whole, name)

    def test_another_number_of_replicas(self) -> None:
        # The order of the examples is that of one device, and so are the bits.
        model_dir = self.folder / "model"
        for step, replicas in ((5, 1), (9, 2), (STEPS, 1)):
            self.train(model_dir, step, f"--num_cpu_devices={replicas}")
        self.assert_same_checkpoint(model_dir, self.whole)

    def test_changed_flags_are_named(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, STEPS_PER_EPOCH)
        resumed = self.train(model_dir, STEPS, "--learning_rate=0.5", "--num_cpu_devices=2")
        self.assertIn("flags that differ from this run's last: ", resumed.stderr)
        for change in ("--learning_rate=0.5 (was ", "--num_cpu_devices=2 (was 1)"):
            self.assertIn(change, resumed.stderr)

    def test_a_finished_run_names_changed_flags(self) -> None:
        done = self.train(self.whole, STEPS, "--learning_rate=0.5")
        self.assertIn("nothing to do: ", done.stderr)
        self.assertIn("flags that differ from this run's last: --learning_rate=0.5 (was ", done.stderr)

    def test_the_order_of_channels_is_that_of_the_training(self) -> None:
        model_dir, export_dir = self.folder / "channels first", self.folder / "export"
        self.train(model_dir, STEPS_PER_EPOCH, "--data_format=channels_first")
        before = harness.latest_step(model_dir)
        for flags in ([], ["--data_format=channels_last"], ["--data_format=channels_last", "--predict=none.png"]):
            outcome = self.execute(self.command(model_dir, *flags))
            self.assertEqual(outcome.code, 2, outcome.told)
            told = f"--model_dir={model_dir} was trained with --data_format=channels_first, but this command has "
            self.assertIn(told, outcome.stderr)
            self.assertIn("; add --data_format=channels_first to use that network", outcome.stderr)
        self.assertEqual(harness.latest_step(model_dir), before)
        self.train(self.whole, STEPS, "--data_format=channels_last")  # what it is if it is not given
        images = f"--predict={self.data_dir}/t10k-images-idx3-ubyte"
        found = self.execute(self.command(model_dir, images))
        self.assertIn(f"as {model_dir} was trained: --data_format=channels_first", found.stderr)
        given = self.execute(self.command(model_dir, images, "--data_format=channels_first"))
        self.assertNotIn("was trained:", given.stderr)
        self.assertEqual(found.code, 0, found.told)
        self.assertEqual(found.stdout, given.stdout)
        exported = self.train(model_dir, STEPS_PER_EPOCH, f"--export_dir={export_dir}")
        self.assertIn("was trained: --data_format=channels_first", exported.stderr)
        self.assertEqual(len(list(export_dir.glob("*/saved_model.pb"))), 1)

    def test_a_bad_export_dir_is_found_before_training(self) -> None:
        file = self.folder / "file"
        file.write_text("")
        for export_dir in (file, file / "export"):
            model_dir = self.folder / "untrained"
            outcome = self.execute(self.command(model_dir, f"--export_dir={export_dir}"))
            self.assertEqual(outcome.code, 73, outcome.told)
            self.assertEqual(len(outcome.stderr.splitlines()), 1, outcome.told)
            self.assertIn(f"--export_dir={export_dir}: cannot write in {file}", outcome.stderr)
            self.assertFalse(model_dir.exists())

    def test_many_runs_beside_each_other(self) -> None:
        started = [
            (self.folder / f"model {i}", self.start(self.command(self.folder / f"model {i}", f"--max_train_steps={STEPS}")))
            for i in range(4)
        ]
        for model_dir, process in started:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)
            self.assert_same_checkpoint(model_dir, self.whole)

    def test_a_processor_without_avx512(self) -> None:
        # Other instructions round differently: the same numbers, not the same bits; but the same bits each time.
        env = {"OFFICIAL_MAX_ISA": "avx2"}
        once, stopped = self.folder / "avx2", self.folder / "avx2 stopped"
        self.train(once, STEPS, env=env)
        self.train(stopped, 9, env=env)
        self.train(stopped, STEPS, env=env)
        self.assert_same_checkpoint(stopped, once)
        (ours, _), (theirs, _) = harness.metrics(once), harness.metrics(self.whole)
        for step in theirs:
            self.assertAlmostEqual(min(ours[step]), min(theirs[step]), delta=2e-3, msg=f"loss of step {step}")


if __name__ == "__main__":
    harness.main()
