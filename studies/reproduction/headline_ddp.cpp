// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "base/files.hpp"
#include "base/limits.hpp"
#include "plan/block/ddp.hpp"
#include "studies/reproduction/headline_kinds.hpp"

namespace orrery::studies {

Json ddp_run(const JsonReader& value, ObjectReader& run) {
  const std::string name = run.required("gradients").string();
  const std::vector<std::string> known = data_names("studies/gradients");
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    value.fail("unknown list of gradients", "studies/gradients has the lists");
  }
  const std::string path = data_path("studies/gradients/" + name + ".json");
  const plan::DdpNetwork network = plan::read_gradients(read_json_file(path), path);
  const topologies::Cluster cluster = topologies::load_cluster(run.required("cluster").string());
  const costmodel::Profile profile = costmodel::load_profile("", cluster.gpu);
  const int ranks = static_cast<int>(run.required("ranks").integer(1, cluster.num_gpus()));
  const Seconds single = run.required("single_gpu").duration(false);
  const double forward = run.number_or("forward_share", 1.0 / 3, 0, 1);
  plan::DdpOptions options;
  if (const auto bucket = run.optional("bucket")) {
    options.bucket = bucket->byte_count();
  }
  if (const auto bucket = run.optional("small_bucket")) {
    options.small_bucket = bucket->byte_count();
  }
  if (const auto small = run.optional("small")) {
    constexpr std::array<std::string_view, 3> kNames = {"none", "first", "last"};
    const std::string text = small->one_of(kNames);
    options.small = text == kNames[0]   ? plan::SmallBucket::None
                    : text == kNames[1] ? plan::SmallBucket::First
                                        : plan::SmallBucket::Last;
  }
  options.gpu_variation = run.number_or("gpu_variation", 0, 0, 1);
  options.overlap = run.boolean_or("overlap", true);
  run.finish();
  const costmodel::DeviceModel device(cluster.gpu, profile, costmodel::Load::Sustained);
  const costmodel::CollectiveModel collectives(cluster, profile);
  const auto group = costmodel::make_group(ranks, 1, cluster.node.gpus);
  const plan::DdpTime time = plan::ddp_iteration(network, single * forward, single * (1 - forward),
                                                 Seconds(), group, device, collectives, options);
  return Json::Object{{"iteration_time_s", time.iteration.value()},
                      {"backward_s", time.backward.value()},
                      {"reductions_s", time.reductions.value()},
                      {"exposed_s", time.exposed.value()},
                      {"buckets", time.buckets}};
}

}  // namespace orrery::studies
