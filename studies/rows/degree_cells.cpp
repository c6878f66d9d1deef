// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/degree_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/stated_context.hpp"
#include "studies/rows/stated_groups.hpp"

namespace orrery::studies {

void fill(std::string_view name, OptionalCount& cell, std::int64_t value, Notes& notes) {
  cell = value;
  notes.push_back(fmt::format("{} {}", name, value));
}

OptionalCount count_in_remarks(const Measurement& row, SettingNames names, SettingNames nouns) {
  constexpr double kMost = 1e5;
  const double number = number_set(remarks_of(row), names, nouns).value_or(0);
  return number >= 1 && number <= kMost && number == std::floor(number)
             ? OptionalCount(static_cast<std::int64_t>(number))
             : std::nullopt;
}

namespace {

// What a degree is called: as a setting, as "8-way" has it behind itself, in formulas.
struct DegreeNames {
  SettingNames settings;
  SettingNames ways;
  std::string_view letter;
};

OptionalCount count_of(std::string_view digits) {
  std::int64_t count = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, count);
  const bool whole = read.ec == std::errc() && read.ptr == end;
  return whole && count >= 1 && count <= limits::kMaxDevices ? OptionalCount(count) : std::nullopt;
}

// "t=2, p=2": a letter is a degree beside another one.
bool names_degrees_by_letters(const std::vector<std::string_view>& words) {
  constexpr auto kLetters = std::to_array<std::string_view>({"t", "p", "d"});
  return std::ranges::count_if(kLetters, [&](std::string_view letter) {
           for (std::size_t at = 0; at + 2 < words.size(); ++at) {
             if (words[at] == letter && words[at + 1] == "=" && count_of(words[at + 2])) {
               return true;
             }
           }
           return false;
         }) > 1;
}

// "TP8", "8-way tensor parallelism", "8-way TP", "t=8, p=2".
OptionalCount degree_in_words(const Measurement& row, const DegreeNames& names) {
  std::string plain;
  for (const std::string& clause : asserted_clauses(remarks_of(row))) {
    for (const char c : with_signs_as(with_blanks(clause), "/+:.", ' ')) {
      plain.append(c == '=' ? " = " : std::string(1, c));
    }
    plain += " ; ";
  }
  std::vector<std::string_view> words = split(plain, ' ');
  std::erase(words, std::string_view());
  const bool letters = names_degrees_by_letters(words);
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string_view word = words[at];
    const std::string_view next = at + 1 < words.size() ? words[at + 1] : std::string_view();
    const std::string_view last = at + 2 < words.size() ? words[at + 2] : std::string_view();
    const std::string_view joined = names.ways.front();
    const OptionalCount degree = word.starts_with(joined) ? count_of(word.substr(joined.size()))
                                 : next == "way" && is_among(last, names.ways)    ? count_of(word)
                                 : letters && word == names.letter && next == "=" ? count_of(last)
                                                                                  : std::nullopt;
    if (degree) {
      return degree;
    }
  }
  return std::nullopt;
}

// Of DeepSpeed and in papers on long sequences "sequence parallel" is over ranks of their own, of
// Megatron over those of tensors.
bool may_split_sequences(const Measurement& row) {
  return row.tp.value_or(1) == 1 || exchanges_heads(row) || mentions(row.framework, "deepspeed");
}

// What splits sequences by attention over several ranks, in the words of any cell.
bool names_context(const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"ring attention", "ringattention", "ring flash attention", "context parallel",
       "context parallelism", "context parallelized", "cp", "striped attention"});
  // "checkpoints copied with cp".
  constexpr auto kFiles = std::to_array<std::string_view>(
      {"copied", "copy", "checkpoint", "checkpoints", "file", "files", "dataset"});
  const std::vector<std::string> said = asserted_clauses(with_blanks(
      remarks_of(row) + "; " + row.overlap + "; " + row.attention_impl + "; " + row.framework));
  return exchanges_heads(row) || std::ranges::any_of(said, [&](const std::string& clause) {
           return has_word(clause, kNames) && !has_word(clause, kFiles);
         });
}

