// SPDX-License-Identifier: Apache-2.0
#include "studies/sweeps/sweep.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "search/space/field_names.hpp"
#include "search/space/restrictions.hpp"
#include "studies/sweeps/member_errors.hpp"
#include "topologies/mixed_cluster.hpp"

namespace orrery::studies {
namespace {

constexpr std::int64_t kMaxPoints = 100'000;
constexpr std::array<std::string_view, 2> kScales = {"linear", "log"};
// Fields that are no paths of --set.
constexpr std::array<std::string_view, 7> kOwnFields = {
    "network", "cluster", "batch", "sequence", "precision", "profile", "memory_reserve"};

constexpr std::string_view kFixed = "fix.";  // begins fields of plans

// In full, without an exponent and trailing zeros, to so many decimals.
std::string plain_number(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    text.erase(text.find_last_not_of('.') + 1);
  }
  return text == "-0" ? "0" : text;
}

// Powers of ten below a number; 0 of 0.
int decade(double number) {
  return number == 0 ? 0 : static_cast<int>(std::floor(std::log10(std::abs(number))));
}

// The values of one field: listed, or between two ends.
struct Axis {
  std::string field;
  std::vector<std::string> values;
  double from = 0;
  double to = 0;
  std::array<std::string, 2> ends;  // as stated
  std::string unit;                 // behind the number
  bool logarithmic = false;
  bool whole = false;

  bool is_range() const { return values.empty(); }
  double number_at(double fraction) const {
    return logarithmic ? from * std::pow(to / from, fraction) : from + (to - from) * fraction;
  }
  // Six digits, of the number and of the distance between the ends, but no more than a double has.
  std::string at(double fraction) const {
    if (fraction == 0 || from == to) {
      return ends[0];
    }
    if (fraction == 1) {
      return ends[1];
    }
    constexpr int kDigits = 6;
    const double value = number_at(fraction);
    if (whole) {
      return fmt::format("{}", std::llround(value));
    }
    const int least = std::min(decade(value), decade(to - from));
    const int held = std::numeric_limits<double>::digits10 - 1 - decade(value);
    return plain_number(value, std::max(0, std::min(kDigits - 1 - least, held))) + unit;
  }
};

// "40 GB" as 40 and " GB"; a number alone has no unit.
std::pair<double, std::string> split_quantity(const JsonReader& value) {
  const std::string text = search::scalar_text(value);
  const std::size_t end = std::min(text.find_first_not_of("0123456789.+-eE"), text.size());
  return {
      parse_number(text.substr(0, end), value.where(), -limits::kMaxQuantity, limits::kMaxQuantity),
      text.substr(end)};
}

void read_range(ObjectReader& object, Axis& axis) {
  if (!object.has("from") && !object.has("to")) {
    object.value().fail("expected \"values\", or \"from\" and \"to\"");
  }
  const JsonReader from = object.required("from");
  const JsonReader to = object.required("to");
  std::string unit;
  std::tie(axis.from, axis.unit) = split_quantity(from);
  std::tie(axis.to, unit) = split_quantity(to);
  axis.ends = {search::scalar_text(from), search::scalar_text(to)};
  if (trim(unit) != trim(axis.unit)) {
    to.fail(fmt::format("the unit \"{}\" differs from \"{}\" of \"from\"", printable(trim(unit)),
                        printable(trim(axis.unit))));
  }
  axis.whole = from.json().is_integer() && to.json().is_integer();
  if (const std::optional<JsonReader> scale = object.optional("scale")) {
    axis.logarithmic = scale->one_of(kScales) == "log";
  }
  if (axis.logarithmic && (axis.from <= 0 || axis.to <= 0)) {
    object.value().fail("a logarithmic range has positive ends");
  }
}

void read_values(const JsonReader& list, Axis& axis) {
  std::set<std::string> seen;
  for (const JsonReader& entry : list.array(kMaxPoints)) {
    axis.values.push_back(search::scalar_text(entry));
    if (!seen.insert(axis.values.back()).second) {
      entry.fail(fmt::format("the value \"{}\" stands twice", printable(axis.values.back())));
    }
  }
  if (axis.values.empty()) {
    list.fail("no values");
  }
}

std::string values_hint(const std::vector<std::string>& values, bool whole) {
  constexpr std::size_t kMostShown = 12;
  if (values.size() > kMostShown) {
    return "fewer, or a list of \"values\"";
  }
  const std::string_view between = whole ? ", " : "\", \"";
  const std::string_view quote = whole ? "" : "\"";
  return fmt::format("\"values\": [{0}{1}{0}]", quote, fmt::join(values, between));
}

// The values of a range at even distances.
void divide_range(const JsonReader& count, Axis& axis) {
  const std::int64_t wanted = count.integer(2, kMaxPoints);
  std::vector<std::string> values;
  for (std::int64_t i = 0; i < wanted; ++i) {
    std::string text = axis.at(static_cast<double>(i) / static_cast<double>(wanted - 1));
    if (values.empty() || values.back() != text) {
      values.push_back(std::move(text));
    }
  }
  if (std::ssize(values) < wanted) {
    count.fail(fmt::format("{} values, but {} once they are {}", wanted, std::ssize(values),
                           axis.whole ? "whole numbers" : "rounded"),
               values_hint(values, axis.whole));
  }
  axis.values = std::move(values);
}

Axis read_axis(const JsonReader& value, bool random) {
  ObjectReader object = value.object();
  Axis axis;
  axis.field = object.required("field").string();
  if (const std::optional<JsonReader> values = object.optional("values")) {
    read_values(*values, axis);
  } else {
    read_range(object, axis);
    if (!random) {
      divide_range(object.required("count"), axis);
    } else if (const auto count = object.optional("count")) {
      count->fail("a random design draws from the whole axis", "leave out count");
    }
  }
  object.finish();
  return axis;
}

std::vector<std::vector<std::string>> grid(const std::vector<Axis>& axes, const JsonReader& where) {
  std::vector<std::vector<std::string>> points = {{}};
  for (const Axis& axis : axes) {
    if (static_cast<std::int64_t>(points.size() * axis.values.size()) > kMaxPoints) {
      where.fail(fmt::format("more than {} points", kMaxPoints), "use fewer values, or \"random\"");
    }
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& point : points) {
      for (const std::string& value : axis.values) {
        longer.push_back(point);
        longer.back().push_back(value);
      }
    }
    points = std::move(longer);
  }
  return points;
}

