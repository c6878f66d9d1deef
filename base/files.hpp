// SPDX-License-Identifier: Apache-2.0
// Files: bounded reading, atomic writing (temporary file in the same folder, fsync, rename), and
// where the data files of the program are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {

// With which some editors and spreadsheets begin a text in UTF-8.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// The whole file, without a byte order mark; Error(InputOutput) when unreadable, Error(BadInput)
// when larger than max_bytes.
// "-" reads standard input.
std::string read_file(const std::string& path, std::int64_t max_bytes);

// Old or new complete content, never half: writes path.tmp-<pid>-<n>, flushes, renames; removes the
// temporary file on failure. Links are followed; devices and pipes are written directly. "-" writes
// standard output. Error(InputOutput) on failure.
void write_file_atomically(const std::string& path, std::string_view content);

// Creates the folder and its parents.
void create_folders(const std::string& path);

// A data file or folder of the project ("topologies/gpus"), searched in $ORRERY_DATA, beside the
// executable's install prefix (share/orrery), and in the source tree of the build. Throws Error
// naming the places tried.
std::string data_path(std::string_view relative);

// Whether there is one in any of those places.
bool is_data(std::string_view relative);

// Names without extension of the files `*.json` of a data folder, sorted.
std::vector<std::string> data_names(std::string_view folder);

}  // namespace orrery
