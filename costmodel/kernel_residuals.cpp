// SPDX-License-Identifier: Apache-2.0
#include "costmodel/kernel_residuals.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "base/error.hpp"
#include "costmodel/kriging.hpp"

namespace orrery::costmodel {

namespace {

double log2_of(std::int64_t value) {
  return std::log2(static_cast<double>(std::max<std::int64_t>(1, value)));
}

// log2 of the time of whole waves of rows x columns tiles over that of as many tiles spread evenly.
double wave_loss(std::int64_t m, std::int64_t n, int rows, int columns, double groups, double sms) {
  const double tiles = groups * std::ceil(static_cast<double>(m) / rows) *
                       std::ceil(static_cast<double>(n) / columns) / sms;
  return std::log2(std::ceil(tiles) / tiles);
}

double padding_loss(std::int64_t m, int rows) {
  const auto filled = static_cast<double>(m);
  return std::log2(std::ceil(filled / rows) * rows / filled);
}

// The weights were chosen once by cross-validation over the bf16 tables of A100, H100, B200 and
// L40S: they say how similar two shapes are, and hold for all chips.
Kriging::Point gemm_coordinates(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t groups,
                                double sms) {
  const auto g = static_cast<double>(groups);
  const auto wave = [&](int rows, int columns) { return wave_loss(m, n, rows, columns, g, sms); };
  const double unaligned = (m % 8 != 0 ? 0.22 : 0) + (n % 8 != 0 || k % 8 != 0 ? 1.0 : 0);
  const std::array<double, Kriging::kDimensions> at = {0.33 * log2_of(m) + 0.33 * log2_of(groups),
                                                       0.33 * log2_of(n),
                                                       0.3 * log2_of(k),
                                                       unaligned,
                                                       0.5 * padding_loss(m, 128),
                                                       0.5 * padding_loss(m, 64),
                                                       1.5 * wave(128, 128),
                                                       1.5 * wave(128, 256),
                                                       0.67 * wave(256, 128),
                                                       1.0 * wave(256, 256),
                                                       1.1 * wave(64, 64),
                                                       1.1 * wave(128, 64)};
  Kriging::Point point;
  std::transform(at.begin(), at.end(), point.begin(),
                 [](double x) { return static_cast<float>(x); });
  return point;
}

// Experts: rows of a group are padded by themselves, and the number of groups counts by itself. How
// many tokens an expert has is a mean and no row of theirs starts unaligned: eights are not told
// apart.
Kriging::Point grouped_coordinates(const KernelSizes& sizes, double sms) {
  const auto eights = [](std::int64_t tokens) { return (tokens + 7) / 8 * 8; };
  Kriging::Point point = gemm_coordinates(eights(sizes[3]), sizes[1], eights(sizes[0]), 1, sms);
  point[11] = static_cast<float>(0.5 * log2_of(sizes[2]));
  return point;
}

Kriging::Point attention_coordinates(const KernelSizes& sizes, double sms) {
  const std::int64_t queries = sizes[7];
  const std::int64_t keys = sizes[6] > 0 ? sizes[6] : queries;
  const std::int64_t lanes = sizes[5] * sizes[3];
  const double waves =
      static_cast<double>(lanes) * std::ceil(static_cast<double>(queries) / 256) / sms;
  const std::array<double, 9> at = {0.6 * log2_of(queries),
                                    0.6 * (log2_of(keys) - log2_of(queries)),
                                    1.6 * log2_of(lanes),
                                    0.3 * log2_of(sizes[5]),
                                    0.5 * (log2_of(sizes[3]) - log2_of(sizes[4])),
                                    1.6 * log2_of(sizes[0]),
                                    1.6 * (log2_of(sizes[1]) - log2_of(sizes[0])),
                                    1.0 * static_cast<double>(sizes[2]),
                                    0.8 * std::log2(std::ceil(waves) / waves)};
  Kriging::Point point{};
  std::transform(at.begin(), at.end(), point.begin(),
                 [](double x) { return static_cast<float>(x); });
  return point;
}

Kriging::Point coordinates(KernelKind kind, const KernelSizes& sizes, int sms) {
  const double units = std::max(1, sms);
  switch (kind) {
    case KernelKind::Gemm:
      return gemm_coordinates(sizes[2], sizes[1], sizes[0], 1, units);
    case KernelKind::GroupedGemm:
      return grouped_coordinates(sizes, units);
    default:
      return attention_coordinates(sizes, units);
  }
}

// A shape on the surface of a set.
struct Asked {
  std::uint64_t surface = 0;
  int sms = 0;
  KernelSizes sizes{};
  bool operator==(const Asked&) const = default;
};

struct AskedHash {
  std::size_t operator()(const Asked& asked) const {
    std::uint64_t hash =
        asked.surface * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(asked.sms);
    for (const std::int64_t size : asked.sizes) {
      hash = (hash ^ static_cast<std::uint64_t>(size)) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

// Predictions that all threads share: a new thread asks for what others asked for. At most some
// 60 MB.
class SharedPredictions {
 public:
  template <typename Predict>
  double of(const Asked& asked, std::size_t hash, Predict predict) {
    Part& part = parts_[(hash >> 48) % parts_.size()];
    {
      const std::lock_guard lock(part.mutex);
      if (const auto known = part.values.find(asked); known != part.values.end()) {
        return known->second;
      }
    }
    const double value = predict();
    const std::lock_guard lock(part.mutex);
    if (part.values.size() >= kMostInPart) {
      part.values.clear();
    }
    part.values.emplace(asked, value);
    return value;
  }

 private:
  static constexpr std::size_t kMostInPart = 8192;
  struct Part {
    std::mutex mutex;
    std::unordered_map<Asked, double, AskedHash> values;
  };
  std::array<Part, 64> parts_;
};

// A set with its interpolation, built at the first lookup.
class Surface {
 public:
  Surface(const ResidualSet& set, int sms) : set_(set), sms_(sms) {
    static std::atomic<std::uint64_t> next{1};
    id_ = next.fetch_add(1);
  }
  const ResidualKey& key() const { return set_.key; }

  double at(const KernelSizes& sizes, int sms) const {
    static SharedPredictions predictions;
    const Asked asked{id_, sms > 0 ? sms : sms_, sizes};
    const std::size_t hash = AskedHash()(asked);
    Remembered& slot = remembered(hash);
    if (slot.asked != asked) {
      slot = {asked, predictions.of(asked, hash, [&] {
                return interpolation().predict(coordinates(set_.key.kind, sizes, asked.sms));
              })};
    }
    return slot.value;
  }

 private:
  struct Remembered {
    Asked asked;
    double value = 0;
  };

  // By this thread.
  static Remembered& remembered(std::size_t hash) {
    constexpr std::size_t kSlots = 16384;
    // Not inside the thread's own storage, which is taken from its stack.
    thread_local const auto slots = std::make_unique<std::array<Remembered, kSlots>>();
    return (*slots)[hash % kSlots];
  }

  const Kriging& interpolation() const {
    std::call_once(built_, [&] {
      std::vector<Kriging::Point> points;
      std::vector<double> values;
      points.reserve(set_.points.size());
      values.reserve(set_.points.size());
      for (const KernelPoint& point : set_.points) {
        points.push_back(coordinates(set_.key.kind, point.sizes, sms_));
        values.push_back(point.permille / 1000.0);
      }
      kriging_.emplace(points, values);
    });
    return *kriging_;
  }

  const ResidualSet& set_;
  int sms_;
  std::uint64_t id_;
  mutable std::once_flag built_;
  mutable std::optional<Kriging> kriging_;
};

}  // namespace

struct KernelResiduals::Shared {
  std::string name;
  int sms;
  std::string source;
  std::vector<ResidualSet> sets;
  std::vector<std::unique_ptr<Surface>> surfaces;
};

KernelResiduals::KernelResiduals(std::string name, int sms, std::string source,
                                 std::vector<ResidualSet> sets) {
  auto shared = std::make_shared<Shared>();
  shared->name = std::move(name);
  shared->sms = sms;
  shared->source = std::move(source);
  shared->sets = std::move(sets);
  for (const ResidualSet& set : shared->sets) {
    shared->surfaces.push_back(std::make_unique<Surface>(set, sms));
  }
  shared_ = std::move(shared);
}

const std::string& KernelResiduals::name() const {
  static const std::string kNone;
  return shared_ ? shared_->name : kNone;
}

Load load_of_timing(Seconds kernel, int launches, Seconds in_burst, Seconds sustained) {
  const bool nearer = kernel * kernel > in_burst * sustained;
  return sustained > in_burst && nearer ? Load::Sustained : load_of_loop(kernel, launches);
}

int KernelResiduals::sms() const { return shared_ ? shared_->sms : 0; }

const std::string& KernelResiduals::source() const {
  static const std::string kNone;
  return shared_ ? shared_->source : kNone;
}

const std::vector<ResidualSet>& KernelResiduals::sets() const {
  static const std::vector<ResidualSet> kNone;
  return shared_ ? shared_->sets : kNone;
}

bool KernelResiduals::operator==(const KernelResiduals& other) const {
  return shared_ == other.shared_ || (name() == other.name() && sms() == other.sms() &&
                                      source() == other.source() && sets() == other.sets());
}

DType stand_in(DType dtype) {
  switch (dtype) {
    case DType::Bf16:
      return DType::Fp16;
    case DType::Fp16:
      return DType::Bf16;
    case DType::Nvfp4:
      return DType::Fp8;
    default:
      return dtype;
  }
}

double KernelResiduals::log_factor(const ResidualKey& key, const KernelSizes& sizes, int sms,
                                   bool stands_in) const {
  if (!shared_) {
    return 0;
  }
  const auto find = [&](const ResidualKey& wanted) {
    return std::find_if(shared_->surfaces.begin(), shared_->surfaces.end(),
                        [&](const auto& surface) { return surface->key() == wanted; });
  };
  auto found = find(key);
  if (found == shared_->surfaces.end() && stands_in) {
    ResidualKey other = key;
    other.dtype = stand_in(key.dtype);
    found = find(other);
  }
  if (found == shared_->surfaces.end()) {
    return 0;
  }
  const double limit = std::log(kMaxFactor);
  return std::clamp((*found)->at(sizes, sms), -limit, limit);
}

}  // namespace orrery::costmodel
