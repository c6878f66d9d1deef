// SPDX-License-Identifier: Apache-2.0
#include "search/packed_pipelines.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "plan/packs.hpp"
#include "plan/stage/plan_schedule.hpp"

namespace orrery::search {

struct PipelinePacks::Fitted {
  MicroBatchModel model;       // bytes in tokens that a device holds
  std::vector<double> tokens;  // that fit each stage, beside its states
};

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kBounds = 64;  // on the longest micro-batch that are tried, about
// Of what the cost model says that memory holds, tried in turn: the allocator cannot reuse all of
// what micro-batches of other sizes left.
constexpr double kShares[] = {1.0, 0.85, 0.7, 0.5};

// By stage, seconds of both passes and bytes on a device, of one micro-batch in flight.
struct MeasuredPipeline {
  std::vector<double> times;
  std::vector<double> bytes;
  double backward_share = 0;  // of the time of all stages
};

MeasuredPipeline measure(const plan::Plan& plan, std::vector<std::int64_t> sequences) {
  const plan::Plan alone = plan::plan_of_pack(plan, {1, std::move(sequences), true});
  const plan::Simulation run = plan::simulate(alone, {.record_spans = true});
  MeasuredPipeline measured;
  SimTime backward;
  SimTime sum;
  for (std::size_t stage = 0; stage < run.memory.size(); ++stage) {
    measured.times.push_back(
        to_seconds(run.passes.forward[stage] + run.passes.backward[stage]).value());
    backward += run.passes.backward[stage];
    sum += run.passes.forward[stage] + run.passes.backward[stage];
    measured.bytes.push_back(static_cast<double>(run.memory[stage].total().value()));
  }
  measured.backward_share = to_seconds(backward) / to_seconds(sum);
  return measured;
}

double slowest(const MeasuredPipeline& measured) {
  return *std::max_element(measured.times.begin(), measured.times.end());
}

// One sequence of the longest, one of half its length, and two of these. `tokens`: those that fit
// each stage, beside its states.
MicroBatchModel fit(const plan::Plan& plan, std::int64_t longest, std::vector<double>& tokens) {
  const std::int64_t half = std::max<std::int64_t>(1, longest / 2);
  const auto length = static_cast<double>(half);
  const MeasuredPipeline one = measure(plan, {half});
  const MeasuredPipeline two = measure(plan, {half, half});
  const MeasuredPipeline twice = measure(plan, {2 * half});
  MicroBatchModel model;
  const double square = std::max(0.0, slowest(twice) - slowest(two)) / 2;
  model.per_token_squared = square / (length * length);
  const double linear = std::max(0.0, slowest(two) - slowest(one) - square);
  model.per_token = linear / length;
  model.base = std::max(0.0, slowest(one) - linear - square);
  model.bytes_per_token = 1;
  model.backward_share = two.backward_share;
  const auto capacity =
      static_cast<double>((plan.cluster.gpu.memory - plan.memory_reserve).value());
  for (std::size_t stage = 0; stage < one.bytes.size(); ++stage) {
    const double per_token = (two.bytes[stage] - one.bytes[stage]) / length;
    const double room = capacity - (one.bytes[stage] - per_token * length);
    tokens.push_back(per_token > 0 ? room / per_token : kNever);
  }
  return model;
}

// The packs of every replica in its order; replicas with fewer stand last.
void set_packs(const MicroBatches& found, const std::vector<Sample>& samples,
               const PipelineModel& model, plan::Plan& plan) {
  std::vector<std::vector<plan::Pack>> replicas;
  for (int replica = 0; replica < plan.dp; ++replica) {
    replicas.emplace_back();
    for (const int index : order_micro_batches(found.list, replica, model).order) {
      const MicroBatch& one = found.list[static_cast<std::size_t>(index)];
      plan::Pack pack;
      pack.padded = true;
      for (int i = one.first; i < one.last; ++i) {
        pack.sequences.push_back(
            static_cast<std::int64_t>(samples[static_cast<std::size_t>(i)].input));
      }
      replicas.back().push_back(std::move(pack));
    }
  }
  std::stable_sort(replicas.begin(), replicas.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  plan.packs.assign(replicas.front().size(), {});
  for (const std::vector<plan::Pack>& replica : replicas) {
    for (std::size_t k = 0; k < replica.size(); ++k) {
      plan.packs[k].push_back(replica[k]);
    }
  }
}

// What a micro-batch may keep where 1F1B holds p - s of them on stage s, and where only one is, if
// not longer than the longest sequence needs it to be.
std::vector<double> caps_of(const std::vector<double>& tokens, double longest, double share) {
  double in_flight = kNever;
  double alone = kNever;
  for (std::size_t stage = 0; stage < tokens.size(); ++stage) {
    in_flight = std::min(in_flight, tokens[stage] / static_cast<double>(tokens.size() - stage));
    alone = std::min(alone, tokens[stage]);
  }
  return {in_flight * share, std::max(alone * share, std::min(alone, longest))};
}

// The tokens in flight that all stages hold which 1F1B could overfill; infinite where it cannot.
double room_of(const std::vector<double>& tokens, double largest) {
  double room = kNever;
  for (std::size_t stage = 0; stage < tokens.size(); ++stage) {
    const auto held = static_cast<double>(tokens.size() - stage);
    room = held * largest > tokens[stage] ? std::min(room, tokens[stage]) : room;
  }
  return room;
}

// The planner shares the sum of all times among the replicas however few micro-batches there are.
// None is left without one: the slowest of several samples are halved.
void fill_replicas(const std::vector<Sample>& samples, const MicroBatchModel& model, int replicas,
                   std::vector<MicroBatch>& list) {
  const auto of = [&](int first, int last) {
    const Sample& longest = samples[static_cast<std::size_t>(last - 1)];
    return MicroBatch{first, last, model.time(last - first, longest),
                      model.bytes(last - first, longest)};
  };
  const auto less = [](const MicroBatch& a, const MicroBatch& b) {
    const bool cuts_a = a.last - a.first > 1;
    const bool cuts_b = b.last - b.first > 1;
    return cuts_a == cuts_b ? a.time < b.time : cuts_b;
  };
  if (static_cast<int>(list.size()) >= replicas) {
    return;
  }
  while (static_cast<int>(list.size()) < replicas) {
    const auto slowest = std::max_element(list.begin(), list.end(), less);
    const MicroBatch whole = *slowest;
    const int middle = whole.first + (whole.last - whole.first) / 2;
    *slowest = of(middle, whole.last);
    list.insert(slowest, of(whole.first, middle));
  }
  std::vector<double> times;
  for (const MicroBatch& one : list) {
    times.push_back(one.time);
  }
  const std::vector<int> replica_of = deal(times, replicas);
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].replica = replica_of[i];
  }
}

