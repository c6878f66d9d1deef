// SPDX-License-Identifier: Apache-2.0
#include "studies/network_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "base/text.hpp"

namespace orrery::studies {
namespace {

constexpr std::size_t kLongestPattern = 8;
constexpr std::size_t kMostRows = 60;
constexpr double kBlockLeft = 60;
constexpr double kBlockWidth = 200;
constexpr double kBlockHeight = 26;
constexpr double kRowHeight = 40;
constexpr double kBarWidth = 120;
constexpr double kBarHeight = 14;
constexpr double kBarColumns[] = {290, 530};  // of the bars: parameters, FLOPs
constexpr double kNetworkWidth = 770;
constexpr double kFirstRow = 96;

// A block of a pattern, `count` times in a row.
struct ChainRow {
  int block = 0;
  int count = 0;
};

// Rows that the chain repeats as a whole.
struct ChainPattern {
  std::vector<ChainRow> rows;
  int times = 1;
};

int repeats(const std::vector<int>& chain, std::size_t begin, std::size_t period) {
  std::size_t end = begin + period;
  while (end < chain.size() && chain[end] == chain[end - period]) {
    ++end;
  }
  return static_cast<int>((end - begin) / period);
}

// At each place the pattern that covers most of the chain, of equal ones the shortest.
std::vector<ChainPattern> patterns_of(const std::vector<int>& chain) {
  std::vector<ChainPattern> patterns;
  for (std::size_t at = 0; at < chain.size();) {
    std::size_t period = 1;
    int times = repeats(chain, at, 1);
    for (std::size_t longer = 2; longer <= std::min(kLongestPattern, chain.size() - at); ++longer) {
      const int more = repeats(chain, at, longer);
      if (more > 1 &&
          longer * static_cast<std::size_t>(more) > period * static_cast<std::size_t>(times)) {
        period = longer;
        times = more;
      }
    }
    ChainPattern pattern;
    for (std::size_t i = at; i < at + period; ++i) {
      if (pattern.rows.empty() || pattern.rows.back().block != chain[i]) {
        pattern.rows.push_back({chain[i], 0});
      }
      ++pattern.rows.back().count;
    }
    pattern.times = times;
    patterns.push_back(std::move(pattern));
    at += period * static_cast<std::size_t>(times);
  }
  return patterns;
}

class NetworkPicture {
 public:
  explicit NetworkPicture(const models::Network& network)
      : network_(network), workload_{1, network.spec.sequence} {
    for (const int block : network.chain) {
      parameters_ += parameters_of(block);
      flops_ += flops_of(block);
    }
  }

  std::string svg() {
    headings();
    std::size_t rows = 0;
    for (const ChainPattern& pattern : patterns_of(network_.chain)) {
      if (rows + pattern.rows.size() > kMostRows) {
        text(kBlockLeft, at_ + 10, "and further blocks", " fill=\"#555\"");
        at_ += kRowHeight;
        break;
      }
      rows += pattern.rows.size();
      draw(pattern);
    }
    return svg_document(kNetworkWidth, at_ + 4, body_);
  }

 private:
  const models::Block& block(int index) const {
    return network_.blocks[static_cast<std::size_t>(index)];
  }
  double parameters_of(int index) const {
    return static_cast<double>(models::num_parameters(block(index)));
  }
  double flops_of(int index) const {
    return models::forward_flops(block(index), workload_, false).value();
  }

  void text(double x, double y, std::string_view content, std::string_view style = "") {
    body_ += svg_text(x, y, "start", content, style);
  }

  void headings() {
    const auto once = static_cast<double>(models::num_parameters(network_));
    text(kBlockLeft, 22, printable(network_.spec.name, 60),
         " font-size=\"15\" font-weight=\"bold\"");
    text(kBlockLeft, 42,
         fmt::format("{} parameters{}; one sequence of {} tokens; bars: all repetitions",
                     format_count(once),
                     once < parameters_ ? " (shared weights once; below in each block)" : "",
                     network_.spec.sequence),
         " fill=\"#555\"");
    text(kBarColumns[0], kFirstRow - 22, "parameters", " font-weight=\"bold\"");
    text(kBarColumns[1], kFirstRow - 22, "forward FLOPs", " font-weight=\"bold\"");
  }

  void draw(const ChainPattern& pattern) {
    const double top = at_;
    const bool whole = pattern.rows.size() == 1;
    for (const ChainRow& row : pattern.rows) {
      const int count = row.count * pattern.times;
      draw_block(row.block, whole ? count : row.count);
      bar(0, parameters_of(row.block) * count, parameters_);
      bar(1, flops_of(row.block) * count, flops_);
      at_ += kRowHeight;
    }
    if (!whole) {
      body_ +=
          fmt::format("<path d=\"M{0} {1:.1f}h-8V{2:.1f}h8\" fill=\"none\" stroke=\"#888\"/>\n",
                      kBlockLeft - 6, top, at_ - kRowHeight + kBlockHeight);
      body_ += svg_text(kBlockLeft - 18, (top + at_ - kRowHeight + kBlockHeight) / 2 + 4, "end",
                        fmt::format("{} x", pattern.times));
    }
  }

  void draw_block(int index, int count) {
    if (at_ > kFirstRow) {
      body_ += fmt::format("<path d=\"M{0} {1:.1f}v{2}\" stroke=\"#888\"/>\n",
                           kBlockLeft + kBlockWidth / 2, at_ - kRowHeight + kBlockHeight,
                           kRowHeight - kBlockHeight);
    }
    body_ += fmt::format(
        "<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"#f4f4f4\" "
        "stroke=\"#888\"/>\n",
        kBlockLeft, at_, kBlockWidth, kBlockHeight);
    const std::string name = printable(block(index).name, 24);
    text(kBlockLeft + 10, at_ + 17, count > 1 ? fmt::format("{} x {}", count, name) : name);
  }

  void bar(std::size_t column, double value, double whole) {
    const double share = whole > 0 ? value / whole : 0;
    const double left = kBarColumns[column];
    body_ += fmt::format(
        "<rect x=\"{0}\" y=\"{1:.1f}\" width=\"{2}\" height=\"{3}\" fill=\"#eee\"/>\n"
        "<rect x=\"{0}\" y=\"{1:.1f}\" width=\"{4:.1f}\" height=\"{3}\" fill=\"{5}\"/>\n",
        left, at_ + 6, kBarWidth, kBarHeight, kBarWidth * share, kPictureColours[column]);
    text(left + kBarWidth + 8, at_ + 17,
         value > 0 ? fmt::format("{}, {:.1f} %", format_count(value), 100 * share)
                   : std::string("none"));
  }

  const models::Network& network_;
  models::Workload workload_;
  double parameters_ = 0;  // of all blocks
  double flops_ = 0;
  double at_ = kFirstRow;
  std::string body_;
};

}  // namespace

std::string network_svg(const models::Network& network) { return NetworkPicture(network).svg(); }

}  // namespace orrery::studies
