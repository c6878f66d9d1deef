// SPDX-License-Identifier: Apache-2.0
#include "calibrate/reading_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "calibrate/byte_stream.hpp"
#include "calibrate/cut_json.hpp"
#include "calibrate/gpu_names.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kMaxRemarks = 100;
constexpr double kLongestTime = 1e5;

}  // namespace

ReadingBuilder::ReadingBuilder(const std::string& path, const ReadOptions& options)
    : path_(path),
      file_name_(printable(std::filesystem::path(path).filename().string())),
      options_(options),
      device_(device_of_file(path, options.device)) {}

std::string ReadingBuilder::source(std::int64_t line) const {
  return fmt::format("{}:{}", file_name_, line);
}

std::string ReadingBuilder::where(std::int64_t line) const {
  return fmt::format("{}:{}", path_, line);
}

std::string ReadingBuilder::text() {
  UnpackedText file = read_sound_part(path_, limits::kMaxTableFileBytes);
  if (!file.damage.empty()) {
    fault(path_, file.damage, "copy the file again; --partial uses what comes before");
  }
  return std::move(file.text);
}

Json ReadingBuilder::json(std::string_view list) {
  const std::string whole = text();
  if (!options_.partial) {
    return parse_json(whole, path_);
  }
  CutJson read = parse_up_to_damage(whole, path_, list);
  if (!read.fault.empty()) {
    damaged_ = true;
    remark(std::move(read.fault));
  }
  return std::move(read.document);
}

void ReadingBuilder::add(const SampleHeader& header, Sample sample) {
  std::vector<SampleFile>& files = reading_.files;
  if (last_ >= files.size() || files[last_].header != header) {
    const auto found = std::find_if(files.begin(), files.end(),
                                    [&](const SampleFile& file) { return file.header == header; });
    last_ = static_cast<std::size_t>(found - files.begin());
    if (found == files.end()) {
      files.push_back({header, {}});
    }
  }
  files[last_].samples.push_back(std::move(sample));
}

void ReadingBuilder::fault(std::string_view where, std::string_view message,
                           std::string_view hint) {
  if (!options_.partial) {
    bad_input(where, message, hint.empty() ? "--partial uses the rest of the file" : hint);
  }
  damaged_ = true;
  remark(fmt::format("{}: {}", where, message));
}

void ReadingBuilder::left_out(const std::string& reason) {
  const std::string shown = printable(reason);
  if (left_out_.size() < kMaxRemarks || left_out_.contains(shown)) {
    ++left_out_[shown];
  } else {
    ++unlisted_;
  }
}

void ReadingBuilder::remark(std::string text) {
  if (reading_.remarks.size() < kMaxRemarks) {
    reading_.remarks.push_back(printable(text, 400));
  } else {
    ++unlisted_;
  }
}

Reading ReadingBuilder::finish() {
  const bool empty = reading_.files.empty() && reading_.kernels.empty();
  if (empty && (damaged_ || left_out_.empty())) {
    bad_input(path_, damaged_ ? "nothing in it can be used" : "holds no samples",
              reading_.remarks.empty() ? "" : reading_.remarks.front());
  }
  for (const auto& [reason, count] : left_out_) {
    reading_.remarks.push_back(fmt::format("{}: left out {} x {}", file_name_, count, reason));
  }
  if (unlisted_ > 0) {
    reading_.remarks.push_back(fmt::format("{}: and {} more remarks", file_name_, unlisted_));
  }
  std::stable_sort(
      reading_.kernels.begin(), reading_.kernels.end(),
      [](const NamedDuration& a, const NamedDuration& b) { return a.total > b.total; });
  return std::move(reading_);
}

bool check_time(ReadingBuilder& builder, std::string_view where, double seconds) {
  if (std::isfinite(seconds) && seconds > 0 && seconds < kLongestTime) {
    return true;
  }
  builder.fault(where, fmt::format("a time of {:g} s is not possible", seconds));
  return false;
}

