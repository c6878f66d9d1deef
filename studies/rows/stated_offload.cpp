// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_offload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

using plan::Offload;
using plan::Tier;

// "activation offload ratio 0.4", "alpha=0.4", "4 of 10 layers", "last 8 layers"; no value where
// the clause states no such share.
std::optional<double> share_in_words(std::string_view clause, std::int64_t layers) {
  constexpr auto kShares = std::to_array<std::string_view>(
      {"ratio", "fraction", "share", "alpha", "offload", "offloading", "offloaded"});
  constexpr auto kCounts = std::to_array<std::string_view>({"last", "first", "offload", "of"});
  constexpr auto kAll = std::to_array<std::string_view>({"all layers", "every layer"});
  if (const double share = number_set(clause, kShares).value_or(1); share >= 0 && share < 1) {
    return share;
  }
  const std::size_t noun = clause.find("layer");
  if (noun == clause.npos || says_any(clause, kAll)) {
    return std::nullopt;
  }
  // "activations of 2 layers" are of all that the row has.
  const std::string_view counted = clause.substr(0, noun);
  const std::size_t of = counted.find(" of ");
  const bool in_whole = of != counted.npos && is_digit(counted[of - (of > 0 ? 1 : 0)]);
  const auto whole = number_set(counted.substr(std::min(counted.size(), counted.find(" of "))),
                                std::to_array<std::string_view>({"of"}));
  const auto some = number_set(counted, kCounts);
  const double all = in_whole ? whole.value_or(0) : static_cast<double>(layers);
  return some && *some > 0 && *some <= all ? std::optional(*some / all) : std::nullopt;
}

// "12.5% of the activations"; no value where the clause states no share of them.
std::optional<double> share_of(std::string_view clause, std::int64_t layers) {
  constexpr auto kBetween =
      std::to_array<std::string_view>({"of", "the", "all", "saved", "stored", "layer"});
  for (std::size_t sign = clause.find('%'); sign != clause.npos;
       sign = clause.find('%', sign + 1)) {
    std::string_view whole = trim(clause.substr(sign + 1));
    for (const std::string_view word : kBetween) {
      whole = trim(whole.substr(whole.starts_with(word) ? word.size() : 0));
    }
    const std::string_view before = trim(clause.substr(0, sign));
    const std::size_t begin = before.find_last_not_of("0123456789.") + 1;
    double percent = 0;
    const auto read =
        std::from_chars(before.data() + begin, before.data() + before.size(), percent);
    if (read.ec == std::errc() && whole.starts_with("activation")) {
      return std::clamp(percent, 0.0, 100.0) / 100.0;
    }
  }
  return share_in_words(clause, layers);
}

// Gradients leave as they are reduced, which sharded ones are for every micro-batch.
void set_states(const Measurement& row, Tier tier, bool parameters, Offload& offload) {
  offload.optimizer = tier;
  const auto stage = row.zero_stage.value_or(0);
  offload.gradients = stage >= 2 ? tier : Tier::Device;
  offload.parameters = parameters && stage == 3 ? tier : offload.parameters;
}

std::string plain_words(std::string_view clause) {
  return with_signs_as(with_blanks(clause), "=:()+./,", ' ');
}

// "CPU offload", "offload to host" alone: "checkpoints offloaded to CPU" names what leaves.
bool names_nothing_else(std::string_view clause) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"",     "cpu",      "host",     "nvme",    "offload",    "offloaded", "offloading", "to",
       "on",   "the",      "with",     "and",     "full",       "enabled",   "using",      "memory",
       "ram",  "dram",     "pinned",   "ssd",     "deepspeed",  "zero",      "fsdp",       "true",
       "via",  "infinity", "stage",    "hsdp",    "all",        "yes",       "device",     "async",
       "uses", "used",     "training", "pytorch", "everything", "ddp",       "is",         "are",
       "of",   "1",        "2",        "3"});
  const std::string plain = plain_words(clause);
  return std::ranges::all_of(split(plain, ' '), [&](std::string_view word) {
    return is_among(word, kWords) || word.starts_with("zero") || word.starts_with("fsdp") ||
           word.starts_with("cpuoffload");
  });
}

