// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/random.hpp"
#include "base/text.hpp"
#include "models/lookups.hpp"
#include "plan/named_values.hpp"
#include "plan/serving/option_limits.hpp"
#include "plan/serving/request_trace.hpp"
#include "plan/serving/serving.hpp"

namespace orrery::plan {
namespace {

constexpr std::string_view kSchema = "orrery-requests";
constexpr std::int64_t kVersion = 1;
constexpr std::array<std::string_view, 3> kArrivals = {"at-once", "poisson", "regular"};
constexpr std::array<std::string_view, 2> kPrefills = {"chunked", "separate"};
constexpr std::array<std::string_view, 3> kRoutings = {"in-turn", "least-loaded", "prefix"};
constexpr std::array<std::string_view, 5> kAllReduces = {"nccl", "star", "tree", "ring", "fastest"};
constexpr double kMaxRate = 1e9;
constexpr int kDraws = 1000;  // of a length beyond its bound, before the bound itself is taken

// 512 or {"mean": 512, "std": 100, "max": 4096}.
LengthSpec read_length(const JsonReader& value) {
  LengthSpec length;
  if (!value.json().is_object()) {
    length.mean = static_cast<double>(value.integer(1, limits::kMaxSequence));
    return length;
  }
  ObjectReader object = value.object();
  const JsonReader mean = object.required("mean");
  length.mean = mean.number(1, static_cast<double>(limits::kMaxSequence));
  length.deviation = object.number_or("std", 0, 0, static_cast<double>(limits::kMaxSequence));
  length.max = object.integer_or("max", 0, 1, limits::kMaxSequence);
  object.finish();
  if (length.max > 0 && length.mean > static_cast<double>(length.max)) {
    mean.fail("the mean is larger than \"max\"");
  }
  if (length.deviation == 0 && length.mean != std::floor(length.mean)) {
    mean.fail("a constant length is a whole number of tokens");
  }
  return length;
}

Json to_json(const LengthSpec& length) {
  if (length.deviation == 0) {
    return Json(static_cast<std::int64_t>(length.mean));
  }
  Json document = Json::Object{{"mean", length.mean}, {"std", length.deviation}};
  if (length.max > 0) {
    document.set("max", length.max);
  }
  return document;
}

// {"count": 8, "tokens": 1024, "share": 0.9, "slope": 1}.
PrefixSpec read_prefixes(const JsonReader& value) {
  ObjectReader object = value.object();
  PrefixSpec prefixes;
  prefixes.count = object.required("count").integer(1, 1'000'000);
  prefixes.tokens = object.required("tokens").integer(1, limits::kMaxSequence);
  prefixes.share = object.number_or("share", prefixes.share, 0, 1);
  prefixes.slope = object.number_or("slope", prefixes.slope, 0, 10);
  object.finish();
  return prefixes;
}

// The number that is read as this time: behind an hour numbers are as coarse as picoseconds.
double seconds_read_as(SimTime time) {
  const double near = to_seconds(time).value();
  for (const double seconds : {near, std::nextafter(near, 0), std::nextafter(near, kLastArrival)}) {
    if (to_sim_time(Seconds(seconds)) == time) {
      return seconds;
    }
  }
  return near;
}

void read_arrivals(ObjectReader& object, RequestSpec& spec) {
  if (const auto arrivals = object.optional("arrivals")) {
    const std::string name = arrivals->one_of(kArrivals);
    spec.arrivals = static_cast<Arrivals>(std::find(kArrivals.begin(), kArrivals.end(), name) -
                                          kArrivals.begin());
  } else {
    spec.arrivals = object.has("requests_per_second") ? Arrivals::Poisson : Arrivals::AtOnce;
  }
  if (spec.arrivals == Arrivals::AtOnce) {
    if (const auto rate = object.optional("requests_per_second")) {
      rate->fail("requests that are there at once have no rate",
                 "leave it out, or set \"arrivals\" to \"poisson\" or \"regular\"");
    }
    return;
  }
  const JsonReader rate = object.required("requests_per_second");
  spec.requests_per_second = rate.number(0, kMaxRate);
  if (spec.requests_per_second <= 0) {
    rate.fail("no request would ever arrive",
              "leave it out for requests that are all there from the start");
  }
  if (static_cast<double>(spec.count) / spec.requests_per_second > kLastArrival) {
    rate.fail(
        fmt::format("{} requests would take more than {} s to arrive", spec.count, kLastArrival));
  }
}

std::int64_t draw_length(const LengthSpec& length, Random& random) {
  if (length.deviation == 0) {
    return static_cast<std::int64_t>(length.mean);
  }
  const double ratio = length.deviation / length.mean;
  const double variance = std::log(1 + ratio * ratio);
  const double location = std::log(length.mean) - variance / 2;
  const std::int64_t bound = length.max > 0 ? length.max : limits::kMaxSequence;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double tokens = std::exp(location + std::sqrt(variance) * random.normal());
    if (tokens <= static_cast<double>(bound)) {
      return std::max<std::int64_t>(1, std::llround(tokens));
    }
  }
  return bound;
}

}  // namespace

