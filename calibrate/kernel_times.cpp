// SPDX-License-Identifier: Apache-2.0
#include "calibrate/kernel_times.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kMaxKept = 4096;
constexpr std::size_t kMaxNames = 65'536;

}  // namespace

std::string shape_key(const Shape& shape) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  std::string details;
  if (const auto* gemm = std::get_if<GemmSample>(&shape)) {
    details = fmt::format("{} {} {} {} {} {} {}", gemm->m, gemm->n, gemm->k, gemm->groups,
                          number(gemm->dtype), number(gemm->layout), number(gemm->output));
  } else if (const auto* attention = std::get_if<AttentionSample>(&shape)) {
    details = fmt::format("{} {} {} {} {} {} {} {} {} {} {}", attention->batch, attention->heads,
                          attention->kv_heads, attention->q_len, attention->kv_len,
                          attention->head_dim, attention->value_head_dim, attention->causal,
                          number(attention->dtype), attention->backward, attention->both_passes);
  } else if (const auto* copy = std::get_if<HostCopySample>(&shape)) {
    details = fmt::format("{} {} {}", copy->bytes, number(copy->direction), copy->pinned);
  } else if (const auto* collective = std::get_if<CollectiveSample>(&shape)) {
    details = fmt::format("{} {} {} {}", number(collective->kind), collective->bytes,
                          collective->ranks, collective->nodes);
  } else {
    ORRERY_CHECK(false, "a shape profilers do not know");
  }
  return fmt::format("{} {}", shape.index(), details);
}

void KernelTimes::Times::add(double seconds) {
  total += seconds;
  if (count++ % stride != 0) {
    return;
  }
  kept.push_back(seconds);
  if (kept.size() >= kMaxKept) {
    for (std::size_t index = 0; index < kept.size() / 2; ++index) {
      kept[index] = kept[2 * index];
    }
    kept.resize(kept.size() / 2);
    stride *= 2;
  }
}

void KernelTimes::add(const Shape& shape, double seconds) {
  const auto [entry, added] = index_.emplace(shape_key(shape), shapes_.size());
  if (added) {
    shapes_.push_back({shape, {}});
  }
  shapes_[entry->second].second.add(seconds);
}

void KernelTimes::add_named(const std::string& name, double seconds) {
  if (names_.size() >= kMaxNames && !names_.contains(name)) {
    builder_.left_out("kernel beyond 65,536 different names");
    return;
  }
  names_[name].add(seconds);
}

void KernelTimes::finish(const SampleHeader& header) {
  for (auto& [shape, times] : shapes_) {
    Timing time = timing_of(std::move(times.kept));
    time.repetitions = times.count;
    builder_.add(header, {.shape = shape,
                          .time = time,
                          .implementation = "",
                          .source = builder_.source(1),
                          .flags = {}});
  }
  for (auto& [name, times] : names_) {
    builder_.add_kernel({printable(name), times.count, Seconds(times.total),
                         timing_of(std::move(times.kept)).median});
  }
}

}  // namespace orrery::calibrate
