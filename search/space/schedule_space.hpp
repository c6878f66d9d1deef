// SPDX-License-Identifier: Apache-2.0
// The pipeline schedules of a space: every synchronous one that plans can name, documents that were
// given, and asynchronous ones in a search of their own. For a number of stages and micro-batches
// it says which cuts into virtual stages exist and which schedules run on each. Schedules that put
// the stages on the same devices under the same rules form a family: bounds are shared by it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/modules.hpp"
#include "plan/schedule_traits.hpp"
#include "plan/stage/layout_bounds.hpp"
#include "plan/stage/schedule_cuts.hpp"
#include "search/space/constraints.hpp"

namespace orrery::search {

struct ScheduleChoice {
  std::string name;
  const sim::Schedule* registered = nullptr;
  std::shared_ptr<const sim::ScheduleDocument> document;
  plan::ScheduleTraits traits;
  plan::ModuleCut cut = plan::ModuleCut::OneChain;
  bool named = false;          // on the command line
  bool ships_weights = false;  // Execution::ships_weights: where attention is spread a choice each
  int index = 0;               // among the choices of a space
};

// Slices of a sequence that are tried without being asked for, at most.
inline constexpr int kMostSlices = 64;

struct Family {
  int chunks = 1;
  bool balanced = false;
  int slices = 1;
  int parts = 1;  // runs of an encoder for a micro-batch
  plan::StagePlacement placement;
  std::vector<int> schedules;  // choices, ascending
  std::int64_t first = 0;      // schedules of the families before it
};

class ScheduleSpace {
 public:
  ScheduleSpace(const plan::Plan& base, const Constraints& constraints);

  const std::vector<ScheduleChoice>& choices() const { return choices_; }
  // In a fixed order, those without slices first; thread-safe. `slice_unit`: what the tokens of a
  // slice are a multiple of; 0: sequences are not cut. `routes`: tokens travel to their experts.
  const std::vector<Family>& families(int pp, int micro_batches, int slice_unit, bool routes) const;
  // Chain positions per virtual stage, for a schedule's way to cut the network: by modules, or
  // balanced by the layers alone where all devices share embedding and head. Balanced cuts of
  // devices with several stages balance these. Thread-safe.
  const std::vector<int>& stages(int pp, int chunks, const ScheduleChoice& choice,
                                 bool balanced) const;
  // Runs of an encoder for a micro-batch, in schedules that have some.
  // Micro-batches of activations that devices of a pipeline may hold, where that is fixed; else 0.
  double cap_of(int pp) const {
    return pp > 1 ? static_cast<double>(constraints_.fixed_number("activation_cap").value_or(0))
                  : 0;
  }
  int parts_of(const ScheduleChoice& choice) const {
    return choice.cut == plan::ModuleCut::ByModules ? encoder_parts_ : 1;
  }
  // Whether some schedule cuts embedding and head over the stages.
  bool shares_ends() const { return shares_ends_; }

 private:
  // Of one chain into so many virtual stages.
  struct ChainCuts {
    std::once_flag made;
    std::vector<int> even;
    std::vector<int> balanced;
    std::vector<int> balanced_by_layers;  // the same without embedding and head
  };
  std::vector<bool> shipments(const sim::Schedule& schedule) const;
  const ChainCuts& chain_cuts(int num_virtual_stages) const;
  std::vector<int> chunk_counts(int pp) const;
  std::vector<bool> cuts(const sim::ScheduleParams& params, const ScheduleChoice& choice) const;
  const plan::ChainWork& work() const;
  const std::vector<int>& chain_stages(int pp, int chunks, const ScheduleChoice& choice,
                                       bool balanced) const;
  const std::vector<int>& balanced_on_devices(int pp, int chunks,
                                              const ScheduleChoice& choice) const;
  // With what the schedule is told of the network's modules; empty when it cannot have it.
  std::optional<sim::ScheduleParams> told(const ScheduleChoice& choice,
                                          sim::ScheduleParams params) const;
  bool is_usable(const ScheduleChoice& choice, const sim::ScheduleParams& params,
                 bool routes) const;
  std::vector<int> slice_counts(int pp, int slice_unit) const;
  std::vector<Family> make_families(int pp, int micro_batches, int slice_unit, bool routes) const;
  void add_families(sim::ScheduleParams params, bool routes, std::vector<Family>& families) const;
  const plan::StagePlacement& placement_of(int choice, const sim::ScheduleParams& params) const;
  plan::StagePlacement make_placement(const ScheduleChoice& choice,
                                      const sim::ScheduleParams& params) const;

  const plan::Plan& base_;
  const Constraints& constraints_;
  std::int64_t layers_;
  bool shares_ends_ = false;
  mutable std::once_flag work_made_;
  mutable plan::ChainWork work_;  // made when a balanced cut is asked for
  std::vector<ScheduleChoice> choices_;
  // By number of virtual stages, made when they are asked for: a deep network has very many.
  mutable std::vector<ChainCuts> chain_cuts_;
  int encoder_parts_;
  mutable std::mutex cuts_mutex_;
  // Of module cuts, by pp, chunks, cut and balanced.
  mutable std::map<std::tuple<int, int, plan::ModuleCut, bool>, std::vector<int>> module_cuts_;
  // By choice, pp and chunks.
  mutable std::map<std::tuple<int, int, int>, std::vector<int>> device_cuts_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<int, int, int, bool>, std::vector<Family>> families_;
  mutable std::mutex placements_mutex_;
  mutable std::map<std::tuple<int, int, int>, plan::StagePlacement> placements_;
};

}  // namespace orrery::search
