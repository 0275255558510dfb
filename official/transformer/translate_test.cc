#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "official/transformer/small_network.h"
#include "official/transformer/text/vocabulary.h"
#include "official/transformer/transformer_model.h"
#include "official/transformer/translate_run.h"
#include "official/transformer/translator.h"
#include "utils/compute/kernel/device.h"
#include "utils/files/files.h"
#include "utils/logs/captured_log.h"
#include "utils/train/checkpoint/checkpoint_dir.h"

namespace official::transformer {
namespace {

using Catch::Matchers::Contains;
using compute::DType;
using compute::Tensor;

constexpr char kOverrides[] = "vocab_size=11,hidden_size=8,num_heads=2,filter_size=16,num_hidden_layers=2";

std::string NewPath(const std::string& name) {
  static int count = 0;
  const char* const directory = std::getenv("TEST_TMPDIR");
  return absl::StrCat(directory != nullptr ? directory : "/tmp", "/", name, ++count);
}

std::string WriteText(const std::string& text) {
  const std::string path = NewPath("text");
  std::ofstream(path) << text;
  return path;
}

// A model_dir with a small network, its vocabulary (words of one letter, a to i), and the flags to translate with it.
class Run {
 public:
  Run() : device_(compute::MakeDevice("cpu").value()), variables_(*device_) {
    config_ = {.model_dir = NewPath("model"),
               .param_set = "tiny",
               .params_override = absl::StrCat(kOverrides, ",extra_decode_length=9"),
               .vocab_file = NewPath("vocab"),
               .text = {},
               .file = {},
               .file_out = {}};
    compute::Graph graph;
    const std::vector<compute::Value> sentences = {graph.Input("ids", {DType::kInt32, {64}}),
                                                   graph.Input("offsets", {DType::kInt32, {2}})};
    Logits({.graph = graph,
            .mode = train::Mode::kEval,
            .dtype = DType::kFloat32,
            .features = sentences,
            .labels = sentences,
            .random_state = {}},
           Params());
    REQUIRE(variables_.Create(graph, 3).ok());
    Sharpen(variables_, 3);
    SetLogitOfEos(variables_, -100);  // translations are as long as they may be
    Save(5, "");
    WriteVocabularyOf({"<pad>", "<EOS>", "a_", "b_", "c_", "d_", "e_", "f_", "g_", "h_", "i_"});
  }

  static ModelParams Params() {
    ModelParams params = SmallParams();
    params.extra_decode_length = 9;
    params.initializer_gain = 4;  // so that what was decoded matters
    return params;
  }
  // Makes the newest network one that translates each sentence into nothing.
  void EndAtOnce() {
    SetLogitOfEos(variables_, 100);
    Save(6, "");
  }
  // Saves the network, without the variables whose names contain `without`.
  void Save(int64_t step, const std::string& without, const std::map<std::string, std::string>& facts = {}) {
    std::map<std::string, Tensor> tensors = {{"global_step", Tensor::Scalar(step)}};
    for (const compute::VariableSpec& spec : variables_.specs()) {
      if (!without.empty() && spec.name.find(without) != std::string::npos) continue;
      tensors[spec.name] = variables_.Read(spec.name).value();
      tensors["model/get_train_op/" + spec.name + "/Adam"] = tensors[spec.name];
    }
    REQUIRE(train::CheckpointSaver::Open(config_.model_dir, 5).value()->Save(step, tensors, facts).ok());
  }
  void WriteVocabularyOf(const std::vector<std::string>& subtokens) const {
    REQUIRE(WriteVocabulary(config_.vocab_file, subtokens).ok());
  }

