"""Finds the CUDA toolkit: $CUDA_HOME, else /usr/local/cuda. Makes the repository @cuda, also where there is none."""

_DEFS = """HAS_CUDA = {has_cuda}

CUDA_HOME = "{home}"

# What is compiled with these headers: "kernels for GPUs by CUDA 13.0, cuDNN 9.19.0 and NCCL 2.28.9".
GPU_KERNELS = "{gpu_kernels}"
"""

# Linked into the backend's shared object only. The runtime is static: its calls are few, and the driver library behind
# it is opened when the first one is made. cuDNN and cuBLAS stay shared: they are hundreds of megabytes. NCCL is opened
# when several GPUs are used; only its header is needed here.
_BUILD = """package(default_visibility = ["//visibility:public"])

exports_files(["toolkit.txt"])

cc_library(
    name = "cudart",
    linkopts = ["-L{home}/lib64", "-lcudart_static", "-ldl", "-lrt", "-lpthread"],
)

cc_library(
    name = "cublas",
    linkopts = ["-L{home}/lib64", "-lcublas", "-lcublasLt"],
)

cc_library(
    name = "cudnn",
    linkopts = ["-L{home}/lib64", "-lcudnn"],
)
"""

def _version(ctx, header, macros):
    """The values of macros in a header, with dots between them."""
    values = {}
    for line in ctx.read(header).splitlines():
        words = [word for word in line.split(" ") if word]
        if len(words) >= 3 and words[0] == "#define":
            values[words[1]] = words[2]
    return ".".join([values.get(macro, "?") for macro in macros])

def _versions(ctx, home, nvcc_version):
    cuda = nvcc_version.partition("release ")[2].partition(",")[0]
    cudnn = _version(ctx, home + "/include/cudnn_version.h", ["CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL"])
    nccl = _version(ctx, home + "/include/nccl.h", ["NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH"])
    return "CUDA %s, cuDNN %s and NCCL %s" % (cuda, cudnn, nccl)

def _cuda_configure_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "") or "/usr/local/cuda"
    headers = ["include/cudnn.h", "include/cudnn_version.h", "include/cublasLt.h", "include/nccl.h"]
    wanted = ["bin/nvcc", "lib64/libcudart_static.a"] + headers
    missing = [path for path in wanted if not ctx.path(home + "/" + path).exists]
    gpu_kernels = "without kernels for GPUs"
    if missing:
        if "CUDA_HOME" in ctx.os.environ:
            # buildifier: disable=print
            print("CUDA_HOME=%s has no %s: the CUDA backend is not built" % (home, ", ".join(missing)))
        ctx.file("BUILD", 'exports_files(["toolkit.txt"])\n')
        ctx.file("toolkit.txt", "none\n")
    else:
        version = ctx.execute([home + "/bin/nvcc", "--version"]).stdout
        cudnn = ctx.read(home + "/include/cudnn_version.h")
        ctx.file("BUILD", _BUILD.format(home = home))

        gpu_kernels = "kernels for GPUs by " + _versions(ctx, home, version)

        # An input of every compilation: the headers of the toolkit are not declared one by one.
        ctx.file("toolkit.txt", home + "\n" + version + cudnn)
    ctx.file("defs.bzl", _DEFS.format(has_cuda = not missing, home = home if not missing else "", gpu_kernels = gpu_kernels))

cuda_configure = repository_rule(
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
