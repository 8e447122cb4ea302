// Packages whose hashes are right and whose contents are hostile: names, numbers, shapes, strides, offsets. They are
// refused, or run within their memory. Meant for the AddressSanitizer build; elsewhere it finds crashes only.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "runtime/package/model.h"
#include "tests/unit/cache/temporary_folder.h"
#include "tests/unit/executor/plan_builder.h"
#include "tests/unit/executor/plan_damage.h"

namespace zefuse::package {
namespace {

using test::bytesOf;
using test::PlanBuilder;

constexpr int rounds = 3000;

// out = x @ w, and counted += 1 in place: a weight in an order of its own, a constant, a buffer that calls change.
PlanBuilder goodPlan() {
  PlanBuilder b;
  const uint32_t s0 = b.symbol("s0", 0, 0), four = b.constant(4), one = b.constant(1);
  const uint32_t x = b.tensorInput("x", plan::DType::f32, {s0, four});
  b.input("w", plan::DType::f32, {four, four}, {one, four}, plan::InputKind::parameter);
  const uint32_t w = b.value(b.buffer(plan::Storage::input, 1), plan::DType::f32, {four, four}, {one, four});
  const uint32_t constant = b.tensorInput("c", plan::DType::f32, {four});
  const uint32_t state = b.tensorInput("state", plan::DType::f32, {four}, plan::InputKind::parameter);
  b.plan.inputs[3]->written = true;
  b.integerInput("n");
  const uint32_t out = b.outputTensor(plan::DType::f32, {s0, four});
  b.output(state);
  b.output(x);
  b.matmul(x, w, out);
  b.copy(constant, state);
  return b;
}

constexpr const char* good_manifest = R"({
"producer": "test 1", "inputs": ["x", "n"], "outputs": ["out", "same"], "in_spec": "", "out_spec": "",
"strides": {"w": [1, 4]},
"plans": [
{"target": "cpu", "section": "plan/cpu",
"inputs": [{"user": 0}, {"weight": "w"}, {"weight": "c"}, {"weight": "state"}, {"user": 1}],
"outputs": [{"user": true}, {"weight": "state"}, {"user": true}]},
{"target": "cpu", "section": "plan/cpu.1",
"inputs": [{"user": 0}, {"weight": "w"}, {"weight": "c"}, {"weight": "state"}, {"user": 1}],
"outputs": [{"user": true}, {"weight": "state"}, {"user": true}]}
]})";

constexpr const char* good_header = R"({"w": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64]},
"c": {"dtype": "F32", "shape": [4], "data_offsets": [64, 80]},
"state": {"dtype": "F32", "shape": [4], "data_offsets": [80, 96]}})";

// Numbers, strings and structure, by what JSON is made of; sometimes a byte.
std::string damage(std::string text, std::mt19937& random) {
  const char* const numbers[] = {"-1",
                                 "0",
                                 "1",
                                 "2",
                                 "3",
                                 "4",
                                 "5",
                                 "16",
                                 "63",
                                 "64",
                                 "65",
                                 "80",
                                 "96",
                                 "97",
                                 "1048577",
                                 "4294967296",
                                 "1099511627776",
                                 "4611686018427387904",
                                 "9223372036854775807",
                                 "-9223372036854775808",
                                 "1e9",
                                 "null",
                                 "[]",
                                 "true"};
  const char* const strings[] = {"w",
                                 "c",
                                 "state",
                                 "x",
                                 "",
                                 "zefuse.constant.0",
                                 "plan/cpu",
                                 "plan/cpu.1",
                                 "weights",
                                 "manifest",
                                 "cpu",
                                 "dg2-g11",
                                 "F32",
                                 "F64",
                                 "BF16",
                                 "I8",
                                 "BOOL",
                                 "F8",
                                 "user",
                                 "weight",
                                 "mutates",
                                 "shape",
                                 "data_offsets",
                                 "dtype"};
  const int changes = 1 + int(random() % 3);
  for (int i = 0; i < changes; ++i) {
    std::vector<std::pair<size_t, size_t>> digits, quoted, braces;  // begin and length
    for (size_t at = 0; at < text.size(); ++at) {
      size_t end = at;
      if (std::isdigit(text[at])) {
        while (end < text.size() && std::isdigit(text[end]))
          ++end;
        digits.emplace_back(at, end - at);
        at = end - 1;
      } else if (text[at] == '"' && (end = text.find('"', at + 1)) != std::string::npos) {
        quoted.emplace_back(at + 1, end - at - 1);
        at = end;
      } else if (text[at] == '{' && (end = text.find('}', at + 1)) != std::string::npos) {
        braces.emplace_back(at, end - at + 1);
      }
    }
    const auto one = [&](const auto& list) { return list[random() % std::size(list)]; };
    switch (random() % 6) {
    case 0:
    case 1:
      if (!digits.empty()) {
        const auto [at, length] = one(digits);
        text.replace(at, length, one(numbers));
      }
      break;
    case 2:
    case 3:
      if (!quoted.empty()) {
        const auto [at, length] = one(quoted);
        text.replace(at, length, one(strings));
      }
      break;
    case 4:  // an entry left out, or there twice
      if (!braces.empty()) {
        const auto [at, length] = one(braces);
        const std::string entry = text.substr(at, length);
        text.replace(at, length, random() % 2 ? entry + ", " + entry : "{}");
      }
      break;
    default: text[random() % text.size()] ^= char(1 << random() % 7);
    }
  }
  return text;
}

