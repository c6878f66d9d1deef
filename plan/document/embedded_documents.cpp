// SPDX-License-Identifier: Apache-2.0
#include "plan/document/embedded_documents.hpp"

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/text.hpp"
#include "models/overrides.hpp"
#include "topologies/documents.hpp"

namespace orrery::plan {
namespace {

// Whether a list of overrides changes nothing in the document it is said to have been applied to.
using Holds = std::function<bool(const std::vector<std::string>&)>;

// A later entry may overwrite an earlier one, so entries are judged by what the list says with
// and without them.
std::size_t first_wrong(const std::vector<std::string>& overrides, const Holds& holds) {
  for (std::size_t entry = 0; entry < overrides.size(); ++entry) {
    std::vector<std::string> others = overrides;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(entry));
    if (holds(others)) {
      return entry;
    }
  }
  return overrides.size() - 1;
}

void check_record(const JsonReader& recorded, const std::vector<std::string>& overrides,
                  const JsonReader& document, const Holds& holds) {
  const auto safe = [&](const std::vector<std::string>& list) {
    try {
      return holds(list);
    } catch (const Error&) {
      return false;  // not an assignment to a field of this document
    }
  };
  if (overrides.empty() || safe(overrides)) {
    return;
  }
  const std::string& wrong = overrides[first_wrong(overrides, safe)];
  const std::string path = wrong.substr(0, wrong.find('='));
  recorded.fail(
      fmt::format("\"{}\" is not what the document beside it says: overrides only record what "
                  "--set changed",
                  printable(wrong)),
      fmt::format("change {} in {} and here alike, or leave the entry out", printable(path),
                  document.where()));
}

std::vector<std::string> read_texts(ObjectReader& object, std::string_view key) {
  std::vector<std::string> texts;
  if (const auto value = object.optional(key)) {
    for (const JsonReader& text : value->array(1000)) {
      texts.push_back(text.string());
    }
  }
  return texts;
}

// The cluster's name and record of overrides stand in its document, too; an edit of one of them
// alone would be without effect.
void check_names(ObjectReader& object, topologies::Cluster& cluster) {
  const auto name = object.optional("name");
  if (!name) {
    return;
  }
  const Json* inner = cluster.document.find("name");
  if (inner != nullptr && inner->is_string() && inner->as_string() != name->string()) {
    name->fail(fmt::format("\"{}\", but document.name is \"{}\"", printable(name->string()),
                           printable(inner->as_string())),
               "change both, or leave one out");
  }
  cluster.name = name->string();
}

void check_overrides(ObjectReader& object, const JsonReader& document,
                     topologies::Cluster& cluster) {
  const auto recorded = object.optional("overrides");
  const std::vector<std::string> inner = cluster.overrides;
  const Json* stated = document.json().find("overrides");
  const bool stated_inside = stated != nullptr && stated->is_array();
  cluster.overrides = recorded ? read_texts(object, "overrides") : inner;
  if (recorded && stated_inside && cluster.overrides != inner) {
    recorded->fail(
        "is not the list of document.overrides: overrides only record what --set changed",
        "change the field in the document, and both lists alike or leave them out");
  }
  check_record(recorded ? *recorded : document, cluster.overrides, document,
               [&](const std::vector<std::string>& overrides) {
                 Json again = cluster.document;
                 topologies::apply_overrides(again, overrides, document.where());
                 return again == cluster.document;
               });
}

}  // namespace

models::Network read_embedded_network(const JsonReader& value) {
  ObjectReader object = value.object();
  const JsonReader document = object.required("document");
  models::Network network = models::read_network(document.json(), document.where());
  network.overrides = read_texts(object, "overrides");
  if (const auto recorded = object.optional("overrides")) {
    check_record(*recorded, network.overrides, document,
                 [&](const std::vector<std::string>& overrides) {
                   Json again = document.json();
                   models::apply_overrides(again, overrides);
                   return models::read_network_spec(again, document.where()) == network.spec;
                 });
  }
  object.finish();
  return network;
}

topologies::Cluster read_embedded_cluster(const JsonReader& value) {
  ObjectReader object = value.object();
  const JsonReader document = object.required("document");
  topologies::Cluster cluster = topologies::read_cluster(document.json(), document.where());
  check_names(object, cluster);
  check_overrides(object, document, cluster);
  object.finish();
  return cluster;
}

}  // namespace orrery::plan