RequestSpec read_requests(const JsonReader& document) {
  ObjectReader object = document.object();
  object.expect_schema(kSchema, kVersion);
  RequestSpec spec;
  if (const auto trace = object.optional("requests")) {
    spec.trace = read_trace(*trace);
    spec.count = static_cast<std::int64_t>(spec.trace.size());
  } else {
    spec.count = object.required("count").integer(1, limits::kMaxArrayLength);
    read_arrivals(object, spec);
    spec.prompt = read_length(object.required("prompt"));
    spec.output = read_length(object.required("output"));
    spec.seed = object.integer_or("seed", 0, 0, std::numeric_limits<std::int64_t>::max());
    if (const auto prefixes = object.optional("prefixes")) {
      spec.prefixes = read_prefixes(*prefixes);
    }
  }
  object.finish();
  return spec;
}

RequestSpec load_requests(const std::string& path) {
  if (path.ends_with(".csv")) {
    return read_csv_trace(path);
  }
  const Json document = read_json_file(path);
  return read_requests(JsonReader(document, path));
}

Json to_json(const RequestSpec& requests) {
  Json document = Json::Object{{"schema", kSchema}, {"version", kVersion}};
  if (!requests.trace.empty()) {
    Json list = Json::array();
    for (const Request& request : requests.trace) {
      Json entry = Json::Object{{"arrival_s", seconds_read_as(request.arrival)},
                                {"prompt", request.prompt},
                                {"output", request.output}};
      if (request.prefix >= 0) {
        entry.set("prefix", std::to_string(request.prefix));
        entry.set("prefix_tokens", request.shared);
      }
      list.push(std::move(entry));
    }
    document.set("requests", std::move(list));
    return document;
  }
  document.set("count", requests.count);
  document.set("arrivals", kArrivals[static_cast<std::size_t>(requests.arrivals)]);
  if (requests.arrivals != Arrivals::AtOnce) {
    document.set("requests_per_second", requests.requests_per_second);
  }
  document.set("prompt", to_json(requests.prompt));
  document.set("output", to_json(requests.output));
  document.set("seed", requests.seed);
  if (const PrefixSpec& prefixes = requests.prefixes; prefixes.count > 0) {
    document.set("prefixes", Json::Object{{"count", prefixes.count},
                                          {"tokens", prefixes.tokens},
                                          {"share", prefixes.share},
                                          {"slope", prefixes.slope}});
  }
  return document;
}

std::string_view to_text(Routing routing) { return kRoutings[static_cast<std::size_t>(routing)]; }

Routing routing_of(const std::string& name) {
  return parse_named<Routing>(kRoutings, name, "routing", "routing");
}

std::string_view to_text(AllReduce all_reduce) { return name_of(kAllReduces, all_reduce); }

AllReduce all_reduce_of(const std::string& name) {
  return parse_named<AllReduce>(kAllReduces, name, "all_reduce", "all-reduce");
}

ServingOptions read_serving_options(const JsonReader& value) {
  ObjectReader object = value.object();
  ServingOptions options;
  options.token_budget =
      object.integer_or("token_budget", options.token_budget, 1, limits::kMaxSequence);
  options.max_requests =
      object.integer_or("max_requests", options.max_requests, 1, limits::kMaxBatch);
  if (const auto prefill = object.optional("prefill")) {
    options.prefill =
        prefill->one_of(kPrefills) == kPrefills[0] ? Prefill::Chunked : Prefill::Separate;
  }
  options.chunk = object.integer_or("chunk", options.chunk, 0, limits::kMaxSequence);
  options.nano_batches = static_cast<int>(
      object.integer_or("nano_batches", options.nano_batches, 1, kMostNanoBatches));
  options.expected_output =
      object.integer_or("expected_output", options.expected_output, 0, limits::kMaxSequence);
  options.late_stop = object.boolean_or("late_stop", options.late_stop);
  if (const auto host = object.optional("host_per_iteration")) {
    options.host_per_iteration = host->duration();
  }
  options.cache_block =
      object.integer_or("cache_block", options.cache_block, 1, kLargestCacheBlock);
  options.prefix_hits = object.number_or("prefix_hits", options.prefix_hits, 0, 1);
  options.host_cache = object.number_or("host_cache", options.host_cache, 0, kMostOnHost);
  options.fp8_cache = object.boolean_or("fp8_cache", options.fp8_cache);
  options.overlap_chunks = object.boolean_or("overlap_chunks", options.overlap_chunks);
  if (const auto routing = object.optional("routing")) {
    options.routing = routing_of(std::string(routing->one_of(kRoutings)));
  }
  if (const auto all_reduce = object.optional("all_reduce")) {
    options.all_reduce = all_reduce_of(std::string(all_reduce->one_of(kAllReduces)));
  }
  object.finish();
  if (options.prefill == Prefill::Separate && options.chunk > 0) {
    value.fail("\"chunk\" belongs to chunked prefill",
               "leave it out or set prefill to \"chunked\"");
  }
  return options;
}

