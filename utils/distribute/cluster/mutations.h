// Damaged texts for the tests of parsers, the same in every run.
#pragma once

#include <random>
#include <string>

namespace official::distribute {

// Returns `text` with up to four bytes, or pieces of it, replaced, removed, inserted or repeated.
inline std::string Mutate(std::string text, std::mt19937& random) {
  static constexpr char kBytes[] = "{}[]\",:-0123456789.eE\\/ \n\t\x7f\xff$()xnulltasrkoc";
  for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
    const size_t at = text.empty() ? 0 : random() % text.size();
    const size_t count = 1 + random() % 12;
    const char byte = kBytes[random() % (sizeof kBytes - 1)];
    switch (random() % 4) {
      case 0:
        text.replace(at, text.empty() ? 0 : 1, 1, byte);
        break;
      case 1:
        text.erase(at, count);
        break;
      case 2:
        text.insert(at, 1, byte);
        break;
      default:
        text.insert(random() % (text.size() + 1), text.substr(at, count));
    }
  }
  return text;
}

}  // namespace official::distribute
