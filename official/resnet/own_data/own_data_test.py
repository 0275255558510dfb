"""Your own photographs: from a folder for each class to records, a trained network and predictions with names.

Usage: MODULE RESNET_MAIN IMAGENET_TO_TFRECORDS_MAIN DATA_CHECK [unittest argument...]
"""

import json
import os
import random
import shutil
import struct
import subprocess
import unittest
import unittest.mock
from pathlib import Path

from official.programs.program_test_case import ProgramTestCase, png, programs_of_arguments

CLASSES = ["mug", "pen", "Wall clock"]
NAMES = ["background", "Wall clock", "mug", "pen"]  # in the order of their classes
PICTURES = 20  # of each class
SIZE = 48  # pixels of a side

resnet, convert, check = programs_of_arguments(3)


def picture(color: tuple[int, ...], seed: int) -> bytes:
    """A picture of a color, with noise."""
    rng = random.Random(seed)
    return png(SIZE, bytes(max(0, c - rng.randrange(60)) for _ in range(SIZE * SIZE) for c in color))


class OwnDataTest(ProgramTestCase):
    deadline = 600

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.photos, cls.records = cls.folder / "photos", cls.folder / "records"
        for number, name in enumerate(CLASSES):
            (cls.photos / name).mkdir(parents=True)
            color = tuple(220 if channel == number else 70 for channel in range(3))
            for i in range(PICTURES):
                (cls.photos / name / f"{name} {i}.png").write_bytes(picture(color, 1000 * number + i))
        cls.converted = cls.execute(
            convert, f"--images_dir={cls.photos}", f"--output_dir={cls.records}", "--validation_fraction=0.2"
        )
        # The smallest network, on 48 pictures, in steps of 8 of them.
        cls.flags = ["--resnet_size=18", "--batch_size=8", "--output=json", "--num_gpus=0", "--batch_norm_momentum=0.6"]
        cls.model_dir = cls.folder / "model"
        cls.trained = cls.execute(
            resnet, *cls.flags, f"--data_dir={cls.records}", f"--model_dir={cls.model_dir}",
            "--train_epochs=1",
            f"--export_dir={cls.folder / 'export'}",
        )

    def resnet(self, *flags: object) -> subprocess.CompletedProcess[str]:
        return self.execute(resnet, *self.flags, *flags)

    def refuse(self, code: int, flags: list, *words: object) -> None:
        with self.subTest(flags):
            self.assert_refused(self.resnet(*flags), code, *words)

    def damaged_copy(self, name: str, damage: list[int], split: str = "train") -> Path:
        """The records, with a byte changed in the data of those of the split's file that are named."""
        copy = self.folder / name
        copy.mkdir()
        for file in self.records.iterdir():
            data = bytearray(file.read_bytes())
            offset = record = 0
            while file.name.startswith(f"{split}-") and offset < len(data):
                length = struct.unpack_from("<Q", data, offset)[0]
                if record in damage:
                    data[offset + 12 + length // 2] ^= 1
                offset += length + 16
                record += 1
            (copy / file.name).write_bytes(data)
        return copy

    def test_records(self) -> None:
        self.assert_succeeded(self.converted)
        self.assertIn("60 images of 3 classes in 1 files in ", self.converted.stdout)
        self.assertIn(", 12 of the images for validation in 1 more\n", self.converted.stdout)
        self.assertEqual((self.records / "labels.txt").read_text().splitlines(), NAMES)
        checked = self.execute(check, self.records)
        self.assertEqual(checked.stdout.splitlines()[-1], "60 records in 2 files, all good", checked.stderr)
        for name, records in ("train-00000-of-00001", 48), ("validation-00000-of-00001", 12):
            line = f"{self.records / name}: TFRecord of images: {records} records, all good"
            self.assertIn(line, checked.stdout.splitlines())
        self.assert_refused(self.execute(check, self.folder / "none"), 66, self.folder / "none")
        for flags, word in (
            (["--validation_fraction=1"], "less than 1"),
            (["--validation_fraction=0.2", "--split=train"], "cannot be combined"),
        ):
            refused = self.execute(convert, f"--images_dir={self.photos}", f"--output_dir={self.folder}/x", *flags)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(word, refused.stderr)

    def test_results_as_json(self) -> None:
        """What the converter and the checker tell, as an object a line."""
        records = self.folder / "json_records"
        flags = [f"--images_dir={self.photos}", f"--output_dir={records}", "--num_shards=2"]
        done = self.execute(convert, *flags, "--output=json", "--log_format=json")
        self.assert_succeeded(done)
        self.assertEqual(
            json.loads(done.stdout),
            {"event": "end", "output_dir": str(records), "images": 60, "classes": 3, "files": 2,
             "validation_images": 0, "validation_files": 0},
        )  # fmt: skip
        done = self.execute(check, records, "--output=json")
        *files, end = map(json.loads, done.stdout.splitlines())
        self.assertEqual(end, {"event": "end", "files": 2, "records": 60, "bad_records": 0})
        self.assertEqual([(file["event"], file["records"], file["bad_records"]) for file in files], [("file", 30, 0)] * 2)
        done = self.execute(check, self.damaged_copy("json_damaged", [5]), "--output=json")
        self.assertEqual(done.returncode, 65)
        *lines, end = map(json.loads, done.stdout.splitlines())
        (bad,) = (line for line in lines if line["event"] == "bad_record")
        self.assertEqual((bad["event"], bad["record"], bad["line"]), ("bad_record", 5, None))
        self.assertIn(f"record 5 at offset {bad['offset']}: ", bad["message"])
        self.assertEqual((end["records"], end["bad_records"]), (60, 1))

    def test_trained_network(self) -> None:
        """It is evaluated again, and names what is in a picture, with nothing but its directory."""
        self.assert_succeeded(self.trained)
        results, _ = map(json.loads, self.trained.stdout.splitlines())
        self.assertEqual(results["global_step"], 6)
        self.assertTrue(0 <= results["accuracy"] <= 1, results)
        evaluated = self.resnet(f"--data_dir={self.records}", f"--model_dir={self.model_dir}", "--eval_only")
        evaluation, end = map(json.loads, evaluated.stdout.splitlines())
        self.assertEqual(evaluation, results, evaluated.stderr)
        self.assertEqual(end, {"event": "end", "status": "finished", "global_step": 6})
        validation = self.folder / "validation"
        validation.mkdir()
        shutil.copy(self.records / "validation-00000-of-00001", validation)
        evaluated = self.resnet(f"--data_dir={validation}", f"--model_dir={self.model_dir}", "--eval_only")
        self.assertEqual(json.loads(evaluated.stdout.splitlines()[0]), results, evaluated.stderr)

        pictures = [self.photos / name / f"{name} 3.png" for name in CLASSES]
        predicted = self.resnet(f"--model_dir={self.model_dir}", f"--predict={','.join(map(str, pictures))}")
        self.assert_succeeded(predicted)
        answers = [json.loads(line) for line in predicted.stdout.splitlines()]
        self.assertEqual([answer["file"] for answer in answers], list(map(str, pictures)))
        for answer in answers:
            self.assertEqual({c["class"]: c["name"] for c in answer["classes"]}, dict(enumerate(NAMES)))
            self.assertAlmostEqual(sum(c["probability"] for c in answer["classes"]), 1, places=5)

        shown = self.resnet(f"--model_dir={self.model_dir}", "--output=text", "--predict", pictures[2])
        self.assertRegex(shown.stdout, r"Wall clock 3\.png:\n(.*\n)*  [01]\.\d{4}  1  Wall clock\n")
        [export] = (self.folder / "export").iterdir()
        self.assertEqual((export / "assets.extra" / "labels.txt").read_text().splitlines(), NAMES)

        trained, picture = f"--model_dir={self.model_dir}", f"--predict={pictures[0]}"
        self.refuse(2, [trained, picture, "--top_k=5"], "--top_k=5 is more than the 4 classes")
        self.refuse(2, [trained, picture, "--num_classes=7"], "labels.txt names 4 classes", "the network has 7")
        labels = self.folder / "other.txt"
        labels.write_text("background\none\n")
        self.refuse(2, [trained, picture, f"--label_file={labels}"], f"--label_file={labels} names 2 classes")

    def test_other_classes(self) -> None:
        """They start a training of their own from the variables that fit, but do not continue in the same directory."""
        other = self.folder / "other"
        (self.folder / "two").mkdir()
        for name in CLASSES[:2]:
            (self.folder / "two" / name).symlink_to(self.photos / name)
        done = self.execute(
            convert, f"--images_dir={self.folder / 'two'}", f"--output_dir={other}", "--validation_fraction=0.1"
        )
        self.assert_succeeded(done)
        flags = [f"--data_dir={other}", "--train_epochs=1", "--max_train_steps=1"]
        for rehearsal in [], ["--dry_run"]:
            trained = [f"--model_dir={self.model_dir}", *rehearsal]
            self.refuse(2, [*flags, *trained], "class 1 differs: ", "Wall clock", "--fine_tune=")
        self.assert_succeeded(self.resnet(*flags, f"--model_dir={self.model_dir}", "--dry_run", "--clean"))
        tuned = self.folder / "tuned"
        done = self.resnet(*flags, f"--model_dir={tuned}", f"--fine_tune={self.model_dir}")
        self.assert_succeeded(done)
        predicted = self.resnet(f"--model_dir={tuned}", f"--predict={self.photos / 'mug' / 'mug 0.png'}")
        names = {c["name"] for c in json.loads(predicted.stdout)["classes"]}
        self.assertEqual(names, {"background", "mug", "pen"}, predicted.stderr)

    def test_records_without_names(self) -> None:
        """The names that training has left are those of all that continues or evaluates it."""
        records = self.damaged_copy("nameless", [])
        (records / "labels.txt").unlink()
        model_dir = self.folder / "continued"
        shutil.copytree(self.model_dir, model_dir)
        flags = [f"--data_dir={records}", f"--model_dir={model_dir}", "--train_epochs=1"]
        self.assert_succeeded(self.resnet(*flags, "--dry_run"))
        cluster = {"cluster": {"chief": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}}
        with unittest.mock.patch.dict(os.environ, {"TF_CONFIG": json.dumps(cluster)}):
            self.assert_succeeded(self.resnet(*flags, "--eval_start_delay_secs=0"))
        self.assert_succeeded(self.resnet(*flags, "--train_epochs=2", "--max_train_steps=7"))
        self.assertEqual((model_dir / "labels.txt").read_text().splitlines(), NAMES)

    def test_a_run_that_never_trained(self) -> None:
        """It leaves no names that refuse a run with other classes in its directory."""
        model_dir = self.folder / "never trained"
        labels = model_dir / "labels.txt"
        flags = [f"--data_dir={self.records}", f"--model_dir={model_dir}", "--train_epochs=1", "--max_train_steps=1"]
        nowhere = self.folder / "nowhere"
        self.refuse(66, [*flags, f"--fine_tune={nowhere}"], "there is no checkpoint", nowhere)
        self.assertFalse(labels.exists())
        # One that was killed before its first checkpoint has left these.
        (model_dir / "flags.txt").write_text("--batch_size=8\n")
        labels.write_text("background\nWall clock\ncup\npen\n")
        self.assert_succeeded(self.resnet(*flags), f"{labels} is of a run that ended before its first checkpoint")
        self.assertEqual(labels.read_text().splitlines(), NAMES)
        # Neither do they name the classes of data without names.
        unnamed = self.damaged_copy("without names", [])
        (unnamed / "labels.txt").unlink()
        without = self.folder / "never trained, without names"
        without.mkdir()
        (without / "flags.txt").write_text("--batch_size=8\n")
        (without / "labels.txt").write_text("background\nWall clock\n")
        self.refuse(
            2,
            [f"--data_dir={unnamed}", f"--model_dir={without}", "--train_epochs=1", "--max_train_steps=1"],
            "the data have no names of classes, and", without / "labels.txt",
            "is of a run that ended before its first checkpoint, or yours; remove it",
        )
        self.assertTrue((without / "labels.txt").exists())

    def test_names_that_no_run_has_left(self) -> None:
        """They are those of data without names, and stay."""
        model_dir = self.folder / "named by hand"
        model_dir.mkdir()
        labels = model_dir / "labels.txt"
        names = ["background", "clock", "mug", "pen"]
        labels.write_text("\n".join(names))
        flags = [f"--model_dir={model_dir}", "--train_epochs=1", "--max_train_steps=1"]
        told = f"nothing is trained in {model_dir} yet: correct or remove its labels.txt"
        self.refuse(2, [*flags, f"--data_dir={self.records}"], "class 1 differs: ", labels, 'names it "clock"', told)
        unnamed = self.damaged_copy("to be named by hand", [])
        (unnamed / "labels.txt").unlink()
        self.assert_succeeded(self.resnet(*flags, f"--data_dir={unnamed}"))
        predicted = self.resnet(f"--model_dir={model_dir}", f"--predict={self.photos / 'mug' / 'mug 0.png'}")
        self.assertEqual({c["name"] for c in json.loads(predicted.stdout)["classes"]}, set(names), predicted.stderr)
        self.assertEqual(labels.read_text(), "\n".join(names))

        made_up = self.folder / "made up"
        made_up.mkdir()
        shutil.copy(labels, made_up)
        synthetic = ["--use_synthetic_data", "--batch_size=2", "--max_train_steps=1"]
        self.assert_succeeded(self.resnet(f"--model_dir={made_up}", *synthetic))
        self.assertEqual((made_up / "labels.txt").read_text(), "\n".join(names))

    def test_number_of_classes(self) -> None:
        """What the records have and what the flag says must agree."""
        new = f"--model_dir={self.folder / 'refused'}"
        data = f"--data_dir={self.records}"
        self.refuse(2, [data, new, "--num_classes=5"], "labels.txt names 4 classes", "the network has 5 (--num_classes)")
        unnamed = self.damaged_copy("unnamed", [])
        (unnamed / "labels.txt").unlink()
        self.refuse(65, [f"--data_dir={unnamed}", new, "--num_classes=2", "--max_train_steps=9"],
                    unnamed, ": record ", "expected a label from 0 to 1, found ")
        for flags, words in (
            (["--num_classes=1"], ["--num_classes=1", "at least 2"]),
            (["--num_classes=4", "--top_k=5"], ["--top_k=5", "at most 4"]),
            (["--dataset_name=cifar10", "--num_classes=4"], ["--num_classes=4", "CIFAR-10 has 10 classes"]),
            (["--dataset_name=cifar10", "--skip_bad_records=4"], ["--skip_bad_records=4", "CIFAR-10"]),
        ):
            self.refuse(2, [data, new, "--resnet_size=50" if "cifar10" not in flags[0] else "--resnet_size=20", *flags], *words)

    def test_damaged_records(self) -> None:
        damaged = self.damaged_copy("damaged", [1, 3])  # of the first batch, in the order of the file
        flags = [f"--data_dir={damaged}", "--noshuffle", "--max_train_steps=1"]
        path = damaged / "train-00000-of-00001"
        self.refuse(65, [*flags, f"--model_dir={self.folder / 'stopped'}"], f"{path}: record ", "corrupted record")
        self.assertFalse((self.folder / "stopped" / "labels.txt").exists())  # nothing was trained
        done = self.resnet(*flags, f"--model_dir={self.folder / 'skipped'}", "--skip_bad_records=2")
        self.assert_succeeded(done)
        self.assertEqual(json.loads(done.stdout.splitlines()[0])["global_step"], 1)
        for record in 1, 3:
            self.assertEqual(done.stderr.count(f"skipped: {path}: record {record} at offset "), 1, done.stderr)
        self.assertIn("skipped 2 damaged records in all, of at most --skip_bad_records=2", done.stderr)
        self.refuse(65, [*flags, f"--model_dir={self.folder / 'one'}", "--skip_bad_records=1"],
                    "more than --skip_bad_records=1 records are damaged")
        for allowed, code in ((1, 65), (2, 0)):
            checked = self.execute(check, f"--skip_bad_records={allowed}", damaged)
            self.assertEqual(checked.returncode, code, checked.stderr)
            self.assertEqual(checked.stdout.count("corrupted record"), 2)

    def test_evaluations_leave_damaged_records_out(self) -> None:
        damaged = self.damaged_copy("damaged for validation", [1], "validation")
        flags = [f"--data_dir={damaged}", f"--model_dir={self.model_dir}", "--eval_only", "--skip_bad_records=1"]
        done = self.resnet(*flags)
        self.assert_succeeded(done)
        self.assertIn("evaluated 11 examples in ", done.stderr)  # of 12

    def test_a_chief_beside_an_evaluator_looks_for_no_damaged_records(self) -> None:
        damaged = self.damaged_copy("damaged for the evaluator", [1, 3], "validation")
        flags = [f"--data_dir={damaged}", f"--model_dir={self.folder / 'chief'}", "--max_train_steps=1"]
        cluster = {"chief": ["127.0.0.1:1"], "evaluator": ["127.0.0.1:2"]}
        tf_config = {"cluster": cluster, "task": {"type": "chief", "index": 0}}
        with unittest.mock.patch.dict(os.environ, {"TF_CONFIG": json.dumps(tf_config)}):
            done = self.resnet(*flags, "--skip_bad_records=1")
        self.assert_succeeded(done)
        self.assertNotIn("skipped", done.stderr)

    def test_pages_in_place_of_records(self) -> None:
        page = self.folder / "page"
        page.mkdir()
        (page / "train-00000-of-00001").write_text("<!DOCTYPE html><html><body>404: there is no such file</body></html>")
        self.refuse(65, [f"--data_dir={page}", f"--model_dir={self.folder / 'none'}"],
                    "not a TFRecord file: the file is an HTML page")


if __name__ == "__main__":
    unittest.main(verbosity=2)
