#include "utils/files/user_dirs.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "utils/files/files.h"

namespace official::files {
namespace {

// Null: not set.
void SetEnvironment(const char* home, const char* data_home, const char* cache_home) {
  for (const auto& [name, value] :
       {std::pair("HOME", home), std::pair("XDG_DATA_HOME", data_home), std::pair("XDG_CACHE_HOME", cache_home)}) {
    if (value == nullptr) {
      unsetenv(name);
    } else {
      setenv(name, value, 1);
    }
  }
}

TEST_CASE("Models and data lie in the home directory, or where the XDG variables say") {
  SetEnvironment("/home/ada", nullptr, nullptr);
  CHECK(DefaultModelDir("mnist_model") == "/home/ada/.local/share/official-models/mnist_model");
  CHECK(DefaultDataDir("mnist_data") == "/home/ada/.cache/official-models/mnist_data");
  SetEnvironment("/home/ada", "/big/models", "/scratch");
  CHECK(DefaultModelDir("mnist_model") == "/big/models/official-models/mnist_model");
  CHECK(DefaultDataDir("mnist_data") == "/scratch/official-models/mnist_data");
  SetEnvironment("/home/ada", "relative", "");
  CHECK(DefaultModelDir("mnist_model") == "/home/ada/.local/share/official-models/mnist_model");
  CHECK(DefaultDataDir("mnist_data") == "/home/ada/.cache/official-models/mnist_data");
}

TEST_CASE("Without a home directory they lie in /tmp") {
  for (const char* home : {static_cast<const char*>(nullptr), "", "/", "relative", "/two\nlines"}) {
    SetEnvironment(home, nullptr, nullptr);
    CHECK(DefaultModelDir("mnist_model") == "/tmp/mnist_model");
    CHECK(DefaultDataDir("mnist_data") == "/tmp/mnist_data");
  }
}

TEST_CASE("Files of the user where the default was before are found until there is a directory at its new place") {
  const std::string name = absl::StrCat("official-user-dirs-test-", getpid());
  const std::string former = "/tmp/" + name;
  const char* const root = std::getenv("TEST_TMPDIR");
  const std::string directory = absl::StrCat(root == nullptr ? "/tmp" : root, "/new/", name);
  CHECK(FormerDefaultDir(directory) == "");
  REQUIRE(MakeDirectories(former).ok());
  CHECK(FormerDefaultDir(directory) == "");  // there is nothing in it
  REQUIRE(WriteFileAtomically(former + "/checkpoint", "").ok());
  CHECK(FormerDefaultDir(directory) == former);
  CHECK(FormerDefaultDir(former) == "");  // it is still the default
  REQUIRE(MakeDirectories(directory).ok());
  CHECK(FormerDefaultDir(directory) == "");
  REQUIRE(RemoveFile(former + "/checkpoint").ok());
  rmdir(former.c_str());
}

}  // namespace
}  // namespace official::files
