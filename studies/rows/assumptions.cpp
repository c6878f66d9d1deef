// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/assumptions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/math.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "sim/schedule.hpp"
#include "studies/rows/derived_cells.hpp"
#include "studies/rows/flop_counting.hpp"
#include "studies/rows/framework_facts.hpp"
#include "studies/rows/gpu_words.hpp"
#include "studies/rows/metric.hpp"
#include "studies/rows/named_network.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_family.hpp"
#include "studies/rows/row_network.hpp"
#include "studies/rows/row_plan.hpp"
#include "studies/rows/row_recompute.hpp"
#include "studies/rows/stated_adapters.hpp"
#include "studies/rows/stated_optimizer.hpp"
#include "topologies/documents.hpp"

namespace orrery::studies {
namespace {

class Assumptions {
 public:
  explicit Assumptions(Measurement& row) : row_(row) {}

  // What the row states and is modelled by a relative, whatever its confidence.
  std::vector<std::string> stand_ins() {
    if (row_.precision == "mxfp8") {
      notes_.emplace_back("precision mxfp8 as fp8");  // whose scales the plan takes for blocks
    }
    if (row_.precision == "nvfp4") {
      notes_.push_back("products in nvfp4 as those in fp8, in shares of their peaks");
    }
    if (const RowFramework framework = framework_of(row_); framework.stands_in) {
      notes_.push_back(
          fmt::format("framework {} as {}",
                      row_.framework.empty() ? "that is not stated" : printable(row_.framework, 60),
                      framework.facts.name));
    }
    add(adapter_notes(row_, framework_of(row_).facts));
    add(gpu_notes(row_.gpu));
    add(cluster_notes(row_));
    if (const std::string_view family = standing_family(row_); !family.empty()) {
      notes_.push_back(
          fmt::format("network family {} as {}", printable(row_.model_family, 60), family));
    }
    other_family();
    return notes_;
  }

  // A network's name states what the architecture columns leave blank.
  void named() {
    const std::vector<std::string_view> filled = complete_from_name(row_);
    if (!filled.empty()) {
      notes_.push_back(
          fmt::format("{} of {}", fmt::join(filled, ", "), printable(row_.model_name, 60)));
    }
  }

  // What follows from the other cells, and what no modelled plan has, whatever the row's
  // confidence.
  void derived() {
    notes_ = fill_from_cells(row_);
    precision();
    degrees();
    if (row_.experts == 1) {
      note("dense: experts", row_.experts, 0);
    }
    if (const auto optimizer = stated_optimizer(row_)) {
      notes_.push_back(
          fmt::format("{}: {} B of states a parameter", optimizer->name, optimizer->state_bytes));
    }
    variant();
    counted_flops();
    whole_micro_batches();
  }

  // Widths and formats that nothing states, and words that nobody knows, are guessed in rows of
  // partial confidence alone.
  std::vector<std::string> run() {
    if (row_.full) {
      named();
    } else {
      network();
    }
    batch();
    one_step();
    whole_micro_batches();
    schedule();
    uneven_rounds();
    recompute();
    return stand_ins();
  }

 private:
  void add(const std::vector<std::string>& lines) {
    notes_.insert(notes_.end(), lines.begin(), lines.end());
  }

  // A family that nobody knows beside a name that is known: the decoder is that of the name.
  void other_family() {
    const auto named = row_.model_family.empty() || family_of(row_) != nullptr
                           ? std::nullopt
                           : named_network(row_);
    if (named && named->family != models::Family::T5 && named->family != models::Family::Vit) {
      notes_.push_back(fmt::format("network family {} as that of {}",
                                   printable(row_.model_family, 60),
                                   printable(row_.model_name, 60)));
    }
  }

  std::string_view usual_schedule() const {
    const bool chunks = row_.vpp.value_or(1) > 1 || row_.most_chunks;
    return row_.pp == 1 ? "none" : chunks ? "interleaved" : "1f1b";
  }

