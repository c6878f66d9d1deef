// SPDX-License-Identifier: Apache-2.0
#include "plan/packs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/math.hpp"
#include "plan/heads.hpp"
#include "plan/schedule_traits.hpp"

namespace orrery::plan {

namespace {

// Padding included, where there is some.
std::int64_t computed_tokens(const Pack& pack) {
  return pack.padded ? *std::max_element(pack.sequences.begin(), pack.sequences.end()) *
                           static_cast<std::int64_t>(pack.sequences.size())
                     : tokens_of(pack);
}

int slice_count(const Pack& pack) { return std::max(1, static_cast<int>(pack.slices.size())); }

// A number of equal slices of a sequence, or the tokens of each.
std::vector<std::int64_t> read_slices(const JsonReader& value,
                                      const std::vector<std::int64_t>& of) {
  std::vector<std::int64_t> slices;
  if (of.size() != 1) {
    value.fail(fmt::format("slices cut one sequence, and this pack has {}", of.size()));
  }
  if (!value.json().is_array()) {
    const std::int64_t count = value.integer(1, of.front());
    if (of.front() % count != 0) {
      value.fail(fmt::format("{} tokens are not divisible by {}: list the tokens of every slice",
                             of.front(), count));
    }
    slices.assign(static_cast<std::size_t>(count), of.front() / count);
  } else {
    for (const JsonReader& tokens : value.array(limits::kMaxBatch)) {
      slices.push_back(tokens.integer(1, limits::kMaxSequence));
    }
    const std::int64_t sum = std::accumulate(slices.begin(), slices.end(), std::int64_t{0});
    if (sum != of.front()) {
      value.fail(
          fmt::format("the slices have {} tokens, but the sequence has {}", sum, of.front()));
    }
  }
  return slices.size() > 1 ? slices : std::vector<std::int64_t>();
}

Pack read_pack(const JsonReader& entry) {
  ObjectReader object = entry.object();
  Pack pack;
  pack.group = static_cast<int>(object.integer_or("group", 1, 1, limits::kMaxDevices));
  const JsonReader sequences = object.required("sequences");
  for (const JsonReader& tokens : sequences.array(limits::kMaxBatch)) {
    pack.sequences.push_back(tokens.integer(1, limits::kMaxSequence));
  }
  if (const auto padded = object.optional("padded")) {
    pack.padded = padded->boolean();
  }
  if (pack.sequences.empty() || computed_tokens(pack) > limits::kMaxSequence) {
    sequences.fail(fmt::format("a pack has between 1 and {} tokens{}", limits::kMaxSequence,
                               pack.padded ? ", padding included" : ""));
  }
  if (const auto slices = object.optional("slices")) {
    pack.slices = read_slices(*slices, pack.sequences);
  }
  object.finish();
  return pack;
}

}  // namespace

std::int64_t tokens_of(const Pack& pack) {
  return std::accumulate(pack.sequences.begin(), pack.sequences.end(), std::int64_t{0});
}

std::int64_t units_of(const Plan& plan) {
  if (!runs_packed_pipeline(plan)) {
    return plan.num_micro_batches() * plan.slices;  // both are limited
  }
  std::int64_t units = 0;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    int most = 1;
    for (const Pack& pack : micro_batch) {
      most = std::max(most, slice_count(pack));
    }
    units += most;
  }
  return units;
}

// Of which one stage runs as many passes as a plan may have (kinds x slices).
constexpr std::int64_t kMostSlices = limits::kMaxPasses / 3;

std::vector<std::vector<Pack>> read_packs(const JsonReader& value) {
  std::int64_t slices = 0;  // a number may stand for many
  std::vector<std::vector<Pack>> packs;
  for (const JsonReader& micro_batch : value.array(limits::kMaxBatch)) {
    packs.emplace_back();
    for (const JsonReader& entry : micro_batch.array(limits::kMaxDevices)) {
      packs.back().push_back(read_pack(entry));
      slices += slice_count(packs.back().back());
      if (slices > kMostSlices) {
        entry.fail(
            fmt::format("packs up to this one have {} slices, more than {}", slices, kMostSlices));
      }
    }
    if (packs.back().empty()) {
      micro_batch.fail("a micro-batch without packs");
    }
  }
  return packs;
}

namespace {

Json numbers(const std::vector<std::int64_t>& values) {
  Json list = Json::array();
  for (const std::int64_t value : values) {
    list.push(value);
  }
  return list;
}

Json pack_json(const Pack& pack) {
  Json object = Json::Object{{"group", pack.group}, {"sequences", numbers(pack.sequences)}};
  if (pack.padded) {
    object.set("padded", true);
  }
  if (!pack.slices.empty()) {
    object.set("slices", numbers(pack.slices));
  }
  return object;
}

}  // namespace

Json packs_json(const std::vector<std::vector<Pack>>& packs) {
  Json all = Json::array();
  for (const std::vector<Pack>& micro_batch : packs) {
    Json side_by_side = Json::array();
    for (const Pack& pack : micro_batch) {
      side_by_side.push(pack_json(pack));
    }
    all.push(std::move(side_by_side));
  }
  return all;
}

std::string group_sizes_text(const Plan& plan) {
  std::set<int, std::greater<>> sizes;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      sizes.insert(pack.group);
    }
  }
  std::string text;
  for (auto size = sizes.begin(); size != sizes.end(); ++size) {
    const bool last = std::next(size) == sizes.end();
    text += text.empty() ? "" : last ? " and " : ", ";
    text += fmt::format("{}", *size);
  }
  return text;
}

