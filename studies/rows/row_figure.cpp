// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/row_figure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "studies/rows/metric_name.hpp"
#include "studies/rows/row_words.hpp"

namespace orrery::studies {
namespace {

std::map<std::string, std::string> read_aux(const std::string& cell) {
  std::map<std::string, std::string> aux;
  for (const std::string_view part : split(cell, ';')) {
    const std::size_t equals = part.find('=');
    if (equals != std::string_view::npos) {
      aux.emplace(trim(part.substr(0, equals)), trim(part.substr(equals + 1)));
    }
  }
  return aux;
}

// What stands behind a number, unless it is a remark in brackets: "5.1 s", "3,000 tok/s/GPU".
std::string_view unit_behind(std::string_view cell) {
  const std::size_t last = cell.find_last_of("0123456789.%)");
  return last == cell.npos ? std::string_view() : trim(cell.substr(last + 1));
}

// "45.6GiB(57%)" as "45.6GiB": the figure without a remark on it.
std::string without_remark(const std::string& cell) {
  const std::size_t bracket = cell.find('(');
  return cell.ends_with(')') && bracket != cell.npos && bracket > 0
             ? std::string(before_remark(cell))
             : cell;
}

// "2.0 +/- 0.1 s" as "2.0 s": the figure without its spread.
std::string without_spread(std::string_view cell) {
  constexpr auto kSigns = std::to_array<std::string_view>({"\xC2\xB1", "+/-", "+-"});
  for (const std::string_view sign : kSigns) {
    const std::size_t at = cell.find(sign);
    if (at != cell.npos && at > 0) {
      return fmt::format("{} {}", trim(cell.substr(0, at)), unit_behind(cell));
    }
  }
  return std::string(cell);
}

// "8.0-8.2 s" and "40% to 42%" as their middle; empty where the ends are no numbers or further
// apart than a figure may be.
std::string middle_of_range(std::string_view cell) {
  constexpr double kWidest = 1.25;
  for (const std::string_view sign : {" to ", "..", "-"}) {
    const std::size_t at = cell.find(sign);
    if (at == cell.npos || at == 0) {
      continue;
    }
    const std::string_view unit = unit_behind(cell);
    std::string_view high_text = trim(cell.substr(at + sign.size()));
    high_text = trim(high_text.substr(0, high_text.size() - unit.size()));
    std::string_view low_text = trim(cell.substr(0, at));
    const bool share = high_text.ends_with('%');
    high_text.remove_suffix(share ? 1 : 0);
    low_text.remove_suffix(low_text.ends_with('%') && share ? 1 : 0);
    double low = 0;
    double high = 0;
    const auto is_number = [](std::string_view text, double& number) {
      const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
      return read.ec == std::errc() && read.ptr == text.data() + text.size();
    };
    if (is_number(low_text, low) && is_number(high_text, high) && low > 0 && low <= high &&
        high <= kWidest * low) {
      return fmt::format("{:.10g}{} {}", (low + high) / 2, share ? "%" : "", unit);
    }
  }
  return "";
}

// Why a cell in words is no figure; empty where it may be one.
std::string_view no_figure(std::string_view cell) {
  constexpr auto kOutOfMemory =
      std::to_array<std::string_view>({"oom", "outofmemory", "cudaoom", "cudaoutofmemory"});
  constexpr auto kBounds =
      std::to_array<std::string_view>({">", "<", "\xE2\x89\xA5", "\xE2\x89\xA4"});
  const std::string words = letters_and_digits(cell);
  if (std::ranges::find(kOutOfMemory, words) != kOutOfMemory.end()) {
    return "the run did not fit";
  }
  const bool bound = std::ranges::any_of(
      kBounds, [cell](std::string_view sign) { return cell.starts_with(sign); });
  return bound ? "a bound is no figure" : std::string_view();
}

struct Unit {
  std::string_view word;
  std::string_view of;  // the beginning of the metrics that have it
  double factor = 1;    // seconds, or gibibytes as tools count
};
constexpr auto kUnits = std::to_array<Unit>({{"us", "time", 1e-6},
                                             {"ms", "time", 1e-3},
                                             {"msec", "time", 1e-3},
                                             {"s", "time", 1},
                                             {"sec", "time", 1},
                                             {"seconds", "time", 1},
                                             {"min", "time", 60},
                                             {"minutes", "time", 60},
                                             {"h", "time", 3600},
                                             {"hours", "time", 3600},
                                             {"bytes", "mem", 1.0 / 1024 / 1024 / 1024},
                                             {"mib", "mem", 1.0 / 1024},
                                             {"mb", "mem", 1.0 / 1024},
                                             {"gib", "mem", 1},
                                             {"gb", "mem", 1},
                                             {"tib", "mem", 1024},
                                             {"tb", "mem", 1024}});

// What the metric counts in: "iteration_s" in units of time, of one second.
Unit unit_of_metric(std::string_view metric) {
  const bool layer = metric.ends_with("_ms");
  return metric == "iteration_s" || layer  ? Unit{"", "time", layer ? 1e-3 : 1}
         : metric.starts_with("peak_mem_") ? Unit{"", "mem", 1}
                                           : Unit{};
}

// "2000 ms" of iteration_s, "8k" of tokens_per_s: what the number counts in the metric's own unit.
std::optional<double> scale_of(std::string_view unit, std::string_view metric) {
  const std::string word = to_lower(unit);
  const Unit own = unit_of_metric(metric);
  const auto* const known = std::ranges::find_if(
      kUnits, [&](const Unit& one) { return one.word == word && one.of == own.of; });
  if (known != kUnits.end()) {
    return known->factor / own.factor;
  }
  const bool rate = metric.starts_with("tokens_") || metric.starts_with("samples_");
  return !rate         ? std::nullopt
         : word == "k" ? std::optional(1e3)
         : unit == "M" ? std::optional(1e6)
         : unit == "B" ? std::optional(1e9)
                       : std::nullopt;
}

// "TFLOPs/GPU (HFU)" and "model TFLOP/s per GPU" say in their name how FLOPs are counted.
struct NamedCounting {
  MetricName metric;
  std::string_view convention;
};

std::optional<NamedCounting> named_counting(std::string_view text) {
  constexpr auto kWords =
      std::to_array<std::pair<std::string_view, std::string_view>>({{"hfu", "hardware FLOPs"},
                                                                    {"hardware", "hardware FLOPs"},
                                                                    {"hw", "hardware FLOPs"},
                                                                    {"model", "model FLOPs"}});
  std::string name = to_lower(text);
  for (const auto& [word, convention] : kWords) {
    const std::size_t at = name.find(word);
    if (at != name.npos) {
      const MetricName metric = metric_name(name.replace(at, word.size(), ""));
      return metric.is_known && metric.name.starts_with("tflops")
                 ? std::optional(NamedCounting{metric, convention})
                 : std::nullopt;
    }
  }
  return std::nullopt;
}

struct FigureMetric {
  MetricName metric;
  std::string_view unit;  // behind the value, where it is one
  bool converts = false;  // the unit is another one than the metric's
};

// The metric of name and unit together; a unit of its own counts for the value, as one that says
// all that the name says does.
FigureMetric metric_of(std::string_view named, std::string_view unit, std::string_view cell,
                       Measurement& row) {
  const MetricName behind = metric_name(unit);
  if (behind.is_known && behind.name == metric_name(named).name) {
    return {behind, unit};
  }
  const std::string both = fmt::format("{} {}", named, unit);
  MetricName metric = metric_name(both);
  if (metric.is_known && !unit.empty()) {
    return {metric, unit};
  }
  if (const auto counted = named_counting(both); counted && !metric.is_known) {
    if (row.flops_convention.empty()) {
      row.flops_convention = counted->convention;
      row.remarks.push_back(fmt::format("{} of {} counted as {}", printable(cell, 40),
                                        printable(named, 40), counted->convention));
    }
    return {counted->metric, unit};
  }
  metric = metric_name(named);
  if (const auto scale = metric.is_known ? scale_of(unit, metric.name) : std::nullopt) {
    metric.scale = unit_of_metric(metric.name).of.empty() ? metric.scale * *scale : *scale;
    return {metric, unit, true};
  }
  return {metric, {}};
}

// "3 s" of tokens per second: a unit that the metric's name has, too, but not alone.
bool is_other_unit(std::string_view unit, std::string_view metric) {
  constexpr auto kTimes =
      std::to_array<std::string_view>({"s", "sec", "secs", "second", "seconds", "ms"});
  constexpr auto kGpus = std::to_array<std::string_view>({"gpu", "gpus"});
  const bool rate = metric.find("per_") != metric.npos;
  const std::string word = to_lower(unit);
  return rate && (std::ranges::find(kTimes, word) != kTimes.end() ||
                  std::ranges::find(kGpus, word) != kGpus.end());
}

bool is_share(std::string_view metric) {
  return metric == "mfu" || metric == "hfu" || metric == "peak_share";
}

// MFU 45 is 45 %; up to one and a half it may be a fraction that cannot be.
void read_percent(std::string_view cell, Measurement& row) {
  constexpr double kNoFraction = 1.5;
  if (is_share(row.metric) && row.value > kNoFraction && row.value <= 100 &&
      cell.find('%') == cell.npos) {
    row.remarks.push_back(
        fmt::format("{} {} as {:g} %", row.metric, printable(cell, 40), row.value));
    row.value /= 100;
  }
}

// The unit may stand behind the value instead of in the metric's name, or in both.
void read_value(const Cells& cells, Measurement& row) {
  const std::string cell = cells.optional_text("measured_value");
  const std::string named = cells.text("measured_metric");
  std::string figure = without_spread(without_remark(cell));
  const std::string middle = middle_of_range(figure);
  if (!middle.empty()) {
    row.remarks.push_back(
        fmt::format("measured_value {} as {}", printable(cell, 40), trim(middle)));
    figure = trim(middle);
  }
  const auto [metric, unit, converts] = metric_of(named, unit_behind(figure), cell, row);
  row.metric = metric.name;
  if (cells.is_open("measured_value")) {
    return;
  }
  if (const std::string_view reason = no_figure(cell); !reason.empty()) {
    row.unknown = fmt::format("measured_value \"{}\": {}", printable(cell, 60), reason);
    return;
  }
  if (figure.find('%') != figure.npos && metric.is_known && !is_share(metric.name)) {
    row.unknown = fmt::format("measured_value \"{}\": {} is no share", printable(cell, 60), named);
    return;
  }
  if (is_other_unit(unit, metric.name)) {
    row.unknown = fmt::format("measured_value \"{}\": {} is not in {}", printable(cell, 60), named,
                              printable(unit, 20));
    return;
  }
  std::string_view number = figure;
  number.remove_suffix(unit.size());
  // "47%" of "MFU %" says per cent twice and means it once.
  const bool twice = is_share(metric.name) && figure.find('%') != figure.npos;
  const double value = cells.positive_in(trim(number), "measured_value");
  row.value = twice ? value : metric.converted(value);
  if (converts) {
    row.remarks.push_back(
        fmt::format("measured_value {} as {} {:g}", printable(cell, 40), row.metric, row.value));
  }
  read_percent(figure, row);
}

std::string in_one_clause(std::string cell) {
  std::erase_if(cell, [](char c) { return c == '(' || c == ')'; });
  return cell;
}

}  // namespace

void read_figure(const Cells& cells, Measurement& row) {
  row.flops_convention = with_typed_signs(cells.printed("flops_convention"));  // "6×N×D"
  read_value(cells, row);
  row.aux = read_aux(cells.optional_text("aux_metrics"));
  row.inferred = cells.optional_text("inferred_fields");
  row.notes = cells.optional_text("notes");
  if (const std::string cp = cells.optional_text("cp"); cp.find('(') != cp.npos) {
    row.notes.append("; cp ").append(in_one_clause(cp));  // "4 (Ulysses)"
  }
  if (const std::string tp = cells.optional_text("tp"); tp.find('(') != tp.npos) {
    row.notes.append("; tp of ").append(in_one_clause(tp.substr(tp.find('('))));  // "4 (2.5D)"
  }
}

}  // namespace orrery::studies