  void note(std::string_view what, OptionalCount& field, std::int64_t value) {
    field = value;
    notes_.push_back(fmt::format("{} {}", what, value));
  }
  void note(std::string_view what, std::string& field, std::string_view value) {
    field = value;
    notes_.push_back(fmt::format("{} {}", what, value));
  }

  void degrees() {
    if (!row_.tp) {
      note("tp", row_.tp, 1);
    }
    if (!row_.pp) {
      note("pp", row_.pp, 1);
    }
    const std::int64_t model = *row_.tp * *row_.pp * row_.cp.value_or(1);
    const std::int64_t ranks = row_.gpus.value_or(0) / model;
    const bool even = row_.gpus.value_or(0) % model == 0;
    if (even && ranks > 0 && row_.dp.value_or(ranks) != ranks) {
      note(fmt::format("dp {} as", *row_.dp), row_.dp, ranks);
    } else if (even && !row_.dp) {
      row_.dp = ranks;  // as every plan has it
    }
    const bool whole = shards_parameters(row_);
    const bool states = framework_of(row_).facts.shards_states;
    if (!row_.zero_stage && row_.dp.value_or(1) > 1 && (whole || states)) {
      note("zero_stage", row_.zero_stage, whole ? 3 : 1);
    }
    sequence_parallelism();
  }

  void sequence_parallelism() {
    const auto known = row_.seq_len ? std::nullopt : named_network(row_);
    const std::int64_t sequence = row_.seq_len.value_or(known ? known->sequence : 0);
    const bool even = sequence % (*row_.tp * row_.cp.value_or(1)) == 0;
    if (!row_.sequence_parallel && *row_.tp > 1 && even && shards_sequences(row_)) {
      row_.sequence_parallel = true;
      notes_.emplace_back("sequence parallelism");
    }
  }

  // The tokenizers of the releases; more specific names first.
  static constexpr auto kVocabularies = std::to_array<std::pair<std::string_view, std::int64_t>>(
      {{"gptoss", 201088}, {"llama3", 128256},     {"llama4", 202048},   {"llama", 32000},
       {"mistral", 32000}, {"mixtral", 32000},     {"qwen", 151936},     {"gemma3", 262144},
       {"gemma", 256000},  {"deepseekv3", 129280}, {"deepseek", 102400}, {"falcon", 65024},
       {"mpt", 50432},     {"phi3", 32064},        {"phi", 51200},       {"yi", 64000},
       {"bert", 30522},    {"opt", 50272},         {"bloom", 250880},    {"gpt", 50257}});

  void network() {
    if (!row_.vocab && mentions(row_.framework, "TeraPipe")) {
      // Its benchmark runs neither embedding nor head (zhuohan123/terapipe,
      // test_transformer_terapipe.py).
      note("layers alone, vocab", row_.vocab, 1);
    }
    named();
    if (const auto known = named_network(row_); known && known->family == models::Family::Vit) {
      return;  // of images, and whole
    }
    for (const auto& [family, vocab] : kVocabularies) {
      if (!row_.vocab && letters_and_digits(row_.model_family).starts_with(family)) {
        note("vocab", row_.vocab, vocab);
      }
    }
    // A family without a tokenizer of its own has that of LLaMA or GPT-2, as it resembles them.
    if (!row_.vocab && !row_.model_family.empty()) {
      note("vocab", row_.vocab, row_.gated_mlp.value_or(false) ? 32000 : 50257);
    }
    widths();
  }

  // Heads of 128 elements; of a gated network LLaMA's width (model.py: 2/3 of 4 x hidden, in whole
  // multiples of 256); of a mixture of experts two to a token, as in GShard and Mixtral.
  void widths() {
    constexpr std::int64_t kMultiple = 256;
    const bool gated = row_.gated_mlp.value_or(row_.model_family.starts_with("llama"));
    if (!row_.ffn_hidden && gated && row_.hidden && row_.experts.value_or(0) == 0) {
      note("ffn_hidden", row_.ffn_hidden, round_up(8 * *row_.hidden / 3, kMultiple));
    }
    if (!row_.heads && row_.hidden) {  // of 128 elements, as of most networks since GPT-3
      note("heads", row_.heads, std::max<std::int64_t>(1, *row_.hidden / 128));
    }
    if (row_.experts.value_or(0) > 1 && row_.top_k.value_or(0) == 0) {
      note("top_k", row_.top_k, 2);
    }
  }

