// SPDX-License-Identifier: Apache-2.0
#include "studies/validation/transfer_rows.hpp"

#include <fmt/format.h>

#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/measurement.hpp"
#include "studies/rows/row_cluster.hpp"
#include "topologies/words.hpp"

namespace orrery::studies {
namespace {

using costmodel::DeviceModel;
using costmodel::MemoryKernel;
using TransferPoint = tl::expected<KernelPoint, std::string>;

// Two machines with the same GPU take 3 and 34 us for 8 KB, but 20 % apart from 1 MiB on.
constexpr double kLeastCopy = 1 << 20;

KernelPoint transfer(std::string_view kind, Bytes bytes, double rate,
                     std::function<Seconds()> predict, calibrate::Shape shape) {
  return {std::string(kind),  fmt::format("{:.4g} bytes", bytes.value()), DType::Fp32,
          std::move(predict), Seconds(bytes.value() / (rate * 1e9)),      false,
          std::move(shape)};
}

std::function<Seconds()> streamed(const DeviceModel& device, Bytes bytes) {
  return [bytes, &device] { return device.memory_bound(bytes, MemoryKernel::Copy); };
}

// The link that a row names: PCIe, or of GPUs that the CPU reaches by NVLink that of their node.
tl::expected<BytesPerSecond, std::string> host_link(const std::string& words,
                                                    const topologies::Gpu& gpu) {
  const bool nvlink = mentions(words, "nvlink") && !mentions(words, "pcie");
  if (!nvlink && !mentions(words, "c2c")) {
    return gpu.pcie_bandwidth;
  }
  const std::string named = topologies::find_node_in_words(words);
  const std::string node = named.empty() ? usual_node(gpu.name) : named;
  if (!node.empty()) {
    const topologies::Cluster cluster = topologies::load_cluster(node + ":1");
    const BytesPerSecond link = cluster.node.host_link_per_gpu;
    if (cluster.gpu.name == gpu.name && link > gpu.pcie_bandwidth) {
      return link;
    }
  }
  return tl::unexpected(fmt::format("no node with {} is known to have the link \"{}\"", gpu.name,
                                    printable(words, 40)));
}

}  // namespace

TransferPoint host_copy_point(const Cells& cells, const DeviceModel& device) {
  const std::string direction = to_lower(cells.text("direction"));
  const bool one_way = direction == "h2d" || direction == "d2h";
  if (!one_way || mentions(cells.text("link"), "pageable")) {
    return tl::unexpected(std::string("only pinned copies one way are modelled"));
  }
  const Bytes bytes(cells.positive("bytes"));
  if (bytes.value() < kLeastCopy) {
    return tl::unexpected(std::string("small copies depend on the machine"));
  }
  const auto link = host_link(cells.text("link"), device.gpu());
  if (!link) {
    return tl::unexpected(link.error());
  }
  const auto predict = [bytes, link = *link, &device] { return device.host_copy(bytes, link); };
  return transfer("host-copy", bytes, cells.positive("GBps"), predict,
                  calibrate::HostCopySample{.bytes = static_cast<std::int64_t>(bytes.value())});
}

TransferPoint stream_point(const Cells& cells, const DeviceModel& device) {
  const std::string op = to_lower(cells.text("op"));
  const double arrays = op == "copy" || op == "scale" ? 2 : op == "add" || op == "triad" ? 3 : 0;
  if (arrays == 0) {
    return tl::unexpected(fmt::format("kernel \"{}\" is not modelled", printable(op, 40)));
  }
  const Bytes bytes(arrays * cells.positive("bytes"));
  return transfer("stream", bytes, cells.positive("GBps"), streamed(device, bytes),
                  streamed_bytes(bytes.value()));
}

// Of a set of eight times the cache next to nothing stays (AMD's caches still serve a fifth of one
// of six times).
TransferPoint read_point(const Cells& cells, const DeviceModel& device) {
  constexpr double kCaches = 8;
  const Bytes bytes(cells.positive("data_kB") * 1024);
  if (bytes.value() < kCaches * static_cast<double>(device.gpu().l2_cache.value())) {
    return tl::unexpected(std::string("reads from the cache are not modelled"));
  }
  return transfer("read", bytes, cells.positive("GBps"), streamed(device, bytes),
                  streamed_bytes(bytes.value()));
}

}  // namespace orrery::studies
