// SPDX-License-Identifier: Apache-2.0
#include "plan/flat/ranks.hpp"

#include <fmt/format.h>

#include <limits>

namespace orrery::plan {

namespace {

struct LaneKind {
  sim::StreamKind kind;
  const char* name;
};
constexpr std::array<LaneKind, kNumLanes> kLanes = {{{sim::StreamKind::Compute, "compute"},
                                                     {sim::StreamKind::Collective, "collectives"},
                                                     {sim::StreamKind::Collective, "data"},
                                                     {sim::StreamKind::Host, "launches"}}};

}  // namespace

RankStreams RankProgram::add_stage(std::size_t stage) {
  RankStreams result;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const auto device = static_cast<std::uint32_t>(stage * ranks_ + rank);
    const std::string name =
        ranks_ > 1 ? fmt::format("stage {} rank {}", stage, rank) : fmt::format("stage {}", stage);
    for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
      result.streams[lane].push_back(program_.add_stream(
          device, kLanes[lane].kind, fmt::format("{} {}", name, kLanes[lane].name)));
    }
    if (block_demand_ > 0 || data_demand_ > 0) {
      result.processors.push_back(program_.add_resource(1.0, name + " multiprocessors"));
    }
    result.pools.push_back(program_.add_pool(
        device, ByteCount(std::numeric_limits<std::int64_t>::max()), name + " memory"));
  }
  return result;
}

Spread RankProgram::add_kernel(const RankStreams& streams, Lane lane, Seconds time,
                               const sim::Tag& tag) {
  Spread spread;
  const SimTime fixed = to_sim_time(time);
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    sim::NodeId node;
    if (streams.processors.empty() || lane != Lane::Compute) {
      node = program_.add_work(streams.of(lane)[rank], fixed, tag);
    } else {
      const sim::Demand demand{streams.processors[rank], 1.0};
      node = program_.add_shared_work(streams.of(lane)[rank], SimTime{}, time, {&demand, 1}, tag);
    }
    spread.first = rank == 0 ? node : spread.first;
  }
  return spread;
}

Spread RankProgram::add_collective(const RankStreams& streams, Lane lane, const RankGroups& groups,
                                   Seconds time, const sim::Tag& tag) {
  Spread spread;
  spread.groups = &groups;
  const SimTime fixed = to_sim_time(time);
  std::vector<sim::StreamId> ends;
  std::vector<sim::Demand> demands;
  for (const std::vector<std::uint32_t>& members : groups.members) {
    ends.clear();
    demands.clear();
    for (const std::uint32_t rank : members) {
      ends.push_back(streams.of(lane)[rank]);
      if (!streams.processors.empty()) {
        demands.push_back(
            {streams.processors[rank], lane == Lane::Data ? data_demand_ : block_demand_});
      }
    }
    const sim::NodeId node =
        demands.empty()
            ? program_.add_group(ends, fixed, tag)
            : program_.add_shared_group(ends, SimTime{}, time.value(), 1.0, demands, tag);
    spread.first = spread.exists() ? spread.first : node;
  }
  return spread;
}

Spread RankProgram::add_flow(SimTime time, const sim::Tag& tag) {
  Spread spread;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    const sim::NodeId node = program_.add_flow({}, time, Bytes(0.0), {}, tag);
    spread.first = rank == 0 ? node : spread.first;
  }
  return spread;
}

Spread RankProgram::add_barrier(const std::vector<sim::StreamId>& streams, const sim::Tag& tag) {
  all_.of.assign(ranks_, 0);
  all_.members.resize(1);
  return {program_.add_group(streams, SimTime{}, tag), &all_};
}

void RankProgram::depend(const Spread& consumer, const Spread& producer) {
  if (!consumer.exists() || !producer.exists()) {
    return;
  }
  if (consumer.groups == producer.groups && consumer.groups != nullptr) {
    for (std::uint32_t group = 0; group < consumer.groups->members.size(); ++group) {
      program_.depend(consumer.first + group, producer.first + group);
    }
    return;
  }
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    program_.depend(consumer.of(rank), producer.of(rank));
  }
}

const RankGroups& RankProgram::groups(const Mesh& mesh, std::uint8_t axes) {
  RankGroups& groups = groups_[{mesh.size, mesh.order(), axes}];
  if (!groups.of.empty()) {
    return groups;
  }
  // The first rank of a group has place 0 on all of its axes.
  std::map<std::int64_t, std::uint32_t> group_of_first;
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    std::int64_t first = static_cast<std::int64_t>(rank);
    for (std::size_t index = 0; index < kNumAxes; ++index) {
      const auto axis = static_cast<Axis>(index);
      if ((axes >> index & 1U) != 0 && ranks_ > 1) {
        const std::int64_t stride = mesh.stride(axis);
        first -= static_cast<std::int64_t>(rank) / stride % mesh.of(axis) * stride;
      }
    }
    const auto [slot, is_new] =
        group_of_first.try_emplace(first, static_cast<std::uint32_t>(groups.members.size()));
    if (is_new) {
      groups.members.emplace_back();
    }
    groups.of.push_back(slot->second);
    groups.members[slot->second].push_back(static_cast<std::uint32_t>(rank));
  }
  return groups;
}

}  // namespace orrery::plan
