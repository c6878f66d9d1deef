// SPDX-License-Identifier: Apache-2.0
#include "sim/pipeline/schedule_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/axis.hpp"
#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "sim/pipeline/list_name.hpp"
#include "sim/pipeline/pass_inputs.hpp"
#include "sim/pipeline/schedule_svg_legend.hpp"

namespace orrery::sim {
namespace {

constexpr double kLeastLeft = 70;  // pixels left of the time axis
constexpr double kLabelGap = 8;    // between a row's label and the axis
constexpr double kTitleLine = 18;
constexpr double kLeastWidth = 1100;  // of the time axis
constexpr double kMostWidth = 3300;
constexpr std::size_t kLabelled = 4;  // all boxes but one in so many, the narrowest, have labels
constexpr double kRow = 26;
constexpr double kBox = 20;
constexpr double kPanelGap = 32;      // between the runs of a comparison
constexpr double kLeastOutlined = 4;  // width of a box whose outline does not hide its colour
constexpr int kTicks = 12;            // at most
constexpr std::size_t kMostTitles = 10'000;  // boxes with a hover text

struct TimeUnit {
  const char* name;
  double seconds;
};

// The rows of one run, with the time axis below.
class RunRows {
 public:
  // `names`: of the lists, where they have some.
  RunRows(const PipelineOrder& order, const PipelineResult& result, double time_divisor,
          std::vector<std::string> names = {})
      : order_(order),
        result_(result),
        inputs_(order),
        divisor_(time_divisor),
        names_(std::move(names)),
        first_of_(result.spans.size(), order.device_of.size()) {
    ORRERY_CHECK(names_.empty() || names_.size() == result.spans.size(), "a name for every list");
    for (std::size_t stage = order.device_of.size(); stage-- > 0;) {
      first_of_.at(order.device_of[stage]) = stage;
    }
    for (const auto& spans : result.spans) {
      for (const PassSpan& span : spans) {
        label_width_ = std::max(label_width_, text_width(label_of(span.pass), kLabelFont));
        widths_.push_back((span.end - span.start).ps);
      }
    }
    has_titles_ = widths_.size() <= kMostTitles;
  }

  double seconds() const { return to_seconds(result_.makespan).value() / divisor_; }
  const UsedPaints& used() const { return used_; }
  // Those that had room.
  const BoxNumbers& numbers() const { return numbers_; }

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

  // Left of the axis, for the labels of the rows.
  double wanted_left() const {
    double left = kLeastLeft;
    for (std::size_t device = 0; device < result_.spans.size(); ++device) {
      left = std::max(left, text_width(row_label(device), kLabelFont) + 2 * kLabelGap);
    }
    return left;
  }

