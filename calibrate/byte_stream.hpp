// SPDX-License-Identifier: Apache-2.0
// A file as a stream of bytes, unpacked on the way when it is gzip'ed and without a byte order
// mark: traces of gigabytes are read in constant memory. Errors of reading (a folder, no
// permission) are thrown by the stream as Error naming the file; it ends where a gzip member is cut
// off or damaged.
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
  // Why it ended before the end of the file; "": it did not.
  const std::string& damage() const;

 private:
  class Buffer;
  std::unique_ptr<Buffer> buffer_;
};

struct UnpackedText {
  std::string text;
  std::string damage;  // of the gzip file, behind the text; "": none
};

// The whole file, unpacked when it is gzip'ed, without a byte order mark, up to where a gzip'ed one
// is cut off or damaged. Error(BadInput) when larger than max_bytes (unpacked); else as read_file.
UnpackedText read_sound_part(const std::string& path, std::int64_t max_bytes);

}  // namespace orrery::calibrate
