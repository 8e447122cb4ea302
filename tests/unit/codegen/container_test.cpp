// The native container, specialization constants, versions, and what a refusal says.
#include "drivers/cpu/codegen/container.h"
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

namespace zefuse::cpu::testing {
namespace {

CompileResult compile(const std::string& name, CompileOptions options = {}) {
  return compileSpirv(loadSpirv(name), options);
}

void expectVectorAddRuns(const std::vector<uint32_t>& spirv) {
  Program p(spirv);
  ASSERT_TRUE(p.ok());
  std::vector<float> a(64, 2), b(64, 3), c(64);
  p.run("vector_add", {4, 1, 1}, {16, 1, 1}, {Arg::buffer(a), Arg::buffer(b), Arg::buffer(c)});
  EXPECT_EQ(c, std::vector<float>(64, 5));
}

TEST(Native, SpirvVersions) {
  for (const char* v : {"1.0", "1.1", "1.2", "1.3", "1.4"})
    expectVectorAddRuns(loadSpirv(std::string("basic_") + v));
}

TEST(Native, SwappedEndianness) {
  auto words = loadSpirv("basic");
  for (uint32_t& w : words)
    w = __builtin_bswap32(w);
  expectVectorAddRuns(words);
}

TEST(Native, SameInputSameBytes) { EXPECT_EQ(compile("barrier").native, compile("barrier").native); }

TEST(Native, SpecializationConstants) {
  auto run = [](std::vector<spirv::SpecConstant> constants) {
    Program p(loadSpirv("spec_constants"), {.spec_constants = std::move(constants)});
    std::vector<unsigned> out(1);
    if (p.ok())
      p.run("spec", {1, 1, 1}, {1, 1, 1}, {Arg::buffer(out)});
    EXPECT_EQ(p.info("spec").required_group_size[0], 1u);
    return std::pair(out[0], p.info("spec").local_bytes);
  };
  auto bytes = [](uint32_t v, size_t n) {
    std::vector<std::byte> b(n);
    std::memcpy(b.data(), &v, n);
    return b;
  };
  EXPECT_EQ(run({}), std::pair(2 * (3u + 8 + 123), 32u));
  EXPECT_EQ(run({{7, bytes(50, 4)}}), std::pair(2 * (50u + 8 + 123), 32u));
  EXPECT_EQ(run({{8, bytes(0, 1)}, {9, bytes(16, 4)}}), std::pair(2 * (10u + 32 + 123), 128u));
  CompileResult r = compile("spec_constants", {.spec_constants = {{7, bytes(1, 2)}}});
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.log.find("specialization constant 7"), std::string::npos) << r.log;
}

TEST(Native, GlobalsAndFunctions) {
  Program p(loadSpirv("spec_constants"));
  ASSERT_TRUE(p.ok());
  ASSERT_EQ(p.module()->globals().size(), 1u);
  EXPECT_EQ(p.module()->globals()[0].name, "counter");
  EXPECT_EQ(p.module()->globals()[0].size, 4u);
  auto* counter = static_cast<unsigned*>(p.module()->globalAddress(0));
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(*counter, 123u);
  *counter = 1000;
  std::vector<unsigned> out(1);
  p.run("spec", {1, 1, 1}, {1, 1, 1}, {Arg::buffer(out)});
  EXPECT_EQ(out[0], 2 * (3u + 8 + 1000));
  auto* twice = reinterpret_cast<unsigned (*)(unsigned)>(p.module()->functionAddress("twice"));
  ASSERT_NE(twice, nullptr);
  EXPECT_EQ(twice(21), 42u);
  EXPECT_EQ(p.module()->functionAddress("nobody"), nullptr);
  // A second load has its own storage.
  Program q(loadSpirv("spec_constants"));
  EXPECT_EQ(*static_cast<unsigned*>(q.module()->globalAddress(0)), 123u);
}

TEST(Native, SeveralEntryPointsOfOneFunction) {
  Program p(loadSpirv("spec_constants"));
  ASSERT_TRUE(p.ok());
  ASSERT_EQ(p.module()->kernels().size(), 3u);
  for (const char* name : {"spec", "spec_again", "spec_third"}) {
    std::vector<unsigned> out(1);
    p.run(name, {1, 1, 1}, {1, 1, 1}, {Arg::buffer(out)});
    EXPECT_EQ(out[0], 2 * (3u + 8 + 123)) << name;
  }
}

TEST(Native, FunctionPointers) {
  Program p(loadSpirv("function_pointer"));
  ASSERT_TRUE(p.ok());
  std::vector<unsigned> out{13};
  for (const char* name : {"add_one", "triple"}) {
    auto address = reinterpret_cast<uint64_t>(p.module()->functionAddress(name));
    ASSERT_NE(address, 0u) << name;
    p.run("call", {1, 1, 1}, {1, 1, 1}, {Arg::buffer(out), Arg::of(address)});
  }
  EXPECT_EQ(out[0], (13u + 1) * 3);
}

TEST(Native, UnresolvedImportsAreNamed) {
  CompileResult r = compile("unlinked");
  ASSERT_TRUE(r.ok) << r.log;
  std::string log;
  auto m = LoadedModule::load(r.native, log);
  ASSERT_TRUE(m) << log;
  EXPECT_EQ(m->unresolvedImports(), std::vector<std::string>{"far_away"});
}

TEST(Native, KernelTables) {
  CompileResult r = compile("basic", {.build_flags = "-ze-opt-level=O3 -cl-foo"});
  ASSERT_TRUE(r.ok) << r.log;
  std::string log;
  auto m = LoadedModule::load(r.native, log);
  ASSERT_TRUE(m) << log;
  EXPECT_EQ(m->buildFlags(), "-ze-opt-level=O3 -cl-foo");
  ASSERT_EQ(m->kernels().size(), 4u);
  const spirv::KernelInfo& k = m->kernels()[1];
  EXPECT_EQ(k.name, "reduce");
  ASSERT_EQ(k.args.size(), 4u);
  EXPECT_EQ(k.args[0].kind, spirv::ArgKind::global_pointer);
  EXPECT_EQ(k.args[2].kind, spirv::ArgKind::local_pointer);
  EXPECT_EQ(k.args[3].kind, spirv::ArgKind::scalar);
  EXPECT_EQ(k.args[3].size, 4u);
  const spirv::KernelInfo& s = m->kernels()[2];
  EXPECT_EQ(s.args[1].kind, spirv::ArgKind::by_value_struct);
  EXPECT_EQ(s.args[1].size, 24u);
  EXPECT_EQ(s.args[1].alignment, 8u);
  EXPECT_EQ(m->entry(99), nullptr);
}

TEST(Native, ModulesLiveAndDieIndependently) {
  CompileResult a = compile("basic"), b = compile("control");
  ASSERT_TRUE(a.ok && b.ok);
  std::string log;
  for (int i = 0; i < 50; ++i) {
    auto first = LoadedModule::load(a.native, log);
    auto second = LoadedModule::load(b.native, log);
    ASSERT_TRUE(first && second) << log;
    first.reset();
    auto third = LoadedModule::load(a.native, log);  // may reuse the descriptor's number and the address
    ASSERT_EQ(third->kernels().size(), 4u);
    ASSERT_NE(third->entry(0), second->entry(0));
  }
}

TEST(Native, EveryFlippedByteIsRefused) {
  CompileResult r = compile("basic");
  ASSERT_TRUE(r.ok);
  std::string log;
  for (size_t i = 0; i < r.native.size(); i += i < 400 ? 1 : 37) {
    auto bytes = r.native;
    bytes[i] ^= std::byte{0x41};
    ASSERT_EQ(LoadedModule::load(bytes, log), nullptr) << "byte " << i;
    ASSERT_EQ(log.rfind("native binary: ", 0), 0u) << log;
  }
  for (size_t n : {size_t{0}, size_t{7}, size_t{39}, size_t{40}, r.native.size() - 1}) {
    ASSERT_EQ(LoadedModule::load(std::span(r.native).first(n), log), nullptr) << n;
    ASSERT_FALSE(log.empty());
  }
  auto longer = r.native;
  longer.push_back(std::byte{0});
  EXPECT_EQ(LoadedModule::load(longer, log), nullptr);
}

TEST(Native, LowerLevelLoadsHigherLevelIsCompiledAgain) {
  CompileResult low = compile("basic", {.isa = IsaLevel::x86_64_v3});
  std::string log;
  EXPECT_TRUE(LoadedModule::load(low.native, log)) << log;
  if (hostIsaLevel() == IsaLevel::x86_64_v3)
    GTEST_SKIP() << "the host has one level only";
  CompileResult high = compile("basic");
  setenv("ZEFUSE_CPU_ISA", "avx2", 1);
  EXPECT_EQ(hostIsaLevel(), IsaLevel::x86_64_v3);
  auto m = LoadedModule::load(high.native, log);
  unsetenv("ZEFUSE_CPU_ISA");
  ASSERT_TRUE(m) << log;
  EXPECT_EQ(m->kernels().size(), 4u);
}

// The opcode and where it stands.
TEST(Refusal, UnknownInstruction) {
  auto words = loadSpirv("basic");
  size_t at = 5;
  while ((words[at] & 0xffff) != 54)  // OpFunction
    at += words[at] >> 16;
  words.insert(words.begin() + at, (1u << 16) | 4000);
  CompileResult r = compileSpirv(words, {});
  EXPECT_FALSE(r.ok);
  std::string first = r.log.substr(0, r.log.find('\n'));
  EXPECT_NE(first.find("opcode 4000"), std::string::npos) << first;
  EXPECT_NE(first.find("word offset " + std::to_string(at)), std::string::npos) << first;
}

TEST(Refusal, UnsupportedInstruction) {
  auto words = loadSpirv("basic");
  size_t at = 5;
  while ((words[at] & 0xffff) != 129)  // OpFAdd
    at += words[at] >> 16;
  words[at] = (words[at] & 0xffff0000) | 146;  // OpMatrixTimesMatrix: two operands as well
  CompileResult r = compileSpirv(words, {});
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.log.find("OpMatrixTimesMatrix (opcode 146) at word offset " + std::to_string(at)), std::string::npos)
      << r.log;
}