std::vector<std::byte> weights(const std::string& header, uint64_t header_bytes, size_t data_bytes) {
  std::vector<std::byte> bytes(sizeof header_bytes + header.size() + data_bytes, std::byte(0));
  std::memcpy(bytes.data(), &header_bytes, sizeof header_bytes);
  std::memcpy(bytes.data() + sizeof header_bytes, header.data(), header.size());
  return bytes;
}

// A copy that ends where the package does, for the sanitizer.
class Exact {
public:
  explicit Exact(const std::vector<char>& bytes) : size_(bytes.size()) {
    EXPECT_EQ(posix_memalign(&data_, 64, size_), 0);
    std::memcpy(data_, bytes.data(), size_);
  }
  ~Exact() { std::free(data_); }
  Exact(const Exact&) = delete;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

private:
  void* data_ = nullptr;
  size_t size_;
};

// A call with tensors as the model describes them, where they are of a size that a test has memory for.
Result<std::vector<Tensor>> call(Model& model, int64_t rows) {
  std::vector<test::HostTensor> tensors(model.inputs().size());
  std::vector<TensorRef> given;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = model.inputs()[i];
    test::HostTensor& tensor = tensors[i];
    tensor.dtype = info.dtype;
    int64_t elements = 1;
    if (!info.integer)
      for (int64_t size : info.sizes)
        tensor.sizes.push_back(size < 0 ? rows : size);
    tensor.strides.resize(tensor.sizes.size());
    for (size_t d = tensor.sizes.size(); d-- > 0;) {
      tensor.strides[d] = elements;
      if (tensor.sizes[d] > 4096 || (elements *= tensor.sizes[d]) > 100000)
        return Status{Code::out_of_memory, "the test refuses so much memory"};
    }
    tensor.bytes.resize(std::max<size_t>(size_t(elements) * plan::elementSize(tensor.dtype), 1));
    given.push_back(tensor.input().tensor);
  }
  return model.call(given);
}

std::vector<char> package(const std::string& path, std::span<const std::byte> first, std::span<const std::byte> second,
                          std::span<const std::byte> manifest, std::span<const std::byte> weights) {
  Writer writer;
  writer.add("plan/cpu", first);
  writer.add("plan/cpu.1", second);
  writer.add(std::string(manifest_section), manifest);
  writer.add(std::string(weights_section), weights);
  EXPECT_TRUE(writer.write(path).ok());
  return test::readFile(path);
}

// What a load or the first call says of a package of these contents; "" where both succeed.
std::string complaint(const std::vector<std::byte>& first, const std::string& manifest = good_manifest,
                      const std::string& header = good_header) {
  const test::TemporaryFolder folder;
  const std::vector<std::byte> second = goodPlan().finish(), text = bytesOf(manifest),
                               weight_bytes = weights(header, header.size(), 96);
  const Exact bytes(package(folder.path + "/model.zefuse", first, second, text, weight_bytes));
  auto reader = Reader::fromBuffer(bytes.bytes(), WeightsCheck::at_open);
  if (!reader.ok())
    return reader.status().message();
  auto model = Model::load(std::move(*reader), {});
  if (!model.ok())
    return model.status().message();
  auto results = call(**model, 3);
  return results.ok() ? "" : results.status().message();
}

