// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/quantity_text.hpp"
#include "plan/replay/memory_replay.hpp"

namespace orrery::plan {

MemoryVerdict replayed_verdict(const Plan& plan, const std::vector<MemoryPeak>& peaks) {
  MemoryVerdict verdict;
  if (peaks.empty()) {
    return verdict;
  }
  const auto fullest = std::max_element(
      peaks.begin(), peaks.end(),
      [](const MemoryPeak& a, const MemoryPeak& b) { return a.device() < b.device(); });
  const ByteCount capacity = plan.cluster.gpu.memory - plan.memory_reserve;
  verdict.excess = fullest->device() - capacity;
  verdict.fits = verdict.excess.value() <= 0;
  if (!verdict.fits) {
    const auto text = [](ByteCount bytes) { return format_bytes(bytes.bytes()); };
    verdict.text = fmt::format(
        "replayed through PyTorch's caching allocator, device {} needs {} of {} on each {}, {} too "
        "much: {} of tensors, {} that the allocator cannot reuse, {} outside of it",
        fullest - peaks.begin(), text(fullest->device()), text(capacity), plan.cluster.gpu.name,
        text(verdict.excess), text(fullest->allocated),
        text(fullest->reserved - fullest->allocated), text(fullest->outside));
  }
  return verdict;
}

}  // namespace orrery::plan
