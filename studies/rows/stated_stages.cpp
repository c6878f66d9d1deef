// SPDX-License-Identifier: Apache-2.0
#include "studies/rows/stated_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "base/text.hpp"
#include "base/words.hpp"
#include "studies/rows/row_words.hpp"
#include "studies/rows/settings.hpp"

namespace orrery::studies {
namespace {

// In the form of settings; "non-uniform" as "uneven", which denies nothing.
std::string remarks_on_stages(const Measurement& row) {
  constexpr std::string_view kUneven = "non uniform";
  std::string remarks = with_blanks(about_this_run(remarks_of(row)));
  for (std::size_t at = remarks.find(kUneven); at != remarks.npos; at = remarks.find(kUneven, at)) {
    remarks.replace(at, kUneven.size(), "uneven");
  }
  return remarks;
}

// The numbers that begin a text, behind a remark in brackets and signs: "(...): [19, 20]".
std::vector<int> list_behind(std::string_view text) {
  text = trim(text);
  if (text.starts_with('(') && text.size() > 1 && !is_digit(text[1])) {
    text.remove_prefix(std::min(text.size(), text.find(')')));
  }
  constexpr std::string_view kSigns = " ():=[";
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(kSigns)));
  std::vector<int> numbers;
  while (!text.empty() && is_digit(text.front())) {
    int number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (read.ec != std::errc() || number <= 0) {
      return {};
    }
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(" ,/|")));
  }
  return numbers;
}

// "layers per stage", "pipeline split", "non-uniform split"; not "train/test split".
constexpr auto kLists = std::to_array<std::string_view>(
    {"layers per stage", "layers per pipeline stage", "layers a stage", "pipeline split",
     "pp split", "stage split", "stages split", "layer split", "layers split", "uneven split",
     "stage layers", "layers of the stages"});

std::vector<int> listed_layers(std::string_view remarks, int stages) {
  for (const std::string_view phrase : kLists) {
    for (std::size_t at = remarks.find(phrase); at != remarks.npos;
         at = remarks.find(phrase, at + 1)) {
      std::vector<int> numbers = list_behind(remarks.substr(at + phrase.size()));
      if (static_cast<int>(numbers.size()) == stages && stages > 1) {
        return numbers;
      }
    }
  }
  return {};
}

int layers_named(std::string_view remarks, SettingNames names) {
  constexpr double kMost = 1e5;
  const double number = number_set(remarks, names).value_or(0);
  return number >= 1 && number <= kMost && number == std::floor(number) ? static_cast<int>(number)
                                                                        : 0;
}

// "first stage: 3 layers", "last stage has 2 layers"; 0 where something else is counted: "last
// stage 20% slower", "last stage: 23 GB".
int layers_of_end(std::string_view remarks, std::string_view name) {
  constexpr auto kJoints = std::to_array<std::string_view>({"of", "is", "has", "holds", "with"});
  for (std::size_t at = remarks.find(name); at != remarks.npos; at = remarks.find(name, at + 1)) {
    std::string_view rest = remarks.substr(at + name.size());
    rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" :=(")));
    for (const std::string_view joint : kJoints) {
      const bool joins = rest.starts_with(joint) && rest.substr(joint.size()).starts_with(' ');
      rest.remove_prefix(joins ? joint.size() + 1 : 0);
    }
    int layers = 0;
    const auto read = std::from_chars(rest.data(), rest.data() + rest.size(), layers);
    const std::string_view behind =
        trim(rest.substr(static_cast<std::size_t>(read.ptr - rest.data())));
    if (read.ec == std::errc() && layers > 0 && behind.starts_with("layer")) {
      return layers;
    }
  }
  return 0;
}

