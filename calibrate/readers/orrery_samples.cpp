// SPDX-License-Identifier: Apache-2.0
// Our own sample document.
#include <fmt/format.h>

#include "calibrate/copies.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) {
  return head.text.find("\"orrery-samples\"") != std::string::npos;
}

Reading read(const std::string& path, const ReadOptions&) {
  Reading reading;
  SampleFile& file = reading.files.emplace_back(read_sample_file(path));
  if (const std::size_t repeated = drop_repeated(file); repeated > 0) {
    reading.remarks.push_back(
        fmt::format("{}: left out {} x sample that repeats an earlier one", path, repeated));
  }
  return reading;
}

}  // namespace

extern const SampleReader reader_orrery_samples = {
    "orrery-samples", "samples written by orrery calibrate (JSON)", recognises, read};

}  // namespace orrery::calibrate
