// SPDX-License-Identifier: Apache-2.0
// Foreign files -> samples. One registered reader a format in calibrate/readers/; which one a file
// needs is told by its first bytes, or by the user. Readers are total: any input gives samples or
// one Error that names file and line (or JSON pointer, or table and row), in time linear in the
// file. What a file holds beyond samples (kernels of unknown work) or what was left out is said in
// the Reading, never dropped silently.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibrate/samples.hpp"

namespace orrery::calibrate {

struct ReadOptions {
  // Use what can be read of a damaged file: what was wrong becomes a remark instead of an Error.
  bool partial = false;
  std::string device;  // for tables that do not name theirs
};

// A kernel whose shape the file does not state: of no use to a fit, of some to a person.
struct NamedDuration {
  std::string name;
  std::int64_t count = 0;
  Seconds total;
  Seconds median;  // of at most 4,096 launches
};

struct Reading {
  std::vector<SampleFile> files;       // one for each device, fabric and software found
  std::vector<NamedDuration> kernels;  // longest total first
  std::vector<std::string> remarks;    // what was left out and why
};

// The name of a file and its first bytes (unpacked when it is gzip'ed).
struct FileHead {
  std::string name;
  std::string text;
  std::string damage = {};  // of a gzip'ed file within these bytes; "": none
};

struct SampleReader {
  std::string_view name;  // "nccl-tests", the value of --format
  std::string_view what;
  std::string_view columns = {};  // "m,n,k,time_us": those of a table that files must have
  bool (*recognises)(const FileHead& head) = nullptr;  // null: by the columns alone
  Reading (*read)(const std::string& path, const ReadOptions& options);
};

std::span<const SampleReader* const> reader_table();
const SampleReader& find_reader(const std::string& name);    // Error with the nearest name
const SampleReader& detect_reader(const std::string& path);  // Error that lists what is known
FileHead read_head(const std::string& path);

// `format` is a name of the table; "" goes by content.
Reading read_foreign(const std::string& path, const std::string& format,
                     const ReadOptions& options);

}  // namespace orrery::calibrate
