// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/axis.hpp"
#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "base/text.hpp"
#include "studies/sweeps/sweep.hpp"
#include "studies/sweeps/value_labels.hpp"

namespace orrery::studies {
namespace {

constexpr double kLeft = 90;
constexpr double kTop = 72;
constexpr double kPlotWidth = 520;
constexpr double kPlotHeight = 320;
constexpr double kGap = 80;  // between the two plots, for labels
constexpr double kLegendLine = 18;
constexpr double kWidth = kLeft + kPlotWidth + 40;
constexpr std::size_t kMostLabels = 14;      // beside an axis
constexpr std::size_t kMostCharacters = 24;  // of a label below an axis
constexpr double kCellOpacity = 0.55;        // of a map, under numbers; the legend has it, too
constexpr double kCharacter = 6.4;           // width of a character of 11 pixels
constexpr double kOutlined = 15;       // side of a cell that keeps its colour beside an outline
constexpr double kTickSpacing = 0.08;  // of a logarithmic axis

// A layout without its data-parallel degree, which follows the size of the cluster.
std::string strategy_of(const std::string& layout) {
  const std::size_t begin = layout.find(", dp ");
  const std::size_t end = begin == std::string::npos ? begin : layout.find(',', begin + 1);
  return begin == std::string::npos
             ? layout
             : layout.substr(0, begin) + (end == std::string::npos ? "" : layout.substr(end));
}

// Strategies by how often they win; the last colour stands for all others.
class Layouts {
 public:
  explicit Layouts(const std::vector<SweepPoint>& points) {
    std::map<std::string, int> counts;
    for (const SweepPoint& point : points) {
      if (point.state == PointState::Found) {
        ++counts[strategy_of(point.layout)];
      }
    }
    names_.assign(counts.begin(), counts.end());
    std::stable_sort(names_.begin(), names_.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  std::size_t size() const { return std::min(names_.size(), kPictureColours.size()); }
  std::string label(std::size_t index) const {
    const bool rest = index + 1 == kPictureColours.size() && names_.size() > size();
    return rest ? fmt::format("{} other strategies", names_.size() - size() + 1)
                : names_[index].first;
  }
  std::string_view colour(const std::string& layout) const {
    for (std::size_t i = 0; i + 1 < size(); ++i) {
      if (names_[i].first == strategy_of(layout)) {
        return kPictureColours[i];
      }
    }
    return kPictureColours[size() - 1];
  }

 private:
  std::vector<std::pair<std::string, int>> names_;
};

struct Limits {
  double low = 0;
  double high = 0;
  bool empty = true;
  void add(double value) {
    low = empty ? value : std::min(low, value);
    high = empty ? value : std::max(high, value);
    empty = false;
  }
  // Logarithmic place between the ends, with a little room at both.
  double place(double value) const {
    const double span = high > low ? std::log(high / low) : 1;
    return high > low ? kRoom + (1 - 2 * kRoom) * std::log(value / low) / span : 0.5;
  }
  double at(double place) const {
    return high > low ? low * std::pow(high / low, (place - kRoom) / (1 - 2 * kRoom)) : low;
  }
  std::vector<double> ticks() const {
    return empty ? std::vector<double>{} : logarithmic_ticks(at(0), at(1), kTickSpacing);
  }

 private:
  static constexpr double kRoom = 0.04;
};

// Lines of XML text.
std::string hover(const Sweep& sweep, std::size_t index, const SweepPoint& point) {
  std::string text;
  for (std::size_t i = 0; i < sweep.fields.size(); ++i) {
    text += xml_text(fmt::format("{} {}", sweep.fields[i], sweep.points[index][i])) + "\n";
  }
  if (point.state != PointState::Found) {
    return text + xml_text(point.message);
  }
  return text + fmt::format("{} tokens/s, {}\n{}", format_count(point.tokens_per_s),
                            format_duration(Seconds(point.iteration_time_s)),
                            xml_text(point.layout));
}

std::string label_of(const SweepPoint& point) {
  switch (point.state) {
    case PointState::Found:
      return format_count(point.tokens_per_s);
    case PointState::Infeasible:
      return "none fits";
    case PointState::Failed:
      return "failed";
    case PointState::Pending:
      break;
  }
  return "not searched";
}

// Both plots and the legend, top down.
class Picture {
 public:
  Picture(const Sweep& sweep, const std::vector<SweepPoint>& points)
      : sweep_(sweep), points_(points), layouts_(points) {
    for (const SweepPoint& point : points) {
      if (point.state == PointState::Found) {
        rate_.add(point.tokens_per_s);
      }
    }
  }

  std::string svg() {
    text(kLeft, 22, "start", printable(sweep_.name, 60), " font-size=\"15\" font-weight=\"bold\"");
    text(kLeft, 42, "start", printable(subject(), 90), " fill=\"#555\"");
    text(kLeft, 60, "start",
         sweep_.fields.size() == 1
             ? "colours: strategy of the fastest plan; x: no plan"
             : "colours: strategy of the fastest plan; numbers: tokens/s; light grey: no plan",
         " fill=\"#555\"");
    bottom_ = kTop;
    if (sweep_.fields.size() == 1) {
      line();
    } else {
      map();
    }
    edge();
    legend();
    return svg_document(kWidth, bottom_ + 14, body_);
  }

 private:
  void text(double x, double y, std::string_view anchor, std::string_view content,
            std::string_view style = "") {
    body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                         anchor, style, xml_text(content));
  }

  // What the points share, as far as the document says it: "llama3-8b on hgx-h100:1, batch 64".
  std::string subject() const {
    std::string said;
    for (const auto& [member, before] :
         {std::pair("network", ""), std::pair("cluster", "on "), std::pair("batch", "batch "),
          std::pair("sequence", "sequence ")}) {
      const Json* value = sweep_.document.find(member);
      const bool swept =
          std::find(sweep_.fields.begin(), sweep_.fields.end(), member) != sweep_.fields.end();
      if (value != nullptr && !swept && (value->is_string() || value->is_integer())) {
        said += said.empty() ? "" : *before == 'o' ? " " : ", ";
        said += before + (value->is_string() ? value->as_string() : value->dump());
      }
    }
    return said;
  }

  void frame(double top, const std::string& below, const std::string& beside) {
    body_ += fmt::format(
        "<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
        kLeft, top, kPlotWidth, kPlotHeight);
    text(kLeft + kPlotWidth / 2, top + kPlotHeight + 40, "middle", below);
    text(16, top + kPlotHeight / 2, "middle", beside,
         fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", top + kPlotHeight / 2));
  }

  void dot(double x, double y, std::size_t index, double radius) {
    const SweepPoint& point = points_[index];
    body_ += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}</title></circle>\n", x,
        y, radius, layouts_.colour(point.layout), hover(sweep_, index, point));
  }

