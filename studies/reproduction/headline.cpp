// SPDX-License-Identifier: Apache-2.0
#include "studies/reproduction/headline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

namespace {

constexpr std::string_view kFolder = "studies/headlines";

std::string text_or_empty(ObjectReader& reader, std::string_view key) {
  return reader.string_or(key, "");
}

std::optional<double> number_or_none(ObjectReader& reader, std::string_view key) {
  const auto value = reader.optional(key);
  return value ? std::optional(value->number(-1e300, 1e300)) : std::nullopt;
}

Check read_check(const JsonReader& value, const std::string& name) {
  ObjectReader reader = value.object();
  Check check{reader.string_or("name", name),
              number_or_none(reader, "published"),
              std::nullopt,
              std::nullopt,
              reader.required("simulated"),
              reader.string_or("outside", ""),
              text_or_empty(reader, "unjudged")};
  if (const auto band = reader.optional("band")) {
    const std::vector<JsonReader> ends = band->array(2);
    if (ends.size() != 2) {
      band->fail("expected [low, high]", "null leaves a side open");
    }
    const auto end = [](const JsonReader& number) {
      return number.json().is_null() ? std::nullopt : std::optional(number.number(-1e300, 1e300));
    };
    check.low = end(ends[0]);
    check.high = end(ends[1]);
    if (check.low && check.high && *check.low > *check.high) {
      band->fail("the low end is above the high end");
    }
  }
  reader.finish();
  if (!is_kebab_case(check.name) || !check.name.starts_with(name)) {
    value.fail("the name of a check begins with the headline's and is in kebab-case");
  }
  return check;
}

Verdict judge(const Headline& headline, const Check& check, double simulated) {
  if (!headline.unjudged.empty() || !check.unjudged.empty() || (!check.low && !check.high)) {
    return Verdict::Unjudged;
  }
  const bool low = check.low && simulated < *check.low;
  const bool high = check.high && simulated > *check.high;
  return low || high ? Verdict::Outside : Verdict::Inside;
}

}  // namespace

std::string_view to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::Inside:
      return "inside";
    case Verdict::Outside:
      return "outside";
    case Verdict::Unjudged:
      return "unjudged";
  }
  return "";
}

std::vector<std::string> headline_names() { return data_names(kFolder); }

Json load_headline(const std::string& name) {
  const std::vector<std::string> names = headline_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    return read_json_file(data_path(fmt::format("{}/{}.json", kFolder, name)));
  }
  if (name.ends_with(".json")) {
    return read_json_file(name);
  }
  // The beginning of a name is one, too, up to a hyphen.
  std::vector<std::string> known;
  for (const std::string& full : names) {
    for (std::size_t end = full.find('-'); end != std::string::npos;
         end = full.find('-', end + 1)) {
      known.push_back(full.substr(0, end));
    }
    known.push_back(full);
  }
  known.erase(std::unique(known.begin(), known.end()), known.end());
  bad_input(
      "reproduce", "unknown headline \"" + printable(name) + "\"",
      nearest_name(name, known).empty() ? nearest_hint(name, names) : nearest_hint(name, known));
}

Headline read_headline(const Json& document, const std::string& where) {
  ObjectReader reader = JsonReader(document, where).object();
  reader.expect_schema("orrery-headline", 1);
  Headline headline;
  headline.name = reader.required("name").string();
  headline.system = reader.required("system").string();
  headline.claim = reader.required("claim").string();
  headline.source = reader.required("source").string();
  headline.assumption = text_or_empty(reader, "assumption");
  headline.unjudged = text_or_empty(reader, "unjudged");
  ObjectReader runs = reader.required("runs").object();
  for (const std::string& name : runs.keys()) {
    headline.runs.emplace_back(name, runs.required(name));
  }
  runs.finish();
  const JsonReader checks = reader.required("checks");
  for (const JsonReader& check : checks.array(256)) {
    headline.checks.push_back(read_check(check, headline.name));
  }
  if (headline.checks.empty()) {
    checks.fail("expected at least one check");
  }
  reader.finish();
  return headline;
}

std::vector<Reproduced> reproduce(const Headline& headline) {
  Json results = Json::object();
  for (const auto& [name, run] : headline.runs) {
    const Json filled = fill_values(run, results);
    results.set(name, run_of_headline(JsonReader(filled, run.where())));
  }
  std::vector<Reproduced> all;
  for (const Check& check : headline.checks) {
    Reproduced one{check.name,
                   headline.system,
                   headline.claim,
                   check.published,
                   evaluate(check.expression, results),
                   check.low,
                   check.high,
                   Verdict::Unjudged,
                   check.unjudged.empty() ? headline.unjudged : check.unjudged,
                   headline.source};
    one.verdict = judge(headline, check, one.simulated);
    if (one.verdict == Verdict::Outside && !check.outside.empty()) {
      one.reason = check.outside;
    } else if (one.verdict == Verdict::Unjudged && one.reason.empty()) {
      one.reason = "no band is stated";
    } else if (one.verdict != Verdict::Unjudged) {
      one.reason = headline.assumption;
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace orrery::studies
