// SPDX-License-Identifier: Apache-2.0
#include "calibrate/liger_kernel.hpp"

#include <algorithm>
#include <cmath>

#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::MemoryKernel;

constexpr std::string_view kLookup = "embedding";

// The sizes of a row: the swept one and those of `config`.
class Sizes {
 public:
  explicit Sizes(const LigerRow& row) : row_(row) {}

  std::int64_t operator()(std::string_view name) const {
    if (row_.swept == name) {
      return row_.size;
    }
    const Json* value = row_.config.find(name);
    return value != nullptr && value->is_integer() && value->as_integer() > 0 &&
                   value->as_integer() < (std::int64_t{1} << 31)
               ? value->as_integer()
               : 0;
  }
  DType dtype() const {
    const Json* value = row_.config.find("dtype");
    const std::optional<DType> dtype =
        value != nullptr && value->is_string() ? foreign_dtype(value->as_string()) : std::nullopt;
    return dtype.value_or(DType::Fp32);
  }

 private:
  const LigerRow& row_;
};

// Reads and writes of whole operands, each once.
struct Traffic {
  int reads = 1;
  int writes = 1;
};

struct Kernel {
  MemoryKernel kind;
  std::string_view operation;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  Traffic traffic = {};
};

// Expected share of `draws` from `values` equally likely ones that are drawn for the first time.
double distinct_share(std::int64_t draws, std::int64_t values) {
  const auto n = static_cast<double>(draws);
  const auto v = static_cast<double>(values);
  return v <= 0 ? 1.0 : -std::expm1(-n / v) * v / n;
}

std::optional<Kernel> kernel_of(const std::string& name, const std::string& impl, bool backward,
                                const Sizes& sizes) {
  if (name == "layer_norm") {
    return Kernel{MemoryKernel::Norm, "layer-norm", sizes("M"), sizes("N"), {backward ? 2 : 1, 1}};
  }
  if (name == "fused_add_rms_norm") {
    return Kernel{MemoryKernel::Norm,
                  "add-rms-norm",
                  sizes("M"),
                  sizes("H"),
                  {backward ? 3 : 2, backward ? 1 : 2}};
  }
  if (name == "rope") {  // head_dim = hidden / query heads, so a row is (q + kv) head_dim wide
    const std::int64_t hidden = sizes("H") > 0 ? sizes("H") : sizes("hidden_size");
    const std::int64_t tokens = sizes("T") > 0 ? sizes("T") : sizes("seq_len");
    const std::int64_t heads = sizes("num_q_heads");
    const std::int64_t width = heads > 0 ? hidden / heads * (heads + sizes("num_kv_heads")) : 0;
    return Kernel{MemoryKernel::Elementwise, "rotary", tokens, width};
  }
  if (name == "softmax" && !backward) {
    return Kernel{MemoryKernel::Softmax, "softmax", sizes("M"), sizes("N")};
  }
  if (name == kLookup && !backward) {  // a fused lookup streams rows as other kernels do
    return Kernel{MemoryKernel::Elementwise, "embedding", sizes("B") * sizes("T"), sizes("D")};
  }
  if (name == "cross_entropy" && !backward) {  // Liger's leaves the gradient in its input
    return Kernel{MemoryKernel::CrossEntropy,
                  "cross-entropy",
                  sizes("B") * sizes("T"),
                  sizes("V"),
                  {1, impl == "liger" ? 1 : 0}};
  }
  return std::nullopt;
}

// Bytes of the rows that a lookup reads for the first time.
std::int64_t first_reads(const Sizes& sizes) {
  const std::int64_t tokens = sizes("B") * sizes("T");
  const double bytes = static_cast<double>(tokens * sizes("D")) * bytes_per_element(sizes.dtype());
  return std::llround(bytes * distinct_share(tokens, sizes("V")));
}

}  // namespace

RepeatedReads repeated_reads(const LigerRow& row) {
  if (row.kernel != kLookup || row.pass != "forward") {
    return {};
  }
  // Liger's kernel takes 128 columns of all tokens before the next (grid of
  // src/liger_kernel/ops/experimental/embedding.py), others take whole rows.
  constexpr std::int64_t kColumns = 128;
  const Sizes sizes(row);
  const double element = bytes_per_element(sizes.dtype());
  const auto bytes = [element](std::int64_t elements) {
    return std::llround(static_cast<double>(elements) * element);
  };
  const std::int64_t width = sizes("D");
  const std::int64_t at_once = row.implementation == "liger" ? std::min(kColumns, width) : width;
  return {bytes(sizes("B") * sizes("T") * width) - first_reads(sizes), bytes(sizes("V") * at_once)};
}

std::optional<MemorySample> liger_kernel(const LigerRow& row) {
  const bool backward = row.pass == "backward";
  if (!backward && row.pass != "forward") {
    return std::nullopt;
  }
  const Sizes sizes(row);
  const std::optional<Kernel> kernel = kernel_of(row.kernel, row.implementation, backward, sizes);
  if (!kernel || kernel->rows <= 0 || kernel->columns <= 0) {
    return std::nullopt;
  }
  const DType dtype = sizes.dtype();
  const std::int64_t bytes =
      std::llround(static_cast<double>(kernel->rows * kernel->columns) * bytes_per_element(dtype));
  const std::int64_t read =
      row.kernel == kLookup ? first_reads(sizes) : kernel->traffic.reads * bytes;
  return MemorySample{.kernel = kernel->kind,
                      .operation = std::string(kernel->operation),
                      .bytes_read = read,
                      .bytes_written = kernel->traffic.writes * bytes,
                      .rows = kernel->rows,
                      .columns = kernel->columns,
                      .dtype = dtype,
                      .backward = backward};
}

}  // namespace orrery::calibrate
