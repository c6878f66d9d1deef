// SPDX-License-Identifier: Apache-2.0
#include "base/bytes.hpp"

#include <array>
#include <bit>

#include "base/error.hpp"

namespace orrery {

void ByteWriter::put(std::uint64_t value, int size) {
  std::array<char, 8> bytes{};
  for (char& byte : bytes) {
    byte = static_cast<char>(value & 0xff);
    value >>= 8;
  }
  bytes_.append(bytes.data(), static_cast<std::size_t>(size));
}

void ByteWriter::real(double value) { u64(std::bit_cast<std::uint64_t>(value)); }

void ByteWriter::text(std::string_view value) {
  u64(value.size());
  bytes_ += value;
}

std::uint64_t ByteReader::get(std::size_t size) {
  if (size > left_.size()) {
    fail("ends too early");
  }
  std::uint64_t value = 0;
  for (std::size_t byte = size; byte-- > 0;) {
    value = value << 8 | static_cast<std::uint8_t>(left_[byte]);
  }
  left_.remove_prefix(size);
  return value;
}

double ByteReader::real() { return std::bit_cast<double>(u64()); }

std::string ByteReader::text() {
  const std::size_t size = count(1);
  std::string value(left_.substr(0, size));
  left_.remove_prefix(size);
  return value;
}

std::size_t ByteReader::count(std::size_t size) {
  const std::uint64_t value = u64();
  if (value > left_.size() / size) {
    fail("ends too early");
  }
  return static_cast<std::size_t>(value);
}

void ByteReader::end() const {
  if (!left_.empty()) {
    fail("goes on after its end");
  }
}

void ByteReader::fail(std::string_view message) const { bad_input(name_, message); }

std::uint64_t hash_of(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<std::uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace orrery
