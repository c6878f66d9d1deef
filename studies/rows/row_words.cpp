// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_words.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "sim/schedule.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {
namespace {

bool is_letter_or_digit(char c) { return is_letter(c) || is_digit(c); }

}  // namespace

std::string spelling(std::string_view cell, std::span<const WordMeaning> words) {
  const std::string key = letters_and_digits(cell);
  for (const auto& [word, name] : words) {
    if (key == word) {
      return std::string(name);
    }
  }
  return to_lower(cell);
}

std::string with_letter_times(std::string_view cell) {
  constexpr std::string_view kTimes = "\xC3\x97";  // in UTF-8
  std::string text(cell);
  for (std::size_t at = text.find(kTimes); at != text.npos; at = text.find(kTimes, at)) {
    text.replace(at, kTimes.size(), "x");
  }
  return text;
}

std::string_view before_remark(std::string_view cell) {
  return trim(cell.substr(0, cell.find('(')));
}

namespace {

// Of a mixture of 8 and 16 bits the shorter one. Microscaling formats keep their names.
std::string format_in(std::string_view text) {
  constexpr auto kFormats = std::to_array<WordMeaning>({{"mxfp8", "mxfp8"},
                                                        {"fp8mx", "mxfp8"},
                                                        {"mxfp4", "mxfp4"},
                                                        {"nvfp4", "nvfp4"},
                                                        {"fp8", "fp8"},
                                                        {"float8", "fp8"},
                                                        {"e4m3", "fp8"},
                                                        {"bf16", "bf16"},
                                                        {"bfloat16", "bf16"},
                                                        {"fp16", "fp16"},
                                                        {"float16", "fp16"},
                                                        {"half", "fp16"},
                                                        {"16mixed", "fp16"},
                                                        {"tf32", "tf32"},
                                                        {"fp32", "fp32"},
                                                        {"float32", "fp32"},
                                                        {"32bit", "fp32"},
                                                        {"single", "fp32"}});
  const std::string key = letters_and_digits(text);
  const auto* const known =
      std::find_if(kFormats.begin(), kFormats.end(),
                   [&](const WordMeaning& one) { return key.find(one.first) != key.npos; });
  return known == kFormats.end() ? "" : std::string(known->second);
}

}  // namespace

// What a cell denies is not its format: "bf16, no fp8". A bracket names the format where nothing
// before it does or where it says what products are in: "mixed (bf16)", "fp32 (TF32 matmul)".
std::string precision_name(std::string_view cell) {
  constexpr auto kProducts =
      std::to_array<std::string_view>({"matmul", "gemm", "linear", "compute", "product", "tf32"});
  const std::string lower = to_lower(cell);
  const std::string said = undenied(before_comparison(lower));
  const std::string_view bracket =
      std::string_view(said).substr(std::min(said.size(), said.find('(')));
  const std::string before = format_in(before_remark(said));
  const bool whole = before.empty() || says_any(bracket, kProducts);
  if (std::string format = whole ? format_in(said) : before; !format.empty()) {
    return format;
  }
  const std::string key = letters_and_digits(cell);
  constexpr auto kHalf = std::to_array<std::string_view>({"o1", "o2", "o3"});
  constexpr auto kSingle = std::to_array<std::string_view>({"32", "32true", "fullprecision"});
  constexpr auto kMixed =
      std::to_array<std::string_view>({"automaticmixedprecision", "16bit", "16bits", "16"});
  const auto is_in = [&](std::span<const std::string_view> words) {
    return std::find(words.begin(), words.end(), key) != words.end();
  };
  if (key.starts_with("ampo") || key.starts_with("apexo") || is_in(kHalf)) {
    return "fp16";  // the levels O1 to O3 of NVIDIA's Apex
  }
  return is_in(kSingle)                              ? "fp32"
         : key.starts_with("mixed") || is_in(kMixed) ? "mixed"  // of which formats it does not say
                                                     : to_lower(cell);
}

