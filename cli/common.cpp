// SPDX-License-Identifier: Apache-2.0
#include "cli/common.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "base/error.hpp"
#include "base/files.hpp"
#include "base/text.hpp"

namespace orrery::cli {

void add_output_options(CLI::App& command, OutputOptions& options) {
  command.add_flag("--json", options.json, "print one JSON object instead of text");
  command.add_flag("-q,--quiet", options.quiet, "no progress and no notes on standard error");
  command.add_option("--color", options.color, "auto, always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}));
}

bool wants_color(const OutputOptions& options) {
  if (options.color != "auto") {
    return options.color == "always";
  }
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return (no_color == nullptr || *no_color == '\0') && !dumb && isatty(STDOUT_FILENO) == 1;
}

void print(std::string_view text) { write_file_atomically("-", text); }

void print_json(const Json& document) { print(document.dump() + "\n"); }

void note(std::string_view text) { fmt::print(stderr, "{}\n", text); }

void check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (path.empty() || path == "-") {
    return;
  }
  const auto fail = [&](const char* message) {
    throw Error(ErrorKind::InputOutput, path, message);
  };
  if (fs::is_directory(path, error)) {
    fail("is a folder, not a file");
  }
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = parent.empty() ? fs::path(".") : parent;
  if (!fs::is_directory(folder, error)) {
    fail("its folder does not exist");
  }
  const bool special = fs::exists(path, error) && !fs::is_regular_file(path, error);
  if (access(special ? path.c_str() : folder.c_str(), W_OK) != 0) {
    fail("cannot be written: permission denied");
  }
}

void write_result(const std::string& path, std::string_view text, const OutputOptions& output) {
  write_file_atomically(path, text);
  if (!output.quiet && path != "-") {
    note(fmt::format("wrote {}", printable(path)));
  }
}

Overrides split_overrides(const std::vector<std::string>& settings) {
  constexpr std::array<std::string_view, 3> kClusterRoots = {"gpu.", "node.", "fabric."};
  Overrides overrides;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      bad_input("--set", fmt::format("\"{}\" has no value", printable(setting)),
                "write path=value, for example --set gpu.hbm_bandwidth=\"6 TB/s\"");
    }
    const std::string_view path = trim(std::string_view(setting).substr(0, equals));
    const bool of_cluster =
        path == "nodes" || path == "gpu" || path == "node" || path == "fabric" ||
        std::any_of(kClusterRoots.begin(), kClusterRoots.end(),
                    [&](std::string_view root) { return path.starts_with(root); });
    (of_cluster ? overrides.cluster : overrides.network).push_back(setting);
  }
  return overrides;
}

plan::Plan load_plan_of(const std::string& path) {
  const Json document = read_json_file(path);
  const Json* inner = document.find("plan");
  if (document.find("schema") == nullptr && inner != nullptr && inner->is_object()) {
    return plan::read_plan(*inner, path + ": /plan");
  }
  return plan::read_plan(document, path);
}

DType default_precision(const topologies::Gpu& gpu) {
  for (const DType dtype : {DType::Bf16, DType::Fp16}) {
    if (gpu.peak_of(dtype).value() > 0) {
      return dtype;
    }
  }
  return DType::Fp32;
}

std::string percent(double fraction, int decimals) {
  return fmt::format("{:.{}f} %", 100.0 * fraction, decimals);
}

std::string layout_text(const plan::Plan& plan) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  std::string text;
  const auto degree = [&](std::string_view name, std::int64_t value, bool always) {
    if (always || value != 1) {
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    }
  };
  degree("tp", layout.tp, true);
  degree("cp", layout.cp, false);
  degree("ep", layout.ep, false);
  degree("pp", plan.pp, true);
  degree("dp", plan.dp, true);
  degree("micro-batch", plan.micro_batch, true);
  if (plan.pp > 1) {
    text += fmt::format(", {}", plan.schedule);
  }
  degree("chunks", plan.chunks, false);
  text += layout.sequence_parallel ? ", sp" : "";
  if (layout.cp > 1) {
    text += fmt::format(", {} context", plan::to_text(layout.context));
  }
  if (layout.zero_stage > 0) {
    text += fmt::format(", zero {}", layout.zero_stage);
  }
  if (layout.shard_degree > 0) {
    text += fmt::format(" over {}", layout.shard_degree);
  }
  if (layout.recompute != plan::Recompute::None) {
    text += fmt::format(", recompute {}", plan::to_text(layout.recompute));
  }
  if (plan.blocks.size() > 1) {
    text += ", differs per block";
  }
  return text;
}

}  // namespace orrery::cli
