// SPDX-License-Identifier: Apache-2.0
// Laws of the simulated iteration: it stands between its lower bounds and the serial sum of all
// parts, its FLOPs are those of the network whatever the degrees, faster hardware is never slower,
// and repeating it gives the same bits.
#include <gtest/gtest.h>

#include <cmath>

#include "plan/block/cost.hpp"
#include "plan/stage/stage.hpp"
#include "tests/property/plan/plan_generator.hpp"

namespace orrery::plan::testing {
namespace {

const BlockCost& block_at(BlockCosts& costs, const Plan& plan, std::size_t position) {
  return costs.of(plan.network.chain[position], plan.layout_of(static_cast<int>(position)),
                  plan.micro_batch);
}

// Every kernel and collective of a pass after one another, or the host launching them.
Seconds serial(const PassCost& pass, const Plan& plan) {
  Seconds sum;
  for (const Seconds part : pass.by_class) {
    sum += part;
  }
  return std::max(sum, plan.profile.kernel_launch * static_cast<double>(pass.launches));
}

// All passes, transfers, reductions and gathers of the iteration one after another.
Seconds serial_sum(const Plan& plan) {
  BlockCosts costs(plan);
  const double micro_batches = static_cast<double>(plan.num_micro_batches());
  const BlockPlan& layout = plan.blocks.front().layout;
  const Mesh mesh = mesh_of(layout, plan.dp);
  Seconds sum;
  for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
    const BlockCost& block = block_at(costs, plan, position);
    const StateTraffic traffic = state_traffic(block, layout, mesh, costs, false);
    const double reductions = layout.zero_stage >= 2 ? micro_batches : 1.0;
    const double gathers = layout.zero_stage == 3 ? 2 * micro_batches : 1.0;
    sum += (serial(block.forward, plan) + serial(block.backward, plan)) * micro_batches;
    sum += traffic.reduce * reductions + traffic.gather * gathers;
  }
  const Bytes boundary = block_at(costs, plan, 0).boundary.bytes();
  const int nics = std::max(1, plan.cluster.node.scale_out.nics);
  const int sharing = std::max(1, plan.cluster.node.gpus / nics);
  const Seconds send = std::max(costs.collectives().send_receive(boundary, true, sharing),
                                costs.collectives().send_receive(boundary, false, sharing));
  sum += send * (2.0 * micro_batches * plan.pp * plan.chunks);
  const double table = static_cast<double>(plan.network.spec.vocab * plan.network.spec.hidden);
  const int ranks = plan.cluster.num_gpus() / plan.pp;
  sum += costs.collectives().time(
      sim::CommKind::AllReduce, Bytes(4 * table),
      costmodel::make_group(2, std::max(1, ranks * (plan.pp - 1)), plan.cluster.node.gpus));
  return sum;
}

TEST(SimulateProperty, StandsBetweenBoundsAndSerialSum) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_plan();
    Simulator simulator(plan);
    const Simulation result = simulator.run(plan);
    RC_ASSERT(simulator.lower_bound(plan) <= result.iteration_time);
    RC_ASSERT(simulator.work_bound(plan) <= result.iteration_time);
    RC_ASSERT(result.breakdown.compute <= result.iteration_time);
    RC_ASSERT(result.breakdown.recompute <= result.breakdown.compute);
    const Seconds picoseconds(1e-9);  // whole picoseconds of every part
    RC_ASSERT(result.iteration_time <= serial_sum(plan) + result.breakdown.optimizer + picoseconds);
  }));
}

TEST(SimulateProperty, RepeatsBitForBitWarmOrCold) {
  EXPECT_TRUE(rc::check([] {
    const Plan plan = any_plan();
    Plan other = plan;
    other.blocks.front().layout.recompute = Recompute::Full;
    Simulator warm(plan);
    warm.run(other);
    const Simulation first = warm.run(plan);
    const Simulation again = simulate(plan);
    RC_ASSERT(first.iteration_time == again.iteration_time);
    RC_ASSERT(first.mfu_fraction == again.mfu_fraction);
    // Evaluating every pass gives the time of the shortcut.
    RC_ASSERT(simulate(plan, {.record_spans = true}).iteration_time == first.iteration_time);
  }));
}

// Products of the forward pass of one iteration over all ranks, written down by hand. The router is
// no one's to split: tensor ranks that hold the same tokens all run it.
double forward_products(const Plan& plan, bool causal_half) {
  const models::NetworkSpec& spec = plan.network.spec;
  const auto tokens = static_cast<__int128>(plan.batch) * plan.sequence;
  const __int128 hidden = spec.hidden;
  const __int128 attention_width = spec.heads * spec.head_dim;
  const __int128 kv_width = spec.kv_heads * spec.head_dim;
  const int matrices = spec.activation == models::Activation::SwiGlu ? 3 : 2;
  __int128 weights = hidden * (attention_width + 2 * kv_width) + attention_width * hidden;
  if (spec.moe.experts > 0) {
    const BlockPlan& layout = plan.blocks.front().layout;
    const int routers = layout.sequence_parallel ? 1 : layout.tp;
    weights += routers * hidden * spec.moe.experts +
               spec.moe.top_k * matrices * hidden * spec.moe.ffn_hidden;
  } else {
    weights += matrices * hidden * spec.ffn_hidden;
  }
  const __int128 scores = 2 * attention_width * plan.sequence;  // QK and AV
  const __int128 per_token =
      spec.layers * (2 * weights + (causal_half ? scores : 2 * scores)) + 2 * hidden * spec.vocab;
  return static_cast<double>(tokens * per_token);
}

