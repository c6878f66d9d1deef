// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "calibrate/ceilings.hpp"
#include "calibrate/fit/kernels.hpp"
#include "calibrate/fit/memory.hpp"
#include "calibrate/fit/own_collectives.hpp"
#include "calibrate/fit/plot.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reader.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "cli/command/output_paths.hpp"

namespace orrery::cli {
namespace {

using calibrate::KernelFit;
using calibrate::Sample;
using costmodel::Profile;

constexpr const char* kCalibrateFitExamples = R"(
Examples:
  orrery calibrate fit samples.json --gpu h100-sxm5-80gb -o h100.json --plot h100.svg
  orrery calibrate fit kernels/*.csv --gpu l40s -o l40s.json
  orrery calibrate fit samples.json nccl.json all_reduce.log --gpu h100-sxm5-80gb -o h100.json
  orrery calibrate fit --gpu h200-sxm5-141gb --kernels-from h100-sxm5-80gb -o h200.json)";

struct FitCommandOptions {
  std::vector<std::string> files;
  std::string gpu;
  std::vector<std::string> also;
  std::string base;
  std::string kernels_from;
  std::string format;
  std::string source;
  std::string output = "profile.json";
  std::string sets;
  std::string plot;
  std::uint64_t seed = 1;
  bool partial = false;
  OutputOptions common;
};

struct Samples {
  std::vector<Sample> wanted;                      // of kernels
  std::vector<calibrate::SampleFile> on_networks;  // of collectives
  calibrate::CollectiveLogs collectives;           // what they say, sorted
  std::map<std::string, int> used;                 // samples by file
  std::map<std::string, int> others;               // samples by device that is not asked for
  std::vector<std::string> useless;                // why files hold no samples
  std::map<std::string, int> unfitted;             // samples by kind that no section is fitted to
  bool measured_here = false;
};

bool is_kernel(const Sample& sample) {
  return std::holds_alternative<calibrate::GemmSample>(sample.shape) ||
         std::holds_alternative<calibrate::AttentionSample>(sample.shape) ||
         std::holds_alternative<calibrate::MemorySample>(sample.shape);
}

// "3 of copy, 2 of launch"
std::string counts_text(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", count, printable(name, 60));
  }
  return text;
}

// What the files hold beside what is fitted.
std::vector<std::string> left_out(const Samples& samples) {
  std::vector<std::string> lines;
  if (!samples.others.empty()) {
    lines.push_back(fmt::format("samples of other GPUs left out (--also counts them): {}",
                                counts_text(samples.others)));
  }
  if (!samples.unfitted.empty()) {
    lines.push_back(fmt::format("samples of kinds that are not fitted left out: {}",
                                counts_text(samples.unfitted)));
  }
  lines.insert(lines.end(), samples.collectives.remarks.begin(), samples.collectives.remarks.end());
  return lines;
}

// Samples of one file and of a GPU that is asked for.
void take(const calibrate::SampleFile& file, const std::string& path, Samples& samples) {
  calibrate::SampleFile collectives{file.header, {}};
  for (const Sample& sample : file.samples) {
    const auto* collective = std::get_if<calibrate::CollectiveSample>(&sample.shape);
    const bool fitted =
        collective != nullptr ? calibrate::is_fitted(collective->kind) : is_kernel(sample);
    if (!fitted) {
      ++samples.unfitted[std::string(collective != nullptr ? sim::to_text(collective->kind)
                                                           : calibrate::kind_text(sample.shape))];
      continue;
    }
    ++samples.used[path.substr(path.find_last_of('/') + 1)];
    samples.measured_here = samples.measured_here || sample.source.empty();
    (collective != nullptr ? collectives.samples : samples.wanted).push_back(sample);
  }
  if (!collectives.samples.empty()) {
    samples.on_networks.push_back(std::move(collectives));
  }
}

// Nothing where the user wants what can be read and a file holds no such thing.
std::optional<calibrate::Reading> read_file(const std::string& path,
                                            const FitCommandOptions& options,
                                            const topologies::Gpu& gpu) {
  try {
    return calibrate::read_foreign(path, options.format,
                                   {.partial = options.partial, .device = gpu.name});
  } catch (const Error& error) {
    if (!options.partial || error.kind() != ErrorKind::BadInput) {
      throw;
    }
    note_all({error.what()}, options.common);
    return std::nullopt;
  }
}

Samples read_all(const FitCommandOptions& options, const topologies::Gpu& gpu) {
  std::vector<std::string> names = {gpu.name};
  for (const std::string& also : options.also) {
    names.push_back(topologies::load_gpu(also).name);
  }
  Samples samples;
  for (const std::string& path : options.files) {
    const std::optional<calibrate::Reading> reading = read_file(path, options, gpu);
    if (!reading) {
      samples.useless.push_back(path + ": nothing in it can be used");
      continue;
    }
    note_all(reading->remarks, options.common);
    if (reading->files.empty() && !reading->remarks.empty()) {
      samples.useless.push_back(reading->remarks.front());
    }
    for (const calibrate::SampleFile& file : reading->files) {
      const calibrate::SampleHeader& header = file.header;
      const std::string name = header.gpu.empty() ? calibrate::gpu_of(header.device) : header.gpu;
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        samples.others[name.empty() ? header.device : name] +=
            static_cast<int>(file.samples.size());
      } else {
        calibrate::SampleFile possible = file;
        note_all(
            calibrate::drop_impossible(possible, topologies::load_gpu(name), path, options.partial),
            options.common);
        take(possible, path, samples);
      }
    }
  }
  samples.collectives = calibrate::collect_logs(samples.on_networks);
  if (samples.wanted.empty() && samples.collectives.logs.empty() && !options.files.empty()) {
    std::vector<std::string> found = left_out(samples);
    found.insert(found.end(), samples.useless.begin(), samples.useless.end());
    bad_input("calibrate fit",
              fmt::format("no samples of kernels or collectives of {} in the files", gpu.name),
              found.empty() ? "the files hold none that a profile is fitted to"
                            : fmt::format("{}", fmt::join(found, "; ")));
  }
  return samples;
}

std::string source_text(const FitCommandOptions& options, const Samples& samples) {
  if (!options.source.empty()) {
    return options.source;
  }
  std::string text = "fitted by orrery calibrate fit to";
  for (const auto& [file, count] : samples.used) {
    text +=
        fmt::format("{} {} ({})", text.ends_with("to") ? "" : ",", file, counted(count, "sample"));
  }
  return text;
}

// What was not measured keeps the source that it had.
void set_sources(const Samples& samples, const std::string& source, const Profile& base,
                 Profile& profile) {
  const auto measures = [&]<class Shape>(Shape) {
    return std::any_of(samples.wanted.begin(), samples.wanted.end(), [](const Sample& sample) {
      return std::holds_alternative<Shape>(sample.shape);
    });
  };
  const bool gemms = measures(calibrate::GemmSample());
  const bool attention = measures(calibrate::AttentionSample());
  for (const auto& [section, measured] :
       {std::pair("gemm", gemms), std::pair("attention", attention),
        std::pair("kernels", gemms || attention)}) {
    if (measured) {
      calibrate::set_source(profile, section, source);
    }
  }
  if (profile.memory.fraction != base.memory.fraction) {
    calibrate::set_source(profile, "memory", source);
  }
  if (!samples.collectives.logs.empty()) {
    for (const std::string& section : calibrate::sections_of(samples.collectives.logs)) {
      calibrate::set_source(profile, section, source);
    }
  }
}

// Rows of the base stand for what was not measured again.
void print_accuracy(const Profile& profile, const Profile& base) {
  const auto kept = [&](const costmodel::KernelAccuracy& row) {
    const auto& rows = base.kernels.accuracy;
    return std::find(rows.begin(), rows.end(), row) != rows.end();
  };
  TextTable table({{"kernel"},
                   {"points", Align::Right},
                   {"median error", Align::Right},
                   {"90 %", Align::Right},
                   {"m, n, k >= 1024", Align::Right},
                   {"measured"}});
  for (const costmodel::KernelAccuracy& row : profile.kernels.accuracy) {
    table.add_row(
        {row.kernel, std::to_string(row.points), percent(row.median), percent(row.p90),
         row.large_median > 0 ? percent(row.large_median) : "",
         kept(row) ? fmt::format("{} (as in {})", row.measured, base.name) : row.measured});
  }
  for (const costmodel::CollectiveError& row : profile.collectives.left_out) {
    const auto& rows = base.collectives.left_out;
    const bool same = std::find(rows.begin(), rows.end(), row) != rows.end();
    table.add_row({"collectives " + row.group, std::to_string(row.points), percent(row.median),
                   percent(row.p90), "",
                   counted(row.logs, "log") + (same ? fmt::format(" (as in {})", base.name) : "")});
  }
  print(table.text());
}

// Where the profile's numbers end.
std::vector<std::string> refusals(const Profile& profile, const Profile& base) {
  std::vector<std::string> lines;
  const auto has = [&](std::string_view prefix) {
    return std::any_of(profile.kernels.accuracy.begin(), profile.kernels.accuracy.end(),
                       [&](const auto& row) { return row.kernel.starts_with(prefix); });
  };
  for (const std::string_view kernel :
       {"gemm ", "grouped-gemm", "attention-forward", "attention-backward", "memory "}) {
    if (!has(kernel)) {
      lines.push_back(fmt::format("no samples of {}: as in {}", trim(kernel), base.name));
    }
  }
  if (profile.collectives == base.collectives) {
    lines.push_back(fmt::format("no samples of collectives: as in {}", base.name));
  }
  lines.emplace_back(
      "beyond the measured sizes the residuals fade and the formula alone counts; "
      "its error there is not known");
  return lines;
}

Json summary(const Profile& profile, const std::vector<std::string>& notes) {
  Json document = Json::object();
  const Json whole = costmodel::to_json(profile);
  document.set("profile", profile.name);
  if (const Json* kernels = whole.find("kernels")) {
    document.set("accuracy", *kernels->find("accuracy"));
  }
  document.set("collectives", costmodel::to_json(profile.collectives.left_out));
  Json& list = document.set("remarks", Json::array());
  for (const std::string& text : notes) {
    list.push(text);
  }
  return document;
}

// Sections that nothing was measured for keep the base's numbers; when those are another GPU's they
// spread wider.
void widen(Profile& profile, const Profile& base, const std::string& gpu) {
  if (base.name == gpu) {
    return;
  }
  constexpr double kWidening = 1.5;
  const auto wider = [&](double& spread, double before) {
    spread = spread == before ? spread * kWidening : spread;
  };
  wider(profile.spread.gemm, base.spread.gemm);
  wider(profile.spread.attention, base.spread.attention);
  wider(profile.spread.memory_bound, base.spread.memory_bound);
  wider(profile.spread.intra_node_collective, base.spread.intra_node_collective);
  wider(profile.spread.inter_node_collective, base.spread.inter_node_collective);
}

int run_fit(const FitCommandOptions& options) {
  const topologies::Gpu gpu = topologies::load_gpu(options.gpu);
  std::vector<std::string> inputs = options.files;
  inputs.insert(inputs.end(), {options.base, options.kernels_from});
  check_outputs({{"--output", options.output}, {"--sets", options.sets}, {"--plot", options.plot}},
                inputs);
  const Profile base = costmodel::load_profile(options.base, gpu);
  const Samples samples = read_all(options, gpu);
  const std::string source = source_text(options, samples);
  KernelFit fit;
  fit.profile = base;
  if (!samples.wanted.empty()) {
    fit = calibrate::fit_kernels(gpu, base, samples.wanted, source, options.seed);
  }
  if (!samples.collectives.logs.empty()) {
    calibrate::OwnCollectives own =
        calibrate::fit_own_collectives(samples.collectives.logs, fit.profile);
    fit.profile = std::move(own.profile);
    for (calibrate::LeftOut& point : own.left_out) {
      point.kernel = "collectives " + point.kernel;
      fit.left_out.push_back(std::move(point));
    }
  }
  set_sources(samples, source, base, fit.profile);
  if (!options.kernels_from.empty()) {
    calibrate::transfer_kernels(costmodel::load_profile(options.kernels_from, gpu), fit.profile);
  }
  widen(fit.profile, base, gpu.name);
  fit.profile.name = gpu.name;
  fit.profile.calibrated = samples.measured_here;
  fit.profile.power.reference_peak = {};  // those of the GPU file
  if (!options.sets.empty()) {
    const std::string file = options.sets.substr(options.sets.find_last_of('/') + 1);
    const auto& sets = fit.profile.kernels.residuals;
    write_result(options.sets, costmodel::to_json(sets).dump() + "\n", options.common);
    fit.profile.kernels.residuals = {file.substr(0, file.rfind('.')), sets.sms(), sets.source(),
                                     sets.sets()};
  }
  write_result(options.output, costmodel::to_json(fit.profile).dump() + "\n", options.common);
  if (!options.plot.empty()) {
    write_result(options.plot,
                 calibrate::fit_plot(fit.left_out, fmt::format("{}: kernel times", gpu.name)),
                 options.common);
  }
  std::vector<std::string> notes = fit.remarks;
  for (const std::string& line : left_out(samples)) {
    notes.push_back(line);
  }
  for (const std::string& line : refusals(fit.profile, base)) {
    notes.push_back(line);
  }
  if (options.common.json) {
    print_json(summary(fit.profile, notes));
    return kOk;
  }
  print_accuracy(fit.profile, base);
  for (const std::string& text : notes) {
    print(text + "\n");
  }
  return kOk;
}

}  // namespace

void add_calibrate_fit(const Command& app, Action& chosen) {
  auto options = std::make_shared<FitCommandOptions>();
  const Command command =
      app.add_subcommand("fit", "fit a profile to samples, kernel tables and logs");
  command.footer(kCalibrateFitExamples);
  command.add_option("FILE", options->files, "sample files, kernel tables, traces");
  command
      .add_option("--gpu", options->gpu,
                  "the GPU that the profile is for, and that of files that name none")
      .required();
  command.add_option("--also", options->also, "samples of this GPU count as those of --gpu");
  command.add_option("--base", options->base,
                     "profile that gives what the samples do not say (default: that of --gpu)");
  command.add_option("--kernels-from", options->kernels_from,
                     "take the kernel sections of a related GPU's profile, with wider spreads");
  command.add_option("--format", options->format, "format of the files (default: by content)");
  command.add_option("--source", options->source, "where the numbers come from, for the profile");
  command.add_option("--seed", options->seed, "of the folds of the cross-validation");
  command.add_flag("--partial", options->partial, "use what can be read of damaged files");
  command.add_option("-o,--output", options->output, "profile to write (profile.json)");
  command.add_option("--sets", options->sets,
                     "write the residuals to a file of their own, which the profile names: for "
                     "the data folder costmodel/kernels");
  command.add_option("--plot", options->plot,
                     "picture of the errors of points left out of the fit (SVG)");
  add_output_options(command, options->common);
  command.callback([options, &chosen] { chosen = [options] { return run_fit(*options); }; });
}

}  // namespace orrery::cli
