// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/schedule_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/axis.hpp"
#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "sim/pipeline/list_name.hpp"
#include "sim/pipeline/pass_inputs.hpp"

namespace orrery::sim {
namespace {

constexpr double kLeft = 70;  // pixels
constexpr double kTitleLine = 18;
constexpr double kLeastWidth = 1100;  // of the time axis
constexpr double kMostWidth = 3300;
constexpr std::size_t kLabelled = 4;  // all boxes but one in so many, the narrowest, have labels
constexpr double kRow = 26;
constexpr double kBox = 20;
constexpr double kPanelGap = 32;  // between the runs of a comparison
constexpr double kFont = 11;
constexpr double kLeastOutlined = 4;  // width of a box whose outline does not hide its colour
constexpr int kTicks = 12;            // at most
constexpr std::size_t kMostTitles = 10'000;  // boxes with a hover text

struct Paint {
  const char* color;
  const char* dark;  // of odd chunks and the second direction
  const char* name;
};

// Colours that colour-blind readers tell apart (after Okabe and Ito), lighter and darker.
constexpr std::array<Paint, 9> kPaints = {{{"#8ecae6", "#3f8fc0", "forward"},
                                           {"#7bcfa9", "#2f9e77", "backward"},
                                           {"#f5dd72", "#d9b31c", "weight gradient"},
                                           {"#d7a9d1", "#b270a8", "output layer"},
                                           {"#cfcfcf", "#a5a5a5", "recompute"},
                                           {"#f2a65a", "#d5752a", "optimizer"},
                                           {"#dcc7a1", "#b39661", "frozen layers"},
                                           {"#c4b7e0", "#8f7cc0", "service"},
                                           {"#e8b4bc", "#c9818d", "input layer"}}};

constexpr const char* kIdle = "#f0f0f0";

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

struct TimeUnit {
  const char* name;
  double seconds;
};

std::string text_at(double x, double y, std::string_view content, std::string_view style) {
  return fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\"{}>{}</text>\n", x, y, style,
                     xml_text(content));
}

// Light and dark, by paint.
using UsedPaints = std::array<std::array<bool, 2>, kPaints.size()>;

// The rows of one run, with the time axis below.
class RunRows {
 public:
  RunRows(const PipelineOrder& order, const PipelineResult& result, double time_divisor)
      : order_(order), result_(result), inputs_(order), divisor_(time_divisor) {
    for (const auto& spans : result.spans) {
      for (const PassSpan& span : spans) {
        label_width_ = std::max(label_width_, text_width(label_of(span.pass), kFont));
        widths_.push_back((span.end - span.start).ps);
      }
    }
    has_titles_ = widths_.size() <= kMostTitles;
  }

  double seconds() const { return to_seconds(result_.makespan).value() / divisor_; }
  bool sliced() const { return order_.slices > 1; }
  const UsedPaints& used() const { return used_; }
  // Whether a box had room for its number.
  bool numbered() const { return numbered_; }

  // With room for the labels of most boxes on an axis of `seconds`, where a picture that is not too
  // wide has it.
  double wanted_width(double seconds) const {
    std::vector<std::int64_t> widths = widths_;
    std::erase(widths, 0);
    if (widths.empty()) {
      return kLeastWidth;
    }
    const auto narrow = widths.begin() + static_cast<std::ptrdiff_t>(widths.size() / kLabelled);
    std::nth_element(widths.begin(), narrow, widths.end());
    const double wanted =
        (label_width_ + 3) * seconds * divisor_ * 1e12 / static_cast<double>(*narrow);
    return wanted > kMostWidth ? kLeastWidth : std::max(wanted, kLeastWidth);
  }

  // Below `top`; `pixels` of the axis a second.
  const std::string& draw(double top, double pixels) {
    top_ = top;
    scale_ = pixels / (divisor_ * 1e12);
    width_ = static_cast<double>(result_.makespan.ps) * scale_;
    add_axis();
    for (std::size_t device = 0; device < result_.spans.size(); ++device) {
      add_row(device);
    }
    return text_;
  }
  double bottom() const { return row_y(result_.spans.size()); }

 private:
  double row_y(std::size_t device) const { return top_ + kRow * static_cast<double>(device); }

