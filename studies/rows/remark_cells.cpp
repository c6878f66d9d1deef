// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/remark_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "calibrate/kernel_words.hpp"
#include "sim/schedule.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/recompute_operators.hpp"
#include "studies/rows/recompute_words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "studies/rows/zero_words.hpp"
#include "topologies/network_remarks.hpp"

namespace orrery::studies {
namespace {

// The clauses about this run, denials and all, in lower case.
std::vector<std::string> clauses_of(const Measurement& row) {
  const std::string text = with_signs_as(about_this_run(remarks_of(row)), ",()\n", ';');
  std::vector<std::string> clauses;
  for (const std::string_view clause : split(text, ';')) {
    clauses.emplace_back(trim(clause));
  }
  return clauses;
}

// Whether a clause is about what somebody counts, guesses or does not know.
bool is_no_statement(std::string_view clause) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"flop", "mfu", "hfu", "count", "formula", "stated", "given", "known", "inferred", "assum",
       "clear", "may be", "overhead", "avoid"});
  constexpr auto kFits = std::to_array<std::string_view>({"fits"});  // "fits with ZeRO-3"
  // "recompute/SP/overlap from the yaml of the same model": where others of its cells come from.
  constexpr auto kFrom = std::to_array<std::string_view>({"from"});
  constexpr auto kFiles =
      std::to_array<std::string_view>({"yaml", "yml", "toml", "json", "config", "script",
                                       "repository", "table", "readme", "paper"});
  return says_any(clause, kWords) || has_word(clause, kFits) ||
         (has_word(clause, kFrom) && says_any(clause, kFiles));
}

void read_recompute(const std::string& clause, Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"gradient checkpointing", "activation checkpointing", "activation checkpoint",
       "activation recomputation", "activation recompute", "recompute granularity",
       "recompute activations", "recomputation", "recompute", "activations checkpoint",
       "activation ckpt", "rematerialization", "remat", "remat policy", "full ac", "selective ac",
       "sac"});
  // "throughput recomputed from the log", "checkpointed every hour" are about something else.
  constexpr auto kDone = std::to_array<std::string_view>({"recomputed", "checkpointed"});
  constexpr auto kWhat = std::to_array<std::string_view>(
      {"layer", "layers", "block", "blocks", "activation", "activations", "attention", "mlp"});
  // "weights checkpointed hourly", "gradient checkpointing saves 40%" are about files and effects.
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"weight",  "weights", "hourly",     "daily",   "hour",   "hours",  "minutes", "disk",
       "storage", "file",    "files",      "plot",    "plots",  "figure", "figures", "maps",
       "metrics", "steps",   "iterations", "epoch",   "epochs", "save",   "saves",   "saved",
       "saving",  "cost",    "costs",      "reduces", "would",  "could"});
  constexpr auto kNothing = std::to_array<std::string_view>(
      {"recompute nothing", "recomputes nothing", "nothing recomputed", "nothing is recomputed",
       "checkpoint nothing", "nothing checkpointed"});
  const std::string plain = with_blanks(clause);
  const bool nothing = has_word(plain, kNothing);
  if (has_word(plain, kOthers) || (!nothing && !has_word(plain, kNames) &&
                                   !(has_word(plain, kDone) && has_word(plain, kWhat)))) {
    return;
  }
  const bool denied = nothing || switch_set(clause, kNames) == false;
  const RecomputeWords words =
      denied ? RecomputeWords{"none", "", ""} : recompute_words(clause, "");
  const bool policy = words.name == "custom" && !recomputed_operators(words.detail).empty();
  if (words.name == "none" || words.name == "full" || words.name == "selective" || policy) {
    row.recompute = words.name;
    row.recompute_detail = words.detail;
    row.remarks.push_back(fmt::format("recompute {} (\"{}\")", words.name, printable(clause, 60)));
  }
}

// "recompute-granularity full; recompute-method block; recompute-num-layers 2": what stands behind
// says which layers.
void read_recompute_detail(const std::string& clause, Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"recompute method", "recompute num layers", "activations checkpoint method",
       "activations checkpoint num layers", "checkpoint num layers"});
  if (has_word(with_blanks(clause), kNames)) {
    row.recompute_detail.append("; ").append(clause);
    row.remarks.push_back(fmt::format("recompute_detail \"{}\"", printable(clause, 60)));
  }
}