// Nothing where there are no such micro-batches, or the schedule does not take them. As many
// samples as replicas at least.
std::optional<plan::Plan> packed(plan::Plan layout, const std::vector<Sample>& samples,
                                 const MicroBatchModel& model, const std::vector<double>& tokens,
                                 double share) {
  const double gap = model.time(1, samples.back()) / kBounds;
  MicroBatches found = make_micro_batches(samples, {model}, {layout.pp, 1, layout.dp},
                                          caps_of(tokens, samples.back().input, share), gap);
  if (!found.found()) {
    return std::nullopt;
  }
  fill_replicas(samples, model, layout.dp, found.list);
  double largest = 0;
  for (const MicroBatch& one : found.list) {
    largest = std::max(largest, one.bytes);
  }
  PipelineModel pipeline;
  pipeline.stages = layout.pp;
  pipeline.memory = std::max(largest, share * room_of(tokens, largest / share));
  pipeline.backward_share = model.backward_share;
  set_packs(found, samples, pipeline, layout);
  if (pipeline.memory < kNever) {
    plan::Plan capped = layout;
    capped.activation_cap = std::max(1.0, pipeline.memory / largest);
    if (plan::schedule_runs(capped)) {
      return capped;
    }
  }
  return plan::schedule_runs(layout) ? std::optional(std::move(layout)) : std::nullopt;
}

}  // namespace

std::vector<Sample> samples_of(const std::vector<std::int64_t>& lengths) {
  std::vector<Sample> samples;
  for (const std::int64_t tokens : lengths) {
    samples.push_back({static_cast<double>(tokens), 0});
  }
  sort_samples(samples);
  return samples;
}

PipelinePacks::PipelinePacks(plan::Plan layout, const std::vector<Sample>& samples)
    : layout_(std::move(layout)), samples_(samples) {}
PipelinePacks::PipelinePacks(PipelinePacks&&) noexcept = default;
PipelinePacks::~PipelinePacks() = default;

bool PipelinePacks::go_on_behind(std::size_t tried) {
  share_ = std::min(tried, std::size(kShares));
  return share_ == tried;
}

std::optional<Found> PipelinePacks::next(plan::Simulator& simulator) {
  if (static_cast<int>(samples_.size()) < layout_.dp) {
    return std::nullopt;  // a replica without a sequence
  }
  if (!fitted_) {
    Fitted fitted;
    fitted.model = fit(layout_, static_cast<std::int64_t>(samples_.back().input), fitted.tokens);
    fitted_ = std::make_unique<const Fitted>(std::move(fitted));
  }
  while (share_ < std::size(kShares)) {
    std::optional<plan::Plan> plan =
        packed(layout_, samples_, fitted_->model, fitted_->tokens, kShares[share_++]);
    if (!plan) {
      share_ = std::size(kShares);  // nor with less
      break;
    }
    plan::Simulation simulation = simulator.run(*plan);
    if (!simulation.does_not_fit) {
      return Found{std::move(*plan), std::move(simulation)};
    }
  }
  return std::nullopt;
}

}  // namespace orrery::search
