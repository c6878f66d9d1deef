// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/lt_gemm.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include <array>

#include "calibrate/shared_library.hpp"

namespace orrery::calibrate::cuda {
namespace {

constexpr std::size_t kWorkspace = 32 << 20;

struct CublasApi {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmul) matmul;
};

const SharedLibrary& cublas_library() {
  static const std::array<std::string, 2> kNames = {
      fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR), "libcublasLt.so"};
  static const SharedLibrary kLibrary(kNames);
  return kLibrary;
}

CublasApi load_cublas_api() {
  CublasApi api{};
  cublas_library().load(api.create, "cublasLtCreate");
  cublas_library().load(api.version, "cublasLtGetVersion");
  cublas_library().load(api.desc_create, "cublasLtMatmulDescCreate");
  cublas_library().load(api.desc_destroy, "cublasLtMatmulDescDestroy");
  cublas_library().load(api.desc_set, "cublasLtMatmulDescSetAttribute");
  cublas_library().load(api.layout_create, "cublasLtMatrixLayoutCreate");
  cublas_library().load(api.layout_destroy, "cublasLtMatrixLayoutDestroy");
  cublas_library().load(api.layout_set, "cublasLtMatrixLayoutSetAttribute");
  cublas_library().load(api.preference_create, "cublasLtMatmulPreferenceCreate");
  cublas_library().load(api.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  cublas_library().load(api.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  cublas_library().load(api.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  cublas_library().load(api.matmul, "cublasLtMatmul");
  return api;
}

const CublasApi& cublas_api() {
  static const CublasApi kApi = load_cublas_api();
  return kApi;
}

std::string_view status_name(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "not initialised";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "invalid value";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "architecture mismatch";
    case CUBLAS_STATUS_MAPPING_ERROR:
      return "mapping error";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "execution failed";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "not supported";
    case CUBLAS_STATUS_LICENSE_ERROR:
      return "licence error";
    default:
      return "internal error";
  }
}

void check_lt(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return;
  }
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    throw Unsupported("cuBLASLt", fmt::format("{} is not supported", what));
  }
  if (status == CUBLAS_STATUS_ALLOC_FAILED) {
    throw OutOfDeviceMemory(what);
  }
  throw Error(
      ErrorKind::DeviceMissing, "cuBLASLt",
      fmt::format("{}: {} (status {})", what, status_name(status), static_cast<int>(status)));
}

cublasLtHandle_t cublas_handle() {
  static const cublasLtHandle_t kHandle = [] {
    cublasLtHandle_t created = nullptr;
    check_lt(cublas_api().create(&created), "create");
    return created;
  }();
  return kHandle;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::Fp32:
    case DType::Tf32:
      return CUDA_R_32F;
    case DType::Bf16:
      return CUDA_R_16BF;
    case DType::Fp16:
      return CUDA_R_16F;
    case DType::Fp8:
      return CUDA_R_8F_E4M3;
    case DType::Nvfp4:  // not measured (DeviceInfo::has)
      break;
  }
  return CUDA_R_32F;
}

}  // namespace

