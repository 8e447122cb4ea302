#include "lowering/spirv/validate.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "spirv-tools/libspirv.h"

namespace zefuse {
namespace {

struct ContextDeleter {
  void operator()(spv_context context) const { spvContextDestroy(context); }
};
using Context = std::unique_ptr<spv_context_t, ContextDeleter>;

Context makeContext(spv_target_env environment = SPV_ENV_OPENCL_2_2) { return Context(spvContextCreate(environment)); }

constexpr uint32_t kOpCapability = 17, kHeader = 5, kFloat16 = 9;

bool hasCapability(std::span<const uint32_t> words, uint32_t number) {
  for (size_t at = kHeader; at + 1 < words.size() && words[at] == (2u << 16 | kOpCapability); at += 2)
    if (words[at + 1] == number)
      return true;
  return false;
}

std::string takeDiagnostic(spv_diagnostic diagnostic) {
  std::string text = diagnostic && diagnostic->error ? diagnostic->error : "no diagnostic";
  if (diagnostic)
    text += " (word " + std::to_string(diagnostic->position.index) + ")";
  spvDiagnosticDestroy(diagnostic);
  return text;
}

}  // namespace

std::optional<std::string> whyInvalid(std::span<const uint32_t> words) {
  // OpenCL has f16 where the device has cl_khr_fp16, which the validator's OpenCL does not know of; whyNotOn asks for
  // it.
  Context context = makeContext(hasCapability(words, kFloat16) ? SPV_ENV_UNIVERSAL_1_2 : SPV_ENV_OPENCL_2_2);
  spv_diagnostic diagnostic = nullptr;
  spv_result_t result = spvValidateBinary(context.get(), words.data(), words.size(), &diagnostic);
  if (result == SPV_SUCCESS) {
    spvDiagnosticDestroy(diagnostic);
    return std::nullopt;
  }
  return takeDiagnostic(diagnostic);
}

std::vector<std::string> importedFunctions(std::span<const uint32_t> words) {
  constexpr uint32_t op_decorate = 71, op_function = 54, linkage_attributes = 41, import = 1, header = 5;
  std::map<uint32_t, std::string> imports;
  std::vector<std::string> functions;
  for (size_t at = header; at < words.size();) {
    uint32_t opcode = words[at] & 0xffff, length = words[at] >> 16;
    if (length == 0 || at + length > words.size())
      break;
    if (opcode == op_decorate && length > 3 && words[at + 2] == linkage_attributes &&
        words[at + length - 1] == import) {
      const char* name = reinterpret_cast<const char*>(&words[at + 3]);
      imports[words[at + 1]] = std::string(name, strnlen(name, (length - 4) * 4));
    } else if (opcode == op_function && length > 2) {
      if (auto found = imports.find(words[at + 2]); found != imports.end())
        functions.push_back(found->second);
    }
    at += length;
  }
  return functions;
}

std::string whyNotOn(const TargetDescription& target, std::span<const uint32_t> words) {
  auto is = [](const std::string& name, std::string_view function) {
    return name.starts_with("_Z" + std::to_string(function.size()) + std::string(function));
  };
  auto known = [&](const std::string& name) {
    return (target.native.bf16_conversions && name.starts_with(kConvertBfloat16)) ||
           (target.native.tanh && name.starts_with(kNativeTanh)) || (target.native.dot4 && name.starts_with(kDot4)) ||
           std::ranges::any_of(target.matrix.operations,
                               [&](auto& operation) { return is(name, operation.multiply); }) ||
           std::ranges::any_of(target.matrix.functions, [&](std::string_view function) { return is(name, function); });
  };
  for (const std::string& name : importedFunctions(words))
    if (!known(name))
      return "calls " + name + ", which is no SPIR-V instruction";
  struct Capability {
    uint32_t number;
    bool native;
    const char* what;
  };
  const Capability capabilities[] = {{kFloat16, target.native.f16, "arithmetic in f16"},
                                     {10, target.native.f64, "arithmetic in f64"},
                                     {65, target.native.shuffles, "shuffles of sub-groups"}};
  for (const Capability& capability : capabilities)
    if (!capability.native && hasCapability(words, capability.number))
      return std::string("has ") + capability.what + ", which " + target.name + " does not have";
  return {};
}

std::string disassemble(std::span<const uint32_t> words) {
  Context context = makeContext();
  spv_text text = nullptr;
  spv_diagnostic diagnostic = nullptr;
  if (spvBinaryToText(context.get(), words.data(), words.size(),
                      SPV_BINARY_TO_TEXT_OPTION_INDENT | SPV_BINARY_TO_TEXT_OPTION_FRIENDLY_NAMES, &text,
                      &diagnostic) != SPV_SUCCESS)
    return takeDiagnostic(diagnostic);
  spvDiagnosticDestroy(diagnostic);
  std::string result(text->str, text->length);
  spvTextDestroy(text);
  return result;
}

}  // namespace zefuse
