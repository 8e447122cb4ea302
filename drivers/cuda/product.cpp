#include "drivers/cuda/product.h"

#include <algorithm>
#include <map>
#include <memory>

namespace zefuse::cuda {
namespace {

using ze_extension::Activation;
using ze_extension::ElementType;
using ze_extension::Matrix;
using ze_extension::ProductDesc;

// Of a device, for as long as the process lives: made once, with its context current.
ze_result_t handleOf(const char* call, const Device& device, const CublasLtApi& library, cublasLtHandle_t& handle) {
  static std::mutex mutex;
  static std::map<const Device*, cublasLtHandle_t>* made = new std::map<const Device*, cublasLtHandle_t>;
  const std::lock_guard lock(mutex);
  auto [at, fresh] = made->try_emplace(&device);
  if (fresh)
    if (const cublasStatus_t status = library.cublasLtCreate(&at->second)) {
      made->erase(at);
      return refuse(status == CUBLAS_STATUS_ALLOC_FAILED ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
                                                         : ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE,
                    "%s: cublasLtCreate: %s (%d)", call, statusName(status), int(status));
    }
  handle = at->second;
  return ZE_RESULT_SUCCESS;
}

cudaDataType_t dataType(ElementType type) {
  switch (type) {
  case ElementType::bf16: return CUDA_R_16BF;
  case ElementType::f16: return CUDA_R_16F;
  default: return CUDA_R_32F;
  }
}

ze_result_t checkProduct(const char* call, const ProductDesc& desc) {
  for (int64_t size : {desc.batches, desc.rows, desc.columns, desc.depth})
    if (size < 1 || size > INT32_MAX)
      return refuse(ZE_RESULT_ERROR_INVALID_SIZE, "%s: %lld products of %lld x %lld and %lld x %lld", call,
                    static_cast<long long>(desc.batches), static_cast<long long>(desc.rows),
                    static_cast<long long>(desc.depth), static_cast<long long>(desc.depth),
                    static_cast<long long>(desc.columns));
  for (const Matrix* matrix : {&desc.a, &desc.b, &desc.out})
    if (matrix->type > ElementType::f16 || matrix->alignment == 0 || (matrix->alignment & (matrix->alignment - 1)))
      return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: element type %u at multiples of %u bytes", call,
                    unsigned(matrix->type), matrix->alignment);
  if (desc.activation > Activation::gelu_tanh)
    return refuse(ZE_RESULT_ERROR_INVALID_ENUMERATION, "%s: activation %u", call, unsigned(desc.activation));
  if (desc.a.type != desc.b.type || (desc.out.type != desc.a.type && desc.out.type != ElementType::f32))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: operands of two types, or a result of a third", call);
  return ZE_RESULT_SUCCESS;
}

}  // namespace

Product::~Product() {
  if (operation_)
    library.cublasLtMatmulDescDestroy(operation_);
  for (cublasLtMatrixLayout_t layout : {a_, b_, out_})
    if (layout)
      library.cublasLtMatrixLayoutDestroy(layout);
}

ze_result_t Product::fail(const char* call, const char* function, cublasStatus_t status) const {
  if (ze_result_t lost = device.lost() ? device.refuseLost(call) : ZE_RESULT_SUCCESS)
    return lost;
  const bool unsupported = status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
                           status == CUBLAS_STATUS_ARCH_MISMATCH;
  return refuse(unsupported                            ? ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                : status == CUBLAS_STATUS_ALLOC_FAILED ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
                                                       : ZE_RESULT_ERROR_UNKNOWN,
                "%s: %s: %s (%d); product of %lld x %lld and %lld x %lld", call, function, statusName(status),
                int(status), static_cast<long long>(desc.rows), static_cast<long long>(desc.depth),
                static_cast<long long>(desc.depth), static_cast<long long>(desc.columns));
}

