// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/run.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "calibrate/ceilings.hpp"
#include "calibrate/cuda/benchmark.hpp"
#include "calibrate/cuda/libraries.hpp"
#include "calibrate/cuda/sampler.hpp"
#include "calibrate/nvml.hpp"
#include "calibrate/statistics.hpp"

namespace orrery::calibrate::cuda {
namespace {

constexpr double kLongestCase = 0.3;      // seconds of budget; more repetitions tell nothing new
constexpr double kLongestKernel = 10e-3;  // seconds at the peak rate
constexpr double kMemoryShare = 0.25;     // of what is free, for the operands of one kernel

struct Planned {
  const Benchmark* benchmark;
  Case item;
};

std::vector<DType> dtypes_of(const GpuOptions& options, const DeviceInfo& device) {
  std::vector<DType> dtypes;
  for (const DType dtype : {DType::Bf16, DType::Fp8, DType::Fp16, DType::Tf32, DType::Fp32}) {
    const bool asked =
        options.dtypes.empty() ||
        std::find(options.dtypes.begin(), options.dtypes.end(), dtype) != options.dtypes.end();
    if (!asked) {
      continue;
    }
    if (device.has(dtype)) {
      dtypes.push_back(dtype);
    } else if (!options.dtypes.empty()) {
      bad_input("--dtype", fmt::format("{} has no {} matrix units", device.name, to_text(dtype)));
    }
  }
  return dtypes;
}

// Rough peak where the chip is unknown: it only sets how large the largest shapes are.
double peak_rate(DType dtype, const std::string& gpu, const DeviceInfo& device) {
  if (!gpu.empty()) {
    const double known = topologies::load_gpu(gpu).peak_of(dtype).value();
    if (known > 0) {
      return known;
    }
  }
  const double per_sm = dtype == DType::Fp32 ? 0.4e12 : 3e12;
  return per_sm * device.sm_count;
}

SampleHeader header_of(const DeviceInfo& device, const Nvml& nvml, const std::string& gpu) {
  SampleHeader header;
  header.device = device.name;
  header.gpu = gpu;
  header.driver = nvml.driver_version();
  header.cuda = device.runtime;
  header.libraries = library_versions();
  header.libraries.emplace_back("CUDA of the driver", device.driver);
  header.max_sm_clock_mhz = nvml.max_sm_clock_mhz();
  header.power_limit_w = nvml.power_limit_w();
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) {
    header.host = host.data();
  }
  header.date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  if (!nvml.available()) {
    header.notes.emplace_back("NVML is missing: clocks unknown, throttling not detected");
  }
  return header;
}

std::vector<Planned> planned_cases(const GpuOptions& options, const BenchmarkContext& context) {
  std::vector<Planned> plan;
  for (const Benchmark* benchmark : benchmark_table()) {
    const bool wanted = options.only.empty() || std::find(options.only.begin(), options.only.end(),
                                                          benchmark->name) != options.only.end();
    if (wanted) {
      for (Case& item : benchmark->cases(context)) {
        plan.push_back({benchmark, std::move(item)});
      }
    }
  }
  return plan;
}

}  // namespace

std::vector<GpuBenchmarkInfo> benchmark_names() {
  std::vector<GpuBenchmarkInfo> names;
  for (const Benchmark* benchmark : benchmark_table()) {
    names.push_back({std::string(benchmark->name), std::string(benchmark->description)});
  }
  return names;
}

GpuRun run(const GpuOptions& options, const ProgressCallback& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const DeviceInfo device = open_device(options.device);
  const Nvml nvml(device.bus_id);
  GpuRun result;
  result.gpu =
      gpu_of_device(device.name, static_cast<double>(device.memory_bytes), device.sm_count);
  result.file.header = header_of(device, nvml, result.gpu);
  const BenchmarkContext context = {
      .device = device,
      .dtypes = dtypes_of(options, device),
      .networks = options.networks,
      .limits = [&](DType dtype) {
        return ShapeLimits{.max_flops = kLongestKernel * peak_rate(dtype, result.gpu, device),
                           .max_bytes = kMemoryShare * static_cast<double>(device.free_bytes)};
      }};
  const std::vector<Planned> plan = planned_cases(options, context);
  double weight = 0;
  for (const Planned& planned : plan) {
    weight += planned.benchmark->weight;
  }
  TimeBudget budget(options.budget_seconds, weight, kLongestCase);
  Sampler sampler(device, nvml);
  for (std::size_t i = 0; i < plan.size() && !interrupted(); ++i) {
    const Planned& planned = plan[i];
    const double spent =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double seconds = budget.next(spent, planned.benchmark->weight);
    if (progress) {
      progress(static_cast<double>(i) / static_cast<double>(plan.size()),
               std::string(planned.benchmark->name));
    }
    const auto skip = [&](std::string_view reason) {
      result.skipped.push_back(fmt::format("{} case {}: {}", planned.benchmark->name, i, reason));
    };
    if (seconds <= 0) {
      skip("the time budget was spent");
      continue;
    }
    try {
      result.file.samples.push_back(sampler.measure(planned.item, seconds));
    } catch (const OutOfDeviceMemory& error) {
      skip(error.what());
    } catch (const Unsupported& error) {
      skip(error.what());
    }
  }
  result.file.header.sm_clock_mhz = sampler.sm_clock_mhz();
  result.file.header.memory_clock_mhz = nvml.memory_clock_mhz();
  result.file.header.temperature_c = nvml.temperature_c();
  if (!result.skipped.empty()) {
    result.file.header.notes.push_back(fmt::format("{} cases have no sample, the first: {}",
                                                   result.skipped.size(), result.skipped.front()));
  }
  if (!result.gpu.empty()) {
    result.above_ceiling = flag_impossible(result.file, topologies::load_gpu(result.gpu));
  }
  return result;
}

}  // namespace orrery::calibrate::cuda