// What a rank computes is what MFU counts of it, unless tensor ranks do the same work.
TEST(SimulateProperty, FlopsOfAdaptersAreThoseOfTheModel) {
  EXPECT_TRUE(rc::check([] {
    models::NetworkSpec spec = any_spec();
    spec.adapters.rank = 16;
    const Plan plan = any_plan(spec, any_machine());
    const BlockPlan& layout = plan.blocks.front().layout;
    BlockCosts costs(plan);
    double flops = 0;
    for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
      const BlockCost& block = block_at(costs, plan, position);
      flops += (block.forward.flops + block.backward.flops - block.recompute.flops).value() *
               static_cast<double>(plan.num_micro_batches()) * plan.dp * layout.tp * layout.cp;
    }
    const double model = models::model_flops(plan.network, {plan.batch, plan.sequence},
                                             plan.execution.fused_attention)
                             .value();
    RC_ASSERT(flops > model * (1 - 1e-12));
    const bool divided = layout.tp == 1 || layout.sequence_parallel;
    RC_ASSERT(flops < model * (divided ? 1 + 1e-12 : 1.1));
  }));
}

TEST(SimulateProperty, FlopsOfAllRanksAreThoseOfTheNetwork) {
  EXPECT_TRUE(rc::check([] {
    models::NetworkSpec trained = any_spec();
    trained.adapters = {};
    const Plan plan = any_plan(trained, any_machine());
    const BlockPlan& layout = plan.blocks.front().layout;
    BlockCosts costs(plan);
    double forward = 0;
    double backward = 0;
    double recompute = 0;
    double attention = 0;
    double layers = 0;
    for (std::size_t position = 0; position < plan.network.chain.size(); ++position) {
      const BlockCost& block = block_at(costs, plan, position);
      const double executions =
          static_cast<double>(plan.num_micro_batches()) * plan.dp * layout.tp * layout.cp;
      forward += block.forward.flops.value() * executions;
      backward += block.backward.flops.value() * executions;
      recompute += block.recompute.flops.value() * executions;
      const bool is_layer = position > 0 && position + 1 < plan.network.chain.size();
      layers += is_layer ? block.forward.flops.value() * executions : 0.0;
    }
    const bool half = plan.execution.fused_attention;
    const double scores = static_cast<double>(plan.batch * plan.sequence * plan.sequence) *
                          static_cast<double>(plan.network.spec.heads * 64 * (half ? 2 : 4));
    attention = scores * static_cast<double>(plan.network.spec.layers);
    const double expected = forward_products(plan, half);
    RC_ASSERT(std::abs(forward / expected - 1) < 1e-12);
    RC_ASSERT(std::abs((backward - recompute) / (2 * expected) - 1) < 1e-12);
    const double repeated = layout.recompute == Recompute::Full        ? layers
                            : layout.recompute == Recompute::Selective ? attention
                                                                       : 0.0;
    RC_ASSERT(std::abs(recompute - repeated) <= 1e-12 * expected);
  }));
}

// Without side-by-side work nothing contends, so faster parts cannot be slower.
TEST(SimulateProperty, FasterHardwareIsNeverSlower) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_plan();
    plan.execution.overlap_tp = plan.execution.stream_tp = false;
    plan.execution.overlap_grad_reduce = plan.execution.overlap_param_gather = false;
    const Seconds before = simulate(plan).iteration_time;
    topologies::Cluster& cluster = plan.cluster;
    const double factor = pick({1.1, 2.0, 10.0});
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        for (FlopsPerSecond& peak : cluster.gpu.peak) {
          peak *= factor;
        }
        break;
      case 1:
        cluster.gpu.hbm_bandwidth *= factor;
        break;
      case 2:
        cluster.node.scale_up.nccl_bandwidth *= factor;
        cluster.node.scale_up.bandwidth_per_gpu *= factor;
        break;
      case 3:
        cluster.node.scale_out.nic_bandwidth *= factor;
        break;
      case 4:
        cluster.node.scale_out.latency *= 1 / factor;
        break;
      default:
        plan.profile.kernel_launch *= 1 / factor;
        plan.profile.memory.launch *= 1 / factor;
        plan.profile.attention.launch *= 1 / factor;
        for (costmodel::GemmParameters& gemm : plan.profile.gemm) {
          gemm.launch *= 1 / factor;
        }
        break;
    }
    RC_ASSERT(simulate(plan).iteration_time <= before);
  }));
}

// Twice the micro-batches take longer, and never more than two iterations.
TEST(SimulateProperty, MoreMicroBatchesNeverTakeLess) {
  EXPECT_TRUE(rc::check([] {
    Plan plan = any_plan();
    const Seconds before = simulate(plan).iteration_time;
    plan.batch *= 2;
    const Seconds after = simulate(plan).iteration_time;
    RC_ASSERT(after > before);
    RC_ASSERT(after <= before * (2.0 + 1e-12));
  }));
}

}  // namespace
}  // namespace orrery::plan::testing