  double rate_y(double top, double rate) const {
    return top + kPlotHeight * (1 - rate_.place(rate));
  }

  void rate_labels(double top) {
    for (const double rate : rate_.ticks()) {
      body_ += fmt::format("<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/>\n", kLeft,
                           rate_y(top, rate), kPlotWidth);
      text(kLeft - 6, rate_y(top, rate) + 4, "end", format_count(rate), " font-size=\"10\"");
    }
  }

  // One field: throughput over its values in their order.
  void line() {
    const double top = bottom_;
    const std::vector<std::string> values = values_of(0);
    const double step = kPlotWidth / static_cast<double>(values.size());
    const auto x = [&](std::size_t i) { return kLeft + (static_cast<double>(i) + 0.5) * step; };
    frame(top, sweep_.fields[0], "tokens/s");
    rate_labels(top);
    std::string before;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t index = first_point_with(values[i]);
      const SweepPoint& point = points_[index];
      if (point.state != PointState::Found) {
        text(x(i), top + kPlotHeight - 6, "middle", "x", " fill=\"#a00\"");
        continue;
      }
      if (!before.empty() && strategy_of(point.layout) != before) {
        body_ += fmt::format(
            "<path d=\"M{:.1f} {:.1f}v{}\" stroke=\"#bbb\" stroke-dasharray=\"3 3\"/>\n",
            x(i) - step / 2, top, kPlotHeight);
      }
      before = strategy_of(point.layout);
      dot(x(i), rate_y(top, point.tokens_per_s), index, 4.5);
    }
    axis_labels(values, top + kPlotHeight + 16, x);
    bottom_ = top + kPlotHeight + kGap;
  }

  // Points of equal values have equal results.
  std::size_t first_point_with(const std::string& value) const {
    const auto found =
        std::find_if(sweep_.points.begin(), sweep_.points.end(),
                     [&](const std::vector<std::string>& point) { return point[0] == value; });
    return static_cast<std::size_t>(found - sweep_.points.begin());
  }

  // Two fields or more: a cell for each pair of values of the first two. Of several points in one
  // cell the fastest is shown.
  void map() {
    const std::vector<std::string> columns = values_of(0);
    const std::vector<std::string> rows = values_of(1);
    const double top = bottom_;
    const double width = kPlotWidth / static_cast<double>(columns.size());
    const double height = kPlotHeight / static_cast<double>(rows.size());
    for (const auto& [cell, index] : best_by_cell()) {
      const double x = kLeft + width * static_cast<double>(cell.first);
      const double y = top + kPlotHeight - height * static_cast<double>(cell.second + 1);
      const SweepPoint& point = points_[index];
      const bool found = point.state == PointState::Found;
      body_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
          "fill-opacity=\"{}\"{}><title>{}</title></rect>\n",
          x, y, width, height, found ? layouts_.colour(point.layout) : "#e8e8e8",
          found ? kCellOpacity : 1, std::min(width, height) > kOutlined ? " stroke=\"#fff\"" : "",
          hover(sweep_, index, point));
      const std::string label = label_of(point);
      if (height >= 13 && width >= kCharacter * static_cast<double>(label.size())) {
        text(x + width / 2, y + height / 2 + 4, "middle", label, " font-size=\"11\"");
      }
    }
    frame(top, sweep_.fields[0], sweep_.fields[1]);
    axis_labels(columns, top + kPlotHeight + 16,
                [&](std::size_t i) { return kLeft + width * (static_cast<double>(i) + 0.5); });
    const std::size_t stride = rows.size() / kMostLabels + 1;
    for (std::size_t i = 0; i < rows.size(); i += stride) {
      text(kLeft - 6, top + kPlotHeight - height * (static_cast<double>(i) + 0.5) + 4, "end",
           printable(short_label(rows[i]), 12), " font-size=\"10\"");
    }
    bottom_ = top + kPlotHeight + kGap;
  }

