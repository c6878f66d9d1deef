// SPDX-License-Identifier: Apache-2.0
#include "studies/pareto_picture.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/axis.hpp"
#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "base/text.hpp"
#include "plan/document/plan_text.hpp"
#include "studies/label_places.hpp"
#include "studies/picture_scale.hpp"

namespace orrery::studies {
namespace {

using search::ParetoKind;
using search::ParetoPoint;

constexpr double kLeft = 90;  // or more where labels need it
constexpr double kTop = 56;
constexpr double kPlotWidth = 640;
constexpr double kPlotHeight = 320;
constexpr double kWidth = kLeft + kPlotWidth + 40;
constexpr double kLabelsFrom = 26;  // beyond the name of the axis
constexpr double kTickFont = 10;
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double kLine = 17;
constexpr double kNear = 18;            // pixels within which a tick's label would cover another
constexpr double kDot = 4;              // radius
constexpr double kInDot = 0.75 * kDot;  // labels keep off this square: they may be at its corners
constexpr double kFromFrame = 1;        // pixels between a label and the plot's frame
constexpr double kNumberFont = 11;
constexpr double kTickSpacing = 0.13;  // of the axis across, between labels
constexpr double kTickSpacingUp = 0.06;
constexpr int kMostTitle = 68;  // characters that fit beside the margin
constexpr double kListFont = 11;
constexpr std::size_t kMostListed = 40;

class Picture {
 public:
  explicit Picture(const search::ParetoFrontier& frontier) : frontier_(frontier) {
    for (const ParetoPoint& point : frontier.points) {
      prices_.push_back(price(point));
      times_.push_back(point.found.simulation.iteration_time.value());
      across_.add(prices_.back());
      up_.add(times_.back());
    }
    time_ticks_ = up_.ticks(kTickSpacingUp, time_unit());
    time_labels_ = tick_labels(
        time_ticks_, [](double time, int more) { return format_duration(Seconds(time), more); });
    for (const std::string& label : time_labels_) {
      left_ = std::max(left_, kLabelsFrom + text_width(label, kTickFont) + 6);
    }
  }

  std::string svg() {
    const plan::Plan& plan = frontier_.points.front().found.plan;
    text(left_, 22, "start",
         printable(fmt::format("{} on {} ({} x {})", plan.network.spec.name, plan.cluster.name,
                               plan.cluster.num_gpus(), plan.cluster.gpu.name),
                   kMostTitle),
         " font-size=\"15\" font-weight=\"bold\"");
    text(left_, 42, "start",
         fmt::format("batch {}, sequence {}, {}; {}", plan.batch, plan.sequence,
                     to_text(plan.precision),
                     is_proven() ? "the fastest plan for every limit, proven"
                                 : "the fastest plans found, not all proven"),
         " fill=\"#555\"");
    axes();
    steps();
    dots();
    numbers();
    const double bottom = list();
    return svg_document(left_ + kPlotWidth + 40, bottom + 12, body_);
  }

 private:
  bool is_proven() const {
    return frontier_.has_every_point() && frontier_.unproven_schedules.empty() &&
           std::all_of(frontier_.points.begin(), frontier_.points.end(),
                       [](const ParetoPoint& point) { return point.gap_fraction == 0; });
  }
  // That format_duration() takes for the shortest time: its round multiples are round in text.
  double time_unit() const {
    const double shortest = *std::min_element(times_.begin(), times_.end());
    return shortest >= 2 * kHour.value() ? kHour.value() : shortest >= 120 ? 60 : 1;
  }
  double price(const ParetoPoint& point) const {
    switch (frontier_.kind) {
      case ParetoKind::Memory:
        return point.memory.bytes().value();
      case ParetoKind::Gpus:
        return point.gpus;
      case ParetoKind::Cost:
        return point.usd_per_iteration;
    }
    return 0;
  }
  // With so many digits more than usual.
  std::string price_text(double value, int more = 0) const {
    return frontier_.kind == ParetoKind::Memory ? format_bytes(Bytes(value), more)
           : frontier_.kind == ParetoKind::Gpus ? fmt::format("{:.0f}", value)
                                                : format_number(value, 4 + more) + " USD";
  }
  // As in price_text, with what is counted.
  std::string named_price(double value) const {
    return frontier_.kind == ParetoKind::Gpus
               ? fmt::format("{:.0f} GPU{}", value, value == 1 ? "" : "s")
               : price_text(value);
  }
  double x(double value) const { return left_ + kPlotWidth * across_.place(value); }
  double y(double value) const { return kTop + kPlotHeight * (1 - up_.place(value)); }

  void text(double at_x, double at_y, std::string_view anchor, std::string_view content,
            std::string_view style = "") {
    body_ += svg_text(at_x, at_y, anchor, content, style);
  }

  void axes() {
    body_ += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n",
        left_, kTop, kPlotWidth, kPlotHeight);
    const char* below = frontier_.kind == ParetoKind::Memory ? "memory of the fullest GPU"
                        : frontier_.kind == ParetoKind::Gpus ? "GPUs"
                                                             : "price of an iteration";
    text(left_ + kPlotWidth / 2, kTop + kPlotHeight + 40, "middle", below);
    text(16, kTop + kPlotHeight / 2, "middle", "iteration time",
         fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", kTop + kPlotHeight / 2));
    for (std::size_t i = 0; i < time_ticks_.size(); ++i) {
      const double at = y(time_ticks_[i]);
      grid(left_, at, fmt::format("H{}", left_ + kPlotWidth));
      text(left_ - 6, at + 4, "end", time_labels_[i], " font-size=\"10\"");
    }
    const std::vector<double> ticks = price_ticks();
    const std::vector<std::string> labels =
        tick_labels(ticks, [this](double value, int more) { return price_text(value, more); });
    for (std::size_t i = 0; i < ticks.size(); ++i) {
      grid(x(ticks[i]), kTop, fmt::format("V{}", kTop + kPlotHeight));
      text(x(ticks[i]), kTop + kPlotHeight + 16, "middle", labels[i], " font-size=\"10\"");
    }
  }

