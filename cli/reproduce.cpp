// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/interrupt.hpp"
#include "base/limits.hpp"
#include "base/parallel.hpp"
#include "base/progress.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "cli/command/command.hpp"
#include "cli/command/command_line.hpp"
#include "cli/command/common.hpp"
#include "studies/reproduction/headline.hpp"

namespace orrery::cli {
namespace {

constexpr const char* kReproduceExamples = R"(
Examples:
  orrery reproduce                       every headline
  orrery reproduce zero-bubble           those of one system
  orrery reproduce my-headline.json --json)";

struct ReproduceOptions {
  std::vector<std::string> names;
  std::string jobs = "0";
  OutputOptions output;
};

// Every headline whose name begins with one that was asked for; files as they are.
std::vector<std::string> chosen_names(const std::vector<std::string>& asked) {
  const std::vector<std::string> all = studies::headline_names();
  if (asked.empty()) {
    return all;
  }
  std::vector<std::string> names;
  for (const std::string& name : asked) {
    const std::size_t before = names.size();
    for (const std::string& known : all) {
      if (known == name || known.starts_with(name + "-")) {
        names.push_back(known);
      }
    }
    if (names.size() == before) {
      names.push_back(name);  // a file, or an error that names the nearest
    }
  }
  return names;
}

std::string number_or_dash(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : std::string("-");
}

std::string band_text(const studies::Reproduced& entry) {
  if (!entry.low && !entry.high) {
    return "-";
  }
  return fmt::format("{} .. {}", entry.low ? fmt::format("{:.4g}", *entry.low) : "",
                     entry.high ? fmt::format("{:.4g}", *entry.high) : "");
}

std::string_view reason_kind(studies::Verdict verdict) {
  switch (verdict) {
    case studies::Verdict::Inside:
      return "assumed";
    case studies::Verdict::Outside:
      return "outside";
    case studies::Verdict::Unjudged:
      return "not judged";
  }
  return "";
}

// Differences of times that should be nothing end in their rounding.
std::string simulated_text(double simulated) {
  constexpr double kRounding = 1e-9;
  return fmt::format("{:.4g}", std::abs(simulated) < kRounding ? 0.0 : simulated);
}

// "a", "a and b", "a and 2 more".
std::string names_text(const std::vector<std::string>& names) {
  return names.size() <= 2 ? fmt::format("{}", fmt::join(names, " and "))
                           : fmt::format("{} and {} more", names.front(), names.size() - 1);
}

// Every reason once, behind the headlines that it is of: "a and b, outside: ...".
std::string reasons_text(const std::vector<studies::Reproduced>& entries) {
  struct Reason {
    std::string text;
    std::vector<std::string> names;
  };
  std::vector<Reason> reasons;
  for (const studies::Reproduced& entry : entries) {
    if (entry.reason.empty()) {
      continue;
    }
    std::string text = fmt::format("{}: {}", reason_kind(entry.verdict), entry.reason);
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const Reason& reason) { return reason.text == text; });
    if (known == reasons.end()) {
      reasons.push_back({std::move(text), {entry.name}});
    } else {
      known->names.push_back(entry.name);
    }
  }
  std::string text;
  for (const Reason& reason : reasons) {
    text += fmt::format("{}, {}\n", names_text(reason.names), reason.text);
  }
  return text;
}