// "ZeRO-3-Offload", "ZeRO3 + offload" and of the stage's column "3 (offload)" take parameters, too,
// unless the clause names what leaves.
bool offloads_stage_3(std::string_view clause, bool of_states) {
  constexpr auto kParts =
      std::to_array<std::string_view>({"optim", "grad", "master", "adam", "moment"});
  const std::string key = letters_and_digits(clause);
  const bool named =
      key.find("zero3offload") != key.npos || (of_states && key.starts_with("3offload"));
  return named && !says_any(clause, kParts);
}

// "ZeRO-2-Offload", "ZeRO-Offload": of the optimizer.
bool offloads_optimizer(std::string_view clause) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"zerooffload", "zero1offload", "zero2offload"});
  return says_any(letters_and_digits(clause), kNames);
}

// Where a clause puts tensors: "in CPU memory", "on the host". Nothing but their names and where
// they are: "optimizer initialised on CPU" and "Adam with data on host" move no states.
bool keeps_on_host(std::string_view clause, SettingNames tensors) {
  constexpr auto kPlaces = std::to_array<std::string_view>(
      {"on cpu", "on the cpu", "on cpus", "on host", "on the host", "in cpu memory",
       "in host memory", "in cpu ram", "in host ram", "in main memory", "in system memory"});
  constexpr auto kRest = std::to_array<std::string_view>(
      {"",       "a",        "all",      "an",     "and",     "are",        "both", "copies",
       "copy",   "cpu",      "cpus",     "fp32",   "fused",   "held",       "host", "in",
       "is",     "keep",     "keeps",    "kept",   "live",    "lives",      "main", "master",
       "memory", "moments",  "of",       "on",     "params",  "parameters", "ram",  "resident",
       "run",    "runs",     "state",    "states", "stay",    "stays",      "step", "steps",
       "stored", "system",   "the",      "update", "updates", "weights",    "with", "gradients",
       "its",    "momentum", "variance", "pinned"});
  const std::string plain = plain_words(clause);
  return has_word(plain, tensors) && has_word(plain, kPlaces) &&
         std::ranges::all_of(split(plain, ' '), [&](std::string_view word) {
           return std::ranges::find(kRest, word) != kRest.end() ||
                  std::ranges::any_of(tensors, [word](std::string_view name) {
                    return find_word(name, word) != name.npos;
                  });
         });
}

// Inputs of layers that recompute: DeepSpeed's `cpu_checkpointing`, "gradient checkpointing with
// CPU offload", of a row that recomputes also "offloaded checkpoints", but no files of weights.
bool moves_checkpoints(std::string_view said, const Measurement& row) {
  constexpr auto kSwitch = std::to_array<std::string_view>({"cpu checkpointing"});
  constexpr auto kLayers = std::to_array<std::string_view>(
      {"gradient checkpoint", "activation checkpoint", "checkpointed activation"});
  constexpr auto kPlain = std::to_array<std::string_view>(
      {"checkpoint offload", "checkpoints offload", "offloaded checkpoint", "offload checkpoint",
       "checkpointing with cpu offload"});
  constexpr auto kInputs =
      std::to_array<std::string_view>({"gradient checkpoints", "activation checkpoints",
                                       "checkpointed activations", "checkpointed activation"});
  constexpr auto kShort = std::to_array<std::string_view>({"checkpoints"});
  constexpr auto kFiles = std::to_array<std::string_view>(
      {"async", "asynchronous", "model", "weights", "storage", "disk", "save", "saved", "saving",
       "file", "files", "steps", "hour", "hourly", "minutes", "s3"});
  const std::string clause = with_blanks(said);
  if (has_word(clause, kFiles)) {
    return false;
  }
  const bool leaves = clause.find("offload") != clause.npos;
  const bool recomputes = !row.recompute.empty() && row.recompute != "none";
  return switch_set(clause, kSwitch) == true || (leaves && says_any(clause, kLayers)) ||
         keeps_on_host(clause, kInputs) ||
         (recomputes && (says_any(clause, kPlain) || keeps_on_host(clause, kShort)));
}

