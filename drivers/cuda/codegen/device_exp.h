// exp, exp2 and exp10 in f32 by the device's `ex2.approx`: 2 ulp over the full range, subnormal results too (PTX
// ISA, "Floating Point Instructions: ex2"). A quarter of the instructions of the polynomials in drivers/spirv/math.
#pragma once

namespace zf::device {

inline float exp2Instruction(float x) { return __nvvm_ex2_approx_f(x); }

// 2^(x * log2(base)), as 2^n times the instruction's power of what is left: of at most 1/2, so that what rounding the
// product loses is little of it. n is kept where 2^n is a normal number; the rest is then large, and its power zero,
// infinite or one that the last multiplication makes subnormal. A NaN stays.
inline float power(float x, float factor, float factor_rest) {
  constexpr float to_integer = 0x1.8p23f;  // the integer stands in the low bits of the sum
  float rounded = __builtin_fmaf(x, factor, to_integer);
  rounded = __builtin_fminf(__builtin_fmaxf(rounded, to_integer - 126), to_integer + 127);
  const float left = __builtin_fmaf(x, factor_rest, __builtin_fmaf(x, factor, to_integer - rounded));
  const auto bits = __builtin_bit_cast(unsigned, rounded) + 127u;  // to_integer's own bits are shifted out
  return __nvvm_ex2_approx_ftz_f(left) * __builtin_bit_cast(float, bits << 23);
}

inline float exp2F32(float x) { return exp2Instruction(x); }
inline float expF32(float x) { return power(x, 0x1.715476p+0f, 0x1.4ae0c0p-26f); }
inline float exp10F32(float x) { return power(x, 0x1.a934f0p+1f, 0x1.2f346ep-24f); }

}  // namespace zf::device
