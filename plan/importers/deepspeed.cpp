// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON configuration (docs/_pages/config-json.md of DeepSpeed): batch sizes, ZeRO and
// precision; all ranks that are not sequence-parallel are data-parallel. The network is not in it.
#include <fmt/format.h>

#include <array>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "plan/importer.hpp"
#include "plan/stages.hpp"

namespace orrery::plan {
namespace {

// Hugging Face's "auto" leaves a field to its own trainer.
std::optional<JsonReader> stated(ObjectReader& object, std::string_view key) {
  auto value = object.optional(key);
  if (value.has_value() && value->json() == Json("auto")) {
    value->fail("\"auto\" is decided elsewhere", "write the value");
  }
  return value;
}

// DeepSpeed passes over keys that it does not know: one that is misspelt is an error, others are
// left.
void end_section(ObjectReader& section, const std::vector<std::string>& read) {
  for (const std::string& key : section.keys()) {
    if (const std::string meant = misspelt_name(key, read); !meant.empty()) {
      section.value().fail(fmt::format("unknown key \"{}\"", printable(key)),
                           fmt::format("did you mean \"{}\"?", meant));
    }
  }
  section.ignore_rest();
}

bool is_enabled(ObjectReader& document, std::string_view key) {
  const auto section = document.optional(key);
  if (!section.has_value()) {
    return false;
  }
  ObjectReader object = section->object();
  const auto enabled = stated(object, "enabled");
  end_section(object, {"enabled"});
  return enabled.has_value() && enabled->boolean();
}

void reject(ObjectReader& object, std::string_view key, std::string_view what) {
  const auto value = object.optional(key);
  if (value.has_value() && value->json() != Json(false)) {
    value->fail(fmt::format("{} is not modelled", what));
  }
}

// The other fields of DeepSpeedZeroConfig (deepspeed/runtime/zero/config.py), which refuses all
// further ones: they change neither the plan nor what is modelled of it.
constexpr std::array<std::string_view, 33> kOtherZeroFields = {
    "allgather_bucket_size",
    "allgather_partitions",
    "allgather_sequential",
    "contiguous_gradients",
    "cpu_offload_use_pin_memory",
    "elastic_checkpoint",
    "enable_sanity_checks",
    "gather_16bit_weights_on_model_save",
    "ignore_unused_parameters",
    "leaf_module",
    "legacy_stage1",
    "load_from_fp32_weights",
    "log_trace_cache_warnings",
    "max_live_parameters",
    "max_reuse_distance",
    "memory_efficient_linear",
    "mics_hierarchical_params_gather",
    "model_persistence_threshold",
    "module_granularity_threshold",
    "override_module_apply",
    "param_persistence_threshold",
    "partition_stream_chunk_size",
    "pipeline_loading_checkpoint",
    "prefetch_bucket_size",
    "reduce_scatter",
    "round_robin_gradients",
    "save_muon_momentum_buffer_in_memory",
    "stage3_gather_fp16_weights_on_model_save",
    "sub_group_size",
    "use_all_reduce_for_fetch_params",
    "use_multi_rank_bucket_allreduce",
    "zero_quantized_nontrainable_weights",
    "zeropp_loco_param"};

// "none", "cpu" or "nvme"; the device where the section is missing.
Tier offload_tier(ObjectReader& zero, std::string_view key) {
  const auto section = zero.optional(key);
  if (!section.has_value()) {
    return Tier::Device;
  }
  ObjectReader object = section->object();
  constexpr std::array<std::string_view, 3> kDevices = {"none", "cpu", "nvme"};
  const std::string device = object.required("device").one_of(kDevices);
  if (object.number_or("ratio", 1, 0, 1) < 1) {
    object.value().fail("a ratio below 1 (part of the optimizer) is not modelled");
  }
  end_section(object, {"device", "ratio"});
  return device == kDevices[0] ? Tier::Device : device == kDevices[1] ? Tier::Host : Tier::Disk;
}

// Gradients go to the host with the optimizer where they are sharded (stages 2 and 3).
void read_offload(ObjectReader& zero, BlockPlan& layout) {
  layout.offload.parameters = offload_tier(zero, "offload_param");
  layout.offload.optimizer = offload_tier(zero, "offload_optimizer");
  // The older names of these sections.
  if (zero.boolean_or("cpu_offload_param", false)) {
    layout.offload.parameters = Tier::Host;
  }
  if (zero.boolean_or("cpu_offload", false)) {
    layout.offload.optimizer = Tier::Host;
  }
  if (layout.offload.optimizer == Tier::Disk && layout.zero_stage < 3) {
    layout.offload.optimizer = Tier::Host;  // DeepSpeedZeroOptimizer knows no disk
  }
  if (layout.offload.optimizer != Tier::Device && layout.zero_stage >= 2) {
    layout.offload.gradients = Tier::Host;
  }
}

int stage_of(ObjectReader& zero) {
  const auto stage = stated(zero, "stage");
  return stage.has_value() ? static_cast<int>(stage->integer(0, 3)) : 0;
}

// By default only stage 3 overlaps. Without ZeRO, and in BF16_Optimizer, which the engine takes for
// ZeRO-1 with fp32 gradients of bf16 that stay on the device, nothing does (runtime/engine.py,
// _do_optimizer_sanity_check).
void read_overlap(ObjectReader& zero, Plan& plan, const BlockPlan& layout) {
  const auto overlap = stated(zero, "overlap_comm");
  const bool stated_so = overlap.has_value() ? overlap->boolean() : layout.zero_stage == 3;
  const bool wrapped = plan.precision == DType::Bf16 && plan.execution.fp32_gradients &&
                       layout.offload.optimizer != Tier::Host;
  const bool overlaps =
      stated_so && (layout.zero_stage > 1 || (layout.zero_stage == 1 && !wrapped));
  plan.execution.overlap_grad_reduce = overlaps;
  plan.execution.overlap_param_gather = overlaps;
}

void read_zero(ObjectReader& zero, Plan& plan, BlockPlan& layout) {
  const auto bucket = stated(zero, "reduce_bucket_size");
  // Numbers such as 5e8 are doubles in JSON.
  const double elements = bucket.has_value() ? bucket->number(1, 1e15) : 5e8;
  plan.execution.bucket_bytes = layout.zero_stage > 0 ? static_cast<std::int64_t>(elements) *
                                                            (plan.execution.fp32_gradients ? 4 : 2)
                                                      : 0;
  if (const auto shard = zero.optional("mics_shard_size")) {
    const auto degree = shard->integer(-1, limits::kMaxDevices);
    layout.shard_degree = static_cast<int>(std::max<std::int64_t>(degree, 0));
  }
  if (const auto hpz = zero.optional("zero_hpz_partition_size")) {
    const std::int64_t part = hpz->integer(1, limits::kMaxDevices);
    plan.execution.hierarchical_gather = part > 1;
    if (part > 1 && part != plan.cluster.node.gpus) {
      hpz->fail("a second partition (ZeRO++) other than a node is not modelled",
                fmt::format("write {}", plan.cluster.node.gpus));
    }
  }
  read_offload(zero, layout);
  read_overlap(zero, plan, layout);
  reject(zero, "zenflow", "updates beside the next steps (ZenFlow)");
  // ZeRO++ is of stage 3; others pass over it.
  const bool quantised_gather = zero.boolean_or("zero_quantized_weights", false);
  const bool quantised_reduce = zero.boolean_or("zero_quantized_gradients", false);
  plan.execution.quantised_gather = quantised_gather && layout.zero_stage == 3;
  plan.execution.quantised_reduce = quantised_reduce && layout.zero_stage == 3;
  for (const std::string_view field : kOtherZeroFields) {
    (void)zero.optional(field);
    (void)zero.optional(fmt::format("stage3_{}", field));  // the same field under an older name
  }
  zero.finish();
}

// Of the gradients between sequence-parallel ranks: by its name since 0.16.5, and by the older one.
constexpr std::string_view kSequenceType = "seq_parallel_communication_data_type";
constexpr std::string_view kOlderSequenceType = "seq_parallel_comm_data_type";

// Files for releases on both sides of the renaming have both names.
std::optional<JsonReader> type_between_sequences(ObjectReader& document) {
  const auto type = stated(document, kSequenceType);
  const auto older = stated(document, kOlderSequenceType);
  if (type.has_value() && older.has_value() && type->json() != older->json()) {
    older->fail(fmt::format("{} says otherwise", kSequenceType),
                "leave this one out: DeepSpeed 0.16.5 and later pass over it");
  }
  return type.has_value() ? type : older;
}

// Plans have one type of gradients: what is accumulated is what travels. Where the file does not
// say what travels, that is what it accumulates; but with sequence-parallel ranks another key says
// it, of fp32 by default, and the first one is not asked (engine.py, _configure_distributed_model).
void read_communication(ObjectReader& document, const Plan& plan, bool splits_sequences) {
  const auto usual = stated(document, "communication_data_type");
  const auto between_sequences = type_between_sequences(document);
  const auto& type = splits_sequences ? between_sequences : usual;
  const std::string_view kept = plan.execution.fp32_gradients ? "fp32" : to_text(plan.precision);
  constexpr std::array<std::string_view, 3> kTypes = {"fp32", "bf16", "fp16"};
  const std::string sent = type.has_value()   ? type->one_of(kTypes)
                           : splits_sequences ? "fp32"
                                              : std::string(kept);
  if (sent == kept) {
    return;
  }
  const std::string problem =
      fmt::format("gradients summed in {} and accumulated in {} are not modelled", sent, kept);
  const std::string other = fmt::format("\"data_types\": {{\"grad_accum_dtype\": \"{}\"}}", sent);
  if (type.has_value()) {
    type->fail(problem, fmt::format("write \"{}\", or {}", kept, other));
  }
  document.value().fail(problem,
                        fmt::format("write \"{}\": \"{}\", or {}", kSequenceType, kept, other));
}

void read_precision(ObjectReader& document, bool sharded, bool splits_sequences, Plan& plan) {
  const bool bf16 = is_enabled(document, "bf16") || is_enabled(document, "bfloat16");
  const bool fp16 = is_enabled(document, "fp16");
  if (bf16 && fp16) {
    document.value().fail("bf16 and fp16 are both enabled");
  }
  plan.precision = bf16 ? DType::Bf16 : fp16 ? DType::Fp16 : DType::Fp32;
  // Unless the file says otherwise gradients have the model's precision; bf16 without ZeRO
  // accumulates in fp32 (runtime/engine.py, get_data_types).
  plan.execution.fp32_gradients =
      plan.precision == DType::Fp32 || (plan.precision == DType::Bf16 && !sharded);
  if (const auto types = document.optional("data_types")) {
    ObjectReader object = types->object();
    if (const auto type = stated(object, "grad_accum_dtype")) {
      plan.execution.fp32_gradients = parse_dtype(type->string(), type->where()) == DType::Fp32;
    }
    end_section(object, {"grad_accum_dtype"});
  }
  read_communication(document, plan, splits_sequences);
}

// Any two of the three sizes give the third; all three must agree.
void read_batch(ObjectReader& document, Plan& plan) {
  const auto integer = [&document](std::string_view key) {
    const auto value = stated(document, key);
    return value.has_value() ? std::optional(value->integer(1, limits::kMaxBatch)) : std::nullopt;
  };
  const auto batch = integer("train_batch_size");
  const auto micro = integer("train_micro_batch_size_per_gpu");
  const auto steps = integer("gradient_accumulation_steps");
  if (!batch.has_value() && !micro.has_value()) {
    document.value().fail("train_batch_size and train_micro_batch_size_per_gpu are both missing");
  }
  const auto divided = [&](std::int64_t by) {
    if (*batch % by != 0) {
      document.value().fail(fmt::format(
          "train_batch_size {} does not divide by {} ranks and accumulation steps", *batch, by));
    }
    return *batch / by;
  };
  plan.micro_batch =
      micro.has_value() ? *micro : divided(std::int64_t{plan.dp} * steps.value_or(1));
  const std::int64_t product = plan.micro_batch * plan.dp * steps.value_or(1);
  plan.batch = batch.value_or(product);
  if (steps.has_value() && plan.batch != product) {
    document.value().fail(
        fmt::format("train_batch_size {} is not micro-batch x ranks x accumulation steps = {}",
                    plan.batch, product));
  }
}

// Sequence-parallel ranks are those of Ulysses, all others data-parallel. What the file says of the
// latter is asked only beside the former (deepspeed/__init__.py).
void read_ranks(ObjectReader& document, Plan& plan, BlockPlan& layout) {
  const int gpus = plan.cluster.num_gpus();
  const auto size = stated(document, "sequence_parallel_size");
  if (size.has_value()) {
    layout.cp = static_cast<int>(size->integer(1, limits::kMaxDevices));
    layout.context = layout.cp > 1 ? ContextParallel::Ulysses : ContextParallel::Ring;
    if (gpus % layout.cp != 0) {
      size->fail(fmt::format("{} GPUs cannot be cut into groups of {}", gpus, layout.cp));
    }
  }
  plan.dp = gpus / layout.cp;
  const auto others = stated(document, "data_parallel_size");
  if (size.has_value() && others.has_value() &&
      others->integer(1, limits::kMaxDevices) != plan.dp) {
    others->fail(
        fmt::format("{} GPUs in groups of {} sequence-parallel ranks are {} data-parallel "
                    "ranks",
                    gpus, layout.cp, plan.dp));
  }
}

Plan parse(std::string_view text, const std::string& where, const topologies::Cluster& cluster,
           const models::Network* network) {
  if (network == nullptr) {
    bad_input(where, "a DeepSpeed configuration does not describe the network",
              "name it with --network, for example --network llama2-7b");
  }
  const Json json = parse_json(text, where);
  ObjectReader document = JsonReader(json, where).object();
  Plan plan;
  plan.network = *network;
  plan.cluster = cluster;
  plan.profile = costmodel::load_profile("", cluster.gpu);
  plan.sequence = network->spec.sequence;
  BlockPlan layout;
  read_ranks(document, plan, layout);
  const auto section = document.optional("zero_optimization");
  std::optional<ObjectReader> zero;
  if (section.has_value()) {
    zero.emplace(section->object());
    layout.zero_stage = stage_of(*zero);
  }
  read_precision(document, layout.zero_stage > 0, layout.cp > 1, plan);
  read_batch(document, plan);
  if (zero.has_value()) {
    read_zero(*zero, plan, layout);
  } else {
    plan.execution.overlap_grad_reduce = false;
  }
  if (const auto checkpoints = document.optional("activation_checkpointing")) {
    layout.recompute = Recompute::Full;
    ObjectReader object = checkpoints->object();
    layout.offload.activations = object.boolean_or("cpu_checkpointing", false) ? 1 : 0;
    end_section(object, {"cpu_checkpointing"});
  }
  reject(document, "tensor_parallel", "tensor parallelism of this file");
  reject(document, "pipeline", "the pipeline of this file");
  reject(document, "compression_training", "compression");
  reject(document, "sparse_attention", "sparse attention");
  end_section(
      document,
      {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
       "zero_optimization", "sequence_parallel_size", "data_parallel_size",
       "activation_checkpointing", "bf16", "bfloat16", "fp16", "data_types",
       "communication_data_type", std::string(kSequenceType), std::string(kOlderSequenceType),
       "tensor_parallel", "pipeline", "compression_training", "sparse_attention"});
  plan.stage_blocks = even_stages(plan.network, 1);
  plan.blocks = {{static_cast<int>(plan.network.chain.size()), layout}};
  check_plan(plan, where);
  return plan;
}

}  // namespace

extern const Importer importer_deepspeed = {
    .name = "deepspeed",
    .description = "DeepSpeed JSON configuration (the network is given apart)",
    .parse = parse,
};

}  // namespace orrery::plan
