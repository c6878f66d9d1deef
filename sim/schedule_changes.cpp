// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule_changes.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace orrery::sim {
namespace {

// The parameter that a size is; of the cap none.
struct Field {
  Size size;
  int ScheduleParams::*member;
  int least;                                           // also where it is left out
  std::vector<int> ScheduleParams::*single = nullptr;  // numbers that replace the one for all
};
constexpr std::array<Field, 8> kFields = {{
    {Size::Stages, &ScheduleParams::stages, 1},
    {Size::MicroBatches, &ScheduleParams::micro_batches, 1},
    {Size::Chunks, &ScheduleParams::chunks, 1},
    {Size::Slices, &ScheduleParams::slices, 1, &ScheduleParams::slices_of},
    {Size::Replicas, &ScheduleParams::replicas, 1, &ScheduleParams::replicas_of},
    {Size::WarmUp, &ScheduleParams::warm_up, 0},
    {Size::Iterations, &ScheduleParams::iterations, 0},
    {Size::Rollbacks, &ScheduleParams::rollbacks, 0},
}};

const Field* field_of(Size size) {
  const auto* const field = std::find_if(kFields.begin(), kFields.end(),
                                         [&](const Field& of) { return of.size == size; });
  return field == kFields.end() ? nullptr : field;
}

void apply(const Change& change, ScheduleParams& params) {
  const Field* const field = field_of(change.size);
  if (field == nullptr) {
    params.cap = change.leaves_out ? 0.0 : change.value;
    return;
  }
  params.*field->member = change.leaves_out ? field->least : static_cast<int>(change.value);
  if (field->single != nullptr) {
    (params.*field->single).clear();
  }
}

using Changes = std::vector<Change>;

// With one more, which replaces an earlier one of the same parameter.
Changes with(Changes changes, const Change& change) {
  std::erase_if(changes, [&](const Change& of) { return of.size == change.size; });
  changes.push_back(change);
  return changes;
}

// Together, as parts of what is given.
double distance(const Changes& changes, const ScheduleParams& given) {
  double sum = 0;
  for (const Change& change : changes) {
    const Field* const field = field_of(change.size);
    const double now = field == nullptr ? given.cap : given.*field->member;
    sum += std::abs(change.value - now) / std::max(now, 1.0);
  }
  return sum;
}

// Changes after which a check is empty.
class Search {
 public:
  Search(const CheckParams& check, const ScheduleParams& given) : check_(check), given_(given) {}

  // Of what is refused: few, each no larger than the others let it be.
  std::optional<Changes> few_changes(const Refusal& refusal) const {
    const ScheduleParams& params = given_;
    auto found = changes(refusal, params, {}, 0);
    if (!found) {
      found = with_fewer_stages(params);
    }
    for (std::size_t i = 0; found && found->size() > 1 && i < found->size(); ++i) {
      if (const auto alone = nearest((*found)[i], params)) {
        return Changes{*alone};
      }
    }
    return found ? std::optional(none_needless(*std::move(found), params)) : found;
  }

 private:
  // Without those that the others spare, and each of the rest as near as they let it be.
  Changes none_needless(Changes found, const ScheduleParams& params) const {
    for (std::size_t i = found.size(); i-- > 0;) {
      ScheduleParams without = params;
      for (std::size_t k = 0; k < found.size(); ++k) {
        if (k != i) {
          apply(found[k], without);
        }
      }
      Change& change = found[i];
      const Refusal broken = check_(without);
      if (broken.empty()) {
        found.erase(found.begin() + static_cast<std::ptrdiff_t>(i));
        i = found.size();  // which may spare others
        continue;
      }
      if (!broken.changes.empty() && broken.changes.front().size == change.size) {
        const auto close = nearest(broken.changes.front(), without);
        change = close ? *close : reduced(change.size, without).value_or(change);
      } else if (is_smaller(change, params)) {
        change = larger_of(reduced(change.size, without), change);
      }
    }
    return found;
  }

  static bool is_smaller(const Change& change, const ScheduleParams& params) {
    const Field* const field = field_of(change.size);
    return field != nullptr && change.value < params.*field->member;
  }
  static Change larger_of(const std::optional<Change>& one, const Change& other) {
    return one && one->value > other.value ? *one : other;
  }

  // Where the size that is named may not be what another bound lets it be: so few stages that some
  // are allowed, alone if they can be.
  std::optional<Changes> with_fewer_stages(ScheduleParams params) const {
    if (const auto alone = reduced(Size::Stages, params)) {
      return Changes{*alone};
    }
    for (int fewer = params.stages / 2; fewer >= 1; fewer /= 2) {
      const Change change{Size::Stages, static_cast<double>(fewer)};
      apply(change, params);
      const Refusal broken = check_(params);
      auto found =
          broken.empty() ? std::optional(Changes{change}) : changes(broken, params, {change}, 0);
      if (found) {
        return found;
      }
    }
    return std::nullopt;
  }

