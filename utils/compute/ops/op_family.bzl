"""The targets of a folder of ops: op_family for the family, op_part, part_test and op_test for what else is in the folder."""

load("//tools/structure:layers.bzl", "layers_above")
load("//utils/compute/cuda_emulation:cuda_kernels.bzl", "cuda_kernels")

_DEPS = [
    "//third_party:absl",
    "//utils/compute/core:status",
    "//utils/compute/core:tensor",
    "//utils/compute/graph",
]

_CPU_DEPS = _DEPS + [
    "//utils/compute/core:batch_parts",
    "//utils/compute/cpu:foreach_isa",
    "//utils/compute/cpu:parallel",
    "//utils/compute/kernel",
]

# Of CUDA kernels, besides cuda_device.
_CUDA_HOST_DEPS = _DEPS + ["//utils/compute/kernel"]

_HLO_DEPS = _DEPS + [
    "//utils/compute/ops/packed:hlo_packed_rows",
    "//utils/compute/pjrt:hlo",
]

# Tests of ops that are written in another way for a TPU, which has no types of 64 bits.
_TESTS_AS_TPU = ["batch_norm_test", "dropout_test", "l2_loss_test", "neural_factorization_test", "reduction_test"]

# The longest of those on emulated CUDA devices: .ci/run runs them on one day of four.
_EMULATED_TURNS = {"attention_test": ["turn_0"]}

_PART_TEST_DEPS = [
    "//third_party:absl",
    "//third_party:catch2_main",
    "//utils/compute/cpu:parallel",
]

_TEST_DEPS = _DEPS + [
    "//third_party:catch2_main",
    "//utils/compute/cpu:parallel",
    "//utils/compute/ops/gradients",
    "//utils/compute/testing:op_test",
]

def _folder():
    return native.package_name().split("/")[-1]

def op_part(name, files = None, deps = [], cuda_deps = [], **kwargs):
    """A library of what kernels share, without ops and kernels of its own.

    A folder's files with the same name are one unit: geometry.h with geometry.cc, if there is one, or bias.h with
    bias.cu.cc. A library with a .cu.cc file is for CUDA kernels only. A .cc file may also include the header of the
    folder's family, which has the names of the ops.

    Args:
      name: the name of the library.
      files: the names of its files, without .h, .cc and .cu.cc; by default the name of the library.
      deps: what it depends on, besides _DEPS or, with a .cu.cc file, _CUDA_HOST_DEPS.
      cuda_deps: the libraries with .cu.cc files that it depends on, besides cuda_device.
      **kwargs: further arguments of cc_library, such as the visibility.
    """
    files = files or [name]
    hdrs = [file + ".h" for file in files]
    cuda_srcs = native.glob([file + ".cu.cc" for file in files], allow_empty = True)
    if cuda_srcs:
        cuda_kernels(
            name = name,
            srcs = cuda_srcs,
            hdrs = hdrs,
            cuda_deps = cuda_deps + ["//utils/compute/cuda:cuda_device"],
            deps = deps + _CUDA_HOST_DEPS,
            **kwargs
        )
        return
    family_hdrs = [file for file in native.glob([_folder() + ".h"], allow_empty = True) if file not in hdrs]
    native.cc_library(
        name = name,
        srcs = native.glob([file + ".cc" for file in files], allow_empty = True) + family_hdrs,
        hdrs = hdrs,
        deps = deps + _DEPS,
        **kwargs
    )

def part_test(name, deps = []):
    """A test of an op_part that registers no ops: geometry_test.cc is geometry's.

    Args:
      name: the name of the test, which is the name of the part and "_test".
      deps: what it depends on, besides the part and _PART_TEST_DEPS.
    """
    native.cc_test(
        name = name,
        size = "small",
        srcs = [name + ".cc"],
        deps = [":" + name[:-len("_test")]] + deps + _PART_TEST_DEPS,
    )

