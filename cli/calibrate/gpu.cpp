// SPDX-License-Identifier: Apache-2.0
#include "calibrate/gpu.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/error.hpp"
#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"
#include "calibrate/gpu_report.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"
#include "models/network.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kCalibrateGpuExamples = R"(
Times matrix products, attention, memory-bound kernels, copies and launches, and writes a sample
file that `orrery calibrate fit` turns into a profile. One run takes at most three minutes.

Examples:
  orrery calibrate gpu
  orrery calibrate gpu --only gemm,attention --dtype bf16 --budget 30
  orrery calibrate gpu --network llama3-8b --tp 1,2,4,8 --seq 8192 --micro-batch 1,2)";

struct GpuCommandOptions {
  std::string output = "samples.json";
  std::vector<std::string> only;
  std::vector<std::string> dtypes;
  std::vector<std::string> networks;
  std::vector<std::string> tensor_parallel = {"1"};
  std::string sequence;
  std::vector<std::string> micro_batches = {"1"};
  std::string budget = "150";
  std::string device = "0";
  OutputOptions common;
};

// The networks asked for; the requests point into it.
struct Requests {
  std::vector<models::Network> networks;
  std::vector<calibrate::NetworkRequest> list;
};

Requests requests_of(const GpuCommandOptions& options) {
  Requests requests;
  requests.networks.reserve(options.networks.size());
  std::vector<int> degrees;
  for (const std::string& text : options.tensor_parallel) {
    degrees.push_back(static_cast<int>(parse_integer(text, "--tp", 1, 1024)));
  }
  for (const std::string& name : options.networks) {
    const models::Network& network = requests.networks.emplace_back(models::load_network(name));
    for (const std::string& batch : options.micro_batches) {
      calibrate::NetworkRequest request;
      request.network = &network;
      request.tensor_parallel = degrees;
      request.micro_batch = parse_integer(batch, "--micro-batch", 1, limits::kMaxBatch);
      request.sequence = options.sequence.empty()
                             ? network.spec.sequence
                             : parse_integer(options.sequence, "--seq", 1, limits::kMaxSequence);
      calibrate::network_gemms(request);  // degrees that do not divide are found before the device
      requests.list.push_back(request);
    }
  }
  return requests;
}

Json run_json(const GpuCommandOptions& options, const calibrate::GpuRun& run,
              const std::vector<calibrate::ReportGroup>& groups) {
  Json skipped = Json::array();
  for (const std::string& reason : run.skipped) {
    skipped.push(reason);
  }
  return Json::Object{{"device", run.file.header.device},
                      {"gpu", run.gpu},
                      {"output", options.output},
                      {"samples", static_cast<std::int64_t>(run.file.samples.size())},
                      {"above_ceiling", run.above_ceiling},
                      {"kernels", calibrate::report_json(groups)},
                      {"skipped", std::move(skipped)}};
}

void print_text(const calibrate::GpuRun& run, const std::vector<calibrate::ReportGroup>& groups) {
  print(fmt::format("{} ({})\n\n{}", printable(run.file.header.device),
                    run.gpu.empty() ? "not in topologies/gpus: no ceilings checked" : run.gpu,
                    calibrate::report_text(groups)));
  if (run.above_ceiling > 0) {
    print(
        fmt::format("\n{} samples are above a physical ceiling: the clock, the file of the GPU or "
                    "the sample is "
                    "wrong.\n",
                    run.above_ceiling));
  }
  if (!run.skipped.empty()) {
    print(fmt::format("\n{} cases have no sample; the first: {}\n", run.skipped.size(),
                      printable(run.skipped.front(), 500)));
  }
}

int run_gpu(const GpuCommandOptions& options) {
  check_outputs({{"--output", options.output}, json_path(options.common)}, {});
  const Requests requests = requests_of(options);
  calibrate::GpuOptions gpu;
  gpu.only = options.only;
  for (const std::string& name : options.dtypes) {
    gpu.dtypes.push_back(parse_dtype(name, "--dtype"));
    if (gpu.dtypes.back() == DType::Nvfp4) {
      bad_input("--dtype", "products in nvfp4 are not measured", "bf16, fp8, fp16, tf32 or fp32");
    }
  }
  gpu.networks = requests.list;
  gpu.budget_seconds = parse_number(options.budget, "--budget", 1.0, 3600.0);
  gpu.device = static_cast<int>(parse_integer(options.device, "--device", 0, 1023));
  install_interrupt_handler();
  Progress progress("calibrate gpu", options.common.quiet);
  calibrate::GpuRun run = calibrate::measure_gpu(
      gpu, [&](double fraction, const std::string& text) { progress.update(fraction, text); });
  progress.finish();
  run.file.header.command = "orrery calibrate gpu";
  for (const std::string& name : options.networks) {
    run.file.header.command += " --network " + printable(name);
  }
  write_result(options.output, calibrate::sample_text(run.file), options.common);
  std::optional<topologies::Gpu> known;
  if (!run.gpu.empty()) {
    known = topologies::load_gpu(run.gpu);
  }
  const auto groups = calibrate::report_groups(run.file, known ? &*known : nullptr);
  if (options.common.json) {
    print_json(run_json(options, run, groups));
  } else {
    print_text(run, groups);
  }
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_calibrate_gpu(const Command& app, Action& chosen) {
  auto options = std::make_shared<GpuCommandOptions>();
  const Command command = app.add_subcommand("gpu", "time the kernels of training on this GPU");
  command.footer(kCalibrateGpuExamples);
  command.add_option("-o,--output", options->output, "sample file to write (samples.json)");
  std::string names;
  for (const calibrate::GpuBenchmarkInfo& info : calibrate::gpu_benchmarks()) {
    names += (names.empty() ? "" : ", ") + info.name;
  }
  command
      .add_option("--only", options->only,
                  "micro-benchmarks to run" + (names.empty() ? "" : ": " + names))
      .delimiter(',');
  command.add_option("--dtype", options->dtypes, "bf16, fp8, fp16, tf32, fp32 (default all)")
      .delimiter(',');
  command.add_option("--network", options->networks, "also its exact shapes; repeatable");
  command.add_option("--tp", options->tensor_parallel, "tensor-parallel degrees (1)")
      .delimiter(',');
  command.add_option("--seq", options->sequence, "sequence length (the network's)");
  command.add_option("--micro-batch", options->micro_batches, "sequences of a micro-batch (1)")
      .delimiter(',');
  command.add_option("--budget", options->budget, "seconds to measure (150)");
  command.add_option("--device", options->device, "number of the GPU (0)");
  add_output_options(command, options->common);
  command.callback([options, &chosen] { chosen = [options] { return run_gpu(*options); }; });
}

}  // namespace orrery::cli
