#!/usr/bin/env bash
# Stands for a test of PJRT devices in a build that has not found PJRT's header.
echo "PJRT's header was not found when this was built: run the test by tools/test, or run tools/python_env pjrt and" \
  "bazel shutdown" >&2
exit 1
