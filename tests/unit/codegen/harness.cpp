#include "tests/unit/codegen/harness.h"

#include "drivers/cpu/codegen/arena.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

namespace zefuse::cpu::testing {

std::vector<uint32_t> loadSpirv(const std::string& name) {
  std::ifstream f(std::string(KERNEL_DIR "/") + name + ".spv", std::ios::binary | std::ios::ate);
  if (!f) {
    ADD_FAILURE() << name << ".spv is missing";
    return {};
  }
  std::vector<uint32_t> words(f.tellg() / 4);
  f.seekg(0);
  f.read(reinterpret_cast<char*>(words.data()), words.size() * 4);
  return words;
}

Program::Program(const std::vector<uint32_t>& spirv, CompileOptions options) {
  CompileResult r = compileSpirv(spirv, options);
  EXPECT_TRUE(r.ok) << r.log;
  if (!r.ok)
    return;
  std::string log;
  module_ = LoadedModule::load(r.native, log);
  EXPECT_TRUE(module_) << log;
  if (!module_)
    return;
  for (const std::string& import : module_->unresolvedImports())
    ADD_FAILURE() << "unresolved import " << import;
}

size_t Program::find(const std::string& kernel) const {
  for (size_t i = 0; module_ && i < module_->kernels().size(); ++i)
    if (module_->kernels()[i].name == kernel)
      return i;
  return ~size_t{0};
}

const spirv::KernelInfo& Program::info(const std::string& kernel) const {
  static const spirv::KernelInfo none;
  size_t i = find(kernel);
  EXPECT_NE(i, ~size_t{0}) << kernel;
  return i == ~size_t{0} ? none : module_->kernels()[i];
}

void Program::run(const std::string& kernel, Size3 groups, Size3 local, std::vector<Arg> args, Size3 offset) {
  size_t index = find(kernel);
  ASSERT_NE(index, ~size_t{0}) << kernel;
  const spirv::KernelInfo& k = module_->kernels()[index];
  ASSERT_EQ(k.args.size(), args.size()) << kernel;
  auto aligned = [](size_t bytes) {
    void* p = std::aligned_alloc(64, (bytes + 64) & ~size_t{63});
    std::memset(p, 0xcd, (bytes + 64) & ~size_t{63});
    return std::unique_ptr<void, decltype(&std::free)>(p, &std::free);
  };
  auto local_memory = aligned(k.local_bytes);
  std::vector<std::unique_ptr<void, decltype(&std::free)>> carved;
  std::vector<void*> local_pointers(args.size());
  std::vector<const void*> pointers;
  for (size_t i = 0; i < args.size(); ++i) {
    if (k.args[i].kind == spirv::ArgKind::local_pointer) {
      carved.push_back(aligned(args[i].local_bytes));
      local_pointers[i] = carved.back().get();
      pointers.push_back(&local_pointers[i]);
    } else {
      ASSERT_EQ(k.args[i].size, args[i].value.size()) << kernel << " argument " << i;
      pointers.push_back(args[i].value.data());
    }
  }
  LaunchContext launch{};
  for (int d = 0; d < 3; ++d) {
    launch.group_count[d] = groups[d];
    launch.local_size[d] = local[d];
    launch.global_offset[d] = offset[d];
    if (groups[d] * local[d] > 1 || d == 0)
      launch.work_dim = d + 1;
  }
  for (uint64_t z = 0; z < groups[2]; ++z)
    for (uint64_t y = 0; y < groups[1]; ++y)
      for (uint64_t x = 0; x < groups[0]; ++x) {
        uint64_t id[3] = {x, y, z};
        module_->entry(index)(pointers.data(), &launch, id, local_memory.get());
      }
  EXPECT_EQ(takeRefusedBytes(), 0u) << kernel << ": a group found no memory and did nothing";
}

std::vector<IsaLevel> hostLevels() {
  std::vector<IsaLevel> out;
  for (IsaLevel l : {IsaLevel::x86_64_v3, IsaLevel::avx512, IsaLevel::avx512_bf16, IsaLevel::amx})
    if (l <= hostIsaLevel())
      out.push_back(l);
  return out;
}

}  // namespace zefuse::cpu::testing