Json to_json(const ServingOptions& options) {
  return Json::Object{{"token_budget", options.token_budget},
                      {"max_requests", options.max_requests},
                      {"prefill", kPrefills[static_cast<std::size_t>(options.prefill)]},
                      {"chunk", options.chunk},
                      {"nano_batches", options.nano_batches},
                      {"expected_output", options.expected_output},
                      {"late_stop", options.late_stop},
                      {"host_per_iteration", quantity_text(options.host_per_iteration)},
                      {"cache_block", options.cache_block},
                      {"prefix_hits", options.prefix_hits},
                      {"host_cache", options.host_cache},
                      {"fp8_cache", options.fp8_cache},
                      {"overlap_chunks", options.overlap_chunks},
                      {"routing", to_text(options.routing)},
                      {"all_reduce", to_text(options.all_reduce)}};
}

namespace {

void add_prefixes(const PrefixSpec& prefixes, Random random, std::vector<Request>& requests) {
  if (prefixes.count == 0) {
    return;
  }
  const models::ZipfRows ranks(prefixes.count, prefixes.slope);
  const std::vector<std::int64_t> drawn =
      ranks.draw(static_cast<std::int64_t>(requests.size()), random.next());
  for (std::size_t index = 0; index < requests.size(); ++index) {
    Request& request = requests[index];
    if (random.uniform() < prefixes.share) {
      request.prefix = drawn[index];
      request.shared = prefixes.tokens;
      request.prompt += prefixes.tokens;
    }
  }
}

// A trace may be cut out of a longer one: what came before its first request is no time of serving.
std::vector<Request> from_the_first(std::vector<Request> requests) {
  const SimTime first = requests.front().arrival;
  for (Request& request : requests) {
    request.arrival = request.arrival - first;
  }
  return requests;
}

}  // namespace

std::vector<Request> generate_requests(const RequestSpec& spec) {
  if (!spec.trace.empty()) {
    return from_the_first(spec.trace);
  }
  const auto stream = [&](std::uint64_t index) {
    return Random(mix64(static_cast<std::uint64_t>(spec.seed) + index));
  };
  Random arrivals = stream(0);
  Random prompts = stream(1ULL << 32);
  Random outputs = stream(2ULL << 32);
  std::vector<Request> requests;
  requests.reserve(static_cast<std::size_t>(spec.count));
  double time = 0;
  for (std::int64_t index = 0; index < spec.count; ++index) {
    if (spec.arrivals == Arrivals::Poisson) {
      time += -std::log(1 - arrivals.uniform()) / spec.requests_per_second;
    } else if (spec.arrivals == Arrivals::Regular) {
      time = static_cast<double>(index) / spec.requests_per_second;
    }
    const std::int64_t prompt = draw_length(spec.prompt, prompts);
    requests.push_back({to_sim_time(Seconds(time)), prompt, draw_length(spec.output, outputs)});
  }
  add_prefixes(spec.prefixes, stream(3ULL << 32), requests);
  return requests;
}

void check_generates_text(const models::NetworkSpec& network, const std::string& where) {
  const bool decodes =
      network.family == models::Family::Gpt || network.family == models::Family::Llama;
  if (network.encoder.layers > 0) {
    bad_input(where,
              fmt::format("{} has an encoder, which is not modelled for serving", network.name));
  }
  if (!decodes || !network.causal) {
    bad_input(where,
              fmt::format("{} does not generate text token by token, so it cannot serve requests",
                          network.name));
  }
}

std::int64_t longest_request(const std::vector<Request>& requests) {
  std::int64_t longest = 0;
  for (const Request& request : requests) {
    longest = std::max(longest, request.prompt + request.output);
  }
  return longest;
}

}  // namespace orrery::plan
