"""fuzz_target: a parser under libFuzzer, and under test with the inputs that are stored for it."""

def fuzz_target(name, deps):
    """Makes the test `name` of name.cc, which defines LLVMFuzzerTestOneInput, with the inputs in corpus/<name>/.

    Built by tools/fuzz it is a libFuzzer binary; else a program that feeds each stored input once.
    """
    native.filegroup(
        name = name + "_corpus",
        srcs = native.glob(["corpus/" + name + "/*"]),
    )
    native.cc_test(
        name = name,
        size = "small",
        srcs = [name + ".cc"],
        args = ["$(rootpaths :%s_corpus)" % name],
        data = [":%s_corpus" % name],
        tags = ["fuzz"],
        deps = deps + select({
            "//utils/fuzzing:libfuzzer": [],
            "//conditions:default": ["//utils/fuzzing:corpus_main"],
        }),
    )
