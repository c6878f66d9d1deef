// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/kernel_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/shapes.hpp"
#include "studies/validation/attention_rows.hpp"
#include "studies/validation/gemm_rows.hpp"
#include "studies/validation/kernel_cells.hpp"
#include "studies/validation/liger_rows.hpp"
#include "studies/validation/transfer_rows.hpp"

namespace orrery::studies {
namespace {

using costmodel::DeviceModel;
using costmodel::MemoryKernel;
using Point = tl::expected<KernelPoint, std::string>;

std::function<Seconds()> streamed(const DeviceModel& device, Bytes bytes, MemoryKernel kernel) {
  return [bytes, kernel, &device] { return device.memory_bound(bytes, kernel); };
}

// With a scale that is known ("bf16_to_fp8_scale") or found first ("amax_scale").
Point cast(const Cells& cells, const DeviceModel& device) {
  const std::string op = cells.text("op");
  if (op != "bf16_to_fp8_scale" && op != "amax_scale") {
    return tl::unexpected(fmt::format("kernel \"{}\" is not modelled", printable(op, 40)));
  }
  const std::int64_t m = cells.required_count("m", limits::kMaxVocab);
  const std::int64_t k = cells.required_count("k", limits::kMaxVocab);
  const double elements = static_cast<double>(m) * static_cast<double>(k);
  const auto scale = op == "amax_scale" ? costmodel::CastScale::Found : costmodel::CastScale::Known;
  return KernelPoint{"cast",
                     fmt::format("{} of {} x {}", printable(op, 40), m, k),
                     DType::Bf16,
                     [elements, scale, &device] { return device.cast(elements, scale); },
                     microseconds(cells, "time_us"),
                     false,
                     streamed_bytes(calibrate::rated_cast_bytes(op) * elements)};
}

// Adam over fp16 parameters with fp32 gradients, master copy and moments: 30 bytes a parameter.
Point optimizer_step(const Cells& cells, const DeviceModel& device) {
  const double parameters = cells.positive("param_bytes_total") / 2.0 / cells.positive("tp");
  return KernelPoint{"optimizer",
                     fmt::format("{:.3g} parameters", parameters),
                     DType::Fp16,
                     streamed(device, Bytes(parameters * 30.0), MemoryKernel::Optimizer),
                     Seconds(cells.positive("optimizer_ms") / 1e3),
                     false,
                     streamed_bytes(parameters * 30.0)};
}

// A gigabyte read and written, at the rate of the table.
Point stream_copy(const Cells& cells, const DeviceModel& device) {
  const Bytes bytes(1e9);
  return KernelPoint{"copy",
                     "1 GB scaled",
                     DType::Fp32,
                     streamed(device, bytes, MemoryKernel::Copy),
                     Seconds(bytes.value() / (cells.positive("scale_GBps") * 1e9)),
                     false,
                     streamed_bytes(bytes.value())};
}

// Experts run below what power allows, at any duration; attention as training calls it is another
// kernel than that of inference, and profiles hold it beside sustained load.
constexpr int kAlwaysSustained = 1'000'000'000;

const std::vector<KernelTable>& kernel_tables() {
  static const std::vector<KernelTable> kTables = {
      {{"gpu", "dtype", "m", "n", "k", "trans_a", "trans_b", "time_us"}, deepbench_gemm, ""},
      {{"gpu", "dtype", "m", "n", "k", "time_us"}, timed_gemm, ""},
      {{"gpu", "op", "b", "m", "n", "k", "layout", "accumulate", "tflops"},
       training_gemm,
       "",
       costmodel::kSimumaxGemmLaunches},
      {{"gpu", "ng", "M", "N", "K", "dtype", "efficiency", "peak_tflops"},
       grouped_gemm,
       "",
       kAlwaysSustained},
      {{"gpu", "kind", "groups", "m", "n", "k", "tflops"}, deep_gemm, ""},
      {{"gpu", "dtype", "m", "n", "k", "tflops"}, best_gemm, ""},
      {{"gpu", "dtype", "batch", "heads", "kv_heads", "seqlen", "head_dim", "time_us"},
       timed_attention,
       ""},
      {{"gpu", "impl", "pass_", "batch", "heads", "seqlen", "head_dim", "tflops"},
       figure_of_attention,
       "",
       kAlwaysSustained},
      {{"gpu", "op", "batch", "seq_len", "head_num", "qk_head_dim", "v_head_dim", "tflops"},
       training_attention,
       "",
       kAlwaysSustained},
      {{"gpu", "op", "m", "k", "time_us"}, cast, ""},
      {{"gpu", "tp", "param_bytes_total", "optimizer_ms"}, optimizer_step, ""},
      {{"gpu", "init_GBps", "scale_GBps"}, stream_copy, ""},
      {{"gpu", "kernel", "impl", "pass_", "x_name", "x", "config", "time_us_p50"}, liger_point, ""},
      {{"m", "n", "k", "vllm_us"}, repeated_gemm, ""},
      {{"gpu", "op", "efficient_factor"}, nullptr, "a rate without a size"},
      {{"gpu", "what", "n", "fp32"}, nullptr, "a rate without a dtype of its own"},
      {{"gpu", "mode", "elements", "best_GBps"}, nullptr, "launches, not kernels"},
      {{"gpu", "data_kB", "GBps"}, read_point, ""},
      {{"gpu", "op", "bytes", "block", "GBps"}, stream_point, ""},
      {{"gpu", "link", "direction", "bytes", "GBps"}, host_copy_point, ""},
      {{"machine", "path", "GBps"}, nullptr, "copies depend on the machine"},
      {{"gpu", "fp32_tflops", "mem_GBps"}, nullptr, "a rate without a shape"},
      {{"gpu", "matmul_fp32"}, nullptr, "whole layers of another framework"},
      {{"gpu", "model", "key"}, nullptr, "whole layers of an unnamed GPU"},
      {{"model", "gpu", "layer", "fwd_ms"}, nullptr, "whole layers of another framework"},
      {{"source", "what", "values"}, nullptr, "launches, not kernels"},
      {{"file", "what", "source"}, nullptr, "an index of tables"},
      {{"file", "interconnect", "nccl_version", "launch"}, nullptr, "an index of logs"},
      {{"source", "what", "gpu", "scale", "metric", "value"},
       nullptr,
       "figures of machines that are not stated"},
  };
  return kTables;
}

}  // namespace

const KernelTable* find_kernel_table(const CsvTable& table) {
  for (const KernelTable& kind : kernel_tables()) {
    if (std::all_of(kind.columns.begin(), kind.columns.end(),
                    [&](std::string_view column) { return table.has_column(column); })) {
      return &kind;
    }
  }
  return nullptr;
}

}  // namespace orrery::studies
