// Destination: where an export goes, and in which formats.
#pragma once

#include <string>

namespace official::exporting {

struct Destination {
  std::string export_dir;
  bool saved_model = true;
  bool onnx = false;
};

}  // namespace official::exporting
