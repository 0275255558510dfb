"""What the shell tools answer to words that are wrong: one line, exit status 2, before anything is installed or built.
And what they do where the programs that they call fail."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TOOLS = Path(__file__).resolve().parent
DEADLINE = 120  # seconds for one run, which takes less than one on an idle machine


class ShellToolsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_tool(self, name: str | Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [TOOLS / name, *map(str, words)]
        environment = os.environ | variables
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=DEADLINE
        )

    def path_with(self, **scripts: str) -> str:
        """PATH with these programs in front."""
        folder = self.folder / "programs"
        folder.mkdir()
        for name, script in scripts.items():
            program = folder / name.replace("_", "-")
            program.write_text(f"#!/bin/sh\n{script}")
            program.chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    def assert_refused(self, name: str, words: tuple[object, ...], *told: str, code: int = 2) -> None:
        with self.subTest(f"{name} {words}"):
            done = self.run_tool(name, *words)
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            self.assertRegex(done.stderr, rf"\Atools/{name}: [^\n]*\n\Z")
            for text in told:
                self.assertIn(text, done.stderr)

    def test_run(self) -> None:
        listed = "; write: tools/run PROGRAM [FLAG...]; the programs are "
        self.assert_refused("run", ("mnist_mian",), f"there is no program 'mnist_mian'{listed}", " mnist_main ")
        self.assert_refused("run", ("",), f"there is no program ''{listed}")
        self.assert_refused("run", (), f"tools/run: {listed[2:]}", " checkpoint_tool ", " data_check ")
        self.assert_refused("run", ("--help",), "there is no program '--help'")

    def test_what_was_built_now_is_started(self) -> None:
        # The link in a checkout that cannot be written may be that of another user.
        checkout, built = self.folder / "checkout", self.folder / "built"
        (checkout / "tools").mkdir(parents=True)
        for name in ("bazel_bin", "build", "download", "packages.txt", "run", "setup"):
            shutil.copy(TOOLS / name, checkout / "tools")
        for folder, said in (checkout / "bazel-bin", "old"), (built, "new"):
            for program in (folder / "official/mnist/mnist_main", folder / "official/mnist/download_mnist_main"):
                program.parent.mkdir(parents=True, exist_ok=True)
                program.write_text(f'#!/bin/sh\necho {said} "$@"\n')
                program.chmod(0o755)
        (checkout / "official/mnist/data").mkdir(parents=True)
        (checkout / "official/mnist/BUILD").write_text('cc_binary(\n    name = "mnist_main",\n)\n')
        (checkout / "official/mnist/data/BUILD").touch()
        bazel = f"""case $1 in