struct LtGemm::State {
  explicit State(const GemmSample& gemm)
      : a(random_buffer(count(gemm.n, gemm.k, gemm), gemm.dtype, 1)),
        b(random_buffer(count(gemm.k, gemm.m, gemm), gemm.dtype, 2)),
        c(random_buffer(count(gemm.n, gemm.m, gemm), gemm.output, 3)),
        workspace(kWorkspace),
        beta(gemm.accumulate ? 1.0F : 0.0F) {}
  ~State() {
    for (const cublasLtMatrixLayout_t layout : {layout_a, layout_b, layout_c}) {
      if (layout != nullptr) {
        cublas_api().layout_destroy(layout);
      }
    }
    if (preference != nullptr) {
      cublas_api().preference_destroy(preference);
    }
    if (desc != nullptr) {
      cublas_api().desc_destroy(desc);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  static std::size_t count(std::int64_t rows, std::int64_t columns, const GemmSample& gemm) {
    return static_cast<std::size_t>(rows * columns * gemm.groups);
  }

  // Column-major; `transposed`: stored the other way round.
  cublasLtMatrixLayout_t layout(DType dtype, std::int64_t rows, std::int64_t columns,
                                bool transposed, std::int64_t groups) const {
    if (transposed) {
      std::swap(rows, columns);
    }
    cublasLtMatrixLayout_t created = nullptr;
    check_lt(
        cublas_api().layout_create(&created, data_type(dtype), static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), rows),
        "layout");
    if (groups > 1) {
      const auto batch = static_cast<std::int32_t>(groups);
      const std::int64_t stride = rows * columns;
      check_lt(cublas_api().layout_set(created, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                       sizeof(batch)),
               "batch");
      check_lt(cublas_api().layout_set(created, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                       &stride, sizeof(stride)),
               "batch stride");
    }
    return created;
  }

  void set(cublasLtMatmulDescAttributes_t attribute, const auto& value) const {
    check_lt(cublas_api().desc_set(desc, attribute, &value, sizeof(value)), "attribute");
  }

  DeviceBuffer a;
  DeviceBuffer b;
  DeviceBuffer c;
  DeviceBuffer workspace;
  float beta;
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr;
  cublasLtMatrixLayout_t layout_b = nullptr;
  cublasLtMatrixLayout_t layout_c = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};
};

// The transpose C^T[n, m] = B^T[n, k] A^T[k, m]: the weight is the first operand.
LtGemm::LtGemm(const GemmSample& gemm, Sums sums) : state_(std::make_unique<State>(gemm)) {
  State& state = *state_;
  const cublasComputeType_t compute =
      gemm.dtype == DType::Tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check_lt(cublas_api().desc_create(&state.desc, compute, CUDA_R_32F), "descriptor");
  const bool first_transposed = gemm.layout == GemmLayout::TN;
  const bool second_transposed = gemm.layout == GemmLayout::NT;
  const cublasOperation_t first = first_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = second_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  state.set(CUBLASLT_MATMUL_DESC_TRANSA, first);
  state.set(CUBLASLT_MATMUL_DESC_TRANSB, second);
  if (gemm.dtype == DType::Fp8 && sums == Sums::Fast) {
    state.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  }
  state.layout_a = state.layout(gemm.dtype, gemm.n, gemm.k, first_transposed, gemm.groups);
  state.layout_b = state.layout(gemm.dtype, gemm.k, gemm.m, second_transposed, gemm.groups);
  state.layout_c = state.layout(gemm.output, gemm.n, gemm.m, false, gemm.groups);
  check_lt(cublas_api().preference_create(&state.preference), "preference");
  check_lt(cublas_api().preference_set(state.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                       &kWorkspace, sizeof(kWorkspace)),
           "workspace");
  int found = 0;
  check_lt(cublas_api().heuristic(cublas_handle(), state.desc, state.layout_a, state.layout_b,
                                  state.layout_c, state.layout_c, state.preference, 1,
                                  &state.choice, &found),
           "heuristic");
  if (found == 0 || state.choice.state != CUBLAS_STATUS_SUCCESS) {
    throw Unsupported("cuBLASLt", "no kernel for this shape");
  }
}

LtGemm::~LtGemm() = default;

void LtGemm::enqueue(Stream stream) const {
  const State& state = *state_;
  const float alpha = 1;
  check_lt(cublas_api().matmul(cublas_handle(), state.desc, &alpha, state.a.data(), state.layout_a,
                               state.b.data(), state.layout_b, &state.beta, state.c.data(),
                               state.layout_c, state.c.data(), state.layout_c, &state.choice.algo,
                               state.workspace.data(), kWorkspace, stream),
           "matmul");
}

std::string lt_version() {
  if (!cublas_library()) {
    return "";
  }
  const std::size_t version = cublas_api().version();
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

}  // namespace orrery::calibrate::cuda
