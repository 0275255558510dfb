"""tools/cluster/Containerfile copies what is built, and installs the packages that it needs. Usage: MODULE FILE...

No container is built: its two lists are compared with the files that Bazel has built here.
"""

import re
import sys
import unittest
from pathlib import Path

from tools.packaging.libraries import libraries_of, output

CONTAINERFILE = Path("tools/cluster/Containerfile")
# What is loaded with dlopen, if it is there, and the certificates for downloads.
LOADED = {"ca-certificates", "libcurl4", "libpmix2"}


def lines_of(instruction: str, stage: int) -> str:
    """The first instruction of a stage that begins so, with the lines that continue it."""
    text = re.sub(r"^\s*#.*\n", "", CONTAINERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = re.split(r"^FROM ", text, flags=re.MULTILINE)[1 + stage].splitlines()
    return next(line for line in lines if line.startswith(instruction))


def packages_of(file: Path) -> set[str]:
    """The packages of the libraries that a program or library names; those that they need themselves come with them."""
    needed = re.findall(r"NEEDED\s+(\S+)", output("objdump", "-p", file))
    return {library.package for library in libraries_of([file]) if library.name in needed}


class ImageTest(unittest.TestCase):
    files: list[Path]

    def test_packages(self) -> None:
        needed = set().union(*(packages_of(file) for file in self.files))
        self.assertIn("libc6", needed)
        installed = lines_of("RUN apt-get", stage=1).split("&&")[1].split()
        packages = [word for word in installed[installed.index("install") + 1 :] if not word.startswith("--")]
        self.assertEqual(packages, sorted(needed | LOADED))

    def test_files(self) -> None:
        *copied, folder = lines_of("RUN mkdir", stage=0).split(" cp ")[1].split()
        self.assertEqual(sorted(copied), sorted(f"bazel-bin/{file}" for file in self.files))
        self.assertEqual(lines_of("COPY", stage=1), f"COPY --from=build {folder}/ /usr/local/bin/")
        built = [word for word in lines_of("RUN apt-get", stage=0).split() if word.startswith("//")]
        labels = [f"//{file.parent}:{file.name}" for file in self.files]
        self.assertEqual(sorted(built), sorted(labels))

    def test_the_user_is_not_root(self) -> None:
        user = lines_of("USER", stage=1).split()[1]
        self.assertRegex(user, "^[1-9][0-9]*$")  # runAsNonRoot of Kubernetes needs a number
        self.assertIn(f"--uid {user} ", lines_of("RUN useradd", stage=1))


if __name__ == "__main__":
    ImageTest.files = [Path(argument) for argument in sys.argv[1:]]
    unittest.main(argv=sys.argv[:1], verbosity=2)
