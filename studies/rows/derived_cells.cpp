// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/derived_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/degree_cells.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/unread_cells.hpp"

namespace orrery::studies {
namespace {

// A GPU that is sold as a card and as a module is a card where the node has no NVLink, or bridges
// of it.
void fill_form(Measurement& row, Notes& notes) {
  constexpr auto kForms =
      std::to_array<std::string_view>({"mixed", "sxm", "pci", "nvl", "dgx", "hgx"});
  const std::string links = undenied(to_lower(row.intra_node));
  const bool modules = mentions(links, "nvlink") && !mentions(links, "bridge");
  if (!mentions(links, "pcie") || modules || says_any(to_lower(row.gpu), kForms)) {
    return;
  }
  const std::string card = stated_gpu(row.gpu + " PCIe");
  if (mentions(card, "pcie") && card != stated_gpu(row.gpu)) {
    notes.push_back(fmt::format("GPU {} as {}", printable(row.gpu, 60), card));
    row.gpu = card;
  }
}

// "A100" beside a p4d is the one that this node carries.
void fill_variant(Measurement& row, Notes& notes) {
  if (std::string carried = gpu_of_stated_node(row); !carried.empty()) {
    notes.push_back(fmt::format("GPU {} as {}", printable(row.gpu, 60), carried));
    row.gpu = std::move(carried);
  }
}

bool is_device_count(std::int64_t count) { return count >= 1 && count <= limits::kMaxDevices; }

// Takes the count before the GPU's name off it: "4xA100", "8 x H100"; 0 where there is none.
std::int64_t take_count(std::string& gpu) {
  std::int64_t count = 0;
  const std::string_view text = gpu;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), count);
  std::string_view rest = trim(text.substr(static_cast<std::size_t>(read.ptr - text.data())));
  const std::size_t sign = rest.starts_with('x') ? 1 : 0;
  rest = trim(rest.substr(sign));
  const bool named = !rest.empty() && !is_digit(rest.front());  // not "2x8 H100"
  if (read.ec != std::errc() || sign == 0 || !is_device_count(count) || !named) {
    return 0;
  }
  gpu = std::string(rest);
  return count;
}

// The same of a count right behind the name, "H100x8", which is no GPU's with it: "A100 PCIe x16"
// speaks of lanes.
std::int64_t take_count_behind(std::string& gpu) {
  const std::string text = to_lower(gpu);
  const std::size_t last = text.find_last_not_of("0123456789");
  const std::string_view before =
      last == text.npos ? std::string_view() : trim(std::string_view(text).substr(0, last + 1));
  std::int64_t count = 0;
  const bool counts =
      before.size() > 1 && before.back() == 'x' &&
      std::from_chars(text.data() + last + 1, text.data() + text.size(), count).ec == std::errc();
  const std::string name(counts ? trim(before.substr(0, before.size() - 1)) : "");
  if (!is_device_count(count) || !stated_gpu(gpu).empty() || stated_gpu(name).empty()) {
    return 0;
  }
  gpu.resize(name.size());
  return count;
}

// They are all of the run's where it states no others, else those of a node.
void fill_counted_gpus(Measurement& row, Notes& notes) {
  const std::int64_t before = take_count(row.gpu);
  const std::int64_t count = before > 0 ? before : take_count_behind(row.gpu);
  const bool degrees_tell = row.tp && row.pp && row.dp;
  if (count == 0) {
    return;
  }
  if (!row.gpus && !degrees_tell) {
    fill("gpus", row.gpus, count, notes);
  }
  if (before > 0 && !row.gpus_per_node && row.gpus.value_or(0) > count && *row.gpus % count == 0) {
    fill("gpus_per_node", row.gpus_per_node, count, notes);
  }
}

void fill_micro_batch(Measurement& row, Notes& notes) {
  if (row.micro_batch || !row.global_batch || !row.dp || !row.num_microbatches) {
    return;
  }
  const std::int64_t parts = *row.dp * *row.num_microbatches;
  if (parts > 0 && *row.global_batch >= parts && *row.global_batch % parts == 0) {
    fill("micro_batch", row.micro_batch, *row.global_batch / parts, notes);
  }
}

