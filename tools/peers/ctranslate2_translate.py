"""Prints how many tokens a second CTranslate2's beam search finds with an official Transformer that was not trained."""

import tempfile

import ctranslate2
import numpy as np
import translate
from ctranslate2 import specs
from transformer_architecture import Architecture

FIRST_OTHER_ID = 3  # behind those that CTranslate2 wants: <unk>, <s>, </s>


def matrix(rows: int, columns: int) -> np.ndarray:
    return (np.random.randn(rows, columns) / np.sqrt(columns)).astype(np.float32)


def fill_norm(spec: specs.common_spec.LayerNormSpec, a: Architecture) -> None:
    spec.gamma = np.ones(a.hidden_size, np.float32)
    spec.beta = np.zeros(a.hidden_size, np.float32)


def fill_linear(spec: specs.common_spec.LinearSpec, weight: np.ndarray) -> None:
    spec.weight, spec.bias = weight, np.zeros(len(weight), np.float32)


def fill_layer(spec: specs.model_spec.LayerSpec, a: Architecture) -> None:
    h = a.hidden_size
    fill_norm(spec.self_attention.layer_norm, a)
    for linear, rows in zip(spec.self_attention.linear, [3 * h, h]):  # queries, keys and values are one
        fill_linear(linear, matrix(rows, h))
    if hasattr(spec, "attention"):
        fill_norm(spec.attention.layer_norm, a)
        for linear, rows in zip(spec.attention.linear, [h, 2 * h, h]):
            fill_linear(linear, matrix(rows, h))
    fill_norm(spec.ffn.layer_norm, a)
    fill_linear(spec.ffn.linear_0, matrix(a.filter_size, h))
    fill_linear(spec.ffn.linear_1, matrix(h, a.filter_size))


def untrained(a: Architecture) -> specs.TransformerSpec:
    spec = specs.TransformerSpec.from_config(a.num_layers, a.num_heads)
    embedding = matrix(a.vocab_size, a.hidden_size)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = embedding
    fill_linear(spec.decoder.projection, embedding)
    for stack in (spec.encoder, spec.decoder):
        stack.position_encodings.encodings = np.array(a.positions(256), np.float32)
        fill_norm(stack.layer_norm, a)
        for layer in stack.layer:
            fill_layer(layer, a)
    vocabulary = ["<unk>", "<s>", "</s>", *map(str, range(FIRST_OTHER_ID, a.vocab_size))]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    return spec


def main() -> None:
    args, architecture = translate.parse()
    np.random.seed(1)
    spec = untrained(architecture)
    spec.validate()
    with tempfile.TemporaryDirectory() as folder:
        spec.save(folder)
        translator = ctranslate2.Translator(
            folder,
            device="cuda" if args.device == "gpu" else "cpu",
            compute_type={"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}[args.dtype],
            inter_threads=1,
            intra_threads=args.threads,
        )
    sentences = [
        [*map(str, np.random.randint(FIRST_OTHER_ID, architecture.vocab_size, length - 1)), "</s>"]
        for length in args.lengths
    ]

    def run() -> int:
        found = translator.translate_batch(
            sentences, beam_size=translate.BEAM_SIZE, min_decoding_length=args.steps, max_decoding_length=args.steps
        )
        return sum(len(result.hypotheses[0]) for result in found)

    translate.measure(run, args)


if __name__ == "__main__":
    main()
