// SPDX-License-Identifier: Apache-2.0
#include "topologies/node_part.hpp"

#include <algorithm>
#include <utility>

namespace orrery::topologies {
namespace {

std::int64_t whole_number(const Json* value) {
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

// How the GPUs of the node are joined; null where it has no longer all of them, too.
Json* links_of_part(Json& document, std::int64_t gpus_before) {
  const std::int64_t gpus = node_parts(document).gpus;
  Json* node = document.find("node");
  Json* up = node == nullptr ? nullptr : node->find("scale_up");
  return up != nullptr && up->is_object() && gpus > 0 && gpus < gpus_before ? up : nullptr;
}

}  // namespace

NodeParts node_parts(const Json& document) {
  const Json* node = document.find("node");
  const Json* out = node == nullptr ? nullptr : node->find("scale_out");
  return {node == nullptr ? 0 : whole_number(node->find("gpus")),
          out == nullptr ? 0 : whole_number(out->find("nics"))};
}

void scale_nics(Json& document, std::int64_t gpus_before) {
  const NodeParts now = node_parts(document);
  if (now.gpus > 0 && gpus_before > 0 && now.nics > 0 && now.gpus < gpus_before) {
    document.find("node")
        ->find("scale_out")
        ->set("nics", std::max<std::int64_t>(1, now.nics * now.gpus / gpus_before));
  }
}

void keep_whole_ring(Json& document, std::int64_t gpus_before) {
  Json* up = links_of_part(document, gpus_before);
  if (up != nullptr && whole_number(up->find("nccl_gpus")) == 0) {
    up->set("nccl_gpus", gpus_before);
  }
}

void cut_mesh(Json& document, std::int64_t gpus_before) {
  Json* up = links_of_part(document, gpus_before);
  const Json* mesh = up == nullptr ? nullptr : up->find("mesh");
  if (mesh == nullptr || !mesh->is_array()) {
    return;
  }
  const std::int64_t gpus = node_parts(document).gpus;
  Json left = Json::array();
  for (const Json& edge : mesh->as_array()) {
    const bool outside =
        edge.is_array() && edge.as_array().size() == 3 &&
        std::max(whole_number(&edge.as_array()[0]), whole_number(&edge.as_array()[1])) >= gpus;
    if (!outside) {
      left.push(edge);
    }
  }
  if (left.as_array().empty()) {  // of one GPU, or of two that only others join
    up->set("builder", "full-mesh");
  }
  up->set("mesh", std::move(left));
}

void leave_board(Json& document, std::int64_t gpus_before) {
  Json* up = links_of_part(document, gpus_before);
  const std::int64_t boards = up == nullptr ? 0 : whole_number(up->find("boards"));
  if (boards <= 1 || node_parts(document).gpus > gpus_before / boards) {
    return;
  }
  up->set("boards", 1);
  up->set("board_links", 0);
  up->set("switches", whole_number(up->find("switches")) / boards);
}

void fit_leaves(Json& document, const NodeParts& before) {
  const NodeParts now = node_parts(document);
  Json* fabric = document.find("fabric");
  const auto a_gpu = [](const NodeParts& parts) {
    return static_cast<double>(parts.nics) / static_cast<double>(parts.gpus);
  };
  if (fabric != nullptr && fabric->is_object() && now.nics > now.gpus &&
      a_gpu(now) > a_gpu(before)) {
    fabric->set("nodes_per_leaf", 0);
  }
}

}  // namespace orrery::topologies
