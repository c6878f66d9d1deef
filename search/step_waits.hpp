// SPDX-License-Identifier: Apache-2.0
// What a step of a recommendation network waits for in any case, whichever shardings are chosen,
// for the bound of search/table_search.hpp. One part after the other it waits for everything. With
// nested pipelines (plan/recommender/pipeline.hpp) a cycle of its passes, which no period is
// shorter than, is the exchange of the first micro-batch, the dense network of all, the exchange
// back of the last and the updates; lookups and indices run beside.
#pragma once

#include <vector>

#include "plan/recommender/model.hpp"

namespace orrery::search {

class StepWaits {
 public:
  // Keeps references.
  StepWaits(const plan::Recommender& network, const plan::RecommenderModel& model);
  StepWaits(const StepWaits&) = delete;
  StepWaits& operator=(const StepWaits&) = delete;

  std::vector<plan::TableExchange> exchanges_of(const plan::TableGroup& group,
                                                const plan::TableShare& share);
  // Lookups and updates, of the mean rank.
  Seconds work_of(const plan::TableShare& share) const;
  Seconds dense_time() const;

 private:
  const plan::Recommender& network_;
  const plan::RecommenderModel& model_;
  plan::Recommender part_network_;  // of a micro-batch
  plan::RecommenderModel part_;
};

}  // namespace orrery::search
