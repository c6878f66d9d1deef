// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/text.hpp"
#include "costmodel/device_model.hpp"
#include "studies/predictions.hpp"
#include "studies/table_cells.hpp"

namespace orrery::studies {
namespace {

using costmodel::DeviceModel;

tl::expected<DeviceModel, std::string> device_of(const std::string& name) {
  try {
    const topologies::Gpu gpu = topologies::load_gpu(name);
    return DeviceModel(gpu, costmodel::load_profile("", gpu));
  } catch (const Error&) {
    return tl::unexpected(fmt::format("unknown GPU \"{}\"", printable(name, 80)));
  }
}

using Devices = std::map<std::string, tl::expected<DeviceModel, std::string>>;

Devices devices_of(const CsvTable& table) {
  Devices devices;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const std::string& name = table.cell(row, "gpu");
    if (!devices.contains(name)) {
      devices.emplace(name, device_of(name));
    }
  }
  return devices;
}

// "fp8_e4m3" is fp8.
tl::expected<DType, std::string> dtype_of(const std::string& text) {
  try {
    return parse_dtype(text.starts_with("fp8") ? "fp8" : text, "dtype");
  } catch (const Error&) {
    return tl::unexpected(fmt::format("unknown dtype \"{}\"", printable(text, 40)));
  }
}

Seconds gemm_time(const Cells& cells, const DeviceModel& device, DType dtype) {
  costmodel::GemmShape shape;
  shape.m = cells.required_count("m", limits::kMaxVocab);
  shape.n = cells.required_count("n", limits::kMaxVocab);
  shape.k = cells.required_count("k", limits::kMaxVocab);
  shape.dtype = dtype;
  // Tables time fp8 layers as inference runs them: their activations arrive in 16 bits.
  shape.casts_activations = dtype == DType::Fp8;
  return device.gemm(shape);
}

Seconds attention_time(const Cells& cells, const DeviceModel& device, DType dtype) {
  costmodel::AttentionShape shape;
  shape.batch = cells.required_count("batch", limits::kMaxBatch);
  shape.heads = cells.required_count("heads", limits::kMaxHeads);
  shape.kv_heads = cells.required_count("kv_heads", limits::kMaxHeads);
  shape.q_len = cells.required_count("seqlen", limits::kMaxSequence);
  shape.kv_len = shape.q_len;
  shape.head_dim = cells.required_count("head_dim", limits::kMaxHidden);
  shape.value_head_dim = shape.head_dim;
  shape.causal = cells.flag("causal").value_or(true);
  shape.dtype = dtype;
  return device.attention_forward(shape);
}

RowResult predict_kernel(const CsvTable& table, std::size_t index, const std::string& source,
                         const Devices& devices) {
  const Cells cells(table, index);
  const bool gemm = is_gemm_table(table);
  RowResult result;
  result.id = fmt::format("{}:{}", source, index + 1);
  result.config_id = result.id;
  result.source = source;
  result.quantity = "kernel_time_s";
  const std::string gpu = cells.text("gpu");
  const std::string dtype_text = cells.text("dtype");
  const double measured = cells.positive("time_us") / 1e6;
  const auto& device = devices.at(gpu);
  const auto dtype = dtype_of(dtype_text);
  if (!device || !dtype) {
    result.skipped_because = device ? dtype.error() : device.error();
    return result;
  }
  result.groups = {
      fmt::format("{}-{}-{}", gemm ? "gemm" : "attention", device->gpu().name, to_text(*dtype))};
  try {
    const Seconds time =
        gemm ? gemm_time(cells, *device, *dtype) : attention_time(cells, *device, *dtype);
    result.predicted = time.value();
    result.measured = measured;
    result.subject =
        gemm ? fmt::format("{} x {} x {}", cells.text("m"), cells.text("n"), cells.text("k"))
             : fmt::format("batch {}, {} heads, {} tokens", cells.text("batch"),
                           cells.text("heads"), cells.text("seqlen"));
  } catch (const Error& error) {
    result.skipped_because = error.what();
  }
  return result;
}

}  // namespace

bool is_gemm_table(const CsvTable& table) {
  return table.has_column("m") && table.has_column("n") && table.has_column("k") &&
         table.has_column("time_us") && table.has_column("dtype") && table.has_column("gpu");
}

bool is_attention_table(const CsvTable& table) {
  return table.has_column("heads") && table.has_column("seqlen") && table.has_column("time_us") &&
         table.has_column("dtype") && table.has_column("gpu");
}

std::vector<RowResult> predict_kernels(const CsvTable& table, const std::string& source, int jobs) {
  const Devices devices = devices_of(table);
  std::vector<RowResult> results(table.num_rows());
  parallel_for(table.num_rows(), jobs, [&](std::size_t index) {
    results[index] = predict_kernel(table, index, source, devices);
  });
  return results;
}

}  // namespace orrery::studies
