"""mnist_main with the real libtpu.so on a machine that has no TPU: one line says so, and nothing asks the network.

Usage: MODULE MNIST_MAIN. OFFICIAL_LIBTPU in the environment names libtpu.so (tools/python_env tpu).
"""

import glob
import os
import subprocess
import sys
import unittest
from pathlib import Path

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments

(mnist_main,) = programs_of_arguments(1)
libtpu = os.environ.get("OFFICIAL_LIBTPU")
HAS_TPU = bool(glob.glob("/dev/accel[0-9]*") or glob.glob("/dev/vfio/[0-9]*"))
# An address of IPv4 or IPv6, as strace prints it. Without one nothing is sent: libtpu.so makes a socket when it is loaded,
# to see if there is IPv4, and does not use it.
ADDRESS = "sa_family=AF_INET"


def unshare_options() -> list[str] | None:
    """The options with which unshare runs a command without any network; None where the system permits it to nobody."""
    for options in (["--net"], ["--map-root-user", "--net"]):
        if subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0:
            return options
    return None


@unittest.skipIf(not libtpu, "OFFICIAL_LIBTPU does not name libtpu.so (tools/python_env tpu)")
@unittest.skipIf(HAS_TPU, "this machine has a TPU")
class LibtpuTest(ProgramTestCase):
    def setUp(self) -> None:
        self.train = (mnist_main, "--distribution_strategy=tpu", f"--pjrt_plugin={libtpu}", "--use_synthetic_data",
                      "--max_train_steps=1", f"--model_dir={self.folder}/run")

    def traced(self, name: str, *command: object) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """Runs a command. Also returns those of its system calls that concern the network, one a line."""
        trace = self.folder / name
        done = self.execute(Path("strace"), "-f", "-e", "trace=network", "-o", trace, *command)
        self.assertTrue(trace.exists(), f"strace must be installed and permitted here\n{done.stderr}")
        return done, trace.read_text().splitlines()

    def assert_one_line(self, done: subprocess.CompletedProcess[str]) -> None:
        self.assert_refused(done, 2, "--distribution_strategy=tpu: ", libtpu, "is for TPUs, and this machine has none")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_one_line_says_that_there_is_no_tpu(self) -> None:
        self.assert_one_line(self.execute(*self.train))

    def test_no_packet_is_sent(self) -> None:
        done, calls = self.traced("trace", *self.train)
        self.assert_one_line(done)
        self.assertTrue(any(call.endswith("+++ exited with 2 +++") for call in calls), calls)
        self.assertEqual([call for call in calls if ADDRESS in call], [])
        # The tracer sees what a program does that would send one.
        asks = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))"
        _, calls = self.traced("control", sys.executable, "-c", asks)
        self.assertTrue(any(ADDRESS in call for call in calls), calls)

    def test_without_a_network_it_says_the_same(self) -> None:
        options = unshare_options()
        if options is None:
            self.skipTest("unshare --net is not permitted here")
        self.assert_one_line(self.execute(Path("unshare"), *options, *self.train))


if __name__ == "__main__":
    unittest.main()
