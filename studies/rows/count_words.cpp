// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/count_words.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"

namespace orrery::studies {
namespace {

constexpr auto kPer = std::to_array<std::string_view>({"per"});

// What scripts and papers call the counts of rows: "t=4" is of `tp`, "GBS 128" of `global_batch`.
struct CountColumn {
  std::string_view name;
  std::string_view called;  // beside other words that no column has
};
constexpr auto kCountColumns = std::to_array<CountColumn>({{"layers", "l"},
                                                           {"hidden", "h"},
                                                           {"heads", "a"},
                                                           {"kv_heads", "gqa"},
                                                           {"seq_len", "s"},
                                                           {"gpus", "n"},
                                                           {"gpus_per_node", ""},
                                                           {"experts", "e"},
                                                           {"top_k", "k"},
                                                           {"tp", "t"},
                                                           {"cp", "c"},
                                                           {"ep", "e"},
                                                           {"pp", "p"},
                                                           {"dp", "d"},
                                                           {"vpp", "vp"},
                                                           {"micro_batch", "mbs"},
                                                           {"num_microbatches", "m"},
                                                           {"global_batch", "gbs"}});

// Words behind a count that change what it counts, or how much.
bool changes_count(std::string_view word, std::string_view column) {
  constexpr std::string_view kWords =
      "k ki m mi g gi b t x thousand million billion trillion dozen percent node nodes server "
      "servers host hosts machines racks dgx hgx box boxes pod pods tray trays tokens tok toks "
      "token gb gib mb mib or and to of minus "
      "plus not no except than most least each pairs modules s ms us sec secs second seconds";
  const bool node = column == "gpus_per_node" && (word == "node" || word == "server");
  return !word.empty() && find_word(kWords, word) != kWords.npos && !node;
}

// "8 GPUs" is no width: nouns and the only columns that are counted in them.
bool counts_others(std::string_view word, std::string_view column) {
  constexpr auto kNouns = std::to_array<std::pair<std::string_view, std::string_view>>(
      {{"gpu gpus",
        "gpus gpus_per_node tp cp ep pp dp vpp micro_batch num_microbatches "
        "global_batch"},
       {"layer layers", "layers pp vpp"},
       {"head heads", "heads kv_heads"},
       {"expert experts", "experts top_k ep"}});
  return std::ranges::any_of(kNouns, [&](const auto& noun) {
    const std::vector<std::string_view> columns = split(noun.second, ' ');
    return !word.empty() && find_word(noun.first, word) != noun.first.npos &&
           std::ranges::find(columns, column) == columns.end();
  });
}

}  // namespace

std::string_view without_count_words(std::string_view cell, std::string_view column) {
  const auto is_column = [](std::string_view name) {
    return [name](const CountColumn& one) { return one.name == name; };
  };
  const auto* const own = std::ranges::find_if(kCountColumns, is_column(column));
  const std::size_t first = cell.find_first_of("0123456789");
  if (own == kCountColumns.end() || first == cell.npos) {
    return cell;
  }
  const std::string_view before = cell.substr(0, first);
  const std::string name = to_lower(trim(before.substr(0, before.find_last_not_of(" =:-") + 1)));
  const bool named =
      name.empty() ? before.empty()
                   : before.size() > name.size() && std::ranges::all_of(name, is_letter) &&
                         (name == own->called || name.size() > 1) &&
                         std::ranges::none_of(kCountColumns, [&](const auto& one) {
                           return one.name != column && (one.name == name || one.called == name);
                         });
  const std::size_t end = std::min(cell.size(), cell.find_first_not_of("0123456789,", first));
  const std::string behind = to_lower(cell.substr(end));
  const bool apart = behind.empty() || behind.front() == ' ' || behind.front() == '-';
  const bool counted_by = behind.find('/') != behind.npos || has_word(behind, kPer);
  const bool batch = column.ends_with("batch") || column == "num_microbatches";
  if (!named || !apart || behind.find_first_of("0123456789%.^*+") != behind.npos ||
      (counted_by && !batch && column != "gpus_per_node")) {
    return cell;
  }
  const std::string words = with_signs_as(behind, "-/", ' ');
  const bool changed = std::ranges::any_of(split(words, ' '), [&](std::string_view word) {
    return changes_count(word, column) || counts_others(word, column);
  });
  return changed ? cell : cell.substr(first, end - first);
}

std::optional<TwoCounts> two_counts(std::string_view cell) {
  for (const std::string_view sign : {"/", " of "}) {
    const std::size_t at = cell.find(sign);
    TwoCounts counts;
    const auto read = [](std::string_view text, std::int64_t& count) {
      text = trim(text);
      const char* const end = text.data() + text.size();
      const auto result = std::from_chars(text.data(), end, count);
      return result.ec == std::errc() && result.ptr == end && count > 0;
    };
    if (at != cell.npos && read(cell.substr(0, at), counts.first) &&
        read(cell.substr(at + sign.size()), counts.second)) {
      return counts;
    }
  }
  return std::nullopt;
}

}  // namespace orrery::studies
