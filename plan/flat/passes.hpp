// SPDX-License-Identifier: Apache-2.0
// Adds the passes of a pipeline order to a flat program: blocks in turn, each on the compute and
// communication streams, parameter gathers and gradient reductions on the data stream, transfers
// between stages, and the end of the step. A block begins when the one before it has ended on both
// streams, as frameworks wait for a collective before they use its result; the data stream waits
// only for what it needs (plan/stage/stage.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/flat/blocks.hpp"
#include "plan/flat/ranks.hpp"
#include "plan/stage/amax.hpp"
#include "plan/stage/pass_costs.hpp"
#include "sim/schedule.hpp"

namespace orrery::plan {

struct FlatStage {
  struct Item {
    const FlatBlock* block;
    std::uint16_t layer;  // chain position
  };
  std::vector<Item> blocks;
  ByteCount activations;  // saved by one micro-batch
  ByteCount kept;         // between the two passes of a cut backward
  int zero_stage = 0;
  bool reduces_every_pass = false;
  AmaxReductions amax;
  SimTime weight_casts;
};

class FlatPasses {
 public:
  // The references stay alive with the object.
  FlatPasses(const Plan& plan, const sim::PipelineOrder& order,
             const std::vector<FlatStage>& stages, const std::vector<SimTime>& sends,
             const MessageWaits& waits, RankProgram& ranks);

  void add_all();
  // The end of the step, in this order.
  Spread add_tied_sum(const std::vector<int>& devices, Seconds time);
  Spread add_norm(const Spread& tied);
  void add_optimizer(std::size_t device, Seconds time, const Spread& norm);

 private:
  static constexpr int kCompute = 0;  // places in a front
  static constexpr int kCommunication = 1;
  static constexpr int kHost = 2;
  static constexpr std::size_t kLanesOfBlocks = 3;
  // The latest node of each lane that later blocks wait for.
  using Front = std::array<Spread, kLanesOfBlocks>;
  struct Device {
    RankStreams streams;
    Front front;
    Spread data;                  // latest on the data stream
    std::vector<Front> gathered;  // ends of blocks whose parameters were gathered for one pass
  };
  // The nodes of one pass that others are connected to.
  struct PassEnds {
    Front entries;
    Front ends;
    Spread first;  // kernels
    Spread last;
  };

  void add_pass(Device& device, const sim::Pass& pass);
  void add_forward(Device& device, const sim::Pass& pass, PassEnds& ends);
  void add_backward(Device& device, const sim::Pass& pass, PassEnds& ends);
  void add_list(Device& device, const FlatList& list, const FlatBlock& block, sim::Tag tag,
                const Spread& gather, const Front& start, PassEnds& ends);
  Spread add_gather(Device& device, const FlatStage::Item& item, sim::Tag tag, bool limited,
                    bool backward = false);
  void add_reduce(Device& device, const FlatStage::Item& item, sim::Tag tag);
  void reduce_after_all(Device& device, std::size_t device_index);
  void add_reductions(Device& device, const FlatStage& stage, const sim::Tag& tag);
  void add_amax(Device& device, const AmaxReductions& amax, Seconds time, sim::Tag tag);
  void add_wait(Device& device, SimTime time, sim::Tag tag);
  void add_alone(Device& device, SimTime time, const sim::Tag& tag);
  void link_passes();
  void link(const PassEnds& from, const PassEnds& to, SimTime time, const sim::Tag& tag);
  void add_activations();
  void add_buffer(std::size_t stage, ByteCount bytes, const PassEnds& from, const PassEnds& to);
  void depend_on_front(const Spread& node, const Front& front, int except);
  bool crosses(std::size_t stage) const;  // to the next one
  std::size_t index(std::size_t stage, std::size_t micro_batch) const;

  const Plan& plan_;
  const sim::PipelineOrder& order_;
  const std::vector<FlatStage>& stages_;
  const std::vector<SimTime>& sends_;
  const MessageWaits& waits_;
  RankProgram& ranks_;
  std::vector<Device> devices_;
  std::vector<PassEnds> forward_;      // by stage and micro-batch
  std::vector<PassEnds> backward_;     // whole, or of activations alone
  std::vector<PassEnds> weight_grad_;  // where apart
  std::vector<int> forwards_left_;
  std::vector<int> backwards_left_;
  struct Names {
    std::uint32_t gather, reduce, send, tied, norm, optimizer, host, amax, casts, copies;
  };
  Names names_{};
};

}  // namespace orrery::plan
