// SPDX-License-Identifier: Apache-2.0
// A file as a stream of bytes, unpacked on the way when it is gzip'ed and without a byte order
// mark: traces of gigabytes are read in constant memory. Errors of reading (a cut-off or damaged
// gzip member, a folder, no permission) are thrown by the stream as Error naming the file.
#pragma once

#include <array>
#include <cstdint>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>

namespace orrery::calibrate {

class ByteStream : public std::istream {
 public:
  explicit ByteStream(const std::string& path);
  ~ByteStream() override;
  // Of the file as stored: for progress.
  std::int64_t position() const;

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
};

// The whole file, unpacked when it is gzip'ed, without a byte order mark. Error(BadInput) when
// larger than max_bytes (unpacked); else as read_file.
std::string read_unpacked(const std::string& path, std::int64_t max_bytes);

}  // namespace orrery::calibrate
