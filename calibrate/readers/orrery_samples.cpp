// SPDX-License-Identifier: Apache-2.0
// Our own sample document.
#include "base/files.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) {
  return head.text.find("\"orrery-samples\"") != std::string::npos;
}

Reading read(const std::string& path, const ReadOptions&) {
  Reading reading;
  reading.files.push_back(read_sample_file(path));
  return reading;
}

}  // namespace

extern const SampleReader reader_orrery_samples = {
    "orrery-samples", "samples written by orrery calibrate (JSON)", recognises, read};

}  // namespace orrery::calibrate
