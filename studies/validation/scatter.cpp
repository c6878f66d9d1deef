// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/scatter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "base/svg.hpp"
#include "base/text.hpp"
#include "studies/validation/percent.hpp"
#include "studies/validation/scatter_axis.hpp"

namespace orrery::studies {
namespace {

using Rows = std::vector<const RowResult*>;

constexpr double kLeft = 64;  // of the square of the plot, in pixels
constexpr double kTop = 52;   // below a caption of one line
constexpr double kCaptionLine = 16;
constexpr double kSide = 400;
constexpr double kWidth = kLeft + kSide + 20;
constexpr double kBand = 0.1;
constexpr double kLegendLine = 18;
constexpr std::size_t kLastColour = kPictureColours.size() - 1;
constexpr std::size_t kMostTitles = 1500;   // hover texts of one picture, for the size of pages
constexpr std::size_t kMostWhiskers = 200;  // rows beyond which intervals would hide the dots

using KindOf = std::string (*)(const RowResult&);

// What one picture shows.
struct ScatterPanel {
  std::string source;
  bool memory = false;
  KindOf kind_of = nullptr;
  Rows rows;
};

using KindCounts = std::map<std::string, std::size_t>;  // rows by kind

KindCounts count_kinds(const ScatterPanel& panel) {
  KindCounts counts;
  for (const RowResult* row : panel.rows) {
    ++counts[panel.kind_of(*row)];
  }
  return counts;
}

std::vector<std::string> most_frequent_first(const KindCounts& counts) {
  std::vector<std::pair<std::string, std::size_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> kinds;
  for (auto& [kind, count] : sorted) {
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

// A kind has one colour on all pictures of a page. Kinds that meet in a picture differ, but for
// those that come when all colours are taken: they share the last one.
using KindColours = std::map<std::string, std::size_t>;

std::size_t free_colour(const std::string& kind, const std::vector<KindCounts>& pictures,
                        const KindColours& colours) {
  std::array<bool, kPictureColours.size()> taken{};
  for (const KindCounts& picture : pictures) {
    for (const auto& [other, colour] : colours) {
      taken[colour] |= picture.contains(kind) && picture.contains(other);
    }
  }
  const auto free = std::find(taken.begin(), taken.begin() + kLastColour, false);
  return static_cast<std::size_t>(free - taken.begin());
}

KindColours colours_of(const std::vector<ScatterPanel>& panels) {
  std::vector<KindCounts> pictures;
  KindCounts all;
  for (const ScatterPanel& panel : panels) {
    pictures.push_back(count_kinds(panel));
    for (const auto& [kind, count] : pictures.back()) {
      all[kind] += count;
    }
  }
  KindColours colours;
  for (const std::string& kind : most_frequent_first(all)) {
    colours.emplace(kind, free_colour(kind, pictures, colours));
  }
  return colours;
}

double size_of_error(const RowResult& row) { return std::abs(row.error()); }

// One picture being drawn.
class Picture {
 public:
  Picture(const ScatterPanel& panel, const KindColours& colours)
      : panel_(panel),
        rows_(panel.rows),
        memory_(panel.memory),
        colours_(colours),
        axis_(limit(rows_, true), limit(rows_, false)) {}

  // `captions`: lines below the title.
  std::string svg(const std::string& title, const std::vector<std::string>& captions) {
    top_ = kTop + kCaptionLine * (static_cast<double>(captions.size()) - 1);
    frame(title, captions);
    grid();
    points();
    const double bottom = legend();
    return svg_document(kWidth, bottom, body_);
  }

 private:
  static double limit(const Rows& rows, bool low) {
    double limit = rows.front()->measured;
    for (const RowResult* row : rows) {
      const auto [least, most] = std::minmax(row->predicted, row->measured);
      limit = low ? std::min(limit, least) : std::max(limit, most);
    }
    return limit;
  }

  std::string_view colour_of(const RowResult& row) const {
    return kPictureColours[colours_.at(panel_.kind_of(row))];
  }

  double x(double value) const { return kLeft + kSide * axis_.place(value); }
  double y(double value) const { return top_ + kSide * (1.0 - axis_.place(value)); }

  void text(double at_x, double at_y, std::string_view anchor, std::string_view content,
            std::string_view style = "") {
    body_ += svg_text(at_x, at_y, anchor, content, style);
  }

  void frame(const std::string& title, const std::vector<std::string>& captions) {
    text(kLeft, 20, "start", printable(title, 45), " font-size=\"15\" font-weight=\"bold\"");
    double caption_y = 39;
    for (const std::string& caption : captions) {
      text(kLeft, caption_y, "start", caption, " fill=\"#555\"");
      caption_y += kCaptionLine;
    }
    text(kLeft + kSide / 2, top_ + kSide + 36, "middle",
         memory_ ? "measured, GiB" : "measured time");
    const double middle = top_ + kSide / 2;
    text(14, middle, "middle", memory_ ? "predicted, GiB" : "predicted time",
         fmt::format(" transform=\"rotate(-90 14 {:.1f})\"", middle));
  }

  void grid() {
    const double low = axis_.low();
    const double high = axis_.high();
    body_ += fmt::format(
        "<polygon points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} "
        "{:.1f},{:.1f} {:.1f},{:.1f}\" fill=\"#e8edf3\"/>\n",
        x(low), y(low), x(low), y(low * (1 + kBand)), x(high / (1 + kBand)), y(high), x(high),
        y(high), x(high), y(high * (1 - kBand)), x(low / (1 - kBand)), y(low));
    for (const Tick& tick : axis_.ticks(memory_)) {
      body_ += fmt::format(
          "<path d=\"M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {4:.1f}H{5:.1f}\" stroke=\"#ddd\" "
          "fill=\"none\"/>\n",
          x(tick.value), top_, top_ + kSide, kLeft, y(tick.value), kLeft + kSide);
      text(x(tick.value), top_ + kSide + 16, "middle", tick.label, " font-size=\"10\"");
      text(kLeft - 5, y(tick.value) + 3.5, "end", tick.label, " font-size=\"10\"");
    }
    body_ += fmt::format(
        "<path d=\"M{0:.1f} {1:.1f}L{2:.1f} {3:.1f}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>\n"
        "<rect x=\"{0:.1f}\" y=\"{3:.1f}\" width=\"{4:.1f}\" height=\"{4:.1f}\" fill=\"none\" "
        "stroke=\"#888\"/>\n",
        kLeft, top_ + kSide, kLeft + kSide, top_, kSide);
  }

  void points() {
    const double radius = rows_.size() > 2000 ? 1.5 : rows_.size() > 300 ? 2.5 : 3.5;
    if (has_whiskers()) {
      whiskers();
    }
    const Rows rows = drawn_rows();
    const std::size_t untitled = rows.size() - std::min(rows.size(), kMostTitles);
    for (std::size_t index = 0; index < rows.size(); ++index) {
      const RowResult& row = *rows[index];
      const std::string_view colour = colour_of(row);
      const std::string paint =
          row.full ? fmt::format("fill=\"{}\" fill-opacity=\"0.7\"", colour)
                   : fmt::format("fill=\"#fff\" fill-opacity=\"0.5\" stroke=\"{}\"", colour);
      body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" {}", x(row.measured),
                           y(row.predicted), radius, paint);
      body_ += index >= untitled ? fmt::format("><title>{}</title></circle>\n", hover(row))
                                 : std::string("/>\n");
    }
  }

  // Where not all have hover texts, those that do come last: on top, the worst at the very end.
  Rows drawn_rows() const {
    Rows rows = rows_;
    if (rows.size() > kMostTitles) {
      std::stable_sort(rows.begin(), rows.end(), [](const RowResult* a, const RowResult* b) {
        return size_of_error(*a) < size_of_error(*b);
      });
    }
    return rows;
  }

  bool has_whiskers() const {
    return rows_.size() <= kMostWhiskers &&
           std::any_of(rows_.begin(), rows_.end(),
                       [](const RowResult* row) { return row->low && row->high; });
  }

  void whiskers() {
    for (const RowResult* row : rows_) {
      if (row->low && row->high) {
        body_ += fmt::format(
            "<path d=\"M{:.1f} {:.1f}V{:.1f}\" stroke=\"{}\" stroke-opacity=\"0.35\"/>\n",
            x(row->measured), y(*row->low), y(*row->high), colour_of(*row));
      }
    }
  }

  std::string hover(const RowResult& row) const {
    return fmt::format("{}: predicted {}, measured {}, {:+.1f} %\n{}", xml_text(row.id),
                       quantity_label(row.predicted, memory_),
                       quantity_label(row.measured, memory_), 100 * row.error(),
                       xml_text(row.subject));
  }

  // Colours with what they stand for here.
  std::vector<std::pair<std::size_t, std::string>> legend_entries() const {
    std::vector<std::pair<std::size_t, std::string>> entries;
    std::vector<std::string> others;
    for (const std::string& kind : most_frequent_first(count_kinds(panel_))) {
      const std::size_t colour = colours_.at(kind);
      if (colour == kLastColour) {
        others.push_back(kind);
      } else {
        entries.emplace_back(colour, printable(kind, 40));
      }
    }
    if (!others.empty()) {
      entries.emplace_back(kLastColour, others.size() == 1
                                            ? printable(others.front(), 40)
                                            : fmt::format("{} others", others.size()));
    }
    return entries;
  }

  // Below the plot, so that it covers nothing; returns where the picture ends.
  double legend() {
    double at_x = kLeft;
    double at_y = top_ + kSide + 60;
    for (const auto& [colour, label] : legend_entries()) {
      const double width = 28 + text_width(label, 12);
      if (at_x > kLeft && at_x + width > kLeft + kSide) {
        at_x = kLeft;
        at_y += kLegendLine;
      }
      body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"{}\"/>\n", at_x + 4,
                           at_y - 4, kPictureColours[colour]);
      text(at_x + 13, at_y, "start", label);
      at_x += width;
    }
    return signs(at_y + kLegendLine);
  }

  double signs(double at_y) {
    std::string signs = "dashed: exact; band: within 10 %";
    if (std::any_of(rows_.begin(), rows_.end(), [](const RowResult* row) { return !row->full; })) {
      signs += "; hollow: partial confidence";
    }
    if (has_whiskers()) {
      signs += "; bars: 80 % interval";
    }
    text(kLeft, at_y, "start", signs, " font-size=\"10\" fill=\"#555\"");
    if (rows_.size() > kMostTitles) {
      at_y += kLegendLine;
      text(kLeft, at_y, "start",
           fmt::format("under the pointer: the {} rows with the largest errors, drawn on top",
                       kMostTitles),
           " font-size=\"10\" fill=\"#555\"");
    }
    return at_y + 12;
  }

  const ScatterPanel& panel_;
  const Rows& rows_;
  bool memory_;
  const KindColours& colours_;
  LogAxis axis_;
  double top_ = kTop;
  std::string body_;
};

std::string kind_of_plan(const RowResult& row) { return row.kind.empty() ? "rows" : row.kind; }
std::string kind_of_gpu(const RowResult& row) { return row.gpu; }

std::string caption_of(const Rows& rows) {
  const ErrorSummary errors = summarise_errors(rows);
  return fmt::format("{} row{}, median error {}, 90th percentile {}", errors.simulated,
                     errors.simulated == 1 ? "" : "s", percent(errors.median), percent(errors.p90));
}

// Rows of partial confidence are apart, as in the tables.
std::vector<std::string> captions_of(const Rows& rows) {
  std::array<Rows, 2> parts;  // full, partial
  for (const RowResult* row : rows) {
    parts[row->full ? 0 : 1].push_back(row);
  }
  std::vector<std::string> captions;
  for (const Rows& part : parts) {
    if (!part.empty()) {
      captions.push_back((part.front()->full ? "" : "partial: ") + caption_of(part));
    }
  }
  return captions;
}

Scatter scatter_of(const ScatterPanel& panel, const KindColours& colours) {
  const std::string_view quantity = panel.memory ? "memory" : "time";
  const std::string title = fmt::format("{}: {}", panel.source, quantity);
  return {fmt::format("{}-{}", panel.source, quantity), title,
          Picture(panel, colours).svg(title, captions_of(panel.rows))};
}

std::vector<ScatterPanel> panels_of(const Validation& validation) {
  std::map<std::string, std::array<Rows, 2>> by_source;  // time, memory
  std::array<Rows, 2> runs;
  for (const RowResult& row : validation.rows) {
    if (!row.simulated() || row.small || row.predicted <= 0) {
      continue;
    }
    by_source[row.source][row.memory ? 1 : 0].push_back(&row);
    if (!row.plan.empty()) {
      runs[row.memory ? 1 : 0].push_back(&row);
    }
  }
  std::vector<ScatterPanel> panels;
  const auto add = [&](const std::string& source, std::array<Rows, 2> rows, KindOf kind_of) {
    for (const bool memory : {false, true}) {
      if (!rows[memory ? 1 : 0].empty()) {
        panels.push_back({source, memory, kind_of, std::move(rows[memory ? 1 : 0])});
      }
    }
  };
  if (by_source.size() > 1) {
    add("all training runs", std::move(runs), kind_of_gpu);
  }
  for (auto& [source, rows] : by_source) {
    add(source, std::move(rows), kind_of_plan);
  }
  return panels;
}

}  // namespace

std::vector<Scatter> scatters(const Validation& validation) {
  const std::vector<ScatterPanel> panels = panels_of(validation);
  const KindColours colours = colours_of(panels);
  std::vector<Scatter> pictures;
  for (const ScatterPanel& panel : panels) {
    pictures.push_back(scatter_of(panel, colours));
  }
  return pictures;
}

std::string scatter_page(const Validation& validation) {
  std::string page =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<title>Predicted against measured</title>\n<style>\n"
      "body { font-family: sans-serif; margin: 1.5em; color: #222; }\n"
      ".pictures { display: flex; flex-wrap: wrap; gap: 1.2em; align-items: flex-start; }\n"
      ".pictures svg { border: 1px solid #ddd; }\n"
      "circle:hover { stroke: #000; stroke-width: 1.5; }\n"
      "</style>\n</head>\n<body>\n<h1>Predicted against measured</h1>\n"
      "<p>Error = predicted / measured - 1, weighed as in the tables. Point at a dot for its row "
      "and plan; a picture of very many says which of them have this.</p>\n"
      "<div class=\"pictures\">\n";
  const std::vector<Scatter> pictures = scatters(validation);
  for (const Scatter& picture : pictures) {
    page += picture.svg;
  }
  if (pictures.empty()) {
    page += "<p>No row could be simulated.</p>\n";
  }
  return page + "</div>\n</body>\n</html>\n";
}

}  // namespace orrery::studies
