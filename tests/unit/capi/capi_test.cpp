// Packages of every format that was ever written, run through the C interface; and what it refuses, in which words.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "runtime/capi/zefuse.h"
#include "runtime/package/json.h"

namespace {

struct Array {
  std::vector<int64_t> sizes;
  std::vector<char> bytes;
};

std::vector<char> readFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// A safetensors file.
std::map<std::string, Array> readArrays(const std::string& path) {
  const std::vector<char> file = readFile(path);
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  auto json = zefuse::package::Json::parse({file.data() + 8, header});
  EXPECT_TRUE(json.ok());
  std::map<std::string, Array> arrays;
  for (const auto& [name, entry] : json->object()) {
    const auto& offsets = entry.find("data_offsets")->array();
    const char* data = file.data() + 8 + header;
    arrays[name].bytes.assign(data + *offsets[0].integer(), data + *offsets[1].integer());
    for (const auto& size : entry.find("shape")->array())
      arrays[name].sizes.push_back(*size.integer());
  }
  return arrays;
}

DLTensor view(Array& array, DLDataType dtype) {
  DLTensor tensor{};
  tensor.data = array.bytes.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = int32_t(array.sizes.size());
  tensor.dtype = dtype;
  tensor.shape = array.sizes.data();
  return tensor;
}

constexpr DLDataType i64{kDLInt, 64, 1}, f32{kDLFloat, 32, 1};

struct Buffer {
  void* data;
  size_t bytes;
  explicit Buffer(const std::vector<char>& from)
      : data(std::aligned_alloc(64, (from.size() + 63) / 64 * 64)), bytes(from.size()) {
    std::memcpy(data, from.data(), from.size());
  }
  ~Buffer() { std::free(data); }
};

class Format : public testing::TestWithParam<int> {
protected:
  std::string path() const { return PACKAGES "format_" + std::to_string(GetParam()) + ".zefuse"; }
  std::map<std::string, Array> arrays = readArrays(PACKAGES "format_" + std::to_string(GetParam()) + ".safetensors");