namespace {

// Whether a word of a text begins so: not the "vpp" of "SVPP".
bool begins_word(std::string_view text, std::span<const std::string_view> beginnings) {
  const std::string lower = to_lower(text);
  return std::any_of(beginnings.begin(), beginnings.end(), [&](std::string_view beginning) {
    std::size_t at = lower.find(beginning);
    while (at != lower.npos && at > 0 && is_letter(lower[at - 1])) {
      at = lower.find(beginning, at + 1);
    }
    return at != lower.npos;
  });
}

// With model chunks or expressly without, in sentences: "1F1B with interleaving", "vpp=5",
// "non-interleaved 1F1B", "1F1B, no interleaving"; no value where the text says neither or means
// another schedule.
std::optional<std::string> interleaving_of(std::string_view name) {
  constexpr auto kOthers =
      std::to_array<std::string_view>({"zb", "zerobubble", "gpipe", "dual", "chimera", "breadth"});
  constexpr auto kChunks = std::to_array<std::string_view>({"interleav", "vpp", "virtual"});
  const std::string key = letters_and_digits(name);
  const bool denied = key.find("noninterleav") != key.npos;
  if (says_any(key, kOthers) || (!denied && !begins_word(name, kChunks))) {
    return std::nullopt;
  }
  const bool chunks = !denied && begins_word(asserted(name), kChunks);
  return chunks                         ? std::optional<std::string>("interleaved")
         : key.find("1f1b") != key.npos ? std::optional<std::string>("1f1b")
                                        : std::nullopt;
}

// "SlimPipe", "PipeDream 2BW": a schedule of the registry, whatever stands between its words; ""
// where there is none.
std::string registered_schedule(std::string_view text) {
  const std::string key = letters_and_digits(text);
  for (const sim::Schedule* known : sim::schedule_table()) {
    if (letters_and_digits(known->name) == key) {
      return std::string(known->name);
    }
  }
  return "";
}

// "Schedule1F1B": the classes of torch.distributed.pipelining begin with a word for all of them.
std::string_view without_class_name(std::string_view cell) {
  constexpr std::string_view kClass = "schedule";
  cell = trim(cell);
  const std::string_view rest = cell.substr(std::min(cell.size(), kClass.size()));
  const bool named = to_lower(cell).starts_with(kClass) && !letters_and_digits(rest).empty();
  return named ? rest : cell;
}

// "1F1B with overlap" is a schedule whose overlap has a column of its own.
std::string_view without_overlap(std::string_view cell) {
  const std::string lower = to_lower(cell.substr(0, cell.find('(')));
  if (interleaving_of(cell)) {
    return cell;
  }
  for (const std::string_view joint : {" with ", " without ", " + ", ", ", "; "}) {
    const std::size_t at = lower.find(joint);
    if (at != lower.npos && lower.find("overlap", at) != lower.npos &&
        !registered_schedule(cell.substr(0, at)).empty()) {
      return cell.substr(0, at);
    }
  }
  return cell;
}

}  // namespace

std::string schedule_name(std::string_view cell) {
  constexpr auto kNames = std::to_array<WordMeaning>({{"interleaved1f1b", "interleaved"},
                                                      {"interleave", "interleaved"},
                                                      {"interleaving", "interleaved"},
                                                      {"1f1binterleaved", "interleaved"},
                                                      {"interleavedpipeline", "interleaved"},
                                                      {"virtualpipeline", "interleaved"},
                                                      {"vpp", "interleaved"},
                                                      {"depthfirst", "interleaved"},
                                                      {"loopeddfs", "interleaved"},
                                                      {"dfs", "interleaved"},
                                                      {"1f1bi", "interleaved"},
                                                      {"1f1bint", "interleaved"},
                                                      {"vpp1f1b", "interleaved"},
                                                      {"1f1bvpp", "interleaved"},
                                                      {"circular", "interleaved"},
                                                      {"pipedreamflush", "1f1b"},
                                                      {"bpipe", "1f1b"},
                                                      {"noninterleaved", "1f1b"},
                                                      {"noninterleaved1f1b", "1f1b"},
                                                      {"1f1bnoninterleaved", "1f1b"},
                                                      {"sync1f1b", "1f1b"},
                                                      {"synchronous1f1b", "1f1b"},
                                                      {"dapple", "1f1b"},
                                                      {"afab", "gpipe"},
                                                      {"fthenb", "gpipe"},
                                                      {"allforwardallbackward", "gpipe"},
                                                      {"bfs", "breadth-first"},
                                                      {"loopedbfs", "breadth-first"},
                                                      {"breadthfirst", "breadth-first"},
                                                      {"zerobubble", "zb-1p"},
                                                      {"zbh1", "zb-h1"},
                                                      {"zbh2", "zb-h2"},
                                                      {"zb1p", "zb-1p"},
                                                      {"zb2p", "zb-2p"},
                                                      {"zbv", "zb-v"},
                                                      {"zbvzerobubble", "zb-v"},
                                                      {"zerobubblev", "zb-v"},
                                                      {"vhalf", "v-half"},
                                                      {"vmin", "v-min"},
                                                      {"vzb", "v-zb"},
                                                      {"dualpipe", "dualpipe"},
                                                      {"dualpipev", "dualpipe-v"},
                                                      {"nopipeline", "none"}});
  cell = without_class_name(without_overlap(cell));
  std::string name = spelling(before_remark(cell), kNames);
  // "Zero Bubble (ZB-H1)": the bracket says which.
  const std::string detail = letters_and_digits(cell.substr(std::min(cell.size(), cell.find('('))));
  const auto* const one = std::find_if(kNames.begin(), kNames.end(),
                                       [&](const auto& known) { return known.first == detail; });
  if (letters_and_digits(before_remark(cell)) == "zerobubble" && one != kNames.end()) {
    return std::string(one->second);
  }
  if (std::string registered = registered_schedule(name); !registered.empty()) {
    return registered;
  }
  return interleaving_of(name).value_or(name);
}

