"""What tools/package makes runs where there is nothing but a C library. Usage: MODULE MNIST_MAIN DOWNLOAD_MNIST_MAIN

The programs run in a folder that holds a package alone, as their root (chroot in a user namespace).
"""

import contextlib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

from tools.packaging import package
from tools.packaging.bundle import add_documents
from tools.packaging.image import make_base

PROGRAMS = [Path(argument).absolute() for argument in sys.argv[1:3]]
DEADLINE = 120  # seconds for a run, which takes two on an idle machine
EPOCH = "1700000000"
# The loader looks up the path of the program in /proc, which every container has.
IN_ROOT = 'mount --rbind /proc "$0/proc" && exec env -i HOME=/tmp /usr/sbin/chroot "$0" "$@"'
ARCHIVE = f"official-models-{package.version()}-linux-x86_64"


def made(folder: Path, kinds: tuple[str, ...] = package.KINDS) -> dict[str, Path]:
    with mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": EPOCH}):
        # The fastest compression.
        paths = package.make(folder, list(kinds), 0, PROGRAMS)
    return dict(zip(kinds, paths, strict=True))


def unpack(archive: Path, folder: Path) -> None:
    command = ["tar", "--extract", "--file", archive, "--directory", folder, "--no-same-owner"]
    subprocess.run(command, check=True, timeout=DEADLINE)


def in_root(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    unshare = ["unshare", "--map-root-user", "--mount", "--net", "sh", "-c", IN_ROOT, root]
    return subprocess.run([*unshare, *command], capture_output=True, text=True, timeout=DEADLINE)


def names_in(depends: str) -> list[str]:
    """The packages of a list of dependencies that are installed here, without versions."""
    alternatives = [re.split(r" \(.*?\)| \| |:any", part) for part in depends.split(", ") if part]
    command = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n"]
    flat = [name.strip() for names in alternatives for name in names if name.strip()]
    told = subprocess.run([*command, *flat], capture_output=True, text=True).stdout if flat else ""
    return [line.split()[0] for line in told.splitlines() if line.endswith(" installed")]


def add_libraries(root: Path, depends: str) -> None:
    """Puts the shared objects of the packages that are depended on, and of those that these need, into a root."""
    found: set[str] = set()
    wanted = set(names_in(depends))
    while wanted:
        found |= wanted
        fields = ["dpkg-query", "--show", "--showformat=${Pre-Depends}, ${Depends}, ", *sorted(wanted)]
        told = subprocess.run(fields, check=True, capture_output=True, text=True).stdout
        wanted = set(names_in(told)) - found
    for folder in "lib", "lib64":  # Debian's roots have these links
        (root / "usr" / folder).mkdir(exist_ok=True, parents=True)
        (root / folder).symlink_to(f"usr/{folder}")
    listed = subprocess.run(["dpkg", "--listfiles", *sorted(found)], check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        path = Path(line)
        if not re.search(r"\.so(\.|$)", path.name) or path.is_dir():
            continue
        target = root / line.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() and not target.is_symlink():
            shutil.copy2(path, target, follow_symlinks=False)
    for folder in "proc", "tmp":
        (root / folder).mkdir()


def refusal(output_dir: Path, program: Path, code: int) -> str:
    """What is said where no archive can be made of the program."""
    told = io.StringIO()
    with mock.patch.object(sys, "argv", ["", str(output_dir), "archive", "0", str(program)]):
        with contextlib.redirect_stderr(told):
            found = package.main()
    assert found == code, (found, told.getvalue())
    return told.getvalue()


class BadSurroundingsTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def refusal(self, code: int, *, program: Path = PROGRAMS[0], **variables: str) -> str:
        with mock.patch.dict(os.environ, variables):
            return refusal(self.folder / "packages", program, code)

    def test_the_time_is_not_known(self) -> None:
        for epoch in "x", "-1", "8589934592", "\u0663":
            told = self.refusal(2, SOURCE_DATE_EPOCH=epoch)
            self.assertEqual(
                told, f"tools/package: SOURCE_DATE_EPOCH={epoch}: expected seconds since 1970, from 0 to 8589934591\n"
            )
        (self.folder / "utils/misc").mkdir(parents=True)
        (self.folder / "utils/misc/version.h").write_text('kVersion[] = "1.0"')
        with mock.patch.object(package, "ROOT", self.folder):
            told = self.refusal(1, SOURCE_DATE_EPOCH="", GIT_CEILING_DIRECTORIES=str(self.folder.parent))
        self.assertRegex(told, r"^tools/package: git log .*: fatal: not a git repository.*SOURCE_DATE_EPOCH.*\n$")
        self.assertFalse((self.folder / "packages").exists())

    def test_a_command_is_missing_or_fails(self) -> None:
        told = self.refusal(66, SOURCE_DATE_EPOCH="", PATH=str(self.folder))
        self.assertEqual(told, "tools/package: git: No such file or directory\n")
        text = self.folder / "text"
        text.write_text("not a program")
        told = self.refusal(1, program=text, SOURCE_DATE_EPOCH=EPOCH)
        self.assertIn(f"tools/package: ldd {text}: ", told)
        self.assertGreater(len(told), len(f"tools/package: ldd {text}: \n"))

    def test_a_folder_that_is_a_file(self) -> None:
        (self.folder / "packages").write_text("")
        told = self.refusal(74, SOURCE_DATE_EPOCH=EPOCH)
        self.assertEqual(told, f"tools/package: {self.folder / 'packages'}: File exists\n")

    def test_nothing_incomplete_is_left(self) -> None:
        packed, target = self.folder / "packed", self.folder / "target"
        packed.write_text("x")
        target.mkdir()
        with self.assertRaises(IsADirectoryError):
            package.put_whole(packed, target)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"packed", "target"})

    def test_two_at_once(self) -> None:
        packed = self.folder / "packed"
        packed.write_bytes(bytes(1 << 20))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: package.put_whole(packed, self.folder / "target"), range(40)))
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"packed", "target"})


