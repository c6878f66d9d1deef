// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_optimizer.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {

namespace {

constexpr auto kEightBits = std::to_array<std::string_view>({"8-bit", "8bit", "8 bit"});
constexpr auto kSixteenBits = std::to_array<std::string_view>({"bf16", "bfloat16", "16-bit"});

constexpr auto kThirtyTwoBits = std::to_array<std::string_view>({"fp32", "float32", "32-bit"});

// Whether one remark is about both, or a format stands alone between commas: "AdamW, 8-bit", not
// "8-bit (fp8) forward; AdamW states fp32".
bool says_together(std::string_view said, std::span<const std::string_view> names,
                   std::span<const std::string_view> formats) {
  std::string text(said);
  std::replace(text.begin(), text.end(), ',', ';');
  const std::vector<std::string_view> remarks = split(text, ';');
  return std::any_of(remarks.begin(), remarks.end(), [&](std::string_view remark) {
    const bool alone = std::find(formats.begin(), formats.end(), trim(remark)) != formats.end();
    return (says_any(remark, names) && says_any(remark, formats)) ||
           (alone && says_any(text, names));
  });
}

bool says_of_adam(std::string_view said, std::span<const std::string_view> formats) {
  constexpr auto kNames = std::to_array<std::string_view>({"adam"});
  return says_together(said, kNames, formats);
}

// "bf16 optimizer states", "optimizer states in bf16"; beside "fp32 master" they are one of two.
bool says_of_states(std::string_view said, std::span<const std::string_view> formats) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"optimizer state", "optimiser state", "adam state", "moments", "exp_avg"});
  return says_together(said, kNames, formats);
}

// Without clauses in which names of optimizers are those of something else: "local SGD", "Lion
// cluster", "the lion's share".
std::string clauses_on_steps(std::string_view said) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"local sgd", "sgd like", "cluster", "share", "supercomputer", "partition"});
  std::string kept;
  for (const std::string& clause : asserted_clauses(with_blanks(said))) {
    if (!has_word(clause, kOthers)) {
      kept.append(clause).append(";");
    }
  }
  return kept;
}

}  // namespace

bool keeps_no_master(const Measurement& row) {
  constexpr auto kPure = std::to_array<std::string_view>(
      {"pure bf16", "bf16 pure", "pure bfloat16", "true bf16", "bf16 true"});
  constexpr auto kMaster =
      std::to_array<std::string_view>({"fp32 master", "master weight", "master cop"});
  std::string detail = row.precision_detail;  // "bf16 (pure)"
  std::erase_if(detail, [](char c) { return c == '(' || c == ')'; });
  const std::string remarks = with_blanks(row.notes + "; " + detail);
  const std::string said = asserted(remarks);
  const bool denied = says_any(remarks, kMaster) && !says_any(said, kMaster);
  return says_any(said, kPure) || denied;
}

std::optional<StatedOptimizer> stated_optimizer(const Measurement& row) {
  // Adafactor keeps a row and a column of a matrix (Shazeer and Stern 2018), Lion, Muon and Adagrad
  // one moment; two of 8 bits: Dettmers et al. 2021.
  constexpr auto kOneMoment = std::to_array<std::string_view>(
      {"lion", "lionw", "decoupledlionw", "decoupled lionw", "muon", "adagrad"});
  constexpr auto kEightBitNames = std::to_array<std::string_view>(
      {"8 bit optimizer", "8bit optimizer", "8 bit optimiser", "8bit optimiser"});
  constexpr auto kSgd = std::to_array<std::string_view>({"sgd"});
  constexpr auto kMomentum = std::to_array<std::string_view>({"momentum"});
  constexpr auto kFactored = std::to_array<std::string_view>({"adafactor"});
  constexpr int kFloat = 4;
  const std::string said = asserted(to_lower(row.variant + "; " + row.notes));
  const std::string steps = clauses_on_steps(said);
  const auto names = [&](std::span<const std::string_view> words) {
    return has_word(steps, words);
  };
  if (says_of_adam(said, kEightBits) || names(kEightBitNames)) {
    return StatedOptimizer{"Adam of 8 bits", 2};
  }
  const bool whole = says_of_states(said, kThirtyTwoBits);
  if (says_of_states(said, kSixteenBits) || (keeps_no_master(row) && !whole)) {
    return StatedOptimizer{"states of 16 bits", 2 * 2};
  }
  if (names(kFactored)) {
    return StatedOptimizer{"Adafactor", 0};
  }
  if (names(kSgd)) {
    const bool momentum = names(kMomentum);
    return StatedOptimizer{momentum ? "SGD with momentum" : "SGD", momentum ? kFloat : 0};
  }
  return names(kOneMoment) ? std::optional(StatedOptimizer{"an optimizer of one moment", kFloat})
                           : std::nullopt;
}

}  // namespace orrery::studies
