// SPDX-License-Identifier: Apache-2.0
// What `orrery show` says about one thing, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"

namespace orrery::cli {

struct ShowRequest {
  std::string name;
  std::vector<std::string> settings;  // --set
  bool color = false;
  bool picture = false;  // --svg
};

struct Shown {
  std::string text;
  Json json;
  std::string svg;  // where asked for
};

Shown show_network(const ShowRequest& request);
Shown show_cluster(const ShowRequest& request);
Shown show_gpu(const ShowRequest& request);
Shown show_profile(const ShowRequest& request);
Shown show_layout(const ShowRequest& request);
// A recommendation network document, for show_layout().
Shown show_recommender(const Json& document, const std::string& where);
Shown show_schedule(const ShowRequest& request);

}  // namespace orrery::cli
