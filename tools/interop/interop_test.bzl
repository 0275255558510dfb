"""Tests written in Python that hold our programs against TensorFlow."""

def interop_test(name, programs = []):
    """Runs the module `name` of this package, which gets the paths of `programs` as its arguments.

    The package's Python files are those of its target ":modules".
    """
    native.sh_test(
        name = name,
        timeout = "long",
        srcs = ["//tools/interop:with_tensorflow.sh"],
        args = [native.package_name().replace("/", ".") + "." + name] +
               ["$(location {})".format(program) for program in programs],
        data = [":modules"] + programs,
        tags = ["interop"],
    )