  // More than `made` ones, which led to `params`.
  std::optional<Changes> changes(const Refusal& refusal, ScheduleParams params, const Changes& made,
                                 int depth) const {
    if (refusal.changes.empty() || depth == kDeepest) {
      return std::nullopt;
    }
    const Change& named = refusal.changes.front();
    if (auto alone = nearest(named, params)) {
      return with(made, *alone);
    }
    if (auto fewer = refusal.of_product ? reduced(named.size, params) : std::nullopt) {
      return with(made, *fewer);
    }
    std::optional<Changes> best;
    for (const Change& candidate : candidates(named, params, refusal.of_product)) {
      ScheduleParams changed = params;
      apply(candidate, changed);
      const Changes so_far = with(made, candidate);
      const Refusal broken = check_(changed);
      auto all = broken.empty() ? std::optional(so_far)
                                : changes(broken, std::move(changed), so_far, depth + 1);
      if (all && (!best || is_better(*all, *best))) {
        best = std::move(all);
      }
    }
    return best;
  }

  // Fewer, or of as many those that change less.
  bool is_better(const Changes& one, const Changes& other) const {
    return std::pair(one.size(), distance(one, given_)) <
           std::pair(other.size(), distance(other, given_));
  }

  static constexpr int kDeepest = 12;
  static constexpr std::int64_t kNear = 256;  // values up and down that are tried at least
  static constexpr std::int64_t kFar = 1024;  // and at most

  // The nearest value of the parameter alone that is allowed.
  std::optional<Change> nearest(Change change, ScheduleParams params) const {
    const Field* const field = field_of(change.size);
    if (field == nullptr || change.leaves_out) {
      apply(change, params);
      return check_(params).empty() ? std::optional(change) : std::nullopt;
    }
    const std::int64_t now = params.*field->member;
    const std::int64_t away = std::abs(static_cast<std::int64_t>(change.value) - now);
    const auto allowed = [&](std::int64_t value) {
      if (value < field->least || value > std::numeric_limits<int>::max()) {
        return false;
      }
      change.value = static_cast<double>(value);
      apply(change, params);
      return check_(params).empty();
    };
    if (away > kFar) {
      return allowed(static_cast<std::int64_t>(change.value)) ? std::optional(change)
                                                              : std::nullopt;
    }
    const int toward = change.value < static_cast<double>(now) ? -1 : 1;
    const std::int64_t farthest = std::clamp(2 * away, kNear, kFar);
    for (std::int64_t far = 0; far <= farthest; ++far) {
      if (allowed(now + toward * far) || allowed(now - toward * far)) {
        return change;
      }
    }
    return std::nullopt;
  }

  // About the largest smaller value of a factor of a product that is allowed. What is named counts
  // other sizes than the parameters alone where a schedule has more streams or units than them.
  std::optional<Change> reduced(Size size, ScheduleParams params) const {
    constexpr double kClose = 1.01;
    const Field* const field = field_of(size);
    if (field == nullptr) {
      return std::nullopt;
    }
    std::int64_t above = params.*field->member;
    std::optional<Change> found;
    for (std::int64_t value = above / 2; value >= field->least && !found; value /= 2) {
      apply({size, static_cast<double>(value)}, params);
      found = nearest({size, static_cast<double>(value)}, params);
      above = found ? above : value;
    }
    while (found && static_cast<double>(above) > kClose * found->value + kNear) {
      const std::int64_t middle = (above + static_cast<std::int64_t>(found->value)) / 2;
      apply({size, static_cast<double>(middle)}, params);
      const auto larger = nearest({size, static_cast<double>(middle)}, params);
      if (larger && larger->value > found->value) {
        found = larger;
      } else {
        above = middle;
      }
    }
    return found;
  }

  // The change that is named and, where it makes the stages even, the other even neighbour; and one
  // number for all instead of a list that has to be as long.
  static Changes candidates(const Change& named, const ScheduleParams& params, bool of_product) {
    Changes result = {named};
    const Field* const of = field_of(named.size);
    if (of != nullptr && params.*of->member > 2 * of->least && of_product &&
        named.value >= params.*of->member) {
      result.front().value = params.*of->member / 2;
    }
    if (named.size == Size::Stages) {
      Change other = named;
      other.value = 2.0 * params.stages - named.value;
      if (other.value >= 1 && std::abs(named.value - params.stages) == 1.0) {
        result.push_back(other);
      }
    }
    for (const Field& field : kFields) {
      if (field.single != nullptr && !(params.*field.single).empty()) {
        result.push_back({field.size, static_cast<double>(field.least)});
      }
    }
    return result;
  }

  const CheckParams& check_;
  const ScheduleParams& given_;
};

}  // namespace

Refusal refusal_of(const CheckParams& check, const ScheduleParams& params) {
  Refusal refusal = check(params);
  if (auto changes = refusal.empty() ? std::nullopt : Search(check, params).few_changes(refusal)) {
    refusal.changes = *std::move(changes);
  }
  return refusal;
}

std::string refusal(const CheckParams& check, const ScheduleParams& params) {
  return to_text(refusal_of(check, params), params.cap_name);
}

std::string refusal(const Schedule& schedule, const ScheduleParams& params) {
  return refusal(schedule.check, params);
}

}  // namespace orrery::sim
