// SPDX-License-Identifier: Apache-2.0
// Tiny random chains and every way to cut them, for planners against brute force.
#pragma once

#include <fmt/format.h>
#include <rapidcheck.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "search/planner.hpp"

namespace orrery::search {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

inline Json solve(std::string_view name, const std::string& text) {
  return run_planner(find_planner(name, "test"), parse_json(text, "problem"), "problem");
}

inline double number(const Json& answer, std::string_view key) {
  return answer.find(key)->as_number();
}

// Any of [from, to), each as likely: `inRange` alone draws few large ones.
inline int evenly(int from, int to) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(from, to));
}

struct Layer {
  int time = 1;         // ms
  int output = 1;       // MB
  int parameters = 1;   // MB
  int activations = 1;  // MB
};

inline std::vector<Layer> random_layers(int most) {
  const int count = evenly(1, most + 1);
  std::vector<Layer> layers;
  for (int i = 0; i < count; ++i) {
    layers.push_back({evenly(1, 20), evenly(1, 30), evenly(1, 30), evenly(1, 30)});
  }
  return layers;
}

inline std::string to_text(const std::vector<Layer>& layers) {
  std::string text;
  for (const Layer& layer : layers) {
    text += fmt::format(
        R"({}{{"backward": "{} ms", "output": "{} MB", "parameters": "{} MB", "activations": "{} MB"}})",
        text.empty() ? "" : ",", layer.time, layer.output, layer.parameters, layer.activations);
  }
  return text;
}

inline double sum(const std::vector<Layer>& layers, int first, int last, int Layer::*member) {
  double total = 0;
  for (int i = first; i < last; ++i) {
    total += layers[static_cast<std::size_t>(i)].*member;
  }
  return total;
}

// Calls `use` with every way to cut n layers into consecutive stages.
inline void all_cuts(int n, int most,
                     const std::function<void(const std::vector<int>& ends)>& use) {
  std::vector<int> ends;
  const std::function<void(int)> extend = [&](int from) {
    if (from == n) {
      use(ends);
      return;
    }
    if (static_cast<int>(ends.size()) == most) {
      return;
    }
    for (int end = from + 1; end <= n; ++end) {
      ends.push_back(end);
      extend(end);
      ends.pop_back();
    }
  };
  extend(0);
}

// Calls `use` with every split of at most `total` into `parts` positive numbers that uses it all.
inline void all_shares(int total, std::size_t parts,
                       const std::function<void(const std::vector<int>&)>& use) {
  std::vector<int> shares;
  const std::function<void(int)> extend = [&](int left) {
    if (shares.size() == parts) {
      if (left == 0) {
        use(shares);
      }
      return;
    }
    for (int r = 1; r <= left; ++r) {
      shares.push_back(r);
      extend(left - r);
      shares.pop_back();
    }
  };
  extend(total);
}

}  // namespace orrery::search
