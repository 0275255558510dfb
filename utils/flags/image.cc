#include "utils/flags/image.h"

#include "absl/flags/flag.h"

ABSL_FLAG(std::optional<std::string>, data_format, std::nullopt, "Memory layout of images.");

namespace official::flags {

FlagGroup ImageFlags() {
  return {
      .name = "image",
      .flags = {{.name = "data_format",
                 .short_name = "df",
                 .key = true,
                 .choices = {"channels_first", "channels_last"},
                 .unset_means = "channels_last",
                 .not_used = "the program chooses the memory layout"}},
  };
}

ImageConfig ImageFromFlags() { return {.data_format = absl::GetFlag(FLAGS_data_format)}; }

}  // namespace official::flags