// Megatron-Core's cpu_offloading_num_layers: of so many layers of all; 0 where it is not set.
double share_of_engine_layers(std::string_view clause, const Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>({"cpu offloading num layers"});
  const double some = number_set(clause, kNames).value_or(0);
  const auto all = static_cast<double>(row.layers.value_or(0));
  return some > 0 && some <= all ? some / all : 0;
}

// One clause in lower case that names what leaves or where to, and with what stands behind its
// comma; switches take over reductions, too. In the cells of framework and stage "offload" alone is
// that of states. DeepSpeed's "CPU offload" is that of the optimizer
// (ZeRO-Offload), PyTorch's CPUOffload that of parameters, too.
void apply_clause(std::string_view clause, std::string_view whole_remark, const Measurement& row,
                  bool place_suffices, bool of_states, Offload& offload) {
  constexpr auto kParameters =
      std::to_array<std::string_view>({"param", "weight", "infinity", "zero-3 offload"});
  constexpr auto kStay = std::to_array<std::string_view>(
      {"params on gpu", "parameters on gpu", "weights on gpu", "params on the gpu",
       "parameters on the gpu", "weights on the gpu", "params stay on gpu", "params kept on gpu",
       "parameters stay on gpu", "parameters stay on the gpu", "weights stay on gpu"});
  constexpr auto kOptimizer = std::to_array<std::string_view>(
      {"optimizer", "optimiser", "gradient", "master", "adam", "states"});
  constexpr auto kPlaces = std::to_array<std::string_view>({"cpu", "host", "nvme"});
  constexpr auto kSwitches = std::to_array<std::string_view>({"sharp"});
  constexpr auto kNoStates = std::to_array<std::string_view>({"checkpoint", "dataset", "eval"});
  constexpr auto kHostSteps = std::to_array<std::string_view>({"cpu adam", "cpuadam"});
  constexpr auto kSteps = std::to_array<std::string_view>(
      {"optimizer", "optimiser", "adam", "adamw", "master weights", "master parameters",
       "master params", "master copy", "master copies"});
  const bool on_host = keeps_on_host(clause, kSteps);
  const bool leaves = clause.find("offload") != clause.npos || moves_checkpoints(clause, row) ||
                      clause.find("zero-infinity") != clause.npos || says_any(clause, kHostSteps) ||
                      on_host;
  if (!leaves || has_word(clause, kSwitches)) {
    return;
  }
  const Tier tier = clause.find("nvme") == clause.npos ? Tier::Host : Tier::Disk;
  const bool checkpoints = moves_checkpoints(clause, row);
  if (clause.find("activation") != clause.npos || checkpoints) {
    // Words without a share ("activation offload overlap") leave the one that another cell states.
    const std::optional<double> share =
        checkpoints ? std::nullopt : share_of(whole_remark, row.layers.value_or(0));
    offload.activations = share ? *share : offload.activations > 0 ? offload.activations : 1;
    offload.activations_tier = tier;
    return;
  }
  if (const double share = share_of_engine_layers(clause, row); share > 0) {
    offload.activations = share;
    return;
  }
  const bool stay = has_word(clause, kStay);
  const bool parameters =
      !stay && (says_any(clause, kParameters) || offloads_stage_3(clause, of_states));
  const bool named =
      parameters || stay || says_any(clause, kOptimizer) || offloads_optimizer(clause);
  const bool states = named && !says_any(clause, kNoStates);
  const bool placed = says_any(clause, kPlaces) || of_states;
  if (states || (placed && place_suffices && !says_any(clause, kNoStates))) {
    // PyTorch's policy moves parameters, and torchtune and torchtitan have no other switch.
    constexpr auto kPolicies = std::to_array<std::string_view>({"fsdp", "torchtune", "torchtitan"});
    const std::string of_policy = to_lower(row.framework + "; " + row.zero_detail);
    const bool fsdp = says_any(of_policy, kPolicies) || clause.find("fsdp") != clause.npos;
    const bool whole = !states && fsdp;
    set_states(row, tier, parameters || whole, offload);
  }
}

