// SPDX-License-Identifier: Apache-2.0
// The GPUs that a trace was recorded on. Kernels of GPUs of one kind are gathered together, those
// of another kind apart: a time of one says nothing of the other.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/kernel_times.hpp"
#include "calibrate/trace_events.hpp"

namespace orrery::calibrate {

class TraceDevices {
 public:
  explicit TraceDevices(ReadingBuilder& builder) : builder_(builder) {}

  void set(std::vector<TraceDevice> devices);
  std::int64_t count() const { return static_cast<std::int64_t>(devices_.size()); }
  // The times of the kind of a device (-1: the event states none); null, after a fault, where the
  // trace does not know it.
  KernelTimes* times(std::int64_t device, std::string_view where);
  // Hands the times of every kind to the builder. A GPU that the trace does not name is the user's.
  void finish();

 private:
  std::string kinds_text() const;

  ReadingBuilder& builder_;
  std::vector<TraceDevice> devices_;
  std::map<std::string, KernelTimes> times_;  // by name of the GPU
};

}  // namespace orrery::calibrate