  void grid(double from_x, double from_y, const std::string& to) {
    body_ += fmt::format("<path d=\"M{:.1f} {:.1f}{}\" stroke=\"#ddd\"/>\n", from_x, from_y, to);
  }

  std::vector<double> price_ticks() const {
    if (frontier_.kind == ParetoKind::Gpus) {
      return spaced(prices_);
    }
    return across_.ticks(kTickSpacing, frontier_.kind == ParetoKind::Memory ? kGibibyte : 1);
  }

  // Those of the falling values whose labels do not touch the one before.
  std::vector<double> spaced(const std::vector<double>& values) const {
    std::vector<double> kept;
    for (const double value : values) {
      if (kept.empty() || x(kept.back()) - x(value) >= kNear) {
        kept.push_back(value);
      }
    }
    return kept;
  }

  // From the cheapest, slowest plan on: its time holds until a faster plan is affordable.
  void steps() {
    std::string path;
    for (std::size_t i = prices_.size(); i-- > 0;) {
      path += path.empty() ? fmt::format("M{:.1f} {:.1f}", x(prices_[i]), y(times_[i]))
                           : fmt::format("H{:.1f}V{:.1f}", x(prices_[i]), y(times_[i]));
    }
    body_ += fmt::format("<path d=\"{}H{:.1f}\" fill=\"none\" stroke=\"#4477aa\"/>\n", path,
                         left_ + kPlotWidth);
  }

  void dots() {
    for (std::size_t i = 0; i < prices_.size(); ++i) {
      const ParetoPoint& point = frontier_.points[i];
      body_ += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" "
          "fill=\"#4477aa\"><title>{}</title></circle>\n",
          x(prices_[i]), y(times_[i]), kDot,
          xml_text(fmt::format("{}: {}, {}\n{}", i + 1, named_price(prices_[i]),
                               format_duration(Seconds(times_[i])),
                               plan::layout_text(point.found.plan))));
    }
  }

  // A number for every dot, with a line to it where dots are crowded.
  void numbers() {
    LabelPlaces places({left_ + kFromFrame, kTop + kFromFrame, left_ + kPlotWidth - kFromFrame,
                        kTop + kPlotHeight - kFromFrame});
    for (std::size_t i = 0; i < prices_.size(); ++i) {
      const double at_x = x(prices_[i]);
      const double at_y = y(times_[i]);
      places.keep_free({at_x - kInDot, at_y - kInDot, at_x + kInDot, at_y + kInDot});
      const double step_end = i == 0 ? left_ + kPlotWidth : x(prices_[i - 1]);
      const double step_foot = i == 0 ? at_y : y(times_[i - 1]);
      places.keep_free({at_x, at_y - 1, step_end, at_y + 1});
      places.keep_free({step_end - 1, at_y, step_end + 1, step_foot});
    }
    for (std::size_t i = 0; i < prices_.size(); ++i) {
      const std::string number = fmt::format("{}", i + 1);
      const auto place = places.place(x(prices_[i]), y(times_[i]),
                                      text_width(number, kNumberFont) + 2, kNumberFont, kPlotWidth);
      if (place) {
        body_ += label_line(x(prices_[i]), y(times_[i]), *place);
        text((place->left + place->right) / 2, place->bottom - 1.5, "middle", number,
             " font-size=\"11\"");
      }
    }
  }

  // The plans below the plot, numbered as the dots are; returns where the picture ends.
  double list() {
    double at = kTop + kPlotHeight + 70;
    const auto line = [&](std::string_view content, double indent) {
      text(left_ + indent, at, "start", content, " font-size=\"11\"");
      at += kLine;
    };
    for (std::size_t i = 0; i < std::min(prices_.size(), kMostListed); ++i) {
      text(left_ - 8, at, "end", fmt::format("{}", i + 1), " font-size=\"11\"");
      const std::string plan =
          fmt::format("{}, {}, {}", named_price(prices_[i]), format_duration(Seconds(times_[i])),
                      plan::layout_text(frontier_.points[i].found.plan));
      double indent = 0;
      for (const std::string& part : text_lines(plan, kPlotWidth, kListFont)) {
        line(part, indent);
        indent = 14;
      }
    }
    if (prices_.size() > kMostListed) {
      line(fmt::format("and {} more", prices_.size() - kMostListed), 0);
    }
    return at;
  }

  const search::ParetoFrontier& frontier_;
  std::vector<double> prices_;
  std::vector<double> times_;
  PictureScale across_;
  PictureScale up_;
  std::vector<double> time_ticks_;
  std::vector<std::string> time_labels_;
  double left_ = kLeft;
  std::string body_;
};

}  // namespace

std::string pareto_svg(const search::ParetoFrontier& frontier) {
  return frontier.points.empty() ? svg_document(kWidth, kTop, "") : Picture(frontier).svg();
}

}  // namespace orrery::studies
