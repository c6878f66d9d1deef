// SPDX-License-Identifier: Apache-2.0
#include "plan/exporter.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace orrery::plan {

const Exporter& find_exporter(std::string_view name) {
  std::vector<std::string> names;
  for (const Exporter* exporter : exporter_table()) {
    if (exporter->name == name) {
      return *exporter;
    }
    names.emplace_back(exporter->name);
  }
  bad_input("--to", fmt::format("unknown format \"{}\"", printable(name)),
            nearest_hint(name, names));
}

std::string export_plan(const Exporter& exporter, const Plan& plan) {
  if (plan.activation_cap > 0 && plan.pp > 1) {
    bad_input(std::string(exporter.name), "cannot express a cap of activations (activation_cap)",
              "a plan without it");
  }
  if (plan.slices > 1) {
    bad_input(std::string(exporter.name), "cannot express slices of sequences", "--fix slices=1");
  }
  if (!plan.packs.empty()) {
    bad_input(std::string(exporter.name), "cannot express packs of sequences of different length");
  }
  if (plan.network.spec.encoder.layers > 0) {
    bad_input(std::string(exporter.name), "cannot express a network with an encoder");
  }
  if (plan.network.spec.adapters.rank > 0) {
    bad_input(std::string(exporter.name), "cannot express adapters on frozen weights",
              "--set adapters.rank=0, and add them in the training script");
  }
  for (const BlockRun& run : plan.blocks) {
    if (!run.layout.tensor_shares.empty()) {
      bad_input(std::string(exporter.name), "cannot express tensor_shares: ranks hold equal shards",
                "leave them out");
    }
    if (run.layout.tensor_parallel != TensorMesh::OneD) {
      bad_input(std::string(exporter.name), "cannot express tensor-parallel meshes",
                "--fix tensor_parallel=1d");
    }
    if (run.layout.context == ContextParallel::Mix) {
      bad_input(std::string(exporter.name), "cannot express a mix of ring and Ulysses",
                "--fix context=ring");
    }
  }
  return exporter.write(plan);
}

}  // namespace orrery::plan
