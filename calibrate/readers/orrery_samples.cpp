// SPDX-License-Identifier: Apache-2.0
// Our own sample document.
#include "calibrate/copies.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

bool recognises(const FileHead& head) {
  return head.text.find("\"orrery-samples\"") != std::string::npos;
}

Reading read(const std::string& path, const ReadOptions& options) {
  ReadingBuilder builder(path, options);
  std::vector<std::string> faults;
  const Json document = builder.json("samples");
  SampleFile file = read_samples(document, path, options.partial ? &faults : nullptr);
  for (std::string& fault : faults) {
    builder.remark(std::move(fault));
  }
  for (std::size_t repeated = drop_repeated(file); repeated > 0; --repeated) {
    builder.left_out("sample that repeats an earlier one");
  }
  for (Sample& sample : file.samples) {
    builder.add(file.header, std::move(sample));
  }
  return builder.finish();
}

}  // namespace

extern const SampleReader reader_orrery_samples = {
    .name = "orrery-samples",
    .what = "samples written by orrery calibrate (JSON)",
    .recognises = recognises,
    .read = read,
};

}  // namespace orrery::calibrate
