// Control flow, integer types and memory.
__kernel void switch_phi(__global const int* in, __global int* out) {
  size_t i = get_global_id(0);
  int v = in[i], r = 0;
  for (int k = 0; k < 5; ++k) {
    switch (v % 7) {
    case 0: r += 1; break;
    case 1: r += k; v += 3;  // falls through
    case 2: r ^= 5; break;
    case 3: if (k == 2) continue; r -= 2; break;
    case -1: r = -r; break;
    case 5: k += 1; break;
    default: r = r * 3 + v; break;
    }
    v = v * 5 + 1 + k;
    if (r > 1000) break;
  }
  out[i] = r;
}

__kernel void switch64(__global const long* in, __global int* out) {
  size_t i = get_global_id(0);
  switch (in[i]) {
  case 0x100000001L: out[i] = 1; break;
  case 1: out[i] = 2; break;
  case -5: out[i] = 3; break;
  default: out[i] = 4;
  }
}

__kernel void integers(__global const char* c, __global const short* s, __global const long* l, __global long* out) {
  size_t i = get_global_id(0);
  char a = c[i] * 3;
  short b = s[i] - 7;
  uchar ua = (uchar)c[i] >> 1;
  out[8 * i + 0] = a;
  out[8 * i + 1] = b >> 2;
  out[8 * i + 2] = ua;
  out[8 * i + 3] = l[i] / 7 + l[i] % 5;
  out[8 * i + 4] = mul_hi(l[i], l[i]) + clz(l[i]) + popcount(l[i]);
  out[8 * i + 5] = add_sat(s[i], (short)32000) + sub_sat(c[i], (char)100) + hadd(s[i], b) + rhadd(s[i], b);
  out[8 * i + 6] = rotate((uint)l[i], 5u) + mad24((int)s[i], 3, 2) + upsample(c[i], ua) + abs_diff(s[i], b);
  out[8 * i + 7] = convert_uchar_sat(s[i]) + convert_ushort_sat(l[i]);  // clang-22 emits signed to signed as OpSatConvertUToS
}

__kernel void division(__global const int* a, __global const int* b, __global int* out) {
  size_t i = get_global_id(0);
  out[i] = a[i] / b[i] + a[i] % b[i];
}

__kernel void conversions(__global const float* x, __global int* out) {
  size_t i = get_global_id(0);
  out[6 * i + 0] = convert_int_rte(x[i]);
  out[6 * i + 1] = convert_int_rtp(x[i]);
  out[6 * i + 2] = convert_int_rtn(x[i]);
  out[6 * i + 3] = convert_int_rtz(x[i]);
  out[6 * i + 4] = convert_int_sat(x[i] * 1e20f);
  out[6 * i + 5] = convert_uchar_sat(x[i]);
}

__kernel void halves(__global half* h, __global const float* x, __global float* y) {
  size_t i = get_global_id(0);
  vstore_half(x[i], 3 * i, h);
  vstore_half_rtz(x[i], 3 * i + 1, h);
  vstore_half_rtp(x[i], 3 * i + 2, h);
  y[i] = vload_half(3 * i, h);
}

__kernel void vectors(__global const float* x, __global float* out) {
  size_t i = get_global_id(0);
  float3 a = vload3(i, x);
  float4 b = (float4)(a.zyx, 1.0f);
  int4 m = b > (float4)(2.0f);
  float4 r = select(b, b * 10.0f, m);
  r.w = any(m) ? 7.0f : all(m == 0) ? 9.0f : 0.0f;
  float2 lo = shuffle(r, (uint2)(2, 0));
  float dynamic = r[i & 3];
  vstore4(r, 2 * i, out);
  vstore4((float4)(lo, dynamic, dot(a, a)), 2 * i + 1, out);
}

int helper(int x, __private int* p) { *p += x; return x > 3 ? x * 2 : *p; }
__kernel void private_memory(__global int* out, int n) {
  int table[17];
  for (int k = 0; k < 17; ++k)
    table[k] = k * k + get_global_id(0);
  int acc = 0;
  int sum = 0;
  for (int k = 0; k < n; ++k)
    sum += helper(table[(k * 5 + get_local_id(0)) % 17], &acc);
  out[get_global_id(0)] = sum + acc;
}

__kernel void ids(__global long* out) {
  size_t lin = get_global_linear_id();
  __global long* o = out + 20 * lin;
  for (int d = 0; d < 3; ++d) {
    o[d] = get_global_id(d);
    o[3 + d] = get_local_id(d);
    o[6 + d] = get_group_id(d);
    o[9 + d] = get_global_size(d);
    o[12 + d] = get_global_offset(d);
  }
  o[15] = get_work_dim();
  o[16] = get_local_linear_id();
  o[17] = get_num_groups(1);
  o[18] = get_local_size(2);
  o[19] = get_global_id(5) + get_local_size(7);
}