// Ranks that a clause counts by a name of sequences: not the 64 of "SP: 64K tokens", the 2.0 of a
// release, those of another table or a number that the stated degrees leave no GPUs for.
OptionalCount sequence_ranks(const Measurement& row, SettingNames names) {
  constexpr auto kNoRanks = std::to_array<std::string_view>({"k", "m", "token", "node", "layer"});
  constexpr auto kElsewhere = std::to_array<std::string_view>(
      {"fig", "figure", "table", "see", "ablation", "tested", "tried", "paper", "version"});
  const std::int64_t others = row.dp.value_or(1) * row.tp.value_or(1) * row.pp.value_or(1);
  for (const std::string& clause : asserted_clauses(remarks_of(row))) {
    const double number = number_set(clause, names, kNoRanks).value_or(0);
    if (number < 1 || number > limits::kMaxDevices || number != std::floor(number) ||
        has_word(clause, kElsewhere)) {
      continue;
    }
    const auto ranks = static_cast<std::int64_t>(number);
    const bool release = clause.find(fmt::format("{}.", ranks)) != clause.npos;
    const std::int64_t gpus = row.gpus.value_or(ranks * others);
    if (!release && ranks <= gpus / others && gpus % (others * ranks) == 0) {
      return ranks;
    }
  }
  return std::nullopt;
}

// Whether the GPUs are those of the stated degrees times another one, which is over ranks of its
// own but for that of experts: "TP=8" of a row whose other degrees fill the GPUs is of another run.
bool leaves_whole_ranks(const Measurement& row, std::int64_t ranks, bool of_experts) {
  if (!row.gpus) {
    return ranks <= limits::kMaxDevices;
  }
  std::int64_t left = *row.gpus;
  // The ranks of experts are among those of data, sequences and tensors.
  const std::array<std::int64_t, 4> others = {
      row.pp.value_or(1), of_experts ? 1 : row.tp.value_or(1), of_experts ? 1 : row.cp.value_or(1),
      of_experts ? 1 : row.dp.value_or(1)};
  for (const std::int64_t degree : others) {
    if (left % degree != 0) {
      return false;
    }
    left /= degree;
  }
  return ranks <= left && left % ranks == 0;
}

// A stated schedule or model chunks make what is left over stages.
bool names_pipeline(const Measurement& row) {
  return (!row.schedule.empty() && row.schedule != "none") || row.vpp.value_or(1) > 1 ||
         row.most_chunks;
}

void take(std::string_view degree, OptionalCount& cell, std::int64_t value, std::string_view why,
          Notes& notes) {
  notes.push_back(cell ? fmt::format("{} {} as {} ({})", degree, *cell, value, why)
                       : fmt::format("{} {} ({})", degree, value, why));
  cell = value;
}

// What the GPUs leave over for a degree beside the data-parallel ranks and two other degrees.
void fill_degree(std::string_view name, OptionalCount& degree, std::int64_t others,
                 const Measurement& row, Notes& notes) {
  const std::int64_t stated = row.dp.value_or(0) * others;
  const std::int64_t gpus = row.gpus.value_or(0);
  if (!degree && stated > 0 && gpus > stated && gpus % stated == 0) {
    fill(name, degree, gpus / stated, notes);
  }
}

// Exact counts that only stages explain count for more than a schedule "none": nothing else may
// take the GPUs that they leave over.
bool needs_stages(const Measurement& row) {
  const std::int64_t others = row.tp.value_or(1) * row.cp.value_or(1) * row.dp.value_or(0);
  const std::int64_t gpus = row.gpus.value_or(0);
  if (others == 0 || gpus <= others || gpus % others != 0 || !row.cp) {
    return false;
  }
  return row.ep != gpus / others && !may_share_in_groups(row, gpus / others * *row.dp);
}

}  // namespace

