"""All programs that users run."""

PROGRAMS = [
    "//official/checkpoint_tool:checkpoint_tool",
    "//official/data_check:data_check",
    "//official/mnist:download_mnist_main",
    "//official/mnist:mnist_main",
    "//official/recommendation/data:download_movielens_main",
    "//official/recommendation/data:generate_ratings_main",
    "//official/recommendation:ncf_main",
    "//official/report:report_main",
    "//official/resnet/cifar10:download_cifar10_main",
    "//official/resnet/imagenet:imagenet_to_tfrecords_main",
    "//official/resnet:resnet_main",
    "//official/serve:serve_main",
    "//official/transformer/bleu:compute_bleu_main",
    "//official/transformer/prepare:prepare_data_main",
    "//official/transformer:transformer_main",
    "//official/transformer:translate_main",
]

# Programs that only measure.
BENCHMARKS = [
    "//official/resnet/input_benchmark:input_benchmark_main",
    "//official/transformer/decode_benchmark:decode_benchmark_main",
]
