// The plan's element types as torch's.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "common/plan/plan_generated.h"

namespace zefuse::aten {

inline c10::ScalarType scalarType(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::f32: return c10::kFloat;
  case plan::DType::f64: return c10::kDouble;
  case plan::DType::f16: return c10::kHalf;
  case plan::DType::bf16: return c10::kBFloat16;
  case plan::DType::i64: return c10::kLong;
  case plan::DType::i32: return c10::kInt;
  case plan::DType::i16: return c10::kShort;
  case plan::DType::i8: return c10::kChar;
  case plan::DType::u8: return c10::kByte;
  case plan::DType::b8: return c10::kBool;
  }
  return c10::ScalarType::Undefined;
}

// nullopt: a type that plans do not have (complex, quantised, 8-bit floats, ...).
inline std::optional<plan::DType> planDType(c10::ScalarType type) {
  for (plan::DType dtype : plan::EnumValuesDType())
    if (scalarType(dtype) == type)
      return dtype;
  return std::nullopt;
}

}  // namespace zefuse::aten