  void runAndCompare(zefuse_model* model, const DLTensor& ids, const DLTensor& bias) {
    const DLTensor* inputs[] = {&ids, &bias};
    DLManagedTensor* outputs[2];
    ASSERT_EQ(zefuse_model_call(model, inputs, 2, outputs, 2), ZEFUSE_OK) << zefuse_error_message();
    for (int i = 0; i < 2; ++i) {
      const Array& expected = arrays.at(i ? "sum" : "probabilities");
      const DLTensor& actual = outputs[i]->dl_tensor;
      ASSERT_EQ(std::vector<int64_t>(actual.shape, actual.shape + actual.ndim), expected.sizes);
      EXPECT_EQ(actual.dtype.code, kDLFloat);
      const auto* got = reinterpret_cast<const float*>(static_cast<const char*>(actual.data) + actual.byte_offset);
      const auto* wanted = reinterpret_cast<const float*>(expected.bytes.data());
      for (size_t at = 0; at < expected.bytes.size() / sizeof(float); ++at)
        EXPECT_NEAR(got[at], wanted[at], 1e-5 * std::max(1.0f, std::abs(wanted[at])));
      outputs[i]->deleter(outputs[i]);
    }
  }
};

TEST_P(Format, RunsFromAFileAndFromMemory) {
  const DLTensor ids = view(arrays.at("ids"), i64), bias = view(arrays.at("bias"), f32);
  zefuse_model* model = nullptr;
  ASSERT_EQ(zefuse_model_load_file(path().c_str(), nullptr, &model), ZEFUSE_OK) << zefuse_error_message();
  ASSERT_EQ(zefuse_model_num_inputs(model), 2u);
  ASSERT_EQ(zefuse_model_num_outputs(model), 2u);
  zefuse_tensor_info info;
  ASSERT_EQ(zefuse_model_input(model, 0, &info), ZEFUSE_OK);
  ASSERT_EQ(info.ndim, 2);
  EXPECT_EQ(info.sizes[0], -1);
  EXPECT_EQ(info.sizes[1], 3);
  EXPECT_STREQ(info.size_text[1], "3");
  EXPECT_EQ(info.dtype.code, kDLInt);
  ASSERT_EQ(zefuse_model_output(model, 0, &info), ZEFUSE_OK);
  EXPECT_EQ(info.ndim, 3);
  if (GetParam() > 1) {
    EXPECT_STREQ(info.name, "probabilities");
  }
  runAndCompare(model, ids, bias);
  EXPECT_EQ(zefuse_model_check_weights(model), ZEFUSE_OK);
  zefuse_model_release(model);

  const Buffer buffer(readFile(path()));
  ASSERT_EQ(zefuse_model_load_buffer(buffer.data, buffer.bytes, nullptr, &model), ZEFUSE_OK) << zefuse_error_message();
  runAndCompare(model, ids, bias);
  zefuse_model_release(model);
}

// Not at load or in a call either: what was opened since then would be mapped.
TEST_P(Format, NeitherTorchNorPythonIsOpened) {
  const DLTensor ids = view(arrays.at("ids"), i64), bias = view(arrays.at("bias"), f32);
  zefuse_model* model = nullptr;
  ASSERT_EQ(zefuse_model_load_file(path().c_str(), nullptr, &model), ZEFUSE_OK) << zefuse_error_message();
  runAndCompare(model, ids, bias);
  std::ifstream maps("/proc/self/maps");
  bool runtime = false;
  for (std::string line; std::getline(maps, line);) {
    const std::string file = line.substr(std::min(line.rfind('/') + 1, line.size()));
    runtime |= file.find("libzefuse_runtime") != std::string::npos;
    EXPECT_EQ(file.find("torch"), std::string::npos) << line;
    EXPECT_EQ(file.find("python"), std::string::npos) << line;
    EXPECT_EQ(file.find("libc10"), std::string::npos) << line;
  }
  EXPECT_TRUE(runtime);
  zefuse_model_release(model);
}

TEST_P(Format, ManyThreadsCallOneModel) {
  const DLTensor ids = view(arrays.at("ids"), i64), bias = view(arrays.at("bias"), f32);
  zefuse_model* model = nullptr;
  ASSERT_EQ(zefuse_model_load_file(path().c_str(), nullptr, &model), ZEFUSE_OK) << zefuse_error_message();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round)
        runAndCompare(model, ids, bias);
    });
  for (std::thread& thread : threads)
    thread.join();
  zefuse_model_release(model);
}

TEST_P(Format, AnOutputOutlivesItsModel) {
  const DLTensor ids = view(arrays.at("ids"), i64), bias = view(arrays.at("bias"), f32);
  const DLTensor* inputs[] = {&ids, &bias};
  DLManagedTensor* outputs[2];
  zefuse_model* model = nullptr;
  ASSERT_EQ(zefuse_model_load_file(path().c_str(), nullptr, &model), ZEFUSE_OK);
  ASSERT_EQ(zefuse_model_call(model, inputs, 2, outputs, 2), ZEFUSE_OK);
  zefuse_model_release(model);
  const auto* data = static_cast<const float*>(outputs[0]->dl_tensor.data);
  EXPECT_NEAR(data[0], reinterpret_cast<const float*>(arrays.at("probabilities").bytes.data())[0], 1e-5);
  for (DLManagedTensor* output : outputs)
    output->deleter(output);
}

