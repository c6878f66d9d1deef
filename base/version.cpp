// SPDX-License-Identifier: Apache-2.0
#include "base/version.hpp"

#include <fmt/format.h>

namespace orrery {

std::string version_text() {
#ifdef __clang__
  return fmt::format("{} (clang {}.{}.{})", ORRERY_VERSION, __clang_major__, __clang_minor__,
                     __clang_patchlevel__);
#else
  return fmt::format("{} (g++ {}.{}.{})", ORRERY_VERSION, __GNUC__, __GNUC_MINOR__,
                     __GNUC_PATCHLEVEL__);
#endif
}

}  // namespace orrery
