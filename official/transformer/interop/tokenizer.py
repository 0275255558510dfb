"""The subtokenizer and its vocabulary, written down plainly from the description of upstream's algorithm, to hold ours
against. Slow: strings are counted one by one."""

import collections
import os
import re
import unicodedata

RESERVED = ["<pad>", "<EOS>"]


def is_alphanumeric(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def lines(path: str) -> list[str]:
    """As GFile gives them: carriage returns are dropped."""
    with open(path, encoding="utf-8", newline="\n") as file:
        return [line.replace("\r", "").removesuffix("\n") for line in file]


def tokens(text: str) -> list[str]:
    found = []
    begin = 0
    for i in range(1, len(text)):
        if is_alphanumeric(text[i]) != is_alphanumeric(text[i - 1]):
            if text[begin:i] != " " or begin == 0:
                found.append(text[begin:i])
            begin = i
    return found + [text[begin:]] if text else []


def join(parts: list[str]) -> str:
    text = ""
    for i, part in enumerate(parts):
        if i > 0 and is_alphanumeric(parts[i - 1][0]) and is_alphanumeric(part[0]):
            text += " "
        text += part
    return text


def alphabet_of(texts) -> set[str]:
    return {c for text in texts for c in text} | set("".join(RESERVED)) | set("\\_u;0123456789")


def escape(token: str, alphabet: set[str]) -> str:
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    return "".join(c if c in alphabet and c != "\n" else f"\\{ord(c)};" for c in token) + "_"


def unescape(token: str) -> str:
    def original(match: re.Match) -> str:
        if match[0] in ("\\u", "\\\\"):
            return "_" if match[0] == "\\u" else "\\"
        try:
            return chr(int(match[1]))
        except (ValueError, OverflowError):
            return "\u3013"

    return re.sub(r"\\u|\\\\|\\([0-9]+);", original, token)


def segments(escaped: str, known, max_length: int) -> list[str]:
    found = []
    while escaped:
        length = next(n for n in range(min(len(escaped), max_length), 0, -1) if escaped[:n] in known)
        found.append(escaped[:length])
        escaped = escaped[length:]
    return found


class Subtokenizer:
    def __init__(self, vocabulary: list[str]):
        self.vocabulary = vocabulary
        self.ids = {subtoken: i for i, subtoken in enumerate(vocabulary)}
        self.alphabet = alphabet_of(vocabulary)
        self.max_length = max(map(len, vocabulary))
        self.seen: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        ids = []
        for token in tokens(text):
            if token not in self.seen:
                parts = segments(escape(token, self.alphabet), self.ids, self.max_length)
                self.seen[token] = [self.ids[part] for part in parts]
            ids += self.seen[token]
        return ids

    def decode(self, ids: list[int]) -> str:
        escaped = "".join(self.vocabulary[i] for i in ids if i < len(self.vocabulary))
        return join([unescape(token) for token in escaped.split("_") if token])


def count_tokens(paths: list[str], limit: float = 1e6) -> dict[str, int]:
    counts: dict[str, int] = collections.defaultdict(int)
    for path in paths:
        to_skip = int(os.path.getsize(path) / (limit * 2))
        skipped = 0
        left = limit
        for line in lines(path):
            if skipped < to_skip:
                skipped += 1
                continue
            if left < 0:
                break
            line = line.strip()
            left -= len(line)
            skipped = 0
            for token in tokens(line):
                counts[token] += 1
    return counts


def generate(token_counts: dict[str, int], min_count: int) -> list[str]:
    alphabet = alphabet_of(token_counts)
    escaped = {escape(token, alphabet): count for token, count in token_counts.items()}
    subtokens = RESERVED + list(alphabet)
    max_length = 1
    for _ in range(4):
        counts: dict[str, int] = collections.defaultdict(int)
        known = set(subtokens)
        for token, count in escaped.items():
            begin = 0
            for segment in segments(token, known, max_length):
                for end in range(begin + 1, len(token) + 1):
                    counts[token[begin:end]] += count
                begin += len(segment)
        frequent = [text for text, count in counts.items() if count >= min_count]
        max_length = max(map(len, frequent), default=1)
        kept = []
        for text in sorted(frequent, key=len, reverse=True):
            if (count := counts[text]) < min_count:
                continue
            if text not in alphabet and text not in RESERVED:
                kept.append((count, text))
            for end in range(1, len(text)):
                counts[text[:end]] -= count
        kept += [(counts.get(character, 0), character) for character in alphabet]
        subtokens = RESERVED + [text for _, text in sorted(kept, reverse=True)]
    return subtokens


def search(token_counts: dict[str, int], target: int, threshold: int, low: int = 1, high: int = 1000) -> list[str]:
    middle = (low + high) // 2
    found = generate(token_counts, middle)
    if abs(len(found) - target) < threshold or low >= high or middle < 2:
        return found
    bounds = (middle + 1, high) if len(found) > target else (low, middle - 1)
    other = search(token_counts, target, threshold, *bounds)
    return other if abs(len(other) - target) < abs(len(found) - target) else found
