// Images and samplers: what kernels read and write, and copies.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/unit/driver/image_helpers.h"

namespace zefuse::test {
namespace {

class Images : public ImageTest {};

constexpr uint32_t kWidth = 5, kHeight = 3;

TEST_F(Images, AKernelReadsOneAndWritesAnother) {
  ze_image_handle_t in = image(
      describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, ZE_IMAGE_FORMAT_TYPE_FLOAT, {kWidth, kHeight}));
  ze_image_handle_t out = image(
      describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, ZE_IMAGE_FORMAT_TYPE_FLOAT, {kWidth, kHeight}));
  auto* texels = allocate<float>(4 * kWidth * kHeight);
  for (uint32_t i = 0; i < 4 * kWidth * kHeight; ++i)
    texels[i] = static_cast<float>(i) - 7.5f;
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  ZE_OK(zeCommandListAppendImageCopyFromMemory(list, in, texels, nullptr, nullptr, 0, nullptr));
  ze_kernel_handle_t scale = kernel(images(), "scale", kWidth, 1);
  setImage(scale, 0, in);
  setImage(scale, 1, out);
  ZE_OK(setValue(scale, 2, 3.0f));
  const ze_group_count_t groups = {1, kHeight, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, scale, &groups, nullptr, 0, nullptr));
  auto* results = allocate<float>(4 * kWidth * kHeight);
  ZE_OK(zeCommandListAppendImageCopyToMemory(list, results, out, nullptr, nullptr, 0, nullptr));
  for (uint32_t i = 0; i < 4 * kWidth * kHeight; ++i)
    EXPECT_EQ(3 * texels[i], results[i]) << i;
}

// A format, values to write, what must be read again, and the bytes of the first texel where they are worth saying.
struct FormatCase {
  const char* name;
  ze_image_format_layout_t layout;
  ze_image_format_type_t type;
  std::array<float, 4> written, read;
  std::vector<uint8_t> bytes;
};

constexpr auto kUnorm = ZE_IMAGE_FORMAT_TYPE_UNORM, kSnorm = ZE_IMAGE_FORMAT_TYPE_SNORM,
               kFloat = ZE_IMAGE_FORMAT_TYPE_FLOAT, kUint = ZE_IMAGE_FORMAT_TYPE_UINT,
               kSint = ZE_IMAGE_FORMAT_TYPE_SINT;

const std::vector<FormatCase>& floatFormats() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  static const std::vector<FormatCase> cases = {
      {"8 unorm", ZE_IMAGE_FORMAT_LAYOUT_8, kUnorm, {0.5f, 9, 9, 9}, {128 / 255.0f, 0, 0, 1}, {128}},
      {"8 8 unorm", ZE_IMAGE_FORMAT_LAYOUT_8_8, kUnorm, {2, -1, 9, 9}, {1, 0, 0, 1}, {255, 0}},
      {"8 8 8 8 unorm",
       ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8,
       kUnorm,
       {1, 0.2f, 0, 0.9f},
       {1, 51 / 255.0f, 0, 229 / 255.0f},
       {255, 51, 0, 229}},
      {"8 8 8 8 snorm",
       ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8,
       kSnorm,
       {-1, -2, 0.5f, kInfinity},
       {-1, -1, 64 / 127.0f, 1},
       {0x81, 0x81, 64, 127}},
      {"16 unorm", ZE_IMAGE_FORMAT_LAYOUT_16, kUnorm, {0.25f, 0, 0, 0}, {16384 / 65535.0f, 0, 0, 1}, {0x00, 0x40}},
      {"16 16 snorm",
       ZE_IMAGE_FORMAT_LAYOUT_16_16,
       kSnorm,
       {-1, 0.5f, 0, 0},
       {-1, 16384 / 32767.0f, 0, 1},
       {0x01, 0x80, 0x00, 0x40}},
      {"16 16 16 16 float",
       ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16,
       kFloat,
       {1.5f, -2, 65520, 0x1p-24f},
       {1.5f, -2, kInfinity, 0x1p-24f},
       {0x00, 0x3e, 0x00, 0xc0, 0x00, 0x7c, 0x01, 0x00}},
      {"32 float", ZE_IMAGE_FORMAT_LAYOUT_32, kFloat, {-0.1f, 5, 5, 5}, {-0.1f, 0, 0, 1}, {}},
      {"32 32 float", ZE_IMAGE_FORMAT_LAYOUT_32_32, kFloat, {1e30f, -1e-30f, 5, 5}, {1e30f, -1e-30f, 0, 1}, {}},
      {"32 32 32 32 float", ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, kFloat, {1, 2, 3, 4}, {1, 2, 3, 4}, {}},
      {"32 32 unorm",
       ZE_IMAGE_FORMAT_LAYOUT_32_32,
       kUnorm,
       {1, 0.5f, 0, 0},
       {1, 0.5f, 0, 1},
       {0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x80}},
      {"32 snorm", ZE_IMAGE_FORMAT_LAYOUT_32, kSnorm, {-1, 0, 0, 0}, {-1, 0, 0, 1}, {0x01, 0x00, 0x00, 0x80}},
      {"10 10 10 2 unorm",
       ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2,
       kUnorm,
       {1, 0, 0.5f, 1},
       {1, 0, 512 / 1023.0f, 1},
       {0xff, 0x03, 0x00, 0xe0}},
      {"11 11 10 float",
       ZE_IMAGE_FORMAT_LAYOUT_11_11_10,
       kFloat,
       {1.5f, -1, 0.25f, 7},
       {1.5f, 0, 0.25f, 1},
       {0xe0, 0x03, 0x00, 0x68}},
      {"5 6 5 unorm", ZE_IMAGE_FORMAT_LAYOUT_5_6_5, kUnorm, {1, 0, 0.5f, 7}, {1, 0, 16 / 31.0f, 1}, {0x10, 0xf8}},
      {"5 5 5 1 unorm", ZE_IMAGE_FORMAT_LAYOUT_5_5_5_1, kUnorm, {0, 1, 0, 1}, {0, 1, 0, 1}, {0xe0, 0x83}},
      {"4 4 4 4 unorm",
       ZE_IMAGE_FORMAT_LAYOUT_4_4_4_4,
       kUnorm,
       {1, 0, 0.2f, 0.4f},
       {1, 0, 3 / 15.0f, 6 / 15.0f},
       {0x03, 0x6f}},
  };
  return cases;
}

