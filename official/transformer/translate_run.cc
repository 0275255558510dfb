#include "official/transformer/translate_run.h"

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "official/transformer/training_vocabulary.h"
#include "official/transformer/translator.h"
#include "utils/compute/core/status.h"
#include "utils/compute/kernel/device.h"
#include "utils/files/files.h"
#include "utils/flags/performance.h"
#include "utils/logs/json.h"
#include "utils/logs/log.h"
#include "utils/run/one_device.h"
#include "utils/run/predict_lines.h"
#include "utils/run/usable_gpus.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::transformer {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
constexpr int64_t kExtraDecodeLength = 100;  // upstream's when it translates
constexpr char kGlobalStep[] = "global_step";
constexpr char kScope[] = "model/Transformer/";
constexpr char kEmbedding[] = "model/Transformer/embedding_shared_weights/embedding_and_softmax/weights";

// The flags that a network with the checkpoint's embedding has.
std::string SuggestFlags(const train::BundleReader& checkpoint) {
  const std::optional<train::StoredTensor> embedding = checkpoint.Find(kEmbedding);
  if (!embedding || embedding->shape.rank() != 2) return "is --model_dir that of a Transformer?";
  const int64_t vocab_size = embedding->shape.dim(0), hidden_size = embedding->shape.dim(1);
  ModelParams params;
  std::string flags = "try --param_set";
  std::vector<std::string> overrides;
  for (const std::string& set : ParamSets()) {
    params = ParamsOf(set, /*multi_gpu=*/false).value();
    if (params.hidden_size != hidden_size) continue;
    absl::StrAppend(&flags, "=", set);
    break;
  }
  if (params.hidden_size != hidden_size) overrides.push_back(absl::StrCat("hidden_size=", hidden_size));
  if (params.vocab_size != vocab_size) overrides.push_back(absl::StrCat("vocab_size=", vocab_size));
  absl::StrAppend(&flags, " and --params_override", overrides.empty() ? "" : "=", absl::StrJoin(overrides, ","),
                  ", as in the training");
  return flags;
}

// The ids of another vocabulary are other words, which nothing else would tell.
absl::Status CheckVocabulary(const TranslateConfig& config, const Subtokenizer& vocabulary,
                             const train::BundleReader& checkpoint, int64_t vocab_size) {
  const KnownVocabulary known = {absl::StrCat("--vocab_file=", config.vocab_file),
                                 VocabularyDigest(vocabulary.subtokens())};
  std::vector<train::RunFact> facts = {VocabularyFact(known, config.model_dir)};
  RETURN_IF_ERROR(train::CompareFacts(checkpoint, facts));
  if (vocabulary.vocab_size() > vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("--vocab_file=", config.vocab_file, " has ", vocabulary.vocab_size(),
                                                   " subtokens, the network in ", config.model_dir, " only ",
                                                   vocab_size, "; give the vocabulary that it was trained with"));
  }
  if (facts[0].before.empty()) {
    LOG(WARNING) << "the checkpoint does not say which vocabulary its network was trained with: that it is "
                 << "--vocab_file=" << config.vocab_file << " cannot be checked";
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Decoder>> OpenDecoder(const TranslateConfig& config, const ModelParams& params,
                                                     const Subtokenizer& vocabulary, compute::Device& device,
                                                     int64_t* global_step) {
  ASSIGN_OR_RETURN(const train::LatestCheckpoint latest, train::FindLatestCheckpoint(config.model_dir));
  if (latest.reader == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint in ", config.model_dir, "; train first, or name another --model_dir"));
  }
  if (!latest.note.empty()) {
    if (config.only_latest) return absl::DataLossError(latest.note);
    LOG(WARNING) << latest.note;
  }
  const train::BundleReader& checkpoint = *latest.reader;
  const auto mismatch = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoint ", latest.prefix, " is not of --param_set=", config.param_set,
                     config.params_override.empty() ? "" : " --params_override=", config.params_override, ": ", what,
                     "; ", SuggestFlags(checkpoint)));
  };
  std::set<std::string> names;
  const auto read = [&](const compute::VariableSpec& spec) -> absl::StatusOr<compute::Tensor> {
    const std::string average = absl::StrCat(spec.name, train::kAverageSuffix);
    names.insert({spec.name, average});
    std::optional<train::StoredTensor> found = checkpoint.Find(average);
    if (!found) found = checkpoint.Find(spec.name);
    if (!found) return mismatch(absl::StrCat("it has no ", spec.name));
    if (found->dtype == compute::DType::kFloat32 && found->shape == spec.type.shape)
      return checkpoint.Read(found->name);
    return mismatch(absl::StrCat(spec.name, " is ", found->dtype_name, found->shape.ToString(), " and not float32",
                                 spec.type.shape.ToString()));
  };
  ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder, Decoder::Create(params, config.dtype, device, read));
  for (const train::StoredTensor& tensor : checkpoint.ListTensors()) {
    if (absl::StartsWith(tensor.name, kScope) && names.count(tensor.name) == 0) {
      return mismatch(absl::StrCat("it also has ", tensor.name));
    }
  }
  RETURN_IF_ERROR(CheckVocabulary(config, vocabulary, checkpoint, params.vocab_size));
  if (checkpoint.Find(kGlobalStep)) {
    ASSIGN_OR_RETURN(const compute::Tensor step, checkpoint.Read(kGlobalStep));
    *global_step = step.CastTo(compute::DType::kInt64).scalar<int64_t>();
  }
  LOG(INFO) << "device " << device.Description() << run::WithLibraries(device.kind()) << ", precision "
            << flags::DTypeFlagValue(config.dtype) << ", " << latest.prefix;
  return decoder;
}

