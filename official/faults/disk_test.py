"""The disk itself fills up, or loses its power: a file system on a loop device, with the kernel's journal and delays.

Needs the right to mount one, outside of a sandbox; is skipped elsewhere. file_faults_test.py has the same faults, and
more, at any single call, but simulates what the disk does.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from official.faults import harness
from official.faults.programs import STEPS

FIRST = 10
MEGABYTE = 1 << 20
FLAGS = ("--keep_checkpoint_max=2", "--save_checkpoints_steps=5")


class DiskTest(harness.FaultTest):
    def setUp(self) -> None:
        super().setUp()
        self.whole, self.disk = self.folder / "whole", self.folder / "disk"
        self.disk.mkdir()
        self.train(self.whole, STEPS, *FLAGS)
        self.model_dir = self.disk / "model"

    def make_disk(self, megabytes: int) -> Path:
        """The image of an empty disk, mounted at self.disk."""
        image = self.folder / "image"
        with image.open("wb") as file:
            file.truncate(megabytes * MEGABYTE)
        outcome = self.execute(["/usr/sbin/mkfs.ext4", "-q", "-m", "0", str(image)])
        self.assertEqual(outcome.code, 0, outcome.told)
        outcome = self.mount(image, self.disk)
        if outcome.code != 0:
            self.skipTest(f"no file system can be mounted here: {outcome.error}")
        return image

    def mount(self, image: Path, place: Path) -> harness.Outcome:
        place.mkdir(exist_ok=True)
        # Lazily: a process that was killed may not be gone yet.
        unmount = ["umount", "--lazy", str(place)]
        self.addCleanup(lambda: subprocess.run(unmount, stderr=subprocess.DEVNULL, check=False))
        # The kernel commits names every second; the bytes of a file that is not synced come up to half a minute later.
        return self.execute(["mount", "-o", "loop,commit=1", str(image), str(place)])

    def test_full_disk(self) -> None:
        self.make_disk(200)
        self.train(self.model_dir, FIRST, *FLAGS)
        # Room for half a checkpoint of 39 MB.
        free = shutil.disk_usage(self.disk).free
        filler = self.disk / "filler"
        filler.write_bytes(bytes(free - 20 * MEGABYTE))
        outcome = self.run_steps(self.model_dir, STEPS, *FLAGS)
        self.assert_refused(outcome, 74, self.model_dir, "No space left on device", "which needs 39")
        self.assert_no_temporaries(self.model_dir)
        self.assertEqual(harness.latest_step(self.model_dir), FIRST)
        filler.unlink()
        self.train(self.model_dir, STEPS, *FLAGS)
        self.assert_same_checkpoint(self.model_dir, self.whole)

    def test_power_cut_before_a_sync(self) -> None:
        self.check_power_cuts("fsync")

    def test_power_cut_before_a_rename(self) -> None:
        self.check_power_cuts("rename")

    def check_power_cuts(self, call: str) -> None:
        # The run is stopped before each of these calls, for long enough that the kernel commits the names of files whose
        # bytes are still in memory. A copy of the disk is what a power cut at that moment leaves.
        image = self.make_disk(200)
        self.train(self.model_dir, FIRST, *FLAGS)
        self.execute(["sync", "--file-system", str(self.disk)])
        env = self.with_fault(self.model_dir, "stop", 1, call=call)
        process = self.start(
            self.command(self.model_dir, f"--max_train_steps={STEPS}", *FLAGS), env={**os.environ, **env}
        )
        after = self.folder / "after"
        cuts, saved = 0, FIRST
        while self.wait_for_stop(process):
            time.sleep(1.5)
            # A file of its own: the kernel may still be writing into the one before.
            cut = self.folder / f"cut {cuts}"
            self.execute(["cp", "--sparse=always", str(image), str(cut)])
            with self.subTest(f"power cut before {call} {cuts + 1}"):
                outcome = self.mount(cut, after)
                self.assertEqual(outcome.code, 0, outcome.told)
                self.check_next_start(after / "model", saved)
                self.execute(["umount", str(after)])
            cut.unlink()
            cuts += 1
            # What the state file names now is surely on the disk at the next stop.
            saved = harness.latest_step(self.model_dir)
            process.send_signal(signal.SIGCONT)
        outcome = self.finish(process)
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertGreater(cuts, 5, "the run was hardly ever stopped")

    def wait_for_stop(self, process: subprocess.Popen) -> bool:
        """Waits until all threads are stopped; false if the process is over instead."""
        until = time.monotonic() + harness.DEADLINE
        while process.poll() is None and time.monotonic() < until:
            try:
                stats = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/stat")]
            except OSError:
                continue
            if all(stat.rsplit(")", 1)[1].split()[0] == "T" for stat in stats):
                return True
            time.sleep(0.01)
        return False

    def check_next_start(self, model_dir: Path, saved: int) -> None:
        outcome = self.train(model_dir, STEPS, *FLAGS)
        resumed = outcome.stderr.split("resumed from ", 1)[1].split()[0]
        self.assertGreaterEqual(int(resumed.rsplit("-", 1)[1]), saved, outcome.told)
        # What the state file named was whole.
        self.assertNotIn("the latest intact checkpoint", outcome.stderr, outcome.told)
        self.assert_same_checkpoint(model_dir, self.whole)
        self.assert_no_temporaries(model_dir)


if __name__ == "__main__":
    harness.main()
