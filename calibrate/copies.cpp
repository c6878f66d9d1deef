// SPDX-License-Identifier: Apache-2.0
#include "calibrate/copies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace orrery::calibrate {
namespace {

// What was measured, on what and how long it took; not where it was written down.
std::string text_of(const SampleHeader& header, Sample sample) {
  sample.source.clear();
  return (header.gpu.empty() ? header.device : header.gpu) + '\n' + sample_line(sample);
}

}  // namespace

void CopyFinder::drop_copies(const std::string& path, Reading& reading) {
  std::vector<std::size_t> shared(earlier_.size(), 0);
  std::vector<std::vector<std::string>> texts;
  std::size_t total = 0;
  for (const SampleFile& file : reading.files) {
    std::vector<std::string>& of_file = texts.emplace_back();
    for (const Sample& sample : file.samples) {
      of_file.push_back(text_of(file.header, sample));
      const auto found = first_.find(of_file.back());
      if (found != first_.end()) {
        ++shared[found->second];
      }
    }
    total += of_file.size();
  }
  const auto is_copied = [&](std::size_t index) {
    return shared[index] > 0 && 2 * shared[index] >= std::min(total, earlier_[index].samples);
  };
  for (std::size_t file = 0; file < texts.size(); ++file) {
    std::size_t at = 0;
    std::erase_if(reading.files[file].samples, [&](const Sample&) {
      const auto found = first_.find(texts[file][at++]);
      return found != first_.end() && is_copied(found->second);
    });
  }
  for (std::size_t index = 0; index < earlier_.size(); ++index) {
    if (is_copied(index)) {
      reading.remarks.push_back(
          fmt::format("{}: {} of its {} samples are those of {}, too: counted once", path,
                      shared[index], total, earlier_[index].path));
    }
  }
  for (std::vector<std::string>& of_file : texts) {
    for (std::string& text : of_file) {
      first_.emplace(std::move(text), earlier_.size());
    }
  }
  earlier_.push_back({path, total});
}

std::size_t drop_repeated(SampleFile& file) {
  std::unordered_set<std::string> seen;
  return std::erase_if(
      file.samples, [&](const Sample& sample) { return !seen.insert(sample_line(sample)).second; });
}

}  // namespace orrery::calibrate