build) [ "$PWD" = {checkout} ] ;;
info) [ "$PWD" = {checkout} ] && echo {built} ;;
esac
"""
        path = self.path_with(bazel=bazel, dpkg_query='for p; do echo "$p installed"; done')
        for name, word in ("run", "mnist_main"), ("download", "mnist"):
            with self.subTest(name):
                done = self.run_tool(checkout / "tools" / name, word, "--version", PATH=path)
                self.assertEqual((done.returncode, done.stdout), (0, "new --version\n"), done.stderr)

    def test_every_program_is_there(self) -> None:
        labels = re.findall(r'"//.*:(\w+)"', (TOOLS.parent / "official/programs/programs.bzl").read_text())
        self.assertGreater(len(labels), 15)
        told = self.run_tool("run").stderr.split()
        self.assertEqual(set(labels) - set(told), set())

    def test_download(self) -> None:
        listed = "write: tools/download DATASET [DIRECTORY]; the data sets are cifar10, mnist and movielens"
        self.assert_refused("download", (), f"tools/download: {listed}")
        self.assert_refused("download", ("imagenet", "data"), f"there is no data set 'imagenet'; {listed}")

    def test_package(self) -> None:
        self.assert_refused("package", ("rpm",), "rpm is neither archive, deb or image nor --programs=NAME,...")
        self.assert_refused("package", ("--output_dir",), "--output_dir is neither ")
        told = "there is no program 'mnist_mian'; the programs are checkpoint_tool data_check "
        self.assert_refused("package", ("--programs=mnist_main,mnist_mian", "deb"), told)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_fuzz(self) -> None:
        for seconds in "0", "-5", "08", "60s", "9999999999":
            self.assert_refused("fuzz", (seconds, "idx_fuzz"), f"'{seconds}' is no number of seconds from 1 to 999999999")

    def test_make_certs(self) -> None:
        for words in (), (self.folder,):
            self.assert_refused("make_certs", words, "name a folder and one host or more", f"; here are {len(words)} words")
        for days in "", "0", "x", "-1", "100000":
            told = f"--days={days}: expected a number of days from 1 to 99999"
            self.assert_refused("make_certs", (f"--days={days}", self.folder, "a"), told)
        told = "'a/b' is no name or address of a host"
        self.assert_refused("make_certs", (self.folder, "a", "a/b"), told, "leave out ports and brackets")
        self.assert_refused("make_certs", (self.folder, "a", "b", "a"), "'a' is there twice; name each host once")
        self.assert_refused("make_certs", (self.folder, "a", "ca"), f"'ca': {self.folder / 'ca.crt'} is the authority's")
        for address in "10.0.0.256", "10.0.1", "10.0.0.1:2222":
            told = f"'{address}' is no IPv4 or IPv6 address; leave out ports"
            self.assert_refused("make_certs", (self.folder, "a", address), told)
        self.assertEqual(list(self.folder.iterdir()), [])
        (self.folder / "ca.crt").touch()
        told = f"{self.folder} has only one of ca.crt and ca.key"
        self.assert_refused("make_certs", (self.folder, "a"), told, code=66)
        (self.folder / "ca.key").touch()
        (self.folder / "a.key").touch()
        told = f"{self.folder} has a.crt or a.key already; remove both, or use another folder"
        self.assert_refused("make_certs", (self.folder, "b", "a"), told, code=73)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"ca.crt", "ca.key", "a.key"})
        told = f"the folder cannot be made: cannot create directory '{self.folder / 'ca.crt'}'"
        self.assert_refused("make_certs", (self.folder / "ca.crt" / "certs", "a"), told, "name another one", code=73)

    def test_make_certs_twice_at_once(self) -> None:
        for attempt in range(8):
            folder = self.folder / str(attempt)
            with ThreadPoolExecutor() as pool:
                done = list(pool.map(lambda host: self.run_tool("make_certs", folder, host), ("a", "b")))
            self.assertEqual([one.returncode for one in done], [0, 0], [one.stderr for one in done])
            verify = ["openssl", "verify", "-CAfile", folder / "ca.crt", folder / "a.crt", folder / "b.crt"]
            verified = subprocess.run(verify, capture_output=True, text=True, timeout=DEADLINE)
            self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def setup_with(self, apt_get: str) -> subprocess.CompletedProcess[str]:
        # The last word of an update tells it; the calls are counted.
        calls = f'calls={self.folder}/calls; echo "$@" >>$calls; for last; do :; done\n'
        path = self.path_with(apt_get=calls + apt_get, dpkg_query="exit 1", sudo='exec "$@"')
        return self.run_tool("setup", PATH=path, LC_ALL="")

    def test_setup_waits_for_the_lock_of_the_lists(self) -> None:
        done = self.setup_with("""
[ "$LC_ALL" = C ] && locked="Could not get lock" || locked="Konnte Sperre nicht bekommen"
if [ $last = update ]; then
  [ $(grep -c 'update$' $calls) -gt 2 ] || { echo "E: $locked /lists/lock" >&2; exit 100; }
else
  [ $(grep -c 'update$' $calls) -gt 2 ] || { echo "E: Unable to locate package g++" >&2; exit 100; }
fi
""")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "calls").read_text().count("update\n"), 3)

    def test_setup_without_a_network(self) -> None:
        done = self.setup_with("""
[ $last != update ] || { echo "W: Failed to fetch the lists"; exit 0; }
echo "E: Unable to locate package g++" >&2
exit 100
""")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"(?s)W: Failed to fetch the lists\n.*tools/setup: apt-get could not install .*\n\Z")

    def test_fuzz_goes_on_after_findings(self) -> None:
        folder = self.folder / "built/official"
        folder.mkdir(parents=True)
        said = {"deep": 'for i in $(seq 4000); do echo "    #$i in a function of some length"; done', "silent": ":"}
        for name, script in said.items():
            (folder / name).write_text(f"#!/bin/sh\n{script}\nexit 1\n")
            (folder / name).chmod(0o755)
        labels = "//official:deep //official:silent"
        bazel = f"""case $1 in
query) printf '%s\\n' {labels} ;;
info) echo {self.folder}/built ;;
esac
"""
        path = self.path_with(bazel=bazel, dpkg_query='for p; do echo "$p installed"; done')
        done = self.run_tool("fuzz", "1", PATH=path, FUZZ_DIR=str(self.folder / "kept"))
        self.assertEqual(done.returncode, 1, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[-1], "0 passed, 2 failed")
        self.assertEqual(sum(line.startswith("    #") for line in lines), 25)


if __name__ == "__main__":
    unittest.main(verbosity=2)
