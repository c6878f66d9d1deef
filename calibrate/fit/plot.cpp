// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit/plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "base/svg.hpp"

namespace orrery::calibrate {

namespace {

constexpr double kSide = 560;
constexpr double kLeft = 80;
constexpr double kTop = 50;
constexpr double kLegend = 330;
constexpr std::array<std::string_view, 12> kColors = {"#4269d0", "#efb118", "#ff725c", "#6cc5b0",
                                                      "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5",
                                                      "#9c6b4e", "#9498a0", "#222222", "#b8860b"};

// "1 us", "10 ms"
std::string time_label(int exponent) {
  const int group = static_cast<int>(std::floor(exponent / 3.0));
  constexpr std::array<std::string_view, 5> kUnits = {"ns", "us", "ms", "s", "ks"};
  const auto unit = static_cast<std::size_t>(std::clamp(group + 3, 0, 4));
  return fmt::format("{} {}", std::lround(std::pow(10, exponent - 3 * group)), kUnits[unit]);
}

class Axes {
 public:
  explicit Axes(std::span<const LeftOut> points) {
    double low = 1e300;
    double high = 0;
    for (const LeftOut& point : points) {
      low = std::min({low, point.measured, point.predicted});
      high = std::max({high, point.measured, point.predicted});
    }
    first_ = points.empty() ? -6 : static_cast<int>(std::floor(std::log10(low)));
    last_ =
        points.empty() ? 0 : std::max(first_ + 1, static_cast<int>(std::ceil(std::log10(high))));
  }
  int first() const { return first_; }
  int last() const { return last_; }
  double x(double seconds) const { return kLeft + kSide * share(seconds); }
  double y(double seconds) const { return kTop + kSide * (1 - share(seconds)); }

 private:
  double share(double seconds) const {
    return std::clamp((std::log10(seconds) - first_) / (last_ - first_), 0.0, 1.0);
  }
  int first_;
  int last_;
};

std::string frame(const Axes& axes) {
  std::string svg;
  for (int exponent = axes.first(); exponent <= axes.last(); ++exponent) {
    const double at = std::pow(10, exponent);
    svg += fmt::format(
        "<path d=\"M{:.1f} {}V{}M{} {:.1f}H{}\" stroke=\"#ddd\"/>\n"
        "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
        "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        axes.x(at), kTop, kTop + kSide, kLeft, axes.y(at), kLeft + kSide, axes.x(at),
        kTop + kSide + 18, time_label(exponent), kLeft - 8, axes.y(at) + 4, time_label(exponent));
  }
  const double low = std::pow(10, axes.first());
  const double high = std::pow(10, axes.last());
  for (const double factor : {1.0, 1.1, 1 / 1.1}) {
    svg += fmt::format(
        "<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" stroke=\"#888\" stroke-dasharray=\"{}\"/>\n",
        axes.x(low), axes.y(low * factor), axes.x(high), axes.y(high * factor),
        factor == 1 ? "none" : "4 4");
  }
  return svg;
}

double median_error(const std::vector<const LeftOut*>& points) {
  std::vector<double> errors;
  for (const LeftOut* point : points) {
    errors.push_back(std::abs(point->predicted / point->measured - 1));
  }
  std::sort(errors.begin(), errors.end());
  return errors[errors.size() / 2];
}

}  // namespace

std::string fit_plot(std::span<const LeftOut> points, const std::string& title) {
  const Axes axes(points);
  const double width = kLeft + kSide + kLegend;
  const double height = kTop + kSide + 60;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"{2}\" y=\"28\" font-size=\"15\">{3}</text>\n",
      width, height, kLeft, xml_text(title));
  svg += frame(axes);
  svg += fmt::format(
      "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">measured</text>\n"
      "<text transform=\"translate(18 {}) rotate(-90)\" text-anchor=\"middle\">predicted while "
      "left out of the fit</text>\n",
      kLeft + kSide / 2, kTop + kSide + 42, kTop + kSide / 2);
  std::map<std::string, std::vector<const LeftOut*>> classes;
  for (const LeftOut& point : points) {
    classes[point.kernel].push_back(&point);
  }
  std::size_t index = 0;
  for (const auto& [name, members] : classes) {
    const std::string_view color = kColors[index % kColors.size()];
    std::set<std::pair<long, long>> drawn;
    svg += fmt::format("<g fill=\"{}\" fill-opacity=\"0.6\">\n", color);
    for (const LeftOut* point : members) {
      const std::pair at = {std::lround(axes.x(point->measured)),
                            std::lround(axes.y(point->predicted))};
      if (drawn.insert(at).second) {
        svg += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"1.6\"/>\n", at.first, at.second);
      }
    }
    svg += "</g>\n";
    const double y = kTop + 16 + 20 * static_cast<double>(index);
    svg += fmt::format(
        "<circle cx=\"{}\" cy=\"{}\" r=\"5\" fill=\"{}\"/>"
        "<text x=\"{}\" y=\"{}\">{}: {:.1f} % of {}</text>\n",
        kLeft + kSide + 20, y - 4, color, kLeft + kSide + 32, y, xml_text(name),
        100 * median_error(members), members.size());
    ++index;
  }
  return svg + "</svg>\n";
}

}  // namespace orrery::calibrate
