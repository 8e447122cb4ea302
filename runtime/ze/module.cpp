#include "runtime/ze/module.h"

namespace zefuse::ze {
namespace {

std::string readLog(const Api& api, ze_module_build_log_handle_t log) {
  size_t size = 0;
  if (!log || api.zeModuleBuildLogGetString(log, &size, nullptr) != ZE_RESULT_SUCCESS || size == 0)
    return {};
  std::string text(size, '\0');
  if (api.zeModuleBuildLogGetString(log, &size, text.data()) != ZE_RESULT_SUCCESS)
    return {};
  text.resize(std::min(text.size(), size));
  while (!text.empty() && (text.back() == '\0' || text.back() == '\n'))
    text.pop_back();
  return text;
}

}  // namespace

Result<Module> Module::create(const Context& context, ze_module_format_t format, std::span<const std::byte> bytes,
                              const std::string& label, const std::string& flags) {
  const Api& api = context.api();
  auto desc = make<ze_module_desc_t>();
  desc.format = format;
  desc.inputSize = bytes.size();
  desc.pInputModule = reinterpret_cast<const uint8_t*>(bytes.data());
  desc.pBuildFlags = flags.empty() ? nullptr : flags.c_str();
  ze_module_handle_t handle = nullptr;
  ze_module_build_log_handle_t log_handle = nullptr;
  const ze_result_t result = api.zeModuleCreate(context.handle(), context.device().handle, &desc, &handle, &log_handle);
  if (traceEnabled())
    traceCall(api, "zeModuleCreate", result);
  const Owned<ze_module_build_log_handle_t, &Api::zeModuleBuildLogDestroy> log(&api, log_handle);
  if (result != ZE_RESULT_SUCCESS) {
    // The log says more than the last error's description, which is its first line.
    const std::string text = readLog(api, log_handle);
    const Status error = callError(api, "zeModuleCreate", result, context.device().name);
    const bool native = format == ZE_MODULE_FORMAT_NATIVE;
    return Status{native ? Code::damaged : error.code(),
                  std::string(native ? "native binary" : "SPIR-V") + " of kernel module '" + label + "': " +
                      (text.empty() ? error.message()
                                    : failedCall(api, "zeModuleCreate", result, context.device().name) + "\n" + text)};
  }
  Module module;
  module.context_ = &context;
  module.handle_ = {&api, handle};
  return module;
}

Result<Module> Module::fromSpirv(const Context& context, std::span<const uint32_t> words, const std::string& label,
                                 const std::string& flags) {
  return create(context, ZE_MODULE_FORMAT_IL_SPIRV, std::as_bytes(words), label, flags);
}

Result<Module> Module::fromNative(const Context& context, std::span<const std::byte> native, const std::string& label) {
  return create(context, ZE_MODULE_FORMAT_NATIVE, native, label, {});
}

Result<std::vector<std::byte>> Module::nativeBinary() const {
  const Api& api = context_->api();
  size_t size = 0;
  ZEFUSE_ZE(api, context_->device().name, zeModuleGetNativeBinary, handle(), &size, nullptr);
  std::vector<std::byte> bytes(size);
  ZEFUSE_ZE(api, context_->device().name, zeModuleGetNativeBinary, handle(), &size,
            reinterpret_cast<uint8_t*>(bytes.data()));
  bytes.resize(size);
  return bytes;
}

}  // namespace zefuse::ze
