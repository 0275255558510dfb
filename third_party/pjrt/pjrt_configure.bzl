"""Finds PJRT's C header and plugins: in the Python environment $OFFICIAL_PJRT_ENV, else in that which
`tools/python_env pjrt` has made. Makes the repository @pjrt, also where there is none."""

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "header",
    hdrs = ["include/pjrt_c_api.h"],
    includes = ["include"],
)

exports_files(["xla_cpu.so", "other_xla_cpu.so"])
"""

_NO_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(name = "header")
"""

# The repository's files by those of the environment.
_FILES = {
    "xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h": "include/pjrt_c_api.h",
    "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so": "xla_cpu.so",
    "fastatomstruct_xla_cpu/libpjrt_cpu.so": "other_xla_cpu.so",
}

def _packages_folder(ctx):
    """The folder of the environment's packages; None if there is none with all of _FILES."""
    given = ctx.os.environ.get("OFFICIAL_PJRT_ENV", "")
    environment = given
    if not given:
        found = ctx.execute([ctx.path(Label("//tools:python_env")), "--find", "pjrt"])
        environment = found.stdout.strip()
    lib = ctx.path(environment + "/lib") if environment else None
    for python in lib.readdir() if lib != None and lib.exists else []:
        packages = python.get_child("site-packages")
        if all([ctx.path(str(packages) + "/" + path).exists for path in _FILES]):
            return packages
    if given:
        # buildifier: disable=print
        print("OFFICIAL_PJRT_ENV=%s has not all of %s: the devices of PJRT plugins are not built" % (given, ", ".join(_FILES)))
    return None

def _pjrt_configure_impl(ctx):
    packages = _packages_folder(ctx)
    if packages != None:
        for path, name in _FILES.items():
            ctx.symlink(str(packages) + "/" + path, name)
    ctx.file("BUILD", _NO_BUILD if packages == None else _BUILD)
    ctx.file("defs.bzl", "HAS_PJRT = %s\n" % (packages != None))

pjrt_configure = repository_rule(
    implementation = _pjrt_configure_impl,
    environ = ["OFFICIAL_PJRT_ENV"],
    local = True,
)