  int unit_of(const Pass& pass) const { return inputs_.number_of(pass); }
  std::string label_of(const Pass& pass) const { return std::to_string(unit_of(pass)); }
  std::string unit_text(const Pass& pass) const {
    const int unit = unit_of(pass);
    return order_.slices == 1 ? fmt::format("micro-batch {}", unit)
                              : fmt::format("slice {} of micro-batch {}", unit % order_.slices,
                                            unit / order_.slices);
  }

  // Whether the stage is the first of those on its device.
  bool is_first(std::size_t stage, std::size_t device) const {
    return std::find(order_.device_of.begin(), order_.device_of.end(), device) ==
           order_.device_of.begin() + static_cast<std::ptrdiff_t>(stage);
  }

  std::string duration(SimTime time) const { return duration(to_seconds(time).value() / divisor_); }
  std::string duration(double seconds) const { return format_duration(Seconds(seconds)); }

  void add_text(double x, double y, std::string_view content, std::string_view style) {
    text_ += text_at(x, y, content, style);
  }

  void add_row(std::size_t device) {
    add_text(kLeft - 8, row_y(device) + 14, fmt::format("{} {}", list_name(order_, device), device),
             " text-anchor=\"end\" font-size=\"11\"");
    for (const PassSpan& span : result_.spans[device]) {
      add_box(span, device);
    }
  }

  void add_box(const PassSpan& span, std::size_t device) {
    const std::size_t stage = span.pass.virtual_stage;
    const double x = kLeft + static_cast<double>(span.start.ps) * scale_;
    const double y = row_y(device);
    const double width = static_cast<double>((span.end - span.start).ps) * scale_;
    const std::size_t paint = paint_of(span.pass, inputs_.role(stage));
    const bool dark = inputs_.role(stage) == Role::Layers && !is_first(stage, device);
    used_[paint][dark ? 1 : 0] |= width > 0;
    const bool outlined = !span.pass.joined && width >= kLeastOutlined;
    text_ +=
        fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"{}",
                    x, y, width, kBox, dark ? kPaints[paint].dark : kPaints[paint].color,
                    outlined ? " stroke=\"#555\" stroke-width=\"0.5\"" : "");
    text_ += has_titles_ ? fmt::format(
                               "><title>{} of {}, virtual stage {}, {} to {}"
                               "</title></rect>\n",
                               kPaints[paint].name, unit_text(span.pass), stage,
                               duration(span.start), duration(span.end))
                         : std::string("/>\n");
    // Either every box of this width has room for its label or none is labelled: missing labels
    // of two digits among those of one look like an error.
    if (width >= label_width_ + 2) {
      add_text(x + width / 2, y + 14, label_of(span.pass),
               " text-anchor=\"middle\" font-size=\"11\"");
      numbered_ = true;
    }
  }

  // The rows' background and the ticks lie under the boxes.
  void add_axis() {
    for (std::size_t device = 0; device < result_.spans.size(); ++device) {
      text_ += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                           kLeft, row_y(device), width_, kBox, kIdle);
    }
    const double end = seconds();
    unit_ = end >= 1 ? TimeUnit{"s", 1} : end >= 1e-3 ? TimeUnit{"ms", 1e-3} : TimeUnit{"us", 1e-6};
    const double room = text_width(tick_label(end), kFont) + 12;
    for (const double tick : linear_ticks(0, end, kTicks)) {
      const double share = end > 0 ? tick / end : 0;
      if (width_ * (1 - share) > room) {
        add_tick(kLeft + width_ * share, tick);
      }
    }
    add_tick(kLeft + width_, end);
  }

  std::string tick_label(double seconds) const {
    return fmt::format("{:.4g} {}", seconds / unit_.seconds, unit_.name);
  }

  void add_tick(double x, double seconds) {
    text_ +=
        fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}\" stroke=\"#ccc\"/>\n", x, top_, bottom() + 2);
    add_text(x, bottom() + 16, tick_label(seconds), " text-anchor=\"middle\" font-size=\"11\"");
  }

  const PipelineOrder& order_;
  const PipelineResult& result_;
  PassInputs inputs_;
  double divisor_;
  std::vector<std::int64_t> widths_;  // of all boxes
  double width_ = 0;                  // of the run, in pixels
  double scale_ = 1;                  // pixels a picosecond of the run
  double label_width_ = 0;            // of the widest label, in pixels
  double top_ = 0;                    // of the rows
  TimeUnit unit_{"s", 1};             // of the ticks
  bool has_titles_ = true;
  bool numbered_ = false;
  UsedPaints used_{};
  std::string text_;
};

