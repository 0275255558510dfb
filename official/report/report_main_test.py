"""The page and the summary of report_main for runs, and what it says to bad words and bad files.

Usage: MODULE REPORT_MAIN MNIST_MAIN RESNET_MAIN NCF_MAIN TRANSFORMER_MAIN [unittest argument...]
"""

import base64
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import unittest
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from official.programs.program_test_case import ProgramTestCase, programs_of_arguments

report, mnist, resnet, ncf, transformer = programs_of_arguments(5)

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "img"}  # elements without an end
BROWSERS = ("chromium-headless-shell", "chromium")


class Page(HTMLParser):
    """The elements of a page: their texts by tag, and all attributes. Each must be closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data

    def graphs(self) -> dict[str, ElementTree.Element]:
        """By their titles. What is not well-formed XML is an error."""
        found = re.findall(r"<svg xmlns.*?</svg>", self.text, re.DOTALL)
        trees = [ElementTree.fromstring(svg) for svg in found]
        return {str(tree.findtext(f"{SVG}title")): tree for tree in trees}


class ReportMainTest(ProgramTestCase):
    """All tests use one run of 12 steps, which was resumed after 6, one of 6 with another batch size, and one on digits
    that all look the same, so that most predictions are wrong."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.first, cls.second, cls.digits = cls.folder / "first", cls.folder / "second", cls.folder / "digits"
        cls.train(cls.first, "--batch_size=4", "--max_train_steps=6")
        cls.train(cls.first, "--batch_size=4", "--max_train_steps=12")
        cls.train(cls.second, "--batch_size=8", "--max_train_steps=6")
        data_dir = cls.folder / "data"
        data_dir.mkdir()
        for part in ("train", "t10k"):
            cls.write_idx(data_dir / f"{part}-images-idx3-ubyte", (20, 28, 28), bytes([0, 255]) * (10 * 28 * 28))
            cls.write_idx(data_dir / f"{part}-labels-idx1-ubyte", (20,), bytes(range(10)) * 2)
        cls.train(cls.digits, "--nouse_synthetic_data", f"--data_dir={data_dir}", "--batch_size=10", "--train_epochs=1")

    @staticmethod
    def write_idx(path: Path, shape: tuple[int, ...], content: bytes) -> None:
        path.write_bytes(struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + content)

    @classmethod
    def train(cls, model_dir: Path, *flags: str) -> None:
        done = cls.execute(
            mnist, "--use_synthetic_data", "--log_every_n_steps=2", f"--model_dir={model_dir}", "--noshuffle", *flags
        )
        assert done.returncode == 0, done.stderr

    def report(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = self.execute(report, *words)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def page(self, *words: object) -> Page:
        path = self.folder / f"{self.id().rsplit('.', 1)[1]}.html"
        self.report(*words, f"--output_file={path}")
        return Page(path.read_text())

    def objects(self, *words: object) -> list[dict[str, Any]]:
        path = self.folder / f"{self.id().rsplit('.', 1)[1]}.html"
        done = self.report(*words, "--output=json", f"--output_file={path}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def new_run(self, name: str, metrics: str = "") -> Path:
        run = self.folder / name
        run.mkdir()
        (run / "metric.log").write_text(metrics)
        return run

    @staticmethod
    def metric(step: int, value: str, name: str = "loss") -> str:
        return f'{{"name": "{name}", "value": {value}, "unit": null, "global_step": {step}, "extras": []}}\n'

    # ---- The page ----

    def test_the_page_of_a_run(self) -> None:
        done = self.report(self.first)
        self.assertEqual(done.stderr, "")
        path = self.first / "report.html"
        self.assertTrue(done.stdout.endswith(f"page: {path}\n"), done.stdout)
        page = Page(path.read_text())
        path.unlink()
        self.assertEqual(page.texts["title"][0], str(self.first))
        self.assertIn(("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}), page.elements)
        self.assertIn("prefers-color-scheme: dark", page.text)
        self.assertIn("mnist", page.texts["td"])
        self.assertIn("MNIST-synthetic", page.texts["td"])
        self.assertIn("--batch_size", page.texts["th"])
        graphs = page.graphs()
        self.assertEqual(list(graphs)[:2], ["loss", "accuracy"])
        self.assertIn("learning rate", graphs)
        self.assertIn("steps per second", graphs)
        self.assertIn("share of the time that steps wait for data", graphs)

    def test_the_page_needs_nothing_else(self) -> None:
        page = self.page(self.first)
        for tag, attributes in page.elements:
            self.assertNotIn(tag, ("script", "link", "iframe", "object"))
            for name, value in attributes.items():
                self.assertFalse(name.startswith("on"), name)
                if name in ("src", "href"):
                    self.assertTrue(str(value).startswith("data:image/png;base64,"), value)
        self.assertNotRegex(page.text.replace("http://www.w3.org/2000/svg", ""), r"https?://|url\(|@import")

    def test_the_graph_has_the_losses_of_the_run(self) -> None:
        records = [json.loads(line) for line in (self.first / "metric.log").read_text().splitlines()]
        losses = {}
        for before, record in zip([{}, *records], records):
            if record["name"] == "loss" and before.get("name") != "accuracy":
                losses[record["global_step"]] = record["value"]
        self.assertEqual(list(losses), [2, 4, 6, 8, 10, 12])
        (curve,) = [
            curve
            for curve in self.objects(self.first)[0]["curves"]
            if (curve["name"], curve["split"]) == ("loss", "training")
        ]
        self.assertAlmostEqual(curve["last"], losses[12], places=5)
        self.assertAlmostEqual(curve["min"], min(losses.values()), places=2)
        graph = self.page(self.first).graphs()["loss"]
        description = str(graph.findtext(f"{SVG}desc"))
        self.assertIn(f"to {losses[12]:.4g} at step 12", description)
        paths = [path.get("d", "") for path in graph.iter(f"{SVG}path")]
        points = [tuple(map(float, point)) for point in re.findall(r"([\d.]+) ([\d.]+)", paths[0])]
        # The loss falls evenly, so its heights tell the values: y grows downwards.
        self.assertGreaterEqual(len(points), 6)
        self.assertEqual([y for _, y in points], sorted(y for _, y in points))

    def test_several_runs_are_compared(self) -> None:
        page = self.page(self.first, self.second)
        rows = re.findall(r'<tr class="differs">.*?</tr>', page.text, re.DOTALL)
        differing = {re.search(r"--(\w+)", row)[1]: re.findall(r"<td>(.*?)</td>", row) for row in rows if "--" in row}
        self.assertEqual(differing["batch_size"], ["4", "8"])
        self.assertEqual(set(differing), {"batch_size", "model_dir", "max_train_steps"})
        lines = page.graphs()["loss"].findall(f"{SVG}g")
        classes = {group.get("class") for group in lines}
        self.assertLessEqual({"c0", "c0 eval", "c1", "c1 eval"}, classes)

    def test_names_are_text(self) -> None:
        name = '<script>alert("1")</script>&\'x'
        run = self.new_run("odd")
        odd = run.parent / name.replace("/", "\u2215")
        run.rename(odd)
        (odd / "metric.log").write_text(self.metric(1, "0.5", "<b>") + self.metric(2, "0.25", "<b>"))
        (odd / "flags.txt").write_text('--data_dir="><img src=x onerror=alert(1)>\n')
        page = self.page(odd)
        self.assertEqual(page.texts["title"][0], str(odd))
        self.assertNotIn("script", page.texts)
        self.assertNotIn("img", [tag for tag, _ in page.elements])
        self.assertIn('"><img src=x onerror=alert(1)>', page.texts["td"])
        self.assertIn("<b>", page.graphs())

    def test_samples(self) -> None:
        """Of digits that look the same, one prediction is made for all; so it is wrong for nine of ten classes."""
        page = self.page(self.digits)
        (run, _) = self.objects(self.digits)
        self.assertEqual([sample["class"] for sample in run["samples"]], [str(i % 10) for i in range(16)])
        self.assertEqual(len({sample["prediction"] for sample in run["samples"]}), 1)
        cards = re.findall(r"<li(?: class=\"wrong\")?><img .*?</li>", page.text)
        self.assertEqual(len(cards), 16)
        for sample, card in zip(run["samples"], cards):
            self.assertEqual(list(sample), ["class", "prediction", "probability"])
            self.assertEqual(re.findall(r"<dd dir=\"auto\">([^< ]*)", card), list(sample.values()))
            self.assertGreaterEqual(float(sample["probability"]), 0.1)  # the largest of 10
            self.assertEqual("wrong" in card, sample["class"] != sample["prediction"])
        wrong = sum(sample["class"] != sample["prediction"] for sample in run["samples"])
        self.assertIn(wrong, (14, 15))
        self.assertIn(f"{wrong} of 16 predictions are wrong.", page.texts["p"])
        self.assertIn(f"{self.digits}, evaluation of step 2", page.texts["h3"])
        images = [attributes for tag, attributes in page.elements if tag == "img"]
        self.assertEqual(len(images), 16)
        self.assertEqual(images[0]["alt"], "example 1: class 0")
        off = self.folder / "no_samples"
        self.train(off, "--batch_size=4", "--max_train_steps=2", "--eval_samples=0")
        self.assertNotIn("Samples", self.page(off).texts["h2"])

    def test_users(self) -> None:
        """Of 30 users, each of whom has rated the last of 25 items later than the others."""
        run = self.train_users()
        (told, _) = self.objects(run)
        page = self.page(run)
        self.assertEqual([sample["user"] for sample in told["samples"]], [str(user) for user in range(1, 17)])
        for sample in told["samples"]:
            self.assertEqual(sample["held-out item"], f"<i>{int(sample['user']) % 50 + 1}</i>")
            self.assertEqual(len(sample["recommended"].split("; ")), 10)
            place, items = map(int, sample["its place"].split(" of "))
            self.assertEqual(items, 26)  # of 50, of which 24 are rated otherwise
            first = re.search(rf"(\d+)\. {sample['held-out item']}(;|$)", sample["recommended"])
            self.assertEqual(int(first[1]) if first else None, place if place <= 10 else None)
            for text in sample.values():
                self.assertIn(text, page.texts["dd"])
        self.assertNotIn("img", [tag for tag, _ in page.elements])

    def train_users(self) -> Path:
        run = self.new_run(f"users_{self.id().rsplit('.', 1)[1]}")
        names, ratings = run / "names.csv", run / "ratings.csv"
        names.write_text("".join(f"{item},<i>{item}</i>\n" for item in range(1, 51)))
        ratings.write_text(
            "".join(f"{u},{(u + i) % 50 + 1},5,{1000 - i}\n" for u in range(1, 31) for i in range(25)),
        )
        done = self.execute(
            ncf, f"--ratings_file={ratings}", f"--item_names={names}", f"--model_dir={run}", "--batch_size=100",
            "--num_eval_negatives=10", "--train_epochs=1",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        return run

    def test_translations(self) -> None:
        run = self.folder / "translations"
        letters = [f"'{letter}{end}'\n" for letter in "abcd" for end in ("", "_")]
        vocab = self.write("vocab", "'<pad>'\n'<EOS>'\n" + "".join(letters) + "'_'\n'\\\\'\n'u'\n';'\n")
        sources, references = ["a b c", "b c"], ["b c d", "c d"]
        source = self.write("source", "\n".join(sources) + "\n")
        reference = self.write("reference", "\n".join(references) + "\n")
        network = "hidden_size=8,filter_size=8,num_heads=2,num_hidden_layers=1,vocab_size=20"
        done = self.execute(
            transformer, "--use_synthetic_data", "--param_set=tiny", f"--params_override={network}", "--batch_size=256",
            "--train_steps=1", "--steps_between_evals=1", f"--bleu_source={source}", f"--bleu_ref={reference}",
            f"--vocab_file={vocab}", f"--model_dir={run}",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        (told, _) = self.objects(run)
        self.assertEqual([list(sample) for sample in told["samples"]], [["source", "reference", "translation"]] * 2)
        self.assertEqual([sample["source"] for sample in told["samples"]], sources)
        self.assertEqual([sample["reference"] for sample in told["samples"]], references)
        page = self.page(run)
        self.assertIn(f"{run}, evaluation of step 1", page.texts["h3"])
        cards = re.findall(r"<li><dl>.*?</li>", page.text)
        self.assertEqual(len(cards), 2)
        for sample, card in zip(told["samples"], cards):
            self.assertEqual(re.findall(r"<dt>(.*?)</dt>", card), list(sample))
            self.assertEqual(re.findall(r"<dd dir=\"auto\">(.*?)</dd>", card), list(sample.values()))
        self.assertNotIn("img", [tag for tag, _ in page.elements])

    def test_recorded_images(self) -> None:
        run = self.folder / "resnet"
        done = self.execute(
            resnet, "--dataset_name=cifar10", "--resnet_size=8", "--use_synthetic_data", "--batch_size=4",
            "--max_train_steps=2", "--log_every_n_steps=1", f"--model_dir={run}",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        page = self.page(run)
        images = [attributes for tag, attributes in page.elements if tag == "img"]
        self.assertEqual(
            [image["alt"] for image in images],
            [f"example {i}: class airplane" for i in range(1, 9)] + [f"images/image/{i}" for i in range(4)],
        )
        for image in images:
            data = base64.b64decode(str(image["src"]).removeprefix("data:image/png;base64,"), validate=True)
            self.assertTrue(data.startswith(b"\x89PNG\r\n\x1a\n"))
            self.assertTrue(image["alt"])

    def test_a_profile(self) -> None:
        run = self.folder / "profiled"
        done = self.execute(
            mnist, "--use_synthetic_data", "--batch_size=8", "--max_train_steps=5", f"--model_dir={run}",
            "--profile=2:4", "--log_format=json",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        events = [json.loads(line) for line in done.stderr.splitlines()]
        (profile,) = [event for event in events if event["event"] == "profile"]
        self.assertEqual((profile["first_step"], profile["last_step"]), (2, 4))
        shares = [profile[f"{part}_share"] for part in ("data_wait", "all_reduce", "other_ops", "between_ops")]
        self.assertAlmostEqual(sum(shares), 1, delta=0.01)
        self.assertEqual(profile["all_reduce_share"], 0)
        products = [op for op in profile["ops"] if op["gflops_per_sec"] is not None]
        self.assertIn("FusedMatMul", [op["op"] for op in products])
        for op in profile["ops"]:
            self.assertEqual(op["calls"] % 3, 0, op)
            self.assertGreater(op["gbytes_per_sec"], 0, op)
        trace = json.loads((run / "profile-2-4.json").read_text())["traceEvents"]
        flops = sum(event["args"].get("flops", 0) for event in trace if event["ph"] == "X")
        # By hand, of 8 examples, forward, and backward to weights and, but in the first layer, to inputs: convolutions
        # of 5 * 5 to 32 channels of 28 * 28 pixels and from these to 64 of 14 * 14, layers 3136 * 1024 and 1024 * 10.
        layers = (25 * 32 * 28 * 28, 25 * 32 * 64 * 14 * 14, 3136 * 1024, 1024 * 10)
        expected = 3 * 8 * 2 * (2 * layers[0] + 3 * sum(layers[1:]))
        self.assertAlmostEqual(flops / expected, 1, places=3)
        page = self.page(run)
        self.assertIn("waits for data", str(page.graphs()["time by op"].findtext(f"{SVG}desc")))
        self.assertIn("FusedMatMul", page.texts["th"])

    # ---- The summary ----

    def test_the_summary(self) -> None:
        done = self.report(self.second, f"--output_file={self.folder / 'summary.html'}")
        self.assertRegex(done.stdout, r"mnist on MNIST-synthetic, 6 steps, [\d.]+ s from first to last event")
        self.assertRegex(done.stdout, r"\n  loss +[▁▂▃▄▅▆▇█]+ +2\.\d+ -> 2\.\d+\n")
        self.assertNotIn("\x1b", done.stdout)
        for columns in (40, 60, 120):
            wide = subprocess.run(
                [report, self.second, f"--output_file={self.folder / 'summary.html'}"],
                env={**os.environ, "COLUMNS": str(columns)},
                capture_output=True,
                check=True,
                text=True,
            )
            for line in wide.stdout.splitlines()[:-1]:
                self.assertLessEqual(len(line), columns)

    def test_colours(self) -> None:
        command = [report, self.second, f"--output_file={self.folder / 'colours.html'}"]
        for variables, coloured in (({"CLICOLOR_FORCE": "1"}, True), ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False)):
            done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, check=True, text=True)
            self.assertEqual("\x1b[" in done.stdout, coloured)

    def test_json(self) -> None:
        run, end = self.objects(self.second)
        self.assertEqual((run["event"], run["path"], run["last_step"]), ("run", str(self.second), 6))
        self.assertEqual(run["facts"]["data"], "MNIST-synthetic")
        self.assertIn(("accuracy", "evaluation"), [(curve["name"], curve["split"]) for curve in run["curves"]])
        self.assertEqual(end["event"], "end")
        self.assertTrue(Path(end["page"]).read_text().startswith("<!DOCTYPE html>"))

    # ---- What is bad ----

    def test_words_that_are_wrong(self) -> None:
        for words, code, told in (
            ([], 2, "name the directory of a run"),
            ([self.first, self.first], 2, "is named twice"),
            ([""], 2, "the name of a directory is empty"),
            ([self.folder / "none"], 66, "there is no directory"),
            ([self.first / "flags.txt"], 66, f"is not a directory; name the --model_dir of a run, such as {self.first}"),
            ([self.first / "flags.txt", "--output_file=x"], 66, "is not a directory"),
            ([self.first, f"--output_file={self.first / 'metric.log'}"], 73, "is not an HTML page and is not replaced"),
            ([self.first, f"--output_file={self.folder / 'none' / 'x.html'}"], 73, f"no directory {self.folder / 'none'} for"),
        ):
            with self.subTest(words):
                done = self.report(*words, code=code)
                self.assert_refused(done, code, told)
        empty = self.folder / "empty"
        empty.mkdir()
        self.assert_refused(self.report(empty, code=66), 66, "has no event files and no metric.log")
        self.assertEqual(list(empty.iterdir()), [])

    def test_damaged_files(self) -> None:
        garbage = self.new_run("garbage", "no metrics\n")
        self.assert_refused(self.report(garbage, code=65), 65, "1 of 1 lines are not metrics, the first is line 1")
        self.assertFalse((garbage / "report.html").exists())
        partly = self.new_run("partly", self.metric(1, "2") + "no metric\n" + self.metric(2, "1") + '{"name": "lo')
        done = self.report(partly)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn("1 of 4 lines are not metrics, the first is line 2", done.stderr)
        self.assertIn("Damaged files", (partly / "report.html").read_text())

    def test_values_that_are_not_finite(self) -> None:
        run = self.new_run("nan", self.metric(1, "NaN") + self.metric(2, "-Infinity") + self.metric(3, "Infinity"))
        (graph,) = self.page(run).graphs().values()
        self.assertIn("no finite value", str(graph.findtext(f"{SVG}desc")))
        (curve,) = self.objects(run)[0]["curves"]
        self.assertEqual((curve["not_finite"], curve["count"], curve["last"]), (3, 0, None))
        self.assertEqual((curve["first_step"], curve["last_step"]), (None, None))
        diverged = self.new_run("diverged", self.metric(100, "0.8") + self.metric(200, "0.9") + self.metric(300, "NaN"))
        self.assertIn("0.9 at step 200; between", self.page(diverged).text)
        (curve,) = self.objects(diverged)[0]["curves"]
        self.assertEqual((curve["first_step"], curve["first"]), (100, 0.8))
        self.assertEqual((curve["last_step"], curve["last"]), (200, 0.9))

    def test_a_large_log(self) -> None:
        """The memory does not depend on the length of the log, and extremes are kept."""
        run = self.new_run("large")
        with (run / "metric.log").open("w") as log:
            for step in range(200000):
                log.write(self.metric(step, "-77.5" if step == 123456 else str(step % 100)))

        def limit_memory() -> None:
            resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20))

        done = subprocess.run(
            [report, run, "--output=json"], preexec_fn=limit_memory, capture_output=True, timeout=self.deadline
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        (curve,) = json.loads(done.stdout.splitlines()[0])["curves"]
        self.assertEqual((curve["count"], curve["min"], curve["max"], curve["last"]), (200000, -77.5, 99, 99))
        page = run / "report.html"
        self.assertLess(page.stat().st_size, 100000)
        (graph,) = Page(page.read_text()).graphs().values()
        (path,) = graph.iter(f"{SVG}path")
        self.assertIn("between -77.5 and 99", str(graph.findtext(f"{SVG}desc")))
        self.assertLess(len(re.findall(r"[ML]", path.get("d", ""))), 5 * 400)

    def test_a_run_that_is_being_written(self) -> None:
        run = self.folder / "written"
        shutil.copytree(self.first, run)
        for path in [*run.glob("events*"), run / "metric.log"]:
            content = path.read_bytes()
            for length in (len(content) - 1, len(content) // 2, len(content) // 3):
                path.write_bytes(content[:length])
                self.assertEqual(self.report(run).stderr, "")
            path.write_bytes(content)

    # ---- A browser ----

    def test_a_phone_need_not_scroll_sideways(self) -> None:
        width, window = self.seen("document.documentElement.scrollWidth + ' ' + innerWidth").split()
        self.assertLessEqual(int(width), int(window))

    def test_samples_in_a_browser(self) -> None:
        """Their images are decoded, and their texts lie within their cards, which lie within the window."""
        images = self.seen("[...document.querySelectorAll('.samples img')].map(i => i.naturalWidth).join(' ')")
        self.assertEqual(images.split(), ["28"] * 32)
        edges = self.seen(
            "[...document.querySelectorAll('.samples li')].map(card => Math.ceil(Math.max(...[...card.querySelectorAll("
            "'*')].map(e => e.getBoundingClientRect().right))) + '/' + card.getBoundingClientRect().right).join(' ')"
        )
        cards = [tuple(map(float, edge.split("/"))) for edge in edges.split()]
        self.assertEqual(len(cards), 48)
        for content, card in cards:
            self.assertLessEqual(content, card)
            self.assertLessEqual(card, 500)

    def test_samples_can_be_read_in_both_schemes(self) -> None:
        """By the contrast that the Web Content Accessibility Guidelines define, 4.5 : 1 for text."""
        colours = "[...document.querySelectorAll('.samples dt, .samples dd, .samples strong')].map(e => "
        colours += "getComputedStyle(e).color + '/' + getComputedStyle(e.closest('li')).backgroundColor).join(';')"
        backs = set()
        for dark in (False, True):
            pairs = {tuple(pair.split("/")) for pair in self.seen(colours, dark).split(";")}
            self.assertEqual(len(pairs), 3)  # names, texts and what is wrong
            backs |= {back for _, back in pairs}
            for pair in pairs:
                self.assertGreaterEqual(self.contrast(*map(self.channels, pair)), 4.5, pair)
        self.assertEqual(len(backs), 2)

    def test_graphs_can_be_read_in_both_schemes(self) -> None:
        """By the same guidelines, 3 : 1 for curves, of which training's are translucent, and 4.5 : 1 for text."""
        # Of the figure's background, the numbers at the axes, the curves, and all colours that curves may have.
        script = (
            "(() => { const figure = document.querySelector('.graphs figure'), found = [];"
            " const add = (what, colour, opacity) => found.push([what, colour, opacity].join('/'));"
            " const style = e => getComputedStyle(e);"
            " add('back', style(figure).backgroundColor, 1);"
            " figure.querySelectorAll('.ticks text').forEach(e => add('text', style(e).fill, 1));"
            " add('text', style(figure.querySelector('figcaption')).color, 1);"
            " figure.querySelectorAll('svg path').forEach(e => add('curve', style(e).stroke, style(e).strokeOpacity));"
            " const opacity = style(figure.querySelector('svg path')).strokeOpacity;"
            " for (let i = 0; i !== 8; ++i) { figure.style.color = `var(--c${i})`;"
            " add('curve', style(figure).color, opacity); }"
            " return [...new Set(found)].join(';'); })()"
        )
        backs = set()
        for dark in (False, True):
            colours = [colour.split("/") for colour in self.seen(script, dark).split(";")]
            (back,) = [self.channels(colour) for what, colour, _ in colours if what == "back"]
            backs.add(tuple(back))
            self.assertGreaterEqual(len([what for what, _, _ in colours if what == "curve"]), 8)
            for what, colour, opacity in colours:
                if what == "back":
                    continue
                share = float(opacity)
                seen = [share * c + (1 - share) * b for c, b in zip(self.channels(colour), back)]
                with self.subTest(f"{what} {colour}, dark: {dark}"):
                    self.assertGreaterEqual(self.contrast(seen, back), 3 if what == "curve" else 4.5)
        self.assertEqual(len(backs), 2)

    @staticmethod
    def channels(colour: str) -> list[float]:
        """Of rgb(255, 0, 0): 1, 0 and 0."""
        return [int(number) / 255 for number in re.findall(r"\d+", colour)[:3]]

    @staticmethod
    def contrast(a: list[float], b: list[float]) -> float:
        def luminance(channels: list[float]) -> float:
            linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    @staticmethod
    def browser() -> str:
        found = next(filter(None, map(shutil.which, BROWSERS)), None)
        assert found is not None, f"there is none of {', '.join(BROWSERS)}; tools/test installs it"
        return found

    def seen(self, script: str, dark: bool = False) -> str:
        """The value of an expression in the page of three runs, in a window of a phone's size."""
        path = self.folder / "phone.html"
        users = self.folder / f"users_{self.id().rsplit('.', 1)[1]}"
        self.report(self.first, self.digits, users if users.exists() else self.train_users(), f"--output_file={path}")
        path.write_text(path.read_text().replace("</body>", f"<script>document.title = {script}</script></body>"))
        scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
        done = subprocess.run(
            [self.browser(), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self.folder / 'chromium'}",
             "--window-size=500,900", scheme, "--dump-dom", f"file://{path}"],
            capture_output=True, timeout=self.deadline, text=True, env={**os.environ, "HOME": str(self.folder)},
        )  # fmt: skip
        found = re.search(r"<title>(.*?)</title>", done.stdout)
        assert found is not None, done.stderr
        return found[1]


if __name__ == "__main__":
    unittest.main(verbosity=2)
