// SPDX-License-Identifier: Apache-2.0
// What was measured: one document of samples (JSON, schema "orrery-samples", version 1), a header
// that says on what machine and a flat list with one line each. Every importer (our own
// micro-benchmarks, NCCL runs, foreign tables) ends in this form and every fit starts from it.
//
// Units: seconds, bytes. Shapes follow BLAS and the conventions of nccl-tests. Reading is strict:
// unknown keys, another version, times that are not positive and finite, quartiles out of order are
// Errors that name file and JSON pointer. Writing and reading back gives an equal document.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "calibrate/sample_shapes.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// Everything may be unknown (empty, 0) but the device.
struct SampleHeader {
  std::string device = {};  // as the driver or the source names it
  std::string gpu = {};     // name in topologies/gpus
  std::string node = {};    // name in topologies/nodes, of collectives
  std::string fabric = {};  // between nodes, in words
  std::string driver = {};
  std::string cuda = {};
  std::vector<std::pair<std::string, std::string>> libraries = {};  // name, version
  double sm_clock_mhz = 0;                                          // while measuring
  double max_sm_clock_mhz = 0;
  double memory_clock_mhz = 0;
  double power_limit_w = 0;
  double temperature_c = 0;  // at the end
  std::string host = {};
  std::string date = {};  // ISO 8601
  std::string command = {};
  std::vector<std::string> notes = {};
  bool operator==(const SampleHeader&) const = default;
};

struct SampleFile {
  SampleHeader header = {};
  std::vector<Sample> samples = {};
  bool operator==(const SampleFile&) const = default;
};

std::string_view to_text(GemmLayout layout);        // "tn"
std::string_view to_text(CopyDirection direction);  // "h2d"
std::string_view kind_text(const Shape& shape);     // "gemm", "attention", "memory", ...

// With `faults`, samples that are not sound are left out and what is wrong with them is put there.
SampleFile read_samples(const Json& document, const std::string& name,
                        std::vector<std::string>* faults = nullptr);
std::string sample_line(const Sample& sample);
// Samples are written one a line, so that files compare and merge by line.
std::string sample_text(const SampleFile& file);

}  // namespace orrery::calibrate
