// SPDX-License-Identifier: Apache-2.0
#include "plan/block/ring_parts.hpp"

#include <algorithm>
#include <vector>

#include "base/math.hpp"

namespace orrery::plan {

namespace {

// Pairs of two chunks of as many positions of which the query lies at most `ahead` further from the
// beginning of its chunk than the key from that of its own.
double pairs_within(std::int64_t chunk, std::int64_t ahead) {
  const double side = as_double(chunk);
  const double limit = as_double(ahead);
  if (ahead >= chunk - 1) {
    return side * side;
  }
  if (ahead <= -chunk) {
    return 0;
  }
  return ahead < 0 ? (side + limit) * (side + limit + 1) / 2
                   : side * side - (side - 1 - limit) * (side - limit) / 2;
}

}  // namespace

std::map<std::int64_t, RingPart> ring_parts(const RingShape& shape, std::int64_t rank) {
  const std::int64_t chunks_of_rank = shape.zigzag ? 2 : 1;
  const std::int64_t chunk = std::max<std::int64_t>(1, shape.tokens / chunks_of_rank);
  const std::int64_t chunks = shape.ranks * chunks_of_rank;  // of a slice
  const std::int64_t first = -shape.earlier / chunk;
  std::map<std::int64_t, RingPart> parts;
  std::map<std::int64_t, std::int64_t> seen_by;  // last chunk of queries that sees a part
  std::vector<std::int64_t> queries = {rank};
  if (shape.zigzag) {
    queries.push_back(chunks - 1 - rank);
  }
  for (const std::int64_t query : queries) {
    for (std::int64_t key = query; key >= first; --key) {
      const std::int64_t distance = (query - key) * chunk;
      const double pairs =
          pairs_within(chunk, shape.window - 1 - distance) - pairs_within(chunk, -1 - distance);
      if (pairs <= 0) {
        break;
      }
      const std::int64_t place = (key % chunks + chunks) % chunks;
      const std::int64_t owner = shape.zigzag ? std::min(place, chunks - 1 - place) : place;
      const auto [last, is_new] = seen_by.try_emplace(owner, query);
      RingPart& part = parts[owner];
      part.pairs += pairs;
      part.rows += !is_new && last->second == query ? 0 : chunk;
      last->second = query;
    }
  }
  return parts;
}

double most_pairs(const RingShape& shape) {
  double most = 0;
  for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
    double pairs = 0;
    for (const auto& [owner, part] : ring_parts(shape, rank)) {
      pairs += part.pairs;
    }
    most = std::max(most, pairs);
  }
  return most;
}

}  // namespace orrery::plan
