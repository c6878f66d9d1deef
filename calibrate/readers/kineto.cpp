// SPDX-License-Identifier: Apache-2.0
// Traces of PyTorch's profiler (Kineto), streamed twice: first the operators with recorded shapes
// (record_shapes=True), then the kernels, which name their operator by "External id". An operator's
// time is that of all its kernels. NCCL kernels carry their own sizes; their times include waiting
// for other ranks, so the lower quartile says more than the median. Copies become copy samples,
// other kernels named durations. Memory grows with the number of matrix and attention operators and
// is bounded; the trace itself is never held.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <unordered_map>

#include "base/text.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/kernel_times.hpp"
#include "calibrate/reading_builder.hpp"
#include "calibrate/torch_ops.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kMaxOperators = 4'000'000;

bool recognises(const FileHead& head) {
  const auto has = [&](std::string_view word) { return head.text.find(word) != std::string::npos; };
  return has("\"traceEvents\"") || (has("\"ph\"") && has("\"cat\"") && has("\"dur\""));
}

class TraceReader {
 public:
  explicit TraceReader(ReadingBuilder& builder) : builder_(builder), times_(builder) {}

  void read() {
    constexpr auto kOperators = std::to_array<std::string_view>({"cpu_op", "operator"});
    constexpr auto kOnDevice = std::to_array<std::string_view>({"kernel", "gpu_memcpy"});
    const TraceEnd end = stream_trace(builder_.path(), kOperators,
                                      [this](const TraceEvent& event) { collect_operator(event); });
    if (end.events == 0 && end.fault.empty()) {
      builder_.fault(builder_.path(), "no trace events");
    }
    gpus_of_node_ = static_cast<std::int64_t>(end.devices.size());
    device_ids_ = end.device_ids;
    const TraceEnd again = stream_trace(builder_.path(), kOnDevice,
                                        [this](const TraceEvent& event) { collect_kernel(event); });
    if (const std::string& fault = end.fault.empty() ? again.fault : end.fault; !fault.empty()) {
      builder_.fault(builder_.path(), fault, "the trace is cut off or damaged");
    }
    for (const auto& [id, entry] : operators_) {
      if (entry.seconds > 0) {
        times_.add(shapes_[entry.shape], entry.seconds);
      }
    }
    SampleHeader header;
    header.device = !end.devices.empty()         ? end.devices.front()
                    : !builder_.device().empty() ? builder_.device()
                                                 : "unknown";
    header.gpu = gpu_of(header.device);
    header.node = node_of(header.gpu, "");
    header.notes = {"collective times of a trace include waiting for other ranks"};
    times_.finish(header);
  }

 private:
  struct Operator {
    std::uint32_t shape = 0;
    double seconds = 0;
  };

  void collect_operator(const TraceEvent& event) {
    if (event.external_id < 0) {
      return;
    }
    const std::optional<Shape> shape = torch_shape(event);
    if (!shape) {
      return;
    }
    if (operators_.size() >= kMaxOperators) {
      builder_.left_out("operator beyond the first 4,000,000");
      return;
    }
    const auto [known, added] =
        index_.emplace(shape_key(*shape), static_cast<std::uint32_t>(shapes_.size()));
    if (added) {
      shapes_.push_back(*shape);
    }
    operators_[event.external_id] = {known->second, 0};
  }

  void collect_kernel(const TraceEvent& event) {
    const double seconds = event.duration_us.value_or(0) * 1e-6;
    const std::string where = fmt::format("{}: event {}", builder_.path(), event.number);
    if (event.device >= 0 && !device_ids_.empty() &&
        std::find(device_ids_.begin(), device_ids_.end(), event.device) == device_ids_.end()) {
      builder_.fault(where, fmt::format("device {} is not among the deviceProperties of the trace",
                                        event.device));
      return;
    }
    if (event.category == "gpu_memcpy") {
      collect_copy(event, seconds);
      return;
    }
    if (!event.duration_us) {
      builder_.fault(where, "a kernel without a number \"dur\"");
      return;
    }
    if (!(seconds > 0 && seconds < 1e5)) {
      builder_.fault(where, fmt::format("a kernel of {:g} us is not possible", *event.duration_us));
      return;
    }
    if (!event.collective.empty()) {
      collect_collective(event, seconds);
      return;
    }
    const auto found = operators_.find(event.external_id);
    if (found != operators_.end()) {
      found->second.seconds += seconds;
    } else {
      times_.add_named(event.name, seconds);
    }
  }

  void collect_collective(const TraceEvent& event, double seconds) {
    std::optional<CollectiveSample> sample = torch_collective(event);
    if (!sample || !place(event, *sample)) {
      builder_.left_out("collective \"" + printable(event.collective, 40) +
                        "\" without sizes, places or a name we know");
      return;
    }
    times_.add(*sample, seconds);
  }

  // Ranks are taken to fill the nodes in order, each with the GPUs that this one lists.
  bool place(const TraceEvent& event, CollectiveSample& sample) const {
    std::set<std::int64_t> nodes;
    std::int64_t ranks = 0;
    std::string_view text = event.group_ranks;
    while (gpus_of_node_ > 0 && !text.empty()) {
      const std::size_t digit = text.find_first_of("0123456789");
      if (digit == std::string_view::npos) {
        break;
      }
      text.remove_prefix(digit);
      std::int64_t rank = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
      if (error != std::errc()) {
        return false;
      }
      text.remove_prefix(static_cast<std::size_t>(end - text.data()));
      nodes.insert(rank / gpus_of_node_);
      ++ranks;
    }
    if (ranks == sample.ranks) {
      sample.nodes = static_cast<std::int64_t>(nodes.size());
    } else if (gpus_of_node_ > 0 && sample.ranks > gpus_of_node_) {
      sample.nodes = (sample.ranks + gpus_of_node_ - 1) / gpus_of_node_;
    }
    sample.ranks_per_node = sample.ranks / sample.nodes;
    return sample.ranks_per_node * sample.nodes == sample.ranks;
  }

  // "Memcpy HtoD (Pinned -> Device)"
  void collect_copy(const TraceEvent& event, double seconds) {
    const bool in = event.name.find("HtoD") != std::string::npos;
    const bool out = event.name.find("DtoH") != std::string::npos;
    if ((!in && !out) || event.bytes < 1 || event.bytes > (std::int64_t{1} << 45) || seconds <= 0) {
      return;
    }
    times_.add(
        HostCopySample{.bytes = event.bytes,
                       .direction = in ? CopyDirection::HostToDevice : CopyDirection::DeviceToHost,
                       .pinned = event.name.find("Pinned") != std::string::npos},
        seconds);
  }

  ReadingBuilder& builder_;
  KernelTimes times_;
  std::vector<Shape> shapes_;
  std::unordered_map<std::string, std::uint32_t> index_;  // of shapes_, by key
  std::unordered_map<std::int64_t, Operator> operators_;  // by external id
  std::int64_t gpus_of_node_ = 0;
  std::vector<std::int64_t> device_ids_;
};

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  TraceReader(builder).read();
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_kineto = {"kineto", "traces of PyTorch's profiler (JSON, gzip)",
                                           recognises, read};

}  // namespace orrery::calibrate
