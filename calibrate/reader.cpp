// SPDX-License-Identifier: Apache-2.0
#include "calibrate/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "calibrate/byte_stream.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

constexpr std::size_t kHeadBytes = 64 << 10;

std::vector<std::string> reader_names() {
  std::vector<std::string> names;
  for (const SampleReader* reader : reader_table()) {
    names.emplace_back(reader->name);
  }
  return names;
}

// The first text behind a member "schema"; empty where there is none.
std::string schema_of(std::string_view text) {
  constexpr std::string_view kMember = "\"schema\"";
  const std::size_t member = text.find(kMember);
  if (member == std::string_view::npos) {
    return "";
  }
  const std::string_view rest = trim(text.substr(member + kMember.size()));
  const std::size_t begin = rest.find('"');
  const std::size_t end = begin == std::string_view::npos ? begin : rest.find('"', begin + 1);
  const bool follows = rest.starts_with(':') && end != std::string_view::npos &&
                       trim(rest.substr(1, begin - 1)).empty();
  return follows ? std::string(rest.substr(begin + 1, end - begin - 1)) : "";
}

// The table that has most of its columns here, and those that it lacks; "" when none comes near.
std::string nearest_table(const FileHead& head) {
  std::string nearest;
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const SampleReader* reader : reader_table()) {
    const std::vector<std::string> missing = missing_columns(head, reader->columns);
    const std::size_t needed = split(reader->columns, ',').size();
    if (!missing.empty() && 2 * missing.size() < needed && missing.size() < fewest) {
      fewest = missing.size();
      nearest = fmt::format("a table of {} has {}, too", reader->name, fmt::join(missing, ", "));
    }
  }
  return nearest;
}

// The sign between the columns of a table that would be known with commas; '\0' where there is
// none.
char other_separator(const FileHead& head) {
  for (const char sign : {';', '\t', '|'}) {
    FileHead table{head.name, head.text.substr(0, head.text.find('\n'))};
    if (table.text.find(sign) == std::string::npos) {
      continue;
    }
    std::replace(table.text.begin(), table.text.end(), sign, ',');
    const bool is_known = std::ranges::any_of(reader_table(), [&](const SampleReader* reader) {
      return !reader->columns.empty() && missing_columns(table, reader->columns).empty();
    });
    if (is_known || !nearest_table(table).empty()) {
      return sign;
    }
  }
  return '\0';
}

// JSON that nothing is recognised in may be cut off or damaged before what would tell its format.
void check_is_whole(const FileHead& head) {
  const std::string_view text = trim(head.text);
  const bool json = text.starts_with('{') || text.starts_with('[');
  if (json && head.text.size() < kHeadBytes) {
    try {
      parse_json(head.text, head.name);
    } catch (const Error& error) {
      bad_input(head.name, "JSON that is cut off or damaged before its format shows", error.what());
    }
  }
}

bool recognises(const SampleReader& reader, const FileHead& head) {
  return missing_columns(head, reader.columns).empty() &&
         (reader.recognises == nullptr || reader.recognises(head));
}

}  // namespace

const SampleReader& find_reader(const std::string& name) {
  for (const SampleReader* reader : reader_table()) {
    if (reader->name == name) {
      return *reader;
    }
  }
  bad_input("--format", "unknown format \"" + printable(name) + "\"",
            nearest_hint(name, reader_names()));
}

FileHead read_head(const std::string& path) {
  ByteStream stream(path);
  FileHead head{path, std::string(kHeadBytes, '\0')};
  stream.read(head.text.data(), static_cast<std::streamsize>(kHeadBytes));
  head.text.resize(static_cast<std::size_t>(stream.gcount()));
  head.damage = stream.damage();
  return head;
}

const SampleReader& detect_reader(const std::string& path) {
  std::error_code ignored;  // reading says it
  if (std::filesystem::is_fifo(path, ignored)) {
    bad_input(path, "a pipe can be read only once, and its format is not known before",
              "name it with --format");
  }
  const FileHead head = read_head(path);
  if (trim(head.text).empty() && head.damage.empty()) {
    bad_input(path, "the file is empty");
  }
  if (head.text.starts_with("\xFF\xFE") || head.text.starts_with("\xFE\xFF")) {
    bad_input(path, "text in UTF-16", "convert it to UTF-8");
  }
  for (const SampleReader* reader : reader_table()) {
    if (recognises(*reader, head)) {
      return *reader;
    }
  }
  if (!head.damage.empty()) {
    bad_input(path, head.damage, "copy the file again");
  }
  // One of our own documents, or samples whose schema is misspelt.
  if (const std::string schema = schema_of(head.text); schema.starts_with("orrery")) {
    bad_input(path, fmt::format("a document of schema \"{}\"", printable(schema, 40)),
              "samples are of schema \"orrery-samples\"");
  }
  check_is_whole(head);
  if (const char sign = other_separator(head); sign != '\0') {
    bad_input(path + ":1",
              fmt::format("columns are separated by {}",
                          sign == '\t' ? std::string("tabs") : fmt::format("'{}'", sign)),
              "separate them by commas");
  }
  if (const std::string near = nearest_table(head); !near.empty()) {
    bad_input(path, "the format is not recognised", near);
  }
  bad_input(path, "the format is not recognised",
            fmt::format("name it with --format: {}", fmt::join(reader_names(), ", ")));
}

Reading read_foreign(const std::string& path, const std::string& format,
                     const ReadOptions& options) {
  const SampleReader& reader = format.empty() ? detect_reader(path) : find_reader(format);
  return reader.read(path, options);
}

}  // namespace orrery::calibrate
