// SPDX-License-Identifier: Apache-2.0
// What Galvatron's planner (search/planners/galvatron.cpp) decides on a profile taken from Orrery's
// cost model: forward time, parameters and activations of every layer alone, seconds per MiB of an
// all-reduce of 64 MiB for each kind of group. Its own cost function, whole MiB, and 1 GiB of
// context as published. Batches up to the given one are tried as its outer loop does; the one with
// most samples per second is accumulated. The plan is then run as Orrery runs plans: 1F1B, tensor
// parallelism on neighbouring ranks.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/error.hpp"
#include "base/math.hpp"
#include "base/quantity_text.hpp"
#include "plan/block/cost.hpp"
#include "search/baseline.hpp"
#include "search/planner.hpp"

namespace orrery::search {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kBytesPerParameter = 16;  // state of mixed precision, as fp32 with Adam
constexpr Bytes kProbe(64 * kMib);

// The problem document of the planner, but for its batches.
class Profile {
 public:
  explicit Profile(const plan::Plan& base)
      : base_(base), devices_(base.cluster.num_gpus()), costs_(base) {}

  Json problem() {
    Json problem = parse_json(R"({"schema": "orrery-problem", "version": 1,
        "micro_batches": [{"pp": 1, "constant": 1}, {"per_sample": 1}]})",
                              "galvatron");
    const ByteCount room = base_.cluster.gpu.memory - base_.memory_reserve;
    problem.set("devices", devices_);
    problem.set("memory_mib", static_cast<std::int64_t>(room.bytes().value() / kMib));
    problem.set("layers", layers());
    problem.set("other_states_mib",
                (parameters(0) + parameters(last())) * kBytesPerParameter / kMib);
    problem.set("other_activation_mib", saved_mib(0, 1) + saved_mib(last(), 1));
    problem.set("links", links());
    return problem;
  }

 private:
  std::size_t last() const { return base_.network.chain.size() - 1; }

  const plan::BlockCost& cost(std::size_t position, int tp) {
    plan::BlockPlan layout;
    layout.tp = tp;
    return costs_.of(base_.network.chain[position], layout, 1);
  }
  double saved_mib(std::size_t position, int tp) {
    return cost(position, tp).saved.bytes().value() / kMib;
  }
  double parameters(std::size_t position) {
    double elements = 0;
    for (const plan::StateGroup& group : cost(position, 1).states) {
      elements += group.tied && position > 0 ? 0 : static_cast<double>(group.elements);
    }
    return elements;
  }

  // Runs of equal layers between embedding and head.
  Json layers() {
    Json list = Json::array();
    for (std::size_t first = 1; first < last();) {
      std::size_t end = first;
      while (end < last() && base_.network.chain[end] == base_.network.chain[first]) {
        ++end;
      }
      Json activation = Json::object();
      for (int tp = 1; tp <= devices_; tp *= 2) {
        activation.set(fmt::format("{}", tp), saved_mib(first, std::min(tp, widest())));
      }
      list.push(Json::Object{{"count", static_cast<std::int64_t>(end - first)},
                             {"forward_ms", cost(first, 1).forward.compute.value() * 1e3},
                             {"parameters_mib", parameters(first) * 4 / kMib},
                             {"activation_mib", std::move(activation)},
                             {"sequence", base_.sequence},
                             {"hidden", base_.network.spec.hidden}});
      first = end;
    }
    return list;
  }

  // Beyond the heads layers cannot be split; such plans are not taken.
  int widest() const {
    int widest = 1;
    while (base_.network.spec.heads % (2 * widest) == 0 && 2 * widest <= devices_) {
      widest *= 2;
    }
    return widest;
  }

  double ms_per_mib(int ranks, int stride) const {
    const costmodel::GroupShape group =
        costmodel::make_group(ranks, stride, base_.cluster.node.gpus);
    const double seconds =
        costs_.collectives().time(sim::CommKind::AllReduce, kProbe, group).value();
    return seconds * 1e3 / (kProbe.value() / kMib) * ranks / (2.0 * (ranks - 1));
  }

  Json links() const {
    Json links = Json::object();
    for (int pp = 1; pp <= devices_; pp *= 2) {
      const int island = devices_ / pp;
      Json row = Json::object();
      for (int ranks = 2; ranks <= island; ranks *= 2) {
        if (ranks == island) {
          row.set(fmt::format("{}", ranks), ms_per_mib(ranks, 1));
          continue;
        }
        row.set(fmt::format("{} consecutive", ranks), ms_per_mib(ranks, 1));
        row.set(fmt::format("{} strided", ranks), ms_per_mib(ranks, island / ranks));
      }
      links.set(fmt::format("{}", pp), std::move(row));
    }
    return links;
  }

  const plan::Plan& base_;
  int devices_;
  plan::BlockCosts costs_;
};

