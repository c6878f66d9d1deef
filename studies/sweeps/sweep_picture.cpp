// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/axis.hpp"
#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "base/text.hpp"
#include "studies/label_places.hpp"
#include "studies/picture_scale.hpp"
#include "studies/sweeps/picture_panels.hpp"
#include "studies/sweeps/picture_texts.hpp"
#include "studies/sweeps/strategy_colours.hpp"
#include "studies/sweeps/sweep.hpp"

namespace orrery::studies {
namespace {

constexpr double kLeft = 90;        // of the plots, or more where labels need it
constexpr double kLabelsFrom = 26;  // beyond the name of the axis
constexpr double kLabelGap = 6;     // between a label and its axis
constexpr double kFieldBelow = 40;  // from a plot to the name of its axis
constexpr double kSlope = 0.7071;   // of slanted labels, both ways
constexpr double kTitleSize = 12;
constexpr double kTitleLine = 18;
constexpr double kPlotWidth = 520;
constexpr double kPlotHeight = 320;
constexpr double kPanelRow = 26;     // height of a row of one of several panels
constexpr double kLeastPanel = 160;  // height
constexpr double kGap = 80;          // between two plots, for labels
constexpr double kLegendLine = 18;
constexpr double kCellOpacity = 0.55;  // of a map, under numbers; the legend has it, too
constexpr double kCellCharacter = 6.4;
constexpr double kOutlined = 15;       // side of a cell that keeps its colour beside an outline
constexpr double kTickSpacing = 0.08;  // of a logarithmic axis
constexpr double kPointRadius = 4.5;
constexpr std::size_t kMostNumbered = 400;  // points beside which their numbers stand
constexpr double kNumberReach = 20;         // pixels between a point and its number
constexpr double kNumberSize = 10;
constexpr const char* kNoPlan = "#e8e8e8";

// Plots and the legend, top down.
class Picture {
 public:
  Picture(const Sweep& sweep, const std::vector<SweepPoint>& points)
      : sweep_(sweep), points_(points), costs_(costs_of(points)), panels_(sweep, points) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].state == PointState::Found) {
        rate_.add(points[i].tokens_per_s);
        cost_.add(costs_[i]);
      }
    }
    std::vector<std::size_t> drawn = panels_.all_points();
    if (has_edge()) {  // which draws all
      drawn.resize(points.size());
      std::iota(drawn.begin(), drawn.end(), 0U);
    }
    colours_.emplace(points, drawn);
    make_labels();
  }

  std::string svg() {
    draw();
    if (!has_numbers_) {  // nothing had room for those that the heading speaks of
      says_numbers_ = false;
      body_.clear();
      draw();
    }
    return svg_document(left_ + kPlotWidth + 40, bottom_ + 14, body_);
  }

 private:
  // Those below the plots and beside them, and the room that they take.
  void make_labels() {
    across_ = panels_.axis(0).labels_across(kPlotWidth);
    rates_ = rate_.ticks(kTickSpacing);
    rate_texts_ = tick_labels(rates_, format_count);
    std::vector<std::string> beside = rate_texts_;
    if (!is_line()) {
      for (const AxisLabel& label : panels_.axis(1).labels_up(map_height())) {
        beside.push_back(label.text);
      }
    }
    for (const std::string& label : beside) {
      left_ = std::max(left_, kLabelsFrom + text_width(label, kAxisFont) + kLabelGap);
    }
    for (const AxisLabel& label : across_.labels) {
      const double reach = across_.slanted ? kSlope * text_width(label.text, kAxisFont) : 0;
      left_ = std::max(left_, reach + kLabelGap - kPlotWidth * label.place);
      field_below_ = std::max(field_below_, reach + 30);
    }
  }

  void draw() {
    text(left_, 22, "start", printable(sweep_.name, 60), " font-size=\"15\" font-weight=\"bold\"");
    bottom_ = 42;
    for (const std::string& paragraph : {printable(subject_of(sweep_), 90), explanation()}) {
      for (const std::string& line : text_lines(paragraph, kPlotWidth + 40, kTitleSize)) {
        text(left_, bottom_, "start", line, " fill=\"#555\"");
        bottom_ += kTitleLine;
      }
    }
    bottom_ -= 6;
    if (is_line()) {
      line();
    }
    for (std::size_t panel = 0; !is_line() && panel < panels_.size(); ++panel) {
      map(panel);
    }
    edge();
    legend();
  }

  bool is_line() const { return sweep_.fields.size() == 1; }
  bool has_edge() const { return !cost_.is_point(); }

  void text(double x, double y, std::string_view anchor, std::string_view content,
            std::string_view style = "") {
    body_ += svg_text(x, y, anchor, content, style);
  }

  // What the picture shows of its points.
  std::string explanation() const {
    if (is_line()) {
      return "colours: strategy of the fastest plan; x: no plan";
    }
    const std::string remark = panels_.remark();
    return std::string("colours: strategy of the fastest plan; ") +
           (says_numbers_ ? "numbers: tokens/s; " : "") + "light grey: no plan" +
           (remark.empty() ? remark : "; " + remark);
  }

  // The names of its axes stand `under` it and beside it.
  void frame(double top, double height, double under, const std::string& below,
             const std::string& beside) {
    body_ += fmt::format(
        "<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
        left_, top, kPlotWidth, height);
    text(left_ + kPlotWidth / 2, top + height + under, "middle", below);
    text(16, top + height / 2, "middle", beside,
         fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", top + height / 2));
  }

  void dot(double x, double y, std::size_t index, double radius) {
    const SweepPoint& point = points_[index];
    const bool found = point.state == PointState::Found;
    body_ += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"{}><title>{}</title></circle>\n",
        x, y, radius, found ? colours_->colour(point.layout) : kNoPlan,
        found ? "" : " stroke=\"#999\"", hover_text(sweep_, index, point));
  }

  double rate_y(double top, double rate) const {
    return top + kPlotHeight * (1 - rate_.place(rate));
  }

  void rate_labels(double top) {
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      const double y = rate_y(top, rates_[i]);
      body_ += fmt::format("<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/>\n", left_, y, kPlotWidth);
      text(left_ - kLabelGap, y + 4, "end", rate_texts_[i], " font-size=\"10\"");
    }
  }

  void field_labels(double bottom) {
    for (const AxisLabel& label : across_.labels) {
      const double x = left_ + kPlotWidth * label.place;
      if (across_.slanted) {
        text(x + 4, bottom + 12, "end", label.text,
             fmt::format(" font-size=\"10\" transform=\"rotate(-45 {:.1f} {:.1f})\"", x + 4,
                         bottom + 12));
      } else {
        text(x, bottom + 16, "middle", label.text, " font-size=\"10\"");
      }
    }
  }

  // One field: throughput over its values.
  void line() {
    const double top = bottom_;
    frame(top, kPlotHeight, field_below_, sweep_.fields[0], "tokens/s");
    rate_labels(top);
    std::string before;
    double before_x = 0;
    for (const std::string& value : panels_.axis(0).values()) {
      const std::size_t index = first_point_with(value);
      const SweepPoint& point = points_[index];
      const double x = left_ + kPlotWidth * panels_.axis(0).place(value);
      if (point.state != PointState::Found) {
        text(x, top + kPlotHeight - 6, "middle", "x", " fill=\"#a00\"");
        continue;
      }
      if (!before.empty() && strategy_of(point.layout) != before) {
        body_ += fmt::format(
            "<path d=\"M{:.1f} {:.1f}v{}\" stroke=\"#bbb\" stroke-dasharray=\"3 3\"/>\n",
            (before_x + x) / 2, top, kPlotHeight);
      }
      before = strategy_of(point.layout);
      before_x = x;
      dot(x, rate_y(top, point.tokens_per_s), index, kPointRadius);
    }
    field_labels(top + kPlotHeight);
    bottom_ = top + kPlotHeight + kGap - kFieldBelow + field_below_;
  }

  // Points of equal values have equal results.
  std::size_t first_point_with(const std::string& value) const {
    const auto found =
        std::find_if(sweep_.points.begin(), sweep_.points.end(),
                     [&](const std::vector<std::string>& point) { return point[0] == value; });
    return static_cast<std::size_t>(found - sweep_.points.begin());
  }

  double map_height() const {
    const auto rows = static_cast<double>(panels_.axis(1).values().size());
    const double height =
        panels_.size() > 1 ? std::clamp(kPanelRow * rows, kLeastPanel, kPlotHeight) : kPlotHeight;
    return panels_.axis(1).has_names() ? std::max(height, kNameLine * rows) : height;
  }

  // Two fields or more: over the first two, the third in panels.
  void map(std::size_t panel) {
    const double height = map_height();
    if (panels_.size() > 1) {
      bottom_ += panel == 0 ? kTitleLine : 0;
      text(left_, bottom_ - 8, "start", panels_.title(panel), " font-weight=\"bold\"");
    }
    const double top = bottom_;
    if (panels_.has_cells()) {
      cells(panels_.points(panel), top, height);
    } else {
      scatter(panels_.points(panel), top, height);
    }
    frame(top, height, field_below_, sweep_.fields[0], sweep_.fields[1]);
    field_labels(top + height);
    for (const AxisLabel& label : panels_.axis(1).labels_up(height)) {
      text(left_ - kLabelGap, top + height * (1 - label.place) + 4, "end", label.text,
           " font-size=\"10\"");
    }
    bottom_ = top + height + kGap - kFieldBelow + field_below_;
  }

  void cells(const std::vector<std::size_t>& indices, double top, double plot_height) {
    const double width = kPlotWidth / static_cast<double>(panels_.axis(0).values().size());
    const double height = plot_height / static_cast<double>(panels_.axis(1).values().size());
    for (const std::size_t index : indices) {
      const double x = x_of(index) - width / 2;
      const double y = y_of(index, top, plot_height) - height / 2;
      const SweepPoint& point = points_[index];
      const bool found = point.state == PointState::Found;
      body_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\" "
          "fill-opacity=\"{}\"{}><title>{}</title></rect>\n",
          x, y, width, height, found ? colours_->colour(point.layout) : kNoPlan,
          found ? kCellOpacity : 1, std::min(width, height) > kOutlined ? " stroke=\"#fff\"" : "",
          hover_text(sweep_, index, point));
      const std::string label = cell_label(point);
      if (height >= 13 && width >= kCellCharacter * static_cast<double>(label.size())) {
        text(x + width / 2, y + height / 2 + 4, "middle", label, " font-size=\"11\"");
        has_numbers_ |= found;
      }
    }
  }

  // Every point where its numbers are, with its throughput beside it where there is room.
  void scatter(const std::vector<std::size_t>& indices, double top, double height) {
    LabelPlaces places({left_, top, left_ + kPlotWidth, top + height});
    for (const std::size_t index : indices) {
      const double x = x_of(index);
      const double y = y_of(index, top, height);
      dot(x, y, index, kPointRadius);
      places.keep_free({x - kPointRadius, y - kPointRadius, x + kPointRadius, y + kPointRadius});
    }
    for (const std::size_t index : indices) {
      if (points_[index].state != PointState::Found || indices.size() > kMostNumbered) {
        continue;
      }
      const double x = x_of(index);
      const double y = y_of(index, top, height);
      const std::string number = format_count(points_[index].tokens_per_s);
      if (const auto place =
              places.place(x, y, text_width(number, kNumberSize), kNumberSize, kNumberReach)) {
        has_numbers_ = true;
        body_ += label_line(x, y, *place);
        text((place->left + place->right) / 2, place->bottom - 1, "middle", number,
             " font-size=\"10\"");
      }
    }
  }

  double x_of(std::size_t index) const {
    return left_ + kPlotWidth * panels_.axis(0).place(sweep_.points[index][0]);
  }
  double y_of(std::size_t index, double top, double height) const {
    return top + height * (1 - panels_.axis(1).place(sweep_.points[index][1]));
  }

  // Throughput against cost, with the points that no other beats in both joined.
  void edge() {
    if (!has_edge()) {
      return;
    }
    const double top = bottom_;
    const auto x = [&](double value) { return left_ + kPlotWidth * cost_.place(value); };
    frame(top, kPlotHeight, kFieldBelow, all_priced(points_) ? "USD per hour" : "GPUs", "tokens/s");
    rate_labels(top);
    text(left_, top - 8, "start", "frontier", " font-weight=\"bold\"");
    const std::vector<double> costs = cost_.ticks(kTickSpacing);
    const std::vector<std::string> cost_texts = tick_labels(costs, format_count);
    for (std::size_t i = 0; i < costs.size(); ++i) {
      body_ += fmt::format("<path d=\"M{:.1f} {:.1f}v{}\" stroke=\"#ddd\"/>\n", x(costs[i]), top,
                           kPlotHeight);
      text(x(costs[i]), top + kPlotHeight + 16, "middle", cost_texts[i], " font-size=\"10\"");
    }
    std::string path;
    for (const std::size_t i : frontier(points_)) {
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x(costs_[i]),
                          rate_y(top, points_[i].tokens_per_s));
    }
    body_ += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"#888\"/>\n", path);
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (points_[i].state == PointState::Found) {
        dot(x(costs_[i]), rate_y(top, points_[i].tokens_per_s), i, 3.5);
      }
    }
    bottom_ = top + kPlotHeight + kGap;
  }

  void legend() {
    const double opacity = panels_.has_cells() ? kCellOpacity : 1;
    bottom_ -= kGap / 2 - 22;
    for (std::size_t i = 0; i < colours_->size(); ++i) {
      body_ += fmt::format(
          "<rect x=\"{}\" y=\"{:.1f}\" width=\"12\" height=\"12\" fill=\"{}\" "
          "fill-opacity=\"{}\"/>\n",
          left_, bottom_, kPictureColours[i], opacity);
      for (const std::string& line : text_lines(colours_->label(i), kPlotWidth, 12)) {
        text(left_ + 20, bottom_ + 10.5, "start", line);
        bottom_ += kLegendLine;
      }
    }
  }

  const Sweep& sweep_;
  const std::vector<SweepPoint>& points_;
  std::vector<double> costs_;
  PicturePanels panels_;
  std::optional<StrategyColours> colours_;
  PictureScale rate_;
  PictureScale cost_;
  AxisLabels across_;
  std::vector<double> rates_;  // of the axis of throughput
  std::vector<std::string> rate_texts_;
  double left_ = kLeft;
  double field_below_ = kFieldBelow;  // from a plot of fields to the name of its axis
  bool has_numbers_ = false;
  bool says_numbers_ = true;
  std::string body_;
  double bottom_ = 0;
};

}  // namespace

std::string sweep_svg(const Sweep& sweep, const std::vector<SweepPoint>& points) {
  return Picture(sweep, points).svg();
}

}  // namespace orrery::studies
