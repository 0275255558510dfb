#include "utils/distribute/exchange.h"

#include "absl/strings/str_cat.h"
#include "utils/compute/core/status.h"

namespace official::distribute {

std::string Exchange::NameOf(int worker) const { return absl::StrCat("worker ", NumberOf(worker)); }

absl::StatusOr<std::vector<std::string>> Gather(Exchange& exchange, absl::string_view own,
                                                std::chrono::seconds deadline) {
  std::vector<std::string> given(exchange.num_workers());
  for (int w = 0; w < exchange.num_workers(); ++w) {
    if (w != exchange.worker()) RETURN_IF_ERROR(exchange.Send(w, Exchange::Channel::kValues, own));
  }
  for (int w = 0; w < exchange.num_workers(); ++w) {
    if (w == exchange.worker()) {
      given[w] = std::string(own);
    } else {
      ASSIGN_OR_RETURN(given[w], exchange.Receive(w, Exchange::Channel::kValues, deadline));
    }
  }
  return given;
}

}  // namespace official::distribute
