// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "studies/validation/percent.hpp"
#include "studies/validation/validation.hpp"

namespace orrery::studies {
namespace {

bool is_used(const ErrorSummary& summary) { return summary.simulated + summary.skipped > 0; }

void add_errors(std::string& text, const std::string& name, const std::string& quantity,
                const ErrorSummary& summary) {
  if (is_used(summary)) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", name, quantity,
                        percent(summary.median), percent(summary.p90), percent(summary.mean),
                        percent(summary.bias), percent(summary.coverage80), summary.simulated,
                        summary.skipped);
  }
}

void add_both(std::string& text, const std::string& name, const TimeAndMemory& both) {
  add_errors(text, name, "time", both.time);
  add_errors(text, name, "memory", both.memory);
}

void add_judgement(std::string& text, const std::string& name, const Judgement& judgement) {
  if (judgement.baseline.simulated == 0) {
    return;
  }
  const Ranking& ranking = judgement.ranking;
  text += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", name,
                      ranking.tau ? fmt::format("{:.2f}", *ranking.tau) : "-",
                      percent(ranking.regret_median), percent(ranking.regret_worst),
                      percent(judgement.ratio.median), percent(judgement.time.mean),
                      percent(judgement.baseline.mean));
}

using Adder = void (*)(std::string&, const std::string&, const Judgement&);

void add_all(std::string& text, const Validation& validation, Adder add) {
  for (const auto& [name, source] : validation.sources) {
    add(text, name, source.full);
    add(text, name + " (partial)", source.partial);
  }
  add(text, "**overall**", validation.overall);
  add(text, "**overall (partial)**", validation.partial);
}

}  // namespace

std::string to_markdown(const Validation& validation) {
  std::string errors =
      "| rows | of | median | p90 | mean | bias | in interval | simulated | skipped |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  add_all(errors, validation, [](std::string& text, const std::string& name, const Judgement& all) {
    add_both(text, name, all);
  });
  for (const auto& [name, summary] : validation.groups) {
    add_errors(errors, name, "time", summary);
  }
  add_errors(errors, "below 1 KiB", "time", validation.small_messages);
  std::string judged =
      "\n| training runs | tau | regret | worst | ratio error | mean error | "
      "baseline |\n|---|---|---|---|---|---|---|\n";
  const std::size_t header = judged.size();
  add_all(judged, validation, add_judgement);
  return judged.size() > header ? errors + judged : errors;
}

}  // namespace orrery::studies
