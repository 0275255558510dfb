"""What ncf_main says to bad flags and bad ratings: one line, and the documented exit status.

Usage: MODULE NCF_MAIN [unittest argument...]
"""

import json
import os
import random
import subprocess
import tempfile
import unittest
import unittest.mock
import zipfile
from pathlib import Path

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments

NUM_ITEMS = 1200
HEADER = "user_id,item_id,rating,timestamp\n"

(ncf,) = programs_of_arguments(1)


def ratings_of(user: int, items: list[int]) -> str:
    return "".join(f"{user},{item},4,{978300000 + item}\n" for item in items)


def u_data() -> str:
    """Ratings of the shape of MovieLens 100K: as many users, items and ratings, at least 20 and up to 737 a user, fields
    between tabs, no header, in no order."""
    rng = random.Random(1)
    counts = {user: 20 for user in range(1, 944)} | {405: 737}
    others = sorted(counts.keys() - {405})
    diligence = [rng.paretovariate(1) for _ in others]
    while (missing := 100000 - sum(counts.values())) > 0:
        for user in rng.choices(others, diligence, k=missing):
            counts[user] += counts[user] < 685
    lines = [
        f"{user}\t{item}\t{rng.randint(1, 5)}\t{rng.randint(874724710, 893286638)}\n"
        for user, count in counts.items()
        for item in rng.sample(range(1, 1683), count)
    ]
    rng.shuffle(lines)
    return "".join(lines)


