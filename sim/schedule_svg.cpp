// SPDX-License-Identifier: Apache-2.0
#include "sim/schedule_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "sim/pass_inputs.hpp"

namespace orrery::sim {
namespace {

constexpr double kLeft = 70;  // pixels
constexpr double kTop = 58;
constexpr double kWidth = 1100;  // of the time axis
constexpr double kRow = 26;
constexpr double kBox = 20;

struct Paint {
  const char* color;
  const char* dark;  // of odd chunks and the second direction
  const char* name;
};

// Colours that colour-blind readers tell apart (Okabe and Ito), lighter and darker.
constexpr std::array<Paint, 6> kPaints = {{{"#8ecae6", "#3f8fc0", "forward"},
                                           {"#7bcfa9", "#2f9e77", "backward"},
                                           {"#f5dd72", "#d9b31c", "weight gradient"},
                                           {"#d7a9d1", "#b270a8", "output layer"},
                                           {"#cfcfcf", "#a5a5a5", "recompute"},
                                           {"#f2a65a", "#d5752a", "optimizer"}}};

std::size_t paint_of(const Pass& pass, Role role) {
  if (role == Role::Output || role == Role::Input) {
    return 3;
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

class Picture {
 public:
  Picture(const PipelineOrder& order, const PipelineResult& result, double time_divisor)
      : order_(order), result_(result), inputs_(order), divisor_(time_divisor) {
    scale_ = kWidth / static_cast<double>(std::max<std::int64_t>(1, result.makespan.ps));
  }

  std::string draw(const std::string& title) {
    const double height = kTop + kRow * static_cast<double>(result_.spans.size()) + 34;
    text_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} "
        "{1}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        "<text x=\"{2}\" y=\"18\" font-size=\"14\">{3}</text>\n",
        kLeft + kWidth + 20, height, kLeft, title);
    for (std::size_t device = 0; device < result_.spans.size(); ++device) {
      add_row(device);
    }
    add_legend();
    add_axis(kTop + kRow * static_cast<double>(result_.spans.size()));
    return text_ + "</svg>\n";
  }

 private:
  void add_row(std::size_t device) {
    const double y = kTop + kRow * static_cast<double>(device);
    text_ += fmt::format("<text x=\"8\" y=\"{:.1f}\">stage {}</text>\n", y + 14, device);
    text_ +=
        fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"#f4f4f4\"/>\n",
                    kLeft, y, kWidth, kBox);
    for (const PassSpan& span : result_.spans[device]) {
      add_box(span, device, y);
    }
  }

  void add_box(const PassSpan& span, std::size_t device, double y) {
    const std::size_t stage = span.pass.virtual_stage;
    const double x = kLeft + static_cast<double>(span.start.ps) * scale_;
    const double width = static_cast<double>((span.end - span.start).ps) * scale_;
    const std::size_t paint = paint_of(span.pass, inputs_.role(stage));
    used_[paint] = true;
    const bool first = std::find(order_.device_of.begin(), order_.device_of.end(), device) ==
                       order_.device_of.begin() + static_cast<std::ptrdiff_t>(stage);
    text_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\" "
        "stroke=\"{}\" stroke-width=\"0.5\"/>\n",
        x, y, width, kBox, first ? kPaints[paint].color : kPaints[paint].dark,
        span.pass.joined ? "none" : "#555");
    const auto unit = static_cast<int>(span.pass.micro_batch) + inputs_.first_unit(stage);
    const std::string label = std::to_string(unit);
    constexpr double kDigit = 7;
    if (width >= kDigit * static_cast<double>(label.size())) {
      text_ += fmt::format("<text x=\"{:.2f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                           x + width / 2, y + 14, label);
    }
  }

  void add_legend() {
    double x = kLeft;
    for (std::size_t paint = 0; paint < kPaints.size(); ++paint) {
      if (!used_[paint]) {
        continue;
      }
      text_ += fmt::format(
          "<rect x=\"{0}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{1}\"/>"
          "<rect x=\"{2}\" y=\"30\" width=\"12\" height=\"12\" fill=\"{3}\"/>"
          "<text x=\"{4}\" y=\"40\">{5}</text>\n",
          x, kPaints[paint].color, x + 12, kPaints[paint].dark, x + 30, kPaints[paint].name);
      x += 140;
    }
  }

  void add_axis(double y) {
    const double end = to_seconds(result_.makespan).value() / divisor_;
    text_ += fmt::format("<text x=\"{}\" y=\"{:.1f}\">0</text>\n", kLeft, y + 14);
    text_ += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{:.6g} s</text>\n",
                         kLeft + kWidth, y + 14, end);
  }

  const PipelineOrder& order_;
  const PipelineResult& result_;
  PassInputs inputs_;
  double divisor_;
  double scale_ = 1;
  std::array<bool, kPaints.size()> used_{};
  std::string text_;
};

}  // namespace

std::string schedule_svg(const PipelineOrder& order, const PipelineResult& result,
                         const std::string& title, double time_divisor) {
  ORRERY_CHECK(result.spans.size() == order.passes.size(), "evaluate with record_spans");
  return Picture(order, result, time_divisor).draw(title);
}

}  // namespace orrery::sim
