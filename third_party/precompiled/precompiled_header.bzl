"""precompiled_header: a header that the compiler reads once, and then finds already parsed beside it."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _provide(headers):
    return [
        DefaultInfo(files = depset(headers)),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(headers))),
    ]

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain)

    header = ctx.actions.declare_file(ctx.label.name + ".h")
    if ctx.var.get("precompiled_headers") == "off":
        ctx.actions.write(header, "")
        return _provide([header])

    # GCC looks for NAME.h.gch beside NAME.h, and takes it if its own flags are those that it was made with. With -MD it
    # keeps the names of what was parsed, which -fpch-deps (.bazelrc) adds to what a file depends on: Bazel compiles the
    # file again when one of these changes.
    parsed = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.hdr)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.hdr.path,
        output_file = parsed.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + ["-x", "c++-header", "-MD", "-MF", "/dev/null"],
    )
    ctx.actions.run(
        executable = toolchain.compiler_executable,
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset(
            [ctx.file.hdr] + ctx.files.textual_hdrs,
            transitive = [toolchain.all_files] + [dep[CcInfo].compilation_context.headers for dep in ctx.attr.deps],
        ),
        outputs = [parsed],
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling %s" % ctx.label.name,
    )
    return _provide([header, parsed, ctx.file.hdr] + ctx.files.textual_hdrs)

precompiled_header = rule(
    doc = """NAME.h, which holds `hdr` and which .bazelrc includes in front of the files that it names for it.

    Files include what they use nevertheless: with --define=precompiled_headers=off, NAME.h is empty.""",
    implementation = _precompiled_header_impl,
    attrs = {
        "hdr": attr.label(allow_single_file = [".h"], mandatory = True),
        "textual_hdrs": attr.label_list(allow_files = [".h"], doc = "those of the project that `hdr` includes"),
        "deps": attr.label_list(providers = [CcInfo], doc = "the libraries whose headers `hdr` includes"),
        "copts": attr.string_list(doc = "those that .bazelrc gives these files beside those of all"),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
