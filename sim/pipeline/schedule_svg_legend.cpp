// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/schedule_svg_legend.hpp"

#include <fmt/format.h>

#include <initializer_list>

#include "base/svg.hpp"

namespace orrery::sim {

std::size_t paint_of(const Pass& pass, Role role) {
  if (role == Role::Output || role == Role::Input) {
    return role == Role::Output ? 3 : 8;
  }
  if (role == Role::Frozen || role == Role::Service) {
    return role == Role::Frozen ? 6 : 7;
  }
  switch (pass.kind) {
    case PassKind::Forward:
      return 0;
    case PassKind::WeightGrad:
      return 2;
    case PassKind::Recompute:
      return 4;
    case PassKind::Optimizer:
      return 5;
    default:
      return 1;
  }
}

std::string BoxNumbers::text() const {
  const std::string_view passes = whole && slices ? "micro-batches, or slices of them"
                                  : slices        ? "slices of micro-batches"
                                  : whole         ? "micro-batches"
                                                  : "";
  return fmt::format("{}{}{}", passes, apart && !passes.empty() ? "; " : "",
                     apart ? "updates and services count on their own" : "");
}

std::string text_at(double x, double y, std::string_view content, std::string_view style) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, style,
                     xml_text(content));
}

std::string legend_text(double x, double y, const UsedPaints& used, std::string_view numbers) {
  std::string text;
  bool any_dark = false;
  const auto entry = [&](std::string_view name, std::initializer_list<const char*> colours) {
    for (const char* colour : colours) {
      text +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                      x, y - 10, colour);
      x += 12;
    }
    text += text_at(x + 5, y, name, " font-size=\"11\"");
    x += text_width(name, kLabelFont) + 28;
  };
  for (std::size_t paint = 0; paint < kPaints.size(); ++paint) {
    const auto& [color, dark, name] = kPaints[paint];
    any_dark = any_dark || used[paint][1];
    if (used[paint][0] && used[paint][1]) {
      entry(name, {color, dark});
    } else if (used[paint][0] || used[paint][1]) {
      entry(name, {used[paint][0] ? color : dark});
    }
  }
  entry("idle", {kIdle});
  const std::string_view dark = any_dark ? "dark: further chunks of a device" : "";
  const std::string remark =
      numbers.empty() ? std::string(dark)
                      : fmt::format("{}{}numbers: {}", dark, any_dark ? "; " : "", numbers);
  return remark.empty() ? text : text + text_at(x, y, remark, " font-size=\"11\" fill=\"#555\"");
}

}  // namespace orrery::sim
