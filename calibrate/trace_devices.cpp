// SPDX-License-Identifier: Apache-2.0
#include "calibrate/trace_devices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "calibrate/gpu_names.hpp"

namespace orrery::calibrate {

void TraceDevices::set(std::vector<TraceDevice> devices) {
  devices_ = std::move(devices);
  for (const TraceDevice& device : devices_) {
    times_.try_emplace(device.name, builder_);
  }
  if (devices_.empty()) {
    times_.try_emplace("", builder_);
  }
}

std::string TraceDevices::kinds_text() const {
  std::vector<std::string> names;
  for (const auto& [name, times] : times_) {
    names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

KernelTimes* TraceDevices::times(std::int64_t device, std::string_view where) {
  const bool ids = std::any_of(devices_.begin(), devices_.end(),
                               [](const TraceDevice& known) { return known.id >= 0; });
  const auto found = std::find_if(devices_.begin(), devices_.end(), [&](const TraceDevice& known) {
    return device >= 0 && known.id == device;
  });
  if (found != devices_.end()) {
    return &times_.at(found->name);
  }
  if (device >= 0 && ids) {
    builder_.fault(where,
                   fmt::format("device {} is not among the deviceProperties of the trace", device));
    return nullptr;
  }
  if (times_.size() > 1) {
    builder_.fault(where, "does not state its device, in a trace of GPUs of several kinds",
                   kinds_text());
    return nullptr;
  }
  return &times_.begin()->second;
}

void TraceDevices::finish() {
  for (auto& [name, times] : times_) {
    SampleHeader header;
    header.device = !name.empty()               ? name
                    : builder_.device().empty() ? "unknown"
                                                : builder_.device();
    header.gpu = gpu_of(header.device);
    header.node = node_of(header.gpu, "");
    header.notes = {"collective times of a trace include waiting for other ranks"};
    if (name.empty()) {
      builder_.remark(fmt::format("{}: does not name its GPU (deviceProperties): taken for {}",
                                  builder_.path(), header.device));
    }
    times.finish(header);
  }
}

}  // namespace orrery::calibrate
