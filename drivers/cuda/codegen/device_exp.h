// exp, exp2 and exp10 in f32 by the device's `ex2.approx.f32`: 2 ulp over the full range, subnormal results too (PTX
// ISA, "Floating Point Instructions: ex2"). A third of the instructions of the polynomials in drivers/spirv/math.
#pragma once

namespace zf::device {

inline float exp2Instruction(float x) { return __nvvm_ex2_approx_f(x); }

// 2^(x * log2(base)): the product's rounding error, times `kLn2`, is what its power is off by.
inline float power(float x, float lowest, float highest, float factor, float factor_rest) {
  constexpr float kLn2 = 0x1.62e430p-1f;
  // A NaN stays. Beyond, the error would be that of an infinity.
  const float y = x < lowest ? lowest : x > highest ? highest : x;
  const float product = y * factor;
  const float error = __builtin_fmaf(y, factor_rest, __builtin_fmaf(y, factor, -product));
  const float result = exp2Instruction(product);
  return product >= 128.0f ? result : __builtin_fmaf(result, error * kLn2, result);  // an infinity is right
}

inline float exp2F32(float x) { return exp2Instruction(x); }
inline float expF32(float x) { return power(x, -104.5f, 89.0f, 0x1.715476p+0f, 0x1.4ae0c0p-26f); }
inline float exp10F32(float x) { return power(x, -46.0f, 39.0f, 0x1.a934f0p+1f, 0x1.2f346ep-24f); }

}  // namespace zf::device
