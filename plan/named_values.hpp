// SPDX-License-Identifier: Apache-2.0
// Enumerations by the names that documents give their values.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace orrery::plan {

// Where a name stands among the known ones; throws Error 'unknown WHAT "name"' where it is none.
std::size_t index_of_name(std::span<const std::string_view> names, std::string_view text,
                          std::string_view where, std::string_view what);

// The value that a name stands for, of an enumeration that counts in the order of the names.
template <typename Value, std::size_t kCount>
Value parse_named(const std::array<std::string_view, kCount>& names, std::string_view text,
                  std::string_view where, std::string_view what) {
  return static_cast<Value>(index_of_name(names, text, where, what));
}

// The name of a value of such an enumeration.
template <typename Value, std::size_t kCount>
std::string_view name_of(const std::array<std::string_view, kCount>& names, Value value) {
  return names[static_cast<std::size_t>(value)];
}

}  // namespace orrery::plan
