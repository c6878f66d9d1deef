// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/overlap_words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/stated_dispatch.hpp"

namespace orrery::studies {
namespace {

void set_grad_overlap(plan::Execution& execution, bool on) {
  execution.overlap_grad_reduce = on;
  execution.overlap_param_gather = on;
}

// One clause of the overlap column, in lower case: what it names is on, what it denies is off.
// False where it names nothing.
bool apply_phrases(std::string_view clause, plan::Execution& execution) {
  constexpr auto kGradients = std::to_array<std::string_view>(
      {"grad rs", "grad reduce", "grad/param", "gradient", "overlap_grad", "overlap-grad",
       "overlap_comm", "dp ar", "dp overlap", "/dp", "data parallel", "dp grad", "bucketed ar",
       "distributed optimizer", "dp comm", "grad overlap"});
  constexpr auto kParameters = std::to_array<std::string_view>(
      {"param ag", "param gather", "param broadcast", "grad/param", "overlap_param",
       "overlap-param", "fsdp", "zero-3 prefetch", "dp overlap", "/dp", "distributed optimizer"});
  constexpr auto kTensor = std::to_array<std::string_view>(
      {"tp gemm", "tp overlap", "tp comm", "tp_comm", "tp-comm", "async tp", "async tensor", "tp/",
       "userbuffers", "tensor parallel comm", "tensor-parallel comm", "tensor parallel overlap",
       "tensor-parallel overlap"});
  constexpr auto kMessages =
      std::to_array<std::string_view>({"p2p", "pp overlap", "/pp", "pp comm", "pipeline comm",
                                       "pipeline-parallel comm", "pipeline overlap", "send/recv"});
  const bool on = !denies_overlap(clause);
  const bool of_weights = clause.find("weight-gradient") != std::string_view::npos;  // products
  const bool named = !on || clause.find("overlap") != std::string_view::npos ||
                     clause.find("hidden") != std::string_view::npos ||
                     clause.starts_with("grad r");
  bool known = false;
  const auto set = [&](bool stated, bool& overlap) {
    overlap = stated ? on : overlap;
    known |= stated;
  };
  const bool of_context = clause.find("cp p2p") != std::string_view::npos;
  const std::string plain = with_short_collectives(clause);
  const auto says = [&](std::span<const std::string_view> phrases) {
    return says_any(clause, phrases) || says_any(plain, phrases);
  };
  set(says(kGradients) && named && !of_weights, execution.overlap_grad_reduce);
  set(says(kParameters), execution.overlap_param_gather);
  // Megatron's batches of messages are what overlapping ones are not (batch_p2p_comm).
  const bool of_batches = plain.find("batch p2p") != plain.npos;
  constexpr auto kLoading = std::to_array<std::string_view>({"data pipeline", "input pipeline"});
  const bool cut = !named && with_signs_as(plain, "/", ' ').find("scatter gather") != plain.npos;
  const bool of_others = of_context || of_batches || cut || says_any(plain, kLoading);
  set(says_any(clause, kMessages) && !of_others, execution.overlap_p2p);
  execution.overlap_p2p = execution.overlap_p2p && !(of_batches && on);
  known |= of_batches;
  set(says_any(clause, kTensor), execution.stream_tp);
  set(find_word(plain, "tp ar") != std::string_view::npos, execution.overlap_tp);
  return known;
}

// How the clauses of a row are read.
struct Reader {
  bool sharded = false;       // parameters are
  bool sends_beside = false;  // stages do, always
  bool data_alone = false;    // no other ranks than data-parallel ones gather and reduce
};

// "DP+TP", "TP: no", "DP RS/AG", "pp=on", "gradient all-reduce": kinds of parallelism, what they
// send and one word for all of them, and nothing else.
bool apply_kinds(std::string_view clause, const Reader& reader, plan::Execution& execution) {
  constexpr auto kKinds = std::to_array<std::string_view>(
      {"dp",       "ddp",  "fsdp",     "tp",         "pp",       "p2p",       "data",     "tensor",
       "pipeline", "grad", "gradient", "grads",      "params",   "param",     "weights",  "ar",
       "ag",       "rs",   "weight",   "parameters", "parallel", "parameter", "gradients"});
  constexpr auto kYes = std::to_array<std::string_view>(
      {"overlap", "overlapped", "overlapping",     "hidden",   "comm", "communication",
       "yes",     "on",         "communications",  "true",     "and",  "parallelism",
       "of",      "with",       "compute",         "gemm",     "the",  "backward",
       "behind",  "by",         "synchronization", "sync",     "in",   "reduction",
       "enabled", "async",      "computation",     "bucketed", "pass", "reduce"});
  constexpr auto kNo = std::to_array<std::string_view>(
      {"no", "not", "off", "false", "disabled", "none", "without", "exposed"});
  // Of "data" and "tensor" alone nobody knows that they mean ranks, and "reduce: sync" no overlap.
  constexpr auto kBare = std::to_array<std::string_view>({"data", "tensor"});
  constexpr auto kOfRanks = std::to_array<std::string_view>(
      {"parallel", "parallelism", "comm", "communication", "communications", "ar", "ag", "rs"});
  constexpr auto kHow =
      std::to_array<std::string_view>({"overlap", "overlapped", "overlapping", "hidden", "yes",
                                       "on", "true", "enabled", "behind", "async", "bucketed"});
  const std::string text = with_signs_as(with_short_collectives(clause), "+/&=:(),", ' ');
  const bool sync = find_word(text, "sync") != text.npos && !has_word(text, kHow);
  if ((has_word(text, kBare) && !has_word(text, kOfRanks)) || (sync && !has_word(text, kNo))) {
    return false;
  }
  bool on = true;
  std::vector<std::string_view> kinds;
  for (const std::string_view word : split(text, ' ')) {
    const auto is_in = [word](std::span<const std::string_view> words) {
      return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (is_in(kKinds)) {
      kinds.push_back(word);
    } else if (!word.empty() && !is_in(kYes) && !is_in(kNo)) {
      return false;
    }
    on = on && !is_in(kNo);
  }
  const auto names = [&](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [&](std::string_view word) {
      return std::find(kinds.begin(), kinds.end(), word) != kinds.end();
    });
  };
  const bool data = names({"dp", "ddp", "data"});
  const bool tensor = names({"tp", "tensor"});
  const bool gradients = names({"grad", "grads", "gradient", "gradients"});
  const bool parameters =
      names({"fsdp", "param", "params", "parameter", "parameters", "weight", "weights"});
  const bool collective = names({"ar", "ag", "rs"});
  const bool whose = data || gradients || parameters || reader.sharded || reader.data_alone;
  if ((tensor && names({"ar"})) || (collective && !tensor && !whose)) {
    return false;
  }
  const bool reduces = collective && !tensor ? names({"ar", "rs"}) : data || gradients;
  const bool gathers = collective && !tensor ? names({"ag"}) : data || parameters;
  execution.overlap_grad_reduce = reduces ? on : execution.overlap_grad_reduce;
  execution.overlap_param_gather = gathers ? on : execution.overlap_param_gather;
  execution.overlap_p2p = names({"pp", "p2p", "pipeline"}) ? on : execution.overlap_p2p;
  execution.stream_tp = tensor ? on : execution.stream_tp;
  return !kinds.empty();
}

// The collectives of parameters that are sharded (ZeRO-3, FSDP) by their own names: "reduce-scatter
// overlapped", "no prefetch". What FSDP prefetches for a backward alone is its default: its forward
// gathers run ahead by themselves (forward_prefetch is for passes that wait for the CPU).
bool apply_sharded(std::string_view said, plan::Execution& execution) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"tp", "cp", "ep", "pp", "sp", "tensor", "context", "expert", "sequence"});
  constexpr auto kPrefetch = std::to_array<std::string_view>({"prefetch", "backward pre"});
  constexpr auto kGathers = std::to_array<std::string_view>({"ag", "ags"});
  constexpr auto kReductions = std::to_array<std::string_view>({"rs"});
  constexpr auto kHides = std::to_array<std::string_view>({"overlap", "hidden"});
  constexpr auto kNone = std::to_array<std::string_view>({"none", "not prefetch"});
  const std::string clause = with_short_collectives(said);
  const bool off = denies_overlap(said) || says_any(clause, kNone);
  const bool prefetches = says_any(clause, kPrefetch);
  const bool gathers = has_word(clause, kGathers) || prefetches;
  const bool reductions = has_word(clause, kReductions);
  if (has_word(clause, kOthers) || (!off && !prefetches && !says_any(clause, kHides))) {
    return false;
  }
  execution.overlap_param_gather = gathers ? !off : execution.overlap_param_gather;
  execution.overlap_grad_reduce = reductions ? !off : execution.overlap_grad_reduce;
  return gathers || reductions;
}