def op_test(name, srcs = None, deps = [], size = "small", max_isas = [], family = None, emulated = True):
    """A test of the folder's ops, on every device; matmul_emulated_test is matmul_test on emulated CUDA devices.

    Beside matmul_hlo.cc, which writes its ops in StableHLO, matmul_pjrt_test is matmul_test on XLA for CPUs, a PJRT
    plugin. It fails if no case runs an op of matmul_hlo.cc, or of another matmul*_hlo.cc, in one of the types that the
    file registers it for. matmul_as_tpu_pjrt_test is matmul_test with what is written for a TPU, where that differs.

    Args:
      name: the name of the test. It ends with "_test".
      srcs: its files; NAME.cc by default.
      deps: what it depends on, besides the folder's family and _TEST_DEPS.
      size: how long it may take, as in cc_test.
      max_isas: instruction sets that the test runs with once more, using nothing newer: "avx2" adds matmul_avx2_test to
        matmul_test. "amx" is emulated where the processor lacks it.
      family: the name of the folder's family; that of the folder by default.
      emulated: False if the test runs no CUDA kernels.
    """
    srcs = srcs or [name + ".cc"]
    deps = [":" + (family or _folder())] + deps + _TEST_DEPS
    visibility = ["//tools/op_table:__pkg__"]
    cases = name + "_cases"
    native.cc_library(
        name = cases,
        testonly = 1,
        srcs = srcs,
        visibility = visibility,
        deps = deps,
        alwayslink = 1,  # registers its cases
    )
    native.cc_test(
        name = name,
        size = size,
        visibility = visibility,
        deps = [":" + cases],
    )
    for isa in max_isas:
        is_amx = isa == "amx"
        native.cc_test(
            name = "%s_%s_test" % (name[:-len("_test")], isa),
            size = "medium" if is_amx else size,
            env = {"OP_TEST_KIND": "cpu"} if is_amx else {"OFFICIAL_MAX_ISA": isa},
            visibility = visibility,
            deps = [":" + cases] + (["//utils/compute/cpu/amx_emulation:with_amx"] if is_amx else []),
        )
    if emulated:
        native.cc_test(
            name = "%s_emulated_test" % name[:-len("_test")],
            size = "large",
            env = {"OP_TEST_KIND": "cuda"},
            tags = ["emulated"] + _EMULATED_TURNS.get(name, []),
            visibility = visibility,
            deps = [
                ":" + cases,
                "//utils/compute/testing:emulated_cuda",
            ],
        )

    has_hlo = native.glob([name[:-len("_test")] + "_hlo.cc"], allow_empty = True)
    hlo_files = native.glob([name[:-len("_test")] + "*_hlo.cc"], allow_empty = True)
    emitters = {"OP_TEST_EMITTERS": ",".join([native.package_name() + "/" + file for file in hlo_files])}
    as_tpu = [("_as_tpu", {"OP_TEST_PJRT_AS_TPU": "1"})] if name in _TESTS_AS_TPU else []
    for suffix, env in ([("", emitters)] if has_hlo else []) + as_tpu:
        native.cc_test(
            name = "%s%s_pjrt_test" % (name[:-len("_test")], suffix),
            size = "large",
            env = dict({"OP_TEST_KIND": "pjrt"}, **env),
            tags = ["pjrt", "turn_%d" % (len(name) % 4)],  # .ci/run runs a quarter of them a day
            visibility = visibility,
            deps = [
                ":" + cases,
                "//utils/compute/testing:emitters_run",
                "//utils/compute/testing:pjrt",
            ],
        )

