"""Any number of threads, beside other work or not, ends with the same bits."""

import subprocess

from official.faults import harness

LOOPS = 2


def one_algorithm(program: str) -> tuple[str, ...]:
    """Otherwise each run takes the algorithm of a convolution that is faster at the moment."""
    return ("--winograd=off",) if program == "resnet" else ()


class BusyMachineTest(harness.FaultTest):
    def keep_busy(self) -> None:
        """Starts endless loops, until the end of the test."""
        for _ in range(LOOPS):
            loop = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            self.addCleanup(lambda loop=loop: (loop.kill(), loop.wait()))

    @harness.of_every_program
    def test_threads_with_bfloat16(self) -> None:
        first = self.folder / "with 1"
        for threads in (1, 2, 3, 4):
            model_dir = self.folder / f"with {threads}"
            flags = (f"--intra_op_parallelism_threads={threads}", "--dtype=bf16")
            self.train(model_dir, harness.STEPS, *flags, *one_algorithm(self.program.name))
            self.assert_same_checkpoint(model_dir, first, model_dir.name)

    @harness.of_every_program
    def test_threads(self) -> None:
        flags = one_algorithm(self.program.name)
        first = self.folder / "quiet with 1"
        for beside in ("quiet", "busy"):
            if beside == "busy":
                self.keep_busy()
            for threads in (1, 2, 3, 4):
                model_dir = self.folder / f"{beside} with {threads}"
                self.train(model_dir, harness.STEPS, f"--intra_op_parallelism_threads={threads}", *flags)
                self.assert_same_checkpoint(model_dir, first, model_dir.name)
                self.assert_same_metrics(model_dir, first, model_dir.name)


if __name__ == "__main__":
    harness.main()
