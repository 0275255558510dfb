// Most tests include these.
#include <catch2/catch.hpp>

#include "third_party/precompiled/std_and_absl.h"
