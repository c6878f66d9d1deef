// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/cudnn_graph.hpp"

#include <cudnn.h>
#include <fmt/format.h>

#include <deque>
#include <vector>

#include "calibrate/shared_library.hpp"

namespace orrery::calibrate::cuda {
namespace {

struct CudnnApi {
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnGetErrorString) error_string;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

const SharedLibrary& cudnn_library() {
  static const std::array<std::string, 1> kNames = {fmt::format("libcudnn.so.{}", CUDNN_MAJOR)};
  static const SharedLibrary kLibrary(kNames);
  return kLibrary;
}

CudnnApi load_cudnn_api() {
  CudnnApi api{};
  cudnn_library().load(api.create, "cudnnCreate");
  cudnn_library().load(api.set_stream, "cudnnSetStream");
  cudnn_library().load(api.error_string, "cudnnGetErrorString");
  cudnn_library().load(api.create_descriptor, "cudnnBackendCreateDescriptor");
  cudnn_library().load(api.destroy_descriptor, "cudnnBackendDestroyDescriptor");
  cudnn_library().load(api.set, "cudnnBackendSetAttribute");
  cudnn_library().load(api.get, "cudnnBackendGetAttribute");
  cudnn_library().load(api.finalize, "cudnnBackendFinalize");
  cudnn_library().load(api.execute, "cudnnBackendExecute");
  return api;
}

const CudnnApi& cudnn_api() {
  static const CudnnApi kApi = load_cudnn_api();
  return kApi;
}

bool is_unsupported(cudnnStatus_t status) {
  // Statuses of version 9 are grouped by thousands: 2xxx bad parameter, 3xxx not supported.
  return static_cast<int>(status) / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000;
}

void check_dnn(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) {
    return;
  }
  const std::string message = fmt::format("{}: {}", what, cudnn_api().error_string(status));
  if (is_unsupported(status)) {
    throw Unsupported("cuDNN", message);
  }
  throw Error(ErrorKind::DeviceMissing, "cuDNN", message);
}

cudnnHandle_t cudnn_handle() {
  static const cudnnHandle_t kHandle = [] {
    cudnnHandle_t created = nullptr;
    check_dnn(cudnn_api().create(&created), "create");
    return created;
  }();
  return kHandle;
}

class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check_dnn(cudnn_api().create_descriptor(type, &raw_), "descriptor");
  }
  ~Descriptor() { cudnn_api().destroy_descriptor(raw_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  cudnnBackendDescriptor_t raw() const { return raw_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) {
    check_dnn(cudnn_api().set(raw_, name, type, count, values),
              fmt::format("attribute {}", static_cast<int>(name)));
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.raw_);
  }
  void finalize(std::string_view what) { check_dnn(cudnn_api().finalize(raw_), what); }

 private:
  cudnnBackendDescriptor_t raw_ = nullptr;
};

cudnnDataType_t data_type(Element element) {
  switch (element) {
    case Element::Bf16:
      return CUDNN_DATA_BFLOAT16;
    case Element::Fp16:
      return CUDNN_DATA_HALF;
    case Element::Fp32:
      return CUDNN_DATA_FLOAT;
    case Element::Int32:
      return CUDNN_DATA_INT32;
    case Element::Boolean:
      return CUDNN_DATA_BOOLEAN;
  }
  return CUDNN_DATA_FLOAT;
}

cudnnPointwiseMode_t pointwise_mode(Pointwise mode) {
  constexpr std::array<cudnnPointwiseMode_t, 12> kModes = {
      CUDNN_POINTWISE_ADD,      CUDNN_POINTWISE_SUB,       CUDNN_POINTWISE_MUL,
      CUDNN_POINTWISE_DIV,      CUDNN_POINTWISE_EXP,       CUDNN_POINTWISE_LOG,
      CUDNN_POINTWISE_IDENTITY, CUDNN_POINTWISE_GEN_INDEX, CUDNN_POINTWISE_GEN_INDEX,
      CUDNN_POINTWISE_CMP_GE,   CUDNN_POINTWISE_CMP_GT,    CUDNN_POINTWISE_BINARY_SELECT};
  return kModes[static_cast<std::size_t>(mode)];
}

