#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "official/checkpoint_tool/checkpoint.h"
#include "official/checkpoint_tool/commands.h"
#include "official/checkpoint_tool/progress.h"
#include "official/checkpoint_tool/values.h"
#include "utils/compute/core/status.h"
#include "utils/flags/console.h"
#include "utils/logs/live_line.h"
#include "utils/misc/text.h"

namespace official::checkpoint_tool {
namespace {

using train::StoredTensor;

// Prints the differences of two checkpoints, and counts them.
class Differ {
 public:
  Differ(Checkpoint& a, Checkpoint& b, const Options& options, std::ostream& out)
      : a_(a), b_(b), options_(options), out_(out) {}

  absl::Status Compare() {
    RETURN_IF_ERROR(CompareVariables());
    return Summary();
  }

 private:
  absl::Status CompareVariables() {
    const ReadingProgress progress("comparing", {&a_, &b_});
    std::set<std::string> names;
    for (const Checkpoint* side : {&a_, &b_}) {
      for (const StoredTensor& variable : side->reader->ListTensors()) names.insert(variable.name);
    }
    for (const std::string& name : names) {
      const auto a = a_.reader->Find(name), b = b_.reader->Find(name);
      if (!a || !b) {
        ++only_in_one_;
        logs::AboveLiveLine([&] { PrintOnlyIn(a ? a_ : b_, a ? *a : *b); });
      } else if (a->dtype_name != b->dtype_name || a->shape != b->shape) {
        ++types_;
        logs::AboveLiveLine([&] { PrintTypes(*a, *b); });
      } else {
        ++compared_;
        RETURN_IF_ERROR(CompareValues(*a));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CompareValues(const StoredTensor& variable) {
    Difference difference;
    if (variable.dtype_name == "string") {
      ASSIGN_OR_RETURN(const std::vector<std::string> a, a_.reader->ReadStrings(variable.name));
      ASSIGN_OR_RETURN(const std::vector<std::string> b, b_.reader->ReadStrings(variable.name));
      for (size_t i = 0; i < a.size(); ++i) difference.num_different += a[i] != b[i];
    } else {
      ASSIGN_OR_RETURN(const compute::Tensor a, a_.reader->Read(variable.name));
      ASSIGN_OR_RETURN(const compute::Tensor b, b_.reader->Read(variable.name));
      difference = DifferenceOf(a, b, options_.tolerance);
    }
    if (difference.num_different == 0) return absl::OkStatus();
    ++values_;
    logs::AboveLiveLine([&] { PrintValues(variable, difference); });
    return absl::OkStatus();
  }

  void PrintOnlyIn(const Checkpoint& checkpoint, const StoredTensor& variable) {
    if (options_.json) {
      flags::PrintJson(
          {{"event", "only_in"}, {"path", checkpoint.path}, {"name", variable.name}, {"type", TypeText(variable)}},
          out_);
    } else {
      out_ << misc::Printable(variable.name) << "  " << TypeText(variable) << "  only in " << checkpoint.path << "\n";
    }
  }

  void PrintTypes(const StoredTensor& a, const StoredTensor& b) {
    if (options_.json) {
      flags::PrintJson({{"event", "types"}, {"name", a.name}, {"a", TypeText(a)}, {"b", TypeText(b)}}, out_);
    } else {
      out_ << misc::Printable(a.name) << "  " << TypeText(a) << " and " << TypeText(b) << "\n";
    }
  }

  void PrintValues(const StoredTensor& variable, const Difference& difference) {
    const int64_t elements = variable.shape.num_elements();
    const bool numbers = variable.dtype_name != "string";
    if (options_.json) {
      logs::Json::Object object = {{"event", "values"},
                                   {"name", variable.name},
                                   {"type", TypeText(variable)},
                                   {"elements", elements},
                                   {"different", difference.num_different}};
      if (numbers) {
        object.emplace_back("max_abs", difference.max_abs);
        object.emplace_back("max_rel", difference.max_rel);
      }
      return flags::PrintJson(std::move(object), out_);
    }
    out_ << misc::Printable(variable.name) << "  " << TypeText(variable) << "  " << difference.num_different << " of "
         << elements << " differ";
    if (numbers) {
      out_ << absl::StrFormat(", at most by %.6g, relatively by %.6g", difference.max_abs, difference.max_rel);
    }
    out_ << "\n";
  }

  absl::Status Summary() {
    const bool same = only_in_one_ + types_ + values_ == 0;
    if (options_.json) {
      flags::PrintJson({{"event", "end"},
                        {"only_in_one", only_in_one_},
                        {"types", types_},
                        {"values", values_},
                        {"compared", compared_}},
                       out_);
    } else if (same) {
      out_ << compared_ << " variables are the same";
      if (options_.tolerance > 0) out_ << " within the tolerance";
      out_ << "\n";
    }
    if (same) return absl::OkStatus();
    return absl::UnknownError(
        absl::StrFormat("%s and %s differ: of %d variables that both have, %d have other types and %d other values; %d "
                        "are in one of them only",
                        a_.path, b_.path, types_ + compared_, types_, values_, only_in_one_));
  }

  Checkpoint& a_;
  Checkpoint& b_;
  const Options& options_;
  std::ostream& out_;
  int only_in_one_ = 0, types_ = 0, values_ = 0, compared_ = 0;
};

}  // namespace

absl::Status Diff(const Words& words, const Options& options, std::ostream& out) {
  ASSIGN_OR_RETURN(Checkpoint a, OpenCheckpoint(words[0]));
  ASSIGN_OR_RETURN(Checkpoint b, OpenCheckpoint(words[1]));
  return Differ(a, b, options, out).Compare();
}

}  // namespace official::checkpoint_tool