// "EP A2A overlap", "overlap_moe_expert_parallel_comm=True", "1F1B A2A", "expert all-to-all
// exposed", "EP: no".
std::optional<bool> of_exchanges(std::string_view clause) {
  constexpr auto kExchanges = std::to_array<std::string_view>(
      {"a2a", "all to all", "alltoall", "all2all", "expert parallel", "ep", "dispatch"});
  constexpr auto kBeside =
      std::to_array<std::string_view>({"overlap", "hidden", "1f1b", "exposed"});
  constexpr auto kOthers =
      std::to_array<std::string_view>({"cp", "context", "ulysses", "shared", "sequence"});
  const std::string plain = with_signs_as(with_blanks(clause), "=:", ' ');
  const std::string_view last = std::string_view(plain).substr(plain.find_last_of(' ') + 1);
  const bool answered = truth_of(last).has_value() && !is_digit(last.front());
  const bool named = has_word(plain, kExchanges) && (says_any(plain, kBeside) || answered);
  return named && !has_word(plain, kOthers) ? std::optional(!denies_overlap(clause)) : std::nullopt;
}

// Experts that every token meets, which run while the others wait (moe_shared_expert_overlap).
bool apply_shared_experts(std::string_view clause, plan::Execution& execution) {
  const std::string plain = with_blanks(clause);
  const bool named =
      plain.find("shared expert") != plain.npos && plain.find("overlap") != plain.npos;
  execution.overlap_shared_experts =
      named ? !denies_overlap(clause) : execution.overlap_shared_experts;
  return named;
}

