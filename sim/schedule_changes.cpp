// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::sim {
namespace {

// A parameter that changes name.
struct Field {
  std::string_view name;
  int ScheduleParams::*member;
  int least;                                           // also where it is left out
  std::vector<int> ScheduleParams::*single = nullptr;  // numbers that replace the one for all
};
constexpr std::array<Field, 9> kFields = {{
    {"stages", &ScheduleParams::stages, 1},
    {"micro-batches", &ScheduleParams::micro_batches, 1},
    {"microbatches", &ScheduleParams::micro_batches, 1},  // of documents, as the option
    {"chunks", &ScheduleParams::chunks, 1},
    {"slices", &ScheduleParams::slices, 1, &ScheduleParams::slices_of},
    {"replicas", &ScheduleParams::replicas, 1, &ScheduleParams::replicas_of},
    {"warm-up", &ScheduleParams::warm_up, 0},
    {"iterations", &ScheduleParams::iterations, 0},
    {"rollbacks", &ScheduleParams::rollbacks, 0},
}};

struct Change {
  const Field* field = nullptr;  // null: the cap
  double value = 0.0;
  bool leaves_out = false;
};

void apply(const Change& change, ScheduleParams& params) {
  if (change.field == nullptr) {
    params.cap = change.value;
    return;
  }
  params.*change.field->member = static_cast<int>(change.value);
  if (change.field->single != nullptr) {
    (params.*change.field->single).clear();
  }
}

// A message: what is broken, and the change it names.
struct Refused {
  std::string_view reason;
  std::optional<Change> change;
};

Refused parts_of(std::string_view message, const ScheduleParams& params) {
  constexpr std::string_view kSet = ": set ";
  constexpr std::string_view kTo = " to ";
  constexpr std::string_view kLeave = ": leave ";
  constexpr std::string_view kOut = " out";
  const std::size_t set = message.rfind(kSet);
  const std::size_t leave = message.rfind(kLeave);
  std::string_view name;
  Change change;
  if (set != std::string_view::npos) {
    const std::string_view rest = message.substr(set + kSet.size());
    const std::size_t to = std::min(rest.find(kTo), rest.size());
    const std::string_view number = rest.substr(std::min(to + kTo.size(), rest.size()));
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), change.value);
    if (error != std::errc() || end != number.data() + number.size()) {
      return {message, std::nullopt};
    }
    name = rest.substr(0, to);
  } else if (leave != std::string_view::npos && message.ends_with(kOut)) {
    name = message.substr(leave + kLeave.size());
    name.remove_suffix(kOut.size());
    change.leaves_out = true;
  }
  const std::string_view reason = message.substr(0, set != std::string_view::npos ? set : leave);
  const auto* const field = std::find_if(kFields.begin(), kFields.end(),
                                         [&](const Field& of) { return of.name == name; });
  if (field == kFields.end()) {
    return name == params.cap_name ? Refused{reason, change} : Refused{message, std::nullopt};
  }
  change.field = field;
  change.value = change.leaves_out ? field->least : change.value;
  return {reason, change};
}

using Changes = std::vector<Change>;

// With one more, which replaces an earlier one of the same parameter.
Changes with(Changes changes, const Change& change) {
  std::erase_if(changes, [&](const Change& of) { return of.field == change.field; });
  changes.push_back(change);
  return changes;
}

// Changes after which a check is empty.
class Search {
 public:
  explicit Search(const CheckParams& check) : check_(check) {}