// "no FlashAttention", "flash attention was not yet available": a denial and nothing else, of every
// version. "FlashAttention-3 not available" leaves the others.
bool denies_all_flash(const std::string& plain) {
  constexpr auto kWords = std::to_array<std::string_view>({"",
                                                           "a",
                                                           "any",
                                                           "at",
                                                           "attention",
                                                           "attn",
                                                           "available",
                                                           "disabled",
                                                           "enabled",
                                                           "flash",
                                                           "for",
                                                           "gpus",
                                                           "flashattention",
                                                           "implemented",
                                                           "installed",
                                                           "is",
                                                           "kernel",
                                                           "kernels",
                                                           "never",
                                                           "no",
                                                           "non",
                                                           "not",
                                                           "of",
                                                           "off",
                                                           "on",
                                                           "run",
                                                           "sdpa",
                                                           "supported",
                                                           "that",
                                                           "the",
                                                           "then",
                                                           "these",
                                                           "this",
                                                           "time",
                                                           "use",
                                                           "used",
                                                           "uses",
                                                           "was",
                                                           "we",
                                                           "were",
                                                           "with",
                                                           "without",
                                                           "w",
                                                           "o",
                                                           "yet",
                                                           "false",
                                                           "none",
                                                           "unavailable",
                                                           "unsupported"});
  const std::string words = with_signs_as(plain, "=:()+./", ' ');
  return !calibrate::flash_version(plain) &&
         std::ranges::all_of(split(words, ' '),
                             [&](std::string_view word) { return is_among(word, kWords); });
}

void read_attention(const std::string& clause, Measurement& row) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"fa2", "fa3", "fa4", "flashattention", "flashattention2", "flashattention3",
       "flash attention", "flash attn", "sdpa", "attn implementation", "attn impl",
       "attention implementation", "eager attention", "naive attention", "unfused attention",
       "cudnn attention", "xformers"});
  // "attention with plain matmuls": products of FLOP counts and of formats have no such words.
  constexpr auto kAttention = std::to_array<std::string_view>({"attention", "attn"});
  constexpr auto kProducts = std::to_array<std::string_view>(
      {"plain matmuls", "plain matmul", "plain bmm", "separate matmuls", "batched matmuls",
       "matmuls and softmax", "matmul and softmax", "bmm and softmax", "baddbmm", "torch.bmm"});
  // Without these, attention is two products with softmax between them; "no FA3" leaves it open.
  constexpr auto kFused =
      std::to_array<std::string_view>({"flashattention", "flash attention", "flash attn", "sdpa"});
  const std::string plain = with_blanks(clause);
  const bool products = has_word(plain, kAttention) && has_word(plain, kProducts);
  if (!products && !has_word(plain, kNames)) {
    return;
  }
  const bool denied = trim(asserted(plain)).empty();
  if (denied && (!has_word(plain, kFused) || !denies_all_flash(plain))) {
    return;
  }
  row.attention_impl = denied ? "unfused: " + plain : plain;
  row.remarks.push_back(fmt::format("attention_impl {}", printable(row.attention_impl, 60)));
}

OptionalCount numbered_stage(const std::string& clause) {
  constexpr auto kStages =
      std::to_array<std::string_view>({"zero stage", "zero", "deepspeed stage"});
  const double stage = number_set(clause, kStages).value_or(-1);
  return stage >= 0 && stage <= 3 && stage == std::floor(stage)
             ? OptionalCount(static_cast<std::int64_t>(stage))
             : std::nullopt;
}

OptionalCount named_stage(const std::string& clause) {
  constexpr auto kSharded = std::to_array<std::string_view>(
      {"fsdp", "fsdp2", "hsdp", "fully sharded", "fully shard", "zero3"});
  constexpr auto kDistributed = std::to_array<std::string_view>(
      {"use distributed optimizer", "distributed optimizer", "zero1"});
  constexpr auto kTwo = std::to_array<std::string_view>({"zero2"});
  const std::string said = asserted_with_blanks(clause);
  if (has_word(said, kSharded)) {
    return 3;
  }
  if (has_word(said, kTwo)) {
    return 2;
  }
  const std::optional<bool> on = switch_set(clause, kDistributed);
  return on ? OptionalCount(*on ? 1 : 0) : std::nullopt;
}