bool apply_clause(std::string_view clause, const Reader& reader, plan::Execution& execution) {
  const bool phrases = apply_phrases(clause, execution);
  const bool names = reader.sharded && apply_sharded(clause, execution);
  const bool experts = apply_shared_experts(clause, execution) || of_exchanges(clause).has_value();
  return apply_kinds(clause, reader, execution) || phrases || names || experts;
}

void set_everything(bool on, const Reader& reader, plan::Execution& execution) {
  set_grad_overlap(execution, on);
  execution.overlap_p2p = on || reader.sends_beside;
  execution.stream_tp = on;
}

// "none except DP", "all but TP": everything, then the opposite of what is left out.
bool apply_exception(std::string_view clause, const Reader& reader, plan::Execution& execution) {
  constexpr auto kExcept = std::to_array<std::string_view>(
      {" except for ", " except ", " but ", " apart from ", " other than ", " besides "});
  for (const std::string_view word : kExcept) {
    const std::size_t at = clause.find(word);
    const auto everything = overlap_of_everything(clause.substr(0, at));
    if (at == clause.npos || !everything) {
      continue;
    }
    plan::Execution named = execution;
    set_everything(*everything, reader, named);
    const std::string_view rest = trim(clause.substr(at + word.size()));
    const bool known =
        apply_clause(fmt::format("{}{}", *everything ? "no " : "", rest), reader, named);
    execution = known ? named : execution;
    return known;
  }
  return false;
}

// "DP only", "only the gradient reduction": nothing else. "Backward prefetch only" is FSDP's
// default.
bool apply_only(std::string_view clause, const Reader& reader, plan::Execution& execution) {
  constexpr std::string_view kOnly = "only";
  std::string_view rest = clause;
  rest.remove_suffix(clause.ends_with(kOnly) ? kOnly.size() : 0);
  rest.remove_prefix(rest.starts_with("only ") ? kOnly.size() : 0);
  plan::Execution named = execution;
  set_everything(false, reader, named);
  const bool known = rest.size() < clause.size() && rest.find("prefetch") == rest.npos &&
                     apply_clause(trim(rest), reader, named);
  execution = known ? named : execution;
  return known;
}

// "yes (DP)", "no (TP)": the kinds in the bracket alone.
bool apply_bracket(std::string_view clause, const Reader& reader, plan::Execution& execution) {
  const std::size_t open = clause.find('(');
  const auto value = overlap_of_everything(before_remark(clause));
  if (!value || open == clause.npos || !clause.ends_with(')')) {
    return false;
  }
  const std::string_view kinds = clause.substr(open + 1, clause.size() - open - 2);
  return apply_kinds(fmt::format("{}{}", *value ? "" : "no ", kinds), reader, execution);
}

// False where the clause says nothing that is known.
bool apply_reading(std::string_view clause, const Reader& reader, plan::Execution& execution) {
  if (apply_exception(clause, reader, execution) || apply_only(clause, reader, execution) ||
      apply_bracket(clause, reader, execution)) {
    return true;
  }
  if (const std::optional<bool> everything = overlap_of_everything(clause)) {
    set_everything(*everything, reader, execution);
    return true;
  }
  return apply_clause(clause, reader, execution) ||
         (says_hidden(clause) && apply_clause(without_means(clause), reader, execution));
}

// What notes and variant say of overlap counts before the column's own words; clauses on what else
// may overlap ("data loading") name no kind of communication.
void apply_remarks(const Measurement& row, const Reader& reader, plan::Execution& execution) {
  constexpr auto kOverlap = std::to_array<std::string_view>({"overlap", "prefetch"});
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"offload", "data load", "dataload", "dataset", "checkpoint", "batches", "optimizer step"});
  const std::string text = about_this_run(remarks_of(row));
  for (const std::string_view clause : overlap_clauses(text)) {
    const bool heading = trim(clause) == "overlap";
    // Of everything where the whole clause says so: not "without overlap the step takes 17 s".
    const bool general = overlap_of_everything(clause).has_value();
    if (says_any(clause, kOverlap) && !says_any(clause, kOthers) && !heading &&
        (!general || says_overlap_alone(clause))) {
      apply_reading(clause, reader, execution);
    }
  }
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

