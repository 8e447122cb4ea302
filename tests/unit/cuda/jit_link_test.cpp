// PTX becomes a cubin by nvJitLink where there is one that can, else by the driver's linker; the module works either
// way.
#include "tests/unit/cuda/cuda_driver_test.h"

namespace zefuse::test {
namespace {

class JitLink : public CudaDriver {
protected:
  std::string nativeText(ze_module_handle_t made) {
    size_t bytes = 0;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleGetNativeBinary(made, &bytes, nullptr));
    std::string text(bytes, 0);
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeModuleGetNativeBinary(made, &bytes, reinterpret_cast<uint8_t*>(text.data())));
    return text;
  }
  // What is in the native binary of a module from SPIR-V, whose kernel was launched.
  std::string linked() {
    ze_module_handle_t made = module();
    const std::string text = nativeText(made);
    ze_kernel_handle_t scale = kernel(made, "scale", 64);
    float* x = memory(128 * sizeof(float));
    const float by = 2;
    const uint32_t n = 128;
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetArgumentValue(scale, 0, sizeof x, &x));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetArgumentValue(scale, 1, sizeof by, &by));
    EXPECT_EQ(ZE_RESULT_SUCCESS, zeKernelSetArgumentValue(scale, 2, sizeof n, &n));
    ze_command_list_handle_t list = immediate();
    launch(list, scale, 2);
    EXPECT_EQ(ZE_RESULT_SUCCESS, synchronize(list, 1'000'000'000));
    EXPECT_NE(happened().find("launch scale 2x1x1"), std::string::npos) << happened();
    zeMemFree(context, x);
    zeCommandListDestroy(list);
    zeKernelDestroy(scale);
    zeModuleDestroy(made);
    EXPECT_NE(text.find(".entry scale"), std::string::npos);
    return text.find("// linked for ") == std::string::npos ? "by the driver"
                                                            : text.substr(text.find("// linked for "), 19);
  }
};
using NoJitLink = JitLink;

// Linked for other units to call it, setmaxnreg would be ignored and each wgmma would wait for the last.
TEST_F(JitLink, CodeOfWarpgroupsIsLoadedAsItIs) {
  ze_module_handle_t made = module(ZEFUSE_TEST_OWN_KERNEL);
  const std::string text = nativeText(made);
  EXPECT_NE(text.find(".target sm_90a"), std::string::npos) << text;
  EXPECT_EQ(text.find("// linked for "), std::string::npos) << text;
  ze_kernel_handle_t own = kernel(made, "own", 128);
  zeKernelDestroy(own);
  zeModuleDestroy(made);
}
TEST_F(JitLink, MakesTheCubin) { EXPECT_EQ(linked(), "// linked for sm_90"); }
TEST_F(NoJitLink, TheDriverLinks) { EXPECT_EQ(linked(), "by the driver"); }

}  // namespace
}  // namespace zefuse::test