TEST_F(Images, FloatsAreKeptInEveryFormat) {
  ze_module_handle_t program = images();
  for (const FormatCase& each : floatFormats()) {
    SCOPED_TRACE(each.name);
    Through<float> through(*this, program, "write_f", "read_f", each.layout, each.type);
    const auto read = through.run(each.written);
    for (int i = 0; i < 4; ++i)
      EXPECT_EQ(each.read[i], read[i]) << i;
    if (!each.bytes.empty())
      EXPECT_EQ(each.bytes, through.bytes(each.bytes.size()));
  }
}

TEST_F(Images, ANotANumberIsKeptOrBecomesZero) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ze_module_handle_t program = images();
  for (auto layout :
       {ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, ZE_IMAGE_FORMAT_LAYOUT_11_11_10}) {
    Through<float> through(*this, program, "write_f", "read_f", layout, kFloat);
    EXPECT_TRUE(std::isnan(through.run({nan, 0, 0, 0})[0])) << layout;
  }
  Through<float> through(*this, program, "write_f", "read_f", ZE_IMAGE_FORMAT_LAYOUT_8, kUnorm);
  EXPECT_EQ(0, through.run({nan, 0, 0, 0})[0]);
}

struct IntegerCase {
  ze_image_format_layout_t layout;
  ze_image_format_type_t type;
  std::array<uint32_t, 4> written, read;
};

TEST_F(Images, IntegersSaturate) {
  const uint32_t minus_one = static_cast<uint32_t>(-1), least = 0x80000000u;
  const IntegerCase cases[] = {
      {ZE_IMAGE_FORMAT_LAYOUT_8, kUint, {300, 1, 1, 1}, {255, 0, 0, 1}},
      {ZE_IMAGE_FORMAT_LAYOUT_8_8, kSint, {300, minus_one, 1, 1}, {127, minus_one, 0, 1}},
      {ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, kSint, {least, 5, 128, 127}, {static_cast<uint32_t>(-128), 5, 127, 127}},
      {ZE_IMAGE_FORMAT_LAYOUT_16, kUint, {minus_one, 0, 0, 0}, {65535, 0, 0, 1}},
      {ZE_IMAGE_FORMAT_LAYOUT_16_16, kUint, {65534, 7, 0, 0}, {65534, 7, 0, 1}},
      {ZE_IMAGE_FORMAT_LAYOUT_16_16_16_16, kSint, {40000, least, 1, 2}, {32767, static_cast<uint32_t>(-32768), 1, 2}},
      {ZE_IMAGE_FORMAT_LAYOUT_32, kUint, {minus_one, 0, 0, 0}, {minus_one, 0, 0, 1}},
      {ZE_IMAGE_FORMAT_LAYOUT_32_32, kSint, {least, minus_one, 0, 0}, {least, minus_one, 0, 1}},
      {ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, kUint, {1, least, 3, 4}, {1, least, 3, 4}},
      {ZE_IMAGE_FORMAT_LAYOUT_10_10_10_2, kUint, {1023, 5000, 1, 3}, {1023, 1023, 1, 3}},
  };
  ze_module_handle_t program = images();
  for (const IntegerCase& each : cases) {
    SCOPED_TRACE(each.layout);
    Through<uint32_t> through(*this, program, "write_u", "read_u", each.layout, each.type);
    EXPECT_EQ(each.read, through.run(each.written));
  }
}

