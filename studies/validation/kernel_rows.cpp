// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "calibrate/ceilings.hpp"
#include "calibrate/reading_builder.hpp"
#include "plan/simulation/interval.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/validation/kernel_cells.hpp"
#include "studies/validation/kernel_rates.hpp"
#include "studies/validation/kernel_tables.hpp"
#include "studies/validation/predictions.hpp"

namespace orrery::studies {
namespace {

using costmodel::DeviceModel;

struct Device {
  DeviceModel burst;
  DeviceModel sustained;
};

tl::expected<Device, std::string> device_of(const std::string& name) {
  try {
    const topologies::Gpu gpu = topologies::load_gpu(stated_gpu(name));
    const costmodel::Profile profile = costmodel::load_profile("", gpu);
    return Device{DeviceModel(gpu, profile), DeviceModel(gpu, profile, costmodel::Load::Sustained)};
  } catch (const Error&) {
    return tl::unexpected(fmt::format("unknown GPU \"{}\"", printable(name, 80)));
  }
}

using Devices = std::map<std::string, tl::expected<Device, std::string>>;

// As the row names it, or the table's file: "gemm-h100-sxm-bf16-repeat".
std::string gpu_of(const CsvTable& table, std::size_t row) {
  return table.has_column("gpu") ? table.cell(row, "gpu") : stem(table.name());
}

Devices devices_of(const CsvTable& table) {
  Devices devices;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const std::string name = gpu_of(table, row);
    if (!devices.contains(name)) {
      devices.emplace(name, device_of(name));
    }
  }
  return devices;
}

// Repeated kernels of GPUs whose power limit is not known are not told apart (the fit does the
// same).
bool is_sustained(const KernelTable& kind, const KernelPoint& burst, const KernelPoint& sustained,
                  const DeviceModel& device) {
  if (kind.launches <= 0 || device.profile().power.picojoules_per_flop <= 0) {
    return kind.launches > 0;
  }
  const costmodel::Load load = burst.kind.starts_with("gemm")
                                   ? costmodel::load_of_timing(burst.measured, kind.launches,
                                                               burst.predict(), sustained.predict())
                                   : costmodel::load_of_loop(burst.measured, kind.launches);
  return load == costmodel::Load::Sustained;
}

// What a table of the kind measured and a row of it leaves open, in words; "" where it has all.
std::string what_is_unmeasured(const Cells& cells, const KernelTable& kind) {
  constexpr auto kFigures =
      std::to_array<std::string_view>({"time_us", "time_us_p50", "tflops", "efficiency",
                                       "peak_tflops", "GBps", "scale_GBps", "optimizer_ms"});
  for (const std::string_view column : kind.columns) {
    if (is_among(column, kFigures)) {
      if (std::string why = unmeasured(cells, column); !why.empty()) {
        return why;
      }
    }
  }
  return "";
}

// With file and line, as a fit refuses it; "" where nothing is wrong.
std::string implausible_time(const Cells& cells, const KernelPoint& point,
                             const topologies::Gpu& gpu) {
  const std::string why = calibrate::implausible_time(
      {.shape = point.shape, .time = calibrate::single_timing(point.measured)}, gpu);
  return why.empty()
             ? ""
             : fmt::format("{}:{}: {}", cells.table().name(), cells.table().line(cells.row()), why);
}

void compare(const Cells& cells, const KernelTable& kind, const Device& models, RowResult& result) {
  const DeviceModel& device = models.burst;
  if (std::string open = what_is_unmeasured(cells, kind); !open.empty()) {
    result.skipped_because = std::move(open);
    return;
  }
  auto point = kind.point(cells, device);
  if (const auto sustained = kind.point(cells, models.sustained);
      point && sustained && is_sustained(kind, *point, *sustained, device)) {
    point = sustained;
  }
  if (!point) {
    result.skipped_because = point.error();
    return;
  }
  std::string wrong = contradicted_time(cells);
  wrong = wrong.empty() ? implausible_time(cells, *point, device.gpu()) : wrong;
  if (!wrong.empty()) {
    result.skipped_because = std::move(wrong);
    return;
  }
  const std::string group =
      fmt::format("{}-{}-{}", point->kind, device.gpu().name, to_text(point->dtype));
  result.groups = {group};
  if (point->large) {
    result.groups.push_back(group + "-from-1024");
  }
  result.kind = point->kind;
  result.gpu = device.gpu().name;
  result.subject = fmt::format("{} on {}: {}", point->kind, device.gpu().name, point->subject);
  result.measured = point->measured.value();
  try {
    const Seconds predicted = point->predict();
    result.predicted = predicted.value();
    set_interval(predicted, plan::spreads_of(device.profile(), point->dtype), point->cost_class,
                 result);
  } catch (const Error& error) {
    result.skipped_because = error.what();
  }
}

}  // namespace

bool is_kernel_table(const CsvTable& table) { return find_kernel_table(table) != nullptr; }

std::vector<RowResult> predict_kernels(const CsvTable& table, const std::string& source, int jobs) {
  const KernelTable& kind = *find_kernel_table(table);
  const Devices devices = kind.point != nullptr ? devices_of(table) : Devices();
  std::vector<RowResult> results(table.num_rows());
  parallel_for(table.num_rows(), jobs, [&](std::size_t index) {
    RowResult& result = results[index];
    result.id = fmt::format("{}:{}", source, index + 1);
    result.config_id = result.id;
    result.source = source;
    result.quantity = "kernel_time_s";
    if (kind.point == nullptr) {
      result.skipped_because = kind.reason;
      return;
    }
    const auto& device = devices.at(gpu_of(table, index));
    if (!device) {
      result.skipped_because = device.error();
      return;
    }
    compare(Cells(table, index), kind, *device, result);
  });
  return results;
}

}  // namespace orrery::studies