  // A rate by itself: one micro-batch a rank, where no pipeline fills and drains over several.
  void one_step() {
    const bool rate = row_.metric != "iteration_s" && !is_memory_metric(row_.metric);
    if (rate && !row_.global_batch && !row_.num_microbatches && row_.pp == 1 && row_.dp) {
      note("global_batch", row_.global_batch, *row_.micro_batch * *row_.dp);
    }
  }

  // A rank's samples in as many micro-batches as the stated size needs, equal ones: 4 samples in
  // micro-batches of at most 3 are 2 and 2. Memory is that of the stated size.
  void smaller_micro_batches() {
    const std::int64_t size = row_.micro_batch.value_or(0);
    const std::int64_t dp = row_.dp.value_or(0);
    const std::int64_t batch = row_.global_batch.value_or(0);
    if (size == 0 || dp == 0 || batch < dp || batch % (size * dp) == 0 ||
        (is_memory_metric(row_.metric) && batch > size * dp)) {
      return;
    }
    const std::int64_t samples = ceil_div(batch, dp);
    const std::int64_t equal = ceil_div(samples, ceil_div(samples, size));
    if (equal < size) {
      note(fmt::format("micro_batch {} as", size), row_.micro_batch, equal);
    }
  }

  // Ranks that have less to do than others wait for them: the batch as many micro-batches as the
  // fullest rank has.
  void whole_micro_batches() {
    smaller_micro_batches();
    const std::int64_t step = row_.micro_batch.value_or(0) * row_.dp.value_or(0);
    const std::int64_t batch = row_.global_batch.value_or(0);
    if (step > 0 && batch >= row_.dp.value_or(0) && batch % step != 0) {
      note(fmt::format("global_batch {} as", batch), row_.global_batch, round_up(batch, step));
    }
  }

  // Which the plan has in groups of more micro-batches than stages.
  void uneven_rounds() {
    const std::int64_t pp = row_.pp.value_or(1);
    const std::int64_t step = row_.micro_batch.value_or(0) * row_.dp.value_or(0);
    const std::int64_t steps = step > 0 ? row_.global_batch.value_or(0) / step : 0;
    if (row_.schedule == "interleaved" && row_.vpp.value_or(1) > 1 && steps % pp != 0) {
      notes_.push_back(fmt::format("schedule interleaved as {}: {} micro-batches on {} stages",
                                   kUnevenInterleaved, steps, pp));
    }
  }

  void recompute() {
    const bool custom = !row_.full && row_.recompute == "custom";
    if (custom && !stated_recompute(row_, framework_of(row_).facts)) {
      const std::string& words =
          row_.recompute_detail.empty() ? row_.recompute : row_.recompute_detail;
      notes_.push_back(fmt::format("recomputation \"{}\" as not stated", printable(words, 60)));
      row_.recompute.clear();
      row_.recompute_detail.clear();
    }
    if (row_.recompute.empty()) {
      note("recompute", row_.recompute, "none");
    }
  }

  // Mixed precision of 16 bits, as all training of this size.
  void precision() {
    const bool open = !row_.full && row_.precision.empty();
    if (open || row_.precision == "mixed" || row_.precision == "amp") {
      const std::string gpu = stated_gpu(row_.gpu);
      const bool bf16 = !gpu.empty() && topologies::load_gpu(gpu).peak_of(DType::Bf16).value() > 0;
      note("precision", row_.precision, bf16 ? "bf16" : "fp16");
    }
  }