Timing single_timing(Seconds time, std::int64_t repetitions) {
  return {.median = time, .p25 = time, .p75 = time, .repetitions = repetitions};
}

Timing timing_of(std::vector<double> seconds) {
  ORRERY_CHECK(!seconds.empty(), "the times of nothing");
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    const double position = share * static_cast<double>(seconds.size() - 1);
    const auto below = static_cast<std::size_t>(position);
    const std::size_t above = std::min(below + 1, seconds.size() - 1);
    const double rest = position - static_cast<double>(below);
    return Seconds(seconds[below] + rest * (seconds[above] - seconds[below]));
  };
  return {.median = at(0.5),
          .p25 = at(0.25),
          .p75 = at(0.75),
          .repetitions = static_cast<std::int64_t>(seconds.size())};
}

std::optional<DType> foreign_dtype(std::string_view text) {
  std::string name = letters_and_digits(text);
  for (const std::string_view prefix : {"torch", "c10", "at"}) {
    if (name.starts_with(prefix)) {
      name.erase(0, prefix.size());
    }
  }
  struct Entry {
    std::string_view name;
    DType dtype;
  };
  constexpr std::array<Entry, 24> kNames = {
      {{"bf16", DType::Bf16},      {"bfloat16", DType::Bf16},  {"fp16", DType::Fp16},
       {"float16", DType::Fp16},   {"half", DType::Fp16},      {"f16", DType::Fp16},
       {"fp32", DType::Fp32},      {"float32", DType::Fp32},   {"float", DType::Fp32},
       {"f32", DType::Fp32},       {"tf32", DType::Tf32},      {"tfloat32", DType::Tf32},
       {"fp8", DType::Fp8},        {"fp8e4m3", DType::Fp8},    {"fp8e5m2", DType::Fp8},
       {"float8e4m3", DType::Fp8}, {"float8e5m2", DType::Fp8}, {"float8e4m3fn", DType::Fp8},
       {"f8e4m3", DType::Fp8},     {"f8e5m2", DType::Fp8},     {"e4m3", DType::Fp8},
       {"e4m3fn", DType::Fp8},     {"e5m2", DType::Fp8},       {"nvfp4", DType::Nvfp4}}};
  for (const Entry& entry : kNames) {
    if (entry.name == name) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

std::string collective_name(std::string_view text) {
  std::string name = letters_and_digits(text);
  for (const std::string_view library : {"nccl", "rccl"}) {
    if (name.starts_with(library)) {
      name.erase(0, library.size());
    }
  }
  for (const std::string_view ending : {"perf", "coalesced", "single", "tensor", "into", "base"}) {
    if (name.ends_with(ending)) {
      name.erase(name.size() - ending.size());
    }
  }
  return name;
}

sim::CommKind foreign_collective(std::string_view text) {
  const std::string name = collective_name(text);
  struct Entry {
    std::string_view name;
    sim::CommKind kind;
  };
  constexpr std::array<Entry, 11> kNames = {{{"allreduce", sim::CommKind::AllReduce},
                                             {"allgather", sim::CommKind::AllGather},
                                             {"reducescatter", sim::CommKind::ReduceScatter},
                                             {"alltoall", sim::CommKind::AllToAll},
                                             {"alltoallv", sim::CommKind::AllToAll},
                                             {"all2all", sim::CommKind::AllToAll},
                                             {"broadcast", sim::CommKind::Broadcast},
                                             {"bcast", sim::CommKind::Broadcast},
                                             {"sendrecv", sim::CommKind::SendReceive},
                                             {"p2p", sim::CommKind::SendReceive},
                                             {"sendreceive", sim::CommKind::SendReceive}}};
  for (const Entry& entry : kNames) {
    if (entry.name == name) {
      return entry.kind;
    }
  }
  return sim::CommKind::None;
}

}  // namespace orrery::calibrate