absl::Status CheckFileOut(const std::string& path) {
  const absl::Status status = files::CheckOutput(path);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("--file_out=", path, ": ", status.message()));
}

void Print(const TranslateConfig& config, const std::string& source, const std::string& translation,
           std::ostream& out) {
  if (config.json) {
    out << logs::DumpJson(logs::Json::Object{{"source", source}, {"translation", translation}}) << std::endl;
  } else {
    out << translation << std::endl;
  }
}

// Prints what stands for the translation of a bad line, so that the others keep their places.
void PrintBad(const TranslateConfig& config, const absl::Status& why, std::ostream& out) {
  if (config.json) {
    out << logs::DumpJson(logs::Json::Object{{"source", logs::Json()}, {"error", std::string(why.message())}});
  }
  out << std::endl;
}

// `source`: what the line is of, for errors.
absl::StatusOr<std::string> TranslateLine(Translator& translator, absl::string_view source, const std::string& line,
                                          int64_t number = 1) {
  const absl::StatusOr<std::vector<std::string>> lines = translator.Translate({line}, {.first_line = number});
  if (lines.ok()) return (*lines)[0];
  return absl::Status(lines.status().code(), absl::StrCat(source, ": ", lines.status().message()));
}

absl::Status TranslateFile(const TranslateConfig& config, Translator& translator, std::ostream& out) {
  ASSIGN_OR_RETURN(const std::string content, files::ReadFile(*config.file, kMaxFileBytes));
  const std::vector<std::string> lines = LinesToTranslate(content);
  const absl::StatusOr<std::vector<std::string>> translations =
      translator.Translate(lines, {.batch_size = config.batch_size});
  if (!translations.ok()) {
    return absl::Status(translations.status().code(),
                        absl::StrCat(*config.file, ": ", translations.status().message()));
  }
  if (!config.file_out) {
    for (size_t i = 0; i < lines.size(); ++i) Print(config, lines[i], (*translations)[i], out);
    return absl::OkStatus();
  }
  std::string text;
  for (const std::string& line : *translations) absl::StrAppend(&text, line, "\n");
  RETURN_IF_ERROR(files::WriteOutput(*config.file_out, text));
  LOG(INFO) << "translated " << translations->size() << " lines to " << *config.file_out;
  if (config.json) {
    out << logs::DumpJson(logs::Json::Object{{"file_out", *config.file_out},
                                             {"lines", static_cast<int64_t>(translations->size())}})
        << "\n";
  }
  return absl::OkStatus();
}

absl::Status TranslateStream(const TranslateConfig& config, Translator& translator, int in, std::ostream& out) {
  LOG(INFO) << "translating standard input, line by line";
  run::ArrivingLines lines(in);
  run::LineCount count;
  for (int64_t number = 1;; ++number) {
    ASSIGN_OR_RETURN(const std::vector<run::ArrivingLines::Line> next, lines.Next(/*max=*/1));
    if (next.empty()) return count.Result();
    const run::ArrivingLines::Line& line = next[0];
    if (const absl::Status status = line.ok() ? translator.CountTokens(*line).status() : line.status(); status.ok()) {
      ASSIGN_OR_RETURN(const std::string translation, TranslateLine(translator, "standard input", *line, number));
      count.AddGood();
      Print(config, *line, translation, out);
    } else {
      count.AddBad(status);
      PrintBad(config, status, out);
    }
    if (!out) return absl::AbortedError("cannot write to standard output");
  }
}

}  // namespace

absl::StatusOr<OpenedTranslator> OpenTranslator(const TranslateConfig& config) {
  ASSIGN_OR_RETURN(ModelParams params, ParamsOf(config.param_set, /*multi_gpu=*/false));
  params.extra_decode_length = kExtraDecodeLength;
  RETURN_IF_ERROR(OverrideParams(config.params_override, &params));
  ASSIGN_OR_RETURN(Subtokenizer vocabulary, Subtokenizer::Load(config.vocab_file));
  OpenedTranslator opened;
  ASSIGN_OR_RETURN(opened.device, run::MakeOneDevice(config.performance, config.num_gpus, config.program));
  opened.device->set_recordings(compute::Recordings::kAuto);
  ASSIGN_OR_RETURN(std::unique_ptr<Decoder> decoder,
                   OpenDecoder(config, params, vocabulary, *opened.device, &opened.global_step));
  opened.translator = std::make_unique<Translator>(std::move(vocabulary), std::move(decoder));
  return opened;
}

absl::Status RunTranslate(const TranslateConfig& config, int in, std::ostream& out) {
  if (config.file_out) RETURN_IF_ERROR(CheckFileOut(*config.file_out));
  ASSIGN_OR_RETURN(const OpenedTranslator opened, OpenTranslator(config));
  Translator& translator = *opened.translator;
  if (config.text) {
    ASSIGN_OR_RETURN(const std::string translation, TranslateLine(translator, "--text", *config.text));
    LOG(INFO) << "Translation of \"" << *config.text << "\": \"" << translation << "\"";
    Print(config, *config.text, translation, out);
  }
  if (config.file) return TranslateFile(config, translator, out);
  return config.text ? absl::OkStatus() : TranslateStream(config, translator, in, out);
}

}  // namespace official::transformer
