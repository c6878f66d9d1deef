// SPDX-License-Identifier: Apache-2.0
#include "calibrate/kernel_words.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/text.hpp"
#include "base/words.hpp"
#include "calibrate/reading_builder.hpp"

namespace orrery::calibrate {
namespace {

template <class Meaning, std::size_t kCount>
std::optional<Meaning> meaning(
    std::string_view cell, const std::array<std::pair<std::string_view, Meaning>, kCount>& words) {
  const std::string plain = letters_and_digits(cell);
  const auto* const found = std::find_if(words.begin(), words.end(),
                                         [&](const auto& word) { return word.first == plain; });
  return found == words.end() ? std::nullopt : std::optional<Meaning>(found->second);
}

// "fp8_e4m3-matmul" as " fp8 e4m3 matmul ": whole words are found between blanks.
std::string spaced_words(std::string_view text) {
  std::string words = " " + to_lower(text) + " ";
  std::replace_if(
      words.begin(), words.end(),
      [](char c) { return std::string_view("_-/.,;:()+").find(c) != std::string_view::npos; }, ' ');
  return words;
}

}  // namespace

std::optional<bool> is_transposed(std::string_view word) {
  constexpr auto kWords = std::to_array<std::pair<std::string_view, bool>>({{"t", true},
                                                                            {"true", true},
                                                                            {"1", true},
                                                                            {"yes", true},
                                                                            {"trans", true},
                                                                            {"n", false},
                                                                            {"false", false},
                                                                            {"0", false},
                                                                            {"no", false},
                                                                            {"notrans", false}});
  return meaning(word, kWords);
}

std::optional<GemmLayout> layout_of_transposes(bool a, bool b) {
  return a && b ? std::nullopt
                : std::optional(a   ? GemmLayout::TN
                                : b ? GemmLayout::NT
                                    : GemmLayout::NN);
}

std::optional<GemmLayout> gemm_layout(std::string_view word) {
  constexpr auto kWords = std::to_array<std::pair<std::string_view, GemmLayout>>(
      {{"tn", GemmLayout::TN}, {"nn", GemmLayout::NN}, {"nt", GemmLayout::NT}});
  return meaning(word, kWords);
}

std::optional<GemmLayout> layout_of_pass(std::string_view pass) {
  constexpr auto kWords =
      std::to_array<std::pair<std::string_view, GemmLayout>>({{"fwd", GemmLayout::TN},
                                                              {"forward", GemmLayout::TN},
                                                              {"fprop", GemmLayout::TN},
                                                              {"bwdgradact", GemmLayout::NN},
                                                              {"bwddata", GemmLayout::NN},
                                                              {"dgrad", GemmLayout::NN},
                                                              {"bwdgradw", GemmLayout::NT},
                                                              {"bwdweight", GemmLayout::NT},
                                                              {"wgrad", GemmLayout::NT}});
  return meaning(pass, kWords);
}

std::optional<DType> operands_of_product(std::string_view operation) {
  constexpr auto kNouns = std::to_array<std::string_view>(
      {"", "matmul", "mm", "bmm", "gemm", "group", "grouped", "batched"});
  std::optional<DType> stated;
  const std::string words = spaced_words(operation);
  for (const std::string_view word : split(words, ' ')) {
    if (is_among(word, kNouns)) {
      continue;
    }
    stated = foreign_dtype(word);
    if (!stated) {
      return std::nullopt;
    }
  }
  return stated.value_or(DType::Bf16);
}

std::optional<AttentionPasses> attention_passes(std::string_view words) {
  constexpr auto kWords = std::to_array<std::pair<std::string_view, AttentionPasses>>(
      {{"fwd", {true, false}},
       {"forward", {true, false}},
       {"bwd", {false, true}},
       {"backward", {false, true}},
       {"fwdbwd", {true, true}},
       {"forwardbackward", {true, true}},
       {"both", {true, true}}});
  return meaning(words, kWords);
}

std::optional<int> flash_version(std::string_view words) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"flashattention", "flashattn", "flash", "fa"});
  // Words of a name and what stands before a version: one sign each way to write them.
  std::string plain = to_lower(words);
  std::erase_if(plain,
                [](char c) { return std::string_view(" -_=(").find(c) != std::string_view::npos; });
  for (const std::string_view name : kNames) {
    for (std::size_t at = plain.find(name); at != plain.npos; at = plain.find(name, at + 1)) {
      std::string_view after = std::string_view(plain).substr(at + name.size());
      after.remove_prefix(after.starts_with('v') ? 1 : 0);
      const char version = after.empty() ? ' ' : after.front();
      if (version >= '0' && version <= '9') {
        return std::max(1, version - '0');  // release 0.2 is of the first paper, too
      }
    }
  }
  return std::nullopt;
}

std::optional<int> attention_kernel(std::string_view implementation, std::string_view vendor) {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"unfused", "eager", "naive", "math", "triton", "xformers", "flex"});
  constexpr auto kOfAmd = std::to_array<std::string_view>({" ck ", " aiter ", " composable "});
  const std::string words = spaced_words(implementation);
  const auto says = [&](std::string_view word) { return words.find(word) != words.npos; };
  const int version = flash_version(implementation).value_or(says("sdpa") ? 2 : 0);
  // Of the time before version 2 the cost model has Triton's kernels, not those of version 1.
  const bool other = version == 1 || std::any_of(kOthers.begin(), kOthers.end(), says) ||
                     (vendor != "AMD" && std::any_of(kOfAmd.begin(), kOfAmd.end(), says));
  return other ? std::nullopt : std::optional(version == 2 ? 2 : 0);
}

}  // namespace orrery::calibrate