  TranslateConfig& config() { return config_; }
  // What goes to standard output.
  std::string Translate(const std::string& in = "") const {
    std::ostringstream out;
    const absl::Status status = TranslateInput(WriteText(in), out);
    REQUIRE(status.ToString() == "OK");
    return out.str();
  }
  std::string Error(const std::string& in = "") const {
    std::ostringstream out;
    return TranslateInput(WriteText(in), out).ToString();
  }
  // With standard input from `path`.
  absl::Status TranslateInput(const std::string& path, std::ostream& out) const {
    const int in = open(path.c_str(), O_RDONLY);
    REQUIRE(in >= 0);
    const absl::Status status = RunTranslate(config_, in, out);
    close(in);
    return status;
  }
  // The translations of a batch of lines by the parts of the program.
  std::vector<std::string> Expect(const std::vector<std::string>& lines) const {
    const Subtokenizer vocabulary = Subtokenizer::Load(config_.vocab_file).value();
    const auto decoder = Decoder::Create(Params(), DType::kFloat32, *device_, [this](const auto& spec) {
                           return variables_.Read(spec.name);
                         }).value();
    std::vector<std::vector<int32_t>> ids;
    for (const std::string& line : lines) {
      ids.emplace_back();
      REQUIRE(vocabulary.Encode(line, &ids.back()).ok());
      ids.back().push_back(kEosId);
    }
    std::vector<std::string> translations;
    const Decoded found = decoder->Translate(ids).value();
    for (const Hypothesis& best : found.best) {
      translations.push_back(vocabulary.Decode(BeforeEos(best.ids)));
    }
    return translations;
  }

 private:
  std::unique_ptr<compute::Device> device_;
  compute::VariableStore variables_;
  TranslateConfig config_;
};

TEST_CASE("A sentence, and what comes from standard input line by line") {
  Run run;
  const std::string translation = run.Expect({"a b c d"})[0], other = run.Expect({"h h"})[0];
  CHECK_FALSE(translation.empty());
  CHECK(translation != other);
  CHECK(run.Translate("a b c d\n\n  h h \n") == absl::StrCat(translation, "\n\n", other, "\n"));
  run.config().text = " a b c d";
  CHECK(run.Translate("not read") == translation + "\n");
  run.config().text = "";
  CHECK(run.Translate("not read") == "\n");
}

TEST_CASE("A bad line of standard input is logged, its translation is empty, and the others follow") {
  Run run;
  run.config().json = GENERATE(false, true);
  const std::string translation = run.Expect({"a b c d"})[0], other = run.Expect({"h h"})[0];
  const std::string input = WriteText(absl::StrCat("a b c d\nb\xff\n", std::string((1 << 20) + 1, 'a'), "\nh h\n"));
  logs::CapturedLog log(logs::LogFormat::kSimple);
  std::ostringstream out;
  const absl::Status status = run.TranslateInput(input, out);
  CHECK(status == absl::DataLossError("2 of 4 lines of standard input are bad; the log names them"));
  CHECK_THAT(log.Text(), Contains("line 2: byte 2 is not UTF-8") && Contains("line 3: has more than 1048576 bytes"));
  if (run.config().json) {
    CHECK(out.str() == absl::StrCat(R"({"source": "a b c d", "translation": ")", translation, "\"}\n",
                                    R"({"source": null, "error": "byte 2 is not UTF-8"})", "\n",
                                    R"({"source": null, "error": "has more than 1048576 bytes"})", "\n",
                                    R"({"source": "h h", "translation": ")", other, "\"}\n"));
  } else {
    CHECK(out.str() == absl::StrCat(translation, "\n\n\n", other, "\n"));
  }
}

TEST_CASE("Standard input that cannot be read is an error") {
  Run run;
  std::ostringstream out;
  const absl::Status status = run.TranslateInput(run.config().model_dir, out);
  CHECK(status == absl::NotFoundError("cannot read standard input: Is a directory"));
}

