// SPDX-License-Identifier: Apache-2.0
#include "calibrate/byte_stream.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"

namespace orrery::calibrate {
namespace {

constexpr unsigned kBufferBytes = 1U << 18;
constexpr std::string_view kGzipMagic = "\x1F\x8B";

}  // namespace

class ByteStream::Buffer : public std::streambuf {
 public:
  explicit Buffer(const std::string& path) : path_(path), bytes_(kBufferBytes) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) {
      fail(std::strerror(errno));
    }
    if (S_ISDIR(status.st_mode)) {
      fail("is a folder, not a file");
    }
    file_ = gzopen(path.c_str(), "rb");
    if (file_ == nullptr) {
      fail(std::strerror(errno));
    }
    gzbuffer(file_, kBufferBytes);
  }
  ~Buffer() override { gzclose(file_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::int64_t position() const { return gzoffset(file_); }

 protected:
  int_type underflow() override {
    const int count = gzread(file_, bytes_.data(), kBufferBytes);
    if (count <= 0) {
      int code = Z_OK;
      const char* message = gzerror(file_, &code);
      if (count < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        bad_input(path_, code == Z_BUF_ERROR ? "the gzip file is cut off" : message,
                  "copy the file again");
      }
      return traits_type::eof();
    }
    const std::string_view text(bytes_.data(), static_cast<std::size_t>(count));
    const bool marked = at_start_ && text.starts_with(kByteOrderMark);
    at_start_ = false;
    setg(bytes_.data(), bytes_.data() + (marked ? kByteOrderMark.size() : 0),
         bytes_.data() + count);
    return gptr() == egptr() ? underflow() : traits_type::to_int_type(*gptr());
  }

 private:
  [[noreturn]] void fail(const char* message) const {
    throw Error(ErrorKind::InputOutput, path_, message);
  }

  std::string path_;
  std::vector<char> bytes_;
  bool at_start_ = true;
  gzFile file_ = nullptr;
};

ByteStream::ByteStream(const std::string& path)
    : std::istream(nullptr), buffer_(std::make_unique<Buffer>(path)) {
  rdbuf(buffer_.get());
  exceptions(std::ios::badbit);  // an Error of the buffer reaches the caller as it is
}

ByteStream::~ByteStream() = default;

std::int64_t ByteStream::position() const { return buffer_->position(); }

std::string read_unpacked(const std::string& path, std::int64_t max_bytes) {
  std::string text = read_file(path, max_bytes);
  if (!text.starts_with(kGzipMagic)) {
    return text;
  }
  text.clear();
  ByteStream stream(path);
  std::vector<char> part(kBufferBytes);
  while (stream.read(part.data(), static_cast<std::streamsize>(part.size())) ||
         stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
    if (static_cast<std::int64_t>(text.size()) > max_bytes) {
      bad_input(path, "the file is too large unpacked", fmt::format("at most {} bytes", max_bytes));
    }
  }
  return text;
}

}  // namespace orrery::calibrate
