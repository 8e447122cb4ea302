#include "runtime/executor/vendor_code.h"

#include <algorithm>
#include <fstream>

#include "common/toolchain/companion.h"
#include "common/toolchain/subprocess.h"
#include "common/toolchain/temporary_folder.h"
#include "runtime/executor/kernel_modules.h"
#include "runtime/ze/jit_program.h"

namespace zefuse::executor {
namespace {

std::string describe(const ze::Device& device) {
  char id[32];
  std::snprintf(id, sizeof id, "%04x:%04x", device.properties.vendorId, device.properties.deviceId);
  return "device '" + device.name + "' (" + device.description + ", PCI id " + id + ")";
}

}  // namespace

std::string whyNotCovered(const ze::Device& device, const std::string& product, const CancelCheck& cancelled) {
  std::vector<InstalledCompiler> installed = installedCompilers(compiler_answer_deadline, cancelled);
  const VendorCompiler* vendor = vendorCompilerOf(product);
  if (vendor)
    std::erase_if(installed, [&](const InstalledCompiler& each) { return each.vendor != vendor; });
  std::string text = "no compiler here makes code for " + describe(device) + ": ";
  text += product.empty() ? "its id is none of those that this zefuse knows (`zefuse targets` lists them)"
                          : "it is a '" + product + "', which " +
                                (installed.empty() ? (vendor ? std::string(vendor->name) : "no compiler") + " covers"
                                                   : "the installed ones do not cover");
  text += "; installed: " + zefuse::describe(installed) + ".\n";
  // Consent to the driver's compiler helps no device without a product: kernels are scheduled for one.
  if (product.empty())
    text += "  - use a newer zefuse, or name in ZEFUSE_GPU_TARGET a product whose code runs on this device\n";
  else
    text += (vendor ? "  - " + std::string(vendor->advice) + "\n" : "") +
            "  - or make the code elsewhere: zefuse compile --targets " + product +
            "\n"
            "  - or let the driver compile, which may take minutes: options={\"jit\": \"allow\"} or ZEFUSE_JIT=allow\n";
  text +=
      "  - or use the CPU: options={\"device\": \"cpu\"} (\"" + device.name + ",cpu\": where the GPU cannot be used)";
  return text;
}

CacheKey vendorCodeKey(std::span<const uint32_t> spirv, const std::string& product, const InstalledCompiler& compiler) {
  CacheKey key("native");
  key.add("format", "2").add("target", product).add("compiler", compiler.identity());
  key.addHash("spirv", std::as_bytes(spirv));
  return key;
}

std::optional<CacheKey> VendorCode::compilerKey(const plan::KernelModule& module) const {
  const std::string product = module.target()->str();
  const auto compiler = compilerFor(product);
  return compiler.ok() ? std::optional(vendorCodeKey(spirvOf(module), product, *compiler)) : std::nullopt;
}

Result<std::vector<std::byte>> VendorCode::byCompiler(const plan::KernelModule& module) const {
  const std::string product = module.target()->str();
  const auto compiler = compilerFor(product);
  if (!compiler.ok())
    return compiler.status();
  CompilerOptions options;
  options.compiler = compiler->command;
  options.cancelled = options_.cancelled;
  auto made = compiler->vendor->compile(spirvOf(module), product, options);
  return made.ok() ? Result(std::move(made->bytes)) : made.status();
}

Result<std::vector<std::byte>> VendorCode::byDriver(const plan::KernelModule& module, bool refused) {
  if (options_.jit == JitConsent::never) {
    const std::string product = module.target()->str();
    return Status{Code::not_found,
                  refused ? "the driver of " + describe(device_) +
                                " does not take the code that the installed compiler made for '" + product +
                                "', and may not compile it itself: options={\"jit\": \"allow\"} or ZEFUSE_JIT=allow "
                                "lets it, options={\"device\": \"cpu\"} does without"
                          : whyNotCovered(device_, product, options_.cancelled)};
  }
  const std::string kernel = module.entry()->str();
  {
    std::lock_guard lock(mutex_);
    if (options_.jit_progress && !options_.jit_progress(describe(device_), kernel, ++started_, count_))
      return Status{Code::cancelled, "compiling by the driver of " + describe(device_) + " was cancelled"};
  }
  TemporaryFolder folder("zefuse-jit");
  if (!folder.status().ok())
    return folder.status();
  const std::string from = (folder.path() / "kernel.spv").string(), to = (folder.path() / "kernel.bin").string();
  {
    const auto words = std::as_bytes(spirvOf(module));
    std::ofstream file(from, std::ios::binary);
    file.write(reinterpret_cast<const char*>(words.data()), std::streamsize(words.size()));
    if (!file.flush())
      return Status{Code::internal, "cannot write " + from + ": is the disk full?"};
  }
  ToolLimits limits;
  limits.deadline = std::chrono::seconds(options_.jit_timeout_s);
  limits.cancelled = options_.cancelled;
  limits.memory_bytes = CompilerOptions().memory_bytes;  // the same compiler, as a library
  const auto done = runTool({companionProgram(ze::jit_program), device_.name, from, to}, limits);
  if (!done.ok()) {
    if (done.status().code() != Code::cancelled)
      folder.keep();  // the message's command repeats it
    return Status{done.status().code(), "kernel '" + kernel + "' by the driver of " + describe(device_) + ": " +
                                            done.status().message() +
                                            "\noptions={\"device\": \"cpu\"} does without it"};
  }
  std::ifstream file(to, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

}  // namespace zefuse::executor
