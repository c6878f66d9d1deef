// SPDX-License-Identifier: Apache-2.0
// Numbers and texts as bytes, little-endian and without padding, so that what one machine wrote
// another one reads: for checkpoints and messages between processes. Reading is checked: beyond the
// end, or with a text longer than what is left, it is an Error that names the source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace orrery {

class ByteWriter {
 public:
  void u8(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void u16(std::uint16_t value) { put(value, 2); }
  void u32(std::uint32_t value) { put(value, 4); }
  void u64(std::uint64_t value) { put(value, 8); }
  void real(double value);  // every bit of it
  void text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  void put(std::uint64_t value, int size);
  std::string bytes_;
};

class ByteReader {
 public:
  // Refers to the bytes; `name` is what messages cite.
  ByteReader(std::string_view bytes, std::string name) : left_(bytes), name_(std::move(name)) {}
  std::uint8_t u8() { return static_cast<std::uint8_t>(get(1)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(get(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(get(4)); }
  std::uint64_t u64() { return get(8); }
  double real();
  std::string text();
  // A number of things of which each takes at least `size` bytes of what is left.
  std::size_t count(std::size_t size);
  std::size_t left() const { return left_.size(); }
  void end() const;  // Error where something is left
  [[noreturn]] void fail(std::string_view message) const;

 private:
  std::uint64_t get(std::size_t size);
  std::string_view left_;
  std::string name_;
};

// FNV-1a, 64 bits: tells texts apart, no protection against intent.
std::uint64_t hash_of(std::string_view bytes);

}  // namespace orrery