// Words for what every plan has, for what other columns state, and for "as usual".
bool is_no_news(std::string_view clause) {
  constexpr auto kNoNews = std::to_array<std::string_view>(
      {"default",       "not stated",      "not in table",   "latency hiding",  "reshard",
       "bucket",        "mixed_precision", "scatter/gather", "cp p2p",          "cp overlap",
       "cp all-gather", "post-validation", "vocabulary",     "weight-gradient", "ps all-reduce",
       "async tp",      "shard",           "hsdp",           "across nodes",    "in node",
       "offload",       "ulysses",         "ring",           "async p2p"});
  return clause.empty() || says_any(clause, kNoNews) || names_dispatch(clause);
}

// 'did you mean "gradient"?' for the first word that is a known one misspelt.
std::string likely_word(std::string_view clause) {
  static const std::vector<std::string> kWords = {
      "gradient",   "gradients", "reduce",   "scatter",     "gather",        "param",
      "parameters", "tensor",    "pipeline", "overlap",     "overlapped",    "hidden",
      "exposed",    "bucketed",  "prefetch", "userbuffers", "communication", "fsdp"};
  for (const std::string_view word : split(clause, ' ')) {
    if (const std::string meant = misspelt_name(word, kWords); !meant.empty()) {
      return fmt::format(" (did you mean \"{}\"?)", meant);
    }
  }
  return "";
}

// "optimizer post-validation for ZB schedules": of rows whose schedule is one of these.
void apply_post_validation(const Measurement& row, plan::Execution& execution) {
  constexpr std::string_view kName = "post validation";
  const std::string said = asserted_with_blanks(to_lower(row.overlap + "; " + row.notes));
  const bool zero_bubble = letters_and_digits(row.schedule).starts_with("zb");
  execution.post_validation |= zero_bubble && said.find(kName) != said.npos;
}

}  // namespace

std::optional<bool> stated_hidden_exchanges(const Measurement& row) {
  constexpr auto kSettings = std::to_array<std::string_view>(
      {"overlap moe expert parallel comm", "moe a2a overlap", "ep a2a overlap", "a2a overlap"});
  const std::string text = to_lower(row.overlap);
  std::optional<bool> stated = overlaps_nothing(text) ? std::optional(false) : std::nullopt;
  for (const std::string_view clause : overlap_clauses(text)) {
    const std::optional<bool> said = of_exchanges(clause);
    stated = said ? said : stated;
  }
  return stated ? stated : switch_set(row.variant + "; " + row.notes, kSettings);
}

std::vector<std::string> unread_overlap(const Measurement& row) {
  const std::string text = to_lower(row.overlap);
  const Reader reader{shards_parameters(row), false, row.tp.value_or(1) == 1};
  std::vector<std::string> lines;
  const std::string notes = about_this_run(row.notes);
  for (const std::string_view clause : overlap_clauses(notes)) {
    if (clause.find("overlap") != clause.npos && says_overlap_alone(clause)) {
      lines.push_back(fmt::format("\"{}\" (notes) of all communication", printable(clause, 60)));
    }
  }
  constexpr auto kSteps = std::to_array<std::string_view>(
      {"tp overlap", "pp overlap", "dp overlap", "misc", "lamb", "sliding window", "block"});
  if (overlaps_nothing(text) || (text.starts_with('+') && says_any(text, kSteps))) {
    return lines;
  }
  if (text.starts_with('+')) {
    return {fmt::format("overlap \"{}\" as not stated", printable(text, 60))};
  }
  for (const std::string_view clause : overlap_clauses(text)) {
    plan::Execution unused;
    if (!apply_reading(clause, reader, unused) && !is_no_news(clause)) {
      lines.push_back(fmt::format("overlap \"{}\" as not stated{}", printable(clause, 60),
                                  likely_word(clause)));
    }
  }
  return lines;
}

void apply_overlap(const Measurement& row, const FrameworkFacts& framework,
                   plan::Execution& execution) {
  const std::string text = to_lower(row.overlap);
  const Reader reader{shards_parameters(row), framework.sends_beside, row.tp.value_or(1) == 1};
  apply_remarks(row, reader, execution);
  apply_post_validation(row, execution);
  if (apply_bracket(text, reader, execution)) {
    return;
  }
  if (overlaps_nothing(text)) {
    set_everything(false, reader, execution);
    return;
  }
  if (text.starts_with('+')) {
    apply_step(text, execution);
    return;
  }
  for (const std::string_view clause : overlap_clauses(text)) {
    apply_reading(clause, reader, execution);
  }
}

}  // namespace orrery::studies
