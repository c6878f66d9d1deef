// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "calibrate/fit/kernels.hpp"
#include "calibrate/fit/memory.hpp"
#include "calibrate/fit/own_collectives.hpp"
#include "calibrate/fit/plot.hpp"
#include "calibrate/fit/relative_attention.hpp"
#include "calibrate/fit/relative_gemm.hpp"
#include "calibrate/fit/send_receive.hpp"
#include "cli/calibrate/fit_samples.hpp"
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

std::string source_text(const FitCommandOptions& options, const FitSamples& samples) {
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
void set_sources(const FitSamples& samples, const KernelFit& fit, const std::string& source,
                 const Profile& base, Profile& profile) {
  for (const std::string& section : fit.sections) {
    calibrate::set_source(profile, section, source);
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

// Formats of 16 bits run alike.
std::string format_of(DType dtype) {
  return std::string(to_text(dtype == DType::Fp16 ? DType::Bf16 : dtype));
}

// What a kind of kernel was sampled in, and the formats that the base knows beside: "gemm fp8".
std::vector<std::string> unsampled(const KernelFit& fit, const Profile& base,
                                   std::string_view kernel) {
  const auto is_sampled = [&](const std::string& name) {
    return std::any_of(fit.sampled.begin(), fit.sampled.end(), [&](const std::string& of) {
      const bool both = name.starts_with("attention-") && of.starts_with("attention-both ");
      return both || of.starts_with(name + " ");
    });
  };
  if (!is_sampled(std::string(kernel))) {
    return {std::string(kernel)};
  }
  std::set<std::string> names;
  for (const costmodel::ResidualSet& set : base.kernels.residuals.sets()) {
    const std::string_view dtype = to_text(set.key.dtype);
    const bool alike = has_16_bits(set.key.dtype);
    const bool known = alike ? is_sampled(fmt::format("{} bf16", kernel)) ||
                                   is_sampled(fmt::format("{} fp16", kernel))
                             : is_sampled(fmt::format("{} {}", kernel, dtype));
    if (costmodel::to_text(set.key.kind) == kernel && !known) {
      names.insert(fmt::format("{} {}", kernel, format_of(set.key.dtype)));
    }
  }
  return {names.begin(), names.end()};
}

// Where the profile's numbers end. Those of products and attention are those of `relative`, if any.
std::vector<std::string> refusals(const FitSamples& samples, const KernelFit& fit,
                                  const Profile& base, const std::string& relative) {
  std::vector<std::string> lines;
  for (const std::string_view kernel :
       {"gemm", "grouped-gemm", "attention-forward", "attention-backward"}) {
    for (const std::string& name : unsampled(fit, base, kernel)) {
      lines.push_back(
          fmt::format("no samples of {}: as in {}", name, relative.empty() ? base.name : relative));
    }
  }
  if (std::none_of(samples.wanted.begin(), samples.wanted.end(), [](const Sample& sample) {
        return std::holds_alternative<calibrate::MemorySample>(sample.shape);
      })) {
    lines.push_back(fmt::format("no samples of memory: as in {}", base.name));
  }
  if (samples.collectives.logs.empty()) {
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
  const auto wider = [&](double& spread, double before) {
    spread = spread == before ? spread * costmodel::kSpreadWidening : spread;
  };
  wider(profile.spread.gemm, base.spread.gemm);
  wider(profile.spread.grouped_gemm, base.spread.grouped_gemm);
  wider(profile.spread.attention, base.spread.attention);
  wider(profile.spread.memory_bound, base.spread.memory_bound);
  wider(profile.spread.intra_node_collective, base.spread.intra_node_collective);
  wider(profile.spread.inter_node_collective, base.spread.inter_node_collective);
  wider(profile.spread.all_to_all, base.spread.all_to_all);
}

// Of other samples than products and attentions some are not used.
bool may_be_unused(const FitSamples& samples) {
  return samples.collectives.logs.empty() &&
         std::none_of(samples.wanted.begin(), samples.wanted.end(), [](const Sample& sample) {
           return std::holds_alternative<calibrate::GemmSample>(sample.shape) ||
                  std::holds_alternative<calibrate::AttentionSample>(sample.shape);
         });
}

// Products and attention on the kernels of a relative are fitted to what these are there.
template <class Shape>
std::vector<Sample> taken(std::vector<Sample>& samples) {
  const auto is_one = [](const Sample& sample) {
    return std::holds_alternative<Shape>(sample.shape);
  };
  std::vector<Sample> found;
  std::copy_if(samples.begin(), samples.end(), std::back_inserter(found), is_one);
  std::erase_if(samples, is_one);
  return found;
}

struct OnRelative {
  std::vector<Sample> products;
  std::vector<Sample> attention;
};

OnRelative taken_by_relative(const FitCommandOptions& options, std::vector<Sample>& samples) {
  if (options.kernels_from.empty()) {
    return {};
  }
  return {taken<calibrate::GemmSample>(samples), taken<calibrate::AttentionSample>(samples)};
}

// The remark on what is the relative's.
std::string take_kernels(const FitCommandOptions& options, const topologies::Gpu& gpu,
                         const OnRelative& samples, const std::string& source, KernelFit& fit) {
  const Profile from = costmodel::load_profile(options.kernels_from, gpu);
  const bool is_itself = from.name == gpu.name;  // its formulas move under its own sets
  if (!is_itself) {
    calibrate::transfer_kernels(from, fit.profile);
  }
  calibrate::fit_relative_gemm(gpu, samples.products, source, options.seed, fit);
  calibrate::fit_relative_attention(gpu, samples.attention, source, options.seed, fit);
  return is_itself ? from.name
                   : fmt::format("{} (--kernels-from), spreads {} times wider", from.name,
                                 costmodel::kSpreadWidening);
}

void add_messages(const FitSamples& samples, KernelFit& fit) {
  calibrate::SendReceiveFit own =
      calibrate::fit_send_receive(samples.collectives.peers, fit.profile);
  fit.profile = std::move(own.profile);
  if (own.is_moved) {
    fit.sections.insert("send_receive");
  }
  fit.remarks.insert(fit.remarks.end(), own.remarks.begin(), own.remarks.end());
  fit.left_out.insert(fit.left_out.end(), own.left_out.begin(), own.left_out.end());
}

void add_collectives(const FitSamples& samples, KernelFit& fit) {
  if (samples.collectives.logs.empty()) {
    return;
  }
  calibrate::OwnCollectives own =
      calibrate::fit_own_collectives(samples.collectives.logs, fit.profile);
  fit.profile = std::move(own.profile);
  for (calibrate::LeftOut& point : own.left_out) {
    point.kernel = "collectives " + point.kernel;
    fit.left_out.push_back(std::move(point));
  }
}

// With `relative` set to the remark on what is the relative's, where one gives kernels.
KernelFit fit_all(const FitCommandOptions& options, const topologies::Gpu& gpu, const Profile& base,
                  FitSamples& samples, std::string& relative) {
  const std::string source = source_text(options, samples);
  const OnRelative on_relative = taken_by_relative(options, samples.wanted);
  KernelFit fit;
  fit.profile = base;
  if (!samples.wanted.empty()) {
    fit = calibrate::fit_kernels(gpu, base, samples.wanted, source, options.seed);
  }
  add_messages(samples, fit);
  add_collectives(samples, fit);
  if (options.kernels_from.empty() && fit.left_out.empty() && fit.sections.empty() &&
      may_be_unused(samples)) {
    bad_input("calibrate fit", "nothing can be fitted to the samples of the files",
              fmt::format("{}", fmt::join(fit.remarks, "; ")));
  }
  set_sources(samples, fit, source, base, fit.profile);
  if (!options.kernels_from.empty()) {
    relative = take_kernels(options, gpu, on_relative, source, fit);
  }
  widen(fit.profile, base, gpu.name);
  fit.profile.name = gpu.name;
  fit.profile.calibrated = samples.measured_here;
  fit.profile.power.reference_peak = {};  // those of the GPU file
  return fit;
}

void write_fit(const FitCommandOptions& options, const topologies::Gpu& gpu, KernelFit& fit) {
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
}

int run_fit(const FitCommandOptions& options) {
  const topologies::Gpu gpu = topologies::load_gpu(options.gpu);
  std::vector<std::string> inputs = options.files;
  inputs.insert(inputs.end(), {options.base, options.kernels_from});
  check_outputs({{"--output", options.output},
                 {"--sets", options.sets},
                 {"--plot", options.plot},
                 json_path(options.common)},
                inputs);
  const Profile base = costmodel::load_profile(options.base, gpu);
  FitSamples samples = read_fit_samples(options, gpu);
  for (auto* logs : {&samples.collectives.logs, &samples.collectives.peers}) {
    note_all(calibrate::drop_impossible(*logs, base, options.partial), options.common);
  }
  std::string relative;
  KernelFit fit = fit_all(options, gpu, base, samples, relative);
  write_fit(options, gpu, fit);
  std::vector<std::string> notes = fit.remarks;
  for (const std::string& line : left_out(samples)) {
    notes.push_back(line);
  }
  for (const std::string& line : refusals(samples, fit, base, relative)) {
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
  command.add_option("--fabric", options->fabric,
                     "the network between nodes, in words, of logs that name none");
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