#define ZEFUSE_CUBLASLT(call, function, ...)                                                                           \
  if (cublasStatus_t status_ = library.function(__VA_ARGS__)) [[unlikely]]                                             \
  return fail(call, #function, status_)

// cuBLASLt's matrices have contiguous columns. A matrix of ours with contiguous rows is the transpose of one.
ze_result_t Product::describe(const char* call, const char* which, const Matrix& matrix, int64_t rows, int64_t columns,
                              cublasLtMatrixLayout_t& layout, cublasOperation_t& operation) const {
  const bool contiguous_rows = matrix.column_stride == 1 || columns == 1;
  const bool contiguous_columns = matrix.row_stride == 1 || rows == 1;
  // Of two that fit, the one whose other stride reaches over what is contiguous.
  const bool by_rows = contiguous_rows && (rows == 1 || matrix.row_stride >= columns);
  if (!by_rows && !(contiguous_columns && (columns == 1 || matrix.column_stride >= rows)))
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: %s of %lld x %lld has strides %lld and %lld", call, which,
                  static_cast<long long>(rows), static_cast<long long>(columns),
                  static_cast<long long>(matrix.row_stride), static_cast<long long>(matrix.column_stride));
  operation = by_rows ? CUBLAS_OP_N : CUBLAS_OP_T;
  const int64_t inner = by_rows ? columns : rows, outer = by_rows ? rows : columns;
  const int64_t stride = outer == 1 ? inner : by_rows ? matrix.row_stride : matrix.column_stride;
  ZEFUSE_CUBLASLT(call, cublasLtMatrixLayoutCreate, &layout, dataType(matrix.type), uint64_t(inner), uint64_t(outer),
                  stride);
  if (desc.batches > 1) {
    const auto count = int32_t(desc.batches);
    ZEFUSE_CUBLASLT(call, cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                    sizeof count);
    ZEFUSE_CUBLASLT(call, cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                    &matrix.batch_stride, sizeof matrix.batch_stride);
  }
  return ZE_RESULT_SUCCESS;
}

// The result's transpose is the product of the operands' transposes in the other order.
ze_result_t Product::prepare(const char* call) {
  if (ze_result_t result = checkProduct(call, desc))
    return result;
  if (ze_result_t result = handleOf(call, device, library, handle_))
    return result;
  cublasOperation_t of_a, of_b, of_out;
  if (ze_result_t result = describe(call, "the first operand", desc.a, desc.rows, desc.depth, a_, of_a))
    return result;
  if (ze_result_t result = describe(call, "the second operand", desc.b, desc.depth, desc.columns, b_, of_b))
    return result;
  if (ze_result_t result = describe(call, "the result", desc.out, desc.rows, desc.columns, out_, of_out))
    return result;
  if (of_out != CUBLAS_OP_N)
    return refuse(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, "%s: the result's rows are not contiguous", call);
  const bool tf32 = desc.tf32 && desc.a.type == ElementType::f32;
  ZEFUSE_CUBLASLT(call, cublasLtMatmulDescCreate, &operation_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                  CUDA_R_32F);
  ZEFUSE_CUBLASLT(call, cublasLtMatmulDescSetAttribute, operation_, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof of_b);
  ZEFUSE_CUBLASLT(call, cublasLtMatmulDescSetAttribute, operation_, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof of_a);
  uint32_t epilogue = desc.activation == Activation::relu        ? CUBLASLT_EPILOGUE_RELU
                      : desc.activation == Activation::gelu_tanh ? CUBLASLT_EPILOGUE_GELU
                      : desc.bias                                ? 0
                                                                 : CUBLASLT_EPILOGUE_DEFAULT;
  epilogue |= desc.bias ? CUBLASLT_EPILOGUE_BIAS : 0;
  ZEFUSE_CUBLASLT(call, cublasLtMatmulDescSetAttribute, operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                  sizeof epilogue);
  cublasLtMatmulPreference_t made = nullptr;
  ZEFUSE_CUBLASLT(call, cublasLtMatmulPreferenceCreate, &made);
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque, cublasStatus_t (*)(cublasLtMatmulPreference_t)> preference(
      made, library.cublasLtMatmulPreferenceDestroy);
  const auto workspace = uint64_t(desc.workspace_bytes);
  ZEFUSE_CUBLASLT(call, cublasLtMatmulPreferenceSetAttribute, made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                  &workspace, sizeof workspace);
  const std::pair<cublasLtMatmulPreferenceAttributes_t, const Matrix*> alignments[] = {
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &desc.b},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &desc.a},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &desc.out},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &desc.out}};
  for (const auto& [attribute, matrix] : alignments)
    ZEFUSE_CUBLASLT(call, cublasLtMatmulPreferenceSetAttribute, made, attribute, &matrix->alignment,
                    sizeof matrix->alignment);
  int found = 0;
  ZEFUSE_CUBLASLT(call, cublasLtMatmulAlgoGetHeuristic, handle_, operation_, b_, a_, out_, out_, made, 1, &chosen_,
                  &found);
  if (found < 1 || chosen_.state != CUBLAS_STATUS_SUCCESS)
    return fail(call, "cublasLtMatmulAlgoGetHeuristic", CUBLAS_STATUS_NOT_SUPPORTED);
  return ZE_RESULT_SUCCESS;
}

