"""The PJRT plugin that tests of programs run on."""

import os
from pathlib import Path


def plugin_of_tests(default: Path) -> Path:
    """That of OP_TEST_PJRT_PLUGIN in the environment, a path or the name of one beside `default`, else `default`.

    utils/compute/pjrt/plugin_of_tests.h reads it likewise.
    """
    name = os.environ.get("OP_TEST_PJRT_PLUGIN")
    if not name:
        return default.absolute()
    return Path(name) if "/" in name else default.absolute().with_name(f"{name}.so")
