// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/gpu_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/limits.hpp"
#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/batch_cells.hpp"
#include "studies/rows/row_cluster.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"
#include "topologies/cluster.hpp"
#include "topologies/documents.hpp"
#include "topologies/words.hpp"

namespace orrery::studies {
namespace {

struct KnownGpu {
  std::string name;
  int gigabytes = 0;
};

const std::vector<KnownGpu>& gpus_with_memory() {
  static const std::vector<KnownGpu> kGpus = [] {
    std::vector<KnownGpu> gpus;
    for (const std::string& name : topologies::gpu_names()) {
      if (const int gigabytes = topologies::stated_gigabytes(name); gigabytes > 0) {
        gpus.push_back({name, gigabytes});
      }
    }
    return gpus;
  }();
  return kGpus;
}

// "V100-SXM2": no memory is stated, and with another one the words would name another GPU.
bool leaves_memory_open(const std::string& text, const std::string& gpu) {
  if (topologies::stated_gigabytes(text) > 0 || !topologies::find_node_in_words(text).empty()) {
    return false;
  }
  const std::string model = gpu.substr(0, gpu.find('-') + 1);
  return std::any_of(gpus_with_memory().begin(), gpus_with_memory().end(), [&](const auto& known) {
    return known.name != gpu && known.name.starts_with(model) &&
           topologies::similar_gpu(fmt::format("{} {}GB", text, known.gigabytes)) == known.name;
  });
}

// "MI250X": software sees the two dies of the module as a GPU each.
bool may_mean_modules(const std::string& text, const std::string& gpu) {
  return gpu.ends_with("-gcd") && to_lower(text).find("gcd") == std::string::npos &&
         topologies::stated_gigabytes(text) == 0;
}

// "(500W)", "500 W"; 0 where the words state no power.
int stated_watts(std::string_view text) {
  for (std::size_t at = text.find_first_of("0123456789"); at < text.size();) {
    const std::size_t end = std::min(text.size(), text.find_first_not_of("0123456789", at));
    const std::size_t unit = std::min(text.size(), text.find_first_not_of(' ', end));
    const std::string word = to_lower(text.substr(unit, text.find_first_of(" -,;)/", unit) - unit));
    if ((word == "w" || word == "watt" || word == "watts") && end - at <= 4) {
      return std::stoi(std::string(text.substr(at, end - at)));
    }
    at = text.find_first_of("0123456789", end);
  }
  return 0;
}

// "16 nodes" and "8 GPUs" without what they count.
std::string_view without_hardware(std::string_view text) {
  text = trim(text);
  for (const std::string_view noun : {"nodes", "node", "gpus"}) {
    if (to_lower(text).ends_with(noun)) {
      return trim(text.substr(0, text.size() - noun.size()));
    }
  }
  return text;
}

// The product of `factors` counts, "16 nodes x 8 GPUs"; no value for other texts.
OptionalCount product_of(std::string_view cell, std::size_t factors) {
  std::int64_t product = 1;
  const std::vector<std::string_view> parts = split(cell, 'x');
  for (const std::string_view part : parts) {
    const std::string_view digits = without_hardware(part);
    std::int64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto read = std::from_chars(digits.data(), end, value);
    if (parts.size() != factors || read.ec != std::errc() || read.ptr != end || value < 1 ||
        value > limits::kMaxDevices) {
      return std::nullopt;
    }
    product *= value;
  }
  return product;
}

// "8 nodes", "64 A100"; no value where that takes a guess: nodes of which GPUs are not counted,
// GPUs of another name than the row's, and names of modules that hold two.
OptionalCount count_of_hardware(const std::string& cell, const Measurement& row) {
  constexpr auto kNodes =
      std::to_array<std::string_view>({"nodes", "node", "servers", "hosts", "machines"});
  constexpr auto kPairs = std::to_array<std::string_view>({"mi250", "gb200", "gb300"});
  std::int64_t count = 0;
  const auto read = std::from_chars(cell.data(), cell.data() + cell.size(), count);
  std::string name = to_lower(trim(std::string_view(read.ptr, cell.data() + cell.size())));
  if (read.ec != std::errc() || count < 1 || count > limits::kMaxDevices || name.empty()) {
    return std::nullopt;
  }
  if (is_among(name, kNodes)) {
    return row.gpus_per_node ? OptionalCount(count * *row.gpus_per_node) : std::nullopt;
  }
  name = letters_and_digits(name);
  std::string_view plain = name;
  plain.remove_suffix(plain.ends_with('s') ? 1 : 0);
  const bool named = !plain.empty() && is_letter(plain.front()) &&
                     plain.find_first_of("0123456789") != plain.npos &&
                     letters_and_digits(row.gpu).find(plain) != std::string::npos;
  const bool pairs =
      std::ranges::any_of(kPairs, [&](std::string_view pair) { return plain.starts_with(pair); });
  return named && !pairs && !stated_gpu(row.gpu).empty() ? OptionalCount(count) : std::nullopt;
}

}  // namespace

OptionalCount read_gpus(const Cells& cells, Measurement& row) {
  std::string cell = cells.optional_text("gpus");
  const std::size_t bracket = cell.find('(');
  const bool in_bracket = bracket != cell.npos &&
                          to_lower(before_remark(cell)).ends_with("nodes") &&
                          to_lower(cell).ends_with("gpus)");
  if (in_bracket) {
    cell = cell.substr(bracket + 1, cell.size() - bracket - 2);  // "8 nodes (64 GPUs)"
  }
  OptionalCount count = product_of(cell, in_bracket ? 1 : 2);
  if (!count && (count = count_of_hardware(cell, row))) {
    row.remarks.push_back(fmt::format("gpus {} as {}", printable(cell, 60), *count));
  }
  if (!count) {
    return round_count(cells, "gpus", limits::kMaxDevices, kBinary, row);
  }
  if (*count > limits::kMaxDevices) {
    cells.refuse("gpus", "is not a count", fmt::format("at most {}", limits::kMaxDevices));
  }
  return count;
}

std::vector<std::string> gpu_notes(const std::string& text) {
  constexpr double kSame = 0.05;
  const std::string gpu = stated_gpu(text);
  std::vector<std::string> notes;
  if (gpu.empty()) {
    return notes;
  }
  if (topologies::find_gpu_in_words(text).empty() || leaves_memory_open(text, gpu) ||
      may_mean_modules(text, gpu)) {
    notes.push_back(fmt::format("GPU {} as {}", printable(text, 60), gpu));
  }
  const double watts = topologies::load_gpu(gpu).power_watts;
  const int stated = stated_watts(text);
  if (stated > 0 && watts > 0 && std::abs(stated / watts - 1) > kSame) {
    notes.push_back(fmt::format("{} of {:g} W, not {}", gpu, watts, stated));
  }
  return notes;
}

bool names_several_gpus(const std::string& text) {
  std::string architecture;
  constexpr std::string_view kAnd = " and ";
  std::string parts = text;
  if (const std::size_t at = to_lower(parts).find(kAnd); at != parts.npos) {
    parts.replace(at, kAnd.size(), "+");
  }
  parts = with_signs_as(parts, "/&", '+');
  for (const std::string_view part : split(parts, '+')) {
    const std::string gpu = topologies::similar_gpu(part);
    if (gpu.empty()) {
      continue;
    }
    const std::string now = topologies::load_gpu(gpu).architecture;
    if (!architecture.empty() && now != architecture) {
      return true;
    }
    architecture = now;
  }
  return false;
}

std::string gpu_hint(const std::string& text) {
  std::vector<std::string> names = topologies::gpu_names();
  for (const std::string& name : topologies::gpu_names()) {
    names.push_back(name.substr(0, name.find('-')));
  }
  std::string key = to_lower(before_remark(text));
  std::replace(key.begin(), key.end(), ' ', '-');
  const std::string meant = misspelt_name(key, names);
  return meant.empty() ? std::string() : fmt::format(" (did you mean \"{}\"?)", meant);
}

std::string counted_modules(const Measurement& row, const std::string& gpus) {
  constexpr auto kTwo = std::to_array<std::string_view>(
      {"2 gcds", "two gcds", "module as one gpu", "gpus are modules", "gpus as modules",
       "gpu modules", "counts modules", "counted in modules", "count of modules", "mi250x modules",
       "mi250 modules", "modules of two"});
  constexpr std::int64_t kModules = 4;  // of a node
  const std::string bracket = to_lower(gpus).substr(std::min(gpus.size(), gpus.find('(')));
  const std::int64_t all = row.gpus.value_or(0);
  const bool twice = all > 0 && bracket.starts_with(fmt::format("({} gcd", 2 * all));
  const bool said = has_word(asserted_with_blanks(row.notes), kTwo) &&
                    row.gpus_per_node.value_or(2 * kModules) <= kModules;
  return mentions(row.gpu, "mi250") && (twice || said)
             ? fmt::format("{} is a module of two GPUs, each a rank: state {} GPUs",
                           printable(row.gpu, 60), 2 * all)
             : std::string();
}

}  // namespace orrery::studies
