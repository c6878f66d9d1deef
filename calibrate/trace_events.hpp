// SPDX-License-Identifier: Apache-2.0
// Events of a PyTorch Kineto (Chrome) trace, read as a stream: traces of gigabytes, gzip'ed or not,
// in constant memory, one event at a time. Only what a fit asks for is kept of an event, and events
// of other categories are passed over as soon as theirs is read. Both spellings of the argument
// names (before and after PyTorch 1.12) are known.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::calibrate {

using Dims = std::vector<std::int64_t>;

struct TraceEvent {
  std::string phase;     // "X": complete
  std::string category;  // lower case: "kernel", "cpu_op", "gpu_memcpy", ...
  std::string name;
  std::optional<double> duration_us;  // absent, too, where it is no number
  // Arguments; -1 or empty when absent.
  std::int64_t external_id = -1;
  std::int64_t device = -1;
  std::int64_t bytes = -1;
  std::vector<Dims> input_dims;  // a list of tensors or a scalar is empty
  std::vector<Dims> input_strides;
  std::vector<std::string> input_types;
  std::vector<std::string> concrete_inputs;
  std::string collective;
  std::string dtype;
  std::string group_ranks;
  std::int64_t in_elements = -1;
  std::int64_t out_elements = -1;
  std::int64_t group_size = -1;
  std::int64_t number = 0;  // of the event in the file, from 1

  void clear();
};

struct TraceDevice {
  std::string name;
  std::int64_t id = -1;  // -1: not stated
};

struct TraceEnd {
  std::vector<TraceDevice> devices;  // of deviceProperties
  std::int64_t events = 0;
  std::string fault;  // why the trace ends before its end, with the line; empty when it is whole
};

// The events of these categories in the order of the file; without categories all of them.
TraceEnd stream_trace(const std::string& path, std::span<const std::string_view> categories,
                      const std::function<void(const TraceEvent&)>& on_event);

}  // namespace orrery::calibrate
