"""What ncf_main says to bad flags and bad ratings: one line, and the documented exit status.

Usage: MODULE NCF_MAIN [unittest argument...]
"""

import os
import random
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

DEADLINE = 120  # seconds for one run, which takes less than one on an idle machine
NUM_ITEMS = 1200
HEADER = "user_id,item_id,rating,timestamp\n"

ncf = Path(sys.argv.pop(1)).absolute()


def ratings_of(user: int, items: list[int]) -> str:
    return "".join(f"{user},{item},4,{978300000 + item}\n" for item in items)


class ProgramsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        rng = random.Random(1)
        # 100 users with 30 ratings, of which each keeps one back: an epoch has 100 * 29 * 5 examples.
        users = (ratings_of(user, rng.sample(range(1, NUM_ITEMS + 1), 30)) for user in range(1, 101))
        cls.good = HEADER + "".join(users)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def write_zip(self, name: str, member: str) -> Path:
        path = self.folder / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, self.good)
        return path

    def execute(self, *flags: object) -> subprocess.CompletedProcess:
        self.model_dir = Path(tempfile.mkdtemp(dir=self.folder))
        command = [ncf, f"--model_dir={self.model_dir}", "--train_epochs=1", *map(str, flags)]
        return subprocess.run(command, capture_output=True, timeout=DEADLINE, text=True)

    def assert_refused(self, done: subprocess.CompletedProcess, code: int, *words: object) -> None:
        told = f"{done.args}\n{done.stderr}"
        self.assertEqual(done.returncode, code, told)
        self.assertEqual(done.stdout, "")
        lines = [line for line in done.stderr.splitlines() if all(str(word) in line for word in words)]
        self.assertEqual(len(lines), 1, f"{words}\n{told}")
        self.assertFalse((self.model_dir / "checkpoint").exists())

    def refuse(self, code: int, flags: list, *words: object) -> None:
        with self.subTest(flags):
            done = self.execute(*flags)
            self.assert_refused(done, code, "ncf_main: ", *words)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def refuse_ratings(self, code: int, name: str, text: str, *words: object) -> None:
        self.refuse(code, [f"--ratings_file={self.write(name, text)}"], *words)

    def test_good_ratings(self) -> None:
        done = self.execute(f"--ratings_file={self.write('good', self.good)}", "--output=json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"HR": ', done.stdout)

    def test_lines_that_are_no_ratings(self) -> None:
        number = "is not in 1 to 2147483647: number"
        for name, text, words in (
            ("semicolons", self.good.replace(",", ";"), ["line 1: expected user,item,", '"user_id;item_id;rating;']),
            ("tabs", self.good.replace(",", "\t"), ["line 1: expected user,item,", "or user::item::", r'"user_id\titem']),
            ("header_twice", HEADER + self.good, ["line 2: ", HEADER.strip(), "only the first line may be a header"]),
            ("user_0", self.good + "0,1,4,5\n", [f'line 3002: user "0" {number} users from 1 on']),
            ("item_0", self.good + "1,0,4,5\n", [f'line 3002: item "0" {number} items from 1 on']),
            ("negative", self.good + "1,-7,4,5\n", [f'line 3002: item "-7" {number}']),
            ("large", self.good + "2147483648,7,4,5\n", [f'line 3002: user "2147483648" {number}']),
            ("cut", self.good[:-15], ["line 3001: expected user,item,", "where the file ends"]),
            ("empty", "", ["has no ratings"]),
        ):
            self.refuse_ratings(65, name, text, self.folder / name, *words)

    def test_ratings_without_negatives(self) -> None:
        everything = self.good + ratings_of(1000, list(range(1, NUM_ITEMS + 1)))
        words = ["user 1000 has rated 1200 of the 1200 items", "leave this user out"]
        self.refuse_ratings(2, "everything", everything, *words)
        self.refuse(2, [f"--ratings_file={self.folder / 'everything'}", "--ml_perf"], *words)
        alone = ratings_of(7, list(range(1, 31)))
        self.refuse_ratings(2, "one_user", alone, "user 7 has rated 30 of the 30 items", "ratings of more users")
        self.refuse_ratings(2, "few", ratings_of(7, [1, 2, 3]), "none of the 1 users has 20 ratings", "one has is 3")

    def test_files(self) -> None:
        for code, path, words in (
            (65, self.write_zip("up.zip", "../ratings.csv"), ["lies outside of it", '"../ratings.csv"']),
            (65, self.write_zip("around.zip", "a/../../ratings.csv"), ["lies outside of it"]),
            (65, self.write_zip("other.zip", "films.csv"), ["has no ratings.csv and no ratings.dat"]),
            (65, self.write("text.zip", self.good), ["no zip archive"]),
            (66, self.folder / "absent", ["No such file"]),
            (66, self.folder, ["it is a directory"]),
        ):
            self.refuse(code, [f"--ratings_file={path}"], path, *words)

    def test_flags(self) -> None:
        good = self.write("good", self.good)
        for code, flags, words in (
            (2, ["--batch_size=20000"], ["--batch_size=20000", "14500 examples of an epoch", "try --batch_size=14500"]),
            (66, ["--predict=3"], ["there is no checkpoint in"]),
            (73, [f"--mlperf_log={good}/log"], [f"{good}: Not a directory"]),
        ):
            self.refuse(code, [f"--ratings_file={good}", *flags], *words)
        for flags, words in (
            (["--dataset=ml-10m"], ["--dataset=ml-10m", "<ml-1m|ml-20m>"]),
            (["--model=als"], ["--model=als", "<neumf|gmf|mlp>"]),
            (["--layers=15,8"], ["--layers=15,8", "an even first size"]),
            (["--eval_batch_size=many"], ["--eval_batch_size=many", "at least 1"]),
            (["--predict=one"], ["--predict=one", "a comma separated list of users"]),
            (["--stop_threshold=0.6"], ["--stop_threshold=0.6", "--hr_threshold"]),
        ):
            with self.subTest(flags):
                self.assert_refused(self.execute(*flags), 2, "FATAL Flags parsing error: ", *words)


if __name__ == "__main__":
    unittest.main(verbosity=2)