void read_degrees(Measurement& row) {
  constexpr auto kTensor = std::to_array<std::string_view>(
      {"tp", "tensor parallel", "tensor parallelism", "tensor model parallel"});
  constexpr auto kStages = std::to_array<std::string_view>(
      {"pp", "pipeline parallel", "pipeline parallelism", "pipeline model parallel"});
  constexpr auto kContext = std::to_array<std::string_view>({"cp", "context parallel"});
  constexpr auto kExchanges = std::to_array<std::string_view>(
      {"context parallelism", "ulysses", "ulysses sp", "ulysses sequence parallel",
       "ulysses sequence parallelism", "ds sequence parallel", "ring attention"});
  constexpr auto kSequences =
      std::to_array<std::string_view>({"sp", "sequence parallel", "sequence parallelism"});
  constexpr auto kExperts = std::to_array<std::string_view>({"ep", "expert parallel"});
  constexpr auto kTensorWays = std::to_array<std::string_view>({"tp", "tensor"});
  constexpr auto kStageWays = std::to_array<std::string_view>({"pp", "pipeline"});
  constexpr auto kContextWays = std::to_array<std::string_view>({"cp", "context"});
  constexpr auto kExpertWays = std::to_array<std::string_view>({"ep", "expert"});
  const auto read = [&](std::string_view name, OptionalCount& cell, const DegreeNames& names) {
    OptionalCount stated = cell ? std::nullopt : count_in_remarks(row, names.settings);
    stated = cell || stated ? stated : degree_in_words(row, names);
    if (stated && leaves_whole_ranks(row, *stated, &cell == &row.ep)) {
      fill(name, cell, *stated, row.remarks);
    }
  };
  read("tp", row.tp, {kTensor, kTensorWays, "t"});
  read("pp", row.pp, {kStages, kStageWays, "p"});
  read("cp", row.cp, {kContext, kContextWays, ""});
  OptionalCount ranks = row.cp ? std::nullopt : sequence_ranks(row, kExchanges);
  if (!row.cp && !ranks && may_split_sequences(row)) {
    ranks = sequence_ranks(row, kSequences);
    ranks = ranks.value_or(1) > 1 ? ranks : std::nullopt;  // 1 is a switch
  }
  if (ranks) {
    fill("cp", row.cp, *ranks, row.remarks);
  }
  read("ep", row.ep, {kExperts, kExpertWays, ""});
}

void give_leftover_ranks(Measurement& row, Notes& notes) {
  if (!row.pp && row.schedule == "none" && !needs_stages(row)) {
    take("pp", row.pp, 1, "schedule none", notes);
  }
  const std::int64_t others =
      row.tp.value_or(1) * row.pp.value_or(1) * row.cp.value_or(1) * row.dp.value_or(0);
  const std::int64_t gpus = row.gpus.value_or(0);
  const bool stages_take = !row.pp && names_pipeline(row);
  if (others == 0 || gpus <= others || gpus % others != 0 || stages_take || (row.pp && row.cp)) {
    return;
  }
  const std::int64_t left = gpus / others;
  const std::int64_t ranks = *row.dp * left;
  if (!row.cp && names_context(row)) {
    take("cp", row.cp, left, "context parallelism takes the rest", notes);
  } else if (!row.cp && row.ep == left) {
    take("dp", row.dp, ranks, "as printed those of an expert", notes);
  } else if (may_share_in_groups(row, ranks)) {
    take("dp", row.dp, ranks, "as printed those of one group", notes);
  } else {
    return;
  }
  row.pp = row.pp.value_or(1);
}

void fill_data_parallel(Measurement& row, bool cp_may_fill, Notes& notes) {
  const std::int64_t others = row.tp.value_or(0) * row.pp.value_or(0) * row.cp.value_or(1);
  const std::int64_t gpus = row.gpus.value_or(0);
  const bool open = !row.dp || row.cp || !cp_may_fill;
  if (others == 0 || gpus == 0 || gpus % others != 0 || !open || row.dp == gpus / others) {
    return;
  }
  fill(row.dp ? fmt::format("dp {} as", *row.dp) : std::string("dp"), row.dp, gpus / others, notes);
}

// Where both of tp and pp are blank, counts do not tell them apart.
void fill_degrees(Measurement& row, Notes& notes) {
  const std::int64_t cp = row.cp.value_or(1);
  if (!row.gpus && row.tp && row.pp && row.dp) {
    fill("gpus", row.gpus, *row.tp * *row.pp * *row.dp * cp, notes);
  }
  if (row.pp) {
    fill_degree("tp", row.tp, *row.pp * cp, row, notes);
  } else if (row.tp) {
    fill_degree("pp", row.pp, *row.tp * cp, row, notes);
  }
  if (row.tp && row.pp) {
    fill_degree("cp", row.cp, *row.tp * *row.pp, row, notes);
  }
}

}  // namespace orrery::studies
