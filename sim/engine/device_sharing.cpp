// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/device_sharing.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace orrery::sim {
namespace {

constexpr double kTolerance = 1e-12;
constexpr int kBisections = 60;  // to the precision of a double

// Progressive filling: the speeds of all free kernels rise together until something is full; those
// that it holds stay, the others rise on.
class Filling {
 public:
  explicit Filling(std::span<const SharedKernel* const> kernels)
      : kernels_(kernels), speeds_(kernels.size(), 0), free_(kernels.size(), true) {
    for (const SharedKernel* kernel : kernels) {
      for (const ResourceUse& use : kernel->uses) {
        resources_ = std::max(resources_, use.resource + 1);
      }
    }
  }

  std::vector<double> fill() {
    while (std::find(free_.begin(), free_.end(), true) != free_.end()) {
      const double level = std::min({1.0, resource_level(), curve_level()});
      raise(level);
      if (level >= 1) {
        break;
      }
      hold(level);
    }
    return std::move(speeds_);
  }

 private:
  double rate(std::size_t resource, std::size_t kernel) const {
    double sum = 0;
    for (const ResourceUse& use : kernels_[kernel]->uses) {
      sum += use.resource == resource ? use.per_speed : 0;
    }
    return sum;
  }

  // The level at which a resource is full; infinite when no free kernel uses it.
  double level_of(std::size_t resource) const {
    double left = 1;
    double rising = 0;
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      for (const ResourceUse& use : kernels_[k]->uses) {
        if (use.resource == resource) {
          left -= use.fixed + (free_[k] ? 0 : use.per_speed * speeds_[k]);
          rising += free_[k] ? use.per_speed : 0;
        }
      }
    }
    return rising > 0 ? std::max(0.0, left) / rising : HUGE_VAL;
  }

  double resource_level() const {
    double level = HUGE_VAL;
    for (std::size_t resource = 0; resource < resources_; ++resource) {
      level = std::min(level, level_of(resource));
    }
    return level;
  }

  double shares_at(double level) const {
    double sum = 0;
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      if (kernels_[k]->curve != nullptr) {
        sum += kernels_[k]->curve->share(free_[k] ? level : speeds_[k]);
      }
    }
    return sum;
  }

  double curve_level() const {
    if (shares_at(1) <= 1) {
      return HUGE_VAL;
    }
    double low = 0;
    double high = 1;
    for (int step = 0; step < kBisections; ++step) {
      const double middle = (low + high) / 2;
      (shares_at(middle) <= 1 ? low : high) = middle;
    }
    return low;
  }

  void raise(double level) {
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      speeds_[k] = free_[k] ? level : speeds_[k];
    }
  }

  void hold(double level) {
    const bool curves_full = curve_level() <= level + kTolerance;
    std::vector<bool> full(resources_);
    for (std::size_t resource = 0; resource < resources_; ++resource) {
      full[resource] = level_of(resource) <= level + kTolerance;
    }
    for (std::size_t k = 0; k < kernels_.size(); ++k) {
      bool held = curves_full && kernels_[k]->curve != nullptr;
      for (std::size_t resource = 0; resource < resources_; ++resource) {
        held = held || (full[resource] && rate(resource, k) > 0);
      }
      free_[k] = free_[k] && !held;
    }
  }

  std::span<const SharedKernel* const> kernels_;
  std::vector<double> speeds_;
  std::vector<bool> free_;
  std::size_t resources_ = 0;
};

}  // namespace

std::vector<double> sharing_speeds(std::span<const SharedKernel* const> kernels) {
  return Filling(kernels).fill();
}

std::vector<Seconds> run_shared(const std::vector<SharedKernel>& kernels) {
  std::vector<Seconds> ends(kernels.size());
  std::vector<double> left;
  std::vector<bool> done(kernels.size(), false);
  for (const SharedKernel& kernel : kernels) {
    left.push_back(kernel.alone.value());
  }
  double now = 0;
  for (;;) {
    std::vector<std::size_t> running;
    std::vector<const SharedKernel*> together;
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      const std::vector<int>& after = kernels[k].after;
      const bool ready = std::all_of(after.begin(), after.end(), [&](int before) {
        return done[static_cast<std::size_t>(before)];
      });
      if (!done[k] && ready) {
        running.push_back(k);
        together.push_back(&kernels[k]);
      }
    }
    if (running.empty()) {
      ORRERY_CHECK(std::find(done.begin(), done.end(), false) == done.end(),
                   "kernels wait for each other");
      return ends;
    }
    const std::vector<double> speeds = sharing_speeds(together);
    double step = HUGE_VAL;
    for (std::size_t i = 0; i < running.size(); ++i) {
      if (left[running[i]] <= 0) {
        step = 0;
      } else if (speeds[i] > 0) {
        step = std::min(step, left[running[i]] / speeds[i]);
      }
    }
    if (step == HUGE_VAL) {
      bad_input("kernels", "together they hold more of a resource than the device has");
    }
    now += step;
    for (std::size_t i = 0; i < running.size(); ++i) {
      const std::size_t k = running[i];
      left[k] -= speeds[i] * step;
      if (left[k] <= kTolerance * kernels[k].alone.value()) {
        done[k] = true;
        ends[k] = Seconds(now);
      }
    }
  }
}

}  // namespace orrery::sim