std::string unmodelled_part(std::string_view cell) {
  // Stages hold each other's activations, up to the mean of all (Kim et al. 2023, BPipe).
  const bool balances = letters_and_digits(before_remark(cell)).starts_with("bpipe");
  return balances ? "without balancing activations between stages" : "";
}

// Names that differ in a digit or in one of few letters are those of other schedules.
std::string misspelt_schedule(std::string_view name) {
  constexpr std::size_t kLongEnough = 5;
  if (name.empty() || name == "none" || sim::is_registered_schedule(name)) {
    return "";
  }
  std::vector<std::string> names;
  for (const sim::Schedule* known : sim::schedule_table()) {
    names.emplace_back(known->name);
  }
  const auto digits = [](std::string_view text) {
    std::string kept(text);
    std::erase_if(kept, [](char c) { return !is_digit(c); });
    return kept;
  };
  // Names of schedules are short and many: one that begins otherwise is another ("MEPipe").
  const std::string meant = misspelt_name(name, names);
  const bool same = digits(meant) == digits(name) && meant.starts_with(name.front());
  return same && (meant.size() >= kLongEnough || meant == "1f1b") ? meant : "";
}

bool has_one_chunk(std::string_view schedule) {
  return schedule == "none" || (sim::is_registered_schedule(schedule) &&
                                !sim::find_schedule(schedule, "schedule").uses_chunks);
}

namespace {

bool ends_with_word(std::string_view text, std::string_view word) {
  const std::size_t begin = text.size() - std::min(text.size(), word.size());
  return text.ends_with(word) && (begin == 0 || !is_letter_or_digit(text[begin - 1]));
}

// Whether a number between two texts counts model chunks: "vpp=5", "VP 2", "virtual stages: 4",
// "2 model chunks", "interleaved x4". A "v" alone is that of a version.
bool counts_chunks(std::string_view before, std::string_view behind) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"vpp", "vp", "vpp size", "vpp degree", "virtual stages", "virtual pipeline",
       "virtual pipeline size", "virtual pipeline stages", "chunks", "interleave factor",
       "interleaving factor", "interleave degree", "interleaving degree"});
  constexpr auto kSchedules =
      std::to_array<std::string_view>({"interleaved", "interleaving", "interleave"});
  constexpr auto kNouns =
      std::to_array<std::string_view>({"chunk", "model chunk", "virtual", "vpp"});
  const std::string_view name = before.substr(0, before.find_last_not_of(" =:x") + 1);
  const auto is_name = [name](std::string_view word) { return ends_with_word(name, word); };
  const bool alone = behind.empty() || std::string_view(",;)").find(behind.front()) != behind.npos;
  const bool equals = before.size() > name.size() && trim(before).ends_with('=');
  return std::any_of(kNames.begin(), kNames.end(), is_name) || (is_name("v") && equals) ||
         (alone && std::any_of(kSchedules.begin(), kSchedules.end(), is_name)) ||
         std::any_of(kNouns.begin(), kNouns.end(),
                     [behind](std::string_view noun) { return behind.starts_with(noun); });
}

}  // namespace

std::optional<std::int64_t> chunks_in_schedule(std::string_view cell) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::size_t kMostDigits = 3;
  const std::string lower = to_lower(cell);
  const std::string_view text = lower;
  for (std::size_t at = text.find_first_of(kDigits); at != text.npos;) {
    const std::size_t end = std::min(text.size(), text.find_first_not_of(kDigits, at));
    // The digits of "1F1B" and "v0.9" count nothing.
    const bool whole = end == text.size() || (!is_letter_or_digit(text[end]) && text[end] != '.');
    const std::size_t next = std::min(text.size(), text.find_first_not_of(" -", end));
    if (whole && end - at <= kMostDigits && counts_chunks(text.substr(0, at), text.substr(next))) {
      const std::int64_t chunks = std::stoi(lower.substr(at, end - at));
      return chunks > 0 ? std::optional(chunks) : std::nullopt;
    }
    at = text.find_first_of(kDigits, end);
  }
  return std::nullopt;
}

}  // namespace orrery::studies
