// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "sim/list_name.hpp"

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

// The micro-batch in `columns` characters: its last digits, or all and a filling.
std::string pass_text(const Pass& pass, std::size_t columns) {
  std::string text = std::to_string(pass.micro_batch);
  if (text.size() > columns) {
    text.erase(0, text.size() - columns);
  }
  if (pass.kind != PassKind::Forward) {
    const char zero = pass.kind == PassKind::WeightGrad ? 'A' : 'a';
    for (char& digit : text) {
      digit = static_cast<char>(zero + (digit - '0'));
    }
  }
  text.resize(columns, '-');
  return text;
}

std::string painted(const Pass& pass, const std::string& text, std::size_t devices) {
  const bool bright = pass.virtual_stage / devices % 2 == 1;
  int background = 42;  // green: backward
  if (pass.kind == PassKind::Forward) {
    background = 44;  // blue
  } else if (pass.kind == PassKind::WeightGrad) {
    background = 43;  // yellow
  }
  return fmt::format("\x1b[30;{}m{}\x1b[0m", background + (bright ? 60 : 0), text);
}

// Columns whose middle lies before `time`.
std::size_t columns_before(SimTime time, std::int64_t unit) {
  return static_cast<std::size_t>((time.ps + unit / 2) / unit);
}

std::string row(const std::vector<PassSpan>& spans, std::int64_t unit, std::size_t columns,
                std::size_t devices, bool color) {
  std::string text;
  std::size_t drawn = 0;
  for (const PassSpan& span : spans) {
    const std::size_t from = columns_before(span.start, unit);
    const std::size_t to = columns_before(span.end, unit);
    if (from == to) {
      continue;
    }
    text.append(from - drawn, '.');
    const std::string pass = pass_text(span.pass, to - from);
    text += color ? painted(span.pass, pass, devices) : pass;
    drawn = to;
  }
  text.append(columns > drawn ? columns - drawn : 0, '.');
  return text;
}

}  // namespace

std::string schedule_picture(const PipelineResult& result, const PictureOptions& options) {
  ORRERY_CHECK(result.spans.size() == result.devices.size(), "a picture needs recorded spans");
  const std::int64_t width = std::max(options.width, 1);
  const std::int64_t exact = common_unit(result);
  const std::int64_t fitting = (result.makespan.ps + width - 1) / width;
  const std::int64_t unit = std::max(exact, fitting);
  const std::size_t columns = columns_before(result.makespan, unit);
  const std::size_t devices = result.devices.size();
  const std::size_t digits = std::to_string(devices - 1).size();
  std::string picture;
  const auto name = [&](std::size_t list) {
    return options.order != nullptr ? list_name(*options.order, list) : "stage";
  };
  std::size_t letters = 0;
  for (std::size_t d = 0; d < devices; ++d) {
    letters = std::max(letters, name(d).size());
  }
  for (std::size_t d = 0; d < devices; ++d) {
    picture += fmt::format("{:<{}} {:>{}} |{}|\n", name(d), letters, d, digits,
                           row(result.spans[d], unit, columns, devices, options.color));
  }
  picture += fmt::format("0-9 forward  a-j backward  A-J weight-grad  . idle  column {:.3g} s\n",
                         to_seconds({unit}).value() / options.time_divisor);
  return picture;
}

}  // namespace orrery::sim