TEST_F(Images, SwizzlesSayWhatAKernelSees) {
  ze_module_handle_t program = images();
  const auto r = ZE_IMAGE_FORMAT_SWIZZLE_R, g = ZE_IMAGE_FORMAT_SWIZZLE_G, b = ZE_IMAGE_FORMAT_SWIZZLE_B,
             a = ZE_IMAGE_FORMAT_SWIZZLE_A, zero = ZE_IMAGE_FORMAT_SWIZZLE_0, one = ZE_IMAGE_FORMAT_SWIZZLE_1,
             any = ZE_IMAGE_FORMAT_SWIZZLE_X;
  struct {
    std::array<ze_image_format_swizzle_t, 4> swizzle;
    std::array<uint32_t, 4> read;
    std::vector<uint8_t> bytes;
  } cases[] = {
      {{r, g, b, a}, {1, 2, 3, 4}, {1, 2, 3, 4}}, {{b, g, r, a}, {1, 2, 3, 4}, {3, 2, 1, 4}},
      {{a, b, g, r}, {1, 2, 3, 4}, {4, 3, 2, 1}}, {{r, zero, any, one}, {1, 0, 0, 1}, {1, 0, 0, 0}},
      {{g, g, g, g}, {1, 1, 1, 1}, {0, 1, 0, 0}},
  };
  for (const auto& each : cases) {
    Through<uint32_t> through(*this, program, "write_u", "read_u", ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, kUint, each.swizzle);
    EXPECT_EQ(each.read, through.run({1, 2, 3, 4}));
    EXPECT_EQ(each.bytes, through.bytes(4));
  }
}

TEST_F(Images, HalvesAreReadToo) {
  Through<float> through(*this, images(), "write_f", "read_h", ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, kFloat);
  EXPECT_EQ((std::array<float, 4>{1.5f, -2, 2048, 0}), through.run({1.5f, -2, 2049, 0}));
}

// What kind of image, and the kernel that moves a texel of it.
struct Kind {
  ze_image_type_t type;
  std::array<uint32_t, 3> size;  // of the last one, the layers of an array
  const char* move;
};
constexpr Kind kKinds[] = {
    {ZE_IMAGE_TYPE_1D, {7, 1, 1}, "move1"}, {ZE_IMAGE_TYPE_1DARRAY, {5, 3, 1}, "move1a"},
    {ZE_IMAGE_TYPE_2D, {4, 3, 1}, "move2"}, {ZE_IMAGE_TYPE_2DARRAY, {4, 3, 2}, "move2a"},
    {ZE_IMAGE_TYPE_3D, {3, 2, 4}, "move3"}, {ZE_IMAGE_TYPE_BUFFER, {9, 1, 1}, "move_buffer"},
};

