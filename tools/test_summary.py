"""Counts the test targets of a `bazel test` run. Usage: test_summary.py BUILD_EVENTS_JSON BAZEL_EXIT_STATUS"""

import json
import sys
from pathlib import Path


def count(events: list[dict], bazel_status: int) -> tuple[int, int]:
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
    return len(passed), max(failed, 1) if bazel_status else failed


def main() -> int:
    lines = Path(sys.argv[1]).read_text().splitlines()
    passed, failed = count([json.loads(line) for line in lines], int(sys.argv[2]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