ze_result_t Product::run(const char* call, const ze_extension::ProductOperands& operands, CUstream stream) {
  device.launched("a matrix product of cuBLASLt");
  const float beta = 0;
  std::unique_lock<std::mutex> lock;
  if (desc.bias) {
    lock = std::unique_lock(mutex_);
    ZEFUSE_CUBLASLT(call, cublasLtMatmulDescSetAttribute, operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &operands.bias,
                    sizeof operands.bias);
  }
  ZEFUSE_CUBLASLT(call, cublasLtMatmul, handle_, operation_, &desc.alpha, operands.b, b_, operands.a, a_, &beta,
                  operands.out, out_, operands.out, out_, &chosen_.algo, operands.workspace, chosen_.workspaceSize,
                  stream);
  return ZE_RESULT_SUCCESS;
}

ze_result_t productCreate(ze_device_handle_t hDevice, const ze_extension::ProductDesc* desc,
                          ze_extension::ProductHandle** phProduct, size_t* pWorkspaceBytes) {
  ZEFUSE_OBJECT(Device, device, hDevice);
  ZEFUSE_NOT_NULL(desc);
  ZEFUSE_NOT_NULL(phProduct);
  ZEFUSE_NOT_NULL(pWorkspaceBytes);
  constexpr const char* call = ze_extension::product_create_name;
  *phProduct = nullptr;
  *pWorkspaceBytes = 0;
  return guarded(call, [&]() -> ze_result_t {
    if (ze_result_t result = device->open(call))
      return result;
    std::string text;
    const CublasLtApi* library = findCublasLt(text);
    if (!library)
      return refuse(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, "%s: %s", call, text.c_str());
    const Current current(*device);
    auto* product = new Product(*device, *library, *desc);
    if (ze_result_t result = product->prepare(call)) {
      product->release();
      return result;
    }
    *phProduct = toHandle<ze_extension::ProductHandle*>(product);
    *pWorkspaceBytes = product->workspaceBytes();
    return ZE_RESULT_SUCCESS;
  });
}

ze_result_t productDestroy(ze_extension::ProductHandle* hProduct) {
  ZEFUSE_OBJECT(Product, product, hProduct);
  product->destroy();
  return ZE_RESULT_SUCCESS;
}

bool productLibrary(const char** pText) {
  struct Library {
    std::string text;
    bool usable;
  };
  static const Library* library = [] {  // never destroyed, as the driver
    auto* made = new Library;
    made->usable = findCublasLt(made->text) != nullptr;
    return made;
  }();
  if (pText)
    *pText = library->text.c_str();
  return library->usable;
}

}  // namespace zefuse::cuda