// Every one.
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  for (; at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST(HostilePackage, AGoodOneIsGood) { EXPECT_EQ(complaint(goodPlan().finish()), ""); }

TEST(HostilePackage, APlanIsLoadedOnce) {
  EXPECT_NE(complaint(goodPlan().finish(), replaced(good_manifest, "plan/cpu.1", "plan/cpu")).find("'plan/cpu' twice"),
            std::string::npos);
}

TEST(HostilePackage, OverlappingWeightsAreRefused) {
  std::string header = good_header;
  header = replaced(header, R"("c":)", R"("d": {"dtype": "F32", "shape": [4], "data_offsets": [64, 80]}, "c":)");
  EXPECT_NE(complaint(goodPlan().finish(), good_manifest, header).find("take more than the file holds"),
            std::string::npos);
}

TEST(HostilePackage, StepsWriteOnlyWhatThePackageSaysItChanges) {
  // The state's output is the user's, so its memory is the package's own.
  const std::string manifest =
      replaced(replaced(good_manifest, R"({"weight": "state"}, {"user": true}])", R"({"user": true}, {"user": true}])"),
               R"(["out", "same"])", R"(["out", "state", "same"])");
  EXPECT_NE(complaint(goodPlan().finish(), manifest).find("do not belong together"), std::string::npos);
}

TEST(HostilePackage, ASymbolWithoutANameIsOne) {
  std::vector<std::byte> bytes = goodPlan().finish();
  auto* table = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(plan::GetPlan(bytes.data())->symbols()->Get(0)));
  uint8_t* fields = table - flatbuffers::ReadScalar<int32_t>(table);
  flatbuffers::WriteScalar<uint16_t>(fields + plan::Symbol::VT_NAME, 0);
  ASSERT_EQ(plan::GetPlan(bytes.data())->symbols()->Get(0)->name(), nullptr);
  EXPECT_EQ(complaint(bytes), "");
}

TEST(HostilePackage, ABroadcastOfAnInputMayBeLargerThanMemory) {
  PlanBuilder b = goodPlan();
  const uint32_t huge = b.constant(int64_t(1) << 31), zero = b.constant(0);
  b.plan.outputs[2]->value = b.value(b.plan.values[0]->buffer, plan::DType::f32, {huge, huge}, {zero, zero});
  EXPECT_NE(complaint(b.finish()).find("no memory for an output"), std::string::npos);
}

TEST(HostilePackage, ShapesOfEmptyWeightsMayBeAnything) {
  const std::string header = replaced(good_header, R"("c":)",
                                      R"("d": {"dtype": "F32", "shape": [0, 4611686018427387904, 3], )"
                                      R"("data_offsets": [0, 0]}, "c":)");
  EXPECT_EQ(complaint(goodPlan().finish(), good_manifest, header), "");
}

TEST(PackageFuzz, HostileContentsWithRightHashesAreRefusedOrRun) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path + "/model.zefuse";
  const std::vector<std::byte> plan = goodPlan().finish();
  std::mt19937 random(9);
  int loaded = 0, called = 0, refused = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string manifest = good_manifest, header = good_header;
    std::vector<std::byte> first = plan;
    uint64_t header_bytes = header.size();
    size_t data_bytes = 96;
    const unsigned which = round ? random() % 8 : 8;
    if (which < 3)
      manifest = damage(manifest, random);
    else if (which < 6)
      header = damage(header, random), header_bytes = header.size();
    else if (which == 6)
      first = test::damage(first, random);
    else if (which == 7 && random() % 2)
      header_bytes = random() % 3 ? header_bytes + random() % 5 - 2 : (uint64_t(random()) << 32 | random());
    else if (which == 7)
      data_bytes = random() % 97;
    const std::vector<std::byte> weight_bytes = weights(header, header_bytes, data_bytes), text = bytesOf(manifest);
    const Exact bytes(package(path, first, plan, text, weight_bytes));
    auto reader = Reader::fromBuffer(bytes.bytes(), WeightsCheck::at_open);
    ASSERT_TRUE(reader.ok()) << reader.status().toString();  // its hashes are right
    auto model = Model::load(std::move(*reader), {});
    if (!model.ok()) {
      ASSERT_TRUE(round) << model.status().toString();
      ASSERT_FALSE(model.status().message().empty());
      ++refused;
      continue;
    }
    ++loaded;
    for (int64_t rows : {3, 0}) {
      auto results = call(**model, rows);
      ASSERT_TRUE(round || results.ok()) << results.status().toString();
      called += results.ok();
    }
  }
  EXPECT_GT(refused, rounds / 20);
  EXPECT_GT(loaded, rounds / 20);
  EXPECT_GT(called, rounds / 20);
}

}  // namespace
}  // namespace zefuse::package

extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
