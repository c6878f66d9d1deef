// SPDX-License-Identifier: Apache-2.0
// TPI-LLM: tensor parallelism over edge devices with little memory. Every device holds its share of
// heads and FFN columns; device 0, the master, also embedding and head. Blocks come from disk
// through a sliding window (sim/disk_window.hpp), activations are summed by an all-reduce of few
// messages, because links are slow to start, not narrow (sim/collectives).
//
// Times: a block takes its bytes over the rate at which a device reads its memory (token generation
// multiplies vectors), or over its disk for loading; the head is one more block of the master, of
// the embedding a token reads one row. A message crosses `hops` links one after the other.
// Memory is the paper's (section 3.3), times one factor for the framework.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "search/planner.hpp"
#include "search/problems/edge_cluster.hpp"
#include "sim/collective_time.hpp"
#include "sim/disk_window.hpp"

namespace orrery::search {
namespace {

struct Shape {
  double layers = 0;
  double hidden = 0;
  double ffn = 0;
  double heads = 0;
  double kv_heads = 0;
  double vocab = 0;
  double element = 4;  // bytes
  // Elements of a block on a device with share p.
  // A device that holds queries has a whole key-value head at least.
  double attention(double p) const {
    const double kv = p > 0 ? std::max(kv_heads * p, 1.0) : 0.0;
    return 2 * (p + kv / heads) * hidden * hidden + hidden;
  }
  double feed_forward(double p) const { return 3 * hidden * ffn * p + hidden; }
  double table() const { return hidden * vocab; }
};

struct Link {
  Seconds latency;
  BytesPerSecond bandwidth;
  int hops = 1;
};

Shape read_shape(const JsonReader& value) {
  ObjectReader object = value.object();
  const auto number = [&](std::string_view key) {
    return static_cast<double>(object.required(key).integer(1, 1LL << 31));
  };
  Shape shape;
  shape.layers = static_cast<double>(object.required("layers").integer(1, 1024));
  shape.hidden = number("hidden");
  shape.ffn = number("ffn_hidden");
  shape.heads = number("heads");
  shape.kv_heads =
      static_cast<double>(object.integer_or("kv_heads", static_cast<std::int64_t>(shape.heads), 1,
                                            static_cast<std::int64_t>(shape.heads)));
  const auto divides = [&](std::string_view what, double whole, std::string_view by, double part) {
    if (std::fmod(whole, part) != 0) {
      value.fail(fmt::format("{} = {} is not divisible by {} = {}", what, whole, by, part));
    }
  };
  divides("hidden", shape.hidden, "heads", shape.heads);
  divides("heads", shape.heads, "kv_heads", shape.kv_heads);
  shape.vocab = number("vocab");
  shape.element = static_cast<double>(object.integer_or("element_bytes", 4, 1, 8));
  object.finish();
  return shape;
}

Link read_link(const JsonReader& value) {
  ObjectReader object = value.object();
  Link link;
  link.latency = object.required("latency").duration();
  link.hops = static_cast<int>(object.integer_or("hops", 1, 1, 64));
  if (const auto bandwidth = object.optional("bandwidth")) {
    link.bandwidth = bandwidth->bandwidth();
  }
  object.finish();
  return link;
}

std::vector<double> read_shares(ObjectReader& problem) {
  std::vector<double> shares;
  if (const auto list = problem.optional("shares")) {
    double sum = 0;
    for (const JsonReader& value : list->array(4096)) {
      shares.push_back(value.number(0, 1));
      sum += shares.back();
    }
    if (shares.empty() || std::abs(sum - 1) > 1e-6) {
      list->fail("the shares of the devices must sum to 1");
    }
    const auto stated = problem.optional("devices");
    if (stated && stated->integer(1, 4096) != static_cast<std::int64_t>(shares.size())) {
      list->fail(fmt::format("{} shares of {} devices", shares.size(), stated->integer(1, 4096)),
                 "state one of the two, or a share for each device");
    }
    return shares;
  }
  const auto devices = static_cast<std::size_t>(problem.required("devices").integer(1, 4096));
  return std::vector<double>(devices, 1.0 / static_cast<double>(devices));
}

// Latency of the messages alone; the bytes of one message cross `hops` links once on top, as the
// paper's t_data (its measurements show no queueing at the master's port).
Seconds reduce_time(const Link& link, std::string_view algorithm, int devices, double bytes) {
  if (devices == 1) {
    return {};
  }
  sim::CollectiveCosts costs;
  costs.latency = to_sim_time(link.latency * static_cast<double>(link.hops));
  costs.bandwidth = BytesPerSecond(1e15);
  const sim::CollectiveAlgorithm& steps = sim::find_collective(algorithm, "all_reduce");
  const Seconds latency =
      to_seconds(sim::collective_time(steps, devices, ByteCount(0), costs).time);
  const bool narrow = link.bandwidth.value() > 0;
  return latency + (narrow ? Bytes(bytes * link.hops) / link.bandwidth : Seconds());
}

// Blocks in memory at once (0: all), and every how many layers the FFN block stays there besides
// and is not loaded (0: none), as the paper's retention period.
struct Window {
  int blocks = 0;
  int keep_ffn = 0;
  bool keeps(int layer) const { return keep_ffn > 0 && (layer + 1) % keep_ffn == 0; }
};

Window read_window(ObjectReader& problem) {
  Window window;
  window.blocks = static_cast<int>(problem.integer_or("window", 0, 0, 4096));
  if (const auto keep = problem.optional("keep_ffn")) {
    window.keep_ffn = static_cast<int>(keep->integer(1, 1024));
    if (window.blocks == 0) {
      keep->fail("all blocks stay where there is no window", "state \"window\"");
    }
  }
  return window;
}

struct Rates {
  BytesPerSecond memory;
  BytesPerSecond disk;
};
// Of devices that hold everything, so that nothing is loaded between tokens.
constexpr BytesPerSecond kNeverLoaded(1e18);

// Blocks of a token on one device; the master's last one is the head.
std::vector<sim::WindowBlock> blocks_of(const Shape& shape, double share, bool master,
                                        const Rates& rates, const Window& window) {
  const auto block = [&](double elements) {
    const Bytes bytes(elements * shape.element);
    return sim::WindowBlock{bytes / rates.memory, bytes / rates.disk};
  };
  std::vector<sim::WindowBlock> blocks;
  for (int layer = 0; layer < static_cast<int>(shape.layers); ++layer) {
    blocks.push_back(block(shape.attention(share)));
    blocks.push_back(block(shape.feed_forward(share)));
    blocks.back().load = window.keeps(layer) ? Seconds() : blocks.back().load;
  }
  blocks.push_back(master ? block(shape.table()) : sim::WindowBlock{});
  return blocks;
}

double token_time(const Shape& shape, const std::vector<double>& shares,
                  const std::vector<Rates>& rates, Seconds reduce, const Window& window) {
  sim::WindowedRun run;
  for (std::size_t device = 0; device < shares.size(); ++device) {
    run.devices.push_back(blocks_of(shape, shares[device], device == 0, rates[device], window));
  }
  run.reduce.assign(run.devices.front().size(), reduce);
  run.reduce.back() = {};  // the head is the master's alone
  run.window = window.blocks > 0 ? window.blocks : static_cast<int>(run.reduce.size());
  run.tokens = 3;
  const std::vector<Seconds> ends = window_ends(run);
  const std::size_t blocks = run.reduce.size();
  return (ends.back() - ends[ends.size() - 1 - blocks]).value();  // of the last token
}

// Elements at the peak; window 0 holds everything, and no window more than that.
double master_elements(const Shape& shape, double p, int window) {
  if (window == 0 || window - 2 > 2 * shape.layers) {
    return 2 * shape.table() + shape.hidden +
           shape.layers * (shape.attention(p) + shape.feed_forward(p));
  }
  if (window == 1) {
    return shape.table() + shape.hidden;
  }
  return 2 * shape.table() + shape.hidden + std::floor((window - 2) / 2.0) * shape.attention(p) +
         std::floor((window - 1) / 2.0) * shape.feed_forward(p);
}

double worker_elements(const Shape& shape, double p, int window) {
  if (window == 0 || window > 2 * shape.layers) {
    return shape.layers * (shape.attention(p) + shape.feed_forward(p));
  }
  return std::floor(window / 2.0) * shape.attention(p) +
         std::floor((window + 1) / 2.0) * shape.feed_forward(p);
}

// Blocks that stay resident come on top, up to all there is.
double peak_elements(const Shape& shape, double p, bool master, const Window& window) {
  const auto of = [&](int blocks) {
    const double worker = worker_elements(shape, p, blocks);
    return master ? std::max(worker, master_elements(shape, p, blocks)) : worker;
  };
  const double kept = window.keep_ffn > 0 ? std::floor(shape.layers / window.keep_ffn) : 0;
  return std::min(of(0), of(window.blocks) + kept * shape.feed_forward(p));
}

double read_memory_factor(ObjectReader& problem) {
  return problem.number_or("memory_factor", 1, 0.1, 10);
}

void add_network(const ObjectReader& problem, double gamma, const Shape& shape,
                 const std::vector<double>& shares, const Window& window, Json& answer) {
  if (static_cast<double>(shares.size()) > shape.heads) {
    problem.value().fail(
        fmt::format("dimension heads = {} is sharded by {} devices, more than "
                    "its size",
                    shape.heads, shares.size()));
  }
  Json memory = Json::array();
  double peak = 0;
  for (std::size_t device = 0; device < shares.size(); ++device) {
    const double elements = peak_elements(shape, shares[device], device == 0, window);
    memory.push(elements * shape.element * gamma);
    peak = std::max(peak, elements * shape.element * gamma);
  }
  answer.set("memory_bytes", std::move(memory));
  answer.set("peak_memory_bytes", peak);
}

sim::WindowBlock read_block(ObjectReader& object, std::string_view compute, std::string_view load) {
  return {object.required(compute).duration(), object.required(load).duration()};
}

// {"attention", "ffn", "load_attention", "load_ffn", "reduce", "layers"}: measured times.
void add_measured(const JsonReader& value, const Window& window, Json& answer) {
  ObjectReader object = value.object();
  sim::LayerTimes times;
  times.attention = read_block(object, "attention", "load_attention");
  times.ffn = read_block(object, "ffn", "load_ffn");
  times.reduce = object.required("reduce").duration();
  const int layers = static_cast<int>(object.required("layers").integer(2, 1024));
  object.finish();
  sim::WindowedRun run;
  run.window = window.blocks > 0 ? window.blocks : 2 * layers;
  run.devices.emplace_back();
  for (int layer = 0; layer < layers; ++layer) {
    run.devices.front().push_back(times.attention);
    run.devices.front().push_back(times.ffn);
    run.devices.front().back().load = window.keeps(layer) ? Seconds() : times.ffn.load;
    run.reduce.insert(run.reduce.end(), 2, times.reduce);
  }
  const std::vector<Seconds> ends = window_ends(run);
  const double without = (times.attention.compute + times.ffn.compute + times.reduce * 2.0).value();
  Json layer_times = Json::array();
  int stall_free = 1;
  double before = 0;
  double last = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const double end = ends[static_cast<std::size_t>(2 * layer + 1)].value();
    last = end - before;
    layer_times.push(last);
    stall_free = last > without * (1 + 1e-9) ? layer + 2 : stall_free;
    before = end;
  }
  answer.set("layer_s", std::move(layer_times));
  answer.set("last_layer_s", last);
  answer.set("layer_without_stalls_s", without);
  answer.set("stall_free_from_layer", stall_free);  // 1-based; layers + 1: never
  answer.set("tight", tight_steady_state(times));
  answer.set("loose", loose_steady_state(times, layers, window.keep_ffn));
}

// Devices that the problem lists one by one: the fastest of the three sums, whether each holds what
// it must, and the time of a token.
Json plan_unlike(ObjectReader& problem, const JsonReader& list, const Window& window) {
  constexpr std::array<std::string_view, 2> kTopologies = {"star", "ring"};
  const auto topology = problem.optional("topology");
  const EdgeCluster cluster =
      read_edge_cluster(topology ? topology->one_of(kTopologies) : "star", list);
  const Shape shape = read_shape(problem.required("network"));
  const double gamma = read_memory_factor(problem);
  problem.finish();
  const EdgeReduce reduce = edge_reduce(cluster, Bytes(shape.hidden * shape.element));
  const Seconds best = std::min({reduce.star, reduce.tree, reduce.ring});
  Json answer = Json::Object{{"star_s", reduce.star.value()},
                             {"tree_s", reduce.tree.value()},
                             {"ring_s", reduce.ring.value()},
                             {"all_reduce", best == reduce.star   ? "star"
                                            : best == reduce.tree ? "tree"
                                                                  : "ring"}};
  std::vector<double> shares;
  std::vector<Rates> rates;
  for (const EdgeDevice& device : cluster.devices) {
    const bool streams = device.disk_bandwidth.value() > 0;
    if (!streams && window.blocks > 0) {
      list.fail(fmt::format("\"{}\" has no disk_bandwidth, but a window of {} streams from disk",
                            device.name, window.blocks),
                "state it, or leave \"window\" out");
    }
    shares.push_back(device.share);
    rates.push_back({device.memory_bandwidth, streams ? device.disk_bandwidth : kNeverLoaded});
  }
  add_network(problem, gamma, shape, shares, window, answer);
  Json fits = Json::array();
  const Json::Array needed = answer.find("memory_bytes")->as_array();
  for (std::size_t device = 0; device < needed.size(); ++device) {
    const ByteCount memory = cluster.devices[device].memory;
    fits.push(memory.value() == 0 || needed[device].as_number() <= memory.bytes().value());
  }
  answer.set("fits", std::move(fits));
  answer.set("token_s", token_time(shape, shares, rates, best, window));
  return answer;
}

// Where the problem states no disk and no memory, tokens have no time.
std::optional<Rates> read_rates(ObjectReader& problem, const Window& window) {
  const auto disk = problem.optional("disk_bandwidth");
  if (!disk && (window.blocks > 0 || !problem.optional("memory_bandwidth"))) {
    return std::nullopt;
  }
  return Rates{problem.required("memory_bandwidth").bandwidth(),
               disk ? disk->bandwidth() : kNeverLoaded};
}

Json plan(ObjectReader& problem) {
  const Window window = read_window(problem);
  if (const auto devices = problem.optional("devices"); devices && devices->json().is_array()) {
    return plan_unlike(problem, *devices, window);
  }
  const auto blocks = problem.optional("blocks");
  const std::vector<double> shares = read_shares(problem);
  const int devices = static_cast<int>(shares.size());
  const auto network = problem.optional("network");
  const Shape shape = network ? read_shape(*network) : Shape{};
  const auto path = problem.optional("link");
  const double gamma = network ? read_memory_factor(problem) : 1;
  const std::optional<Rates> rates = network ? read_rates(problem, window) : std::nullopt;
  problem.finish();
  Json answer = Json::object();
  if (blocks) {
    add_measured(*blocks, window, answer);
  }
  Seconds reduce;
  if (path) {
    const Link link = read_link(*path);
    const double bytes = shape.hidden * shape.element;
    const Seconds star = reduce_time(link, "star-all-reduce", devices, bytes);
    answer.set("star_s", star.value());
    answer.set("tree_s", reduce_time(link, "two-level-all-reduce", devices, bytes).value());
    answer.set("ring_s", reduce_time(link, "ring-all-reduce", devices, bytes).value());
    reduce = star;
  }
  if (network) {
    add_network(problem, gamma, shape, shares, window, answer);
  }
  if (rates) {
    answer.set("token_s", token_time(shape, shares, std::vector<Rates>(shares.size(), *rates),
                                     reduce, window));
  }
  return answer;
}

}  // namespace

extern const Planner planner_tpi_llm = {
    .name = "tpi-llm",
    .description = "tensor-parallel generation on edge devices: all-reduce, disk window, memory",
    .source = "Li et al., TPI-LLM, 2024 (arXiv 2410.00531), sections 3.2 and 3.3",
    .example = R"({"schema": "orrery-problem", "version": 1, "devices": 8, "window": 2,
  "network": {"layers": 32, "hidden": 4096, "ffn_hidden": 11008, "heads": 32, "vocab": 32000},
  "link": {"latency": "1 ms", "hops": 4, "bandwidth": "300 Mbit/s"},
  "disk_bandwidth": "1.35 GB/s", "memory_bandwidth": "6.5 GB/s", "memory_factor": 1.6})",
    .plan = plan,
};

}  // namespace orrery::search