TEST_P(Format, WrongCallsAreNamed) {
  DLTensor ids = view(arrays.at("ids"), i64), bias = view(arrays.at("bias"), f32);
  zefuse_model* model = nullptr;
  ASSERT_EQ(zefuse_model_load_file(path().c_str(), nullptr, &model), ZEFUSE_OK);
  const DLTensor* inputs[] = {&ids, &bias};
  DLManagedTensor* outputs[2];
  auto refused = [&](size_t num_inputs, size_t num_outputs, const char* words, zefuse_status code) {
    outputs[0] = outputs[1] = reinterpret_cast<DLManagedTensor*>(&outputs);
    EXPECT_EQ(zefuse_model_call(model, inputs, num_inputs, outputs, num_outputs), code);
    EXPECT_NE(std::string(zefuse_error_message()).find(words), std::string::npos) << zefuse_error_message();
    EXPECT_EQ(outputs[0], nullptr);
  };
  refused(1, 2, "takes 2 inputs, got 1", ZEFUSE_INVALID_ARGUMENT);
  refused(2, 1, "gives 2 outputs, there is room for 1", ZEFUSE_INVALID_ARGUMENT);
  bias.dtype.bits = 64;
  refused(2, 2, "expected a tensor of dtype f32", ZEFUSE_INVALID_ARGUMENT);
  bias.dtype.lanes = 4;
  refused(2, 2, "input 1: element type", ZEFUSE_INVALID_ARGUMENT);
  bias.dtype = f32;
  bias.device.device_type = kDLCUDA;
  refused(2, 2, "input 1: it lies on kDLCUDA:0, and the model takes tensors in CPU memory: copy it there",
          ZEFUSE_INVALID_ARGUMENT);
  bias.device.device_type = kDLCPU;
  inputs[1] = nullptr;
  refused(2, 2, "input 1: no tensor", ZEFUSE_INVALID_ARGUMENT);
  inputs[1] = &bias;
  int64_t far = 1000;
  std::memcpy(ids.data, &far, sizeof far);  // no such row of the embedding
  refused(2, 2, "index", ZEFUSE_INDEX_ERROR);
  zefuse_model_release(model);
}

