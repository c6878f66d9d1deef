// SPDX-License-Identifier: Apache-2.0
// What every reader builds its Reading with: samples go to the file of their header, faults are
// Errors or, with --partial, remarks, and what a format holds that no fit uses is counted by
// reason. Also the checks of numbers that all formats share.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/json.hpp"
#include "calibrate/reader.hpp"

namespace orrery::calibrate {

class ReadingBuilder {
 public:
  ReadingBuilder(const std::string& path, const ReadOptions& options);

  const std::string& path() const { return path_; }
  const ReadOptions& options() const { return options_; }
  // Of what a file holds that names no GPU; "" when neither its name nor the user does.
  const std::string& device() const { return device_; }
  // "file:line" without the folder: what a sample says of where it comes from.
  std::string source(std::int64_t line) const;
  std::string where(std::int64_t line) const;  // with the folder, for messages
  // Of the whole file, unpacked; a fault where a gzip'ed one is damaged.
  std::string text();
  // The text as JSON; with `partial` that of a document that is cut off or damaged up to the last
  // whole object before that in a list of this name.
  Json json(std::string_view list);

  void add(const SampleHeader& header, Sample sample);
  // Reads a part of the file; with `partial` an Error of it is a fault and the other parts are
  // read.
  template <class Action>
  void part(const Action& action) {
    try {
      action();
    } catch (const Error& error) {
      if (!options_.partial) {
        throw;
      }
      damaged_ = true;
      remark(error.what());
    }
  }
  // Error, or a remark when the user wants what can be had.
  void fault(std::string_view where, std::string_view message, std::string_view hint = {});
  void left_out(const std::string& reason);  // "17 x reason" among the remarks
  void remark(std::string text);
  void add_kernel(NamedDuration kernel) { reading_.kernels.push_back(std::move(kernel)); }

  // Error when nothing at all was found; what is left out alone makes a Reading of remarks.
  Reading finish();

 private:
  std::string path_;
  std::string file_name_;
  ReadOptions options_;
  std::string device_;
  Reading reading_;
  std::size_t last_ = 0;  // file of the sample before: neighbours mostly share it
  std::map<std::string, std::int64_t> left_out_;
  std::int64_t unlisted_ = 0;
  bool damaged_ = false;
};

// A measured time: positive and finite, below 10^5 s; else a fault (false).
bool check_time(ReadingBuilder& builder, std::string_view where, double seconds);
Timing single_timing(Seconds time, std::int64_t repetitions = 1);
// Median and quartiles of values that need not be sorted; at least one.
Timing timing_of(std::vector<double> seconds);

// "bf16", "torch.bfloat16", "c10::BFloat16", "half", "fp8_e4m3", ... ; nullopt when it is none of
// ours.
std::optional<DType> foreign_dtype(std::string_view text);
// The plain name of a collective without what libraries and tests add: "all_reduce_perf",
// "ncclAllReduce" and "allreduce_coalesced" are "allreduce".
std::string collective_name(std::string_view text);
// "all_reduce", "allreduce", "alltoall", "sendrecv", "_reduce_scatter_base", ...; None else.
sim::CommKind foreign_collective(std::string_view text);

}  // namespace orrery::calibrate
