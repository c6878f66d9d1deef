// SPDX-License-Identifier: Apache-2.0
#include "search/mixed/limits.hpp"

#include "base/interrupt.hpp"

namespace orrery::search {
namespace {

constexpr Seconds kListed(1.0);        // listing all plans may take this after an early end, too
constexpr std::uint64_t kOfLook = 16;  // work of a look while arrangements are listed

}  // namespace

bool MixedLimits::is_interrupted() const {
  return interrupted() || (options_.stop && options_.stop());
}

bool MixedLimits::is_stopped() const { return is_interrupted() || limit_.is_over(); }

bool MixedLimits::is_overdue() const { return elapsed() > kListed && is_stopped(); }

bool MixedLimits::ends_list() {
  use(kOfLook);
  if (!options_.resume.empty()) {  // what it goes on from is about all arrangements
    return is_interrupted();
  }
  return is_overdue() || exceeds_half();
}

bool MixedLimits::exceeds_half(std::uint64_t more) const {
  return has_limit() && used_ + more >= options_.most_work / 2;
}

bool MixedLimits::exceeds_all() const { return has_limit() && used_ >= options_.most_work; }

}  // namespace orrery::search
