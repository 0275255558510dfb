"""Counts the test targets of a `bazel test` run. Usage: test_summary.py BUILD_EVENTS_JSON BAZEL_EXIT_STATUS"""

import json
import sys
from pathlib import Path


def read_events(lines: list[bytes]) -> tuple[list[dict], bool]:
    """The events, one a line, and whether the last line is cut off."""
    events = []
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            return events, True
    return events, False


def count(events: list[dict], bazel_failed: bool) -> tuple[int, int]:
    """Returns how many test targets passed and how many failed, were not built or did not run to their end."""
    tests = set()
    passed = set()
    for event in events:
        for kind, identity in event["id"].items():
            label = identity.get("label")
            if kind == "targetConfigured" and event.get("configured", {}).get("targetKind", "").endswith("_test rule"):
                tests.add(label)
            elif kind == "testSummary" and event.get("testSummary", {}).get("overallStatus") in ("PASSED", "FLAKY"):
                passed.add(label)
    failed = len(tests - passed)
    # Something other than a test failed (a library, a BUILD file): a run that is not clean never reads "0 failed".
    return len(passed), max(failed, 1) if bazel_failed else failed


def main() -> int:
    events, is_cut = read_events(Path(sys.argv[1]).read_bytes().splitlines())
    if is_cut:
        why = "bazel has ended in the middle of a line, as when it is killed"
        print(f"tools/test: {why}; only what it has reported before is counted", file=sys.stderr)
    passed, failed = count(events, is_cut or int(sys.argv[2]) != 0)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