// A pipeline has some schedule.
void fill_schedule(Measurement& row, Notes& notes) {
  if (row.schedule == "none" && row.pp.value_or(1) > 1) {
    row.schedule = "1f1b";
    notes.push_back(fmt::format("schedule none of {} stages as 1f1b", *row.pp));
  }
}

// With model chunks 1F1B is the interleaved one, which is 1F1B with one; other schedules of one
// chunk leave the rest out.
void fill_chunks(Measurement& row, Notes& notes) {
  const bool pipeline = row.pp.value_or(1) > 1;
  const bool chunks = row.vpp.value_or(1) > 1;
  const auto become = [&](std::string_view schedule) {
    notes.push_back(fmt::format("schedule {} with vpp {} as {}", row.schedule, *row.vpp, schedule));
    row.schedule = schedule;
  };
  if (chunks && pipeline && row.schedule == "1f1b") {
    become("interleaved");
  } else if (row.vpp == 1 && pipeline && row.schedule == "interleaved") {
    become("1f1b");
  } else if (chunks && !row.schedule.empty() && (!pipeline || has_one_chunk(row.schedule))) {
    notes.push_back(fmt::format("schedule {} without vpp {}", row.schedule, *row.vpp));
  }
}

// Of a clause: not the 5 of "1.5 microbatches", one of "32 or 64" or those of a warm-up.
std::int64_t count_before_noun(std::string_view clause, std::string_view noun) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"warm up", "warmup", "discarded", "skipped", "first", "last", "paper", "more", "fewer",
       "least", "most", "about", "up to", "or", "to", "between"});
  const std::size_t at = find_word(clause, noun);
  const std::string_view before = trim(clause.substr(0, at == clause.npos ? 0 : at));
  const std::string_view digits = before.substr(before.find_last_not_of("0123456789") + 1);
  const std::string_view rest = before.substr(0, before.size() - digits.size());
  const bool whole = rest.empty() || rest.ends_with(' ') || rest.ends_with('=');
  std::int64_t count = 0;
  if (whole && !has_word(clause, kOthers)) {
    std::from_chars(digits.data(), digits.data() + digits.size(), count);
  }
  return count;
}

// "2 gradient accumulation steps": a whole number right before one of the nouns.
OptionalCount count_before(const Measurement& row, SettingNames nouns) {
  const std::string remarks = with_blanks(remarks_of(row));
  const std::vector<std::string> clauses = asserted_clauses(remarks);
  for (const std::string_view noun : nouns) {
    for (const std::string& clause : clauses) {
      const std::int64_t count = count_before_noun(clause, noun);
      if (count > 0 && count <= limits::kMaxBatch) {
        return count;
      }
    }
  }
  return std::nullopt;
}

// The number right before or behind "KV" or "GQA", of "GQA, 8 groups" that of the groups; 0 where a
// clause has none.
std::int64_t kv_heads_in(std::string_view clause) {
  constexpr auto kNames = std::to_array<std::string_view>({"kv", "gqa", "group", "groups"});
  constexpr auto kBetween = std::to_array<std::string_view>(
      {"", "heads", "head", "num", "n", "query", "with", "of", "is"});
  std::string plain(clause);
  std::ranges::replace_if(
      plain, [](char c) { return !is_letter(c) && !is_digit(c); }, ' ');
  std::vector<std::string_view> words = split(plain, ' ');
  std::erase_if(words,
                [&](auto word) { return std::ranges::find(kBetween, word) != kBetween.end(); });
  const auto count_at = [&](std::size_t at) {
    std::int64_t count = 0;
    if (at < words.size()) {
      const std::string_view word = words[at];
      const auto read = std::from_chars(word.data(), word.data() + word.size(), count);
      count = read.ec == std::errc() && read.ptr == word.data() + word.size() ? count : 0;
    }
    return count;
  };
  for (std::size_t at = 0; at < words.size(); ++at) {
    if (std::ranges::find(kNames, words[at]) == kNames.end()) {
      continue;
    }
    const std::int64_t before = at > 0 ? count_at(at - 1) : 0;
    if (const std::int64_t count = before > 0 ? before : count_at(at + 1); count > 0) {
      return count;
    }
  }
  return 0;
}

}  // namespace

