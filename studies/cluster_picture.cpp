// SPDX-License-Identifier: Apache-2.0
#include "studies/cluster_picture.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity_text.hpp"
#include "base/svg.hpp"
#include "base/text.hpp"
#include "search/problem.hpp"

namespace orrery::studies {
namespace {

constexpr double kMargin = 24;
constexpr double kNodeWidth = 440;  // of the node that is drawn in detail
constexpr double kOtherWidth = 110;
constexpr double kBetweenNodes = 26;
constexpr double kPictureWidth = 2 * kMargin + kNodeWidth + 2 * (kOtherWidth + kBetweenNodes);
constexpr double kLevel = 28;  // height of a fabric, of links, of a host
constexpr double kCables = 36;
constexpr double kInside = 14;  // between a node's frame and what is in it
constexpr double kGpuSide = 30;
constexpr int kGpusOfRow = 8;
constexpr int kMostDrawn = 16;  // GPUs of a node
constexpr double kBetweenLine = 18;
constexpr double kTrunk = kMargin / 2;  // x of the line from what joins the pools to each of them
constexpr const char* kFabricFill = "#dce6f2";
constexpr const char* kLinkFill = "#e3f1e3";
constexpr const char* kHostFill = "#f1ece0";
constexpr const char* kGpuFill = "#f6e0e3";

class ClusterPicture {
 public:
  void title(const std::string& name) {
    text(kMargin, 24, "start", printable(name, 70), " font-size=\"15\" font-weight=\"bold\"");
    at_ = 44;
  }

  // Above the pools, which are then drawn joined to it.
  void join(const std::vector<std::string>& lines) {
    const double height = 10 + kBetweenLine * static_cast<double>(lines.size());
    box(kMargin, at_ - 8, kPictureWidth - 2 * kMargin, height, kFabricFill);
    joined_at_ = at_ - 8 + height / 2;
    for (const std::string& line : lines) {
      text(kPictureWidth / 2, at_ + 10, "middle", line);
      at_ += kBetweenLine;
    }
    at_ += 30;
  }

  void draw(const topologies::Cluster& cluster, const std::string& heading) {
    text(kMargin, at_, "start", heading, " fill=\"#555\"");
    at_ += 12;
    trunk();
    if (cluster.num_nodes > 1) {
      fabric(cluster);
    }
    const double top = at_;
    const double height = node(cluster);
    for (int other = 0; other < std::min(cluster.num_nodes - 1, 2); ++other) {
      other_node(cluster, other, top, height);
    }
    at_ = top + height + 20;
    text(kMargin, at_, "start", gpu_text(cluster), "");
    at_ += 34;
  }

  std::string svg() const { return svg_document(kPictureWidth, at_ - 14, body_); }

 private:
  void text(double x, double y, std::string_view anchor, std::string_view content,
            std::string_view style = "") {
    body_ += svg_text(x, y, anchor, content, style);
  }
  void box(double x, double y, double width, double height, std::string_view fill) {
    body_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\" fill=\"{}\" "
        "stroke=\"#888\"/>\n",
        x, y, width, height, fill);
  }
  void cable(double x, double y, double length) {
    body_ += fmt::format("<path d=\"M{:.1f} {:.1f}v{:.1f}\" stroke=\"#888\"/>\n", x, y, length);
  }

  // From what joins the pools, or from the pool before, to the network of the one drawn next.
  void trunk() {
    if (joined_at_ > 0) {
      const double to = at_ + kLevel / 2;
      body_ +=
          fmt::format("<path d=\"M{0} {1:.1f}H{2}V{3:.1f}H{0}\" fill=\"none\" stroke=\"#888\"/>\n",
                      kMargin, joined_at_, kTrunk, to);
      joined_at_ = to;
    }
  }

  static double other_left(int other) {
    return kMargin + kNodeWidth + kBetweenNodes + other * (kOtherWidth + kBetweenNodes);
  }

  void fabric(const topologies::Cluster& cluster) {
    const topologies::ScaleOut& out = cluster.node.scale_out;
    box(kMargin, at_, kPictureWidth - 2 * kMargin, kLevel, kFabricFill);
    text(kPictureWidth / 2, at_ + 18, "middle",
         fmt::format("{}, oversubscription {:g}", cluster.fabric.builder,
                     cluster.fabric.oversubscription));
    cable(kMargin + 30, at_ + kLevel, kCables);
    text(kMargin + 38, at_ + kLevel + 22, "start",
         out.nics == 0 ? std::string("no network adapters")
                       : fmt::format("{} x {}, {} each", out.nics, out.link,
                                     format_bandwidth(out.nic_bandwidth)));
    for (int other = 0; other < std::min(cluster.num_nodes - 1, 2); ++other) {
      cable(other_left(other) + kOtherWidth / 2, at_ + kLevel, kCables);
    }
    at_ += kLevel + kCables;
  }