std::vector<std::vector<std::string>> random_points(const std::vector<Axis>& axes,
                                                    std::int64_t count, std::int64_t seed) {
  Random random(static_cast<std::uint64_t>(seed));
  std::vector<std::vector<std::string>> points(static_cast<std::size_t>(count));
  for (std::vector<std::string>& point : points) {
    for (const Axis& axis : axes) {
      point.push_back(axis.is_range() ? axis.at(random.uniform())
                                      : axis.values[random.below(axis.values.size())]);
    }
  }
  return points;
}

void read_settings(ObjectReader& object, std::vector<std::string>& settings) {
  const std::optional<JsonReader> value = object.optional("set");
  if (!value) {
    return;
  }
  const std::vector<JsonReader> entries =
      value->json().is_string() ? std::vector<JsonReader>{*value} : value->array(256);
  for (const JsonReader& entry : entries) {
    settings.push_back(entry.string());
    try {
      (void)search::split_overrides(settings);
    } catch (const Error& error) {
      throw Error(error.kind(), entry.where(), without_option(error));
    }
  }
}

Seconds read_time_limit(const JsonReader& limit) {
  const bool scalar = limit.json().is_string() || limit.json().is_number();
  const std::string text = scalar ? search::scalar_text(limit) : "";
  if (!text.empty() && text.find_first_not_of("0123456789.") == std::string::npos) {
    if (text.find_first_not_of("0.") == std::string::npos) {
      limit.fail("must be greater than zero");  // with a unit, too
    }
    // What --time-limit means by it.
    limit.fail(fmt::format("\"{}\" has no unit", text), fmt::format("write \"{} s\"", text));
  }
  return limit.duration(false);
}

// Beside other schedules asynchronous ones are a search of their own, which a point has not.
void check_asynchronous(const search::Constraints& constraints, const JsonReader& allowed) {
  if (constraints.asynchronous() && !constraints.searches_asynchronous() &&
      !constraints.delays_update()) {
    allowed.fail("\"asynchronous\" has no effect: no asynchronous schedule is fixed",
                 "fix one, for example \"fix\": \"schedule=pipedream-2bw\"");
  }
}

void check_contradictions(const search::Constraints& constraints, const JsonReader& where) {
  try {
    constraints.check_contradictions();
  } catch (const Error& error) {
    throw Error(error.kind(), where.where(), member_message(error));
  }
}

void read_shared(ObjectReader& object, Sweep& sweep) {
  search::Problem& problem = sweep.problem;
  problem.network = object.string_or("network", "");
  problem.cluster = object.string_or("cluster", "");
  if (topologies::names_mixed_cluster(problem.cluster)) {
    object.required("cluster").fail(
        fmt::format("\"{}\" has several kinds of nodes, and sweeps take one kind",
                    printable(problem.cluster)),
        "name one kind, or run `orrery plan` for each point");
  }
  problem.batch = object.integer_or("batch", 0, 1, limits::kMaxBatch);
  problem.sequence = object.integer_or("sequence", 0, 1, limits::kMaxSequence);
  problem.precision = object.string_or("precision", "");
  problem.profile = object.string_or("profile", "");
  problem.memory_reserve = object.string_or("memory_reserve", "");
  search::Constraints& constraints = sweep.constraints;
  read_settings(object, problem.settings);
  search::read_restrictions(object, constraints, search::NamedBy::Option, &without_option);
  if (const std::optional<JsonReader> allowed = object.optional("allow")) {
    check_asynchronous(constraints, *allowed);
  }
  check_contradictions(constraints, object.value());
  if (const std::optional<JsonReader> limit = object.optional("time_limit")) {
    sweep.time_limit = read_time_limit(*limit);
  }
}