void tell_packs(const Plan& plan, sim::ScheduleParams& params) {
  params.slices_of.clear();
  if (runs_packed_pipeline(plan)) {
    if (std::any_of(plan.packs.begin(), plan.packs.end(), [](const std::vector<Pack>& micro_batch) {
          return !micro_batch.front().slices.empty();
        })) {
      for (const std::vector<Pack>& micro_batch : plan.packs) {
        params.slices_of.push_back(slice_count(micro_batch.front()));
      }
    }
    return;
  }
  params.stages = plan.dp;
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      params.slices_of.push_back(pack.group);
    }
  }
  params.micro_batches = std::max<int>(1, static_cast<int>(params.slices_of.size()));
}

namespace {

// Ranks that share the tokens of a pack: what its length must divide by.
std::int64_t token_parts(const Plan& plan) {
  const BlockPlan& layout = plan.blocks.front().layout;
  const bool ring =
      layout.cp > 1 && layout.context == ContextParallel::Ring && plan.network.spec.causal;
  const std::int64_t ranks = std::int64_t{layout.cp} * (layout.sequence_parallel ? layout.tp : 1);
  return ring ? std::lcm(ranks, std::int64_t{2} * layout.cp) : ranks;
}

}  // namespace

Plan without_packs(const Plan& plan) {
  Plan layout = plan;
  layout.packs.clear();
  return layout;
}

Plan plan_of_pack(const Plan& layout, const Pack& pack) {
  Plan alone = layout;
  if (schedule_traits(layout).packs_sequences) {
    alone.schedule = "1f1b";
    alone.dp = layout.dp / pack.group;
    for (BlockRun& run : alone.blocks) {
      run.layout.cp = pack.group;
      run.layout.context = ContextParallel::Ulysses;
    }
  }
  set_pack(pack, alone);
  return alone;
}

void set_pack(const Pack& pack, Plan& alone) {
  const bool padded = pack.padded || !pack.slices.empty();  // a micro-batch like any other
  alone.micro_batch = padded ? static_cast<std::int64_t>(pack.sequences.size()) : 1;
  alone.batch = alone.dp * alone.micro_batch;
  alone.joined_sequences = padded ? std::vector<std::int64_t>() : pack.sequences;
  const std::int64_t parts = token_parts(alone);
  alone.sequence = ceil_div(computed_tokens(pack) / alone.micro_batch, parts) * parts;
  alone.slices = slice_count(pack);
  alone.slice_tokens = pack.slices;
}

const Pack& fullest_pack(const Plan& plan) {
  const Pack* fullest = nullptr;
  const auto load = [](const Pack& pack) {
    return static_cast<double>(computed_tokens(pack)) / pack.group;
  };
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      fullest = fullest == nullptr || load(pack) > load(*fullest) ? &pack : fullest;
    }
  }
  return *fullest;
}

std::vector<PackShape> pack_shapes(const Plan& plan) {
  using Key = std::tuple<int, std::int64_t, std::int64_t, std::vector<std::int64_t>>;
  std::map<Pack, int, PackLess> distinct;  // few, and a plan of each is a copy
  for (const std::vector<Pack>& micro_batch : plan.packs) {
    for (const Pack& pack : micro_batch) {
      ++distinct[pack];
    }
  }
  std::map<Key, PackShape, std::greater<>> known;
  const Plan layout = without_packs(plan);
  for (const auto& [pack, count] : distinct) {
    Plan alone = plan_of_pack(layout, pack);
    const Key key{pack.group, alone.sequence, alone.micro_batch, alone.slice_tokens};
    known.try_emplace(key, PackShape{std::move(alone), pack.group}).first->second.count += count;
  }
  std::vector<PackShape> shapes;
  for (auto& [key, shape] : known) {
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

bool runs_packed_pipeline(const Plan& plan) {
  return !plan.packs.empty() && !schedule_traits(plan).packs_sequences;
}

bool PackLess::operator()(const Pack& a, const Pack& b) const {
  return std::tie(a.group, a.padded, a.sequences, a.slices) <
         std::tie(b.group, b.padded, b.sequences, b.slices);
}

std::vector<PackedReplica> packed_replicas(const Plan& plan) {
  const auto less = [](const std::vector<const Pack*>& a, const std::vector<const Pack*>& b) {
    return std::lexicographical_compare(
        a.begin(), a.end(), b.begin(), b.end(),
        [](const Pack* one, const Pack* other) { return PackLess()(*one, *other); });
  };
  std::map<std::vector<const Pack*>, std::size_t, decltype(less)> known(less);
  std::vector<PackedReplica> replicas;
  const Plan layout = without_packs(plan);
  for (std::size_t replica = 0; replica < plan.packs.front().size(); ++replica) {
    std::vector<const Pack*> packs;
    for (const std::vector<Pack>& micro_batch : plan.packs) {
      if (replica < micro_batch.size()) {
        packs.push_back(&micro_batch[replica]);
      }
    }
    const auto [slot, is_new] = known.try_emplace(packs, replicas.size());
    if (!is_new) {
      ++replicas[slot->second].count;
      continue;
    }
    replicas.push_back({layout});
    for (const Pack* pack : packs) {
      replicas.back().plan.packs.push_back({*pack});
    }
  }
  return replicas;
}

}  // namespace orrery::plan
