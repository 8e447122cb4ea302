// Our kernels and our shim on Intel's own driver, without a GPU: in capture mode it builds modules with the real
// compiler, takes arguments and launches, and writes what the hardware would have been told to a file. Nothing is
// computed. Each product runs in a process of its own, since the mode is read from the environment once.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "common/toolchain/ocloc.h"
#include "common/toolchain/subprocess.h"
#include "tests/unit/lowering/gpu_kernels.h"
#include "tests/unit/lowering/kept_binary.h"
#include "tests/unit/lowering/kernel_text.h"

namespace zefuse::test {
namespace {

namespace fs = std::filesystem;

struct Product {
  const char* family;  // as the driver's ProductFamilyOverride names it
  const char* target;  // as the offline compiler and our table name it
  // What 22.43's defaults lack, one of the two: without slices x sub-slices x engines dg2 and pvc allow no work-item,
  // and tgllp ends the process on other numbers than its own; with any, adlp divides by its number of engines, 0.
  const char* setting;
};

class IntelDriver : public testing::TestWithParam<Product> {
protected:
  fs::path folder;

  void SetUp() override {
    void* driver = dlopen("libze_intel_gpu.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!driver)
      GTEST_SKIP() << "Intel's driver is not installed";
    dlclose(driver);
    std::string name = (fs::temp_directory_path() / "zefuse-intel-driver-XXXXXX").string();  // another run has its own
    ASSERT_TRUE(mkdtemp(name.data()));
    folder = name;
  }
  void TearDown() override {
    if (!folder.empty())
      fs::remove_all(folder);
  }

  fs::path write(const std::string& name, const void* data, size_t bytes) {
    std::ofstream file(folder / name, std::ios::binary);
    file.write(static_cast<const char*>(data), std::streamsize(bytes));
    return folder / name;
  }

  // Runs the probe in the driver's capture mode.
  Result<ToolOutput> probe(const fs::path& kernels) {
    return runTool({"/usr/bin/env", "-C", folder, "NEOReadDebugKeys=1", "SetCommandStreamReceiver=1",
                    std::string("ProductFamilyOverride=") + GetParam().family, GetParam().setting, PROBE, kernels},
                   ToolLimits{.deadline = std::chrono::seconds(300)});
  }
};

TEST_P(IntelDriver, BuildsAndLaunchesWhatWeEmitAndPackage) {
#ifdef ZEFUSE_SANITIZED
  GTEST_SKIP() << "Intel's driver opens libraries with RTLD_DEEPBIND, for which a sanitizer ends the process";
#endif
  auto target = TargetDescription::named(GetParam().target);
  ASSERT_TRUE(target);
  std::string list;
  size_t packaged = 0;
  for (const NamedKernel& family : kernelFamilies()) {
    auto kernel = loweredOf(family.module, *target);
    ASSERT_TRUE(kernel) << family.name;
    fs::path spirv = write(family.name + ".spv", kernel->spirv.data(), kernel->spirv.size() * 4);
    auto binary = keptBinary(kernel->spirv, GetParam().target);
    ASSERT_TRUE(binary.ok() || binary.status().code() == Code::not_found) << binary.status().toString();
    std::string file = "-";
    if (binary.ok()) {
      file = write(family.name + ".bin", binary->bytes.data(), binary->bytes.size());
      ++packaged;
    }
    list += kernel->name + " " + std::to_string(kernel->group_size[0]) + " " + spirv.string() + " " + file + "\n";
  }
  auto output = probe(write("kernels", list.data(), list.size()));
  ASSERT_TRUE(output.ok()) << output.status().toString();
  EXPECT_NE(output->text.find("done\n"), std::string::npos) << output->text;
  size_t launched = 0;
  for (size_t at = 0; (at = output->text.find("from a packaged binary: wait\n", at)) != std::string::npos; ++at)
    ++launched;
  EXPECT_EQ(launched, packaged);
  bool captured = false;
  for (const auto& entry : fs::directory_iterator(folder))
    captured |= entry.path().extension() == ".aub";
  EXPECT_TRUE(captured) << "no capture file: the driver ran in another mode\n" << output->text;
}

INSTANTIATE_TEST_SUITE_P(Products, IntelDriver,
                         testing::Values(Product{"dg2", "dg2-g11", "HardwareInfoOverride=8x4x8"},
                                         Product{"tgllp", "tgllp", "HardwareInfoOverride=1x6x16"},
                                         Product{"adlp", "adl-p", "OverrideMaxWorkgroupSize=512"},
                                         Product{"pvc", "pvc", "HardwareInfoOverride=8x4x8"}),
                         [](const auto& info) { return std::string(info.param.family); });

}  // namespace
}  // namespace zefuse::test
