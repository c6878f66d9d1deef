// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/liger_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "calibrate/liger_kernel.hpp"

namespace orrery::studies {
namespace {

// What one kernel takes between two events of a stream beyond its own run:
// microsoft/superbenchmark, 5.45 to 5.91 us for an empty kernel.
constexpr Seconds kBetweenEvents = Seconds(5.7e-6);

// What an SM reads from the L2 cache each clock: RRZE-HPC/gpu-benches, gpu-l2-cache, A100 35.7,
// H100 35.0 and H200 37.4 B. Sets of up to half of the cache are read at that rate.
constexpr double kCacheReadOfSm = 36;
constexpr double kStays = 0.5;

// Reads of what was read before, beyond the kernel's own traffic.
Seconds read_again(const calibrate::RepeatedReads& reads, const costmodel::DeviceModel& device,
                   costmodel::MemoryKernel kernel) {
  const topologies::Gpu& gpu = device.gpu();
  const double share = device.profile().memory.fraction[static_cast<std::size_t>(kernel)];
  const BytesPerSecond cache(kCacheReadOfSm * gpu.sm_count * gpu.boost_clock.value());
  const bool stays =
      static_cast<double>(reads.among) <= kStays * static_cast<double>(gpu.l2_cache.value());
  const BytesPerSecond memory = gpu.hbm_bandwidth * share;
  return Bytes(static_cast<double>(reads.bytes)) / (stays ? std::max(cache, memory) : memory);
}

bool is_fused(const std::string& implementation) {
  constexpr std::array<std::string_view, 3> kChains = {"huggingface", "torch", "megatron"};
  return !is_among(implementation, kChains);
}

// The plain norm of a pair that adds first and normalises then.
bool is_second_of_two(const calibrate::LigerRow& row) {
  return row.kernel == "fused_add_rms_norm" && row.implementation == "liger_rms_norm";
}

}  // namespace

tl::expected<KernelPoint, std::string> liger_point(const Cells& cells,
                                                   const costmodel::DeviceModel& device) {
  const calibrate::LigerRow row{cells.text("kernel"),
                                cells.text("impl"),
                                cells.text("pass_"),
                                cells.text("x_name"),
                                cells.required_count("x", limits::kMaxVocab),
                                parse_json(cells.text("config"), "config")};
  if (row.pass != "forward") {
    return tl::unexpected(std::string(
        row.pass == "backward" ? "backward passes there are several kernels with reductions between"
                               : "forward and backward together"));
  }
  if (!is_fused(row.implementation) || is_second_of_two(row)) {
    return tl::unexpected(
        fmt::format("a chain of kernels ({})", printable(row.implementation, 40)));
  }
  const auto sample = calibrate::liger_kernel(row);
  if (!sample) {
    return tl::unexpected(
        fmt::format("kernel \"{}\" is not one of streaming", printable(row.kernel, 40)));
  }
  const Bytes bytes(static_cast<double>(sample->bytes_read + sample->bytes_written));
  const auto kernel = sample->kernel;
  return KernelPoint{
      std::string(costmodel::to_text(kernel)),
      fmt::format("{} by {}, {:.0f} MB", row.kernel, row.implementation, bytes.value() / 1e6),
      sample->dtype,
      [bytes, kernel, again = calibrate::repeated_reads(row), &device] {
        return kBetweenEvents - device.profile().memory.launch +
               device.memory_bound(bytes, kernel) + read_again(again, device, kernel);
      },
      Seconds(cells.positive("time_us_p50") / 1e6),
      false,
      *sample};
}

}  // namespace orrery::studies