// "DeepSpeed (stage 2)", "FSDP SHARD_GRAD_OP", "PyTorch DDP"; what FSDP does by itself is no news.
OptionalCount stage_of_framework(const std::string& framework) {
  constexpr auto kStages = std::to_array<std::string_view>({"zero stage", "zero", "stage"});
  constexpr auto kTwo = std::to_array<std::string_view>({"shard grad op", "zero offload"});
  constexpr auto kHybrid = std::to_array<std::string_view>({"hsdp", "hybrid shard", "gemini"});
  constexpr auto kWhole = std::to_array<std::string_view>({"ddp", "no shard"});
  constexpr auto kShards = std::to_array<std::string_view>({"fsdp", "fsdp1", "fsdp2"});
  constexpr auto kInfinity = std::to_array<std::string_view>({"zero infinity"});
  const std::string said = asserted_with_blanks(framework);
  const double stage = number_set(said, kStages).value_or(-1);
  if (stage >= 0 && stage <= 3 && stage == std::floor(stage)) {
    return static_cast<std::int64_t>(stage);
  }
  // "PyTorch FSDP/DDP" names two stages, so none.
  if (has_word(said, kWhole) && (has_word(said, kShards) || has_word(said, kHybrid))) {
    return std::nullopt;
  }
  if (has_word(said, kInfinity)) {
    return stage_of_zero(kInfinity.front());
  }
  return has_word(said, kTwo)      ? OptionalCount(2)
         : has_word(said, kHybrid) ? OptionalCount(3)
         : has_word(said, kWhole)  ? OptionalCount(0)
                                   : std::nullopt;
}

void read_stage_of_framework(Measurement& row) {
  const OptionalCount stage = stage_of_framework(row.framework);
  if (stage && (*stage != 3 || !shards_parameters(row))) {
    row.zero_stage = stage;
    row.remarks.push_back(
        fmt::format("zero_stage {} (\"{}\")", *stage, printable(row.framework, 60)));
  }
}

// "no sequence parallel", "--sequence-parallel"; rings and Ulysses are context parallelism.
void read_sequence_parallel(const std::vector<std::string>& clauses, Measurement& row) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"sequence parallel", "sequence parallelism", "megatron sp"});
  constexpr auto kOthers = std::to_array<std::string_view>({"ring", "ulysses", "deepspeed"});
  for (const std::string& clause : clauses) {
    if (const auto on = switch_set(clause, kNames); on && !has_word(to_lower(row.notes), kOthers)) {
      row.sequence_parallel = on;
      row.remarks.push_back(
          fmt::format("sequence_parallel {} (\"{}\")", *on ? 1 : 0, printable(clause, 60)));
    }
  }
}

// "FP8 training", "bf16 mixed precision".
void read_precision(const std::string& clause, Measurement& row) {
  constexpr auto kFormats = std::to_array<std::string_view>(
      {"fp8", "mxfp8", "bf16", "bfloat16", "fp16", "float16", "fp32", "tf32"});
  constexpr auto kOf =
      std::to_array<std::string_view>({"training", "trained", "mixed precision", "precision",
                                       "gemm", "gemms", "matmul", "matmuls", "hybrid", "amp"});
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"gradient", "gradients",     "grads",     "grad",       "reduce",   "optimizer", "states",
       "master",   "accumulation",  "peak",      "all gather", "dispatch", "softmax",   "loss",
       "norm",     "norms",         "layernorm", "rmsnorm",    "router",   "rope",      "rotary",
       "logits",   "cross entropy", "embedding", "embeddings"});
  const std::string said = asserted_with_blanks(clause);
  if (has_word(said, kFormats) && has_word(said, kOf) && !has_word(said, kOthers)) {
    row.precision = precision_name(said);
    row.remarks.push_back(
        fmt::format("precision {} (\"{}\")", row.precision, printable(clause, 60)));
  }
}

// "NCCL over 100G Ethernet".
void read_network_remark(const std::string& clause, Measurement& row) {
  if (topologies::states_network(asserted(clause))) {
    const std::string remarks = remarks_of(row);
    const std::size_t at = to_lower(remarks).find(clause);  // units are told apart by their case
    row.inter_node = at == remarks.npos ? clause : remarks.substr(at, clause.size());
    row.remarks.push_back(fmt::format("inter_node \"{}\"", printable(clause, 60)));
  }
}

