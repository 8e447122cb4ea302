// Chains of operations whose results go nowhere but into the output: for tests that exchange operations and operands.
// All addresses depend on ids alone, all loops have fixed bounds.
__kernel void arithmetic(__global const int* a, __global const long* b, __global const float* c,
                         __global const float4* v, __global const short* s, __global int* oi, __global long* ol,
                         __global float* of, __global float4* ov, __global short* os) {
  __local int shared[64];
  size_t i = get_global_id(0);
  int x = a[i], y = a[(i + 1) & 63];
  uint ux = (uint)x, uy = (uint)y;
  long p = b[i], q = b[(i + 3) & 63];
  float f = c[i], g = c[(i + 5) & 63];
  float4 w = v[i];
  short t = s[i];
  int d = x * 7 + (y ^ 0x55aa) - (x & y);
  d += (int)(ux / (uy | 3u)) + x / (y | 1) + x % 13 + (int)(ux % 17u) + (x << (y & 7)) + (x >> (y & 15)) + ~y;
  d += x < y ? popcount(x) : -x;
  d += max(x, y) - min(x, 100) + abs(y) + clamp(x, -50, 50) + (int)clz(ux) + mul_hi(x, y) + rotate(x, y);
  long e = p * q - (p >> 3) + (q | 5) + p / (q | 1) + (long)x + (p == q ? 1 : p > q ? 2 : 3);
  float h = f * g + f - g;
  h += fabs(f) + floor(g) + ceil(f) + rint(g) + fmax(f, g) - fmin(f, 1.5f) + f / (g * g + 1);
  h += (f < g && g != 2) || x > 3 ? sqrt(fabs(g)) : exp(-fabs(f));
  h += sin(f) + cos(g) + tanh(f) + log(fabs(g) + 1) + fma(f, g, h) + mad(f, h, g) + copysign(f, g) + (float)x + (float)uy;
  float4 r = w * w.yzwx - w + (float4)(h, f, g, 1);
  r = r > w ? r : w.wzyx;
  r.x += dot(r, w);
  t = (short)(t * 3 + (short)x - (t >> 2));
  shared[get_local_id(0)] = d;
  barrier(CLK_LOCAL_MEM_FENCE);
  int n = shared[(get_local_id(0) + 9) & 63];
  for (int k = 0; k < 5; ++k) {
    n = n * 3 + k * x - (n >> 5);
    h = h * 0.5f + (float)k;
  }
  oi[i] = d + n + convert_int_sat(h);
  ol[i] = e;
  of[i] = h;
  ov[i] = r;
  os[i] = t;
}