// x * k * scale + (name == "up" ? 1 : -1), exported with k = 2, name = "up", scale = 0.5 and at most 64 rows.
TEST(Guards, ConstantsAndRangesAreChecked) {
  zefuse_model* model = nullptr;
  ASSERT_EQ(zefuse_model_load_file(PACKAGES "guards.zefuse", nullptr, &model), ZEFUSE_OK) << zefuse_error_message();
  std::vector<float> numbers(3 * 70, 3.0f);
  int64_t two = 2, three = 3, one[] = {1};
  double half = 0.5;
  const DLTensor k2{&two, {kDLCPU, 0}, 0, i64, nullptr, nullptr, 0},
      k3{&three, {kDLCPU, 0}, 0, i64, nullptr, nullptr, 0}, s3{&three, {kDLCPU, 0}, 1, i64, one, nullptr, 0},
      s05{&half, {kDLCPU, 0}, 1, {kDLFloat, 64, 1}, one, nullptr, 0};
  auto call = [&](int64_t rows, const DLTensor* k, const DLTensor* scale) -> std::string {
    int64_t sizes[] = {rows, 3};
    const DLTensor x{numbers.data(), {kDLCPU, 0}, 2, f32, sizes, nullptr, 0};
    const DLTensor* inputs[] = {rows ? &x : nullptr, k, nullptr, scale};
    DLManagedTensor* output = nullptr;
    const zefuse_status status = zefuse_model_call(model, inputs, 4, &output, 1);
    if (status != ZEFUSE_OK) {
      EXPECT_EQ(status, ZEFUSE_INVALID_ARGUMENT);
      return zefuse_error_message();
    }
    EXPECT_EQ(output->dl_tensor.shape[0], rows);
    for (int64_t i = 0; i < rows * 3; ++i)
      EXPECT_EQ(static_cast<const float*>(output->dl_tensor.data)[i], 4.0f);
    output->deleter(output);
    return "";
  };
  auto refuses = [&](const std::string& message, const char* words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  EXPECT_EQ(call(5, nullptr, nullptr), "");
  EXPECT_EQ(call(64, &k2, &s05), "");
  refuses(call(65, nullptr, nullptr), "exported for x.size()[0] <= 64, but x.size()[0] is 65");
  refuses(call(5, &k3, nullptr), "exported for k = 2, but k is 3");
  refuses(call(5, nullptr, &s3), "exported for scale = 0.5, but scale is 3");
  refuses(call(0, nullptr, nullptr), "input 0: no tensor");
  zefuse_model_release(model);
}

INSTANTIATE_TEST_SUITE_P(All, Format, testing::Values(1, 2));

zefuse_status load(const std::vector<char>& bytes, zefuse_weights_check check = ZEFUSE_CHECK_AT_LOAD) {
  const Buffer buffer(bytes);
  const zefuse_load_options options{sizeof options,     nullptr, nullptr, check,  0,
                                    ZEFUSE_JIT_DEFAULT, 0,       nullptr, nullptr};
  zefuse_model* model = nullptr;
  const zefuse_status status = zefuse_model_load_buffer(buffer.data, buffer.bytes, &options, &model);
  EXPECT_EQ(model != nullptr, status == ZEFUSE_OK);
  zefuse_model_release(model);
  return status;
}

TEST(Capi, DamageIsRefused) {
  const std::vector<char> good = readFile(PACKAGES "format_2.zefuse");
  EXPECT_EQ(load(good), ZEFUSE_OK) << zefuse_error_message();
  const std::vector<char> old = readFile(PACKAGES "format_1.zefuse");
  EXPECT_EQ(load(old), ZEFUSE_OK) << zefuse_error_message();
  for (const auto* each : {&good, &old})
    for (size_t i = 0; i < each->size(); i += i < 1024 ? 1 : 97) {  // header and table whole
      std::vector<char> bad = *each;
      bad[i] ^= 1 << i % 8;
      const bool in_version = i >= 10 && i < 12;  // what a reader must know
      EXPECT_EQ(load(bad), in_version ? ZEFUSE_UNSUPPORTED : ZEFUSE_DAMAGED) << "byte " << i;
    }
  EXPECT_EQ(load({good.begin(), good.end() - 1}), ZEFUSE_DAMAGED);
  std::vector<char> newer = good;
  newer[8] = newer[10] = 9;
  EXPECT_EQ(load(newer), ZEFUSE_UNSUPPORTED);
  EXPECT_NE(std::string(zefuse_error_message()).find("format 9"), std::string::npos) << zefuse_error_message();
}

// At each place where it asks, hashing among them: a package whose check was cancelled is not a damaged one.
TEST(Capi, ALoadCanBeCancelled) {
  struct Left {
    std::atomic<int> answers;
  } left{};
  zefuse_load_options options{};
  options.size = sizeof options;
  options.weights_check = ZEFUSE_CHECK_AT_LOAD;
  options.cancelled = [](void* data) { return int(static_cast<Left*>(data)->answers-- == 0); };
  options.cancelled_data = &left;
  int points = 0;
  for (bool loaded = false; !loaded; ++points) {
    ASSERT_LT(points, 1000);
    left.answers = points;
    zefuse_model* model = nullptr;
    const zefuse_status status = zefuse_model_load_file(PACKAGES "format_2.zefuse", &options, &model);
    loaded = left.answers >= 0;
    ASSERT_EQ(status, loaded ? ZEFUSE_OK : ZEFUSE_CANCELLED) << points << ": " << zefuse_error_message();
    EXPECT_EQ(model != nullptr, loaded);
    zefuse_model_release(model);
  }
  EXPECT_GT(points, 3);
  EXPECT_STREQ(zefuse_status_name(ZEFUSE_CANCELLED), "cancelled");
}

TEST(Capi, OtherDevicesAreNamed) {
  zefuse_model* model = nullptr;
  zefuse_load_options options{};
  options.size = sizeof options;
  options.device = "gpu:42";
  options.weights_check = ZEFUSE_CHECK_AT_LOAD;
  EXPECT_EQ(zefuse_model_load_file(PACKAGES "format_2.zefuse", &options, &model), ZEFUSE_NOT_FOUND);
  EXPECT_NE(std::string(zefuse_error_message()).find("gpu:42"), std::string::npos) << zefuse_error_message();
  options.size = 0;
  EXPECT_EQ(zefuse_model_load_file(PACKAGES "format_2.zefuse", &options, &model), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_EQ(zefuse_model_load_file(nullptr, nullptr, &model), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_EQ(zefuse_model_load_file("x", nullptr, nullptr), ZEFUSE_INVALID_ARGUMENT);
  EXPECT_EQ(zefuse_model_load_buffer(nullptr, 10, nullptr, &model), ZEFUSE_DAMAGED);
}

}  // namespace
