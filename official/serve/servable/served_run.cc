#include "official/serve/servable/served_run.h"

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"
#include "utils/misc/text.h"

namespace official::serve {

absl::Status ServedRun::FileError(absl::string_view flag, const absl::Status& error) const {
  if (!absl::IsNotFound(error) || moved.contains(flag) || files::Exists(Trained(flag))) return error;
  return absl::NotFoundError(absl::StrCat("the training had --", flag, "=", misc::Printable(Trained(flag)),
                                          ", which is not found from here; name the file with --", flag));
}

}  // namespace official::serve
