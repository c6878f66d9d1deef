// SPDX-License-Identifier: Apache-2.0
#include "sim/orders/warm_up_advice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/orders/schedule_rule.hpp"

namespace orrery::sim {
namespace {

// Forwards of the tries for one change, and of those for several: about half a second.
constexpr std::int64_t kForwardsTried = 40'000'000;
constexpr std::int64_t kFewestTries = 8;  // at any size

class WarmUps {
 public:
  WarmUps(const ScheduleDescription& rule, const ScheduleParams& params)
      : rule_(rule),
        params_(params),
        all_(std::int64_t{params.micro_batches} * params.slices * params.chunks),
        tries_of_each_(std::max(kFewestTries, kForwardsTried / (all_ * params.stages))),
        tries_(tries_of_each_) {
    std::size_t own = 0;  // devices with one of their own
    for (const DeviceOverride& one : rule.overrides) {
      own += one.warm_up ? 1 : 0;
    }
    if (own < static_cast<std::size_t>(params.stages)) {
      places_.push_back(kShared);
    }
    for (std::size_t i = 0; i < rule.overrides.size(); ++i) {
      if (rule.overrides[i].warm_up) {
        places_.push_back(static_cast<int>(i));
      }
    }
  }

  std::string advice() {
    if (const std::string one = change_one(); !one.empty()) {
      return one;
    }
    if (const std::string several = change_several(); !several.empty()) {
      return several;
    }
    return rule_.weight_grads || rule_.last_in_first_out || params_.slices > 1
               ? "set warm_up to \"all\", without overrides"
               : "leave warm_up out to start whatever is ready";
  }

 private:
  static constexpr int kShared = -1;  // else the index of an override

  WarmUpDepth& depth(ScheduleDescription& rule, int place) const {
    return place == kShared ? *rule.warm_up
                            : *rule.overrides[static_cast<std::size_t>(place)].warm_up;
  }
  std::int64_t written(int place) {
    const WarmUpDepth& of = depth(rule_, place);
    return of.all ? all_ : of.forwards;
  }
  void set(ScheduleDescription& rule, int place, std::int64_t forwards) const {
    WarmUpDepth& of = depth(rule, place);
    of.all = false;
    of.forwards = static_cast<int>(forwards);
  }
  bool runs(const ScheduleDescription& rule) {
    --tries_;
    return try_rule(rule, params_).has_value();
  }

  std::string text(int place, std::int64_t forwards) {
    const WarmUpDepth& of = depth(rule_, place);
    const bool alone =
        of.per_later_device == 0 && of.groups_per_later_chunk == 0 && of.micro_batches == 0;
    return fmt::format("{}warm_up{} to {}", alone ? "" : "\"forwards\" of ",
                       place == kShared
                           ? ""
                           : fmt::format(" of the override of device {}",
                                         rule_.overrides[static_cast<std::size_t>(place)].device),
                       forwards);
  }

  std::string change_one() {
    for (std::int64_t far = 1; far < all_ && tries_ > 0; ++far) {
      for (const int place : places_) {
        for (const std::int64_t forwards : {written(place) + far, written(place) - far}) {
          ScheduleDescription changed = rule_;
          set(changed, place, forwards);
          if (forwards >= 1 && forwards <= all_ && tries_ > 0 && runs(changed)) {
            return "set " + text(place, forwards);
          }
        }
      }
    }
    return "";
  }

  // All raised to the least that lets them run, then each as near to what is written as the others
  // let.
  std::string change_several() {
    tries_ = tries_of_each_;
    std::optional<ScheduleDescription> changed = raised();
    if (!changed) {
      return "";
    }
    std::string texts;
    for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
      const std::int64_t forwards = nearest(*changed, *place);
      set(*changed, *place, forwards);
      if (forwards != written(*place)) {
        texts += (texts.empty() ? "set " : " and ") + text(*place, forwards);
      }
    }
    return texts;
  }

  std::optional<ScheduleDescription> raised() {
    const auto to = [&](std::int64_t least) {
      ScheduleDescription changed = rule_;
      for (const int place : places_) {
        set(changed, place, std::max(least, written(place)));
      }
      return runs(changed) ? std::optional(changed) : std::nullopt;
    };
    for (std::int64_t least = 2; least < all_ && tries_ > 0; ++least) {
      if (auto changed = to(least)) {
        return changed;
      }
    }
    return to(all_);
  }

  // Of a rule that runs: halfway to what does not, again and again.
  std::int64_t nearest(ScheduleDescription rule, int place) {
    std::int64_t near = written(place);
    std::int64_t far = depth(rule, place).forwards;
    set(rule, place, near);
    if (near == far || (tries_ > 0 && runs(rule))) {
      return near;
    }
    while (near + 1 < far && tries_ > 0) {
      const std::int64_t middle = near + (far - near) / 2;
      set(rule, place, middle);
      (runs(rule) ? far : near) = middle;
    }
    return far;
  }

  ScheduleDescription rule_;
  const ScheduleParams& params_;
  std::int64_t all_;            // forwards of a device
  std::int64_t tries_of_each_;  // for one change, and for several
  std::int64_t tries_;
  std::vector<int> places_;  // of warm-ups
};

}  // namespace

std::string warm_up_advice(const ScheduleDescription& rule, const ScheduleParams& params) {
  return WarmUps(rule, params).advice();
}

}  // namespace orrery::sim