  // What the other counts leave over; else all samples of a rank at once where nothing splits them
  // (FSDP without a pipeline), and one sample elsewhere, the default of Megatron's scripts.
  void batch() {
    if (row_.micro_batch) {
      return;
    }
    const std::int64_t dp = row_.dp.value_or(0);
    const std::int64_t samples = dp > 0 ? row_.global_batch.value_or(0) / dp : 0;
    const std::int64_t steps = row_.num_microbatches.value_or(usual_micro_batches(row_));
    if (steps > 0 && samples >= steps) {
      note("micro_batch", row_.micro_batch, samples / steps);
    } else if (row_.zero_stage == 3 && *row_.pp == 1 && samples > 0) {
      note("micro_batch", row_.micro_batch, samples);
    } else {
      note("micro_batch", row_.micro_batch, 1);
    }
  }

  void schedule() {
    if (row_.schedule == "terapipe") {
      notes_.push_back("slices of equal length");
    }
    if (row_.schedule.empty()) {
      note("schedule", row_.schedule, usual_schedule());
    } else if (!row_.full && row_.schedule != "none" &&
               !sim::is_registered_schedule(row_.schedule)) {
      note(fmt::format("schedule {} as", printable(row_.schedule, 60)), row_.schedule,
           usual_schedule());
    }
    chunks();
  }

  void chunks() {
    const std::int64_t pp = *row_.pp;
    if (row_.schedule != "interleaved" || pp == 1 || row_.vpp) {
      return;
    }
    const std::int64_t layers = row_.layers.value_or(0);
    if (row_.most_chunks && layers > 0) {
      note("vpp", row_.vpp, std::max<std::int64_t>(1, (layers + 2) / pp));
    } else {
      note("vpp", row_.vpp, fewest_chunks(layers, pp));
    }
  }

  // The fewest chunks, above one, into which the layers divide evenly, alone or with embedding and
  // head as one each.
  static std::int64_t fewest_chunks(std::int64_t layers, std::int64_t pp) {
    for (std::int64_t chunks = 2; chunks <= 8; ++chunks) {
      if (layers % (chunks * pp) == 0 || (layers + 2) % (chunks * pp) == 0) {
        return chunks;
      }
    }
    return 1;
  }

  // Variants that leave the plan as it is (balanced routing, an uneven count made even) or change
  // it in ways that no plan states; what they say is read like other remarks.
  void variant() {
    if (row_.variant.empty() || is_modelled_variant(row_)) {
      return;
    }
    for (const std::string& part : unread_variant(row_)) {
      notes_.push_back(fmt::format("\"{}\" as the plain plan", printable(part, 60)));
    }
    row_.notes.append("; ").append(row_.variant);
    row_.variant.clear();
  }

  // Megatron-DeepSpeed (megatron/utils.py, throughput_calculator), GPT-NeoX and the papers on
  // Megatron-LM until 2022 count what is recomputed, others the model's FLOPs alone.
  void counted_flops() {
    const bool derived = row_.aux.contains("derived_iteration_s");
    if (row_.metric != "tflops_per_gpu" || derived || states_way_of_counting(row_)) {
      return;
    }
    const bool hardware =
        mentions(row_.framework, "deepspeed") || mentions(row_.framework, "neox") ||
        (mentions(row_.framework, "megatron") && row_.year.value_or(2023) <= 2022);
    const std::string_view way = hardware ? "hardware FLOPs" : "model FLOPs";
    notes_.push_back(fmt::format("FLOPs counted as {}", way));
    // What else the cell says counts, too: "causal attention".
    row_.flops_convention.append("; ").append(way);
  }

  Measurement& row_;
  std::vector<std::string> notes_;
};

}  // namespace

// torchtitan/config_manager.py of 2024, experimental.pipeline_parallel_microbatches: as many as
// stages.
std::int64_t usual_micro_batches(const Measurement& row) {
  const std::int64_t pp = row.pp.value_or(1);
  return framework_of(row).facts.name == "torchtitan" && pp > 1 ? pp : 0;
}

std::vector<std::string> assume_defaults(Measurement& row) {
  Assumptions assumptions(row);
  assumptions.derived();
  return assumptions.run();
}

}  // namespace orrery::studies