// What the colours of the pictures mean, at the height `y`, and what their numbers count, "" where
// none are drawn.
std::string legend_text(double y, const UsedPaints& used, std::string_view numbers) {
  std::string text;
  double x = kLeft;
  bool any_dark = false;
  const auto entry = [&](std::string_view name, std::initializer_list<const char*> colours) {
    for (const char* colour : colours) {
      text +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n",
                      x, y - 10, colour);
      x += 12;
    }
    text += text_at(x + 5, y, name, " font-size=\"11\"");
    x += text_width(name, kFont) + 28;
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

// Lines of a title from the height `y` on, which it moves below them.
std::string title_text(const std::string& title, double width, int size, double& y) {
  std::string text;
  for (const std::string& line : text_lines(title, width, size)) {
    text += text_at(kLeft, y, line, fmt::format(" font-size=\"{}\"", size));
    y += kTitleLine;
  }
  return text;
}

// Pixels a second where an axis of `width` pixels ends after `seconds`.
double pixels_of(double width, double seconds) { return seconds > 0 ? width / seconds : 0; }

}  // namespace

std::string schedule_svg(const PipelineOrder& order, const PipelineResult& result,
                         const std::string& title, double time_divisor) {
  ORRERY_CHECK(result.spans.size() == order.passes.size(), "evaluate with record_spans");
  RunRows rows(order, result, time_divisor);
  const double width = rows.wanted_width(rows.seconds());
  double y = kTitleLine;
  std::string text = title_text(title, width, 14, y);
  text += rows.draw(y + 24, pixels_of(width, rows.seconds()));
  text += legend_text(y, rows.used(),
                      !rows.numbered() ? ""
                      : rows.sliced()  ? "slices of micro-batches"
                                       : "micro-batches");
  return svg_document(kLeft + width + 40, rows.bottom() + 34, text);
}

std::string schedules_svg(const std::vector<SchedulePanel>& panels, const std::string& title) {
  std::vector<RunRows> rows;
  std::array<double, 2> seconds{};  // of the axes: of asynchronous and of synchronous schedules
  UsedPaints used{};
  for (const SchedulePanel& panel : panels) {
    ORRERY_CHECK(panel.result->spans.size() == panel.order->passes.size(),
                 "evaluate with record_spans");
    rows.emplace_back(*panel.order, *panel.result, panel.time_divisor);
    double& longest = seconds[panel.synchronous ? 1 : 0];
    longest = std::max(longest, rows.back().seconds());
  }
  double width = kLeastWidth;
  for (std::size_t k = 0; k < panels.size(); ++k) {
    width = std::max(width, rows[k].wanted_width(seconds[panels[k].synchronous ? 1 : 0]));
  }
  double y = kTitleLine;
  std::string text = title_text(title, width, 14, y);
  const double legend = y;
  y += kPanelGap;
  bool sliced = false;
  bool whole = false;
  for (std::size_t k = 0; k < panels.size(); ++k) {
    text += title_text(panels[k].title, width, 12, y);
    text += rows[k].draw(y - 8, pixels_of(width, seconds[panels[k].synchronous ? 1 : 0]));
    y = rows[k].bottom() + kPanelGap + 16;
    (rows[k].sliced() ? sliced : whole) |= rows[k].numbered();
    for (std::size_t paint = 0; paint < used.size(); ++paint) {
      used[paint][0] = used[paint][0] || rows[k].used()[paint][0];
      used[paint][1] = used[paint][1] || rows[k].used()[paint][1];
    }
  }
  text += legend_text(legend, used,
                      sliced && whole ? "micro-batches, or slices of them"
                      : sliced        ? "slices of micro-batches"
                      : whole         ? "micro-batches"
                                      : "");
  return svg_document(kLeft + width + 40, y - 16, text);
}

}  // namespace orrery::sim
