// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/axis.hpp"
#include "base/quantile.hpp"
#include "base/quantity_text.hpp"
#include "base/svg.hpp"

namespace orrery::calibrate {

namespace {

constexpr double kPlotWidth = 640;
constexpr double kPlotHeight = 420;
constexpr double kLeft = 80;
constexpr double kTop = 64;
constexpr double kLegendLine = 19;
constexpr double kWidth = kLeft + kPlotWidth + 30;
constexpr double kTickSpacing = 0.09;  // of the axis
constexpr double kLeastRange = 1.3;    // ratio at the upper edge; its inverse at the lower
constexpr double kMostRange = 3;
constexpr double kBand = 0.1;
constexpr std::size_t kFew = 200;  // points of a class whose dots are larger
constexpr std::array<std::string_view, 12> kColors = {"#4269d0", "#efb118", "#ff725c", "#6cc5b0",
                                                      "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
                                                      "#9c6b4e", "#9498a0", "#222222", "#b8860b"};

double ratio(const LeftOut& point) { return point.predicted / point.measured; }

// Both axes: time across, ratio up.
class Axes {
 public:
  explicit Axes(std::span<const LeftOut> points) {
    for (const LeftOut& point : points) {
      low_ = std::min(low_, point.measured);
      high_ = std::max(high_, point.measured);
      range_ = std::max({range_, ratio(point), 1 / ratio(point)});
    }
    low_ /= 1.2;
    high_ *= 1.2;
    range_ = std::min(range_ * 1.05, kMostRange);
  }
  double low() const { return low_; }
  double high() const { return high_; }
  double range() const { return range_; }
  double x(double seconds) const {
    return kLeft + kPlotWidth * std::log(seconds / low_) / std::log(high_ / low_);
  }
  double y(double value) const {
    const double kept = std::clamp(value, 1 / range_, range_);
    return kTop + kPlotHeight * (0.5 - 0.5 * std::log(kept) / std::log(range_));
  }

 private:
  double low_ = 1e300;
  double high_ = 0;
  double range_ = kLeastRange;
};

std::string frame(const Axes& axes) {
  std::string svg =
      fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"#e8edf3\"/>\n",
                  kLeft, axes.y(1 + kBand), kPlotWidth, axes.y(1 - kBand) - axes.y(1 + kBand));
  for (const double at : logarithmic_ticks(axes.low(), axes.high(), kTickSpacing)) {
    svg += fmt::format(
        "<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#ddd\"/>\n"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        axes.x(at), kTop, kTop + kPlotHeight, kTop + kPlotHeight + 18,
        format_duration(Seconds(at)));
  }
  for (const double at : {0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4, 1.6, 2.0, 2.5}) {
    if (at < 1 / axes.range() || at > axes.range()) {
      continue;
    }
    svg += fmt::format(
        "<path d=\"M{0} {1:.1f}H{2}\" stroke=\"{3}\"/>\n"
        "<text x=\"{4}\" y=\"{5:.1f}\" text-anchor=\"end\">{6}</text>\n",
        kLeft, axes.y(at), kLeft + kPlotWidth, at == 1 ? "#888" : "#ddd", kLeft - 8, axes.y(at) + 4,
        at == 1 ? std::string("exact") : fmt::format("{:+.0f} %", 100 * (at - 1)));
  }
  return svg + fmt::format(
                   "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" "
                   "stroke=\"#888\"/>\n",
                   kLeft, kTop, kPlotWidth, kPlotHeight);
}

double median_error(const std::vector<const LeftOut*>& points) {
  std::vector<double> errors;
  for (const LeftOut* point : points) {
    errors.push_back(std::abs(ratio(*point) - 1));
  }
  std::sort(errors.begin(), errors.end());
  return nearest_quantile(errors, 0.5);
}

struct Class {
  std::string name;
  std::vector<const LeftOut*> points;
  std::string_view color;
};

// In the order of their names, which is that of the legend and of the colours.
std::vector<Class> classes_of(std::span<const LeftOut> points) {
  std::map<std::string, std::vector<const LeftOut*>> by_name;
  for (const LeftOut& point : points) {
    by_name[point.kernel].push_back(&point);
  }
  std::vector<Class> classes;
  for (auto& [name, members] : by_name) {
    classes.push_back({name, std::move(members), kColors[classes.size() % kColors.size()]});
  }
  return classes;
}

std::string dots(const Axes& axes, const Class& kernels) {
  std::set<std::pair<long, long>> drawn;
  std::string svg = fmt::format("<g fill=\"{}\" fill-opacity=\"{}\">\n", kernels.color,
                                kernels.points.size() > kFew ? 0.5 : 0.9);
  for (const LeftOut* point : kernels.points) {
    const std::pair at = {std::lround(axes.x(point->measured)), std::lround(axes.y(ratio(*point)))};
    if (drawn.insert(at).second) {
      svg += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n", at.first, at.second,
                         kernels.points.size() > kFew ? 1.5 : 3);
    }
  }
  return svg + "</g>\n";
}

}  // namespace

std::string fit_plot(std::span<const LeftOut> points, const std::string& title) {
  std::string svg = fmt::format(
      "<text x=\"{0}\" y=\"24\" font-size=\"15\" font-weight=\"bold\">{1}</text>\n"
      "<text x=\"{0}\" y=\"46\" fill=\"#555\">{2}</text>\n",
      kLeft, xml_text(title),
      points.empty() ? "no points were tested by a fit without them"
                     : "each point predicted by a fit without it; shaded: within 10 %");
  if (points.empty()) {
    return svg_document(kWidth, kTop, svg);
  }
  const Axes axes(points);
  const std::vector<Class> classes = classes_of(points);
  svg += frame(axes);
  const double middle = kTop + kPlotHeight / 2;
  svg += fmt::format(
      "<text x=\"{0}\" y=\"{1}\" text-anchor=\"middle\">measured time</text>\n"
      "<text x=\"16\" y=\"{2}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {2})\">error of "
      "the "
      "prediction</text>\n",
      kLeft + kPlotWidth / 2, kTop + kPlotHeight + 42, middle);
  std::vector<const Class*> largest_first;
  double y = kTop + kPlotHeight + 68;
  for (const Class& kernels : classes) {
    largest_first.push_back(&kernels);
    svg += fmt::format(
        "<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}: median error {:.1f} %, {} point{}</text>\n",
        kLeft + 5, y - 4, kernels.color, kLeft + 18, y, xml_text(kernels.name),
        100 * median_error(kernels.points), kernels.points.size(),
        kernels.points.size() == 1 ? "" : "s");
    y += kLegendLine;
  }
  std::stable_sort(largest_first.begin(), largest_first.end(), [](const Class* a, const Class* b) {
    return a->points.size() > b->points.size();
  });
  for (const Class* kernels : largest_first) {
    svg += dots(axes, *kernels);
  }
  return svg_document(kWidth, y, svg);
}

}  // namespace orrery::calibrate
