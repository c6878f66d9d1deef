// SPDX-License-Identifier: Apache-2.0
// {"layout": {a block of a plan}, "model", "cluster", "micro_batch" or "largest_micro_batch",
// "micro_batches", "dp", "framework", "execution"}: one plan whose blocks all have this layout, and
// no pipeline. "largest_micro_batch": n takes the largest multiple of n that fits.
#include "base/limits.hpp"
#include "plan/simulate.hpp"
#include "studies/framework_facts.hpp"
#include "studies/headline_kinds.hpp"

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

}  // namespace

Json layout_run(const JsonReader& value, ObjectReader& run) {
  plan::Plan base = plan_of_run(value, run, "model");
  const std::int64_t micro_batches = run.integer_or("micro_batches", 1, 1, limits::kMaxBatch);
  const std::int64_t micro_batch = run.integer_or("micro_batch", 0, 0, limits::kMaxBatch);
  const std::int64_t step = run.integer_or("largest_micro_batch", 0, 0, limits::kMaxBatch);
  const std::int64_t dp = run.integer_or("dp", 1, 1, limits::kMaxDevices);
  if ((micro_batch == 0) == (step == 0)) {
    value.fail("state either \"micro_batch\" or \"largest_micro_batch\"");
  }
  const auto chain = static_cast<std::int64_t>(base.network.chain.size());
  Json block = run.required("layout").json();
  block.set("count", chain);
  base.blocks = {{static_cast<int>(chain), plan::BlockPlan()}};
  base.stage_blocks = {static_cast<int>(chain)};
  if (const auto name = run.optional("framework")) {
    const FrameworkFacts* framework = find_framework(name->string());
    if (framework == nullptr) {
      name->fail("unknown framework");
    }
    base.execution = framework->execution;
  }
  Json document = to_json(base);
  Json blocks = Json::array();
  blocks.push(std::move(block));
  document.set("blocks", std::move(blocks));
  if (const auto execution = run.optional("execution")) {
    Json merged = *document.find("execution");
    for (const auto& [key, member] : execution->json().as_object()) {
      merged.set(key, member);
    }
    document.set("execution", std::move(merged));
  }
  const std::int64_t first = micro_batch > 0 ? micro_batch : step;
  document.set("workload", Json::Object{{"batch", first * micro_batches * dp},
                                        {"sequence", base.sequence},
                                        {"precision", to_text(base.precision)}});
  document.set("parallelism", Json::Object{{"dp", dp}, {"micro_batch", first}});
  run.finish();
  plan::Plan plan = plan::read_plan(document, value.where());
  plan::Simulator simulator(plan);
  if (step > 0) {
    const std::int64_t steps =
        largest(limits::kMaxBatch / (step * micro_batches * dp), [&](std::int64_t count) {
          return simulator.fits(with_micro_batch(plan, count * step, micro_batches, value.where()))
              .fits;
        });
    if (steps == 0) {
      value.fail("not even the smallest micro-batch fits");
    }
    plan = with_micro_batch(plan, steps * step, micro_batches, value.where());
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