std::string table_text(const std::vector<studies::Reproduced>& entries) {
  TextTable table({{"headline"},
                   {"published", Align::Right},
                   {"simulated", Align::Right},
                   {"band", Align::Right},
                   {"verdict"}});
  for (const studies::Reproduced& entry : entries) {
    table.add_row({entry.name, number_or_dash(entry.published), simulated_text(entry.simulated),
                   band_text(entry), std::string(to_text(entry.verdict))});
  }
  const auto count = [&entries](studies::Verdict verdict) {
    return std::count_if(entries.begin(), entries.end(),
                         [verdict](const auto& entry) { return entry.verdict == verdict; });
  };
  std::string text = table.text();
  text += fmt::format("\n{} inside, {} outside, {} not judged\n", count(studies::Verdict::Inside),
                      count(studies::Verdict::Outside), count(studies::Verdict::Unjudged));
  const std::string reasons = reasons_text(entries);
  return reasons.empty() ? text : text + "\n" + reasons;
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json to_json(const std::vector<studies::Reproduced>& entries) {
  Json list = Json::array();
  for (const studies::Reproduced& entry : entries) {
    list.push(Json::Object{
        {"name", entry.name},
        {"system", entry.system},
        {"claim", entry.claim},
        {"published", number_or_null(entry.published)},
        {"simulated", entry.simulated},
        {"band", Json::Array{number_or_null(entry.low), number_or_null(entry.high)}},
        {"verdict", to_text(entry.verdict)},
        {"reason", entry.reason},
        {"source", entry.source},
    });
  }
  return Json::Object{{"headlines", std::move(list)}};
}

// The headlines side by side. An interruption keeps the others from starting and does not wait for
// those under way: planners of other people's, which do not look up.
class Reproductions {
 public:
  // Reads all of them, so that one that cannot be read is an Error before any runs.
  Reproductions(std::vector<std::string> names, bool quiet)
      : names_(std::move(names)), done_(names_.size()), progress_("reproduce", quiet) {
    for (const std::string& name : names_) {
      documents_.push_back(studies::load_headline(name));
    }
    for (std::size_t i = 0; i < names_.size(); ++i) {
      headlines_.push_back(studies::read_headline(documents_[i], names_[i]));
    }
  }

  void run(int jobs) {
    try {
      parallel_for(names_.size(), jobs, [this](std::size_t i) { reproduce(i); });
    } catch (...) {
      problem_ = std::current_exception();
    }
    over_ = true;
  }

  // Whether all threads have ended: else it was interrupted.
  bool wait() {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds kLook{20};
    constexpr std::chrono::milliseconds kGrace{500};
    Clock::time_point end = Clock::time_point::max();
    while (!over_ && Clock::now() < end) {
      std::this_thread::sleep_for(kLook);
      end = interrupted() ? std::min(end, Clock::now() + kGrace) : end;
    }
    return over_;
  }

  std::vector<studies::Reproduced> finished() {
    if (over_ && problem_) {
      std::rethrow_exception(problem_);
    }
    const std::lock_guard lock(mutex_);
    progress_.finish();
    std::vector<studies::Reproduced> entries;
    for (const std::vector<studies::Reproduced>& some : done_) {
      entries.insert(entries.end(), some.begin(), some.end());
    }
    return entries;
  }

 private:
  void reproduce(std::size_t i) {
    if (interrupted()) {
      return;
    }
    auto entries = studies::reproduce(headlines_[i]);
    const std::lock_guard lock(mutex_);
    done_[i] = std::move(entries);
    const auto share = static_cast<double>(++finished_) / static_cast<double>(names_.size());
    if (!interrupted()) {
      progress_.update(share, names_[i]);
    }
  }

  std::vector<std::string> names_;
  std::vector<Json> documents_;  // of the headlines
  std::vector<studies::Headline> headlines_;
  std::mutex mutex_;
  std::vector<std::vector<studies::Reproduced>> done_;
  std::size_t finished_ = 0;
  Progress progress_;
  std::exception_ptr problem_;
  std::atomic<bool> over_ = false;
};

int run(const ReproduceOptions& options) {
  const int jobs = static_cast<int>(parse_integer(options.jobs, "--jobs", 0, limits::kMaxThreads));
  install_interrupt_handler();
  const auto work =
      std::make_shared<Reproductions>(chosen_names(options.names), options.output.quiet);
  std::thread runner([work, jobs] { work->run(jobs); });
  const bool all_ended = work->wait();
  all_ended ? runner.join() : runner.detach();
  const std::vector<studies::Reproduced> entries = work->finished();
  if (options.output.json) {
    print_json(to_json(entries));
  } else {
    print(table_text(entries));
  }
  if (!all_ended) {
    std::fflush(nullptr);
    std::_Exit(kInterrupted);  // leaves what still runs
  }
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_reproduce(const Command& app, Action& chosen) {
  auto options = std::make_shared<ReproduceOptions>();
  const Command command =
      app.add_subcommand("reproduce", "published headline results, re-run and judged");
  command.footer(kReproduceExamples);
  command.add_option("NAME", options->names, "headlines, the beginning of their names, or files");
  command.add_option("-j,--jobs", options->jobs, "threads (all cores)");
  add_output_options(command, options->output);
  command.callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace orrery::cli
