// SPDX-License-Identifier: Apache-2.0
// Published headline results, re-run: a headline is a JSON file in studies/headlines/ that names
// runs (pipeline schedules, planners, searches on real networks and clusters), an expression over
// their results, the published figure, the band it should fall into and the source. A headline is
// judged only where the source states every input; otherwise it is run, printed and `unjudged`.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"

namespace orrery::studies {

// A number from named results: a number itself, "run.member.0.member", or ["op", argument, ...]
// with + - * / min max sum mean ceil. Arrays given as arguments are taken apart. Errors name the
// place in the document.
double evaluate(const JsonReader& expression, const Json& results);

struct Check {
  std::string name;
  std::optional<double> published;
  std::optional<double> low;
  std::optional<double> high;
  JsonReader expression;
  std::string outside;   // why it stays outside its band, where that is known
  std::string unjudged;  // why this one is not judged, where the others of the headline are
};

struct Headline {
  std::string name;
  std::string system;
  std::string claim;
  std::string source;
  std::string assumption;  // what the runs assume that the source does not state
  std::string unjudged;    // why it is not judged; empty: it is
  std::vector<std::pair<std::string, JsonReader>> runs;
  std::vector<Check> checks;
};

enum class Verdict { Inside, Outside, Unjudged };
std::string_view to_text(Verdict verdict);

struct Reproduced {
  std::string name;
  std::string system;
  std::string claim;
  std::optional<double> published;
  double simulated = 0;
  std::optional<double> low;
  std::optional<double> high;
  Verdict verdict = Verdict::Unjudged;
  std::string reason;
  std::string source;
};

// Of the data folder, sorted.
std::vector<std::string> headline_names();
// A name of the project's own headlines, or a JSON file. The document must outlive the headline.
Json load_headline(const std::string& name);
Headline read_headline(const Json& document, const std::string& where);

// Runs everything a headline names; one entry for each of its checks.
std::vector<Reproduced> reproduce(const Headline& headline);

// The result of one run, as the command of that kind prints it with --json.
Json run_of_headline(const JsonReader& run);

}  // namespace orrery::studies
