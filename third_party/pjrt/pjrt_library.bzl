"""pjrt_library: a cc_library that includes PJRT's header, and what is made of such. Where the header was not found they are empty."""

load("@pjrt//:defs.bzl", "HAS_PJRT")

def pjrt_library(name, visibility = None, deps = [], without = None, **kwargs):
    """A cc_library.

    Args:
      name: its name.
      visibility: its visibility.
      deps: its dependencies, besides the header.
      without: the arguments of the cc_library that takes its place where there is no header; by default it is empty.
      **kwargs: other arguments.
    """
    if not HAS_PJRT:
        native.cc_library(name = name, visibility = visibility, **(without or {}))
        return
    native.cc_library(name = name, visibility = visibility, deps = deps + ["@pjrt//:header"], **kwargs)

def pjrt_test(name, deps = [], size = "medium", tags = [], **kwargs):
    """A cc_test of a pjrt_library. Without the header it fails and says what to do."""
    if HAS_PJRT:
        native.cc_test(name = name, deps = deps, size = size, tags = tags + ["pjrt"], **kwargs)
    else:
        native.sh_test(name = name, size = size, srcs = ["//third_party/pjrt:not_found.sh"], tags = tags + ["pjrt"])

def pjrt_binary(name, deps = [], **kwargs):
    """A cc_binary of pjrt_libraries. There is none without the header."""
    if HAS_PJRT:
        native.cc_binary(name = name, deps = deps, **kwargs)

def pjrt_plugins():
    """The labels of the plugins that tests run with; none without the header."""
    return ["@pjrt//:xla_cpu.so", "@pjrt//:other_xla_cpu.so"] if HAS_PJRT else []

def pjrt_shared_object(name, version_script, deps, **kwargs):
    """lib<...>.so that exports what the version script says; an empty filegroup without the header."""
    if not HAS_PJRT:
        native.filegroup(name = name, **kwargs)
        return
    native.cc_binary(
        name = name,
        linkshared = True,
        linkopts = [
            "-Wl,--version-script=$(location %s)" % version_script,
            "-Wl,-z,defs",
        ],
        deps = deps + [version_script],
        **kwargs
    )

def pjrt_program_test(name, module, args, data, size = "medium", tags = []):
    """A Python test of programs on PJRT devices. Without the header it fails and says what to do."""
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tools/interop:with_python.sh"] if HAS_PJRT else ["//third_party/pjrt:not_found.sh"],
        args = [module] + args if HAS_PJRT else [],
        data = ["//third_party/pjrt:plugin_of_tests.py"] + data + [p for p in pjrt_plugins() if p not in data] if HAS_PJRT else [],
        tags = tags + ["pjrt"],
    )