TEST_CASE("A file, in batches of lines with equally many words") {
  Run run;
  run.config().file = WriteText("a\n\n a b c\t\nd\r\ne f\n  ");
  run.config().batch_size = 2;
  const std::vector<std::string> first = run.Expect({"a b c", "e f"}), second = run.Expect({"a", "d"});
  const std::string expected = absl::StrCat(second[0], "\n\n", first[0], "\n", second[1], "\n", first[1], "\n");
  CHECK(run.Translate() == expected);
  run.config().file_out = NewPath("translation");
  CHECK(run.Translate().empty());
  CHECK(files::ReadFile(*run.config().file_out, 1 << 20).value() == expected);
}

TEST_CASE("How many lines are translated is shown") {
  Run run;
  run.config().file = WriteText("a\nb c\nd\n");
  run.config().file_out = NewPath("translation");
  logs::CapturedTasks log;
  CHECK(run.Translate().empty());
  CHECK_THAT(log.Text(), Contains("translating   0% [") && Contains("translating 100% [") && Contains("3/3 lines"));
}

TEST_CASE("Translations may be 100 tokens longer than the text") {
  Run run;
  run.config().params_override = kOverrides;
  run.config().text = "a b";
  const std::vector<std::string> words = absl::StrSplit(run.Translate(), ' ');
  CHECK(words.size() > 3 + 90);
  CHECK(words.size() <= 3 + 100);
}

TEST_CASE("Before each batch of a translation the caller says whether it goes on") {
  Run run;
  const OpenedTranslator opened = OpenTranslator(run.config()).value();
  int asked = 0, last = 2;
  const auto before_batch = [&] { return ++asked > last ? absl::AbortedError("enough") : absl::OkStatus(); };
  const auto translate = [&] {
    asked = 0;
    return opened.translator->Translate({"a", "b", "", "c"}, {.batch_size = 2, .before_batch = before_batch});
  };
  CHECK(translate().ok());
  CHECK(asked == 2);
  last = 1;
  CHECK(translate().status() == absl::AbortedError("enough"));
}

TEST_CASE("The lines of a file are those of upstream") {
  using Lines = std::vector<std::string>;
  CHECK(LinesToTranslate("").empty());
  CHECK(LinesToTranslate("a\nb") == Lines{"a", "b"});
  CHECK(LinesToTranslate("a\nb\n") == Lines{"a", "b"});
  CHECK(LinesToTranslate("a\nb\n\n") == Lines{"a", "b", ""});
  CHECK(LinesToTranslate("\na\n \t") == Lines{"", "a"});
}

