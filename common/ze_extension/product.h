// What our driver over CUDA offers beyond Level Zero: matrix products by the vendor's library (cuBLASLt), among a
// list's other commands. A program asks for the functions by name (zeDriverGetExtensionFunctionAddress); a driver
// without them refuses the names, and one whose machine lacks the library refuses productCreate with the reason.
#pragma once

#include <level_zero/ze_api.h>

#include <cstddef>
#include <cstdint>

namespace zefuse::ze_extension {

enum class ElementType : uint32_t { f32, bf16, f16 };
enum class Activation : uint32_t { none, relu, gelu_tanh };

// Element (b, i, j) lies b * batch_stride + i * row_stride + j * column_stride elements behind the first. One of the
// last two is 1, or its dimension has size 1. `alignment`: every address that is given of the first element is a
// multiple of so many bytes, a power of two.
struct Matrix {
  ElementType type;
  uint32_t alignment;
  int64_t batch_stride, row_stride, column_stride;
  bool operator==(const Matrix&) const = default;
};

// out[b, i, j] = activation(alpha * sum over k of a[b, i, k] * b[b, k, j] + bias[j]): summed in f32, rounded once. Rows
// of `out` are contiguous. a and b have one type, out has it too or f32; the bias, which is contiguous, has out's.
struct ProductDesc {
  int64_t batches, rows, columns, depth;  // all at least 1
  Matrix a, b, out;
  float alpha;
  Activation activation;
  bool bias;
  bool tf32;               // operands in f32 may be rounded to 10 bits of mantissa
  size_t workspace_bytes;  // at most, that the product may use
  bool operator==(const ProductDesc&) const = default;
};

// On the device. `bias`: null without one. The workspace, at a multiple of 256, is the product's until it has ended.
struct ProductOperands {
  const void *a, *b, *bias;
  void *out, *workspace;
};

struct ProductHandle;

// `workspace_bytes`: what the product needs. DEPENDENCY_UNAVAILABLE: there is no library; UNSUPPORTED_FEATURE: it has
// no code for this product. A product may be appended by several threads at a time.
using ProductCreate = ze_result_t(ZE_APICALL*)(ze_device_handle_t device, const ProductDesc* desc,
                                               ProductHandle** product, size_t* workspace_bytes);
// Lists that hold it keep it.
using ProductDestroy = ze_result_t(ZE_APICALL*)(ProductHandle* product);
// As zeCommandListAppendLaunchKernel.
using AppendProduct = ze_result_t(ZE_APICALL*)(ze_command_list_handle_t list, ProductHandle* product,
                                               const ProductOperands* operands, ze_event_handle_t signal,
                                               uint32_t wait_count, ze_event_handle_t* waits);
// The library's name and version, or why there is none; lives as long as the process. True: there is one.
using ProductLibrary = bool(ZE_APICALL*)(const char** text);

inline constexpr char product_create_name[] = "zefuseProductCreate";
inline constexpr char product_destroy_name[] = "zefuseProductDestroy";
inline constexpr char append_product_name[] = "zefuseCommandListAppendProduct";
inline constexpr char product_library_name[] = "zefuseProductLibrary";

}  // namespace zefuse::ze_extension
