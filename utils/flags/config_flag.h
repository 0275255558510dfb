// OFFICIAL_FLAG: a flag, written in one place and bound to the field of a configuration. The field decides its name,
// its type and its default; the entry adds the help text and what else FlagSpec has. It is for the flags that training
// programs share: the flag of one program is an ABSL_FLAG and a FlagSpec in the program's main file.
//
// Entries are in the source file of a group (base.cc, performance.cc, ...), outside of all namespaces, where Abseil
// wants flags. Configurations, choices, conversions and what FlagSpec has are looked up in official::flags
// nevertheless; a type or a default that a macro takes is not:
//
//   OFFICIAL_FLAG_GROUP(base);
//   OFFICIAL_FLAG(BaseConfig, batch_size, "Examples per step.", .short_name = "bs", .range = AtLeast(1));
//
// This makes --batch_size the next flag of ThisGroup(), and FromFlags<BaseConfig>() puts its value into the field.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/string_view.h"
#include "utils/compute/core/check.h"
#include "utils/flags/flag_group.h"

namespace official::flags {

// Returns a configuration with the present values of all flags that are bound to its fields. Its other fields have
// their defaults.
template <typename Config>
Config FromFlags();

// A value of a field, and its name on the command line.
template <typename T>
struct Choice {
  absl::string_view name;
  T value;
};

// Returns the name of a value, which must be among the choices.
template <typename T, size_t n>
std::string NameOf(const Choice<T> (&choices)[n], const T& value) {
  const auto* found =
      std::find_if(choices, choices + n, [&](const Choice<T>& choice) { return choice.value == value; });
  OFFICIAL_CHECK(found != choices + n) << "a value without a name";
  return std::string(found->name);
}

// Returns the value of a name, which must be among the choices; the command line has refused others.
template <typename T, size_t n>
T ValueOf(const Choice<T> (&choices)[n], absl::string_view name) {
  const auto* found = std::find_if(choices, choices + n, [&](const Choice<T>& choice) { return choice.name == name; });
  OFFICIAL_CHECK(found != choices + n) << name;
  return found->value;
}

// Only the macros use the following.

// A function that sets the field of a flag to the flag's value.
template <typename Config>
using FieldSetter = void (*)(Config& config);

template <typename Config>
std::vector<FieldSetter<Config>>& FieldSetters() {
  static std::vector<FieldSetter<Config>> setters;
  return setters;
}

template <typename Config>
Config FromFlags() {
  Config config;
  for (const FieldSetter<Config> set : FieldSetters<Config>()) set(config);
  return config;
}

// These return true, for a variable whose initialization calls them before main().
template <typename Config>
bool BindField(FieldSetter<Config> set) {
  FieldSetters<Config>().push_back(set);
  return true;
}

inline bool AddFlag(FlagGroup& group, FlagSpec spec) {
  group.flags.push_back(std::move(spec));
  return true;
}

template <typename T, size_t n>
bool AddChoices(FlagSpec& spec, const Choice<T> (&choices)[n]) {
  for (const Choice<T>& choice : choices) spec.choices.push_back(choice.name);
  return true;
}

}  // namespace official::flags

// Makes ThisGroup(), to which the flags of the file belong.
#define OFFICIAL_FLAG_GROUP(group_name)                       \
  namespace official::flags {                                 \
  namespace {                                                 \
  FlagGroup& ThisGroup() {                                    \
    static FlagGroup group{.name = #group_name, .flags = {}}; \
    return group;                                             \
  }                                                           \
  }                                                           \
  }                                                           \
  static_assert(true)

// A flag for a field: its type and default are those of the field.
#define OFFICIAL_FLAG(Config, field, help, ...)                                                            \
  OFFICIAL_FLAG_CONFIG(Config, field);                                                                     \
  OFFICIAL_FLAG_WITHOUT_FIELD(decltype(official::flags::ConfigOf_##field::field), field,                   \
                              official::flags::ConfigOf_##field().field, help __VA_OPT__(, ) __VA_ARGS__); \
  OFFICIAL_FLAG_BINDING(Config, field, absl::GetFlag(FLAGS_##field))

// A flag for a field whose values have names on the command line: `choices`, an array of Choice.
#define OFFICIAL_CHOICE_FLAG(Config, field, choices, help, ...)                                     \
  OFFICIAL_FLAG_CONFIG(Config, field);                                                              \
  OFFICIAL_FLAG_WITHOUT_FIELD(                                                                      \
      std::string, field,                                                                           \
      official::flags::NameOf(official::flags::choices, official::flags::ConfigOf_##field().field), \
      help __VA_OPT__(, ) __VA_ARGS__);                                                             \
  OFFICIAL_BEFORE_MAIN(field##_has_choices, AddChoices(ThisGroup().flags.back(), choices));         \
  OFFICIAL_FLAG_BINDING(Config, field, ValueOf(choices, absl::GetFlag(FLAGS_##field)))

// A flag of another type than its field, with a function that makes the field's value from the flag's.
#define OFFICIAL_CONVERTED_FLAG(Config, field, Type, default_value, convert, help, ...)     \
  OFFICIAL_FLAG_WITHOUT_FIELD(Type, field, default_value, help __VA_OPT__(, ) __VA_ARGS__); \
  OFFICIAL_FLAG_BINDING(Config, field, convert(absl::GetFlag(FLAGS_##field)))

// A flag that no configuration has.
#define OFFICIAL_FLAG_WITHOUT_FIELD(Type, flag_name, default_value, help, ...) \
  ABSL_FLAG(Type, flag_name, default_value, help);                             \
  OFFICIAL_BEFORE_MAIN(flag_name##_is_in_group, AddFlag(ThisGroup(), {.name = #flag_name __VA_OPT__(, ) __VA_ARGS__}))

// The macros above consist of these.
#define OFFICIAL_FLAG_CONFIG(Config, field) \
  namespace official::flags {               \
  using ConfigOf_##field = Config;          \
  }                                         \
  static_assert(true)

#define OFFICIAL_FLAG_BINDING(Config, field, field_value) \
  OFFICIAL_BEFORE_MAIN(field##_is_bound, BindField<Config>([](Config& config) { config.field = field_value; }))

#define OFFICIAL_BEFORE_MAIN(variable, ...)           \
  namespace official::flags {                         \
  namespace {                                         \
  [[maybe_unused]] const bool variable = __VA_ARGS__; \
  }                                                   \
  }                                                   \
  static_assert(true)
