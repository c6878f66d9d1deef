// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "base/json_reader.hpp"
#include "base/limits.hpp"
#include "base/version.hpp"
#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {
namespace {

constexpr std::array<std::string_view, 4> kStates = {"pending", "ok", "infeasible", "error"};

std::string_view state_text(PointState state) { return kStates[static_cast<std::size_t>(state)]; }

// A cell that needs no care by whoever reads it.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + "\"";
}

Json point_json(const Sweep& sweep, std::size_t index, const SweepPoint& point) {
  Json values = Json::object();
  for (std::size_t i = 0; i < sweep.fields.size(); ++i) {
    values.set(sweep.fields[i], sweep.points[index][i]);
  }
  Json json = Json::object();
  json.set("values", std::move(values));
  json.set("state", state_text(point.state));
  if (!point.message.empty()) {
    json.set("message", point.message);
  }
  if (!point.inputs.empty()) {
    json.set("inputs", point.inputs);
  }
  if (point.state == PointState::Found) {
    json.set("layout", point.layout);
    json.set("iteration_time_s", point.iteration_time_s);
    json.set("tokens_per_s", point.tokens_per_s);
    json.set("mfu", point.mfu);
    json.set("peak_memory_bytes", point.peak_memory_bytes);
    json.set("gap", point.gap);
    json.set("gpus", point.gpus);
    json.set("plans", point.plans);
    json.set("usd_per_hour", point.usd_per_hour);
  }
  return json;
}

SweepPoint read_sweep_point(const JsonReader& value) {
  ObjectReader object = value.object();
  (void)object.required("values");
  SweepPoint point;
  const std::string state = object.required("state").one_of(kStates);
  point.state =
      static_cast<PointState>(std::find(kStates.begin(), kStates.end(), state) - kStates.begin());
  point.message = object.string_or("message", "");
  point.inputs = object.string_or("inputs", "");
  if (point.state == PointState::Found) {
    const auto number = [&object](std::string_view key) {
      return object.required(key).number(0, limits::kMaxQuantity);
    };
    point.layout = object.required("layout").string();
    point.iteration_time_s = number("iteration_time_s");
    point.tokens_per_s = number("tokens_per_s");
    point.mfu = number("mfu");
    point.peak_memory_bytes = number("peak_memory_bytes");
    point.gap = number("gap");
    point.gpus = object.required("gpus").integer(1, limits::kMaxDevices);
    point.plans = object.required("plans").integer(1, 1LL << 62);
    point.usd_per_hour = number("usd_per_hour");
  }
  object.finish();
  return point;
}

}  // namespace

Json sweep_json(const Sweep& sweep, const std::vector<SweepPoint>& points) {
  Json list = Json::array();
  for (std::size_t i = 0; i < points.size(); ++i) {
    list.push(point_json(sweep, i, points[i]));
  }
  Json edge = Json::array();
  for (const std::size_t index : frontier(points)) {
    edge.push(static_cast<std::int64_t>(index));
  }
  return Json::Object{{"schema", "orrery-sweep-result"}, {"version", 1},
                      {"orrery", version_text()},        {"sweep", sweep.document},
                      {"frontier", std::move(edge)},     {"points", std::move(list)}};
}

std::vector<SweepPoint> read_sweep_points(const Json& document, const Sweep& sweep,
                                          const std::string& where) {
  const JsonReader reader(document, where);
  ObjectReader object = reader.object();
  object.expect_schema("orrery-sweep-result", 1);
  const JsonReader program = object.required("orrery");
  if (program.string() != version_text()) {
    program.fail(fmt::format("results of version {}, this is {}", program.string(), version_text()),
                 "name another output, or remove the file to start again");
  }
  const JsonReader given = object.required("sweep");
  if (given.json().dump(-1) != sweep.document.dump(-1)) {
    given.fail("results of another sweep",
               "name another output, or remove the file to start again");
  }
  (void)object.optional("frontier");
  const JsonReader list = object.required("points");
  std::vector<SweepPoint> points;
  for (const JsonReader& point : list.array()) {
    points.push_back(read_sweep_point(point));
  }
  object.finish();
  if (points.size() != sweep.points.size()) {
    list.fail(fmt::format("{} points instead of {}", points.size(), sweep.points.size()));
  }
  return points;
}

std::string sweep_csv(const Sweep& sweep, const std::vector<SweepPoint>& points) {
  std::string text;
  for (const std::string& field : sweep.fields) {
    text += csv_cell(field) + ",";
  }
  text +=
      "state,gpus,iteration_time_s,tokens_per_s,mfu,peak_memory_bytes,usd_per_hour,gap,plans,"
      "layout,message\n";
  for (std::size_t i = 0; i < points.size(); ++i) {
    const SweepPoint& point = points[i];
    for (const std::string& value : sweep.points[i]) {
      text += csv_cell(value) + ",";
    }
    text += state_text(point.state);
    if (point.state == PointState::Found) {
      text += fmt::format(",{},{},{},{},{},{},{},{},", point.gpus, point.iteration_time_s,
                          point.tokens_per_s, point.mfu, point.peak_memory_bytes,
                          point.usd_per_hour, point.gap, point.plans);
    } else {
      text += ",,,,,,,,,";
    }
    text += csv_cell(point.layout) + "," + csv_cell(point.message) + "\n";
  }
  return text;
}

bool all_priced(const std::vector<SweepPoint>& points) {
  return std::all_of(points.begin(), points.end(), [](const SweepPoint& point) {
    return point.state != PointState::Found || point.usd_per_hour > 0;
  });
}

std::vector<double> costs_of(const std::vector<SweepPoint>& points) {
  const bool priced = all_priced(points);
  std::vector<double> costs;
  for (const SweepPoint& point : points) {
    costs.push_back(priced ? point.usd_per_hour : static_cast<double>(point.gpus));
  }
  return costs;
}

std::vector<std::size_t> frontier(const std::vector<SweepPoint>& points) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (points[i].state == PointState::Found) {
      order.push_back(i);
    }
  }
  const std::vector<double> cost = costs_of(points);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return cost[a] != cost[b] ? cost[a] < cost[b] : points[a].tokens_per_s > points[b].tokens_per_s;
  });
  std::vector<std::size_t> result;
  for (const std::size_t i : order) {
    if (result.empty() || points[i].tokens_per_s > points[result.back()].tokens_per_s) {
      result.push_back(i);
    }
  }
  return result;
}

}  // namespace orrery::studies
