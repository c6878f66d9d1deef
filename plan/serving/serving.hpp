// SPDX-License-Identifier: Apache-2.0
// What a serving plan serves and how: requests (generated or a trace) and the choices of an engine
// with continuous batching - tokens of an iteration, chunked or separate prefill, nano-batches.
// Prompts may begin with a prefix that others have in common: its keys and values are held once.
// Requests documents ("schema": "orrery-requests") are read from JSON; a trace may be CSV as well
// (columns arrival_s, prompt, output). Generation is seeded: arrivals, prompts and outputs have
// streams of their own, so that another rate leaves the lengths as they are. docs/serving.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "base/sim_time.hpp"
#include "models/network.hpp"

namespace orrery::plan {

struct Request {
  SimTime arrival;
  std::int64_t prompt = 0;  // tokens
  std::int64_t output = 0;  // tokens to generate, at least one
  // The prompt begins with so many tokens that all requests of this prefix have in common.
  std::int64_t shared = 0;
  std::int64_t prefix = -1;  // -1: none
  bool operator==(const Request&) const = default;
};

// Prefixes that generated requests begin with: which one follows Zipf's law.
struct PrefixSpec {
  std::int64_t count = 0;   // 0: none
  std::int64_t tokens = 0;  // of each, before the prompt that is drawn
  double share = 1;         // of the requests
  double slope = 1;
  bool operator==(const PrefixSpec&) const = default;
};

// Tokens: constant where `deviation` is 0, else log-normal with this mean and standard deviation,
// drawn again until it is at most `max` (0: no bound). Both are those before the truncation.
struct LengthSpec {
  double mean = 0;
  double deviation = 0;
  std::int64_t max = 0;
  bool operator==(const LengthSpec&) const = default;
};

enum class Arrivals : std::uint8_t { AtOnce, Poisson, Regular };

struct RequestSpec {
  std::int64_t count = 0;
  Arrivals arrivals = Arrivals::AtOnce;
  double requests_per_second = 0;
  LengthSpec prompt;
  LengthSpec output;
  std::int64_t seed = 0;
  PrefixSpec prefixes{};
  std::vector<Request> trace;  // in order of arrival; not empty: nothing above matters
  bool operator==(const RequestSpec&) const = default;
};

// Chunked: prompts fill what the decoding requests leave of an iteration. Separate: iterations of
// whole prompts, during which the others wait.
enum class Prefill : std::uint8_t { Chunked, Separate };

// Which replica a request goes to when it arrives (serving/routing.hpp).
enum class Routing : std::uint8_t { InTurn, LeastLoaded, Prefix };

// How all-reduces run: as NCCL decides, or as messages over slow links (serving/messages.hpp).
// Fastest: each as that of the three which takes least for its bytes.
enum class AllReduce : std::uint8_t { Nccl, Star, Tree, Ring, Fastest };

struct ServingOptions {
  std::int64_t token_budget = 2048;  // of one iteration
  std::int64_t max_requests = 1024;  // running at once, in each group of a pipeline
  Prefill prefill = Prefill::Chunked;
  std::int64_t chunk = 0;  // most tokens of one prompt in an iteration; 0: no bound
  int nano_batches = 1;    // parts of an iteration that overlap compute, memory, network
  // Output tokens that admission expects of a request; 0: its length is known. A wrong guess may
  // run out of KV cache: then the youngest request is evicted and computed again.
  std::int64_t expected_output = 0;
  // The batch of the next iteration is formed before this one ends, so that the end of a request is
  // noticed one iteration late.
  bool late_stop = false;
  Seconds host_per_iteration;  // scheduling and sampling that nothing hides
  std::int64_t cache_block =
      1;  // tokens of a page of the cache; the last page of a request is partly waste
  // Share of every prompt whose keys and values are found in the cache: not computed, but read. A
  // request's own copy of them is counted.
  double prefix_hits = 0;
  double host_cache =
      0;  // share of the cached tokens that lives on the host, fetched layer by layer
  // Keys and values are cached in 8 bits, with a scale a tensor. Attention widens them as it reads
  // them, or computes in fp8 (Execution::fp8_attention).
  bool fp8_cache = false;
  // Chunks of one prompt follow each other through the stages of a pipeline; else the next one
  // begins when the last stage is done with the one before.
  bool overlap_chunks = false;
  Routing routing = Routing::InTurn;
  AllReduce all_reduce = AllReduce::Nccl;
  bool operator==(const ServingOptions&) const = default;
};

struct Serving {
  RequestSpec requests;
  ServingOptions options;
  bool operator==(const Serving&) const = default;
};

RequestSpec read_requests(const JsonReader& document);
// A requests document (JSON) or a trace (a name that ends in .csv).
RequestSpec load_requests(const std::string& path);
Json to_json(const RequestSpec& requests);
std::string_view to_text(Routing routing);       // "in-turn", "least-loaded", "prefix"
Routing routing_of(const std::string& name);     // of these
std::string_view to_text(AllReduce all_reduce);  // "nccl", "star", ..., "fastest"
AllReduce all_reduce_of(const std::string& name);
ServingOptions read_serving_options(const JsonReader& value);
Json to_json(const ServingOptions& options);

// The requests in order of arrival.
std::vector<Request> generate_requests(const RequestSpec& spec);
// Most tokens a request ever holds: prompt + output.
std::int64_t longest_request(const std::vector<Request>& requests);

// Error(BadInput), citing `where`, for networks that do not generate text token by token.
void check_generates_text(const models::NetworkSpec& network, const std::string& where);

}  // namespace orrery::plan
