// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_mesh.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

// A whole number of a text and where it stands.
struct Number {
  int value = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

bool is_letter_sign(char c) { return is_letter(c) || c == '.'; }

// "2x8" are two numbers, "fsdp2" and "2.4" none.
bool stands_alone(std::string_view text, const Number& number) {
  const std::size_t begin = number.begin;
  const std::size_t end = number.end;
  const bool factor =
      begin > 1 && text[begin - 1] == 'x' && (is_digit(text[begin - 2]) || text[begin - 2] == ' ');
  const bool times = end + 1 < text.size() && text[end] == 'x' &&
                     (is_digit(text[end + 1]) || text[end + 1] == ' ');
  const bool point = end + 1 == text.size() || (end < text.size() && text[end] == '.' &&
                                                text[std::min(end + 1, text.size() - 1)] == ' ');
  return (begin == 0 || factor || !is_letter_sign(text[begin - 1])) &&
         (end == text.size() || times || point || !is_letter_sign(text[end]));
}

std::vector<Number> numbers_of(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  std::vector<Number> numbers;
  for (std::size_t at = text.find_first_of(kDigits); at < text.size();
       at = text.find_first_of(kDigits, at)) {
    Number number{0, at, std::min(text.size(), text.find_first_not_of(kDigits, at))};
    const auto read = std::from_chars(text.data() + at, text.data() + number.end, number.value);
    at = number.end;
    if (read.ec == std::errc() && stands_alone(text, number)) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

enum class Part : std::uint8_t { Unsaid, Copies, Shards };

Part part_of(std::string_view word) {
  constexpr auto kCopies = std::to_array<std::string_view>({"replic", "copies", "times", "group"});
  const bool copies = std::any_of(kCopies.begin(), kCopies.end(),
                                  [word](std::string_view one) { return word.starts_with(one); });
  return word.starts_with("shard") ? Part::Shards : copies ? Part::Copies : Part::Unsaid;
}

// "8-way shard", "2 groups of ...", "2 shard groups".
Part part_behind(std::string_view text) {
  text = trim(text);
  if (text.starts_with("way")) {
    text = trim(text.substr(3));
  }
  return text.starts_with("shard group") ? Part::Copies : part_of(text);
}

// "sharded over 8", "replicate=2"; "groups of 8" counts what is in them.
Part part_before(std::string_view text) {
  constexpr std::size_t kNear = 3;
  const std::string plain = with_signs_as(text, "=:(),", ' ');
  std::vector<std::string_view> words = split(plain, ' ');
  std::erase(words, std::string_view());
  for (std::size_t back = 1; back <= std::min(kNear, words.size()); ++back) {
    const std::string_view word = words[words.size() - back];
    if (const Part part = part_of(word); part != Part::Unsaid && !word.starts_with("group")) {
      return part;
    }
  }
  return Part::Unsaid;
}

// What words say of two numbers: all of them before theirs ("replicate 2, shard 8") or behind it
// ("2-way replicate, 8-way shard").
std::pair<Part, Part> parts_said(std::string_view text, const Number& first, const Number& second,
                                 std::size_t begin) {
  const Part before = part_before(text.substr(begin, first.begin - begin));
  const Part behind = part_behind(text.substr(first.end));
  const Part between = part_before(text.substr(first.end, second.begin - first.end));
  const Part end = part_behind(text.substr(second.end));
  if (before == Part::Unsaid && behind != Part::Unsaid) {
    return {behind, end};
  }
  return {before, between == Part::Unsaid ? end : between};
}

// Which of two numbers beside each other shards; 0 where no word and no node tells. Where nothing
// but them names a mesh, words tell of both.
int shards_among(std::string_view text, const Number& first, const Number& second,
                 std::size_t begin, int of_node, bool named) {
  const auto [one, other] = parts_said(text, first, second, begin);
  if (!named && (one == other || one == Part::Unsaid || other == Part::Unsaid)) {
    return 0;
  }
  if (first.value == 1 || second.value == 1) {
    return std::max(first.value, second.value);
  }
  if (one != Part::Unsaid) {
    return one == Part::Shards ? first.value : second.value;
  }
  if (other != Part::Unsaid) {
    return other == Part::Shards ? second.value : first.value;
  }
  return second.value == of_node || first.value == of_node ? of_node : 0;
}

// "2x8", "2, 8".
bool is_notation(std::string_view between) {
  constexpr auto kSigns = std::to_array<std::string_view>({"x", ",", "*", "by"});
  return is_among(trim(between), kSigns);
}

// "Hybrid shard" is a name, not a word beside a number.
std::string with_short_names(std::string_view remark) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"hybrid sharding", "hybrid sharded", "hybrid shard", "fully sharded", "full shard"});
  std::string text(remark);
  for (const std::string_view name : kNames) {
    for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at)) {
      text.replace(at, name.size(), name.starts_with("hybrid") ? "hsdp" : "fsdp");
    }
  }
  return text;
}

std::optional<StatedMesh> mesh_in(std::string_view remark, std::int64_t ranks, int of_node) {
  constexpr auto kMeshes = std::to_array<std::string_view>({"hsdp", "device mesh", "mics"});
  constexpr auto kCopies = std::to_array<std::string_view>({"replic", "groups of", "cop"});
  constexpr auto kShards = std::to_array<std::string_view>({"shard"});
  constexpr auto kOthers =
      std::to_array<std::string_view>({"dataset", "checkpoint", "files", "storage", "data shard"});
  const std::string text = with_short_names(remark);
  if (says_any(text, kOthers)) {
    return std::nullopt;
  }
  const bool named = says_any(text, kMeshes);
  if (!named && !(says_any(text, kCopies) && says_any(text, kShards))) {
    return std::nullopt;
  }
  const std::vector<Number> numbers = numbers_of(text);
  bool unread = false;
  for (std::size_t at = 1; at < numbers.size(); ++at) {
    const Number& first = numbers[at - 1];
    const Number& second = numbers[at];
    const std::string_view between =
        std::string_view(text).substr(first.end, second.begin - first.end);
    const std::size_t begin = at > 1 ? numbers[at - 2].end : 0;
    const bool whole = std::int64_t{first.value} * second.value == ranks;
    const int shards = whole ? shards_among(text, first, second, begin, of_node, named) : 0;
    if (shards > 0) {
      return StatedMesh{shards, std::string(trim(remark))};
    }
    unread = unread || (named && is_notation(between));
  }
  return unread ? std::optional(StatedMesh{0, std::string(trim(remark))}) : std::nullopt;
}

}  // namespace

std::optional<StatedMesh> stated_mesh(std::string_view remarks, std::int64_t ranks, int of_node) {
  for (const std::string_view remark : split(remarks, ';')) {
    if (std::optional<StatedMesh> mesh = mesh_in(remark, ranks, of_node)) {
      return mesh;
    }
  }
  return std::nullopt;
}

}  // namespace orrery::studies