class ProgramsTest(ProgramTestCase):
    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        rng = random.Random(1)
        # 100 users with 30 ratings, of which each keeps one back: an epoch has 100 * 29 * 5 examples.
        users = (ratings_of(user, rng.sample(range(1, NUM_ITEMS + 1), 30)) for user in range(1, 101))
        cls.good = HEADER + "".join(users)

    def write_zip(self, name: str, member: str) -> Path:
        path = self.folder / name
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, self.good)
        return path

    def run_ncf(self, *flags: object, model_dir: Path | None = None) -> subprocess.CompletedProcess[str]:
        self.model_dir = model_dir or Path(tempfile.mkdtemp(dir=self.folder))
        return self.execute(ncf, f"--model_dir={self.model_dir}", "--train_epochs=1", *flags)

    def assert_refused(self, done: subprocess.CompletedProcess[str], code: int, *words: object) -> None:
        super().assert_refused(done, code, *words)
        self.assertFalse((self.model_dir / "checkpoint").exists())

    def refuse(self, code: int, flags: list, *words: object) -> None:
        with self.subTest(flags):
            done = self.run_ncf(*flags)
            self.assert_refused(done, code, "ncf_main: ", *words)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def refuse_ratings(self, code: int, name: str, text: str, *words: object) -> None:
        self.refuse(code, [f"--ratings_file={self.write(name, text)}"], *words)

    def test_good_ratings(self) -> None:
        done = self.run_ncf(f"--ratings_file={self.write('good', self.good)}", "--output=json")
        self.assert_succeeded(done)
        self.assertIn('"HR": ', done.stdout)

    def test_movielens_100k(self) -> None:
        """Trained, evaluated and used to predict as it is published, with the titles of its films."""
        data = self.write("u.data", u_data())
        titles = self.folder / "u.item"
        titles.write_bytes("".join(f"{i}|Mis\xe9rables {i} (1995)|01-Jan-1995||x|0\n" for i in range(1, 1683)).encode("latin-1"))
        flags = [f"--ratings_file={data}", "--batch_size=1000", "--output=json"]
        done = self.run_ncf(*flags)
        self.assert_succeeded(done, "945 negatives, not 999: user 405 has rated 737 of the 1682 items")
        trained, end = map(json.loads, done.stdout.splitlines())
        self.assertEqual((end["event"], end["status"], end["steps"]), ("end", "finished", end["global_step"]))
        self.assertGreater(end["examples_per_sec"], 0)
        self.assertGreater(trained["HR"], 0)
        model_dir = f"--model_dir={self.model_dir}"
        done = self.run_ncf(*flags, model_dir, "--eval_only")
        self.assertEqual(json.loads(done.stdout.splitlines()[0]), trained, done.stderr)
        done = self.run_ncf(*flags, model_dir, f"--item_names={titles}", "--predict=405,1", "--top_k=3")
        predictions = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([prediction["user"] for prediction in predictions], [405, 1], done.stderr)
        for item in predictions[0]["items"]:
            self.assertEqual(item["name"], f"Mis\xe9rables {item['item']} (1995)")
        done = self.run_ncf(f"--ratings_file={data}", model_dir, f"--item_names={titles}", "--predict=1")
        self.assertRegex(done.stdout, r"user 1:\n +-?[0-9.]+  item (\d+)  Mis\xe9rables \1 \(1995\)\n")

        self.refuse(2, [flags[0], "--num_eval_negatives=999"], "user 405", "which leaves 945", "--num_eval_negatives=945")
        other = self.write("other.item", "5000|Other (1995)\n")
        self.refuse(2, [flags[0], f"--item_names={other}"], f"--item_names={other} names none of the 1682 items")
        text = self.write("notes", "no list\n")
        self.refuse(65, [flags[0], f"--item_names={text}"], f"{text} line 1: expected the number of an item")

    def test_the_network_of_the_training(self) -> None:
        flags = [f"--ratings_file={self.write('good', self.good)}", "--batch_size=1000"]
        done = self.run_ncf(*flags, "--model=mlp", "--layers=16,8,4", "--learning_rate=0.01")
        self.assert_succeeded(done)
        model_dir = self.model_dir
        for use in (["--predict=3"], ["--eval_only"], [f"--export_dir={self.folder / 'export'}"]):
            done = self.run_ncf(*flags, *use, model_dir=model_dir)
            self.assert_succeeded(done, f"as {model_dir} was trained: --model=mlp --layers=16,8,4\n")
        for use in ([], ["--predict=3", "--layers=8,4", "--model=mlp"]):
            with self.subTest(use):
                done = self.run_ncf(*flags, *use, model_dir=model_dir)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(f"--model_dir={model_dir} was trained with ", done.stderr)
                self.assertIn("--layers=16,8,4, but this command has ", done.stderr)
                self.assertIn("--layers=16,8,4 to use that network", done.stderr)
        more = ["--num_eval_negatives=50", "--ml_perf", "--learning_rate=0.1", "--train_epochs=7"]
        done = self.run_ncf(*flags, "--eval_only", *more, model_dir=model_dir)
        self.assert_succeeded(done, "last: --num_eval_negatives=50 (was ), --ml_perf=true (was false)\n")
        done = self.run_ncf(*flags, "--eval_only", model_dir=model_dir)
        self.assertNotIn("differ", done.stderr)
        done = self.run_ncf(*flags, "--model=mlp", "--layers=16,8,4", model_dir=model_dir)
        self.assertIn("nothing to do", done.stderr)
        self.assertIn("flags that differ from this run's last: --learning_rate=0.001 (was 0.01)", done.stderr)
        (model_dir / "flags.txt").unlink()  # as of TensorFlow: the variables tell
        done = self.run_ncf(*flags, "--predict=3", "--model=mlp", model_dir=model_dir)
        self.assertEqual((done.returncode, done.stdout), (65, ""), done.stderr)
        self.assertIn("not of this model", done.stderr.splitlines()[-1])
        self.assertLess(len(done.stderr.splitlines()[-1]), 1000)

    def test_ratings_of_other_users(self) -> None:
        trained, flags = self.write("trained", self.good), ["--batch_size=1000", "--num_factors=2", "--layers=4,2"]
        done = self.run_ncf(f"--ratings_file={trained}", *flags)
        self.assert_succeeded(done)
        model_dir = self.model_dir
        # User 1 is the one who was user 100, and the other way round: as many users, in other rows.
        lines = [line.split(",", 1) for line in self.good.splitlines()]
        swapped = {"1": "1000"}
        others = "".join(f"{swapped.get(user, user)},{rest}\n" for user, rest in lines)
        other = self.write("others", others)
        for use in (["--predict=3"], ["--eval_only"], [f"--export_dir={self.folder / 'others_export'}"], ["--train_epochs=2"]):
            with self.subTest(use):
                done = self.run_ncf(f"--ratings_file={other}", *flags, *use, model_dir=model_dir)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                told = f"the network in --model_dir={model_dir} was trained on ratings of 100 users and "
                self.assertIn(told, done.stderr.splitlines()[-1])
                self.assertIn(f"--ratings_file={other} has 100 users and ", done.stderr.splitlines()[-1])
        # Rows are in the order in which users and items first appear in the file.
        lines = self.good.splitlines(keepends=True)
        reordered = self.write("reordered", HEADER + "".join(reversed(lines[1:])))
        done = self.run_ncf(f"--ratings_file={reordered}", *flags, "--predict=3", model_dir=model_dir)
        self.assertEqual(done.returncode, 2, done.stderr)
        more = self.write("more", self.good + lines[1])
        done = self.run_ncf(f"--ratings_file={more}", *flags, "--predict=3", model_dir=model_dir)
        self.assert_succeeded(done)

    def test_ratings_that_are_not_given_again(self) -> None:
        ratings = self.write("trained", self.good)
        self.assert_succeeded(self.run_ncf(f"--ratings_file={ratings}", "--batch_size=1000"))
        data_dir = self.folder / "no_ratings"
        for use in ("--predict=3", "--eval_only", "--train_epochs=2"):
            with self.subTest(use):
                done = self.run_ncf(use, f"--data_dir={data_dir}", model_dir=self.model_dir)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn(f"was trained with --ratings_file={ratings}; give that flag", done.stderr)
                self.assertFalse(data_dir.exists())

    def test_users_with_few_ratings(self) -> None:
        ratings = self.write("few", self.good + ratings_of(1000, [1, 2, 3]))
        told = f"{ratings}: users with fewer than 20 ratings are left out: 1 of 101, with 3 ratings"
        flags = [f"--ratings_file={ratings}", "--batch_size=1000"]
        self.assert_succeeded(self.run_ncf(*flags), told)
        done = self.run_ncf(*flags, "--predict=1000", model_dir=self.model_dir)
        self.assertEqual((done.returncode, done.stdout), (66, ""), done.stderr)
        self.assertIn("user 1000 is not among the 100 users with at least 20 ratings", done.stderr)

    def test_lines_that_are_no_ratings(self) -> None:
        number = "is not in 1 to 2147483647: number"
        for name, text, words in (
            ("bars", self.good.replace(",", "|"), ["line 1: expected four fields, user, item,", '"user_id|item_id|rating|']),
            ("mixed", self.good + "1\t2\t3\t4\n", ["line 3002: expected user, item,", "with , between", r'"1\t2\t3\t4"']),
            ("header_twice", HEADER + self.good, ["line 2: ", HEADER.strip(), "only the first line may be a header"]),
            ("user_0", self.good + "0,1,4,5\n", [f'line 3002: user "0" {number} users from 1 on']),
            ("item_0", self.good + "1,0,4,5\n", [f'line 3002: item "0" {number} items from 1 on']),
            ("negative", self.good + "1,-7,4,5\n", [f'line 3002: item "-7" {number}']),
            ("large", self.good + "2147483648,7,4,5\n", [f'line 3002: user "2147483648" {number}']),
            ("cut", self.good[:-15], ["line 3001: expected user, item,", "where the file ends"]),
            ("empty", "", ["has no ratings"]),
        ):
            self.refuse_ratings(65, name, text, self.folder / name, *words)

    def test_ratings_without_negatives(self) -> None:
        everything = self.good + ratings_of(1000, list(range(1, NUM_ITEMS + 1)))
        words = ["user 1000 has rated 1200 of the 1200 items", "leave this user out"]
        self.refuse_ratings(2, "everything", everything, *words)
        self.refuse(2, [f"--ratings_file={self.folder / 'everything'}", "--ml_perf"], *words)
        # Any network has a user's last item among the first 10 of 9.
        rng = random.Random(1)
        users = (ratings_of(user, rng.sample(range(1, 31), 22)) for user in range(1, 41))
        self.write("eight_left", "".join(users))
        words = ["which leaves 8 to be drawn", "99 are needed", "leave this user out"]
        self.refuse(2, [f"--ratings_file={self.folder / 'eight_left'}", "--ml_perf"], *words)
        alone = ratings_of(7, list(range(1, 31)))
        self.refuse_ratings(2, "one_user", alone, "user 7 has rated 30 of the 30 items", "ratings of more users")
        self.refuse_ratings(2, "few", ratings_of(7, [1, 2, 3]), "none of the 1 users has 20 ratings", "one has is 3")

    def test_files(self) -> None:
        for code, path, words in (
            (65, self.write_zip("up.zip", "../ratings.csv"), ["lies outside of it", '"../ratings.csv"']),
            (65, self.write_zip("around.zip", "a/../../ratings.csv"), ["lies outside of it"]),
            (65, self.write_zip("other.zip", "films.csv"), ["has no ratings.csv, no ratings.dat and no u.data"]),
            (65, self.write("text.zip", self.good), ["not a readable zip archive"]),
            (66, self.folder / "absent", ["No such file"]),
            (66, self.folder, ["it is a directory"]),
        ):
            self.refuse(code, [f"--ratings_file={path}"], path, *words)

    def test_no_data_and_no_network(self) -> None:
        data_dir = self.folder / "mistyped"
        nowhere = {name: "http://127.0.0.1:1" for name in ("http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy")}
        with unittest.mock.patch.dict(os.environ, nowhere):
            words = [f"there is no directory {data_dir} with ml-100k.zip", "https://grouplens.org", "--use_synthetic_data"]
            self.assert_refused(self.run_ncf("--dataset=ml-100k", f"--data_dir={data_dir}"), 69, *words)
        self.assertFalse(data_dir.exists())

    def test_flags(self) -> None:
        good = self.write("good", self.good)
        for code, flags, words in (
            (2, ["--batch_size=20000"], ["--batch_size=20000", "14500 examples of an epoch", "try --batch_size=14500"]),
            (66, ["--predict=3"], ["there is no checkpoint in"]),
            (73, [f"--mlperf_log={good}/log"], [f"{good}: Not a directory"]),
            (73, [f"--mlperf_log={good}"], [f"cannot log to {good}: it does not begin with", "remove it"]),
        ):
            self.refuse(code, [f"--ratings_file={good}", *flags], *words)
        self.assertEqual(good.read_text(), self.good)
        for flags, words in (
            (["--dataset=ml-10m"], ["--dataset=ml-10m", "<ml-100k|ml-1m|ml-20m>"]),
            (["--num_eval_negatives=9"], ["--num_eval_negatives=9", "at least 10"]),
            (["--num_eval_negatives=2147483647"], ["--num_eval_negatives=2147483647", "at most 100000"]),
            (["--num_neg=2147483647"], ["--num_neg=2147483647", "at most 100000"]),
            (["--mlp_regularization=0,0,0,inf"], ["--mlp_regularization=0,0,0,inf", "finite numbers"]),
            (["--model=gmf", "--mlp_regularization=0,0,0,1"], ["--mlp_regularization=0,0,0,1", "--model=gmf, which has no"]),
            (["--model=mlp", "--mf_regularization=0.1"], ["--mf_regularization=0.1", "--model=mlp, which has no"]),
            (["--model=als"], ["--model=als", "<neumf|gmf|mlp>"]),
            (["--layers=15,8"], ["--layers=15,8", "an even first size"]),
            (["--eval_batch_size=many"], ["--eval_batch_size=many", "at least 1"]),
            (["--predict=one"], ["--predict=one", "a comma-separated list of users"]),
            (["--predict="], ["flag --predict: names no user; without the flag, the program trains"]),
            (["--stop_threshold=0.6"], ["--stop_threshold=0.6", "--hr_threshold"]),
        ):
            with self.subTest(flags):
                self.assert_refused(self.run_ncf(*flags), 2, "FATAL Flags parsing error: ", *words)
        config = self.write("dumped.flags", "--predict=\n")
        self.assertEqual(self.run_ncf(f"--flagfile={config}", "--dump_config").returncode, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