Element result_element(Pointwise mode) {
  switch (mode) {
    case Pointwise::RowIndex:
    case Pointwise::ColumnIndex:
      return Element::Int32;
    case Pointwise::GreaterOrEqual:
    case Pointwise::Greater:
      return Element::Boolean;
    default:
      return Element::Fp32;
  }
}

Extents packed_strides(const Extents& extents) {
  return {extents[1] * extents[2] * extents[3], extents[2] * extents[3], extents[3], 1};
}

}  // namespace

struct CudnnGraph::State {
  Descriptor& add(cudnnBackendDescriptorType_t type) { return descriptors.emplace_back(type); }

  Tensor add_tensor(const Extents& shape, const Extents& strides, Element element, bool is_virtual,
                    bool by_value) {
    Descriptor& tensor = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const auto id = static_cast<std::int64_t>(tensors.size()) + 1;
    constexpr std::int64_t kAlignment = 16;
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, data_type(element));
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, shape.data());
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, kAlignment);
    tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
    tensor.finalize("tensor");
    tensors.push_back(&tensor);
    extents.push_back(shape);
    elements.push_back(element);
    return static_cast<Tensor>(id - 1);
  }

  void bind(Tensor tensor, void* data) {
    ids.push_back(tensor + 1);
    pointers.push_back(data);
  }

  const Descriptor& tensor(Tensor number) const {
    return *tensors[static_cast<std::size_t>(number)];
  }

  void finish_operation(Descriptor& operation, std::string_view what) {
    operation.finalize(what);
    operations.push_back(operation.raw());
  }

  std::deque<Descriptor> descriptors;  // in order of creation; destroyed together
  std::deque<float> scalars;           // addresses stay
  std::vector<const Descriptor*> tensors;
  std::vector<Extents> extents;
  std::vector<Element> elements;
  std::vector<cudnnBackendDescriptor_t> operations;
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  DeviceBuffer workspace;
  Descriptor* plan = nullptr;
  Descriptor* pack = nullptr;
};

CudnnGraph::CudnnGraph() : state_(std::make_unique<State>()) {}
CudnnGraph::~CudnnGraph() = default;

CudnnGraph::Tensor CudnnGraph::stored(const Extents& extents, const Extents& strides,
                                      Element element, void* data) {
  const Tensor tensor = state_->add_tensor(extents, strides, element, false, false);
  state_->bind(tensor, data);
  return tensor;
}

CudnnGraph::Tensor CudnnGraph::value(float scalar) {
  const Tensor tensor = state_->add_tensor({1, 1, 1, 1}, {1, 1, 1, 1}, Element::Fp32, false, true);
  state_->bind(tensor, &state_->scalars.emplace_back(scalar));
  return tensor;
}

CudnnGraph::Tensor CudnnGraph::passing(const Extents& extents, const Extents& strides,
                                       Element element) {
  return state_->add_tensor(extents, strides, element, true, false);
}

CudnnGraph::Tensor CudnnGraph::passing(const Extents& extents, Element element) {
  return passing(extents, packed_strides(extents), element);
}

CudnnGraph::Tensor CudnnGraph::apply(Pointwise mode, Tensor x, Tensor second, Tensor third) {
  Element element = result_element(mode);
  const auto element_of = [&](Tensor t) { return state_->elements[static_cast<std::size_t>(t)]; };
  if (mode == Pointwise::Add && element_of(x) == Element::Int32 && second != kNone) {
    element = element_of(second);  // an index plus a bound
  }
  const Tensor result = passing(state_->extents[static_cast<std::size_t>(x)], element);
  apply_into(result, mode, x, second, third);
  return result;
}

