// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "plan/schedule_traits.hpp"
#include "plan/stage/plan_schedule.hpp"
#include "plan/stage/servers.hpp"
#include "plan/stage/spread_attention.hpp"
#include "plan/stage/stage.hpp"
#include "plan/stage/token_table.hpp"

namespace orrery::plan {

namespace {

bool is_head(const StagePiece& piece, const models::Network& network) {
  return kind_of(piece, network) == models::BlockKind::Head;
}

BlockPlan layout_within_stage(const StagePiece& piece, const Plan& plan) {
  BlockPlan layout = piece.layout;
  layout.tp /= piece.across_stages ? plan.pp : 1;
  return layout;
}

// A device's shard of an embedding or head that is cut over all stages.
StagePiece shard_of(const StagePiece& piece, const Plan& plan, int barriers) {
  StagePiece shard = piece;
  if (piece.layout.tp == 1) {  // the stages are no ranks that share its stream
    shard.layout.sequence_parallel = false;
    shard.layout.tensor_parallel = TensorMesh::OneD;
  }
  shard.layout.tp *= plan.pp;
  shard.layout.tensor_shares = piece.layout.tensor_shares.repeated(plan.pp);
  shard.across_stages = true;
  shard.barriers = barriers;
  return shard;
}

// Takes embedding and head out of their stages and gives every device a shard of both: first the
// shards of the head, then those of the embedding.
void share_ends(const Plan& plan, std::vector<StageContent>& stages) {
  StageContent output;
  StageContent input;
  const int barriers = schedule_traits(plan).output_barriers;
  for (StageContent& content : stages) {
    for (const StagePiece& piece : content) {
      if (!is_layer(piece, plan.network)) {
        (is_head(piece, plan.network) ? output : input).push_back(shard_of(piece, plan, barriers));
      }
    }
    std::erase_if(content, [&](const StagePiece& piece) { return !is_layer(piece, plan.network); });
  }
  const auto devices = static_cast<std::size_t>(plan.pp);
  stages.insert(stages.end(), devices, output);
  stages.insert(stages.end(), devices, input);
}

// Takes the frozen blocks out of their stages and gives every device all of them.
void share_frozen(const Plan& plan, std::vector<StageContent>& stages) {
  const auto frozen = [&](const StagePiece& piece) {
    return plan.network.blocks[static_cast<std::size_t>(piece.block)].frozen;
  };
  StageContent copy;
  for (StageContent& content : stages) {
    std::copy_if(content.begin(), content.end(), std::back_inserter(copy), frozen);
    std::erase_if(content, frozen);
  }
  stages.insert(stages.end(), static_cast<std::size_t>(plan.pp), copy);
}

}  // namespace

std::int64_t micro_batch_of(const StagePiece& piece, const Plan& plan) {
  return plan.micro_batch_of(layout_within_stage(piece, plan), piece.block);
}

int data_ranks_of(const StagePiece& piece, const Plan& plan) {
  return plan.data_ranks(layout_within_stage(piece, plan));
}

bool shares_output_layer(const Plan& plan) { return schedule_traits(plan).shares_output_layer; }

models::BlockKind kind_of(const StagePiece& piece, const models::Network& network) {
  return network.blocks[static_cast<std::size_t>(piece.block)].kind;
}

bool is_layer(const StagePiece& piece, const models::Network& network) {
  return kind_of(piece, network) == models::BlockKind::Layer;
}

StagePiece piece_at(const Plan& plan, int position) {
  const StagePiece piece{plan.network.chain[static_cast<std::size_t>(position)],
                         plan.layout_of(position)};
  const ScheduleTraits traits = schedule_traits(plan);
  return traits.shares_output_layer && !is_layer(piece, plan.network)
             ? shard_of(piece, plan, traits.output_barriers)
             : piece;
}

bool reduces_every_micro_batch(const StageContent& content) {
  return std::any_of(content.begin(), content.end(),
                     [](const StagePiece& piece) { return piece.layout.zero_stage >= 2; });
}

std::size_t first_equal(const std::vector<StageContent>& contents, std::size_t stage) {
  const auto self = contents.begin() + static_cast<std::ptrdiff_t>(stage);
  return static_cast<std::size_t>(std::find(contents.begin(), self, *self) - contents.begin());
}

namespace {

// Devices in turn are as good as those of the lists where no device has several stages of a chain.
std::vector<std::uint16_t> devices_that_share(const Plan& plan) {
  const std::vector<models::Block>& blocks = plan.network.blocks;
  const bool in_turn = plan.schedule_document == nullptr && plan.chunks == 1 &&
                       !schedule_traits(plan).two_directions;
  return plan.pp == 1 || in_turn || std::none_of(blocks.begin(), blocks.end(), uses_table)
             ? std::vector<std::uint16_t>()
             : schedule_devices(plan);
}

}  // namespace

std::vector<StageContent> stage_contents(const Plan& plan) {
  return stage_contents(plan, devices_that_share(plan));
}

std::vector<StageContent> stage_contents(const Plan& plan,
                                         const std::vector<std::uint16_t>& device_of) {
  std::vector<StageContent> stages;
  std::size_t position = 0;
  for (const int blocks : plan.stage_blocks) {
    StageContent content;
    for (int index = 0; index < blocks; ++index, ++position) {
      const int block = plan.network.chain[position];
      const BlockPlan& layout = plan.layout_of(static_cast<int>(position));
      if (!content.empty() && content.back().block == block && content.back().layout == layout) {
        ++content.back().count;
      } else {
        content.push_back({block, layout, 1});
      }
    }
    stages.push_back(std::move(content));
  }
  if (shares_output_layer(plan)) {
    share_ends(plan, stages);
  }
  if (schedule_traits(plan).fills_frozen) {
    share_frozen(plan, stages);
  }
  if (schedule_traits(plan).spreads_attention) {
    join_ends(plan, stages);
  }
  if (schedule_traits(plan).uses_servers) {
    add_services(plan, stages);
  }
  if (schedule_traits(plan).two_directions) {  // every device holds a stage of both copies
    const std::size_t chain = stages.size();
    for (std::size_t stage = 0; stage < chain; ++stage) {
      stages.push_back(StageContent(stages[stage]));
    }
  }
  share_table(plan, device_of, stages);
  return stages;
}

}  // namespace orrery::plan