// "et*3|(tt|)*29|l" with every "*n" written out; "" where it is malformed or too long.
std::string spelt_out(std::string_view layout) {
  constexpr std::size_t kLongest = 4096;
  std::string text;
  std::size_t item = 0;             // where what a "*n" repeats begins
  std::vector<std::size_t> opened;  // brackets
  for (std::size_t at = 0; at < layout.size(); ++at) {
    const char c = layout[at];
    if (c == '(') {
      opened.push_back(text.size());
    } else if (c == ')') {
      if (opened.empty()) {
        return "";
      }
      item = opened.back();
      opened.pop_back();
    } else if (c == '*') {
      std::size_t times = 0;
      const auto read =
          std::from_chars(layout.data() + at + 1, layout.data() + layout.size(), times);
      const std::string repeated = text.substr(std::min(item, text.size()));
      if (read.ec != std::errc() || times == 0 || times * repeated.size() > kLongest) {
        return "";
      }
      for (std::size_t time = 1; time < times; ++time) {
        text += repeated;
      }
      at = static_cast<std::size_t>(read.ptr - layout.data()) - 1;
    } else {
      item = text.size();
      text += c;
    }
  }
  return text.size() > kLongest || !opened.empty() ? "" : text;
}

// Megatron-Core's --pipeline-model-parallel-layout: E(mbedding), t(ransformer layers), L(oss) and
// m (prediction of a second token, which plans leave out) of every virtual stage.
std::vector<int> drawn_stages(std::string_view remarks, int count) {
  const std::string plain = with_signs_as(remarks, ",;=:\"'`", ' ');
  for (const std::string_view word : split(plain, ' ')) {
    if (!word.starts_with('e') || word.find('|') == word.npos ||
        word.find_first_not_of("etml|()*0123456789") != word.npos) {
      continue;
    }
    const std::string layout = spelt_out(word);
    std::vector<int> stages;
    for (const std::string_view stage : split(layout, '|')) {
      const auto second = std::ranges::count(stage, 'm');
      stages.push_back(static_cast<int>(static_cast<std::ptrdiff_t>(stage.size()) - second));
    }
    if (static_cast<int>(stages.size()) == count && std::ranges::count(stages, 0) == 0) {
      return stages;
    }
  }
  return {};
}

// Layers of each device: as listed, or of first and last one with the others alike (Megatron-Core's
// num_layers_in_first_pipeline_stage, decoder_first_pipeline_num_layers before).
std::vector<int> layers_of_devices(const Measurement& row, int layers, int stages) {
  constexpr auto kFirst = std::to_array<std::string_view>(
      {"decoder first pipeline num layers", "num layers in first pipeline stage"});
  constexpr auto kLast = std::to_array<std::string_view>(
      {"decoder last pipeline num layers", "num layers in last pipeline stage"});
  const std::string remarks = remarks_on_stages(row);
  const int first = std::max(layers_named(remarks, kFirst), layers_of_end(remarks, "first stage"));
  const int last = std::max(layers_named(remarks, kLast), layers_of_end(remarks, "last stage"));
  const int others = stages - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const int rest = layers - first - last;
  if (others == stages || others < 1 || rest < others || rest % others != 0) {
    return {};
  }
  std::vector<int> devices(static_cast<std::size_t>(stages), rest / others);
  devices.front() = first > 0 ? first : devices.front();
  devices.back() = last > 0 ? last : devices.back();
  return devices;
}

bool counts_as_slot(std::string_view remarks, SettingNames names) {
  return switch_set(remarks, names).value_or(false);
}

// Embedding or head take the place of a layer: Megatron-Core's account_for_embedding_in_pipeline_
// split and account_for_loss_in_pipeline_split, and words for both.
struct Slots {
  bool embedding = false;
  bool loss = false;
};

Slots stated_slots(const Measurement& row) {
  constexpr auto kEmbedding =
      std::to_array<std::string_view>({"account for embedding in pipeline split"});
  constexpr auto kLoss = std::to_array<std::string_view>({"account for loss in pipeline split"});
  constexpr auto kBoth = std::to_array<std::string_view>(
      {"one slot each", "hold one layer fewer", "hold one fewer layer", "hold one layer less",
       "holds one layer fewer", "hold one less layer", "have one less layer",
       "have one fewer layer", "have one layer less", "have one layer fewer", "one layer less",
       "one layer fewer", "one fewer layer", "one less layer", "count as a layer each",
       "one layer slot each", "one layer each"});
  const std::string remarks = remarks_on_stages(row);
  constexpr auto kWhat = std::to_array<std::string_view>({"stage", "slot", "embedding"});
  const std::vector<std::string> clauses = asserted_clauses(remarks);
  const bool both = std::any_of(clauses.begin(), clauses.end(), [&](const std::string& clause) {
    return says_any(clause, kBoth) && says_any(clause, kWhat);
  });
  return {both || counts_as_slot(remarks, kEmbedding), both || counts_as_slot(remarks, kLoss)};
}

