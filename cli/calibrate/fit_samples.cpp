// SPDX-License-Identifier: Apache-2.0
#include "cli/calibrate/fit_samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <variant>

#include "base/error.hpp"
#include "base/text.hpp"
#include "calibrate/ceilings.hpp"
#include "calibrate/copies.hpp"
#include "calibrate/gpu_names.hpp"
#include "calibrate/reader.hpp"

namespace orrery::cli {
namespace {

using calibrate::Sample;

// "3 of all-reduce beside a GEMM, 2 of all-to-all beside a GEMM"
std::string counts_text(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", count, printable(name, 60));
  }
  return text;
}

// Samples of one file and of a GPU that is asked for.
void take(const calibrate::SampleFile& file, const std::string& path, const std::string& fabric,
          FitSamples& samples) {
  calibrate::SampleFile collectives{file.header, {}};
  if (collectives.header.fabric.empty()) {
    collectives.header.fabric = fabric;
  }
  for (const Sample& sample : file.samples) {
    const auto* collective = std::get_if<calibrate::CollectiveSample>(&sample.shape);
    if (collective != nullptr && collective->beside) {
      ++samples.unfitted[fmt::format("{} beside a GEMM", sim::to_text(collective->kind))];
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

std::string unshaped_text(const std::string& path, std::size_t kernels) {
  return fmt::format(
      "{}: left out {} of unknown shapes (PyTorch records them with "
      "record_shapes=True)",
      path, counted(static_cast<std::int64_t>(kernels), "kernel"));
}

void sort_out(calibrate::SampleFile& file, const std::string& path,
              const std::vector<std::string>& names, const FitCommandOptions& options,
              FitSamples& samples) {
  const calibrate::SampleHeader& header = file.header;
  const std::string name = header.gpu.empty() ? calibrate::gpu_of(header.device) : header.gpu;
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    samples.others[name.empty() ? header.device : name] += static_cast<int>(file.samples.size());
    return;
  }
  note_all(calibrate::drop_impossible(file, topologies::load_gpu(name), path, options.partial),
           options.common);
  take(file, path, options.fabric, samples);
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

}  // namespace

std::vector<std::string> left_out(const FitSamples& samples) {
  std::vector<std::string> lines;
  if (!samples.others.empty()) {
    std::string unknown;
    const std::vector<std::string> known = topologies::gpu_names();
    for (const auto& [name, count] : samples.others) {
      const std::string meant = misspelt_name(name, known);
      const bool listed = std::find(known.begin(), known.end(), name) != known.end();
      unknown += listed || meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant);
    }
    lines.push_back(fmt::format("samples of other GPUs left out (--also counts them): {}{}",
                                counts_text(samples.others), unknown));
  }
  if (!samples.unfitted.empty()) {
    lines.push_back(fmt::format("samples of kinds that are not fitted left out: {}",
                                counts_text(samples.unfitted)));
  }
  lines.insert(lines.end(), samples.collectives.remarks.begin(), samples.collectives.remarks.end());
  return lines;
}

FitSamples read_fit_samples(const FitCommandOptions& options, const topologies::Gpu& gpu) {
  if (options.files.empty() && options.kernels_from.empty()) {
    bad_input("calibrate fit", "nothing to fit: no FILE and no --kernels-from",
              "give sample files, kernel tables, logs or traces");
  }
  std::vector<std::string> names = {gpu.name};
  for (const std::string& also : options.also) {
    names.push_back(topologies::load_gpu(also).name);
  }
  FitSamples samples;
  calibrate::CopyFinder copies;
  for (const std::string& path : options.files) {
    std::optional<calibrate::Reading> reading = read_file(path, options, gpu);
    if (!reading) {
      samples.useless.push_back(path + ": nothing in it can be used");
      continue;
    }
    copies.drop_copies(path, *reading);
    if (!reading->kernels.empty()) {
      reading->remarks.push_back(unshaped_text(path, reading->kernels.size()));
    }
    note_all(reading->remarks, options.common);
    if (reading->files.empty() && !reading->remarks.empty()) {
      samples.useless.push_back(reading->remarks.front());
    }
    for (calibrate::SampleFile& file : reading->files) {
      sort_out(file, path, names, options, samples);
    }
  }
  samples.collectives = calibrate::collect_logs(samples.on_networks);
  if (samples.wanted.empty() && samples.collectives.logs.empty() &&
      samples.collectives.peers.empty() && !options.files.empty()) {
    std::vector<std::string> found = left_out(samples);
    found.insert(found.end(), samples.useless.begin(), samples.useless.end());
    bad_input("calibrate fit",
              fmt::format("no samples of kernels or collectives of {} in the files", gpu.name),
              found.empty()
                  ? "products, attention, memory-bound kernels, launches, copies and out-of-place "
                    "collectives of 1 KiB and above are fitted"
                  : fmt::format("{}", fmt::join(found, "; ")));
  }
  return samples;
}

}  // namespace orrery::cli