  // Throughput against cost, with the points that no other beats in both joined.
  void edge() {
    const std::vector<double> costs = costs_of(points_);
    Limits cost;
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (points_[i].state == PointState::Found) {
        cost.add(costs[i]);
      }
    }
    if (cost.empty || cost.low == cost.high) {
      return;
    }
    const double top = bottom_;
    const auto x = [&](double value) { return kLeft + kPlotWidth * cost.place(value); };
    const bool priced = all_priced(points_);
    frame(top, priced ? "USD per hour" : "GPUs", "tokens/s");
    rate_labels(top);
    text(kLeft, top - 8, "start", "frontier", " font-weight=\"bold\"");
    for (const double value : cost.ticks()) {
      body_ += fmt::format("<path d=\"M{:.1f} {:.1f}v{}\" stroke=\"#ddd\"/>\n", x(value), top,
                           kPlotHeight);
      text(x(value), top + kPlotHeight + 16, "middle", format_count(value), " font-size=\"10\"");
    }
    std::string path;
    for (const std::size_t i : frontier(points_)) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(costs[i]),
                          rate_y(top, points_[i].tokens_per_s));
    }
    body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#888\"/>\n", path);
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (points_[i].state == PointState::Found) {
        dot(x(costs[i]), rate_y(top, points_[i].tokens_per_s), i, 3.5);
      }
    }
    bottom_ = top + kPlotHeight + kGap;
  }

  void legend() {
    bottom_ -= kGap / 2 - 22;
    for (std::size_t i = 0; i < layouts_.size(); ++i) {
      body_ += fmt::format(
          "<rect x=\"{}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\" "
          "fill-opacity=\"{}\"/>\n",
          kLeft, bottom_, kPictureColours[i], sweep_.fields.size() > 1 ? kCellOpacity : 1);
      for (const std::string& line : text_lines(layouts_.label(i), kPlotWidth, 12)) {
        text(kLeft + 20, bottom_ + 10.5, "start", line);
        bottom_ += kLegendLine;
      }
    }
  }

  // The values of a field in the order of their first point, those of a random design by size.
  std::vector<std::string> values_of(std::size_t field) const {
    std::vector<std::string> values;
    for (const std::vector<std::string>& point : sweep_.points) {
      if (std::find(values.begin(), values.end(), point[field]) == values.end()) {
        values.push_back(point[field]);
      }
    }
    if (sweep_.document.find("random") != nullptr) {
      sort_by_number(values);
    }
    return values;
  }

  std::map<std::pair<std::size_t, std::size_t>, std::size_t> best_by_cell() const {
    std::map<std::string, std::size_t> places[2];
    for (std::size_t field = 0; field < 2; ++field) {
      for (const std::string& value : values_of(field)) {
        places[field].emplace(value, places[field].size());
      }
    }
    std::map<std::pair<std::size_t, std::size_t>, std::size_t> best;
    for (std::size_t i = 0; i < points_.size(); ++i) {
      const std::pair cell(places[0].at(sweep_.points[i][0]), places[1].at(sweep_.points[i][1]));
      const auto [entry, added] = best.try_emplace(cell, i);
      if (!added && points_[i].tokens_per_s > points_[entry->second].tokens_per_s) {
        entry->second = i;
      }
    }
    return best;
  }

  template <typename Place>
  void axis_labels(const std::vector<std::string>& values, double y, const Place& x) {
    const double width = kPlotWidth / static_cast<double>(values.size());
    std::size_t longest = 1;
    for (const std::string& value : values) {
      longest = std::max(longest, std::min(short_label(value).size(), kMostCharacters));
    }
    const auto stride =
        static_cast<std::size_t>(kCharacter * static_cast<double>(longest + 1) / width) + 1;
    const auto room = static_cast<int>(width * static_cast<double>(stride) / kCharacter);
    for (std::size_t i = 0; i < values.size(); i += stride) {
      text(x(i), y, "middle", printable(short_label(values[i]), std::max(room, 3)),
           " font-size=\"10\"");
    }
  }

  const Sweep& sweep_;
  const std::vector<SweepPoint>& points_;
  Layouts layouts_;
  Limits rate_;
  std::string body_;
  double bottom_ = 0;
};

}  // namespace

std::string sweep_svg(const Sweep& sweep, const std::vector<SweepPoint>& points) {
  return Picture(sweep, points).svg();
}

}  // namespace orrery::studies
