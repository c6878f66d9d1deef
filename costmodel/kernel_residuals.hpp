// SPDX-License-Identifier: Apache-2.0
// What kernels were measured to take beyond the formulas of DeviceModel: the natural logarithm of
// measured over predicted time at scattered shapes, one set for each kind of kernel, number format,
// layout and load. Between the shapes a set is interpolated (costmodel/kriging.hpp) in logarithms
// of the sizes and in what makes neighbouring sizes differ: the last wave of output tiles over the
// SMs for the tile sizes of the libraries, rows that do not fill a tile, rows that are not a
// multiple of eight. Far from the measured shapes it fades to nothing.
//
// A set belongs to the chip it was measured on (`sms`), but its values are ratios: other chips of
// the same architecture with other clocks or memory may share it (the transfer rule of profiles).
// Values are clamped to a factor of kMaxFactor. Lookups are pure; the last ones of each thread are
// remembered. Nothing is computed for a set before its first lookup.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.hpp"
#include "base/json.hpp"
#include "base/json_reader.hpp"

namespace orrery::costmodel {

enum class KernelKind : std::uint8_t { Gemm, GroupedGemm, AttentionForward, AttentionBackward };
inline constexpr int kNumKernelKinds = 4;

// Which operand is transposed, in BLAS terms of row-major training code: TN is the forward pass
// x W^T, NN the input gradient, NT the weight gradient.
enum class GemmLayout : std::uint8_t { TN, NN, NT };
inline constexpr int kNumGemmLayouts = 3;

// Whether kernels run alone, as tables time them, or for hours at the power limit.
enum class Load : std::uint8_t { Burst, Sustained };

// Load of a kernel that a table timed by repeating it. On B200 the clock gives way to the power
// limit after some 55 ms of matrix products: of SimuMax's GEMMs none that ran for longer exceeds
// 1.2 PFLOP/s, shorter ones reach 1.46.
inline constexpr Seconds kTimeToPowerLimit(0.055);
constexpr Load load_of_loop(Seconds kernel, int launches) {
  return kernel * launches < kTimeToPowerLimit ? Load::Burst : Load::Sustained;
}
// The clock stays low for a while, so shorter loops that follow long ones are sustained, too: which
// of them are is told by the time that is nearer (in the logarithm). The short loops of SimuMax
// form two groups, 0.52 to 0.79 and 0.81 to 1 of the rate of bursts.
Load load_of_timing(Seconds kernel, int launches, Seconds in_burst, Seconds sustained);
// How often SimuMax repeats a matrix product and a call of attention, warm-up included
// (simu_tools/efficency_test: 100 steps; 10 and 20 profiled).
inline constexpr int kSimumaxGemmLaunches = 100;
inline constexpr int kSimumaxAttentionLaunches = 30;

std::string_view to_text(KernelKind kind);    // "gemm", "grouped-gemm", "attention-forward", ...
std::string_view to_text(GemmLayout layout);  // "tn"
std::string_view to_text(Load load);          // "burst"

// The sizes of a kernel, slowest varying first:
//   gemm                  k, n, m
//   grouped-gemm          k, n, groups, m (rows of one group)
//   attention-...         head size, value head size, causal (0, 1), heads, key-value heads, batch,
//                         keys (as many as queries: 0), queries
using KernelSizes = std::array<std::int64_t, 8>;
int num_sizes(KernelKind kind);

// The format whose set serves a format without one: those of 16 bits stand for each other, and
// products in 4 bits for those in 8.
DType stand_in(DType dtype);

struct KernelPoint {
  KernelSizes sizes{};
  int permille = 0;  // 1000 ln(measured / formula)
  bool operator==(const KernelPoint&) const = default;
};

struct ResidualKey {
  KernelKind kind = KernelKind::Gemm;
  DType dtype = DType::Bf16;
  GemmLayout layout = GemmLayout::TN;
  Load load = Load::Burst;
  bool operator==(const ResidualKey&) const = default;
};

struct ResidualSet {
  ResidualKey key;
  std::vector<KernelPoint> points;  // sorted by sizes, each once
  bool operator==(const ResidualSet&) const = default;
};

// Cheap to copy: profiles, plans and models share the sets.
class KernelResiduals {
 public:
  static constexpr double kMaxFactor = 4;

  KernelResiduals() = default;
  // `name` is that of a data file (kFolder); empty for sets that a profile carries itself.
  KernelResiduals(std::string name, int sms, std::string source, std::vector<ResidualSet> sets);

  const std::string& name() const;
  int sms() const;
  const std::string& source() const;
  const std::vector<ResidualSet>& sets() const;
  bool empty() const { return sets().empty(); }
  bool operator==(const KernelResiduals& other) const;

  // ln of the factor on the formula's time on a chip with `sms` SMs (0: as measured); 0 where no
  // set is known, of the format or, where `stands_in`, of the one that serves it.
  double log_factor(const ResidualKey& key, const KernelSizes& sizes, int sms,
                    bool stands_in = true) const;

 private:
  struct Shared;
  std::shared_ptr<const Shared> shared_;
};

// The document of a data file, and what a profile embeds.
KernelResiduals read_kernel_residuals(const JsonReader& value, std::string name);
Json to_json(const KernelResiduals& residuals);
// `where` names them, for errors.
KernelResiduals load_kernel_residuals(const std::string& name,
                                      const std::string& where = "residuals");

}  // namespace orrery::costmodel
