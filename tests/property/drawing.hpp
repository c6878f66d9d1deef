// SPDX-License-Identifier: Apache-2.0
// What properties of several folders draw.
#pragma once

#include <rapidcheck.h>

#include <initializer_list>
#include <vector>

namespace orrery {

// One of the values, each as likely as it is listed often.
template <typename T>
T pick(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

inline bool coin() { return *rc::gen::arbitrary<bool>(); }

}  // namespace orrery
