// SPDX-License-Identifier: Apache-2.0
#include "search/space/restrictions.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace orrery::search {
namespace {

constexpr std::int64_t kMostEntries = 256;

// One text of a member, as the command line has it.
struct DocumentEntry {
  JsonReader where;
  std::string text;
};

void add_fields(const JsonReader& value, bool lists, std::vector<DocumentEntry>& entries) {
  ObjectReader object = value.object();
  for (const std::string& field : object.keys()) {
    const JsonReader one = object.required(field);
    if (lists && one.json().is_array()) {
      for (const JsonReader& each : one.array(kMostEntries)) {
        entries.push_back({each, field + "=" + scalar_text(each)});
      }
    } else {
      entries.push_back({one, field + "=" + scalar_text(one)});
    }
  }
  object.finish();
}

struct DocumentMember {
  const char* key;
  bool has_fields;
  bool has_lists;  // of values of a field
  void (Constraints::*use)(std::string_view text, std::string_view from);
  const char* option;
};

constexpr std::array kMembers = {
    DocumentMember{"fix", true, false, &Constraints::fix, "--fix"},
    DocumentMember{"schedule", false, false, &Constraints::choose_schedule, "--schedule"},
    DocumentMember{"forbid", true, true, &Constraints::forbid, "--forbid"},
    DocumentMember{"allow", false, false, &Constraints::allow, "--allow"}};

std::vector<DocumentEntry> entries_of(const JsonReader& value, const DocumentMember& member) {
  std::vector<DocumentEntry> entries;
  if (member.has_fields && value.json().is_object()) {
    add_fields(value, member.has_lists, entries);
  } else if (value.json().is_string()) {
    entries.push_back({value, value.string()});
  } else {
    for (const JsonReader& entry : value.array(kMostEntries)) {
      entries.push_back({entry, entry.string()});
    }
  }
  return entries;
}

// What it says behind its place.
std::string message_of(const Error& error) {
  const std::size_t place = error.where().empty() ? 0 : error.where().size() + 2;
  return std::string(std::string_view(error.what()).substr(place));
}

}  // namespace

std::string scalar_text(const JsonReader& value) {
  const Json& json = value.json();
  if (json.is_string()) {
    return value.string();
  }
  if (json.is_array() || json.is_object() || json.is_null()) {
    value.fail("expected a number, a text or true or false");
  }
  return json.dump(-1);
}

bool read_restrictions(ObjectReader& object, Constraints& constraints, NamedBy named_by,
                       std::string (*words)(const Error&)) {
  bool restricts = false;
  for (const DocumentMember& member : kMembers) {
    const std::optional<JsonReader> value = object.optional(member.key);
    if (!value) {
      continue;
    }
    for (const DocumentEntry& entry : entries_of(*value, member)) {
      const std::string place = entry.where.where();
      restricts = restricts || !trim(entry.text).empty();
      try {
        (constraints.*member.use)(entry.text, named_by == NamedBy::Option ? member.option : place);
      } catch (const Error& error) {
        throw Error(error.kind(), place, words(error));
      }
    }
  }
  return restricts;
}

void read_restrictions(const std::string& path, Constraints& constraints) {
  const Json document = read_json_file(path);
  const JsonReader reader(document, path);
  ObjectReader object = reader.object();
  if (object.has("schema") || object.has("version")) {
    object.expect_schema("orrery-restrictions", 1);
  }
  const std::size_t before = constraints.restrictions().size();
  const bool restricts = read_restrictions(object, constraints, NamedBy::Place, &message_of);
  object.finish();
  if (!restricts) {
    reader.fail("restricts nothing", "give \"fix\", \"forbid\", \"schedule\" or \"allow\"");
  }
  constraints.set_file(before, path);
}

}  // namespace orrery::search
