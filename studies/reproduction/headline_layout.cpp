// SPDX-License-Identifier: Apache-2.0
// {"layout": {a block of a plan}, "model", "cluster", "micro_batch" or "largest_micro_batch",
// "micro_batches", "dp", "framework", "execution"}: one plan whose blocks all have this layout, and
// no pipeline. "largest_micro_batch": n takes the largest multiple of n that fits.
#include "base/limits.hpp"
#include "plan/simulation/simulate.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

plan::Plan with_micro_batch(plan::Plan plan, std::int64_t micro_batch, std::int64_t micro_batches,
                            const std::string& where) {
  plan.micro_batch = micro_batch;
  plan.batch = micro_batch * micro_batches * plan.dp;
  plan::check_plan(plan, where);
  return plan;
}

// The largest number of steps for which `fits`, which holds for no more beyond it.
template <typename Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  std::int64_t low = 0;
  std::int64_t high = 1;
  while (high <= most && fits(high)) {
    low = high;
    high *= 2;
  }
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (middle <= most && fits(middle) ? low : high) = middle;
  }
  return low;
}

struct Sizes {
  std::int64_t micro_batches = 1;
  std::int64_t micro_batch = 0;          // of the run, or 0:
  std::int64_t largest_micro_batch = 0;  // the largest multiple of this that fits
  std::int64_t dp = 1;

  std::int64_t first() const { return micro_batch > 0 ? micro_batch : largest_micro_batch; }
};

Sizes read_sizes(const JsonReader& value, ObjectReader& run) {
  Sizes sizes;
  sizes.micro_batches = run.integer_or("micro_batches", 1, 1, limits::kMaxBatch);
  sizes.micro_batch = run.integer_or("micro_batch", 0, 0, limits::kMaxBatch);
  sizes.largest_micro_batch = run.integer_or("largest_micro_batch", 0, 0, limits::kMaxBatch);
  sizes.dp = run.integer_or("dp", 1, 1, limits::kMaxDevices);
  if ((sizes.micro_batch == 0) == (sizes.largest_micro_batch == 0)) {
    value.fail("state either \"micro_batch\" or \"largest_micro_batch\"");
  }
  return sizes;
}

// One layout for the whole chain, with the facts of a framework and the flags that are stated.
plan::Plan read_layout_plan(const JsonReader& value, ObjectReader& run, plan::Plan base,
                            const Sizes& sizes) {
  const auto chain = static_cast<std::int64_t>(base.network.chain.size());
  Json block = object_of(run.required("layout"));
  block.set("count", chain);
  base.blocks = {{static_cast<int>(chain), plan::BlockPlan()}};
  base.stage_blocks = {static_cast<int>(chain)};
  apply_framework(run, base);
  Json document = to_json(base);
  Json blocks = Json::array();
  blocks.push(std::move(block));
  document.set("blocks", std::move(blocks));
  if (const auto execution = run.optional("execution")) {
    Json merged = *document.find("execution");
    for (const auto& [key, member] : object_of(*execution).as_object()) {
      merged.set(key, member);
    }
    document.set("execution", std::move(merged));
  }
  const std::int64_t batch = sizes.first() * sizes.micro_batches * sizes.dp;
  document.set("workload", Json::Object{{"batch", batch},
                                        {"sequence", base.sequence},
                                        {"precision", to_text(base.precision)}});
  document.set("parallelism", Json::Object{{"dp", sizes.dp}, {"micro_batch", sizes.first()}});
  run.finish();
  return plan::read_plan(document, value.where());
}

}  // namespace

Json layout_run(const JsonReader& value, ObjectReader& run) {
  plan::Plan base = plan_of_run(value, run, "model");
  const Sizes sizes = read_sizes(value, run);
  plan::Plan plan = read_layout_plan(value, run, std::move(base), sizes);
  plan::Simulator simulator(plan);
  if (const std::int64_t step = sizes.largest_micro_batch; step > 0) {
    const std::int64_t most = limits::kMaxBatch / (step * sizes.micro_batches * sizes.dp);
    const std::int64_t steps = largest(most, [&](std::int64_t count) {
      return simulator
          .fits(with_micro_batch(plan, count * step, sizes.micro_batches, value.where()))
          .fits;
    });
    if (steps == 0) {
      value.fail("not even the smallest micro-batch fits");
    }
    plan = with_micro_batch(plan, steps * step, sizes.micro_batches, value.where());
  }
  const plan::Simulation simulation = simulator.run(plan);
  const double samples = static_cast<double>(plan.batch);
  Json result = simulation_json(simulation);
  result.set("batch", plan.batch);
  result.set("forward_backward_s", to_seconds(simulation.pipeline.makespan).value());
  result.set("samples_per_s", samples / simulation.iteration_time.value());
  return result;
}

}  // namespace orrery::studies
