// SPDX-License-Identifier: Apache-2.0
#include "plan/serving/request_trace.hpp"

#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

#include "base/csv.hpp"
#include "base/error.hpp"
#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/text.hpp"

namespace orrery::plan {

namespace {

constexpr std::array<std::string_view, 5> kColumns = {"arrival_s", "prompt", "output", "prefix",
                                                      "prefix_tokens"};
constexpr std::string_view kNamePrefix = "name it in \"prefix\"";

SimTime arrival_of(double seconds) { return to_sim_time(Seconds(seconds)); }

void check_order(const std::vector<Request>& trace, const std::string& where) {
  const std::size_t last = trace.size() - 1;
  if (last > 0 && trace[last].arrival < trace[last - 1].arrival) {
    bad_input(where,
              fmt::format("request {} arrives at {} s, before request {} at {} s", last,
                          to_seconds(trace[last].arrival).value(), last - 1,
                          to_seconds(trace[last - 1].arrival).value()),
              "sort the trace by arrival");
  }
}

// "prefix": a name, with "prefix_tokens" of the prompt; equal names mean equal tokens.
struct PrefixNames {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> known;  // number and tokens

  void add(Request& request, const std::string& name, std::int64_t tokens,
           const std::string& where) {
    if (tokens > request.prompt) {
      bad_input(where, fmt::format("prefix_tokens = {} of a prompt of {}", tokens, request.prompt));
    }
    const auto number = static_cast<std::int64_t>(known.size());
    const auto [found, is_new] = known.try_emplace(name, number, tokens);
    if (found->second.second != tokens) {
      bad_input(where,
                fmt::format("prefix \"{}\" has {} tokens here and {} before", printable(name),
                            tokens, found->second.second),
                "requests of one prefix begin with the same tokens");
    }
    request.prefix = found->second.first;
    request.shared = tokens;
  }
};

}  // namespace

std::vector<Request> read_trace(const JsonReader& value) {
  std::vector<Request> trace;
  PrefixNames names;
  bool all_arrive = false;
  for (const JsonReader& entry : value.array()) {
    ObjectReader object = entry.object();
    const bool arrives = object.optional("arrival_s").has_value();
    if (!trace.empty() && arrives != all_arrive) {
      entry.fail(fmt::format("request {} has {} arrival_s, those before have {}", trace.size(),
                             arrives ? "an" : "no", arrives ? "none" : "one"),
                 "state it for all requests, or for none that are all there from the start");
    }
    all_arrive = arrives;
    const double arrival = object.number_or("arrival_s", 0, 0, kLastArrival);
    const std::int64_t prompt = object.required("prompt").integer(1, limits::kMaxSequence);
    const std::int64_t output = object.required("output").integer(1, limits::kMaxSequence);
    Request request{arrival_of(arrival), prompt, output};
    if (const auto name = object.optional("prefix")) {
      const std::int64_t tokens = object.required("prefix_tokens").integer(1, limits::kMaxSequence);
      names.add(request, name->string(), tokens, entry.where());
    } else if (object.optional("prefix_tokens")) {
      entry.fail("prefix_tokens of no prefix", kNamePrefix);
    }
    object.finish();
    trace.push_back(request);
    check_order(trace, entry.where());
  }
  if (trace.empty()) {
    value.fail("there are no requests");
  }
  return trace;
}

RequestSpec read_csv_trace(const std::string& path) {
  const CsvTable table = read_csv_file(path);
  table.expect_columns(kColumns);
  PrefixNames names;
  RequestSpec spec;
  for (std::size_t row = 0; row < table.num_rows(); ++row) {
    const auto tokens = [&](std::string_view column) {
      return parse_integer(table.cell(row, column), table.where(row, column), 1,
                           limits::kMaxSequence);
    };
    const double arrival = table.has_column("arrival_s")
                               ? parse_number(table.cell(row, "arrival_s"),
                                              table.where(row, "arrival_s"), 0.0, kLastArrival)
                               : 0.0;
    Request request{arrival_of(arrival), tokens("prompt"), tokens("output")};
    if (table.has_column("prefix") && !table.cell(row, "prefix").empty()) {
      names.add(request, std::string(table.cell(row, "prefix")), tokens("prefix_tokens"),
                table.where(row, "prefix"));
    } else if (table.has_column("prefix_tokens") && !table.cell(row, "prefix_tokens").empty()) {
      bad_input(table.where(row, "prefix_tokens"), "prefix_tokens of no prefix", kNamePrefix);
    }
    spec.trace.push_back(request);
    check_order(spec.trace, fmt::format("{}:{}", path, table.line(row)));
  }
  if (spec.trace.empty()) {
    bad_input(path, "there are no requests");
  }
  spec.count = static_cast<std::int64_t>(spec.trace.size());
  return spec;
}

}  // namespace orrery::plan
