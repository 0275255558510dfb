"""Tests written in Python that hold our programs against TensorFlow, or another program of others."""

def interop_test(name, programs = [], environment = "tensorflow", tags = []):
    """Runs the module `name` of this package, which gets the paths of `programs` as its arguments.

    The package's Python files are those of its target ":modules". `environment` is tensorflow, mlperf, onnx
    or safetensors, of tools/python_env. `tags` are added to those of every such test.
    """
    native.sh_test(
        name = name,
        timeout = "long",
        srcs = ["//tools/interop:with_{}.sh".format(environment)],
        args = [native.package_name().replace("/", ".") + "." + name] +
               ["$(location {})".format(program) for program in programs],
        data = [":modules"] + programs,
        tags = ["interop", environment] + tags,
    )
