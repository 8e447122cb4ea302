// What our driver over CUDA offers beyond Level Zero: convolutions by the vendor's library (cuDNN), among a list's
// other commands, as products are (product.h). A driver without them refuses the names; one whose machine lacks the
// library refuses convolutionCreate with the reason.
#pragma once

#include "common/ze_extension/product.h"

namespace zefuse::ze_extension {

// What is computed of the three tensors of a convolution: its result; what its image or its weight contribute to a
// gradient of the result (by_data is the transposed convolution as well).
enum class ConvolutionKind : uint32_t { forward, by_data, by_weight };

// Sizes and element strides: of images N, C, then `spatial` more; of weights the result's channels, the image's
// channels of a group, then the kernel's. `alignment`: every address given of the first element is a multiple of it.
struct ConvolutionTensor {
  uint32_t alignment;
  int64_t sizes[5], strides[5];
  bool operator==(const ConvolutionTensor&) const = default;
};

// One type for all tensors, sums in f32, rounded once. Of `forward`:
//   result = activation(convolution(image, weight) + residual + bias of the channel)
// with a residual that lies as the result does. The other kinds have none of the three.
struct ConvolutionDesc {
  ConvolutionKind kind;
  ElementType type;
  uint32_t spatial;  // 1, 2 or 3
  ConvolutionTensor image, weight, result;
  int64_t strides[3], dilations[3], padding_before[3], padding_after[3];
  Activation activation;  // none or relu
  bool bias, residual;
  bool tf32;               // operands in f32 may be rounded to 10 bits of mantissa
  size_t workspace_bytes;  // at most, that the convolution may use
  bool operator==(const ConvolutionDesc&) const = default;
};

// On the device. What `kind` computes is written, the other two of the first three are read. bias, residual: null
// without one. The workspace, at a multiple of 256, is the convolution's until it has ended.
struct ConvolutionOperands {
  void *image, *weight, *result;
  const void *bias, *residual;
  void* workspace;
};

struct ConvolutionHandle;

// As the functions of product.h.
using ConvolutionCreate = ze_result_t(ZE_APICALL*)(ze_device_handle_t device, const ConvolutionDesc* desc,
                                                   ConvolutionHandle** convolution, size_t* workspace_bytes);
using ConvolutionDestroy = ze_result_t(ZE_APICALL*)(ConvolutionHandle* convolution);
using AppendConvolution = ze_result_t(ZE_APICALL*)(ze_command_list_handle_t list, ConvolutionHandle* convolution,
                                                   const ConvolutionOperands* operands, ze_event_handle_t signal,
                                                   uint32_t wait_count, ze_event_handle_t* waits);
using ConvolutionLibrary = bool(ZE_APICALL*)(const char** text);
// What the library chose, for reports: "engine 12, tensor cores". Lives as long as the convolution.
using ConvolutionChoice = const char*(ZE_APICALL*)(ConvolutionHandle * convolution);

inline constexpr char convolution_create_name[] = "zefuseConvolutionCreate";
inline constexpr char convolution_destroy_name[] = "zefuseConvolutionDestroy";
inline constexpr char append_convolution_name[] = "zefuseCommandListAppendConvolution";
inline constexpr char convolution_library_name[] = "zefuseConvolutionLibrary";
inline constexpr char convolution_choice_name[] = "zefuseConvolutionChoice";

}  // namespace zefuse::ze_extension
