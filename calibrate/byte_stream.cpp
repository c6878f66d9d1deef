// SPDX-License-Identifier: Apache-2.0
#include "calibrate/byte_stream.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/files.hpp"

namespace orrery::calibrate {
namespace {

constexpr unsigned kBufferBytes = 1U << 18;
constexpr std::string_view kGzipMagic = "\x1F\x8B";

// `what` zlib says of a damaged member.
std::string damage_of(int code, std::string_view what) {
  return std::string(code == Z_BUF_ERROR ? "the gzip file is cut off" : what);
}

}  // namespace

class ByteStream::Buffer : public std::streambuf {
 public:
  explicit Buffer(const std::string& path) : path_(path), bytes_(kBufferBytes) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) {
      fail(errno);
    }
    if (S_ISDIR(status.st_mode)) {
      fail(EISDIR);
    }
    file_ = gzopen(path.c_str(), "rb");
    if (file_ == nullptr) {
      fail(errno);
    }
    gzbuffer(file_, kBufferBytes);
  }
  ~Buffer() override { gzclose(file_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::int64_t position() const { return gzoffset(file_); }
  const std::string& damage() const { return damage_; }

 protected:
  int_type underflow() override {
    const int count = gzread(file_, bytes_.data(), kBufferBytes);
    if (count <= 0) {
      int code = Z_OK;
      const char* message = gzerror(file_, &code);
      if (count < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        std::string_view what = message;
        if (what.starts_with(path_ + ": ")) {  // zlib names the file, too
          what.remove_prefix(path_.size() + 2);
        }
        damage_ = damage_of(code, what);
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
  [[noreturn]] void fail(int error_number) const {
    throw Error(ErrorKind::InputOutput, path_,
                fmt::format("cannot read: {}", std::strerror(error_number)));
  }

  std::string path_;
  std::string damage_;
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

const std::string& ByteStream::damage() const { return buffer_->damage(); }

namespace {

// All members of a gzip'ed file, one behind the other, up to where one is damaged.
UnpackedText unpacked(std::string packed, const std::string& path, std::int64_t max_bytes) {
  z_stream stream = {};
  constexpr int kGzip = 15 + 16;  // the largest window, with gzip's header
  ORRERY_CHECK(inflateInit2(&stream, kGzip) == Z_OK, "zlib");
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  std::vector<char> part(kBufferBytes);
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = kBufferBytes;
    const int code = inflate(&stream, Z_NO_FLUSH);
    text.append(part.data(), kBufferBytes - stream.avail_out);
    if (static_cast<std::int64_t>(text.size()) > max_bytes) {
      bad_input(path, "the file is too large unpacked", fmt::format("at most {} bytes", max_bytes));
    }
    if (code == Z_STREAM_END && stream.avail_in == 0) {
      return {std::move(text), ""};
    }
    if (code == Z_STREAM_END) {
      inflateReset(&stream);
    } else if (code != Z_OK) {
      return {std::move(text),
              damage_of(code, stream.msg == nullptr ? "the gzip file is damaged" : stream.msg)};
    }
  }
}

}  // namespace

UnpackedText read_sound_part(const std::string& path, std::int64_t max_bytes) {
  std::string bytes = read_file(path, max_bytes);
  if (!bytes.starts_with(kGzipMagic)) {
    return {std::move(bytes), ""};
  }
  UnpackedText unpacked_file = unpacked(std::move(bytes), path, max_bytes);
  if (unpacked_file.text.starts_with(kByteOrderMark)) {
    unpacked_file.text.erase(0, kByteOrderMark.size());
  }
  return unpacked_file;
}

}  // namespace orrery::calibrate