TEST_F(Images, EveryKindIsReadAndWrittenWithinItsBounds) {
  ze_module_handle_t program = images();
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.move);
    const uint32_t texels = kind.size[0] * kind.size[1] * kind.size[2];
    auto desc = describe(kind.type, ZE_IMAGE_FORMAT_LAYOUT_32, kFloat, kind.size);
    ze_image_handle_t in = image(desc), out = image(desc);
    std::vector<float> values(texels), zeros(texels, 0.0f), results(texels);
    for (uint32_t i = 0; i < texels; ++i)
      values[i] = 1.0f + static_cast<float>(i);
    auto* memory = allocate<float>(texels);
    ze_kernel_handle_t move = kernel(program, kind.move);
    auto moved = [&](std::array<int32_t, 4> from, std::array<int32_t, 4> to) {
      std::copy(values.begin(), values.end(), memory);
      EXPECT_EQ(ZE_RESULT_SUCCESS,
                zeCommandListAppendImageCopyFromMemory(list, in, memory, nullptr, nullptr, 0, nullptr));
      std::fill(memory, memory + texels, 0.0f);
      EXPECT_EQ(ZE_RESULT_SUCCESS,
                zeCommandListAppendImageCopyFromMemory(list, out, memory, nullptr, nullptr, 0, nullptr));
      setImage(move, 0, in);
      setImage(move, 1, out);
      EXPECT_EQ(ZE_RESULT_SUCCESS, setValue(move, 2, from));
      EXPECT_EQ(ZE_RESULT_SUCCESS, setValue(move, 3, to));
      const ze_group_count_t groups = {1, 1, 1};
      EXPECT_EQ(ZE_RESULT_SUCCESS, zeCommandListAppendLaunchKernel(list, move, &groups, nullptr, 0, nullptr));
      EXPECT_EQ(ZE_RESULT_SUCCESS,
                zeCommandListAppendImageCopyToMemory(list, memory, out, nullptr, nullptr, 0, nullptr));
      return std::vector<float>(memory, memory + texels);
    };
    const auto& [x, y, z] = kind.size;
    std::array<int32_t, 4> last = {int32_t(x - 1), int32_t(y - 1), int32_t(z - 1), 0}, first = {0, 0, 0, 0};
    std::vector<float> expected = zeros;
    expected[0] = values[texels - 1];
    EXPECT_EQ(expected, moved(last, first));
    expected = zeros;
    expected[texels - 1] = values[0];
    EXPECT_EQ(expected, moved(first, last));
    // Outside, in every dimension that the image has: the border is read, and nothing is written.
    for (int d = 0; d < 3; ++d)
      for (int32_t beyond :
           {-1, int32_t(kind.size[d]), std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
        if (kind.size[d] == 1)
          continue;
        std::array<int32_t, 4> outside = {0, 0, 0, 0};
        outside[d] = beyond;
        EXPECT_EQ(zeros, moved(first, outside)) << d << " " << beyond;
        EXPECT_EQ(zeros, moved(outside, first)) << d << " " << beyond;
      }
  }
}

TEST_F(Images, KernelsAskForSizes) {
  ze_kernel_handle_t queries = kernel(images(), "queries");
  for (uint32_t i = 0; i < std::size(kKinds); ++i)
    setImage(queries, i, image(describe(kKinds[i].type, ZE_IMAGE_FORMAT_LAYOUT_32, kFloat, kKinds[i].size)));
  auto* out = allocate<int32_t>(14);
  setPointer(queries, 6, out);
  const ze_group_count_t groups = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), queries, &groups, nullptr, 0,
                                        nullptr));
  constexpr int32_t kRed = 0x10B0;  // CLK_R
  EXPECT_EQ((std::vector<int32_t>{7, 5, 3, 4, 3, 4, 3, 2, 3, 2, 4, 9, kRed, 3}), std::vector<int32_t>(out, out + 14));
}

TEST_F(Images, AKernelTurnsItsOwnTexelsOverABarrier) {
  constexpr uint32_t kSize = 6;
  ze_image_handle_t both = image(describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_8_8_8_8, kUnorm, {kSize, kSize}));
  auto* texels = allocate<uint8_t>(4 * kSize * kSize);
  std::vector<uint8_t> expected(4 * kSize * kSize);
  for (uint32_t i = 0; i < expected.size(); ++i) {
    texels[i] = static_cast<uint8_t>(7 * i);
    expected[i ^ 3] = texels[i];
  }
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS);
  ZE_OK(zeCommandListAppendImageCopyFromMemory(list, both, texels, nullptr, nullptr, 0, nullptr));
  ze_kernel_handle_t turn = kernel(images(), "turn", 3, 2);
  setImage(turn, 0, both);
  const ze_group_count_t groups = {kSize / 3, kSize / 2, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, turn, &groups, nullptr, 0, nullptr));
  ZE_OK(zeCommandListAppendImageCopyToMemory(list, texels, both, nullptr, nullptr, 0, nullptr));
  EXPECT_EQ(expected, std::vector<uint8_t>(texels, texels + expected.size()));
}