// "parameters", "gradients and": a member of a list whose end says that all of it leaves.
bool names_states_alone(std::string_view part) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"parameters", "params", "parameter", "weights", "gradients", "grads", "optimizer", "states",
       "optimiser", "master", "and", "the", "both", "all"});
  const std::vector<std::string_view> words = split(trim(part), ' ');
  return !trim(part).empty() && std::all_of(words.begin(), words.end(), [&](std::string_view word) {
    return is_among(word, kWords);
  });
}

// Of one cell. Beside recomputation a place alone does not say which tensors go there, in the cells
// of framework and stage it does.
void apply_cell(const std::string& cell, const Measurement& row, Offload& offload) {
  const bool of_recomputation = &cell == &row.recompute_detail;
  const bool of_states = &cell == &row.framework || &cell == &row.zero_detail;
  const std::string said = asserted(to_lower(cell));
  for (const std::string_view remark : split(said, ';')) {
    std::size_t last = 0;
    for (std::size_t begin = 0; begin < remark.size();) {
      const std::size_t end = std::min(remark.size(), remark.find(',', begin));
      // "optimizer, offloaded to CPU": what leaves stands before the comma.
      const std::string_view part = trim(remark.substr(begin, end - begin));
      const bool goes_on = part.starts_with("offloaded") || (of_states && part == "offload");
      const bool in_list = begin > 0 && names_states_alone(remark.substr(last, begin - last - 1));
      const std::size_t first = goes_on || in_list ? last : begin;
      const std::string_view clause = remark.substr(first, end - first);
      const bool suffices = of_states || (!of_recomputation && names_nothing_else(clause));
      apply_clause(clause, remark.substr(first), row, suffices, of_states, offload);
      last = in_list ? last : begin;
      begin = end + 1;
    }
  }
}

}  // namespace

Offload stated_offload(const Measurement& row) {
  Offload offload;
  for (const std::string* text : {&row.framework, &row.zero_detail, &row.recompute_detail,
                                  &row.precision_detail, &row.variant, &row.notes}) {
    apply_cell(*text, row, offload);
  }
  return offload;
}

std::vector<std::string> unread_offload(const Measurement& row) {
  constexpr auto kStates = std::to_array<std::string_view>(
      {"optimizer", "optimiser", "states", "param", "twin", "zero"});
  constexpr auto kNotStates = std::to_array<std::string_view>({"activation", "num_layers"});
  constexpr auto kShares =
      std::to_array<std::string_view>({"fraction", "ratio", "share", "offload ratio"});
  std::vector<std::string> lines;
  for (const std::string& clause : asserted_clauses(remarks_of(row))) {
    const double share = number_set(clause, kShares).value_or(1);
    const std::size_t sign = clause.find('%');
    const bool part = (share > 0 && share < 1) ||
                      (sign != clause.npos && sign > 0 && !clause.substr(0, sign).ends_with("100"));
    if (part && clause.find("offload") != clause.npos && says_any(clause, kStates) &&
        !says_any(clause, kNotStates)) {
      lines.push_back(
          fmt::format("\"{}\": offload of a part of the states as {}", printable(trim(clause), 60),
                      stated_offload(row).optimizer == Tier::Device ? "of none" : "of all"));
    }
  }
  return lines;
}

}  // namespace orrery::studies
