"""Holds our vocabularies and subtokens against those of a plain Python program, over the sentences of Multi30k."""

import os
import unittest

from official.transformer.interop import tokenizer
from tools.interop import harness

MULTI30K = os.environ.get("OFFICIAL_MULTI30K_DIR")


@unittest.skipUnless(MULTI30K, "OFFICIAL_MULTI30K_DIR is not set: no sentences to compare")
class TextTest(harness.InteropTest):
    def setUp(self) -> None:
        super().setUp()
        self.train = [f"{MULTI30K}/train.{language}" for language in ("en", "de")]

    def vocabulary(self, target: int, threshold: int, min_count: int, paths: list[str]) -> list[str]:
        path = self.folder / "vocabulary"
        self.run_binary("build", str(target), str(threshold), str(min_count), str(path), *paths)
        return [line[1:-1] for line in path.read_text().split("\n")[:-1]]

    def test_vocabularies_are_equal(self) -> None:
        counts = tokenizer.count_tokens(self.train)
        for min_count in (1, 6, 20, 300):
            with self.subTest(min_count=min_count):
                ours = self.vocabulary(32768, 327, min_count, self.train)
                self.assertEqual(ours, tokenizer.generate(counts, min_count))

    def test_lines_are_sampled_equally(self) -> None:
        many = self.folder / "many"  # more than 2 MB, so that lines are skipped, and with carriage returns
        lines = [line for path in self.train for line in tokenizer.lines(path)]
        many.write_bytes("\r\n".join(lines).encode())
        ours = self.vocabulary(8192, 80, 10, [str(many)])
        self.assertEqual(ours, tokenizer.generate(tokenizer.count_tokens([str(many)]), 10))

    def test_searches_are_equal(self) -> None:
        paths = [f"{MULTI30K}/val.{language}" for language in ("en", "de")]
        counts = tokenizer.count_tokens(paths)
        for target, threshold in ((1000, 10), (3000, 30), (500, 1)):
            with self.subTest(target=target):
                self.assertEqual(
                    self.vocabulary(target, threshold, 0, paths), tokenizer.search(counts, target, threshold)
                )

    def test_sentences_become_equal_ids(self) -> None:
        # The vocabulary of English alone, so that German needs escapes.
        ours = self.vocabulary(8192, 80, 6, self.train[:1])
        subtokenizer = tokenizer.Subtokenizer(ours)
        for path in self.train:
            lines = tokenizer.lines(path)[:10000]
            text = self.folder / "text"
            text.write_text("\n".join(lines), newline="\n")
            printed = self.run_binary("encode", str(self.folder / "vocabulary"), str(text))
            ids = [[int(word) for word in line.split()] for line in printed.splitlines()]
            self.assertEqual(ids, [subtokenizer.encode(line) for line in lines])
            (self.folder / "ids").write_text(printed)
            decoded = self.run_binary("decode", str(self.folder / "vocabulary"), str(self.folder / "ids"))
            self.assertEqual(decoded.split("\n")[:-1], lines)
            self.assertEqual([subtokenizer.decode(line) for line in ids], lines)


if __name__ == "__main__":
    harness.main()