std::vector<int> slotted(const Slots& slots, int layers, int count) {
  const int places = layers + (slots.embedding ? 1 : 0) + (slots.loss ? 1 : 0);
  if ((!slots.embedding && !slots.loss) || places < count || places % count != 0) {
    return {};
  }
  std::vector<int> stages(static_cast<std::size_t>(count), places / count);
  stages.front() += slots.embedding ? 0 : 1;
  stages.back() += slots.loss ? 0 : 1;
  return stages;
}

// Of layers of devices or virtual stages: with embedding and head where they are not counted yet.
std::vector<int> with_ends(std::vector<int> stages, int blocks) {
  const auto sum = std::accumulate(stages.begin(), stages.end(), std::int64_t{0});
  if (!stages.empty() && sum == blocks - 2) {
    stages.front() += 1;
    stages.back() += 1;
    return stages;
  }
  return sum == blocks ? stages : std::vector<int>();
}

// Every device's layers in equal chunks.
std::vector<int> in_chunks(const std::vector<int>& devices, int chunks) {
  std::vector<int> stages;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    for (const int layers : devices) {
      if (layers % chunks != 0) {
        return {};
      }
      stages.push_back(layers / chunks);
    }
  }
  return stages;
}

}  // namespace

std::vector<int> stated_stages(const Measurement& row, const Pipeline& pipeline) {
  const int count = pipeline.stages * pipeline.chunks;
  const int layers = pipeline.blocks - 2;
  const std::string remarks = remarks_on_stages(row);
  for (const std::vector<int>& stages :
       {drawn_stages(remarks, count), listed_layers(remarks, count),
        in_chunks(listed_layers(remarks, pipeline.stages), pipeline.chunks),
        in_chunks(layers_of_devices(row, layers, pipeline.stages), pipeline.chunks)}) {
    if (std::vector<int> whole = with_ends(stages, pipeline.blocks); !whole.empty()) {
      return whole;
    }
  }
  return slotted(stated_slots(row), layers, count);
}

std::vector<std::string> unread_stages(const Measurement& row) {
  constexpr auto kWords = std::to_array<std::string_view>(
      {"layers per stage", "layers per pipeline stage", "pipeline split", "pipeline num layers",
       "pipeline layout", "first pipeline stage", "last pipeline stage", "uneven layer split",
       "uneven split", "uneven stages", "uneven pipeline", "standalone embedding"});
  if (row.pp.value_or(1) * row.vpp.value_or(1) > row.layers.value_or(0)) {
    return {};  // no pipeline is that deep
  }
  const int pp = static_cast<int>(row.pp.value_or(1));
  const int layers = static_cast<int>(row.layers.value_or(0));
  const int chunks = static_cast<int>(row.vpp.value_or(1));
  if (pp <= 1 || layers == 0 || !stated_stages(row, {layers + 2, pp, chunks}).empty() ||
      (chunks > 1 && !stated_stages(row, {layers + 2, pp, 1}).empty())) {
    return {};
  }
  std::vector<std::string> lines;
  for (const std::string& clause : asserted_clauses(remarks_on_stages(row))) {
    const bool even =
        layers % pp == 0 && trim(clause) == fmt::format("{} layers per stage", layers / pp);
    if (says_any(clause, kWords) && !even) {
      lines.push_back(
          fmt::format("\"{}\": layers of the stages as even", printable(trim(clause), 60)));
    }
  }
  return lines;
}

}  // namespace orrery::studies
