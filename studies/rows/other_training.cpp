// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/other_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/named_network.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_adapters.hpp"
#include "studies/rows/stated_window.hpp"

namespace orrery::studies {
namespace {

std::string training_text(const Measurement& row) { return remarks_of(row) + "; " + row.framework; }

// Of serving.
bool is_server(const std::string& framework) {
  constexpr auto kServers = std::to_array<std::string_view>(
      {"vllm", "tensorrt-llm", "trt-llm", "sglang", "text-generation-inference"});
  return std::ranges::any_of(kServers, [&](auto name) { return framework.starts_with(name); });
}

// Of serving or of a simulator.
std::string untrained(const Measurement& row) {
  constexpr auto kClauses = std::to_array<std::string_view>(
      {"inference", "inference only", "forward only", "forward pass only", "forward only run",
       "inference run", "inference throughput", "inference latency", "simulated", "simulation",
       "simulated run", "simulation result", "simulation results", "simulated results"});
  for (const std::string& clause : asserted_clauses(with_blanks(remarks_of(row)))) {
    if (std::ranges::find(kClauses, trim(clause)) != kClauses.end()) {
      return std::string(trim(clause));
    }
  }
  return "";
}

// Steps of several models, or of several passes.
std::string_view objective_in(std::string_view said) {
  constexpr auto kObjectives = std::to_array<std::string_view>(
      {"dpo", "ppo", "grpo", "kto", "orpo", "rloo", "rlhf", "reward model", "reward modeling",
       "reward modelling", "distillation", "knowledge distillation"});
  // Of a step that comes before or after this run's, or of somebody's paper.
  constexpr auto kElsewhere = std::to_array<std::string_view>(
      {"before", "prior to", "then", "followed by", "stage of", "paper", "as in", "later"});
  for (const std::string_view clause : split(said, ';')) {
    const auto* const found = std::ranges::find_if(
        kObjectives, [clause](auto word) { return find_word(clause, word) != clause.npos; });
    if (found != kObjectives.end() && !has_word(clause, kElsewhere)) {
      return *found;
    }
  }
  return {};
}

// "first 16 layers frozen", "only head trained"; adapters are modelled, and their other weights
// frozen.
std::string frozen_in(const Measurement& row) {
  constexpr auto kFrozen =
      std::to_array<std::string_view>({"frozen layers", "frozen", "freeze", "freezing"});
  constexpr auto kOthers =
      std::to_array<std::string_view>({"gc", "clock", "clocks", "garbage", "nothing", "software",
                                       "container", "code", "version", "versions", "tokenizer"});
  constexpr auto kAlone =
      std::to_array<std::string_view>({"only head trained", "linear probe", "linear probing"});
  constexpr auto kHead = std::to_array<std::string_view>({"only the head", "head only"});
  constexpr auto kTrained = std::to_array<std::string_view>(
      {"train", "trains", "trained", "training", "tuned", "tuning", "updated"});
  const bool adapters = names_adapters(row.variant) || names_adapters(row.notes) ||
                        names_adapters(row.model_name) || names_adapters(row.framework);
  for (const std::string& said : asserted_clauses(training_text(row))) {
    const std::string clause = with_blanks(said);
    const bool frozen =
        !adapters && switch_set(clause, kFrozen) == true && !has_word(clause, kOthers);
    const bool head = has_word(clause, kHead) && has_word(clause, kTrained);
    if (frozen || head || has_word(clause, kAlone)) {
      return std::string(trim(clause));
    }
  }
  return "";
}

struct Unmodelled {
  std::string_view word;
  std::string_view line;
};
constexpr std::string_view kPrediction = "multi-token prediction is left out";
constexpr std::string_view kPacked =
    "documents of a sequence as one: their tokens all see each other";
constexpr std::string_view kCompressed = "compressed gradients as whole ones";
constexpr std::string_view kPlus = "ZeRO++ as ZeRO: messages in full width over all ranks";
constexpr std::string_view kPower = "a limit of power as the GPU's own";
constexpr std::string_view kClocks = "locked clocks as the GPU's own";
constexpr std::string_view kLocal = "local steps between exchanges as an exchange every step";
constexpr std::string_view kServer = "parameter servers as all-reduces among ranks";
constexpr std::string_view kBlocking = "an oversubscribed network as one of full bandwidth";
constexpr std::string_view kNoPeers = "messages through host memory (NCCL_P2P_DISABLE) as direct";
constexpr std::string_view kAsAdam = "the optimizer as Adam, with its states";
constexpr std::string_view kStepsInBackward = "steps within the backward as one behind it";
constexpr std::string_view kGathered =
    "tokens gathered by all ranks of experts as sent to their own";
constexpr std::string_view kApart = "products of experts one by one as grouped ones";
constexpr auto kUnmodelled = std::to_array<Unmodelled>({{"mtp", kPrediction},
                                                        {"multi token prediction", kPrediction},
                                                        {"packed", kPacked},
                                                        {"packing", kPacked},
                                                        {"variable length", kPacked},
                                                        {"varlen", kPacked},
                                                        {"document mask", kPacked},
                                                        {"document masking", kPacked},
                                                        {"powersgd", kCompressed},
                                                        {"1 bit adam", kCompressed},
                                                        {"1 bit lamb", kCompressed},
                                                        {"gradient compression", kCompressed},
                                                        {"zero++", kPlus},
                                                        {"hpz", kPlus},
                                                        {"qwz", kPlus},
                                                        {"qgz", kPlus},
                                                        {"power capped", kPower},
                                                        {"power cap", kPower},
                                                        {"power limit", kPower},
                                                        {"power limited", kPower},
                                                        {"locked clocks", kClocks},
                                                        {"clocks locked", kClocks},
                                                        {"clock locked", kClocks},
                                                        {"gpus capped at", kPower},
                                                        {"gpu capped at", kPower},
                                                        {"gpus capped to", kPower},
                                                        {"gpu capped to", kPower},
                                                        {"power capped to", kPower},
                                                        {"parameter server", kServer},
                                                        {"parameter servers", kServer},
                                                        {"diloco", kLocal},
                                                        {"local sgd", kLocal},
                                                        {"oversubscribed", kBlocking},
                                                        {"oversubscription", kBlocking},
                                                        {"nccl p2p disable", kNoPeers},
                                                        {"galore", kAsAdam},
                                                        {"lomo", kAsAdam},
                                                        {"adalomo", kAsAdam},
                                                        {"shampoo", kAsAdam},
                                                        {"optimizer in backward", kStepsInBackward},
                                                        {"optimizer in bwd", kStepsInBackward},
                                                        {"allgather dispatcher", kGathered},
                                                        {"all gather dispatcher", kGathered},
                                                        {"dispatcher type=allgather", kGathered},
                                                        {"dispatcher type: allgather", kGathered},
                                                        {"dispatcher type allgather", kGathered}});

// Colossal-AI's tensor parallelism in two and more dimensions; "" where the row names none. Of
// other frameworks "2D" is FSDP and tensor parallelism.
std::string tensor_grid(const Measurement& row) {
  constexpr auto kGrids = std::to_array<std::string_view>({"2d", "2.5d", "3d"});
  constexpr auto kTensor = std::to_array<std::string_view>({"tensor", "tp", "1d"});
  constexpr auto kOfTensors = std::to_array<std::string_view>({"3d tensor", "3d tp"});
  const bool colossal = letters_and_digits(row.framework).find("colossal") != std::string::npos;
  for (const std::string& clause : asserted_clauses(training_text(row))) {
    const bool of_tensors = has_word(clause, kTensor);
    // Of three kinds.
    const bool whole = clause.find("3d parallel") != clause.npos && !has_word(clause, kOfTensors);
    if (has_word(clause, kGrids) && !whole && (of_tensors || colossal)) {
      return printable(trim(clause), 60);
    }
  }
  return "";
}

// What is asserted, without "DiLoCo is future work" and "oversubscription 1:1".
std::string without_plans(std::string_view text) {
  constexpr auto kPlans = std::to_array<std::string_view>({"future", "planned", "1:1"});
  std::string said;
  for (const std::string& clause : asserted_clauses(with_blanks(text))) {
    said.append(has_word(clause, kPlans) ? "" : clause).append("; ");
  }
  return said;
}

}  // namespace

std::string no_plain_training(const Measurement& row) {
  const std::string framework = to_lower(row.framework);
  const bool serves = is_server(framework);
  if (!serves && row.metric.starts_with("layer_")) {  // a pass of one is what it is
    return "";
  }
  if (const std::string said = serves ? framework : untrained(row); !said.empty()) {
    return fmt::format("\"{}\" is no measured training step", printable(said, 60));
  }
  std::string said(objective_in(asserted_with_blanks(training_text(row))));
  if (said.empty()) {
    said = frozen_in(row);
  }
  return said.empty() ? ""
                      : fmt::format(
                            "\"{}\": only training of all weights, or of adapters, on one "
                            "pass over a batch is modelled",
                            printable(said, 60));
}

std::vector<std::string> unmodelled_remarks(const Measurement& row) {
  const std::string said =
      without_plans(training_text(row) + "; " + row.zero_detail + "; " + row.inter_node);
  std::vector<std::string> lines;
  for (const Unmodelled& one : kUnmodelled) {
    const bool known = !lines.empty() && lines.back() == one.line;
    if (!known && find_word(said, one.word) != said.npos) {
      lines.emplace_back(one.line);
    }
  }
  constexpr auto kGrouped = std::to_array<std::string_view>({"grouped gemm", "grouped gemms"});
  if (row.experts.value_or(0) > 0 && switch_set(remarks_of(row), kGrouped) == false) {
    lines.emplace_back(kApart);
  }
  if (const std::string grid = tensor_grid(row); !grid.empty()) {
    lines.push_back(fmt::format("\"{}\": tensor parallelism in one dimension", grid));
  }
  constexpr std::string_view kWindow = "sliding window";
  if (find_word(said, kWindow) != said.npos && !stated_window(row)) {
    const auto named = named_network(row);
    if (!named || named->sliding_window == 0) {
      lines.emplace_back("a sliding window of unknown size as attention over the whole sequence");
    }
  }
  return lines;
}

}  // namespace orrery::studies