  // Below `top` and right of `left`; `pixels` of the axis a second.
  const std::string& draw(double left, double top, double pixels) {
    left_ = left;
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
  bool counts_apart(const Pass& pass) const {
    const std::size_t stage = pass.virtual_stage;
    return pass.kind == PassKind::Optimizer ||
           (inputs_.role(stage) == Role::Service &&
            inputs_.units(stage) != static_cast<std::uint32_t>(order_.micro_batches));
  }
  std::string unit_text(const Pass& pass) const {
    const int unit = unit_of(pass);
    return counts_apart(pass)   ? fmt::format("{}", unit)
           : order_.slices == 1 ? fmt::format("of micro-batch {}", unit)
                                : fmt::format("of slice {} of micro-batch {}", unit % order_.slices,
                                              unit / order_.slices);
  }

  // Whether the stage is the first of those on its device, or a further copy of it.
  bool is_first(std::size_t stage, std::size_t device) const {
    return stage_of_copy(order_, stage) == stage_of_copy(order_, first_of_[device]);
  }

  std::string row_label(std::size_t device) const {
    if (!names_.empty()) {
      return names_[device];
    }
    const std::string_view list = list_name(order_, device);
    const std::string label = fmt::format("{} {}", list, device);
    return list == "device"  // of replicated stages
               ? fmt::format("stage {}, {}", stage_of_copy(order_, first_of_[device]), label)
               : label;
  }

  // What runs in a box, in words.
  std::string pass_text(const Pass& pass, std::size_t paint, std::size_t device) const {
    const std::size_t stage = pass.virtual_stage;
    const bool named = !names_.empty() && inputs_.role(stage) == Role::Service;
    return fmt::format("{} {}, {} {}",
                       named ? std::string_view(names_[device]) : kPaints[paint].name,
                       unit_text(pass), has_copies(order_) ? "stage" : "virtual stage",
                       stage_of_copy(order_, stage));
  }

  std::string duration(SimTime time) const { return duration(to_seconds(time).value() / divisor_); }
  std::string duration(double seconds) const { return format_duration(Seconds(seconds)); }

  void add_text(double x, double y, std::string_view content, std::string_view style) {
    text_ += text_at(x, y, content, style);
  }

  void add_row(std::size_t device) {
    add_text(left_ - kLabelGap, row_y(device) + 14, row_label(device),
             " text-anchor=\"end\" font-size=\"11\"");
    for (const PassSpan& span : result_.spans[device]) {
      add_box(span, device);
    }
  }

  void add_box(const PassSpan& span, std::size_t device) {
    const std::size_t stage = span.pass.virtual_stage;
    const double x = left_ + static_cast<double>(span.start.ps) * scale_;
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
    text_ += has_titles_ ? fmt::format("><title>{}, {} to {}</title></rect>\n",
                                       xml_text(pass_text(span.pass, paint, device)),
                                       duration(span.start), duration(span.end))
                         : std::string("/>\n");
    // Either every box of this width has room for its label or none is labelled: missing labels
    // of two digits among those of one look like an error.
    if (width >= label_width_ + 2) {
      add_text(x + width / 2, y + 14, label_of(span.pass),
               " text-anchor=\"middle\" font-size=\"11\"");
      const bool apart = counts_apart(span.pass);
      numbers_.add({.whole = !apart && order_.slices == 1,
                    .slices = !apart && order_.slices > 1,
                    .apart = apart});
    }
  }

  // The rows' background and the ticks lie under the boxes.
  void add_axis() {
    for (std::size_t device = 0; device < result_.spans.size(); ++device) {
      text_ += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n",
                           left_, row_y(device), width_, kBox, kIdle);
    }
    const double end = seconds();
    unit_ = end >= 1 ? TimeUnit{"s", 1} : end >= 1e-3 ? TimeUnit{"ms", 1e-3} : TimeUnit{"us", 1e-6};
    const double room = text_width(tick_label(end), kLabelFont) + 12;
    for (const double tick : linear_ticks(0, end, kTicks)) {
      const double share = end > 0 ? tick / end : 0;
      if (width_ * (1 - share) > room) {
        add_tick(left_ + width_ * share, tick);
      }
    }
    add_tick(left_ + width_, end);
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
  std::vector<std::string> names_;
  std::vector<std::size_t> first_of_;  // virtual stages of every device
  std::vector<std::int64_t> widths_;   // of all boxes
  double width_ = 0;                   // of the run, in pixels
  double scale_ = 1;                   // pixels a picosecond of the run
  double label_width_ = 0;             // of the widest label, in pixels
  double left_ = 0;                    // of the rows
  double top_ = 0;
  TimeUnit unit_{"s", 1};  // of the ticks
  bool has_titles_ = true;
  BoxNumbers numbers_;
  UsedPaints used_{};
  std::string text_;
};

// Lines of a title from (x, y) on; it moves `y` below them.
std::string title_text(const std::string& title, double width, int size, double x, double& y) {
  std::string text;
  for (const std::string& line : text_lines(title, width, size)) {
    text += text_at(x, y, line, fmt::format(" font-size=\"{}\"", size));
    y += kTitleLine;
  }
  return text;
}

// Pixels a second where an axis of `width` pixels ends after `seconds`.
double pixels_of(double width, double seconds) { return seconds > 0 ? width / seconds : 0; }

}  // namespace

std::string schedule_svg(const PipelineOrder& order, const PipelineResult& result,
                         const std::string& title, double time_divisor,
                         const std::vector<std::string>& lists) {
  ORRERY_CHECK(result.spans.size() == order.passes.size(), "evaluate with record_spans");
  RunRows rows(order, result, time_divisor, lists);
  const double left = rows.wanted_left();
  const double width = rows.wanted_width(rows.seconds());
  double y = kTitleLine;
  std::string text = title_text(title, width, 14, left, y);
  text += rows.draw(left, y + 24, pixels_of(width, rows.seconds()));
  text += legend_text(left, y, rows.used(), rows.numbers().text());
  return svg_document(left + width + 40, rows.bottom() + 34, text);
}

std::string schedules_svg(const std::vector<SchedulePanel>& panels, const std::string& title) {
  std::vector<RunRows> rows;
  std::array<double, 2> seconds{};  // of the axes: of asynchronous and of synchronous schedules
  UsedPaints used{};
  for (const SchedulePanel& panel : panels) {
    ORRERY_CHECK(panel.result->spans.size() == panel.order->passes.size(),
                 "evaluate with record_spans");
    rows.emplace_back(*panel.order, *panel.result, panel.time_divisor, panel.lists);
    double& longest = seconds[panel.synchronous ? 1 : 0];
    longest = std::max(longest, rows.back().seconds());
  }
  double left = kLeastLeft;
  double width = kLeastWidth;
  for (std::size_t k = 0; k < panels.size(); ++k) {
    left = std::max(left, rows[k].wanted_left());
    width = std::max(width, rows[k].wanted_width(seconds[panels[k].synchronous ? 1 : 0]));
  }
  double y = kTitleLine;
  std::string text = title_text(title, width, 14, left, y);
  const double legend = y;
  y += kPanelGap;
  BoxNumbers numbers;
  for (std::size_t k = 0; k < panels.size(); ++k) {
    text += title_text(panels[k].title, width, 12, left, y);
    text += rows[k].draw(left, y - 8, pixels_of(width, seconds[panels[k].synchronous ? 1 : 0]));
    y = rows[k].bottom() + kPanelGap + 16;
    numbers.add(rows[k].numbers());
    for (std::size_t paint = 0; paint < used.size(); ++paint) {
      used[paint][0] = used[paint][0] || rows[k].used()[paint][0];
      used[paint][1] = used[paint][1] || rows[k].used()[paint][1];
    }
  }
  text += legend_text(left, legend, used, numbers.text());
  return svg_document(left + width + 40, y - 16, text);
}

}  // namespace orrery::sim