class DocumentsTest(unittest.TestCase):
    def test_links_lead_to_documents_or_to_sources(self) -> None:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as temporary:
            folder = Path(temporary).resolve()
            add_documents(package.ROOT, folder)
            num_links = 0
            for page in folder.rglob("*.md"):
                for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                    if re.match("[a-z]+:", link):
                        continue
                    num_links += 1
                    name = (page.parent / link).resolve().relative_to(folder)
                    source = package.ROOT / name
                    is_source = source.suffix in (".h", ".cc") or source.is_dir()
                    self.assertTrue((folder / name).exists() or is_source, f"{page.relative_to(folder)}: {link}")
            self.assertGreater(num_links, 100)


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.packages = made(cls.folder / "packages")

    def new_root(self, name: str) -> Path:
        root = self.folder / name
        root.mkdir()
        return root

    def assert_runs(self, root: Path, folder: str) -> None:
        """The version, and a training of five steps."""
        mnist, download = (f"{folder}/{program.name}" for program in PROGRAMS)
        for program in mnist, download:
            done = in_root(root, program, "--version")
            self.assertRegex(done.stdout, rf"^{Path(program).name} {package.version()}", done.stderr)
        flags = ["--use_synthetic_data", "--max_train_steps=5", "--model_dir=/tmp/run", "--output=json"]
        done = in_root(root, mnist, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout.splitlines()[0])["global_step"], 5)
        self.assertTrue((root / "tmp/run/model.ckpt-5.index").is_file())
        # libcurl and what it needs are there, too: it is a name that cannot be found.
        done = in_root(root, download, "/tmp/data")
        self.assertEqual(done.returncode, 69)
        self.assertNotIn("cannot load libcurl", done.stderr)

    def test_archive(self) -> None:
        root = self.new_root("archive_root")
        make_base(root)
        (root / "srv").mkdir()
        unpack(self.packages["archive"], root / "srv")
        self.assertEqual([path.name for path in (root / "srv").iterdir()], [ARCHIVE])
        (root / "srv" / ARCHIVE).rename(root / "srv/moved")
        self.assert_runs(root, "/srv/moved/bin")
        moved = root / "srv/moved"
        libraries = {path.name for path in (moved / "lib").iterdir()}
        self.assertIn("libdnnl.so.2", libraries)
        self.assertFalse(libraries & {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"}, "the C library is the machine's")
        copyrights = {path.parent.name: path for path in (moved / "share/licenses").glob("*/copyright")}
        self.assertLessEqual({"libdnnl2", "libcurl4", "libstdc++6", "nlohmann-json3-dev", "libboost-dev"}, set(copyrights))
        self.assertIn("Niels Lohmann", copyrights["nlohmann-json3-dev"].read_text())
        # libdnnl2's names the first, libstdc++6's the others.
        for name in "Apache-2.0", "GPL-3", "LGPL":
            common = moved / "share/licenses/common-licenses" / name
            self.assertEqual(common.read_bytes(), Path("/usr/share/common-licenses", name).read_bytes())
        for name in "README.md", "LICENSE", "docs/manual/mnist.md", "docs/flags/mnist_main.md":
            self.assertTrue((moved / "share/doc/official-models" / name).is_file(), name)

    def test_image(self) -> None:
        layout = self.new_root("layout")
        unpack(self.packages["image"], layout)
        self.assertEqual(json.loads((layout / "oci-layout").read_text()), {"imageLayoutVersion": "1.0.0"})

        def blob(descriptor: dict) -> bytes:
            algorithm, digest = descriptor["digest"].split(":")
            data = (layout / "blobs" / algorithm / digest).read_bytes()
            self.assertEqual((hashlib.new(algorithm, data).hexdigest(), len(data)), (digest, descriptor["size"]))
            return data

        (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
        manifest = json.loads(blob(entry))
        image = json.loads(blob(manifest["config"]))
        root = self.new_root("image_root")
        for layer, diff_id in zip(manifest["layers"], image["rootfs"]["diff_ids"], strict=True):
            content = gzip.decompress(blob(layer))
            self.assertEqual(f"sha256:{hashlib.sha256(content).hexdigest()}", diff_id)
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                owners = {member.uid for member in archive}
            file = self.folder / "layer.tar"
            file.write_bytes(content)
            unpack(file, root)
        self.assertEqual(owners, {0})
        self.assertTrue((root / "usr/share/common-licenses/LGPL-2.1").is_file(), "the copyright file of libc6 names it")
        self.assertEqual(image["config"]["User"], "1000")
        (path,) = [value.removeprefix("PATH=") for value in image["config"]["Env"] if value.startswith("PATH=")]
        self.assertTrue((root / path[1:] / image["config"]["Cmd"][0]).is_file())
        self.assert_runs(root, path)

    def test_deb(self) -> None:
        deb = self.packages["deb"]
        fields = subprocess.run(["dpkg-deb", "--field", deb], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"\nVersion: {package.version()}\nArchitecture: amd64\n", fields)
        (depends,) = [line for line in fields.splitlines() if line.startswith("Depends: ")]
        for needed in "libc6 (>= ", "libdnnl2 (>= ", "libstdc++6 (>= ", "libcurl4":
            self.assertIn(needed, depends)
        root = self.new_root("deb_root")
        subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)
        sums = subprocess.run(["dpkg-deb", "--info", deb, "md5sums"], check=True, capture_output=True, text=True).stdout
        checked = subprocess.run(["md5sum", "--check", "--quiet"], cwd=root, input=sums, capture_output=True, text=True)
        self.assertEqual(checked.returncode, 0, checked.stdout)
        licenses = root / "usr/share/doc/official-models/licenses"
        self.assertIn("Niels Lohmann", (licenses / "nlohmann-json3-dev/copyright").read_text())
        for program in PROGRAMS:
            page = gzip.decompress((root / f"usr/share/man/man1/{program.name}.1.gz").read_bytes()).decode()
            self.assertIn(f'\n.TH {program.name.upper()} 1 "" "{program.name} {package.version()}"', page)
        add_libraries(root, depends.removeprefix("Depends: "))
        self.assert_runs(root, "/usr/bin")

    def test_the_same_programs_make_the_same_bytes(self) -> None:
        umask = os.umask(0o077)
        self.addCleanup(os.umask, umask)
        with mock.patch.dict(os.environ, {"TZ": "Asia/Tokyo"}):
            again = made(self.folder / "again", ("deb", "image"))  # the archive has the bytes of a layer of the image
        for kind, path in again.items():
            self.assertEqual(path.name, self.packages[kind].name)
            self.assertTrue(path.read_bytes() == self.packages[kind].read_bytes(), f"{kind} differs")

    def test_a_library_that_is_missing_is_named(self) -> None:
        program = self.folder / "broken"
        program.write_bytes(PROGRAMS[0].read_bytes().replace(b"libdnnl.so.2\0", b"libdnxx.so.2\0"))
        program.chmod(0o755)
        told = refusal(self.folder / "none", program, 66)
        self.assertEqual(told, f"tools/package: {program} needs libdnxx.so.2, which is not installed\n")
        self.assertEqual(list((self.folder / "none").iterdir()), [])


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main(verbosity=2)
