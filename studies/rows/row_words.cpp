// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_words.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "sim/schedule.hpp"
#include "studies/rows/measurement.hpp"

namespace orrery::studies {
std::string spelling(std::string_view cell, std::span<const WordMeaning> words) {
  const std::string key = letters_and_digits(cell);
  for (const auto& [word, name] : words) {
    if (key == word) {
      return std::string(name);
    }
  }
  return to_lower(cell);
}

namespace {

std::string with_replaced(std::string_view cell, std::span<const WordMeaning> signs) {
  std::string text(cell);
  for (const auto& [sign, plain] : signs) {
    for (std::size_t at = text.find(sign); at != text.npos; at = text.find(sign, at)) {
      text.replace(at, sign.size(), plain);
    }
  }
  return text;
}

}  // namespace

std::string with_typed_signs(std::string_view cell) {
  constexpr auto kSigns = std::to_array<WordMeaning>({{"\xC2\xA0", " "},  // no-break space
                                                      {"\xE2\x80\x87", " "},
                                                      {"\xE2\x80\x89", " "},
                                                      {"\xE2\x80\x8A", " "},
                                                      {"\xE2\x80\xAF", " "},
                                                      {"\xE2\x80\x90", "-"},  // hyphens, dashes
                                                      {"\xE2\x80\x91", "-"},
                                                      {"\xE2\x80\x92", "-"},
                                                      {"\xE2\x80\x93", "-"},
                                                      {"\xE2\x80\x94", "-"},
                                                      {"\xE2\x80\x95", "-"},
                                                      {"\xE2\x88\x92", "-"},  // minus
                                                      {"\xE2\x80\x98", "'"},
                                                      {"\xE2\x80\x99", "'"}});
  const bool plain = std::ranges::none_of(cell, [](char c) { return (c & 0x80) != 0; });
  std::string text(trim(plain ? std::string(cell) : with_replaced(cell, kSigns)));
  const auto both_blank = [](char one, char next) { return one == ' ' && next == ' '; };
  text.erase(std::ranges::unique(text, both_blank).begin(), text.end());
  return text;
}

std::string_view without_footnote(std::string_view cell) {
  constexpr auto kMarks = std::to_array<std::string_view>({"*", "\xE2\x80\xA0", "\xE2\x80\xA1"});
  for (bool marked = true; marked;) {
    cell = trim(cell);
    const auto* const mark =
        std::ranges::find_if(kMarks, [cell](auto sign) { return cell.ends_with(sign); });
    marked = mark != kMarks.end();
    cell.remove_suffix(marked ? mark->size() : 0);
  }
  return cell;
}

std::string with_letter_times(std::string_view cell) {
  constexpr auto kTimes = std::to_array<WordMeaning>({{"\xC3\x97", "x"}});
  return with_replaced(cell, kTimes);
}

std::string_view before_remark(std::string_view cell) {
  return trim(cell.substr(0, cell.find('(')));
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

// "SlimPipe", "PipeDream 2BW", "Zero Bubble V-Min": a schedule of the registry, whatever stands
// between its words and with its family's name before it; "" where there is none.
std::string registered_schedule(std::string_view text) {
  constexpr std::string_view kFamily = "zerobubble";
  const std::string key = letters_and_digits(text);
  const std::string own = key.starts_with(kFamily) ? key.substr(kFamily.size()) : "";
  const bool folds = own.starts_with('v');
  for (const sim::Schedule* known : sim::schedule_table()) {
    const std::string name = letters_and_digits(known->name);
    if (name == key || (folds && name == own) || (!own.empty() && name == "zb" + own)) {
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

// "Megatron 1F1B", "plain 1F1B", "gpipe schedule", "1F1B pipeline",
// "forward_backward_pipelining_without_interleaving": without what every schedule may be called.
std::string_view without_plain_words(std::string_view cell) {
  constexpr auto kBefore =
      std::to_array<std::string_view>({"standard ", "plain ", "vanilla ", "megatron ",
                                       "megatron-lm ", "forward_backward_pipelining_"});
  constexpr auto kBehind = std::to_array<std::string_view>({" schedule", " pipeline"});
  const std::string lower = to_lower(cell);
  for (const std::string_view word : kBefore) {
    if (lower.starts_with(word)) {
      return without_plain_words(trim(cell.substr(word.size())));
    }
  }
  for (const std::string_view word : kBehind) {
    const std::string_view rest =
        trim(cell.substr(0, cell.size() - std::min(cell.size(), word.size())));
    if (lower.ends_with(word) && !rest.empty()) {
      return rest;
    }
  }
  return cell;
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

constexpr auto kScheduleNames = std::to_array<WordMeaning>({{"interleaved1f1b", "interleaved"},
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
                                                            {"oneforwardonebackward", "1f1b"},
                                                            {"1f1bflush", "1f1b"},
                                                            {"noninterleaving", "1f1b"},
                                                            {"withoutinterleaving", "1f1b"},
                                                            {"bpipe", "1f1b"},
                                                            {"noninterleaved", "1f1b"},
                                                            {"noninterleaved1f1b", "1f1b"},
                                                            {"1f1bnoninterleaved", "1f1b"},
                                                            {"sync1f1b", "1f1b"},
                                                            {"synchronous1f1b", "1f1b"},
                                                            {"dapple", "1f1b"},
                                                            {"afab", "gpipe"},
                                                            {"fthenb", "gpipe"},
                                                            {"filldrain", "gpipe"},
                                                            {"gpipeflush", "gpipe"},
                                                            {"allforwardallbackward", "gpipe"},
                                                            {"bfs", "breadth-first"},
                                                            {"loopedbfs", "breadth-first"},
                                                            {"zerobubble", "zb-1p"},
                                                            {"zbvzerobubble", "zb-v"},
                                                            {"no", "none"},  // "no pipeline"
                                                            {"nopipeline", "none"},
                                                            {"nopipelining", "none"},
                                                            {"nopp", "none"},
                                                            {"nopipelineparallelism", "none"}});

// Of one name; "" where nobody knows it.
std::string known_schedule(std::string_view text) {
  const std::string key = letters_and_digits(text);
  const auto* const one = std::ranges::find(kScheduleNames, key, &WordMeaning::first);
  return one != kScheduleNames.end() ? std::string(one->second) : registered_schedule(text);
}

// "AFAB / GPipe": two names of one schedule.
std::string agreed_schedule(std::string_view text) {
  std::string agreed;
  for (const std::string_view part : split(text, '/')) {
    const std::string name = known_schedule(trim(part));
    if (name.empty() || (!agreed.empty() && name != agreed)) {
      return "";
    }
    agreed = name;
  }
  return agreed;
}

}  // namespace

std::string schedule_name(std::string_view cell) {
  cell = without_plain_words(without_class_name(without_overlap(cell)));
  const std::string_view name = before_remark(cell);
  // "Zero Bubble (ZB-H1)", "PP (1F1B)": where its words leave it open, the bracket says which.
  const std::string in_bracket = known_schedule(cell.substr(std::min(cell.size(), cell.find('('))));
  const std::string known = known_schedule(name);
  const bool open = known.empty() || letters_and_digits(name) == "zerobubble";
  if (open && !in_bracket.empty()) {
    return in_bracket;
  }
  if (!known.empty()) {
    return known;
  }
  if (const std::optional<std::string> chunks = interleaving_of(name)) {
    return *chunks;
  }
  const std::string agreed = agreed_schedule(name);
  return agreed.empty() ? to_lower(name) : agreed;
}

namespace {

// Of the Vocabulary Parallelism artifact.
constexpr auto kVocabularySchemes =
    std::to_array<std::string_view>({"vocab-1", "vocab-2", "interlaced", "redis"});

}  // namespace

std::string variant_name(std::string_view cell) {
  const std::string key = letters_and_digits(before_remark(cell));
  const auto* const scheme = std::ranges::find_if(
      kVocabularySchemes, [&](auto name) { return letters_and_digits(name) == key; });
  return std::string(scheme == kVocabularySchemes.end() ? cell : *scheme);
}

bool is_vocabulary_scheme(std::string_view variant) {
  return is_among(variant, kVocabularySchemes);
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
                                !sim::find_schedule(schedule, "schedule").traits.uses_chunks);
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