// "2-4*-1f": pipeline, tensor and data degree, f for sharded data parallelism.
plan::BlockPlan layout_of(std::string_view strategy, int& dp) {
  std::vector<int> degrees;
  for (const char* at = strategy.data(); at < strategy.data() + strategy.size();) {
    int value = 0;
    const auto [end, error] = std::from_chars(at, strategy.data() + strategy.size(), value);
    if (error == std::errc()) {
      degrees.push_back(value < 0 ? -value : value);
    }
    at = error == std::errc() ? end : at + 1;
  }
  ORRERY_CHECK(degrees.size() == 3, "a strategy has three degrees");
  plan::BlockPlan layout;
  layout.tp = degrees[1];
  dp = degrees[2];
  layout.zero_stage = strategy.find('f') == std::string_view::npos ? 0 : 3;
  return layout;
}

// The planner's answer as a plan: embedding and head follow their neighbours.
plan::Plan plan_of(const plan::Plan& base, const Json& answer, std::int64_t batch) {
  plan::Plan plan = base;
  plan.pp = static_cast<int>(answer.find("pp")->as_integer());
  plan.chunks = 1;
  plan.schedule = "1f1b";
  plan.schedule_document = nullptr;
  plan.blocks.clear();
  plan.stage_blocks.clear();
  int most = 1;
  int dp = 1;
  for (const Json& stage : answer.find("stages")->as_array()) {
    plan.stage_blocks.push_back(0);
    for (const Json& run : stage.find("runs")->as_array()) {
      const auto count = static_cast<int>(run.find("layers")->as_integer());
      const plan::BlockPlan layout = layout_of(run.find("strategy")->as_string(), dp);
      plan.dp = plan.blocks.empty() ? dp : plan.dp;
      most = std::max(most, dp);
      plan.stage_blocks.back() += count;
      if (!plan.blocks.empty() && plan.blocks.back().layout == layout) {
        plan.blocks.back().count += count;
      } else {
        plan.blocks.push_back({count, layout});
      }
    }
  }
  ++plan.blocks.front().count;
  ++plan.blocks.back().count;
  ++plan.stage_blocks.front();
  ++plan.stage_blocks.back();
  // Without a pipeline a batch is one micro-batch; with one, a sample a device.
  const std::int64_t together = plan.pp == 1 ? batch : most;
  plan.micro_batch = std::max<std::int64_t>(1, together / plan.dp);
  plan::check_plan(plan, "galvatron");
  return plan;
}

BaselineChoice ask_galvatron(const plan::Plan& base, const Options& /*options*/) {
  Json problem = Profile(base).problem();
  const Planner& planner = find_planner("galvatron", "--like");
  BaselineChoice choice;
  double best = 0;
  for (const std::int64_t batch : divisors(base.batch)) {
    if (base.batch % base.cluster.num_gpus() == 0 && batch % base.cluster.num_gpus() != 0) {
      continue;  // its batches are multiples of the devices
    }
    problem.set("batches", Json::Object{{"first", batch}, {"last", batch}, {"step", 1}});
    const Json answer = run_planner(planner, problem, "galvatron");
    ++choice.plans;
    if (const Json* reason = answer.find("reason")) {
      choice.note = choice.found ? choice.note : reason->as_string();
      break;  // larger batches need more memory
    }
    const double rate = answer.find("samples_per_s")->as_number();
    if (rate > best) {
      try {
        choice.found = Found{plan_of(base, answer, batch), {}};
        best = rate;
        choice.note =
            fmt::format("estimated {} in batches of {}",
                        format_duration(Seconds(static_cast<double>(base.batch) / rate)), batch);
      } catch (const Error& error) {  // degrees that the network does not divide
        choice.note = choice.found ? choice.note : error.what();
      }
    }
  }
  if (choice.found) {
    choice.found->simulation = plan::simulate(choice.found->plan);
  }
  return choice;
}

}  // namespace

extern const Baseline baseline_galvatron = {
    .name = "galvatron",
    .description = "Galvatron: a layout for every layer by its own cost function and whole MiB",
    .source = "Miao et al., Galvatron, PVLDB 16(3), 2022 (arXiv 2211.13878), section 3, artifact",
    .choose = ask_galvatron,
};

}  // namespace orrery::search
