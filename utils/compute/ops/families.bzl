"""All families of ops."""

# The folder of each family here, and those of its tests that run its kernels for docs/ops.md. A family whose tests are
# missing here shows as untested there.
_TESTS_OF_FAMILIES = {
    "array": ["array_test", "gather_test"],
    "attention": ["attention_test"],
    "batch_norm": ["batch_norm_test"],
    "check_numerics": ["check_numerics_test"],
    "checksum": ["checksum_test"],
    "collective": [],  # its kernels run in //utils/distribute:strategy_test and strategy_emulated_test
    "conv": ["conv2d_fusion_test", "conv2d_test"],
    "conv_pool": ["conv_pool_test"],
    "dropout": ["dropout_test"],
    "elementwise": ["elementwise_test", "fusion_test", "grouping_test"],
    "embedding": ["embedding_test"],
    "l2_loss": ["l2_loss_test"],
    "layer_norm": ["layer_norm_test"],
    "loss_scale": ["loss_scale_test"],
    "matmul": ["matmul_test"],
    "optimizer": ["deferred_adam_test", "optimizer_test"],
    "pooling": ["pooling_test"],
    "reduction": ["reduction_test"],
    "reorder": ["reorder_test"],
    "softmax": ["aligned_logits_test", "mean_cross_entropy_test", "softmax_test"],
    "top_k": ["top_k_test"],
}

# The same of the families that one model alone has, by their labels.
_TESTS_OF_MODELS = {
    "//official/recommendation/op:neural_factorization": ["neural_factorization_test"],
}

OP_FAMILIES = ["//utils/compute/ops/" + name for name in _TESTS_OF_FAMILIES]

# What networks for images do without: a program that leaves it out is built sooner.
_TEXT = ["attention", "embedding", "layer_norm"]

IMAGE_OP_FAMILIES = ["//utils/compute/ops/" + name for name in _TESTS_OF_FAMILIES if name not in _TEXT]

OP_FAMILIES_OF_MODELS = list(_TESTS_OF_MODELS)

CUDA_KERNELS = ["//utils/compute/ops/%s:%s_cuda" % (name, name) for name in _TESTS_OF_FAMILIES] + [
    label + "_cuda"
    for label in _TESTS_OF_MODELS
]

# What writes the ops in StableHLO, for PJRT devices.
HLO_EMITTERS = ["//utils/compute/ops/%s:%s_hlo" % (name, name) for name in _TESTS_OF_FAMILIES] + [
    label + "_hlo"
    for label in _TESTS_OF_MODELS
]

EMULATED_CUDA_KERNELS = [label + "_emulated" for label in CUDA_KERNELS]

OP_TESTS = [
    "//utils/compute/ops/%s:%s" % (name, test)
    for name, tests in _TESTS_OF_FAMILIES.items()
    for test in tests
] + [
    label.split(":")[0] + ":" + test
    for label, tests in _TESTS_OF_MODELS.items()
    for test in tests
]

# Of kernels for the CPU only.
_CPU_TESTS = ["//utils/compute/ops/reorder:reorder_test"]

EMULATED_OP_TESTS = [
    label[:-len("_test")] + "_emulated_test"
    for label in OP_TESTS
    if label not in _CPU_TESTS
]
