// Kernels on images, of image_test.cpp.
#pragma OPENCL EXTENSION cl_khr_3d_image_writes : enable
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define AT2 (int2)(get_global_id(0), get_global_id(1))
#define INDEX (get_global_id(1) * get_global_size(0) + get_global_id(0))

kernel void scale(read_only image2d_t in, write_only image2d_t out, float factor) {
  write_imagef(out, AT2, factor * read_imagef(in, AT2));
}

kernel void read_f(read_only image2d_t in, global float4* out) { out[INDEX] = read_imagef(in, AT2); }
kernel void read_u(read_only image2d_t in, global uint4* out) { out[INDEX] = read_imageui(in, AT2); }
kernel void read_h(read_only image2d_t in, global float4* out) { out[INDEX] = convert_float4(read_imageh(in, AT2)); }
kernel void write_f(write_only image2d_t out, global const float4* in) { write_imagef(out, AT2, in[INDEX]); }
kernel void write_u(write_only image2d_t out, global const uint4* in) { write_imageui(out, AT2, in[INDEX]); }

// Every coordinate of `at` by the sampler that an argument is.
kernel void sample1(read_only image1d_t in, sampler_t s, global const float4* at, global float4* out) {
  out[INDEX] = read_imagef(in, s, at[INDEX].x);
}
kernel void sample2(read_only image2d_t in, sampler_t s, global const float4* at, global float4* out) {
  out[INDEX] = read_imagef(in, s, at[INDEX].xy);
}
kernel void sample3(read_only image3d_t in, sampler_t s, global const float4* at, global float4* out) {
  out[INDEX] = read_imagef(in, s, at[INDEX]);
}
kernel void sample1a(read_only image1d_array_t in, sampler_t s, global const float4* at, global float4* out) {
  out[INDEX] = read_imagef(in, s, at[INDEX].xy);
}
kernel void sample2a(read_only image2d_array_t in, sampler_t s, global const float4* at, global float4* out) {
  out[INDEX] = read_imagef(in, s, at[INDEX]);
}
kernel void sample_u(read_only image2d_t in, sampler_t s, global const float4* at, global uint4* out) {
  out[INDEX] = read_imageui(in, s, at[INDEX].xy);
}

// By samplers of the program's own, at whole coordinates from -1 on.
constant sampler_t kClamp = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void constant_samplers(read_only image2d_t in, global float4* out) {
  const sampler_t edge = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;
  out[2 * INDEX] = read_imagef(in, kClamp, AT2 - 1);
  out[2 * INDEX + 1] = read_imagef(in, edge, AT2 - 1);
}

// One texel of each kind of image, at whole coordinates that may lie outside, moved to another of the kind.
kernel void move1(read_only image1d_t in, write_only image1d_t out, int4 from, int4 to) {
  write_imagef(out, to.x, read_imagef(in, from.x));
}
kernel void move1a(read_only image1d_array_t in, write_only image1d_array_t out, int4 from, int4 to) {
  write_imagef(out, to.xy, read_imagef(in, from.xy));
}
kernel void move2(read_only image2d_t in, write_only image2d_t out, int4 from, int4 to) {
  write_imagef(out, to.xy, read_imagef(in, from.xy));
}
kernel void move2a(read_only image2d_array_t in, write_only image2d_array_t out, int4 from, int4 to) {
  write_imagef(out, to, read_imagef(in, from));
}
kernel void move3(read_only image3d_t in, write_only image3d_t out, int4 from, int4 to) {
  write_imagef(out, to, read_imagef(in, from));
}
kernel void move_buffer(read_only image1d_buffer_t in, write_only image1d_buffer_t out, int4 from, int4 to) {
  write_imagef(out, to.x, read_imagef(in, from.x));
}

kernel void queries(read_only image1d_t a, read_only image1d_array_t aa, read_only image2d_t b,
                    read_only image2d_array_t ba, read_only image3d_t c, read_only image1d_buffer_t d, global int* out) {
  out[0] = get_image_width(a);
  out[1] = get_image_width(aa);
  out[2] = get_image_array_size(aa);
  out[3] = get_image_width(b);
  out[4] = get_image_height(b);
  out[5] = get_image_width(ba);
  out[6] = get_image_height(ba);
  out[7] = get_image_array_size(ba);
  out[8] = get_image_width(c);
  out[9] = get_image_height(c);
  out[10] = get_image_depth(c);
  out[11] = get_image_width(d);
  out[12] = get_image_channel_order(b);
  out[13] = get_image_dim(b).y;
}

// Each item turns its own texel of one image, in a function of its own, over a barrier.
float4 __attribute__((noinline)) turned(read_write image2d_t image, int2 at) { return read_imagef(image, at).wzyx; }
kernel void turn(read_write image2d_t image) {
  float4 texel = turned(image, AT2);
  barrier(CLK_LOCAL_MEM_FENCE);
  write_imagef(image, AT2, texel);
}