  // The first node; returns its height.
  double node(const topologies::Cluster& cluster) {
    const topologies::ScaleUp& up = cluster.node.scale_up;
    const int drawn = std::min(cluster.node.gpus, kMostDrawn);
    const int rows = (drawn + kGpusOfRow - 1) / kGpusOfRow;
    const double gpus_top = 30 + kLevel + 12;
    const double host_top = gpus_top + rows * (kGpuSide + 8) + 4;
    const bool has_host = cluster.node.host_link_per_gpu.value() > 0;
    const double height = has_host ? host_top + kLevel + kInside : host_top + 6;
    const double left = kMargin + kInside;
    const double width = kNodeWidth - 2 * kInside;
    box(kMargin, at_, kNodeWidth, height, "#fff");
    text(left, at_ + 20, "start",
         fmt::format("node 0: {}, {}", cluster.node.name, counted(cluster.node.gpus, "GPU")),
         " font-weight=\"bold\"");
    box(left, at_ + 30, width, kLevel, kLinkFill);
    text(kMargin + kNodeWidth / 2, at_ + 48, "middle",
         fmt::format("{}, {}, {} per GPU", up.builder, up.link,
                     format_bandwidth(up.bandwidth_per_gpu)));
    for (int gpu = 0; gpu < drawn; ++gpu) {
      const double x = left + (gpu % kGpusOfRow) * (width / kGpusOfRow) + 10;
      const double y = at_ + gpus_top + (gpu / kGpusOfRow) * (kGpuSide + 8);
      if (gpu < kGpusOfRow) {
        cable(x + kGpuSide / 2, y - 12, 12);
      }
      box(x, y, kGpuSide, kGpuSide, kGpuFill);
      const bool last = gpu + 1 == drawn && drawn < cluster.node.gpus;
      text(x + kGpuSide / 2, y + 19, "middle", last ? std::string("...") : fmt::format("{}", gpu),
           " font-size=\"11\"");
    }
    if (has_host) {
      box(left, at_ + host_top, width, kLevel, kHostFill);
      text(kMargin + kNodeWidth / 2, at_ + host_top + 18, "middle", host_text(cluster.node));
    }
    return height;
  }

  static std::string host_text(const topologies::Node& node) {
    const std::string memory = node.host_memory.value() > 0
                                   ? format_bytes(node.host_memory.bytes()) + " of memory, "
                                   : std::string();
    return fmt::format("host: {}{} to each GPU", memory, format_bandwidth(node.host_link_per_gpu));
  }

  // The second and the last node, with dots between where there are more.
  void other_node(const topologies::Cluster& cluster, int other, double top, double height) {
    const double left = other_left(other);
    box(left, top, kOtherWidth, height, "#fff");
    text(left + kOtherWidth / 2, top + 20, "middle",
         fmt::format("node {}", other == 0 ? 1 : cluster.num_nodes - 1), " font-weight=\"bold\"");
    if (other == 1 && cluster.num_nodes > 3) {
      text(left - kBetweenNodes / 2, top + height / 2, "middle", "...");
    }
  }

  static std::string gpu_text(const topologies::Cluster& cluster) {
    const topologies::Gpu& gpu = cluster.gpu;
    const DType precision = search::default_precision(gpu);
    return fmt::format("each GPU: {}, {} at {}, {} {}", gpu.name, format_bytes(gpu.memory.bytes()),
                       format_bandwidth(gpu.hbm_bandwidth),
                       format_flop_rate(gpu.peak_of(precision)), to_text(precision));
  }

  double at_ = 0;
  double joined_at_ = 0;  // where the line to the next pool begins; 0: none
  std::string body_;
};

}  // namespace

std::string cluster_svg(const std::string& name, const std::vector<topologies::Cluster>& pools,
                        const std::vector<std::string>& between) {
  ClusterPicture picture;
  picture.title(name);
  if (!between.empty()) {
    picture.join(between);
  }
  for (const topologies::Cluster& pool : pools) {
    picture.draw(pool,
                 fmt::format("{}{}, {}", pools.size() > 1 ? pool.name + ": " : "",
                             counted(pool.num_nodes, "node"), counted(pool.num_gpus(), "GPU")));
  }
  return picture.svg();
}

}  // namespace orrery::studies