std::int64_t bracketed_kv_heads(std::string_view heads) {
  constexpr auto kNames = std::to_array<std::string_view>({"kv", "gqa"});
  const std::string plain = with_blanks(heads);
  const std::string_view bracket =
      std::string_view(plain).substr(std::min(plain.size(), plain.find('(')));
  const std::vector<std::string> clauses = asserted_clauses(bracket);
  const bool grouped =
      std::ranges::any_of(clauses, [&](const std::string& one) { return has_word(one, kNames); });
  if (!grouped || bracket.find(':') != bracket.npos) {  // "GQA 4:1" is a ratio
    return 0;
  }
  std::int64_t count = 0;
  for (const std::string& clause : clauses) {
    count = count == 0 ? kv_heads_in(clause) : count;
  }
  return count;
}

void read_stated_counts(Measurement& row) {
  Notes& notes = row.remarks;
  read_degrees(row);
  constexpr auto kSteps = std::to_array<std::string_view>(
      {"gradient accumulation steps", "gradient accumulation", "grad accumulation steps",
       "grad accumulation", "grad accum steps", "grad accum", "accumulation steps", "gas", "ga"});
  constexpr auto kChunks =
      std::to_array<std::string_view>({"vpp", "virtual pipeline model parallel size",
                                       "virtual pipeline size", "virtual pipeline", "vpp size"});
  constexpr auto kLayers = std::to_array<std::string_view>(
      {"num layers per virtual pipeline stage", "layers per virtual pipeline stage"});
  if (!row.num_microbatches && (!row.global_batch || !row.micro_batch)) {
    constexpr auto kCounted =
        std::to_array<std::string_view>({"gradient accumulation steps", "grad accumulation steps",
                                         "accumulation steps", "micro batches", "microbatches"});
    OptionalCount steps = count_in_remarks(row, kSteps);
    steps = steps ? steps : count_before(row, kCounted);
    if (steps) {
      fill("num_microbatches", row.num_microbatches, *steps, notes);
    }
  }
  const bool takes_chunks =
      row.schedule.empty() || row.schedule == "interleaved" || row.schedule == "1f1b";
  const std::int64_t pp = row.pp.value_or(1);
  if (row.vpp || row.most_chunks || pp <= 1 || !takes_chunks) {
    return;
  }
  const std::int64_t layers = count_in_remarks(row, kLayers).value_or(0) * pp;
  const std::int64_t all = row.layers.value_or(0);
  // A network has no more chunks than layers, its embedding and its head.
  const std::int64_t most = all > 0 ? (all + 2) / pp : limits::kMaxLayers;
  const OptionalCount chunks = count_in_remarks(row, kChunks);
  if (chunks && *chunks <= most) {
    fill("vpp", row.vpp, *chunks, notes);
  } else if (layers > 0 && all >= layers && all % layers == 0) {
    fill("vpp", row.vpp, all / layers, notes);
  }
}

std::vector<std::string> fill_from_cells(Measurement& row) {
  Notes notes = row.remarks;
  fill_counted_gpus(row, notes);
  fill_form(row, notes);
  fill_variant(row, notes);
  give_leftover_ranks(row, notes);
  fill_data_parallel(row, true, notes);
  fill_micro_batch(row, notes);
  fill_degrees(row, notes);
  fill_data_parallel(row, false, notes);
  fill_schedule(row, notes);
  fill_chunks(row, notes);
  for (std::string& line : unread_cells(row)) {
    notes.push_back(std::move(line));
  }
  return notes;
}

}  // namespace orrery::studies
