// SPDX-License-Identifier: Apache-2.0
// What an operation that must fail says: the message and kind of the Error that it throws.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "base/error.hpp"

namespace orrery::testing {

// Code in this namespace and around it says testing:: for Googletest's, too.
using namespace ::testing;

inline std::optional<Error> error_of(const std::function<void()>& operation) {
  try {
    operation();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

inline std::string message_of(const std::function<void()>& operation) {
  const std::optional<Error> error = error_of(operation);
  EXPECT_TRUE(error.has_value()) << "no Error was thrown";
  return error ? error->what() : "";
}

}  // namespace orrery::testing
