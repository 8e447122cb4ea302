// Images and samplers that SPIR-V or this reader does not have: errors that name the instruction, never a crash.
#include "tests/unit/codegen/harness.h"

#include <gtest/gtest.h>
#include <spirv-tools/libspirv.h>

#include <map>
#include <memory>

namespace zefuse::cpu::testing {
namespace {

// A kernel that reads a texel through a sampler and writes it to another image, as assembly by parts.
using Parts = std::map<std::string, std::string>;
const Parts kGood = {
    {"image", "%image = OpTypeImage %void 2D 0 0 0 0 Unknown ReadOnly"},
    {"target", "%target = OpTypeImage %void 2D 0 0 0 0 Unknown WriteOnly"},
    {"sampled", "%sampled = OpTypeSampledImage %image"},
    {"constant", "%s = OpConstantSampler %sampler ClampToEdge 0 Nearest"},
    {"types", ""},
    {"both", "%both = OpSampledImage %sampled %in %s"},
    {"sample", "%texel = OpImageSampleExplicitLod %v4float %both %at Lod %zero"},
    {"write", "OpImageWrite %out %at2 %texel"},
    {"more", ""},
};

std::vector<uint32_t> assemble(const Parts& p) {
  const std::string text = R"(
    OpCapability Addresses
    OpCapability Kernel
    OpCapability ImageBasic
    OpCapability LiteralSampler
    OpCapability Sampled1D
    OpCapability SampledBuffer
    OpMemoryModel Physical64 OpenCL
    OpEntryPoint Kernel %main "main"
    %void = OpTypeVoid
    %uint = OpTypeInt 32 0
    %float = OpTypeFloat 32
    %double = OpTypeFloat 64
    %half = OpTypeFloat 16
    %v2uint = OpTypeVector %uint 2
    %v3uint = OpTypeVector %uint 3
    %v4uint = OpTypeVector %uint 4
    %v2float = OpTypeVector %float 2
    %v3float = OpTypeVector %float 3
    %v4float = OpTypeVector %float 4
    %v4double = OpTypeVector %double 4
    %two = OpConstant %uint 2
    %one = OpConstant %uint 1
    %zero = OpConstant %float 0
    %at = OpConstantComposite %v2float %zero %zero
    %at2 = OpConstantComposite %v2uint %one %two
    %sampler = OpTypeSampler
    )" + p.at("image") + "\n" +
                           p.at("target") + "\n" + p.at("sampled") + "\n" + p.at("constant") + "\n" + p.at("types") +
                           R"(
    %type = OpTypeFunction %void %image %target
    %main = OpFunction %void None %type
    %in = OpFunctionParameter %image
    %out = OpFunctionParameter %target
    %entry = OpLabel
    )" + p.at("both") + "\n" +
                           p.at("sample") + "\n" + p.at("write") + "\n" + p.at("more") + R"(
    OpReturn
    OpFunctionEnd)";
  std::unique_ptr<spv_context_t, decltype(&spvContextDestroy)> context(spvContextCreate(SPV_ENV_UNIVERSAL_1_4),
                                                                       spvContextDestroy);
  spv_binary binary = nullptr;
  spv_diagnostic diagnostic = nullptr;
  const spv_result_t result = spvTextToBinary(context.get(), text.data(), text.size(), &binary, &diagnostic);
  EXPECT_EQ(SPV_SUCCESS, result) << (diagnostic ? diagnostic->error : "") << text;
  std::vector<uint32_t> words;
  if (binary)
    words.assign(binary->code, binary->code + binary->wordCount);
  spvBinaryDestroy(binary);
  spvDiagnosticDestroy(diagnostic);
  return words;
}

TEST(ImageTypes, TheModuleThatTheOthersVaryIsBuilt) {
  const CompileResult result = compileSpirv(assemble(kGood), {});
  EXPECT_TRUE(result.ok) << result.log;
}

struct Bad {
  const char* part;
  const char* text;
  const char* log;  // what the log says
};

