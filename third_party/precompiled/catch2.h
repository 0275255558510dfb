// What most tests include.
#include <catch2/catch.hpp>

#include "std_and_absl.h"