def op_family(
        name,
        hdrs = None,
        exclude = [],
        copts = [],
        deps = [],
        shared_deps = [],
        cuda_hdrs = [],
        cuda_host_deps = [],
        cuda_deps = [],
        test_deps = [],
        test_size = "small",
        test_max_isas = [],
        more_tests = []):
    """A family of ops: the library NAME, which registers ops and their CPU kernels, NAME_cuda, NAME_hlo and NAME_test.

    The folder's files say what these are made of. *.cu.cc are the CUDA kernels, *_hlo.cc and *_hlo.h write the ops in
    StableHLO, NAME_test.cc is the test, and all other *.cc and *.h belong to NAME; *_flops.cc count the ops' operations
    for profiles, *fusion.cc have rules that fuse nodes. The files of an op_part are the part's alone: with ":geometry"
    among the dependencies, NAME has neither geometry.h nor geometry.cc. Further tests, *_test.cc, are more_tests or
    op_tests.

    A new family is its folder and a line in families.bzl. The folder of a model's family is also a layer, with a line
    in //tools/structure:layers.bzl.

    Args:
      name: the name of the family; its folder, one of utils/compute/ops, has the same name. The family that one model
        has is in the folder "op" of that model.
      hdrs: the headers for those who use the family, in which the names of its ops are; by default NAME.h, if there is
        one. The CUDA kernels include them too.
      exclude: names of files, without .h and .cc, that are not NAME's either.
      copts: compiler options of NAME.
      deps: what NAME depends on, besides shared_deps and _CPU_DEPS.
      shared_deps: what both NAME and NAME_cuda depend on.
      cuda_hdrs: the folder's headers that the CUDA kernels include, besides hdrs and those of their dependencies.
      cuda_host_deps: what NAME_cuda depends on, besides shared_deps and _CUDA_HOST_DEPS.
      cuda_deps: the libraries of CUDA kernels that NAME_cuda depends on, besides cuda_device.
      test_deps: what NAME_test depends on, besides NAME, its dependencies and _TEST_DEPS.
      test_size: the size of NAME_test.
      test_max_isas: the max_isas of NAME_test.
      more_tests: the names of further tests that depend on the same as NAME_test.
    """
    others = exclude + [
        label[1:]
        for label in shared_deps + deps + cuda_host_deps + cuda_deps
        if label.startswith(":")
    ]
    files = [
        file
        for file in native.glob(["*.cc", "*.h"])
        if file.split(".")[0] not in others and not file.endswith("_test.cc")
    ]
    cuda_srcs = [file for file in files if file.endswith(".cu.cc")]
    hlo_srcs = [file for file in files if file.endswith("_hlo.cc") or file.endswith("_hlo.h")]
    textual_hdrs = [file for file in files if file.endswith("-inl.h")]
    flops_deps = ["//utils/compute/graph:node_cost"] if native.glob(["*_flops.cc"], allow_empty = True) else []
    fusion_deps = ["//utils/compute/graph:may_move"] if [file for file in files if file.endswith("fusion.cc")] else []
    if hdrs == None:
        hdrs = [file for file in files if file == name + ".h"]

    native.cc_library(
        name = name,
        srcs = [file for file in files if file not in cuda_srcs + hlo_srcs + textual_hdrs + hdrs],
        hdrs = hdrs,
        textual_hdrs = textual_hdrs,
        copts = copts,
        visibility = layers_above(),
        deps = shared_deps + deps + flops_deps + fusion_deps + _CPU_DEPS,
        alwayslink = 1,  # registers ops and kernels
    )
    cuda_kernels(
        name = name + "_cuda",
        srcs = cuda_srcs + cuda_hdrs + hdrs,
        cuda_deps = cuda_deps + ["//utils/compute/cuda:cuda_device"],
        visibility = ["//utils/compute/cuda_backend:__pkg__"],
        deps = shared_deps + cuda_host_deps + _CUDA_HOST_DEPS,
    )
    native.cc_library(
        name = name + "_hlo",
        # Headers only of what has CPU kernels, which the shared object of the emitters does without.
        srcs = hlo_srcs + ([file for file in files if file.endswith(".h") and file not in hlo_srcs] if hlo_srcs else []),
        visibility = layers_above(),
        deps = shared_deps + _HLO_DEPS if hlo_srcs else [],
        alwayslink = 1,  # registers emitters
    )
    if native.glob([name + "_test.cc"], allow_empty = True):
        op_test(
            name = name + "_test",
            size = test_size,
            max_isas = test_max_isas,
            family = name,
            emulated = bool(cuda_srcs),
            deps = shared_deps + deps + test_deps,
        )
    for test in more_tests:
        op_test(
            name = test,
            family = name,
            emulated = bool(cuda_srcs),
            deps = shared_deps + deps + test_deps,
        )
