"""What checkpoint_tool does with checkpoints of mnist_main, and what it says to bad words and bad files.

Usage: MODULE CHECKPOINT_TOOL MNIST_MAIN [unittest argument...]
"""

import json
import shutil
import struct
import subprocess
import unittest
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments

tool, mnist = programs_of_arguments(2)


def read_safetensors(path: Path) -> dict[str, tuple[dict[str, Any], bytes]]:
    """The header's entry and the bytes of each tensor."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__")
    data = content[8 + size :]
    return {name: (entry, data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_safetensors(path: Path, floats: dict[str, list[float]], metadata: dict[str, str] | None = None) -> None:
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, values in floats.items():
        end = len(data) + 4 * len(values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [len(data), end]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class CheckpointToolTest(ProgramTestCase):
    """All tests use one run with checkpoints of steps 2, 4 and 6."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.run_dir = cls.folder / "run"
        done = cls.train(cls.run_dir, "--max_train_steps=6", "--keep_checkpoint_max=3")
        assert done.returncode == 0, done.stderr
        cls.last = cls.run_dir / "model.ckpt-6"

    @classmethod
    def train(cls, model_dir: Path, *flags: object) -> subprocess.CompletedProcess[str]:
        shared = ("--use_synthetic_data", "--batch_size=4", "--save_checkpoints_steps=2", f"--model_dir={model_dir}")
        return cls.execute(mnist, *shared, *flags)

    @classmethod
    def tool(cls, *words: object) -> subprocess.CompletedProcess[str]:
        return cls.execute(tool, *words)

    def objects(self, *words: object, code: int = 0) -> list[dict[str, Any]]:
        done = self.tool(*words, "--output=json")
        self.assertEqual(done.returncode, code, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def floats(self, path: Path, name: str) -> list[float]:
        return self.objects("show", path, name, "--num_values=10000")[0]["values"]

    def new_folder(self, name: str) -> Path:
        folder = self.folder / f"{self.id().rsplit('.', 1)[1]}_{name}"
        folder.mkdir()
        return folder

    def copy_of_run(self) -> Path:
        copy = self.new_folder("copy")
        shutil.copytree(self.run_dir, copy, dirs_exist_ok=True)
        return copy

    def files_below(self, folder: Path) -> Iterator[tuple[Path, bytes]]:
        return ((path, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file())

    # ---- Words ----

    def test_words_that_are_wrong(self) -> None:
        for words, told in (
            ([], ["name a command, one of ls, show, diff, average, verify, rename, convert"]),
            (["lst"], ["there is no command lst; did you mean ls?"]),
            (["averge", "a"], ["did you mean average?"]),
            (["frobnicate"], ["the commands are ls, show"]),
            (["ls"], ["write: checkpoint_tool ls PATH; here are 0 words"]),
            (["diff", "a"], ["write: checkpoint_tool diff A B; here is 1 word: a"]),
            (["ls", "a", "b"], ["here are 2 words"]),
            (["ls", self.last, "--map=a=b"], ["flag --map has no effect on ls; it is for rename"]),
            (["diff", self.last, self.last, "--tolerance=-1"], ["--tolerance=-1", "at least 0"]),
            (["average", "out", self.last], ["an average needs two checkpoints or more"]),
            (["average", "out", self.last, self.last, "--last=2"], ["--last takes one directory"]),
            (["rename", self.last, self.folder / "x"], ["rename needs --map=REGEX=REPLACEMENT"]),
        ):
            with self.subTest(words):
                self.assert_refused(self.tool(*words), 2, *told)

    def test_paths_that_are_no_checkpoint(self) -> None:
        folder = self.new_folder("files")
        with zipfile.ZipFile(folder / "weights.npz", "w") as archive:
            archive.writestr("a.npy", b"")
        (folder / "weights.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
        (folder / "weights.tar").write_bytes(bytes(257) + b"ustar" + bytes(250))
        (folder / "weights.pkl").write_bytes(b"\x80\x04\x95" + bytes(20))
        (folder / "weights.index").write_bytes(b"PK\x03\x04" + bytes(100))
        (folder / "weights.safetensors").write_bytes(b"PK\x03\x04" + bytes(100))
        (folder / "text").write_text("hello\n")
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
        unnamed = self.new_folder("unnamed")
        for suffix in (".index", ".data-00000-of-00001"):
            shutil.copy(f"{self.last}{suffix}", unnamed / f"ckpt-5{suffix}")
        for path, code, told in (
            (folder / "weights.npz", 65, ["weights.npz is a zip archive, not a checkpoint"]),
            (folder / "weights.h5", 65, ["weights.h5 is an HDF5 file, not a checkpoint"]),
            (folder / "weights.tar", 65, ["weights.tar is a tar archive, not a checkpoint"]),
            (folder / "weights.pkl", 65, ["weights.pkl is a Python pickle, not a checkpoint"]),
            (folder / "weights.index", 65, ["weights.index", "(the file is a zip archive)"]),
            (folder / "weights.safetensors", 65, ["is no safetensors file", "(the file is a zip archive)"]),
            (folder / "text", 65, ["text is no checkpoint; name the directory of a run"]),
            (folder / "model.safetensors.index.json", 65, ["json lists the safetensors files", "name one of these"]),
            (self.new_folder("empty"), 66, ["there is no checkpoint in"]),
            (unnamed, 66, ["has no state file that names its latest checkpoint", f"; name one: {unnamed}/ckpt-5"]),
            (folder / "none", 66, ["there is no checkpoint", "none.index does not exist"]),
            (self.run_dir / "model.ckpt-66", 66, ["did you mean model.ckpt-6"]),
        ):
            for command in ("ls", "verify", "show"):
                with self.subTest((command, path.name)):
                    self.assert_refused(self.tool(command, path), code, *told)

    # ---- Reading ----

    def test_ls(self) -> None:
        done = self.tool("ls", self.run_dir)
        self.assert_succeeded(done)
        lines = done.stdout.splitlines()
        self.assertEqual(lines[:3], [f"checkpoint {self.run_dir}/model.ckpt-{n}" for n in (2, 4)] +
                         [f"checkpoint {self.last} (latest)"])  # fmt: skip
        self.assertRegex(done.stdout, r"\nglobal_step +int64\[\] +8\n")
        self.assertRegex(lines[-1], rf"^\d+ variables, \d+ bytes in {self.last}$")
        for path in (self.last, f"{self.last}.index", f"{self.last}.data-00000-of-00001", self.run_dir / "checkpoint"):
            self.assertEqual(self.tool("ls", path).stdout.splitlines()[-1], lines[-1])
        *variables, end = self.objects("ls", self.last)
        self.assertIn(
            {"event": "variable", "name": "global_step", "dtype": "int64", "shape": [], "bytes": 8}, variables
        )
        self.assertEqual(end["variables"], len(variables))
        self.assertEqual(end["bytes"], (Path(f"{self.last}.data-00000-of-00001")).stat().st_size)
        self.assertEqual([o["latest"] for o in self.objects("ls", self.run_dir)[:3]], [False, False, True])

    def test_show(self) -> None:
        done = self.tool("show", self.last, "global_step")
        self.assert_succeeded(done)
        self.assertEqual(done.stdout, "global_step  int64[]\n  min 6, max 6, mean 6, std 0, 0 not finite\n  6\n")
        path = self.folder / "shown.safetensors"
        write_safetensors(path, {"a": [1.0, 3.0, float("nan")], "b": [0.1] * 20}, {"string:s": "x\ty"})
        done = self.tool("show", path)
        self.assert_succeeded(done)
        self.assertEqual(
            done.stdout,
            "a  float32[3]\n  min 1, max 3, mean 2, std 1, 1 not finite\n  1.0 3.0 nan\n"
            f"b  float32[20]\n  min 0.1, max 0.1, mean 0.1, std 0, 0 not finite\n {' 0.1' * 8} ...\n"
            's  string[]\n  "x\\ty"\n',
        )
        (shown,) = self.objects("show", path, "b", "--num_values=1")
        self.assertEqual(shown["shape"], [20])
        self.assertEqual(len(shown["values"]), 1)
        self.assert_refused(self.tool("show", self.last, "global_stop"), 66, "did you mean global_step?")

    def test_diff(self) -> None:
        done = self.tool("diff", self.last, self.run_dir)
        self.assert_succeeded(done)
        self.assertRegex(done.stdout, r"^\d+ variables are the same\n$")
        a, b = self.folder / "a.safetensors", self.folder / "b.safetensors"
        write_safetensors(a, {"same": [1], "value": [1, 2, 4], "type": [1], "a": [1]}, {"string:s": "x"})
        write_safetensors(b, {"same": [1], "value": [1, 2, 5], "type": [1, 2]}, {"string:s": "y"})
        done = self.tool("diff", a, b)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stdout,
            f"a  float32[1]  only in {a}\n"
            "s  string[]  1 of 1 differ\n"
            "type  float32[1] and float32[2]\n"
            "value  float32[3]  1 of 3 differ, at most by 1, relatively by 0.2\n",
        )
        self.assertIn("differ: of 4 variables that both have, 1 have other types and 2 other values; 1 are in", done.stderr)
        *_, end = self.objects("diff", a, b, "--tolerance=0.2", code=1)
        self.assertEqual(end, {"event": "end", "only_in_one": 1, "types": 1, "values": 1, "compared": 3})
        write_safetensors(b, {"same": [1], "value": [1, 2, 5], "type": [1], "a": [1]}, {"string:s": "x"})
        self.assertEqual(self.tool("diff", a, b).returncode, 1)
        self.assertEqual(self.tool("diff", a, b, "--tolerance=0.2").stdout, "5 variables are the same within the tolerance\n")

    def test_verify(self) -> None:
        done = self.tool("verify", self.run_dir)
        self.assert_succeeded(done)
        self.assertRegex(done.stdout, r"^\d+ variables in 3 checkpoints are good\n$")
        copy = self.copy_of_run()
        data = copy / "model.ckpt-4.data-00000-of-00001"
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
        (copy / "model.ckpt-2.index").write_bytes(b"")
        done = self.tool("verify", copy)
        self.assertEqual(done.returncode, 65, done.stderr)
        first, second = done.stdout.splitlines()
        self.assertIn(f"{copy}/model.ckpt-2.index: holds 0 bytes", first)
        self.assertRegex(second, rf'^{data}: tensor "\S+", \d+ bytes at offset \d+: Checksum does not match')
        self.assertIn("checkpoint_tool: 2 errors in ", done.stderr)
        self.assertEqual(self.tool("verify", copy / "model.ckpt-4").stdout, second + "\n")
        bad, end = self.objects("verify", copy / "model.ckpt-4", code=65)
        self.assertEqual((bad["event"], bad["message"], end["bad"]), ("bad", second, 1))

    def test_verify_finds_that_the_latest_checkpoint_is_missing(self) -> None:
        copy = self.copy_of_run()
        state = copy / "checkpoint"
        # The directory may have been moved.
        state.write_text(state.read_text().replace("model.ckpt-6", "/elsewhere/model.ckpt-6"))
        self.assert_succeeded(self.tool("verify", copy))
        (copy / "model.ckpt-6.index").unlink()
        done = self.tool("verify", copy)
        self.assertEqual(done.returncode, 65, done.stderr)
        self.assertEqual(done.stdout, f"{state} names model.ckpt-6 as the latest checkpoint, but {copy}/model.ckpt-6.index does not exist\n")
        self.assertIn("checkpoint_tool: 1 errors in ", done.stderr)
        self.assertEqual(self.objects("verify", copy, code=65)[-1]["checkpoints"], 3)

    def test_verify_finds_numbers_that_are_not_finite(self) -> None:
        weights = self.folder / "weights.safetensors"
        write_safetensors(weights, {"w": [0, 1, float("inf"), float("nan")]})
        prefix = self.new_folder("run") / "model.ckpt-0"
        self.assert_succeeded(self.tool("convert", weights, prefix))
        told = "variable w (float32[4]): 2 of 4 elements are not finite; the first, element 2 at offset "
        done = self.tool("verify", prefix)
        self.assertEqual(done.returncode, 65)
        self.assertEqual(done.stdout, f"{prefix}.data-00000-of-00001: {told}8, is inf\n")
        offset = 8 + struct.unpack("<Q", weights.read_bytes()[:8])[0] + 8
        self.assertEqual(self.tool("verify", weights).stdout, f"{weights}: {told}{offset}, is inf\n")

    # ---- Writing ----

    def test_average_can_be_evaluated(self) -> None:
        out = self.folder / "averaged"
        done = self.tool("average", out, self.run_dir, "--last=2")
        self.assert_succeeded(done)
        self.assertEqual(
            done.stdout, f"averaged {self.run_dir}/model.ckpt-4\naveraged {self.last}\nwrote {out}/model.ckpt-6\n"
        )
        self.assertEqual((out / "flags.txt").read_bytes(), (self.run_dir / "flags.txt").read_bytes())
        small = [v for v in self.objects("ls", out) if v["event"] == "variable" and v["bytes"] < 10000]
        names = [v["name"] for v in small if v["dtype"] == "float32"]
        self.assertIn("dense/bias", names)
        for name in names:
            if name.startswith("_run/"):
                continue
            four, six = (self.floats(self.run_dir / f"model.ckpt-{step}", name) for step in (4, 6))
            mean = [struct.unpack("<f", struct.pack("<f", (a + b) / 2))[0] for a, b in zip(four, six)]
            self.assertEqual(self.floats(out, name), mean, name)
        self.assertEqual(self.floats(out, "global_step"), [6])
        self.assert_succeeded(self.tool("verify", out))
        evaluated = self.train(out, "--eval_only", "--output=json")
        self.assert_succeeded(evaluated)
        self.assertIn("global_step", evaluated.stdout)
        self.assertEqual(self.tool("diff", out, self.last).returncode, 1)

    def test_average_leaves_what_is_there(self) -> None:
        out = self.new_folder("out")
        self.assert_succeeded(self.tool("average", out, self.last, self.last))  # an empty directory
        self.assert_succeeded(self.tool("diff", out, self.last))  # the mean of twice the same
        before = list(self.files_below(out))
        self.assert_refused(self.tool("average", out, self.last, self.last), 73, "is not empty; add --overwrite")
        self.assertEqual(list(self.files_below(out)), before)
        other = self.run_dir / "model.ckpt-2"
        self.assert_succeeded(self.tool("average", out, other, self.last, "--overwrite"))
        self.assertEqual(self.tool("diff", out, self.last).returncode, 1)
        for words, code, told in (
            ([self.run_dir, "--last=9"], 66, ["--last=9", "has 3 checkpoints"]),
            ([self.last, "--last=2"], 66, ["needs the directory of a run"]),
            ([self.last, self.folder / "none"], 66, ["there is no checkpoint"]),
        ):
            with self.subTest(words):
                missing = self.folder / "missing"
                self.assert_refused(self.tool("average", missing, *words), code, *told)
                self.assertFalse(missing.exists())
        self.assert_refused(
            self.tool("average", self.run_dir, self.last, self.last, "--overwrite"), 2, "is the directory of"
        )

    def test_average_needs_the_same_variables(self) -> None:
        a, b = self.folder / "one.safetensors", self.folder / "other.safetensors"
        write_safetensors(a, {"w": [1]})
        write_safetensors(b, {"w": [1, 2]})
        out = self.folder / "mixed"
        self.assert_refused(self.tool("average", out, a, b), 2, "w (float32[1]) and w (float32[2])")
        self.assertFalse(out.exists())

    def test_a_failed_average_leaves_nothing(self) -> None:
        copy = self.copy_of_run()
        data = copy / "model.ckpt-4.data-00000-of-00001"
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
        out = self.folder / "failed"
        self.assert_refused(self.tool("average", out, copy / "model.ckpt-4", self.last), 65, "Checksum does not match")
        self.assertFalse(out.exists())

    def test_convert_and_back(self) -> None:
        weights, back = self.folder / "w.safetensors", self.new_folder("back") / "model.ckpt-6"
        self.assert_succeeded(self.tool("convert", self.run_dir, weights))
        tensors = read_safetensors(weights)
        self.assertEqual(tensors["global_step"][1], struct.pack("<q", 6))
        self.assertEqual(tensors["dense/bias"][0]["dtype"], "F32")
        self.assert_succeeded(self.tool("convert", weights, back))
        for suffix in (".index", ".data-00000-of-00001"):
            self.assertEqual(Path(f"{back}{suffix}").read_bytes(), Path(f"{self.last}{suffix}").read_bytes())
        self.assert_refused(self.tool("convert", self.last, weights), 73, "exists; add --overwrite to replace it")
        self.assert_refused(self.tool("convert", weights, back), 73, f"{back}.", "add --overwrite")
        self.assert_succeeded(self.tool("convert", self.run_dir / "model.ckpt-2", weights, "--overwrite"))
        self.assertEqual(read_safetensors(weights)["global_step"][1], struct.pack("<q", 2))
        shutil.copy(self.run_dir / "flags.txt", back.parent)
        self.assert_succeeded(self.train(back.parent, "--eval_only"))

    def test_no_file_of_an_overwritten_checkpoint_is_left(self) -> None:
        out = self.new_folder("out") / "model.ckpt-6"
        others = {"model.ckpt-6.data-x.index", "model.ckpt-60.meta"}  # of other checkpoints
        Path(f"{out}.meta").write_text("the graph of other variables")
        self.assert_refused(self.tool("convert", self.last, out), 73, f"{out}.meta exists; add --overwrite")
        for name in ("model.ckpt-6.data-00000-of-00002", "model.ckpt-6.data-00001-of-00002", *others):
            (out.parent / name).write_text("")
        self.assert_succeeded(self.tool("convert", self.last, out, "--overwrite"))
        written = {"model.ckpt-6.index", "model.ckpt-6.data-00000-of-00001"}
        self.assertEqual({path.name for path in out.parent.iterdir()}, written | others)
        self.assert_succeeded(self.tool("diff", self.last, out))

    def test_a_directory_may_have_the_name_of_a_file_of_a_checkpoint(self) -> None:
        out = self.new_folder("run.data-v2") / "model.ckpt-6"
        self.assert_succeeded(self.tool("convert", self.last, out))
        self.assert_refused(self.tool("convert", self.last, f"{out}.data-00000-of-00001"), 2, "is one file of a checkpoint")

    def test_outputs_that_cannot_be(self) -> None:
        folder = self.new_folder("out")
        for out, code, told in (
            (folder, 2, ["is a directory; name the checkpoint in it"]),
            (f"{folder}/", 2, ["is a directory"]),
            (f"{folder}/model.ckpt-1.index", 2, ["is one file of a checkpoint"]),
            ("/proc/none/x.safetensors", 73, ["/proc/none"]),
        ):
            with self.subTest(out):
                self.assert_refused(self.tool("convert", self.last, out), code, *told)
        self.assertEqual(list(folder.iterdir()), [])

    def test_rename_keeps_the_metadata_of_safetensors(self) -> None:
        out = self.folder / "renamed.safetensors"
        weights = self.folder / "named.safetensors"
        write_safetensors(weights, {"w": [1]}, {"author": "me"})
        self.assert_succeeded(self.tool("rename", weights, out, "--map=w=v"))
        content = out.read_bytes()
        self.assertIn(b'"__metadata__":{"author":"me"}', content)
        self.assertEqual(list(read_safetensors(out)), ["v"])

    def test_names_that_tensorflow_cannot_have(self) -> None:
        weights = self.folder / "odd_names.safetensors"
        for name in ("", "\0w"):
            write_safetensors(weights, {name: [1]})
            with self.subTest(name):
                told = "a variable cannot have the name"
                self.assert_refused(self.tool("convert", weights, self.folder / "odd"), 2, told)
                self.assert_refused(self.tool("average", self.folder / "odd", weights, weights), 2, told)
        self.assertEqual(list(self.folder.glob("odd*")), [weights])

    def test_rename(self) -> None:
        out = self.new_folder("out") / "model.ckpt-6"
        done = self.tool("rename", self.last, out, r"--map=^dense(_\d)?/=layers/dense\1/,/bias$=/b")
        self.assert_succeeded(done)
        self.assertIn("dense/bias -> layers/dense/b\n", done.stdout)
        self.assertRegex(done.stdout, r"\nwrote \d+ variables to .*, \d+ of them renamed\n$")
        self.assertEqual(self.floats(out, "layers/dense/b"), self.floats(self.last, "dense/bias"))
        self.assert_succeeded(self.tool("verify", out))
        other = out.with_name("other")
        for rule, told in (
            ("no_equals", ["has no =; write REGEX=REPLACEMENT"]),
            ("=x", ["write REGEX=REPLACEMENT"]),
            ("(=x", ["is no regular expression: missing )"]),
            (r"dense=\1", [r"dense=\\1"]),
            ("nothing_like_it=x", ["changes no name in", self.last]),
            ("^.*$=", ["a variable cannot have the name"]),
            ("^.*$=x", ["would both be named x"]),
        ):
            with self.subTest(rule):
                self.assert_refused(self.tool("rename", self.last, other, f"--map={rule}"), 2, *told)
        self.assertEqual([p.name for p in out.parent.iterdir() if p.name.startswith("other")], [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
