"""cuda_kernels: CUDA sources, compiled with nvcc and once more for the emulation."""

load("//third_party/cuda:cuda_library.bzl", "cuda_library")

# The accesses of kernels are preceded by calls, which the emulation answers (access_hooks.cc). Under a sanitizer of the
# host that one watches instead.
_CHECKS = select({
    "//utils/compute/cuda_emulation:asan": [],
    "//utils/compute/cuda_emulation:tsan": [],
    "//conditions:default": [
        "-fsanitize=thread,alignment,bounds",
        "--param=tsan-distinguish-volatile=1",
    ],
})

_COPTS = [
    "-O1",
    "-g1",  # the places of errors
    "-Wno-attributes",
    "-Wno-missing-field-initializers",
    "-Wno-tsan",
    "-Wno-unknown-pragmas",  # unroll
    "-Wno-unused-function",
]

def emulated(label):
    """The label of the emulated library of a cuda_kernels target."""
    if ":" not in label:
        label = "%s:%s" % (label, label.split("/")[-1])
    return label + "_emulated"

def cuda_kernels(name, srcs = [], hdrs = [], deps = [], cuda_deps = [], toolkit_deps = [], visibility = None):
    """The cuda_library NAME, and NAME_emulated: the same sources compiled for the host, for tests.

    Args:
      name: the name of the library.
      srcs: its .cu.cc files, and headers.
      hdrs: its headers for others.
      deps: the libraries of the host that it depends on.
      cuda_deps: the cuda_kernels targets that it depends on.
      toolkit_deps: libraries of the toolkit, as cuda_libraries() gives them; the emulation has its own.
      visibility: of both.
    """
    cuda_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        visibility = visibility,
        deps = deps + cuda_deps + toolkit_deps,
    )
    native.cc_library(
        name = name + "_emulated",
        testonly = 1,
        srcs = srcs,
        hdrs = hdrs,
        copts = _COPTS + _CHECKS,
        visibility = (visibility or []) + ["//utils/compute/testing:__pkg__"],
        deps = deps + [emulated(label) for label in cuda_deps] + ["//utils/compute/cuda_emulation"],
        alwayslink = 1,  # registers kernels
    )