// What an extension brings is refused where it is unknown, its name is not.
TEST(Refusal, UnknownCapabilityButNoExtension) {
  auto words = loadSpirv("basic");
  auto capability = words;
  capability.insert(capability.begin() + 5, {(2u << 16) | 17, 57});  // OpCapability MultiViewport... of graphics
  CompileResult r = compileSpirv(capability, {});
  EXPECT_FALSE(r.ok);
  EXPECT_NE(r.log.find("capability 57"), std::string::npos) << r.log;
  auto extension = words;
  size_t at = 5;
  while ((words[at] & 0xffff) == 17)
    at += 2;
  extension.insert(extension.begin() + at, {(3u << 16) | 10, 0x5f565053, 0x0078});  // "SPV_x"
  r = compileSpirv(extension, {});
  EXPECT_TRUE(r.ok) << r.log;
}

TEST(Threads, CompileAndLoadConcurrently) {
  auto words = loadSpirv("basic");
  std::vector<std::thread> threads;
  std::vector<int> good(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        CompileResult r = compileSpirv(words, {.isa = IsaLevel::x86_64_v3});
        std::string log;
        good[t] += r.ok && LoadedModule::load(r.native, log);
      }
    });
  for (auto& t : threads)
    t.join();
  EXPECT_EQ(good, std::vector<int>(4, 3));
}

}  // namespace
}  // namespace zefuse::cpu::testing
