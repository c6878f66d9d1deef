// SPDX-License-Identifier: Apache-2.0
// Kernel times of linkedin/Liger-Kernel (benchmark/data/all_benchmark_data.csv): median, 20th and
// 80th percentile, one swept size and the other sizes as a JSON object. Benchmarks of whole blocks
// (with matrix products) and of forward and backward together are left out; where the table does
// not name the number format it is the default of PyTorch, fp32.
#include <algorithm>

#include "base/json.hpp"
#include "calibrate/table_reader.hpp"

namespace orrery::calibrate {
namespace {

using costmodel::MemoryKernel;

bool recognises(const FileHead& head) {
  return has_columns(head, {"gpu", "kernel", "impl", "pass_", "x_name", "x", "config",
                            "time_us_p50", "time_us_p20", "time_us_p80"});
}

// The sizes of a row: the swept one and those of `config`.
class Sizes {
 public:
  explicit Sizes(const TableRow& row)
      : row_(row), config_(parse_json(row.text("config"), row.builder().path() + ": config")) {}

  std::int64_t operator()(std::string_view name) const {
    if (row_.text("x_name") == name) {
      return row_.count("x");
    }
    const Json* value = config_.find(name);
    return value != nullptr && value->is_integer() && value->as_integer() > 0 &&
                   value->as_integer() < (std::int64_t{1} << 31)
               ? value->as_integer()
               : 0;
  }
  DType dtype() const {
    const Json* value = config_.find("dtype");
    const std::optional<DType> dtype =
        value != nullptr && value->is_string() ? foreign_dtype(value->as_string()) : std::nullopt;
    return dtype.value_or(DType::Fp32);
  }

 private:
  const TableRow& row_;
  Json config_;
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
  if (name == "embedding" && !backward) {
    return Kernel{MemoryKernel::Embedding, "embedding", sizes("B") * sizes("T"), sizes("D")};
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

void read_row(const TableRow& row) {
  const std::string& name = row.text("kernel");
  const std::string& pass = row.text("pass_");
  if (pass != "forward" && pass != "backward") {
    row.left_out("time of forward and backward together");
    return;
  }
  const Sizes sizes(row);
  const std::optional<Kernel> kernel = kernel_of(name, row.text("impl"), pass == "backward", sizes);
  if (!kernel || kernel->rows <= 0 || kernel->columns <= 0) {
    row.left_out("kernel \"" + name + "\" " + pass);
    return;
  }
  const DType dtype = sizes.dtype();
  const std::int64_t bytes = kernel->rows * kernel->columns * bytes_per_element(dtype);
  const MemorySample sample{.kernel = kernel->kind,
                            .operation = std::string(kernel->operation),
                            .bytes_read = kernel->traffic.reads * bytes,
                            .bytes_written = kernel->traffic.writes * bytes,
                            .rows = kernel->rows,
                            .columns = kernel->columns,
                            .dtype = dtype,
                            .backward = pass == "backward"};
  const double median = row.number("time_us_p50");
  const Timing time{.median = Seconds(median * 1e-6),
                    .p25 = Seconds(std::min(row.number("time_us_p20"), median) * 1e-6),
                    .p75 = Seconds(std::max(row.number("time_us_p80"), median) * 1e-6)};
  row.add(sample, time, row.text("impl"));
}

Reading read(const std::string& path, const ReadOptions& options) {
  return read_table(path, options, read_row);
}

}  // namespace

extern const SampleReader reader_liger = {
    "liger", "kernel times: gpu,kernel,impl,pass_,x_name,x,config,time_us_p50 (CSV)", recognises,
    read};

}  // namespace orrery::calibrate