// "interleaved data loading" interleaves something else.
bool is_about_chunks(std::string_view clause) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"interleaved", "interleaving", "interleave", "non",       "1f1b",   "with",
       "without",     "virtual",      "pipeline",   "pipelines", "stages", "stage",
       "chunks",      "chunk",        "model",      "parallel",  "size",   "degree",
       "per",         "device",       "rank",       "gpu",       "vpp",    "vp",
       "v",           "factor",       "schedule",   "num",       "layers", "layer",
       "and",         "of",           "the",        "a",         "each",   "no"});
  const std::string plain = with_signs_as(with_blanks(clause), "=:+/", ' ');
  const std::vector<std::string_view> words = split(plain, ' ');
  return std::all_of(words.begin(), words.end(), [&](std::string_view word) {
    return word.find_first_not_of("0123456789") == word.npos ||
           (word.starts_with("vpp") && word.find_first_not_of("0123456789", 3) == word.npos) ||
           is_among(word, kWords);
  });
}

// "GPipe", "interleaved with 5 virtual stages": a clause that is the name of a schedule.
void read_schedule_remark(std::string_view clause, Measurement& row) {
  for (const std::string_view noun : {" schedule", " pipeline", " pipeline schedule"}) {
    clause.remove_suffix(clause.ends_with(noun) ? noun.size() : 0);
  }
  const std::string name = schedule_name(clause);
  const bool chunked = name == "interleaved" || name == "1f1b";
  if (name == "none" || !sim::is_registered_schedule(name) || row.pp.value_or(1) <= 1 ||
      (chunked && !is_about_chunks(clause))) {
    return;
  }
  row.schedule = name;
  if (to_lower(trim(row.variant)) == trim(clause)) {
    row.variant.clear();
  }
  row.remarks.push_back(fmt::format("schedule {} (\"{}\")", name, printable(clause, 60)));
  const OptionalCount chunks = chunks_in_schedule(clause);
  if (chunks && !row.vpp && !row.most_chunks) {
    row.vpp = chunks;
    row.remarks.push_back(fmt::format("vpp {}", *chunks));
  }
}

// "vocab-1", "redis": a clause that is the name of a scheme for a pipeline's output layer.
void read_variant_remark(std::string_view clause, Measurement& row) {
  const std::string name = variant_name(clause);
  const bool schedules =
      row.schedule == "1f1b" || (row.schedule == "v-half" && name.starts_with("vocab"));
  if (is_vocabulary_scheme(name) && schedules && row.pp.value_or(1) > 1) {
    row.variant = name;
    row.remarks.push_back(fmt::format("variant {} (\"{}\")", name, printable(clause, 60)));
  }
}

// A number counts before a name: "FSDP (ZeRO-2)".
void read_stage(const std::vector<std::string>& clauses, Measurement& row) {
  for (const auto stage_in : {numbered_stage, named_stage}) {
    for (const std::string& clause : clauses) {
      if (const OptionalCount stage = stage_in(clause)) {
        row.zero_stage = stage;
        row.remarks.push_back(fmt::format("zero_stage {} (\"{}\")", *stage, printable(clause, 60)));
        return;
      }
    }
  }
}

}  // namespace

void read_stated_cells(Measurement& row) {
  std::vector<std::string> clauses = clauses_of(row);
  std::erase_if(clauses, is_no_statement);
  const bool open = row.recompute.empty() && row.recompute_detail.empty();
  for (const std::string& clause : clauses) {
    if (open && row.recompute.empty()) {
      read_recompute(clause, row);
    } else if (open && row.recompute == "full") {
      read_recompute_detail(clause, row);
    }
    if (row.attention_impl.empty()) {
      read_attention(clause, row);
    }
    if (row.precision.empty() && row.precision_detail.empty()) {
      read_precision(clause, row);
    }
    if (row.inter_node.empty()) {
      read_network_remark(clause, row);
    }
    if (row.schedule.empty()) {
      read_schedule_remark(clause, row);
    }
    if (row.variant.empty()) {
      read_variant_remark(clause, row);
    }
  }
  if (!row.zero_stage && row.zero_detail.empty()) {
    read_stage(clauses, row);
  }
  if (!row.zero_stage && row.zero_detail.empty()) {
    read_stage_of_framework(row);
  }
  if (!row.sequence_parallel) {
    read_sequence_parallel(clauses, row);
  }
}

}  // namespace orrery::studies