// A path of --set has the values of its axis and no other.
void check_unset(const Axis& axis, const std::vector<std::string>& settings,
                 const JsonReader& where) {
  if (is_among(axis.field, kOwnFields)) {
    return;
  }
  for (const std::string& setting : settings) {
    if (trim(std::string_view(setting).substr(0, setting.find('='))) == trim(axis.field)) {
      where.fail(
          fmt::format("\"set\" has a value for the field \"{}\", too", printable(trim(axis.field))),
          "leave it out of one of them");
    }
  }
}

// Of a field that is no path of --set: whether it is one that plans have, which "fix." begins, or a
// slip of one that documents have.
void check_field(const Axis& axis, const JsonReader& where) {
  if (axis.field.find('.') != std::string::npos || is_among(axis.field, kOwnFields)) {
    return;
  }
  if (search::is_plan_field(axis.field)) {
    where.fail(fmt::format("\"{}\" is a field of plans", printable(axis.field)),
               fmt::format("write \"fix.{}\"", printable(axis.field)));
  }
  const std::vector<std::string> own(kOwnFields.begin(), kOwnFields.end());
  if (const std::string meant = misspelt_name(axis.field, own); !meant.empty()) {
    where.fail(fmt::format("unknown field \"{}\"", printable(axis.field)),
               fmt::format("did you mean \"{}\"?", meant));
  }
}

// Values of a field of plans hold beside what the document fixes and forbids.
void check_fixed(const Axis& axis, const search::Constraints& shared, const JsonReader& where) {
  if (!is_fixed_field(axis.field)) {
    return;
  }
  for (const std::string& value : axis.values) {
    search::Constraints constraints = shared;
    fix_field(axis.field, value, where.where(), constraints);
    check_contradictions(constraints, where);
  }
}

// Network, cluster and batch stand in the document or are swept.
void check_complete(const Sweep& sweep, const JsonReader& where) {
  const auto swept = [&sweep](std::string_view field) {
    return std::find(sweep.fields.begin(), sweep.fields.end(), field) != sweep.fields.end();
  };
  for (const auto& [field, given] :
       {std::pair<std::string_view, bool>{"network", !sweep.problem.network.empty()},
        {"cluster", !sweep.problem.cluster.empty()},
        {"batch", sweep.problem.batch > 0}}) {
    if (!given && !swept(field)) {
      where.fail(fmt::format("no \"{}\"", field), "give it, or sweep it as a field of \"axes\"");
    }
  }
}

}  // namespace

bool is_fixed_field(std::string_view field) { return field.starts_with(kFixed); }

void fix_field(std::string_view field, std::string_view value, std::string_view where,
               search::Constraints& constraints) {
  if (value.find_first_of(",=") != std::string_view::npos) {
    bad_input(where, fmt::format("\"{}\" is not one value", printable(value)));
  }
  constraints.fix(fmt::format("{}={}", field.substr(kFixed.size()), value), where);
}

Sweep read_sweep(const Json& document, const std::string& where) {
  const JsonReader reader(document, where);
  ObjectReader object = reader.object();
  object.expect_schema("orrery-sweep", 1);
  Sweep sweep;
  sweep.document = document;
  sweep.name = object.string_or("name", "sweep");
  read_shared(object, sweep);
  const std::optional<JsonReader> random = object.optional("random");
  const JsonReader list = object.required("axes");
  object.finish();
  std::vector<Axis> axes;
  for (const JsonReader& axis : list.array(16)) {
    axes.push_back(read_axis(axis, random.has_value()));
    const std::string& field = axes.back().field;
    if (std::find(sweep.fields.begin(), sweep.fields.end(), field) != sweep.fields.end()) {
      axis.fail(fmt::format("the field \"{}\" stands twice", printable(field)));
    }
    check_field(axes.back(), axis);
    check_fixed(axes.back(), sweep.constraints, axis);
    check_unset(axes.back(), sweep.problem.settings, axis);
    sweep.fields.push_back(field);
    sweep.scales.push_back(!axes.back().is_range()   ? FieldScale::Listed
                           : axes.back().logarithmic ? FieldScale::Logarithmic
                                                     : FieldScale::Linear);
  }
  if (axes.empty()) {
    list.fail("no fields to sweep");
  }
  if (random) {
    ObjectReader design = random->object();
    const std::int64_t count = design.required("points").integer(1, kMaxPoints);
    sweep.points = random_points(axes, count, design.integer_or("seed", 1, 0, 1LL << 62));
    design.finish();
  } else {
    sweep.points = grid(axes, list);
  }
  check_complete(sweep, reader);
  return sweep;
}

}  // namespace orrery::studies
