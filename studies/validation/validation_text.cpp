// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "studies/validation/percent.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::studies {

std::string percent(const std::optional<double>& fraction) {
  return fraction ? fmt::format("{:.1f} %", 100 * *fraction) : "-";
}

namespace {

std::vector<std::string> cells_of(std::string name, std::string kind, const ErrorSummary& summary) {
  return {std::move(name),
          std::move(kind),
          percent(summary.median),
          percent(summary.p90),
          percent(summary.mean),
          percent(summary.bias),
          percent(summary.coverage80),
          std::to_string(summary.simulated),
          std::to_string(summary.skipped)};
}

void add_summary(TextTable& table, const std::string& name, const TimeAndMemory& both) {
  const auto used = [](const ErrorSummary& summary) {
    return summary.simulated + summary.skipped > 0;
  };
  if (used(both.time)) {
    table.add_row(cells_of(name, "time", both.time));
  }
  if (used(both.memory)) {
    table.add_row(cells_of(name, "memory", both.memory));
  }
}

std::string accuracy_table(const Validation& validation) {
  TextTable table({{"rows", Align::Left},
                   {"of", Align::Left},
                   {"median", Align::Right},
                   {"p90", Align::Right},
                   {"mean", Align::Right},
                   {"bias", Align::Right},
                   {"in interval", Align::Right},
                   {"simulated", Align::Right},
                   {"skipped", Align::Right}});
  for (const auto& [name, source] : validation.sources) {
    add_summary(table, name, source.full);
    add_summary(table, name + " (partial)", source.partial);
  }
  if (!validation.groups.empty()) {
    table.add_rule();
  }
  for (const auto& [name, summary] : validation.groups) {
    table.add_row(cells_of(name, "time", summary));
  }
  table.add_rule();
  add_summary(table, "overall", validation.overall);
  add_summary(table, "overall (partial)", validation.partial);
  if (validation.small_messages.simulated + validation.small_messages.skipped > 0) {
    table.add_row(cells_of("below 1 KiB", "time", validation.small_messages));
  }
  return table.text();
}

std::string number(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : "-";
}

bool says_more(const Judgement& judgement) {
  return judgement.ranking.groups > 0 || judgement.ratio.simulated > 0 ||
         judgement.baseline.simulated > 0;
}

void add_judgement(TextTable& table, const std::string& name, const Judgement& judgement) {
  if (!says_more(judgement)) {
    return;
  }
  const Ranking& ranking = judgement.ranking;
  table.add_row({name, number(ranking.tau), percent(ranking.regret_median),
                 percent(ranking.regret_worst), std::to_string(ranking.groups),
                 percent(judgement.ratio.median), percent(judgement.time.mean),
                 percent(judgement.baseline.mean)});
}

std::string judgement_table(const Validation& validation) {
  TextTable table({{"training runs", Align::Left},
                   {"tau", Align::Right},
                   {"regret", Align::Right},
                   {"worst", Align::Right},
                   {"groups", Align::Right},
                   {"ratio error", Align::Right},
                   {"mean error", Align::Right},
                   {"of baseline", Align::Right}});
  for (const auto& [name, source] : validation.sources) {
    add_judgement(table, name, source.full);
    add_judgement(table, name + " (partial)", source.partial);
  }
  table.add_rule();
  add_judgement(table, "overall", validation.overall);
  add_judgement(table, "overall (partial)", validation.partial);
  const bool any = says_more(validation.overall) || says_more(validation.partial);
  return any ? fmt::format("\n{}", table.text()) : std::string();
}

// "runs.csv:12: tp: ..." without its place, so that rows with one reason are counted together.
struct Reason {
  std::string place;
  std::string text;
};

Reason reason_of(const std::string& skipped_because) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t colon = skipped_because.find(": ");
  const std::string place = skipped_because.substr(0, colon);
  const std::size_t line = place.find_last_not_of(kDigits);
  const bool placed = colon != skipped_because.npos && line != place.npos && line > 0 &&
                      line + 1 < place.size() && place[line] == ':';
  return placed ? Reason{place, skipped_because.substr(colon + 2)} : Reason{"", skipped_because};
}

struct CountedRows {
  int rows = 0;
  std::string first;
};

std::string reasons_table(const Validation& validation) {
  std::map<std::pair<std::string, std::string>, CountedRows> reasons;
  for (const RowResult& row : validation.rows) {
    if (!row.simulated()) {
      const Reason reason = reason_of(row.skipped_because);
      CountedRows& counted = reasons[{row.source, reason.text}];
      counted.first = counted.rows++ == 0 ? reason.place : counted.first;
    }
  }
  if (reasons.empty()) {
    return {};
  }
  TextTable table(
      {{"source", Align::Left}, {"rows", Align::Right}, {"skipped because", Align::Left}});
  for (const auto& [key, counted] : reasons) {
    const std::string place =
        counted.first.empty() ? "" : fmt::format(" ({})", printable(counted.first, 60));
    table.add_row({key.first, std::to_string(counted.rows), printable(key.second, 160) + place});
  }
  return fmt::format("\n{}", table.text());
}

std::string value_text(const std::string& quantity, double value) {
  return quantity.ends_with("_bytes") ? format_bytes(Bytes(value)) : fmt::format("{:.4g}", value);
}

std::string worst_table(const Validation& validation, std::size_t count) {
  std::vector<const RowResult*> rows;
  for (const RowResult& row : validation.rows) {
    if (row.simulated() && !row.small) {
      rows.push_back(&row);
    }
  }
  std::stable_sort(rows.begin(), rows.end(), [](const RowResult* a, const RowResult* b) {
    return std::abs(a->error()) > std::abs(b->error());
  });
  rows.resize(std::min(rows.size(), count));
  if (rows.empty()) {
    return {};
  }
  TextTable table({{"worst rows", Align::Left},
                   {"source", Align::Left},
                   {"what", Align::Left},
                   {"quantity", Align::Left},
                   {"predicted", Align::Right},
                   {"measured", Align::Right},
                   {"error", Align::Right}});
  for (const RowResult* row : rows) {
    table.add_row({printable(row->id, 40), row->source, printable(row->subject, 90), row->quantity,
                   value_text(row->quantity, row->predicted),
                   value_text(row->quantity, row->measured), percent(row->error())});
  }
  return fmt::format("\n{}", table.text());
}

}  // namespace

std::string assumed_text(const std::vector<RowResult>& rows) {
  std::map<std::pair<std::string, std::string>, CountedRows> lines;
  for (const RowResult& row : rows) {
    for (const std::string& line : row.assumed) {
      CountedRows& counted = lines[{row.source, line}];
      counted.first = counted.rows++ == 0 ? row.id : counted.first;
    }
  }
  if (lines.empty()) {
    return {};
  }
  TextTable table({{"source", Align::Left},
                   {"rows", Align::Right},
                   {"first", Align::Left},
                   {"assumed", Align::Left}});
  for (const auto& [key, counted] : lines) {
    table.add_row({key.first, std::to_string(counted.rows), printable(counted.first, 40),
                   printable(key.second, 160)});
  }
  return fmt::format("\n{}", table.text());
}

std::string to_text(const Validation& validation, const ValidateOptions& options) {
  return accuracy_table(validation) + judgement_table(validation) + error_plot(validation.rows) +
         reasons_table(validation) + worst_table(validation, options.worst);
}

}  // namespace orrery::studies
