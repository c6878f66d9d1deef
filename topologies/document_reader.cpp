// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/text.hpp"
#include "topologies/builder.hpp"
#include "topologies/documents.hpp"

namespace orrery::topologies {
namespace {

constexpr std::int64_t kMaxGpusOfNode = 4096;
constexpr std::int64_t kMaxPorts = 65'536;

int integer_or(ObjectReader& object, std::string_view key, int fallback, std::int64_t min,
               std::int64_t max) {
  return static_cast<int>(object.integer_or(key, fallback, min, max));
}

std::string kebab_name(const JsonReader& name) {
  std::string text = name.string();
  if (!is_kebab_case(text)) {
    name.fail(fmt::format("\"{}\" is not a name", printable(text)),
              "lower-case letters and digits joined by hyphens");
  }
  return text;
}

std::vector<std::string> read_aliases(ObjectReader& object) {
  std::vector<std::string> aliases;
  if (const auto list = object.optional("aliases")) {
    for (const JsonReader& alias : list->array(256)) {
      aliases.push_back(alias.string());
    }
  }
  return aliases;
}

std::vector<std::string> read_pci_devices(ObjectReader& object) {
  std::vector<std::string> devices;
  if (const auto list = object.optional("pci_devices")) {
    for (const JsonReader& entry : list->array(64)) {
      const std::string device = entry.string();
      const bool well_formed = device.size() == 6 && device.starts_with("0x") &&
                               device.find_first_not_of("0123456789abcdef", 2) == device.npos;
      if (!well_formed) {
        entry.fail(fmt::format("\"{}\" is no PCI device id", printable(device)), "\"0x2330\"");
      }
      devices.push_back(device);
    }
  }
  return devices;
}

std::string builder_name(const JsonReader& value, BuilderKind kind) {
  std::vector<std::string_view> names;
  for (const TopologyBuilder* builder : builder_table()) {
    if (builder->kind == kind) {
      names.push_back(builder->name);
    }
  }
  return value.one_of(names);
}

std::vector<std::array<int, 3>> read_mesh(const JsonReader& value, int gpus) {
  std::vector<std::array<int, 3>> mesh;
  std::set<std::pair<int, int>> seen;
  for (const JsonReader& edge : value.array(1'000'000)) {
    const std::vector<JsonReader> numbers = edge.array(3);
    if (numbers.size() != 3) {
      edge.fail("an edge has three numbers", "[gpu, gpu, links]");
    }
    const int a = static_cast<int>(numbers[0].integer(0, gpus - 1));
    const int b = static_cast<int>(numbers[1].integer(0, gpus - 1));
    const int links = static_cast<int>(numbers[2].integer(1, 1024));
    if (a == b) {
      edge.fail("an edge joins two different GPUs");
    }
    if (!seen.insert(std::minmax(a, b)).second) {
      edge.fail(fmt::format("GPUs {} and {} are joined twice", a, b),
                "give one edge and its links");
    }
    mesh.push_back({a, b, links});
  }
  return mesh;
}

ScaleUp read_scale_up(const JsonReader& value, int gpus) {
  ObjectReader object = value.object();
  const auto [builder, link, bandwidth_per_gpu, nccl_bandwidth, nccl_channels, latency] =
      required_members(object, {"builder", "link", "bandwidth_per_gpu", "nccl_bandwidth",
                                "nccl_channels", "latency"});
  ScaleUp up;
  up.builder = builder_name(builder, BuilderKind::Node);
  up.wiring = find_builder(up.builder, BuilderKind::Node).wiring;
  up.link = link.string();
  up.bandwidth_per_gpu = bandwidth_per_gpu.bandwidth();
  up.links_per_gpu = integer_or(object, "links_per_gpu", 1, 1, 1024);
  up.nccl_bandwidth = nccl_bandwidth.bandwidth();
  if (const auto bandwidth = object.optional("nccl_socket_bandwidth")) {
    up.nccl_socket_bandwidth = bandwidth->bandwidth();
  }
  up.nccl_channels = static_cast<int>(nccl_channels.integer(1, 64));
  up.nccl_gpus = integer_or(object, "nccl_gpus", 0, 0, kMaxGpusOfNode);
  up.in_switch_reduction = object.boolean_or("in_switch_reduction", false);
  up.latency = latency.duration();
  if (const auto mesh = object.optional("mesh")) {
    up.mesh = read_mesh(*mesh, gpus);
  }
  up.switches = integer_or(object, "switches", 0, 0, kMaxGpusOfNode);
  up.boards = integer_or(object, "boards", 1, 1, gpus);
  up.board_links = integer_or(object, "board_links", 0, 0, kMaxPorts);
  object.finish();
  const bool is_mesh = up.wiring == Wiring::ListedPairs || up.wiring == Wiring::AllPairs;
  if (up.wiring == Wiring::ListedPairs && up.mesh.empty()) {
    value.fail(fmt::format("a {} needs its edges", up.builder), "\"mesh\": [[0, 1, 2], ...]");
  }
  if (!is_mesh && !up.mesh.empty()) {
    value.fail(fmt::format("builder {} takes no \"mesh\"", up.builder));
  }
  if (up.boards > 1 && up.board_links == 0) {
    value.fail("boards without links between them", "\"board_links\": 48");
  }
  return up;
}

ScaleOut read_scale_out(const JsonReader& value) {
  ObjectReader object = value.object();
  ScaleOut out;
  out.link = object.required("link").string();
  out.nics = integer_or(object, "nics", 0, 0, kMaxPorts);
  if (const auto bandwidth = object.optional("nic_bandwidth")) {
    out.nic_bandwidth = bandwidth->bandwidth();
  } else if (out.nics > 0) {
    value.fail("NICs without \"nic_bandwidth\"", "\"nic_bandwidth\": \"400 Gbit/s\"");
  }
  out.efficiency_fraction = object.number_or("efficiency", 1.0, 0.01, 1.0);
  if (const auto latency = object.optional("plugin_latency")) {
    out.plugin_latency = latency->duration();
  }
  if (const auto latency = object.optional("latency")) {
    out.latency = latency->duration();
  }
  out.in_network_reduction = object.boolean_or("in_network_reduction", false);
  out.low_latency = object.boolean_or("low_latency", true);
  out.low_latency_128 = object.boolean_or("low_latency_128", true);
  object.finish();
  return out;
}

void read_host(const JsonReader& value, Node& node) {
  ObjectReader object = value.object();
  const auto [cpu_vendor, sockets, memory, memory_bandwidth, link_per_gpu] = required_members(
      object, {"cpu_vendor", "sockets", "memory", "memory_bandwidth", "link_per_gpu"});
  node.cpu_vendor = cpu_vendor.string();
  node.sockets = static_cast<int>(sockets.integer(1, kMaxGpusOfNode));
  node.host_memory = memory.byte_count(true);  // 0: no host tier
  node.host_memory_bandwidth = memory_bandwidth.bandwidth();
  node.host_link_per_gpu = link_per_gpu.bandwidth();
  if (const auto bandwidth = object.optional("socket_bandwidth")) {
    node.socket_bandwidth = bandwidth->bandwidth(true);
  }
  node.gpus_per_pcie_switch = integer_or(object, "gpus_per_pcie_switch", 0, 0, kMaxGpusOfNode);
  if (const auto disk = object.optional("disk")) {
    node.disk = disk->byte_count(true);
  }
  if (const auto bandwidth = object.optional("disk_bandwidth")) {
    node.disk_bandwidth = bandwidth->bandwidth(true);
  }
  object.finish();
}

}  // namespace

void require_keys(const ObjectReader& object, std::span<const std::string_view> keys) {
  std::vector<std::string> missing;
  for (const std::string_view key : keys) {
    if (!object.has(key)) {
      missing.push_back(fmt::format("\"{}\"", key));
    }
  }
  if (missing.size() > 1) {
    object.value().fail(fmt::format("missing keys {}", fmt::join(missing, ", ")));
  }
}

void read_sources(ObjectReader& object) {
  if (const auto sources = object.optional("sources")) {
    ObjectReader entries = sources->object();
    for (const std::string& key : entries.keys()) {
      if (trim(entries.required(key).string()).empty()) {
        sources->fail(fmt::format("source \"{}\" is empty", printable(key)));
      }
    }
    entries.finish();
  }
  object.string_or("note", "");
}

Gpu read_gpu(const JsonReader& value) {
  ObjectReader object = value.object();
  object.expect_schema("orrery-gpu", 1);
  const auto [name, vendor, architecture, memory, hbm_bandwidth, peak_rates] = required_members(
      object, {"name", "vendor", "architecture", "memory", "hbm_bandwidth", "peak"});
  Gpu gpu;
  gpu.name = kebab_name(name);
  gpu.aliases = read_aliases(object);
  gpu.vendor = vendor.string();
  gpu.architecture = architecture.string();
  gpu.compute_capability = object.number_or("compute_capability", 0, 0, 1000);
  gpu.memory = memory.byte_count();
  gpu.hbm_bandwidth = hbm_bandwidth.bandwidth();
  ObjectReader peaks = peak_rates.object();
  bool any = false;
  for (int i = 0; i < kNumDTypes; ++i) {
    if (const auto peak = peaks.optional(to_text(static_cast<DType>(i)))) {
      gpu.peak[static_cast<std::size_t>(i)] = peak->flop_rate();
      any = true;
    }
  }
  peaks.finish();
  if (!any) {
    peaks.value().fail("no peak rate", "\"bf16\": \"989.4 TFLOP/s\"");
  }
  gpu.sm_count = integer_or(object, "sm_count", 0, 0, 100'000);
  if (const auto clock = object.optional("boost_clock")) {
    gpu.boost_clock = clock->frequency();
  }
  if (const auto cache = object.optional("l2_cache")) {
    gpu.l2_cache = cache->byte_count(true);
  }
  if (const auto bandwidth = object.optional("pcie_bandwidth")) {
    gpu.pcie_bandwidth = bandwidth->bandwidth(true);
  }
  gpu.power_watts = object.number_or("power_watts", 0, 0, 1e6);
  gpu.picojoules_per_flop = object.number_or("picojoules_per_flop", 0, 0, 1e3);
  gpu.persistent_products = object.boolean_or("persistent_products", false);
  gpu.short_fp8_sums = object.boolean_or("short_fp8_sums", false);
  gpu.any_fp8_layout = object.boolean_or("any_fp8_layout", false);
  gpu.pci_devices = read_pci_devices(object);
  gpu.stands_for_others = object.boolean_or("stands_for_others", false);
  gpu.usual_node = object.string_or("usual_node", "");
  if (const auto price = object.optional("price")) {
    gpu.price = price->price();
  }
  read_sources(object);
  object.finish();
  return gpu;
}

Node read_node(const JsonReader& value) {
  ObjectReader object = value.object();
  object.expect_schema("orrery-node", 1);
  const auto [name, gpus, scale_up, host] =
      required_members(object, {"name", "gpus", "scale_up", "host"});
  Node node;
  node.name = kebab_name(name);
  node.aliases = read_aliases(object);
  node.gpus = static_cast<int>(gpus.integer(1, kMaxGpusOfNode));
  node.scale_up = read_scale_up(scale_up, node.gpus);
  node.scale_out.link = "none";
  if (const auto out = object.optional("scale_out")) {
    node.scale_out = read_scale_out(*out);
  }
  read_host(host, node);
  read_sources(object);
  object.finish();
  return node;
}

Fabric read_fabric(const JsonReader& value) {
  ObjectReader object = value.object();
  Fabric fabric;
  fabric.builder = builder_name(object.required("builder"), BuilderKind::Fabric);
  fabric.radix = integer_or(object, "radix", 64, 2, kMaxPorts);
  fabric.spine_radix = integer_or(object, "spine_radix", 0, 0, kMaxPorts);
  fabric.nodes_per_leaf = integer_or(object, "nodes_per_leaf", 0, 0, kMaxPorts);
  fabric.leaves_per_pod = integer_or(object, "leaves_per_pod", 0, 0, kMaxPorts);
  fabric.planes = integer_or(object, "planes", 1, 1, kMaxPorts);
  fabric.oversubscription = object.number_or("oversubscription", 1.0, 1.0, 1024.0);
  fabric.core_oversubscription = object.number_or("core_oversubscription", 1.0, 1.0, 1024.0);
  fabric.levels = integer_or(object, "levels", 2, 1, 3);
  if (const auto dimensions = object.optional("dimensions")) {
    for (const JsonReader& size : dimensions->array(8)) {
      fabric.dimensions.push_back(static_cast<int>(size.integer(1, kMaxPorts)));
    }
  }
  if (const auto latency = object.optional("switch_latency")) {
    fabric.switch_latency = latency->duration();
  }
  fabric.ecmp_hash = object.boolean_or("ecmp_hash", false);
  fabric.ecmp_seed = object.integer_or("ecmp_seed", 1, 0, INT64_MAX);
  object.finish();
  return fabric;
}

}  // namespace orrery::topologies