TEST_F(Images, ALaunchKeepsItsImages) {
  ze_image_handle_t in = image(describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_32, kFloat, {1, 1}));
  auto* value = allocate<float>(1);
  *value = 4;
  ze_command_list_handle_t list = immediateList(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
  ze_event_handle_t start = event(), done = event();
  ZE_OK(zeCommandListAppendImageCopyFromMemory(list, in, value, nullptr, nullptr, 1, &start));
  ze_kernel_handle_t read = kernel(images(), "read_f");
  auto* out = allocate<float>(4);
  setImage(read, 0, in);
  setPointer(read, 1, out);
  const ze_group_count_t groups = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(list, read, &groups, done, 0, nullptr));
  setImage(read, 0, nullptr);  // of later launches
  forget(in);
  ZE_OK(zeImageDestroy(in));
  ZE_OK(zeEventHostSignal(start));
  ZE_OK(zeEventHostSynchronize(done, UINT64_MAX));
  EXPECT_EQ(4, out[0]);
}

TEST_F(Images, ANullImageHasNoTexels) {
  ze_kernel_handle_t read = kernel(images(), "read_f");
  auto* out = allocate<float>(4);
  std::fill(out, out + 4, 9.0f);
  ZE_OK(zeKernelSetArgumentValue(read, 0, sizeof(ze_image_handle_t), nullptr));
  setPointer(read, 1, out);
  const ze_group_count_t groups = {1, 1, 1};
  ZE_OK(zeCommandListAppendLaunchKernel(immediateList(ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS), read, &groups, nullptr, 0,
                                        nullptr));
  EXPECT_EQ((std::vector<float>{0, 0, 0, 0}), std::vector<float>(out, out + 4));
}

TEST_F(Images, WhatThereIsNotIsRefused) {
  ze_image_handle_t made = nullptr;
  auto create = [&](ze_image_desc_t desc) {
    const ze_result_t result = zeImageCreate(context, device, &desc, &made);
    EXPECT_EQ(nullptr, made);
    return result;
  };
  auto properties = [&](ze_image_desc_t desc) {
    ze_image_properties_t out = {};
    out.stype = ZE_STRUCTURE_TYPE_IMAGE_PROPERTIES;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeImageGetProperties(device, &desc, &out));
    return out.samplerFilterFlags;
  };
  const ze_image_desc_t good = describe(ZE_IMAGE_TYPE_2D, ZE_IMAGE_FORMAT_LAYOUT_8, kUnorm, {4, 4});
  EXPECT_EQ(ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT | ZE_IMAGE_SAMPLER_FILTER_FLAG_LINEAR, int(properties(good)));
  ze_image_desc_t desc = good;
  desc.format.type = kUint;
  EXPECT_EQ(ZE_IMAGE_SAMPLER_FILTER_FLAG_POINT, int(properties(desc)));
  desc.format.type = kFloat;  // of 8 bits
  EXPECT_EQ(0u, properties(desc));
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT, create(desc));
  desc = good;
  desc.format.layout = ZE_IMAGE_FORMAT_LAYOUT_NV12;
  EXPECT_EQ(0u, properties(desc));
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT, create(desc));
  desc = good;
  desc.width = 0;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, create(desc));
  ze_device_image_properties_t limits = imageProperties();
  desc = good;
  desc.height = limits.maxImageDims2D + 1;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, create(desc));
  desc = good;
  desc.width = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_SIZE, create(desc));
  desc = describe(ZE_IMAGE_TYPE_2DARRAY, ZE_IMAGE_FORMAT_LAYOUT_32_32_32_32, kFloat,
                  {limits.maxImageDims2D, limits.maxImageDims2D, limits.maxImageArraySlices});
  EXPECT_EQ(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, create(desc));
  desc = good;
  desc.miplevels = 3;
  EXPECT_EQ(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, create(desc));
  desc = good;
  desc.type = static_cast<ze_image_type_t>(9);
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ENUMERATION, create(desc));

  ze_sampler_desc_t sampler = {ZE_STRUCTURE_TYPE_SAMPLER_DESC, nullptr, static_cast<ze_sampler_address_mode_t>(7),
                               ZE_SAMPLER_FILTER_MODE_LINEAR, 1};
  ze_sampler_handle_t handle = nullptr;
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ENUMERATION, zeSamplerCreate(context, device, &sampler, &handle));
  if (loaderWrapsHandles())
    return;
  ze_kernel_handle_t read = kernel(images(), "read_f");
  void* memory = allocate(64);  // no handle
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_ARGUMENT, zeKernelSetArgumentValue(read, 0, sizeof memory, &memory));
  EXPECT_EQ(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE, zeKernelSetArgumentValue(read, 0, 4, &memory));
}

}  // namespace
}  // namespace zefuse::test
