// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/schedule_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "sim/pipeline/list_name.hpp"

namespace orrery::sim {
namespace {

std::int64_t common_unit(const PipelineResult& result) {
  std::int64_t unit = 0;
  for (const auto& spans : result.spans) {
    for (const PassSpan& span : spans) {
      unit = std::gcd(unit, std::gcd(span.start.ps, span.end.ps));
    }
  }
  return std::max<std::int64_t>(unit, 1);
}

// What is not a forward, backward or weight-grad of the layers.
struct Mark {
  char letter;
  int background;
  const char* name;
};
enum MarkNumber : std::size_t {
  kRecompute,
  kOutput,
  kOutputGrad,
  kInput,
  kInputGrad,
  kOptimizer,
  kService,
  kFrozen
};
constexpr std::size_t kNumMarks = kFrozen + 1;
constexpr std::array<Mark, kNumMarks> kMarks = {{{'r', 47, "recompute"},
                                                 {'s', 45, "output layer"},
                                                 {'t', 45, "output layer's backward"},
                                                 {'l', 44, "input layer"},
                                                 {'m', 44, "input layer's backward"},
                                                 {'u', 41, "optimizer"},
                                                 {'v', 46, "service"},
                                                 {'x', 46, "frozen"}}};

// kNumMarks for the others.
std::size_t mark_of(const Pass& pass, Role role) {
  if (pass.kind == PassKind::Recompute || pass.kind == PassKind::Optimizer) {
    return pass.kind == PassKind::Recompute ? kRecompute : kOptimizer;
  }
  switch (role) {
    case Role::Output:
      return pass.kind == PassKind::Forward ? kOutput : kOutputGrad;
    case Role::Input:
      return pass.kind == PassKind::Forward ? kInput : kInputGrad;
    case Role::Service:
      return kService;
    case Role::Frozen:
      return kFrozen;
    default:
      return kNumMarks;
  }
}

// The chains of virtual stages: their roles and the numbers of their units.
struct Stages {
  std::vector<Chain> chain_of;
  explicit Stages(const PipelineOrder* order) {
    if (order == nullptr) {
      return;
    }
    for (const Chain& chain : chains_of(*order)) {
      chain_of.insert(chain_of.end(), static_cast<std::size_t>(chain.stages), chain);
    }
  }
  std::size_t mark(const Pass& pass) const {
    return mark_of(pass, chain_of.empty() ? Role::Layers : chain_of[pass.virtual_stage].role);
  }
  int unit(const Pass& pass) const {
    return chain_of.empty() ? static_cast<int>(pass.micro_batch)
                            : chain_of[pass.virtual_stage].number_of(pass.micro_batch);
  }
};

// The micro-batch in `columns` characters: its last digits, or all and a filling. Marked passes
// show their letter, and the micro-batch if there is room for all of it.
std::string pass_text(const Pass& pass, const Stages& stages, std::size_t columns) {
  std::string text = std::to_string(stages.unit(pass));
  const std::size_t mark = stages.mark(pass);
  if (mark < kNumMarks) {
    text = kMarks[mark].letter + (text.size() < columns ? text : "");
  } else if (text.size() > columns) {
    text.erase(0, text.size() - columns);
  }
  if (mark == kNumMarks && pass.kind != PassKind::Forward) {
    const char zero = pass.kind == PassKind::WeightGrad ? 'A' : 'a';
    for (char& digit : text) {
      digit = static_cast<char>(zero + (digit - '0'));
    }
  }
  text.resize(columns, '-');
  return text;
}

std::string painted(const Pass& pass, const Stages& stages, const std::string& text,
                    std::size_t devices) {
  const bool bright = pass.virtual_stage / devices % 2 == 1;
  const std::size_t mark = stages.mark(pass);
  int background = 42;  // green: backward
  if (mark < kNumMarks) {
    background = kMarks[mark].background;
  } else if (pass.kind == PassKind::Forward) {
    background = 44;  // blue
  } else if (pass.kind == PassKind::WeightGrad) {
    background = 43;  // yellow
  }
  const bool brightens = bright && mark == kNumMarks;
  return fmt::format("\x1b[30;{}m{}\x1b[0m", background + (brightens ? 60 : 0), text);
}

// Columns whose middle lies before `time`.
std::size_t columns_before(SimTime time, std::int64_t unit) {
  return static_cast<std::size_t>((time.ps + unit / 2) / unit);
}

std::string row(const std::vector<PassSpan>& spans, const Stages& stages, std::int64_t unit,
                std::size_t columns, std::size_t devices, bool color) {
  std::string text;
  std::size_t drawn = 0;
  for (const PassSpan& span : spans) {
    const std::size_t from = columns_before(span.start, unit);
    const std::size_t to = columns_before(span.end, unit);
    if (from == to) {
      continue;
    }
    text.append(from - drawn, '.');
    const std::string pass = pass_text(span.pass, stages, to - from);
    text += color ? painted(span.pass, stages, pass, devices) : pass;
    drawn = to;
  }
  text.append(columns > drawn ? columns - drawn : 0, '.');
  return text;
}

// The weight gradients and marks that are drawn, for the line below the rows.
std::string legend_of(const PipelineResult& result, const Stages& stages, std::int64_t unit) {
  std::array<bool, kNumMarks + 1> drawn{};
  bool weight_grads = false;
  for (const std::vector<PassSpan>& spans : result.spans) {
    for (const PassSpan& span : spans) {
      const bool shown = columns_before(span.start, unit) < columns_before(span.end, unit);
      const std::size_t mark = stages.mark(span.pass);
      drawn[mark] |= shown;
      weight_grads |= shown && mark == kNumMarks && span.pass.kind == PassKind::WeightGrad;
    }
  }
  std::string text = weight_grads ? "A-J weight-grad  " : "";
  for (std::size_t mark = 0; mark < kNumMarks; ++mark) {
    text += drawn[mark] ? fmt::format("{} {}  ", kMarks[mark].letter, kMarks[mark].name) : "";
  }
  return text;
}

// What stands before the rows, all as wide.
std::vector<std::string> row_names(const PictureOptions& options, std::size_t devices) {
  ORRERY_CHECK(options.lists.empty() || options.lists.size() == devices, "a name for every list");
  const auto kind = [&](std::size_t list) {
    return options.order != nullptr ? list_name(*options.order, list) : "stage";
  };
  const std::size_t digits = std::to_string(devices - 1).size();
  std::size_t letters = 0;
  for (std::size_t d = 0; d < devices; ++d) {
    letters = std::max(letters, options.lists.empty() ? kind(d).size() : options.lists[d].size());
  }
  std::vector<std::string> names;
  for (std::size_t d = 0; d < devices; ++d) {
    names.push_back(options.lists.empty()
                        ? fmt::format("{:<{}} {:>{}}", kind(d), letters, d, digits)
                        : fmt::format("{:<{}}", options.lists[d], letters));
  }
  return names;
}

}  // namespace

std::string schedule_picture(const PipelineResult& result, const PictureOptions& options) {
  ORRERY_CHECK(!result.spans.empty(), "a picture needs recorded spans");
  const std::size_t devices = result.spans.size();  // plans count without copies and servers
  const Stages stages(options.order);
  const std::vector<std::string> names = row_names(options, devices);
  constexpr int kFrame = 3;  // " |" and "|"
  const int beside = options.whole_lines ? static_cast<int>(names.front().size()) + kFrame : 0;
  const std::int64_t width = std::max(options.width - beside, 1);
  const std::int64_t exact = common_unit(result);
  const std::int64_t fitting = (result.makespan.ps + width - 1) / width;
  const std::int64_t unit = std::max(exact, fitting);
  const std::size_t columns = columns_before(result.makespan, unit);
  std::string picture;
  for (std::size_t d = 0; d < devices; ++d) {
    picture += fmt::format("{} |{}|\n", names[d],
                           row(result.spans[d], stages, unit, columns, devices, options.color));
  }
  picture += fmt::format("0-9 forward  a-j backward  {}. idle  column {:.3g} s\n",
                         legend_of(result, stages, unit),
                         to_seconds({unit}).value() / options.time_divisor);
  return picture;
}

}  // namespace orrery::sim
