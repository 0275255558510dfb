// compute_bleu_main: the BLEU of a translation.
#include <cstdio>
#include <iostream>
#include <utility>

#include "absl/flags/flag.h"
#include "official/transformer/bleu/bleu.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/flags/main.h"

ABSL_FLAG(std::string, translation, "", "Text file with the translation to score, one sentence per line.");
ABSL_FLAG(std::string, reference, "", "Text file with the reference translation, line by line.");
ABSL_FLAG(std::string, bleu_variant, "both", "cased: case-sensitive BLEU; uncased: case-insensitive BLEU; both.");
ABSL_FLAG(std::string, tokenize, "official",
          "How sentences are split into words: official, as in TensorFlow's official models, or 13a, as sacreBLEU does "
          "by default.");

namespace official::transformer {
namespace {

flags::Program BleuProgram() {
  return {
      .name = "compute_bleu_main",
      .description = "Computes the BLEU score, 0 to 100, of a translation.",
      .examples = {{"compute_bleu_main --translation=translation.de --reference=newstest2014.de",
                    "case-insensitive and case-sensitive BLEU"}},
      .flags = {.name = "compute_bleu",
                .flags = {{.name = "translation", .key = true, .required = true},
                          {.name = "reference", .key = true, .required = true},
                          {.name = "bleu_variant",
                           .short_name = "bv",
                           .key = true,
                           .choices = {"both", "uncased", "cased"},
                           .any_case = true},
                          {.name = "tokenize", .key = true, .choices = {"official", "13a"}},
                          flags::OutputFlag(),
                          flags::LogFormatFlag()}},
      .shared_flags = false,
  };
}

absl::Status Main(const flags::CommandLine&) {
  RETURN_IF_ERROR(flags::StartLog());
  logs::Json::Object scores;
  const std::string variant = absl::GetFlag(FLAGS_bleu_variant);
  for (const bool case_sensitive : {false, true}) {
    if (variant == (case_sensitive ? "uncased" : "cased")) continue;
    const bool is_13a = absl::GetFlag(FLAGS_tokenize) == "13a";
    ASSIGN_OR_RETURN(const float bleu,
                     FileBleu(absl::GetFlag(FLAGS_reference), absl::GetFlag(FLAGS_translation),
                              {.case_sensitive = case_sensitive,
                               .tokenizer = is_13a ? BleuTokenizer::k13a : BleuTokenizer::kOfficial}));
    if (flags::WantsJson()) {
      scores.emplace_back(case_sensitive ? "bleu_cased" : "bleu_uncased", double{bleu});
      continue;
    }
    std::printf("Case-%s results: %f\n", case_sensitive ? "sensitive" : "insensitive", bleu);
  }
  if (flags::WantsJson()) flags::PrintJson(std::move(scores), std::cout);
  return absl::OkStatus();
}

}  // namespace
}  // namespace official::transformer

int main(int argc, char** argv) {
  return official::flags::RunMain(argc, argv, official::transformer::BleuProgram(), official::transformer::Main);
}