TEST(ImageTypes, WhatThereIsNotIsRefused) {
  const Bad cases[] = {
      {"image", "%image = OpTypeImage %float 2D 0 0 0 0 Unknown ReadOnly", "sampled type is not void"},
      {"image", "%image = OpTypeImage %main 2D 0 0 0 0 Unknown ReadOnly", "is not a type"},
      {"image", "%image = OpTypeImage %void Cube 0 0 0 0 Unknown ReadOnly", "dimension 3"},
      {"image", "%image = OpTypeImage %void Rect 0 0 0 0 Unknown ReadOnly", "dimension 4"},
      {"image", "%image = OpTypeImage %void SubpassData 0 0 0 0 Unknown ReadOnly", "dimension 6"},
      {"image", "%image = OpTypeImage %void 3D 0 1 0 0 Unknown ReadOnly", "array of this kind"},
      {"image", "%image = OpTypeImage %void 3D 1 0 0 0 Unknown ReadOnly", "depth image"},
      {"image", "%image = OpTypeImage %void 2D 7 0 0 0 Unknown ReadOnly", "depth image"},
      {"image", "%image = OpTypeImage %void 2D 0 9 0 0 Unknown ReadOnly", "array of this kind"},
      {"image", "%image = OpTypeImage %void 2D 0 0 1 0 Unknown ReadOnly", "multisampled"},
      {"image", "%image = OpTypeImage %void 2D 0 0 0 1 Unknown ReadOnly", "not OpenCL's"},
      {"image", "%image = OpTypeImage %void 2D 0 0 0 0 Rgba8 ReadOnly", "not OpenCL's"},
      {"image", "%image = OpTypeImage %void Buffer 0 0 0 0 Unknown ReadOnly", "cannot be sampled"},
      {"sampled", "%sampled = OpTypeSampledImage %sampler", "cannot be sampled"},
      {"sampled", "%sampled = OpTypeSampledImage %target", "do not fit"},
      {"constant", "%s = OpConstantSampler %uint None 0 Nearest", "another type"},
      {"constant", "%s = OpConstantSampler %sampler None 2 Nearest", "unknown"},
      {"constant", "%s = OpConstantNull %sampler", "come from arguments"},
      {"constant", "%s = OpUndef %sampler", "come from arguments"},
      {"types", "%array = OpTypeArray %image %two", "come from arguments"},
      {"types", "%struct = OpTypeStruct %uint %sampler", "come from arguments"},
      {"types", "%vector = OpTypeVector %image 2", "not a scalar"},
      {"types", "%null = OpConstantNull %image", "come from arguments"},
      {"types", "%function = OpTypeFunction %void %sampled", "not the type of a value"},
      {"both", "%both = OpSampledImage %image %in %s", "not a sampled image"},
      {"both", "%both = OpSampledImage %sampled %in %one", "a sampler"},
      {"both", "%both = OpSampledImage %sampled %s %s", "is not an image"},
      {"both", "%both = OpCopyObject %image %in", "not a sampled image made"},
      {"sample", "%texel = OpImageSampleExplicitLod %v3float %both %at Lod %zero", "vector of 4"},
      {"sample", "%texel = OpImageSampleExplicitLod %float %both %at Lod %zero", "vector of 4"},
      {"sample", "%texel = OpImageSampleExplicitLod %v4double %both %at Lod %zero", "do not have"},
      {"sample", "%texel = OpImageSampleExplicitLod %v4float %in %at Lod %zero", "not a sampled image made"},
      {"sample", "%texel = OpImageSampleExplicitLod %v4float %both %zero Lod %zero", "fewer components"},
      {"sample", "%texel = OpImageSampleExplicitLod %v4float %both %both Lod %zero", "not a value"},
      {"sample", "%texel = OpImageSampleExplicitLod %v4float %both %at Grad %at %at", "image operands"},
      {"sample", "%texel = OpImageSampleImplicitLod %v4float %both %at", "unsupported instruction"},
      {"sample", "%texel = OpImageRead %v4float %in %at", "not an integer"},
      {"sample", "%texel = OpImageRead %v4float %both %at2", "has no type"},
      {"sample", "%texel = OpImageRead %v4float %one %at2", "is not an image"},
      {"sample", "%texel = OpImageFetch %v4float %in %at2", "unsupported instruction"},
      {"write", "OpImageWrite %out %one %texel", "fewer components"},
      {"write", "OpImageWrite %out %at2 %one", "vector of 4"},
      {"write", "OpImageWrite %out %at2 %in", "vector of 4"},
      {"write", "OpImageWrite %s %at2 %texel", "is not an image"},
      {"write", "OpImageWrite %out %at2 %texel Sample %one", "image operands"},
      {"more", "%size = OpImageQuerySizeLod %v3uint %in %one", "does not fit"},
      {"more", "%size = OpImageQuerySizeLod %v2float %in %one", "does not fit"},
      {"more", "%size = OpImageQuerySize %v2uint %s", "is not an image"},
      {"more", "%format = OpImageQueryFormat %float %in", "do not fit"},
      {"more", "%order = OpImageQueryOrder %uint %one", "is not an image"},
      {"more", "%number = OpConvertPtrToU %uint %in", "come from arguments"},
      {"more", "%bits = OpBitcast %target %in", "come from arguments"},
      {"more", "%again = OpImage %target %both", "do not fit"},
      {"more", "%again = OpImage %image %in", "not a sampled image made"},
      {"more", "%texels = OpLoad %uint %in", "come from arguments"},
  };
  for (const Bad& bad : cases) {
    SCOPED_TRACE(bad.text);
    Parts parts = kGood;
    parts[bad.part] = bad.text;
    const CompileResult result = compileSpirv(assemble(parts), {});
    EXPECT_FALSE(result.ok);
    EXPECT_NE(std::string::npos, result.log.find(bad.log)) << result.log;
  }
}

TEST(ImageTypes, UnoptimisedKernelsKeepImagesInVariables) {
  const CompileResult result = compileSpirv(loadSpirv("images_unoptimised"), {});
  EXPECT_TRUE(result.ok) << result.log;
}

}  // namespace
}  // namespace zefuse::cpu::testing
