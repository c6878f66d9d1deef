// SPDX-License-Identifier: Apache-2.0
// The input of `orrery calibrate fit`: every file read, the samples of the GPU that is asked for,
// and what was left out of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "calibrate/fit/collective_logs.hpp"
#include "calibrate/samples.hpp"
#include "cli/command/common.hpp"
#include "topologies/cluster.hpp"

namespace orrery::cli {

struct FitCommandOptions {
  std::vector<std::string> files;
  std::string gpu;
  std::vector<std::string> also;
  std::string fabric;
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

struct FitSamples {
  std::vector<calibrate::Sample> wanted;           // of kernels
  std::vector<calibrate::SampleFile> on_networks;  // of collectives
  calibrate::CollectiveLogs collectives;           // what they say, sorted
  std::map<std::string, int> used;                 // samples by file
  std::map<std::string, int> others;               // samples by device that is not asked for
  std::vector<std::string> useless;                // why files hold no samples
  std::map<std::string, int> unfitted;             // samples by kind that no section is fitted to
  bool measured_here = false;
};

// Error where there is nothing to fit.
FitSamples read_fit_samples(const FitCommandOptions& options, const topologies::Gpu& gpu);
// What the files hold beside what is fitted.
std::vector<std::string> left_out(const FitSamples& samples);

}  // namespace orrery::cli
