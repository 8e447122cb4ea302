#include "lowering/spirv/validate.h"

#include <memory>

#include "spirv-tools/libspirv.h"

namespace zefuse {
namespace {

struct ContextDeleter {
  void operator()(spv_context context) const { spvContextDestroy(context); }
};
using Context = std::unique_ptr<spv_context_t, ContextDeleter>;

Context makeContext() { return Context(spvContextCreate(SPV_ENV_OPENCL_2_2)); }

std::string takeDiagnostic(spv_diagnostic diagnostic) {
  std::string text = diagnostic && diagnostic->error ? diagnostic->error : "no diagnostic";
  if (diagnostic)
    text += " (word " + std::to_string(diagnostic->position.index) + ")";
  spvDiagnosticDestroy(diagnostic);
  return text;
}

}  // namespace

std::optional<std::string> whyInvalid(std::span<const uint32_t> words) {
  Context context = makeContext();
  spv_diagnostic diagnostic = nullptr;
  spv_result_t result = spvValidateBinary(context.get(), words.data(), words.size(), &diagnostic);
  if (result == SPV_SUCCESS) {
    spvDiagnosticDestroy(diagnostic);
    return std::nullopt;
  }
  return takeDiagnostic(diagnostic);
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
