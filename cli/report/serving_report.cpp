// SPDX-License-Identifier: Apache-2.0
#include "cli/report/serving_report.hpp"

#include <fmt/format.h>

#include <array>

#include "base/error.hpp"
#include "base/quantity_text.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/command/command.hpp"
#include "cli/command/idle_note.hpp"
#include "cli/report/serving_trace.hpp"
#include "plan/block_rules.hpp"

namespace orrery::cli {
namespace {

using plan::Percentiles;
using plan::ServingMemory;
using plan::ServingSimulation;

std::string latency_table(const ServingSimulation& simulation) {
  TextTable table({{"", Align::Left},
                   {"mean", Align::Right},
                   {"p50", Align::Right},
                   {"p90", Align::Right},
                   {"p99", Align::Right}});
  const auto row = [&](const char* name, const Percentiles& values) {
    if (values.count == 0) {
      table.add_row({name, "-", "-", "-", "-"});
      return;
    }
    table.add_row({name, format_duration(values.mean), format_duration(values.p50),
                   format_duration(values.p90), format_duration(values.p99)});
  };
  row("time to first token", simulation.first_token);
  row("time per output token", simulation.per_output_token);
  row("whole request", simulation.latency);
  return table.text();
}

std::string memory_table(const std::vector<ServingMemory>& stages) {
  TextTable table({{"stage", Align::Right},
                   {"parameters", Align::Right},
                   {"activations", Align::Right},
                   {"runtime", Align::Right},
                   {"KV cache", Align::Right},
                   {"tokens", Align::Right}});
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const ServingMemory& memory = stages[stage];
    table.add_row({std::to_string(stage), format_bytes(memory.parameters.bytes()),
                   format_bytes(memory.workspace.bytes()),
                   format_bytes((memory.context + memory.communication).bytes()),
                   memory.cache > ByteCount() ? format_bytes(memory.cache.bytes()) : "none",
                   std::to_string(memory.kv_tokens)});
  }
  return table.text();
}

std::string parts_text(const ServingSimulation& simulation) {
  constexpr std::array<const char*, plan::kNumServingParts> kNames = {
      "matrix products", "decode attention", "prompt attention",
      "network",         "other kernels",    "waiting for copies"};
  TextTable table({{"part of an iteration", Align::Left},
                   {"time", Align::Right},
                   {"of the run", Align::Right}});
  const auto row = [&](const char* name, Seconds time) {
    table.add_row({name, format_duration(time), percent(time / simulation.makespan)});
  };
  for (std::size_t part = 0; part < kNames.size(); ++part) {
    const bool waits = static_cast<plan::ServingPart>(part) == plan::ServingPart::HostCopies;
    if (!waits || simulation.parts[part] > Seconds()) {
      row(kNames[part], simulation.parts[part]);
    }
  }
  row("busy", simulation.busy);
  return table.text();
}

// ", parameters of 40 of 82 blocks on host, 2 at a time on the device"; "" where all stay.
std::string weights_text(const plan::Plan& plan) {
  std::array<int, 3> blocks{};
  for (const plan::BlockRun& run : plan.blocks) {
    blocks[static_cast<std::size_t>(run.layout.offload.parameters)] += run.count;
  }
  std::string text;
  for (const plan::Tier tier : {plan::Tier::Host, plan::Tier::Disk}) {
    if (const int count = blocks[static_cast<std::size_t>(tier)]; count > 0) {
      text += fmt::format(", parameters of {} of {} blocks on {}", count, plan.network.chain.size(),
                          to_text(tier));
    }
  }
  if (!text.empty()) {
    text += fmt::format(", {} at a time on the device", plan.execution.gathers_in_flight);
  }
  if (!text.empty() && plan.execution.fetched_together > 1) {
    text += fmt::format(", {} exchanged together", plan.execution.fetched_together);
  }
  return text;
}

// What of a stage lives beside its devices.
std::string tiers_text(const std::vector<ServingMemory>& stages) {
  std::string text;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto add = [&](ByteCount bytes, const char* what) {
      if (bytes > ByteCount()) {
        text += fmt::format("stage {}: {} of {} for each device\n", stage,
                            format_bytes(bytes.bytes()), what);
      }
    };
    add(stages[stage].host_parameters, "parameters on the host");
    add(stages[stage].disk_parameters, "parameters on disk");
    add(stages[stage].host_cache, "keys and values on the host");
  }
  return text;
}

}  // namespace

std::string rate_text(double rate, int digits) {
  return rate < 1 ? fmt::format("{:.3g}", rate) : fmt::format("{:.{}f}", rate, digits);
}

