// Sizes and names of the plan's element types.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/plan/plan_generated.h"

namespace zefuse::plan {

inline size_t elementSize(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::f64:
  case plan::DType::i64: return 8;
  case plan::DType::f32:
  case plan::DType::i32: return 4;
  case plan::DType::f16:
  case plan::DType::bf16:
  case plan::DType::i16: return 2;
  case plan::DType::i8:
  case plan::DType::u8:
  case plan::DType::b8: return 1;
  }
  return 1;
}

inline const char* dtypeName(plan::DType dtype) { return plan::EnumNameDType(dtype); }

// c10::ScalarType's number: what ATen's schemas take for a dtype argument.
inline int64_t torchScalarType(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::u8: return 0;
  case plan::DType::i8: return 1;
  case plan::DType::i16: return 2;
  case plan::DType::i32: return 3;
  case plan::DType::i64: return 4;
  case plan::DType::f16: return 5;
  case plan::DType::f32: return 6;
  case plan::DType::f64: return 7;
  case plan::DType::b8: return 11;
  case plan::DType::bf16: return 15;
  }
  return -1;
}

}  // namespace zefuse::plan
