#include "utils/flags/image.h"

#include "utils/flags/config_flag.h"

OFFICIAL_FLAG_GROUP(image);

OFFICIAL_FLAG(ImageConfig, data_format, "Memory layout of images.", .short_name = "df", .key = true,
              .choices = {"channels_first", "channels_last"}, .unset_means = "channels_last",
              .not_used = "the program chooses the memory layout");

namespace official::flags {

FlagGroup ImageFlags() { return ThisGroup(); }

}  // namespace official::flags
