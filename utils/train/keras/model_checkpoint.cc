#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "utils/compute/core/status.h"
#include "utils/logs/log.h"
#include "utils/train/keras/callbacks.h"
#include "utils/train/keras/monitor.h"

namespace official::keras {
namespace {

// Formats a number as Python does by a specification [0][width][.precision][type] with the types d for integers and f,
// e and g for others; false if it is another.
bool AppendFormatted(double value, absl::string_view specification, bool is_integer, std::string& out) {
  const char type = specification.empty() ? ' ' : specification.back();
  const bool has_type = type == 'd' || type == 'f' || type == 'e' || type == 'g';
  if (has_type) specification.remove_suffix(1);
  if (specification.find_first_not_of("0123456789.") != absl::string_view::npos) return false;
  if (has_type && (type == 'd') != is_integer) return false;
  const size_t dot = specification.find('.');
  const bool pads_zeros = !specification.empty() && specification[0] == '0';
  int width = 0, precision = 6;
  const absl::string_view before = specification.substr(0, dot);
  if (!before.empty() && !absl::SimpleAtoi(before, &width)) return false;
  if (dot != absl::string_view::npos && !absl::SimpleAtoi(specification.substr(dot + 1), &precision)) return false;
  if (is_integer) {
    const auto integer = static_cast<int64_t>(value);
    absl::StrAppend(&out,
                    pads_zeros ? absl::StrFormat("%0*d", width, integer) : absl::StrFormat("%*d", width, integer));
    return dot == absl::string_view::npos;
  }
  if (!has_type && dot == absl::string_view::npos && before.empty()) {
    out += logs::FormatDouble(value);
    return true;
  }
  const char kind = has_type ? type : 'g';
  const std::string number = kind == 'f'   ? absl::StrFormat("%.*f", precision, value)
                             : kind == 'e' ? absl::StrFormat("%.*e", precision, value)
                                           : absl::StrFormat("%.*g", precision, value);
  const size_t missing = number.size() < static_cast<size_t>(width) ? width - number.size() : 0;
  absl::StrAppend(&out, std::string(missing, pads_zeros ? '0' : ' '), number);
  return true;
}

// Returns `path` with the values of the epoch, which counts from 1, and of the metrics in the place of their names.
absl::StatusOr<std::string> FormatPath(const std::string& path, int64_t epoch, const Logs& logs) {
  const auto failed = [&](absl::string_view reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("Failed to format this callback filepath: \"", path, "\". Reason: ", reason));
  };
  std::string formatted;
  for (absl::string_view rest = path; !rest.empty();) {
    const size_t begin = rest.find('{');
    absl::StrAppend(&formatted, rest.substr(0, begin));
    if (begin == absl::string_view::npos) break;
    rest.remove_prefix(begin + 1);
    const size_t end = rest.find('}');
    if (end == absl::string_view::npos) return failed("a { without }");
    absl::string_view field = rest.substr(0, end), specification;
    if (const size_t colon = field.find(':'); colon != absl::string_view::npos) {
      specification = field.substr(colon + 1);
      field = field.substr(0, colon);
    }
    const bool is_epoch = field == "epoch";
    const absl::StatusOr<double> value =
        is_epoch ? static_cast<double>(epoch) : ValueOf(logs, std::string(field), "ModelCheckpoint");
    if (!value.ok()) return failed(absl::StrCat("'", field, "'"));
    if (!AppendFormatted(*value, specification, is_epoch, formatted)) {
      return failed(absl::StrCat("the format '", specification, "' of ", field));
    }
    rest.remove_prefix(end + 1);
  }
  return formatted;
}

class ModelCheckpointCallback : public Callback {
 public:
  explicit ModelCheckpointCallback(const ModelCheckpointOptions& options)
      : options_(options), best_(options.initial_value_threshold) {}

  absl::Status OnEpochEnd(int64_t epoch, Logs& logs, Training& training) override {
    ASSIGN_OR_RETURN(const std::string path, FormatPath(options_.filepath, epoch + 1, logs));
    if (options_.save_best_only) {
      ASSIGN_OR_RETURN(const double value, ValueOf(logs, options_.monitor, "ModelCheckpoint"));
      const std::string best = best_ ? absl::StrFormat("%.5f", *best_) : "None";
      if (best_ && !IsBetter(value, *best_, options_.mode, /*min_delta=*/0)) {
        LOG(INFO) << "Epoch " << epoch + 1 << ": " << options_.monitor << " did not improve from " << best;
        return absl::OkStatus();
      }
      LOG(INFO) << absl::StrFormat("Epoch %d: %s improved from %s to %.5f, saving model to %s", epoch + 1,
                                   options_.monitor, best, value, path);
      best_ = value;
    } else {
      LOG(INFO) << "Epoch " << epoch + 1 << ": saving model to " << path;
    }
    return training.save_weights(path);
  }

 private:
  const ModelCheckpointOptions options_;
  std::optional<double> best_;
};

}  // namespace

std::unique_ptr<Callback> ModelCheckpoint(const ModelCheckpointOptions& options) {
  return std::make_unique<ModelCheckpointCallback>(options);
}

}  // namespace official::keras
