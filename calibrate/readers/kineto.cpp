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
#include "calibrate/reading_builder.hpp"
#include "calibrate/torch_ops.hpp"
#include "calibrate/trace_devices.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kMaxOperators = 4'000'000;

bool recognises(const FileHead& head) {
  const auto has = [&](std::string_view word) { return head.text.find(word) != std::string::npos; };
  return has("\"traceEvents\"") || (has("\"ph\"") && has("\"cat\"") && has("\"dur\""));
}

// Operands are recorded as fp32 either way; kernels of cuBLAS and CUTLASS name what they multiply.
bool multiplies_tf32(std::string_view kernel) {
  return kernel.find("tf32") != std::string_view::npos ||
         kernel.find("s1688gemm") != std::string_view::npos;
}

class TraceReader {
 public:
  explicit TraceReader(ReadingBuilder& builder) : builder_(builder), devices_(builder) {}

  void read() {
    constexpr auto kOperators = std::to_array<std::string_view>({"cpu_op", "operator"});
    constexpr auto kOnDevice = std::to_array<std::string_view>({"kernel", "gpu_memcpy"});
    TraceEnd end = stream_trace(builder_.path(), kOperators,
                                [this](const TraceEvent& event) { collect_operator(event); });
    if (end.events == 0 && end.fault.empty()) {
      builder_.fault(builder_.path(), "no trace events");
    }
    devices_.set(std::move(end.devices));
    const TraceEnd again = stream_trace(builder_.path(), kOnDevice,
                                        [this](const TraceEvent& event) { collect_kernel(event); });
    if (const std::string& fault = end.fault.empty() ? again.fault : end.fault; !fault.empty()) {
      builder_.fault(builder_.path(), fault,
                     "the trace is cut off or damaged; --partial uses what comes before");
    }
    for (const auto& [id, entry] : operators_) {
      if (entry.seconds > 0) {
        Shape shape = shapes_[entry.shape];
        if (auto* gemm = std::get_if<GemmSample>(&shape); gemm != nullptr && entry.is_tf32) {
          gemm->dtype = gemm->dtype == DType::Fp32 ? DType::Tf32 : gemm->dtype;
        }
        entry.times->add(shape, entry.seconds);
      }
    }
    if (again.events > 0 && kernels_ == 0) {
      builder_.remark(fmt::format("no kernels of a GPU among its {} events", again.events));
    }
    devices_.finish();
  }

 private:
  struct Operator {
    std::uint32_t shape = 0;
    double seconds = 0;
    KernelTimes* times = nullptr;  // of the GPU that ran its kernels
    bool shared_id = false;        // with another operator
    bool is_tf32 = false;          // fp32 operands, multiplied by tensor cores
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
    const auto [entry, fresh] =
        operators_.emplace(event.external_id, Operator{.shape = known->second});
    entry->second.shared_id = !fresh;
  }

  void collect_kernel(const TraceEvent& event) {
    ++kernels_;
    const std::string where = fmt::format("{}: event {}", builder_.path(), event.number);
    const bool copy = event.category == "gpu_memcpy";
    KernelTimes* times = devices_.times(event.device, where);
    if (times == nullptr) {
      return;
    }
    const std::string what = copy ? "a copy" : "a kernel";
    if (!event.duration_us) {
      builder_.fault(where, what + " without a number \"dur\"");
      return;
    }
    const double seconds = *event.duration_us * 1e-6;
    if (copy && seconds == 0) {
      builder_.left_out("copy of 0 us");  // times were once whole microseconds
      return;
    }
    if (!(seconds > 0 && seconds < 1e5)) {
      builder_.fault(where, fmt::format("{} of {:g} us is not possible", what, *event.duration_us));
      return;
    }
    if (copy) {
      collect_copy(event, seconds, *times);
    } else if (!event.collective.empty()) {
      collect_collective(event, seconds, *times);
    } else {
      collect_compute(event, seconds, *times);
    }
  }

  void collect_compute(const TraceEvent& event, double seconds, KernelTimes& times) {
    const auto found = operators_.find(event.external_id);
    if (found == operators_.end()) {
      times.add_named(event.name.empty() ? "kernel without a name" : event.name, seconds);
    } else if (found->second.shared_id) {
      builder_.left_out("kernel whose External id is that of several operators");
    } else {
      found->second.seconds += seconds;
      found->second.times = &times;
      found->second.is_tf32 = found->second.is_tf32 || multiplies_tf32(event.name);
    }
  }

  void collect_collective(const TraceEvent& event, double seconds, KernelTimes& times) {
    if (devices_.count() == 0) {
      builder_.left_out("collective of unknown nodes, since the trace has no deviceProperties");
      return;
    }
    std::optional<CollectiveSample> sample = torch_collective(event);
    if (!sample || !place(event, *sample)) {
      builder_.left_out("collective \"" + printable(event.collective, 40) +
                        "\" without sizes, places or a name we know");
      return;
    }
    times.add(*sample, seconds);
  }

  // Ranks are taken to fill the nodes in order, each with the GPUs that this one lists.
  bool place(const TraceEvent& event, CollectiveSample& sample) const {
    const std::int64_t gpus_of_node = devices_.count();
    std::set<std::int64_t> nodes;
    std::int64_t ranks = 0;
    std::string_view text = event.group_ranks;
    while (!text.empty()) {
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
      nodes.insert(rank / gpus_of_node);
      ++ranks;
    }
    if (ranks == sample.ranks) {
      sample.nodes = static_cast<std::int64_t>(nodes.size());
    } else if (sample.ranks > gpus_of_node) {
      sample.nodes = (sample.ranks + gpus_of_node - 1) / gpus_of_node;
    }
    sample.ranks_per_node = sample.ranks / sample.nodes;
    return sample.ranks_per_node * sample.nodes == sample.ranks;
  }

  // "Memcpy HtoD (Pinned -> Device)"
  void collect_copy(const TraceEvent& event, double seconds, KernelTimes& times) {
    const bool in = event.name.find("HtoD") != std::string::npos;
    const bool out = event.name.find("DtoH") != std::string::npos;
    const bool sized = event.bytes >= 1 && event.bytes <= (std::int64_t{1} << 45);
    if ((!in && !out) || !sized) {
      builder_.left_out(sized ? "copy that is not between host and GPU" : "copy of unknown size");
      return;
    }
    times.add(
        HostCopySample{.bytes = event.bytes,
                       .direction = in ? CopyDirection::HostToDevice : CopyDirection::DeviceToHost,
                       .pinned = event.name.find("Pinned") != std::string::npos},
        seconds);
  }

  ReadingBuilder& builder_;
  TraceDevices devices_;
  std::vector<Shape> shapes_;
  std::unordered_map<std::string, std::uint32_t> index_;  // of shapes_, by key
  std::unordered_map<std::int64_t, Operator> operators_;  // by external id
  std::int64_t kernels_ = 0;
};

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  TraceReader(builder).read();
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_kineto = {
    .name = "kineto",
    .what = "traces of PyTorch's profiler (JSON, gzip)",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
