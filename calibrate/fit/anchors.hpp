// SPDX-License-Identifier: Apache-2.0
// Dense tables of the base below few points of one's own. Some tens of shapes tell how a site
// differs from the one that a table was taken at, but nothing of the thousands of shapes between
// them: a dense set of the same chip stays with the formula that it was taken against, moved by
// what the points differ from it, and the points take the places of their shapes.
//
// How far it moves is an empirical-Bayes mean: the median of n points counts n / (n + d). d is the
// variance of a median of one, about the shift of its site, over the variance of shifts from site
// to site (docs/fidelity.md). Shifts have a heavy tail: a median far beyond those of other tables
// is of another kind of site (a power cap, other clocks, a library without tuned kernels) and
// counts whole.
#pragma once

#include <string>
#include <vector>

#include "calibrate/fit/kernel_points.hpp"
#include "costmodel/profile.hpp"

namespace orrery::calibrate {

// Whether two sets stand on one formula whose parameters are fitted together: products of one
// format, or both of 16 bits; attention.
bool share_formula(const costmodel::ResidualKey& a, const costmodel::ResidualKey& b);

class Anchors {
 public:
  // `points`: everything that was measured, also what a fold will leave out.
  Anchors(const topologies::Gpu& gpu, const costmodel::Profile& base, const KernelPoints& points);

  // The dense sets.
  const std::vector<costmodel::ResidualKey>& dense() const { return dense_; }
  // Lets go of the dense sets on the formula of `key`.
  void release(const costmodel::ResidualKey& key);

  // Whether the formula under `key` stays that of the base.
  bool hold(const costmodel::ResidualKey& key) const;
  // Whether the set of `key` is one of the dense ones that stay below points of its own.
  bool is_dense(const costmodel::ResidualKey& key) const;
  // What stays of the base's sets below the sets of `points`, by key as in the base.
  std::vector<costmodel::ResidualSet> sets(const KernelPoints& points) const;
  // What became of the dense sets, for `points`.
  std::vector<std::string> remarks(const KernelPoints& points) const;

 private:
  // Of each point, what it takes beyond the base.
  std::vector<double> log_errors(const KernelPoints& points) const;
  double shift(const KernelPoints& points) const;
  costmodel::ResidualSet moved(const costmodel::ResidualSet& set, const costmodel::ResidualKey& key,
                               const KernelPoints& points) const;

  const topologies::Gpu& gpu_;
  const costmodel::Profile& base_;
  std::vector<costmodel::ResidualKey> dense_;
};

}  // namespace orrery::calibrate
