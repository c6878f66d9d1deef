// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_overlap.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

void set_grad_overlap(plan::Execution& execution, bool on) {
  execution.overlap_grad_reduce = on;
  execution.overlap_param_gather = on;
}

// One clause of the overlap column, in lower case: what it names is on, what it denies is off.
void apply_clause(std::string_view clause, plan::Execution& execution) {
  constexpr auto kDenials = std::to_array<std::string_view>(
      {"no overlap", "not overlap", "not hidden", "without", " off", "exposed", "disabled",
       "=false", "after backward", "at iteration end", "batched"});
  constexpr auto kGradients = std::to_array<std::string_view>(
      {"grad rs", "grad reduce", "grad/param", "gradient", "overlap_grad", "overlap-grad",
       "overlap_comm", "dp all-reduce", "dp overlap", "/dp", "data-parallel", "data parallel",
       "dp grad", "bucketed all-reduce", "distributed optimizer", "dp comm", "grad overlap"});
  constexpr auto kParameters = std::to_array<std::string_view>(
      {"param ag", "param all-gather", "param gather", "param broadcast", "grad/param",
       "overlap_param", "overlap-param", "fsdp", "zero-3 prefetch", "dp overlap", "/dp",
       "distributed optimizer"});
  constexpr auto kTensor = std::to_array<std::string_view>(
      {"tp gemm", "tp overlap", "tp comm", "tp_comm", "tp-comm", "async tp", "tp/", "userbuffers",
       "tensor parallel comm", "tensor-parallel comm", "tensor parallel overlap",
       "tensor-parallel overlap"});
  constexpr auto kMessages =
      std::to_array<std::string_view>({"p2p", "pp overlap", "/pp", "pp comm", "pipeline comm",
                                       "pipeline-parallel comm", "pipeline overlap", "send/recv"});
  const bool on = !says_any(clause, kDenials) && !clause.starts_with("no ");
  const bool of_weights = clause.find("weight-gradient") != std::string_view::npos;  // products
  const bool named = !on || clause.find("overlap") != std::string_view::npos ||
                     clause.find("hidden") != std::string_view::npos ||
                     clause.starts_with("grad r");
  if (says_any(clause, kGradients) && named && !of_weights) {
    execution.overlap_grad_reduce = on;
  }
  if (says_any(clause, kParameters)) {
    execution.overlap_param_gather = on;
  }
  if (says_any(clause, kMessages) && clause.find("cp p2p") == std::string_view::npos) {
    execution.overlap_p2p = on;
  }
  if (says_any(clause, kTensor)) {
    execution.stream_tp = on;
  }
  if (clause.find("tp all-reduce") != std::string_view::npos) {
    execution.overlap_tp = on;
  }
}

// "all communication overlapped", "no communication overlap": every kind that is modelled; no value
// for clauses that name one kind.
std::optional<bool> of_everything(std::string_view clause) {
  constexpr auto kKinds = std::to_array<std::string_view>(
      {"dp", "tp", "pp", "cp", "ep", "p2p", "fsdp", "zero", "grad", "gradient", "gradients",
       "param", "parameter", "data", "tensor", "pipeline", "context", "expert"});
  constexpr auto kYes =
      std::to_array<std::string_view>({"all", "yes", "on", "true", "1", "full", "enabled"});
  constexpr auto kNo = std::to_array<std::string_view>({"no", "false", "0", "disabled"});
  const bool yes = std::find(kYes.begin(), kYes.end(), clause) != kYes.end();
  if (yes || std::find(kNo.begin(), kNo.end(), clause) != kNo.end()) {
    return yes;
  }
  if (has_word(clause.substr(0, clause.find('(')), kKinds)) {
    return std::nullopt;
  }
  constexpr auto kAll = std::to_array<std::string_view>(
      {"all communication overlap", "all comm overlap", "all overlap", "everything overlap",
       "full overlap", "fully overlap", "communication overlapped with comp"});
  constexpr auto kNone = std::to_array<std::string_view>(
      {"no communication overlap", "no comm overlap", "communication not overlap",
       "comm not overlap", "without overlap", "nothing overlap", "no overlap of"});
  const bool none = says_any(clause, kNone);
  const bool all = !none && std::any_of(kAll.begin(), kAll.end(), [clause](std::string_view word) {
    return clause.starts_with(word);
  });
  return none || all ? std::optional(all) : std::nullopt;
}

// Clauses end at semicolons, and at commas outside of brackets.
std::vector<std::string_view> clauses_of(std::string_view text) {
  std::vector<std::string_view> clauses;
  std::size_t begin = 0;
  int depth = 0;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ';';
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (at == text.size() || c == ';' || (c == ',' && depth <= 0)) {
      clauses.push_back(trim(text.substr(begin, at - begin)));
      begin = at + 1;
    }
  }
  return clauses;
}

// MegaScale's steps add up: tensor, pipeline, data parallelism, then what is not modelled.
void apply_step(std::string_view text, plan::Execution& execution) {
  constexpr auto kLater = std::to_array<std::string_view>({"dp overlap", "+misc", "+lamb"});
  const bool with_data = says_any(text, kLater);
  const bool with_pipeline = with_data || text.find("pp overlap") != std::string_view::npos;
  if (with_data) {
    set_grad_overlap(execution, true);
  }
  execution.overlap_p2p = execution.overlap_p2p || with_pipeline;
  execution.stream_tp =
      execution.stream_tp || with_pipeline || text.find("tp overlap") != std::string_view::npos;
}

}  // namespace

void apply_overlap(const Measurement& row, const FrameworkFacts& framework,
                   plan::Execution& execution) {
  constexpr auto kNothing =
      std::to_array<std::string_view>({"no overlap", "not overlapped", "off"});
  const std::string text = to_lower(row.overlap);
  if (text.starts_with("none") ||
      std::find(kNothing.begin(), kNothing.end(), text) != kNothing.end()) {
    set_grad_overlap(execution, false);
    execution.overlap_p2p = framework.sends_beside;
    execution.stream_tp = false;
    return;
  }
  if (text.starts_with('+')) {
    apply_step(text, execution);
    return;
  }
  for (const std::string_view clause : clauses_of(text)) {
    if (const std::optional<bool> everything = of_everything(clause)) {
      set_grad_overlap(execution, *everything);
      execution.overlap_p2p = *everything || framework.sends_beside;
      execution.stream_tp = *everything;
    } else {
      apply_clause(clause, execution);
    }
  }
  if (row.notes_mention("DP gradient all-reduce not overlapped")) {
    execution.overlap_grad_reduce = false;
  }
}

}  // namespace orrery::studies