void CudnnGraph::apply_into(Tensor result, Pointwise mode, Tensor x, Tensor second, Tensor third) {
  State& state = *state_;
  Descriptor& pointwise = state.add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  const cudnnDataType_t precision =
      result_element(mode) == Element::Boolean ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT;
  pointwise.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, pointwise_mode(mode));
  pointwise.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, precision);
  if (mode == Pointwise::RowIndex || mode == Pointwise::ColumnIndex) {
    const std::int64_t axis = mode == Pointwise::RowIndex ? 2 : 3;
    pointwise.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, axis);
  }
  pointwise.finalize("pointwise");
  Descriptor& operation = state.add(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, state.tensor(x));
  if (second != kNone) {
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, state.tensor(second));
  }
  if (third != kNone) {
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, state.tensor(third));
  }
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, state.tensor(result));
  state.finish_operation(operation, "pointwise operation");
}

void CudnnGraph::multiply_into(Tensor result, Tensor a, Tensor b) {
  State& state = *state_;
  Descriptor& matmul = state.add(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
  matmul.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  matmul.finalize("matrix product");
  Descriptor& operation = state.add(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, state.tensor(a));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, state.tensor(b));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, state.tensor(result));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, matmul);
  state.finish_operation(operation, "matrix product");
}

void CudnnGraph::reduce_into(Tensor result, Reduction mode, Tensor x) {
  State& state = *state_;
  Descriptor& reduction = state.add(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  const cudnnReduceTensorOp_t kind =
      mode == Reduction::Sum ? CUDNN_REDUCE_TENSOR_ADD : CUDNN_REDUCE_TENSOR_MAX;
  reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, kind);
  reduction.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
  reduction.finalize("reduction");
  Descriptor& operation = state.add(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, state.tensor(x));
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, state.tensor(result));
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
  state.finish_operation(operation, "reduction");
}

void CudnnGraph::reshape_into(Tensor result, Tensor x) {
  Descriptor& operation = state_->add(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, state_->tensor(x));
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, state_->tensor(result));
  state_->finish_operation(operation, "reshape");
}

void CudnnGraph::build() {
  State& state = *state_;
  Descriptor& graph = state.add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, cudnn_handle());
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            std::ssize(state.operations), state.operations.data());
  graph.finalize("graph");
  Descriptor& heuristic = state.add(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  heuristic.finalize("heuristic");
  constexpr std::int64_t kConfigurations = 4;
  std::vector<cudnnBackendDescriptor_t> found;
  for (std::int64_t i = 0; i < kConfigurations; ++i) {
    found.push_back(state.add(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  }
  std::int64_t count = 0;
  check_dnn(cudnn_api().get(heuristic.raw(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, kConfigurations, &count, found.data()),
            "heuristic");
  for (std::int64_t i = 0; i < count && state.plan == nullptr; ++i) {
    Descriptor& plan = state.add(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, cudnn_handle());
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
             found[static_cast<std::size_t>(i)]);
    if (cudnn_api().finalize(plan.raw()) == CUDNN_STATUS_SUCCESS) {
      state.plan = &plan;
    }
  }
  if (state.plan == nullptr) {
    throw Unsupported("cuDNN", "no fused kernel for this shape");
  }
  std::int64_t bytes = 0;
  check_dnn(cudnn_api().get(state.plan->raw(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                            CUDNN_TYPE_INT64, 1, &count, &bytes),
            "workspace size");
  state.workspace = DeviceBuffer(static_cast<std::size_t>(bytes));
  state.pack = &state.add(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  void* workspace = state.workspace.data();
  state.pack->set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                  std::ssize(state.pointers), state.pointers.data());
  state.pack->set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, std::ssize(state.ids),
                  state.ids.data());
  state.pack->set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  state.pack->finalize("operands");
}

void CudnnGraph::enqueue(Stream stream) const {
  check_dnn(cudnn_api().set_stream(cudnn_handle(), stream), "stream");
  check_dnn(cudnn_api().execute(cudnn_handle(), state_->plan->raw(), state_->pack->raw()),
            "attention");
}

std::string cudnn_version() {
  decltype(&cudnnGetVersion) version = nullptr;
  if (!cudnn_library() || !cudnn_library().try_load(version, "cudnnGetVersion")) {
    return "";
  }
  const std::size_t number = version();
  return fmt::format("{}.{}.{}", number / 10'000, number / 100 % 100, number % 100);
}

}  // namespace orrery::calibrate::cuda
