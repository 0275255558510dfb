#include "utils/flags/console.h"

#include <string>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "utils/flags/shared_groups.h"
#include "utils/logs/console.h"

ABSL_DECLARE_FLAG(std::string, output);
ABSL_DECLARE_FLAG(std::string, log_format);

namespace official::flags {

FlagSpec OutputFlag() { return SharedFlag("output"); }

FlagSpec LogFormatFlag() { return SharedFlag("log_format"); }

absl::Status StartLog() { return logs::LogToConsole(absl::GetFlag(FLAGS_log_format)); }

bool WantsJson() { return absl::GetFlag(FLAGS_output) == "json"; }

void PrintJson(logs::Json::Object object, std::ostream& out) { out << logs::DumpJson(std::move(object)) << std::endl; }

}  // namespace official::flags