std::string serving_layout_text(const plan::Plan& plan) {
  const plan::BlockPlan& layout = plan.blocks.front().layout;
  const plan::ServingOptions& options = plan.serving->options;
  std::string text = fmt::format("tp {}, pp {}, dp {}, {} tokens, {} requests", layout.tp, plan.pp,
                                 plan.dp, options.token_budget, options.max_requests);
  if (layout.cp > 1) {
    text += fmt::format(", cp {}", layout.cp);
  }
  if (layout.ep > 1) {
    text += fmt::format(", ep {}", layout.ep);
    if (const int cut = plan::expert_tensor_ranks(layout); cut > 1 && cut < layout.tp) {
      text += fmt::format(" of experts cut by {}", cut);
    }
    if (const int replicas = plan::expert_replicas(layout); replicas > 1) {
      text += fmt::format(" over {} replicas in step", replicas);
      text += plan.execution.overlap_shared_experts ? " that overlap shared ones" : "";
    }
  }
  if (options.routing != plan::Routing::InTurn) {
    text +=
        fmt::format(", routed by {}", options.routing == plan::Routing::Prefix ? "prefix" : "load");
  }
  text += weights_text(plan);
  if (options.host_cache > 0) {
    text += fmt::format(", {:.0f} % of the cache on the host", 100 * options.host_cache);
  }
  text += options.fp8_cache ? ", cache in 8 bits" : "";
  text += options.prefill == plan::Prefill::Chunked ? ", chunked prefill" : ", separate prefill";
  if (options.chunk > 0) {
    text += fmt::format(" of {}", options.chunk);
  }
  text += options.overlap_chunks ? ", chunks overlap" : "";
  if (options.all_reduce != plan::AllReduce::Nccl) {
    text += options.all_reduce == plan::AllReduce::Fastest
                ? ", the fastest all-reduce by messages"
                : fmt::format(", all-reduce by {}", to_text(options.all_reduce));
  }
  if (options.nano_batches > 1) {
    text += fmt::format(", {} nano-batches", options.nano_batches);
  }
  return text;
}

std::string serving_text(const plan::Plan& plan, const ServingSimulation& simulation) {
  std::string text = fmt::format("{} on {} ({} x {}), {}\n{}\n\n", plan.network.spec.name,
                                 plan.cluster.name, plan.num_gpus(), plan.cluster.gpu.name,
                                 to_text(plan.precision), counted(simulation.requests, "request"));
  text += serving_layout_text(plan) + "\n\n";
  if (simulation.does_not_fit) {
    return text + memory_table(simulation.memory) + "\nDoes not fit: " + *simulation.does_not_fit +
           "; " + simulation.nearest + "\n";
  }
  text += fmt::format(
      "{} tokens/s on each GPU ({} of the optimum of {:.0f}): {} prompt and {}\n"
      "in {}; {} requests/s, {} output tokens/s in all\n\n",
      rate_text(simulation.tokens_per_second_per_gpu, 1),
      percent(simulation.tokens_per_second_per_gpu / simulation.optimal_tokens_per_second_per_gpu),
      simulation.optimal_tokens_per_second_per_gpu, simulation.prompt_tokens,
      counted(simulation.output_tokens, "output token"), format_duration(simulation.makespan),
      rate_text(simulation.requests_per_second, 2),
      rate_text(simulation.output_tokens_per_second, 1));
  text += latency_table(simulation) + "\n" + parts_text(simulation);
  if (plan.serving->options.nano_batches > 1) {
    text +=
        "parts that nano-batches overlap count in full: together they may take longer than busy\n";
  }
  text += "\n";
  text += fmt::format("{} of {:.0f} tokens in the mean; KV cache {} full in the mean, {} at most\n",
                      counted(simulation.iterations, "iteration"), simulation.tokens_per_iteration,
                      percent(simulation.kv_mean_fraction), percent(simulation.kv_peak_fraction));
  if (simulation.kv_waste_fraction > 0) {
    text += fmt::format("{} of what the cache holds is the rest of last pages\n",
                        percent(simulation.kv_waste_fraction));
  }
  if (simulation.found_tokens > 0) {
    text += fmt::format("{} prompt tokens were in the cache already\n", simulation.found_tokens);
  }
  if (simulation.evictions > 0) {
    text += fmt::format("{}; {} computed again\n", counted(simulation.evictions, "eviction"),
                        counted(simulation.repeated_tokens, "token"));
  }
  return text + "\n" + memory_table(simulation.memory) + tiers_text(simulation.memory);
}

Json serving_json(const plan::Plan& plan, const ServingSimulation& simulation) {
  Json document = plan::to_json(simulation);
  document.set("without_effect", idle_json(plan));
  document.set("plan", plan::to_json(plan));
  return document;
}

int simulate_serving_plan(const plan::Plan& plan, const std::string& where,
                          const std::string& report_path, const std::string& trace_path,
                          const OutputOptions& output) {
  ServingTrace trace;
  plan::ServedObserver observe;
  if (!trace_path.empty()) {
    observe = [&](int replica, const plan::ServedRequest& served) { trace.add(replica, served); };
  }
  const ServingSimulation simulation =
      in_file(where, [&] { return plan::simulate_serving(plan, observe); });
  const std::string text = serving_text(plan, simulation);
  if (output.json) {
    print_json(serving_json(plan, simulation));
  } else {
    print(text);
  }
  if (!report_path.empty()) {
    write_result(report_path, text, output);
  }
  if (!trace_path.empty() && !simulation.does_not_fit) {
    write_result(trace_path, traces::chrome_trace_text(trace.trace()), output);
  }
  if (simulation.does_not_fit) {
    note(fmt::format("orrery: this plan does not fit: {}; {}", *simulation.does_not_fit,
                     simulation.nearest));
    return kInfeasible;
  }
  return kOk;
}

}  // namespace orrery::cli