TEST_CASE("A line may have 10,000 words") {
  Run run;
  run.EndAtOnce();
  std::string line;
  for (int i = 0; i < 5'000; ++i) line += "a b ";
  run.config().file = WriteText(absl::StrCat("c\n", line, "\nd"));
  CHECK(run.Translate() == "\n\n\n");
}

TEST_CASE("The newest checkpoint translates, in narrow types too") {
  Run run;
  run.Save(7, "");
  std::filesystem::remove(run.config().model_dir + "/model.ckpt-5.index");
  run.config().dtype = DType::kBFloat16;
  run.config().text = "a b";
  CHECK_FALSE(run.Translate().empty());
}

TEST_CASE("In place of a damaged checkpoint an older one translates, unless only the latest is wanted") {
  Run run;
  run.Save(7, "");
  std::filesystem::resize_file(run.config().model_dir + "/model.ckpt-7.data-00000-of-00001", 10);
  run.config().text = "a b";
  CHECK_FALSE(run.Translate().empty());
  run.config().only_latest = true;
  CHECK_THAT(run.Error(), Contains("DATA_LOSS") && Contains("model.ckpt-7"));
}

TEST_CASE("The vocabulary is that of the training, where the checkpoint tells") {
  Run run;
  run.config().text = "a b c d";
  logs::CapturedLog log(logs::LogFormat::kSimple);
  const std::string expected = run.Translate();
  const std::string warning = absl::StrCat("that it is --vocab_file=", run.config().vocab_file, " cannot be checked");
  CHECK_THAT(log.Text(), Contains(warning));
  const std::string digest = VocabularyDigest(ReadVocabulary(run.config().vocab_file).value());
  run.Save(7, "", {{"_run/vocabulary", digest}});
  CHECK(run.Translate() == expected);
  CHECK(log.Text().rfind(warning) == log.Text().find(warning));  // said once, of the first
  run.WriteVocabularyOf({"<pad>", "<EOS>", "b_", "a_", "c_", "d_", "e_", "f_", "g_", "h_", "i_"});
  CHECK_THAT(run.Error(), Contains("INVALID_ARGUMENT") && Contains(absl::StrCat("a vocabulary of ", digest, ", and ")));
  run.Save(8, "", {{"_run/vocabulary", std::string(100, '\xff')}});
  CHECK_THAT(run.Error(), Contains("\\xff"));
}

TEST_CASE("What does not fit is named") {
  Run run;
  SECTION("no vocabulary") {
    run.config().vocab_file = "/nowhere/vocab";
    CHECK_THAT(run.Error(), Contains("NOT_FOUND") && Contains("/nowhere/vocab"));
  }
  SECTION("the vocabulary of a larger network") {
    run.WriteVocabularyOf({"<pad>", "<EOS>", "a_", "b_", "c_", "d_", "e_", "f_", "g_", "h_", "i_", "j_"});
    CHECK_THAT(run.Error(), Contains("has 12 subtokens") && Contains("only 11; give the vocabulary"));
  }
  SECTION("a directory for a file") {
    run.config().file = WriteText("a");
    run.config().file_out = run.config().model_dir;
    CHECK_THAT(run.Error(), Contains("--file_out=" + run.config().model_dir + ": ") && Contains("it is a directory"));
  }
  SECTION("no directory for a file") {
    run.config().file_out = "/nowhere/translation";
    CHECK_THAT(run.Error(), Contains("there is no directory /nowhere"));
  }
  SECTION("no file") {
    run.config().file = "/nowhere/text";
    CHECK_THAT(run.Error(), Contains("NOT_FOUND") && Contains("/nowhere/text"));
  }
  SECTION("no text") {
    run.config().file = WriteText("a\nb\xff\n");
    CHECK_THAT(run.Error(), Contains(*run.config().file + ": line 2: byte 2 is not UTF-8"));
    run.config().file.reset();
    CHECK_THAT(run.Error("a\n\nb\xff\nc\n"), Contains("DATA_LOSS: 1 of 4 lines of standard input are bad"));
    run.config().text = "\xff";
    CHECK_THAT(run.Error(), Contains("--text: line 1: byte 1 is not UTF-8"));
  }
  SECTION("no checkpoint") {
    run.config().model_dir = NewPath("empty");
    CHECK_THAT(run.Error(), Contains("there is no checkpoint in " + run.config().model_dir));
  }
  SECTION("no such set of parameters") {
    run.config().param_set = "huge";
    CHECK_THAT(run.Error(), Contains("--param_set=huge is not one of tiny, base, big"));
  }
  SECTION("parameters of another size") {
    run.config().params_override = "";
    CHECK_THAT(run.Error(), Contains("model.ckpt-5 is not of --param_set=tiny") &&
                                Contains("weights is float32[11,8]") && Contains("and not float32[33708,32]") &&
                                Contains("--params_override=hidden_size=8,vocab_size=11"));
  }
  SECTION("fewer layers than in the checkpoint") {
    absl::StrAppend(&run.config().params_override, ",num_hidden_layers=1");
    CHECK_THAT(run.Error(), Contains("it also has model/Transformer/decoder_stack/layer_1"));
  }
  SECTION("more layers than in the checkpoint") {
    absl::StrAppend(&run.config().params_override, ",num_hidden_layers=3");
    CHECK_THAT(run.Error(), Contains("it has no model/Transformer/encoder_stack/layer_2"));
  }
}

}  // namespace
}  // namespace official::transformer
