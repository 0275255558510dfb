"""cuda_library, cuda_binary and cuda_shared_object: what is built with nvcc. Without a toolkit they are empty."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@cuda//:defs.bzl", "CUDA_HOME", "HAS_CUDA")

# Division and square root round as IEEE asks and denormals are kept (nvcc's defaults), so that kernels give what the
# CPU's give. Functions that are constexpr are device functions too: the host's headers stay free of CUDA.
_NVCC_FLAGS = [
    "-x=cu",
    "-std=c++20",
    "-O3",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "--objdir-as-tempdir",  # names in /tmp hold the process id, which is the same in every sandbox
    "-DNDEBUG",
    "-lineinfo",  # for profilers
    "-Xcompiler=-fPIC,-march=x86-64-v3,-fvisibility=hidden,-Wall,-Wno-sign-compare,-Wno-unused-parameter",
]

# The compute capabilities to compile for: 90 is 9.0. --define=cuda_archs=all: for all GPUs that CUDA 13 knows, which
# takes several times as long. 90a is not among them: no kernel uses wgmma, which only it has, and cuBLASLt and cuDNN
# bring machine code of their own.
_ARCHITECTURES = {
    "": [90],
    "all": [75, 80, 86, 89, 90, 100, 120],
}

def _architectures(ctx):
    archs = ctx.var.get("cuda_archs", "")
    if archs not in _ARCHITECTURES:
        fail("--define=cuda_archs=%s: only 'all' can be given" % archs)
    return _ARCHITECTURES[archs]

def _gencode(architectures):
    """Machine code for each, and intermediate code of the last for later ones."""
    flags = ["-gencode=arch=compute_%d,code=sm_%d" % (a, a) for a in architectures]
    flags.append("-gencode=arch=compute_%d,code=compute_%d" % (architectures[-1], architectures[-1]))
    return flags if len(architectures) == 1 else flags + ["--compress-mode=size"]

def _compile(ctx, cc_toolchain, context, src):
    object = ctx.actions.declare_file("_objs/%s/%s.pic.o" % (ctx.label.name, src.basename[:-len(".cc")]))
    args = ctx.actions.args()
    args.add_all(_NVCC_FLAGS)
    args.add_all(_gencode(_architectures(ctx)))
    args.add("-ccbin", cc_toolchain.compiler_executable)
    includes = depset(transitive = [context.quote_includes, context.includes, context.system_includes])
    args.add_all(includes, before_each = "-I")
    args.add_all(context.defines, before_each = "-D")
    args.add_all(["-c", src, "-o", object])
    ctx.actions.run(
        executable = CUDA_HOME + "/bin/nvcc",
        arguments = [args],
        inputs = depset(
            [src, ctx.file._toolkit],
            transitive = [context.headers, cc_toolchain.all_files],
        ),
        outputs = [object],
        use_default_shell_env = True,
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % src.short_path,
    )
    return object

def _cuda_library_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = cc_toolchain)
    own = CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs)))
    merged = cc_common.merge_cc_infos(cc_infos = [own] + [dep[CcInfo] for dep in ctx.attr.deps])
    objects = depset([_compile(ctx, cc_toolchain, merged.compilation_context, src) for src in ctx.files.srcs])
    linking_context, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        name = ctx.label.name,
        feature_configuration = features,
        cc_toolchain = cc_toolchain,
        # For shared objects and for programs.
        compilation_outputs = cc_common.create_compilation_outputs(objects = objects, pic_objects = objects),
        linking_contexts = [merged.linking_context],
        alwayslink = True,  # registers kernels
        disallow_dynamic_library = True,
    )
    return [
        DefaultInfo(files = objects),
        CcInfo(compilation_context = merged.compilation_context, linking_context = linking_context),
    ]

_cuda_library = rule(
    implementation = _cuda_library_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu.cc"]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "_toolkit": attr.label(default = "@cuda//:toolkit.txt", allow_single_file = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def cuda_library(name, srcs = [], hdrs = [], deps = [], **kwargs):
    """Compiles .cu.cc files with nvcc; like a cc_library to those that link it. `hdrs` and headers among `srcs` may
    include CUDA's, so only other cuda_library targets can include them. Toolkit libraries come from cuda_libraries()."""
    if not HAS_CUDA:
        native.cc_library(name = name, **kwargs)
        return
    _cuda_library(
        name = name,
        srcs = [src for src in srcs if src.endswith(".cu.cc")],
        hdrs = hdrs + [src for src in srcs if not src.endswith(".cu.cc")],
        deps = deps,
        **kwargs
    )

def cuda_libraries(names):
    """The labels of toolkit libraries ("cudart", "cublas", "cudnn"); none without a toolkit."""
    return ["@cuda//:" + name for name in names] if HAS_CUDA else []

# The toolkit's libraries are looked for in LD_LIBRARY_PATH, beside the file and where they were at build time.
_RPATHS = ["-Wl,-rpath,$$ORIGIN", "-Wl,-rpath,%s/lib64" % CUDA_HOME]

def cuda_binary(name, srcs, deps, testonly = False):
    """A program of .cu.cc files; an empty filegroup without a toolkit."""
    if not HAS_CUDA:
        native.filegroup(name = name, testonly = testonly)
        return
    cuda_library(name = name + "_objects", srcs = srcs, testonly = testonly, deps = deps)
    native.cc_binary(
        name = name,
        testonly = testonly,
        linkopts = _RPATHS,
        deps = [":%s_objects" % name],
    )

def cuda_shared_object(name, exports, version_script, deps, **kwargs):
    """lib<...>.so of the cuda_library targets that the functions `exports` need; an empty filegroup without a toolkit."""
    if not HAS_CUDA:
        native.filegroup(name = name, **kwargs)
        return
    native.cc_binary(
        name = name,
        linkshared = True,
        linkopts = [
            "-Wl,--version-script=$(location %s)" % version_script,
            "-Wl,-z,defs",
        ] + _RPATHS + ["-Wl,--undefined=%s" % export for export in exports],
        deps = deps + [version_script],
        **kwargs
    )

def _cuda_build_info_impl(ctx):
    headers = depset(transitive = [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps])

    # What CUDA kernels share among themselves is the library's own affair, and precompiled headers say nothing new.
    by_path = {
        header.path: header
        for header in headers.to_list()
        if not header.path.startswith("utils/compute/cuda/") and header.extension != "gch"
    }
    shared = [by_path[path] for path in sorted(by_path)]
    ctx.actions.run_shell(
        inputs = shared,
        outputs = [ctx.outputs.out],
        command = """
digest=$(cat "$@" | sha256sum | cut -c1-16)
cat >'%s' <<END
// Made by cuda_build_info (//third_party/cuda:cuda_library.bzl).
#pragma once

namespace official::compute {

// A digest of the headers that the program and libofficial_cuda.so share, and the compiler.
inline constexpr char kBackendSources[] = "$digest, " __VERSION__;
// The compute capabilities that the library is compiled for; 90 is 9.0.
inline constexpr int kCudaArchitectures[] = {%s};

}  // namespace official::compute
END
""" % (ctx.outputs.out.path, ", ".join([str(a) for a in _architectures(ctx)])),
        arguments = [ctx.actions.args().add_all(shared)],
        mnemonic = "CudaBuildInfo",
    )

cuda_build_info = rule(
    doc = "A header that says what a shared object of these targets is built from and for.",
    implementation = _cuda_build_info_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "out": attr.output(mandatory = True),
    },
)