  // Of what `message` refuses: few, each no larger than the others let it be.
  std::optional<Changes> few_changes(const std::string& message,
                                     const ScheduleParams& params) const {
    auto found = changes(message, params, {}, 0);
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
      const std::string broken = check_(without);
      if (broken.empty()) {
        found.erase(found.begin() + static_cast<std::ptrdiff_t>(i));
        i = found.size();  // which may spare others
        continue;
      }
      const std::optional<Change> named = parts_of(broken, without).change;
      if (named && named->field == change.field) {
        const auto close = nearest(*named, without);
        change = close ? *close : reduced(change.field, without).value_or(change);
      } else if (is_smaller(change, params)) {
        change = larger_of(reduced(change.field, without), change);
      }
    }
    return found;
  }

  static bool is_smaller(const Change& change, const ScheduleParams& params) {
    return change.field != nullptr && change.value < params.*change.field->member;
  }
  static Change larger_of(const std::optional<Change>& one, const Change& other) {
    return one && one->value > other.value ? *one : other;
  }

  // Where the size that is named may not be what another bound lets it be: so few stages that some
  // are allowed, alone if they can be.
  std::optional<Changes> with_fewer_stages(ScheduleParams params) const {
    const Field* const stages = kFields.data();
    if (const auto alone = reduced(stages, params)) {
      return Changes{*alone};
    }
    for (int fewer = params.stages / 2; fewer >= 1; fewer /= 2) {
      const Change change{stages, static_cast<double>(fewer)};
      apply(change, params);
      const std::string broken = check_(params);
      auto found =
          broken.empty() ? std::optional(Changes{change}) : changes(broken, params, {change}, 0);
      if (found) {
        return found;
      }
    }
    return std::nullopt;
  }

  // More than `made` ones, which led to `params`.
  std::optional<Changes> changes(const std::string& message, ScheduleParams params,
                                 const Changes& made, int depth) const {
    const std::optional<Change> named = parts_of(message, params).change;
    if (!named || depth == kDeepest) {
      return std::nullopt;
    }
    if (auto alone = nearest(*named, params)) {
      return with(made, *alone);
    }
    const bool too_many = parts_of(message, params).reason.find(" x ") != std::string_view::npos;
    if (auto fewer = too_many ? reduced(named->field, params) : std::nullopt) {
      return with(made, *fewer);
    }
    std::optional<Changes> best;
    for (const Change& candidate : candidates(*named, params, too_many)) {
      ScheduleParams changed = params;
      apply(candidate, changed);
      const Changes so_far = with(made, candidate);
      const std::string broken = check_(changed);
      auto all = broken.empty() ? std::optional(so_far)
                                : changes(broken, std::move(changed), so_far, depth + 1);
      if (all && (!best || all->size() < best->size())) {
        best = std::move(all);
      }
    }
    return best;
  }

  static constexpr int kDeepest = 12;
  static constexpr std::int64_t kNear = 256;  // values up and down that are tried at least
  static constexpr std::int64_t kFar = 1024;  // and at most

  // The nearest value of the parameter alone that is allowed.
  std::optional<Change> nearest(Change change, ScheduleParams params) const {
    if (change.field == nullptr || change.leaves_out) {
      apply(change, params);
      return check_(params).empty() ? std::optional(change) : std::nullopt;
    }
    const std::int64_t now = params.*change.field->member;
    const std::int64_t away = std::abs(static_cast<std::int64_t>(change.value) - now);
    const auto allowed = [&](std::int64_t value) {
      if (value < change.field->least || value > std::numeric_limits<int>::max()) {
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
  std::optional<Change> reduced(const Field* field, ScheduleParams params) const {
    constexpr double kClose = 1.01;
    if (field == nullptr) {
      return std::nullopt;
    }
    std::int64_t above = params.*field->member;
    std::optional<Change> found;
    for (std::int64_t value = above / 2; value >= field->least && !found; value /= 2) {
      apply({field, static_cast<double>(value)}, params);
      found = nearest({field, static_cast<double>(value)}, params);
      above = found ? above : value;
    }
    while (found && static_cast<double>(above) > kClose * found->value + kNear) {
      const std::int64_t middle = (above + static_cast<std::int64_t>(found->value)) / 2;
      apply({field, static_cast<double>(middle)}, params);
      const auto larger = nearest({field, static_cast<double>(middle)}, params);
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
  static Changes candidates(const Change& named, const ScheduleParams& params, bool too_many) {
    Changes result = {named};
    if (named.field != nullptr && params.*named.field->member > 2 * named.field->least &&
        too_many && named.value >= params.*named.field->member) {
      result.front().value = params.*named.field->member / 2;
    }
    if (named.field != nullptr && named.field->member == &ScheduleParams::stages) {
      Change other = named;
      other.value = 2.0 * params.stages - named.value;
      if (other.value >= 1 && std::abs(named.value - params.stages) == 1.0) {
        result.push_back(other);
      }
    }
    for (const Field& field : kFields) {
      if (field.single != nullptr && !(params.*field.single).empty()) {
        result.push_back({&field, static_cast<double>(field.least)});
      }
    }
    return result;
  }

  const CheckParams& check_;
};

// "A", "A and B", "A, B and C".
std::string listed(const std::vector<std::string>& items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    text += i == 0 ? "" : i + 1 == items.size() ? " and " : ", ";
    text += items[i];
  }
  return text;
}

std::string to_text(const Changes& changes, const ScheduleParams& params) {
  std::vector<std::string> set;
  std::vector<std::string> leave;
  for (const Change& change : changes) {
    const std::string_view name = change.field == nullptr ? params.cap_name : change.field->name;
    if (change.leaves_out) {
      leave.emplace_back(name);
    } else {
      set.push_back(fmt::format("{} to {:.10g}", name, change.value));
    }
  }
  std::string text = set.empty() ? "" : "set " + listed(set);
  text += set.empty() || leave.empty() ? "" : ", and ";
  text += leave.empty() ? "" : "leave " + listed(leave) + " out";
  return text;
}

}  // namespace

std::string refusal(const CheckParams& check, const ScheduleParams& params) {
  const std::string message = check(params);
  if (message.empty()) {
    return message;
  }
  const auto changes = Search(check).few_changes(message, params);
  return changes
             ? fmt::format("{}: {}", parts_of(message, params).reason, to_text(*changes, params))
             : message;
}

std::string refusal(const Schedule& schedule, const ScheduleParams& params) {
  return refusal(schedule.check, params);
}

}  // namespace orrery::sim
