// SPDX-License-Identifier: Apache-2.0
// Pipelines on tiny tensors whose micro-batches travel in slices of their sequences, or in two
// directions through two copies of the model, or whose ends share one token table: loss and
// gradients are those of one device. Keys and values of earlier slices that are not read, gradients
// that do not come back to them, and copies that are not added up, or twice, are noticed.
#include <gtest/gtest.h>

#include "plan/stage/token_table.hpp"
#include "tests/unit/plan/plan_fixture.hpp"
#include "tests/unit/plan/semantics/chain.hpp"
#include "tests/unit/plan/semantics/tiny_layouts.hpp"

namespace orrery::plan::semantics {
namespace {

// Four layers between the ends.
models::Network sliced_chain(models::Family family, bool experts = false) {
  models::NetworkSpec spec = tiny(family);
  spec.layers = 4;
  spec.kv_heads = family == models::Family::Llama ? 2 : 4;
  spec.sequence = 8;
  if (experts) {
    spec.moe = {.experts = 4, .top_k = 2, .ffn_hidden = 4, .shared_ffn_hidden = 4};
  }
  return models::build_network(spec, "test");
}

sim::PipelineOrder order_by(const std::string& schedule, sim::ScheduleParams params) {
  const sim::Schedule& found = sim::find_schedule(schedule, "test");
  EXPECT_EQ(to_text(found.check(params)), "");
  return found.order(params);
}

constexpr int kUnits = 4;     // micro-batches
constexpr int kSequence = 8;  // tokens

ChainProgram one_device(const models::Network& network, int micro_batch) {
  ChainProgram serial(network, std::vector<BlockPlan>(network.chain.size()), 1,
                      {micro_batch * kUnits, kSequence}, 1);
  sim::ScheduleParams params;
  params.stages = params.micro_batches = 1;
  EXPECT_TRUE(serial.run(order_by("gpipe", params), {static_cast<int>(network.chain.size())}));
  return serial;
}

struct SliceCase {
  std::string name;
  std::string schedule;
  std::vector<int> slices;
  BlockPlan layout;
  int ranks = 1;
  bool experts = false;
};

void PrintTo(const SliceCase& c, std::ostream* out) { *out << c.name; }

std::vector<SliceCase> slice_cases() {
  return {{"seq1f1b", "seq1f1b", {4, 4}, {}},
          {"terapipe_uneven", "terapipe", {4, 3, 1}, {}},
          {"terapipe_data", "terapipe", {5, 3}, {}, 2},
          {"seq1f1b_tensor", "seq1f1b", {4, 4}, tensor(2, true), 2},
          {"seq1f1b_gather", "seq1f1b", {4, 4}, context(ContextParallel::AllGather, 2, 2), 4},
          {"seq1f1b_ulysses", "seq1f1b", {4, 4}, context(ContextParallel::Ulysses, 2), 4},
          {"seq1f1b_half_folded", "seq1f1b", {4, 4}, expert(2, 4, 2, true), 4, true}};
}

class SliceSemantics : public testing::TestWithParam<SliceCase> {
 protected:
  double distance(ChainFault fault) {
    const SliceCase& c = GetParam();
    ChainProgram program(network_, std::vector<BlockPlan>(network_.chain.size(), c.layout), c.ranks,
                         {2, kSequence}, kUnits, fault);
    program.cut_into(c.slices);
    sim::ScheduleParams params;
    params.stages = 2;
    params.micro_batches = kUnits;
    params.slices = static_cast<int>(c.slices.size());
    EXPECT_TRUE(program.run(order_by(c.schedule, params), {3, 3}));
    return program.distance(serial_);
  }
  models::Network network_ = sliced_chain(models::Family::Llama, GetParam().experts);
  ChainProgram serial_ = one_device(network_, 2);
};

TEST_P(SliceSemantics, EqualsTheSerialResult) { EXPECT_LT(distance({}), 1e-9); }

TEST_P(SliceSemantics, NeedsWhatSlicesTellOneAnother) {
  EXPECT_GT(distance({.alone_forward = 2}), 1e-6);
  EXPECT_GT(distance({.alone_backward = 2}), 1e-6);
  for (const int times : {0, 2}) {
    EXPECT_GT(distance({.position = 2, .micro_batch = 1, .times = times}), 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, SliceSemantics, testing::ValuesIn(slice_cases()),
                         [](const auto& instance) { return instance.param.name; });

struct CopiesCase {
  std::string schedule;
  int chunks = 1;
};

void PrintTo(const CopiesCase& c, std::ostream* out) { *out << c.schedule; }

class TwoDirections : public testing::TestWithParam<CopiesCase> {};

// Copies of a parameter are on a device and its mirror image, which add up what they have.
TEST_P(TwoDirections, EqualTheSerialResultAndAddBothCopiesOnce) {
  const CopiesCase& c = GetParam();
  const models::Network network = sliced_chain(models::Family::Llama);
  const ChainProgram serial = one_device(network, 2);
  sim::ScheduleParams params;
  params.stages = 2;
  params.micro_batches = kUnits;
  params.chunks = c.chunks;
  const sim::PipelineOrder order = order_by(c.schedule, params);
  const std::vector<sim::Chain> chains = sim::chains_of(order);
  ASSERT_EQ(chains.size(), 2U);
  for (int stage = 0; stage < chains[0].stages; ++stage) {
    const auto device = [&](int chain) {
      return order.device_of[static_cast<std::size_t>(
          chains[static_cast<std::size_t>(chain)].first + stage)];
    };
    EXPECT_EQ(device(0), params.stages - 1 - device(1));
  }
  const std::vector<int> blocks =
      chains[0].stages == 2 ? std::vector<int>{3, 3} : std::vector<int>{2, 1, 1, 2};
  const auto distance = [&](ChainFault fault) {
    ChainProgram program(network, std::vector<BlockPlan>(network.chain.size(), tensor(2, true)), 2,
                         {2, kSequence}, kUnits, fault);
    EXPECT_TRUE(program.run(order, blocks));
    return program.distance(serial);
  };
  EXPECT_LT(distance({}), 1e-9);
  EXPECT_GT(distance({.copies_times = 0}), 1e-6);
  EXPECT_GT(distance({.copies_times = 2}), 1e-6);
  EXPECT_GT(distance({.position = 1, .micro_batch = 3, .times = 0}), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Schedules, TwoDirections,
                         testing::Values(CopiesCase{"chimera"}, CopiesCase{"chimera-doubling"},
                                         CopiesCase{"dualpipe"}, CopiesCase{"bitpipe", 2}),
                         [](const auto& instance) {
                           std::string name = instance.param.schedule;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Gradients of a token table on one rank, by row and column.
using Table = std::map<std::pair<int, int>, double>;

// The table's gradients that a block makes, of the ranks of its stage; none of a block without one.
std::vector<Table> tables_of(const models::Block& block, const Interpreter& program) {
  std::vector<Table> tables;
  for (const models::Operator& op : block.operators) {
    for (const int weight : op.weights) {
      const bool holds = op.kind == models::OpKind::Embedding ||
                         block.tensors[static_cast<std::size_t>(weight)].tied;
      if (!holds) {
        continue;
      }
      for (const Part& part : program.weight_gradients(weight)) {
        const auto row = static_cast<std::size_t>(part.dim_of(Var::Vocab));
        const auto column = static_cast<std::size_t>(part.dim_of(Var::Hidden));
        Table& table = tables.emplace_back();
        for_each(part, [&](Eigen::Index position, const std::vector<int>& at) {
          table[{at[row], at[column]}] = part.data[position];
        });
      }
    }
  }
  return tables;
}

void add_tables(const std::vector<Table>& more, std::vector<Table>& sum) {
  sum.resize(more.size());
  for (std::size_t rank = 0; rank < more.size(); ++rank) {
    for (const auto& [place, value] : more[rank]) {
      sum[rank][place] += value;
    }
  }
}

struct TableCase {
  std::string schedule;
  int chunks = 1;
  bool sums = true;  // between devices
};

void PrintTo(const TableCase& c, std::ostream* out) { *out << c.schedule; }

class SharedTable : public testing::TestWithParam<TableCase> {
 protected:
  SharedTable() {
    const TableCase& c = GetParam();
    params_.stages = 2;
    params_.micro_batches = kUnits;
    params_.chunks = c.chunks;
    order_ = order_by(c.schedule, params_);
    const int stages = sim::chains_of(order_).front().stages;
    plan_.network = sliced_chain(models::Family::Gpt);
    plan_.schedule = c.schedule;
    plan_.chunks = c.chunks;
    plan_.pp = 2;
    plan_.dp = 1;
    plan_.batch = 2 * kUnits;
    plan_.micro_batch = 2;
    plan_.sequence = kSequence;
    plan_.stage_blocks = stages == 2 ? std::vector<int>{3, 3} : std::vector<int>{2, 1, 1, 2};
    plan_.blocks = {{static_cast<int>(plan_.network.chain.size()), tensor(2, true)}};
  }

  // The table of every device that holds one: added up there, then by those that the plan says,
  // so many times.
  std::map<int, std::vector<Table>> tables(int times) {
    ChainProgram program(plan_.network,
                         std::vector<BlockPlan>(plan_.network.chain.size(), tensor(2, true)), 2,
                         {2, kSequence}, kUnits);
    EXPECT_TRUE(program.run(order_, plan_.stage_blocks));
    std::map<int, std::vector<Table>> tables;
    const std::vector<sim::Chain> chains = sim::chains_of(order_);
    for (std::size_t copy = 0; copy < chains.size(); ++copy) {
      auto stage = static_cast<std::size_t>(chains[copy].first);
      std::size_t position = 0;
      for (const int blocks : plan_.stage_blocks) {
        for (int block = 0; block < blocks; ++block, ++position) {
          const models::Block& held =
              plan_.network.blocks[static_cast<std::size_t>(plan_.network.chain[position])];
          if (holds_table(held)) {
            add_tables(tables_of(held, program.sum_of(position, copy)),
                       tables[order_.device_of[stage]]);
          }
        }
        ++stage;
      }
    }
    const std::vector<int> holders =
        devices_with_table(plan_, order_.device_of, stage_contents(plan_, order_.device_of));
    EXPECT_EQ(holders.size() > 1, GetParam().sums);
    for (int time = 0; time < times && holders.size() > 1; ++time) {
      std::vector<Table> sum;
      for (const int device : holders) {
        add_tables(tables[device], sum);
      }
      for (const int device : holders) {
        tables[device] = sum;
      }
    }
    return tables;
  }

  // The largest difference from those of one device.
  double distance(int times) {
    const ChainProgram serial = one_device(plan_.network, 2);
    std::vector<Table> expected;
    for (std::size_t position = 0; position < plan_.network.chain.size(); ++position) {
      const models::Block& block =
          plan_.network.blocks[static_cast<std::size_t>(plan_.network.chain[position])];
      if (holds_table(block)) {
        add_tables(tables_of(block, serial.sum_of(position)), expected);
      }
    }
    double largest = 0;
    for (const auto& [device, ranks] : tables(times)) {
      std::size_t elements = 0;
      for (const Table& table : ranks) {
        elements += table.size();
        for (const auto& [place, value] : table) {
          largest = std::max(largest, std::abs(value - expected.front().at(place)));
        }
      }
      EXPECT_EQ(elements, expected.front().size());  // cut over the two ranks
    }
    return largest;
  }

  Plan plan_ = small_plan();
  sim::ScheduleParams params_;
  sim::PipelineOrder order_;
};

TEST_P(SharedTable, HasTheGradientsOfAllItsUsesOnce) {
  EXPECT_LT(distance(1), 1e-9);
  for (const int times : {0, 2}) {
    EXPECT_EQ(distance(times) > 1e-6, GetParam().sums);
  }
  BlockCosts costs(plan_);
  const auto rank = static_cast<double>(tables(0).begin()->second.front().size());
  EXPECT_EQ(tied_gradients(plan_, costs).value(), 4 * rank);
}

// Of a V and of two directions the same device holds both ends.
INSTANTIATE_TEST_SUITE_P(Schedules, SharedTable,
                         testing::Values(TableCase{"gpipe"}, TableCase{"1f1b"},
                                         TableCase{"interleaved", 2}, TableCase{"zb-v", 2, false},
                                         TableCase{"chimera", 1, false}),
                         [](const auto& instance) {
                           std::string name = instance.param.schedule;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace orrery::plan::semantics
