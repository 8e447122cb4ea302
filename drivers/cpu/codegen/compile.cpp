// The road of a module, one stage per line (compileModule).
#include "drivers/cpu/codegen/backend.h"
#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/codegen/container.h"
#include "drivers/cpu/codegen/workgroup.h"
#include "drivers/spirv/reader.h"

#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Verifier.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

namespace zefuse::cpu {
namespace {

constexpr size_t kManyKernels = 64;
constexpr uint64_t kMaxInlinedInstructions = 1u << 20;

// LLVM's own diagnostics go to the log instead of stderr and exit.
struct DiagnosticLog : llvm::DiagnosticHandler {
  explicit DiagnosticLog(std::string& text) : text(text) {}
  bool handleDiagnostics(const llvm::DiagnosticInfo& info) override {
    if (info.getSeverity() == llvm::DS_Error) {
      llvm::raw_string_ostream out(text);
      llvm::DiagnosticPrinterRawOStream printer(out);
      info.print(printer);
      out << "\n";
    }
    return true;
  }
  std::string& text;
};

void checkIr(const llvm::Module& module, const char* stage) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (llvm::verifyModule(module, &out))
    throw spirv::CompileError(std::string("invalid LLVM IR after ") + stage + ": " + text);
}

// Kernels inline all they call. Size after that, and whether markers (work-item state) are used below a function.
class CallGraphSizes {
public:
  explicit CallGraphSizes(const spirv::Markers& markers) : markers_(markers) {}
  struct Info {
    uint64_t size = 0;
    bool uses_markers = false;
    bool open = false;
  };
  const Info& visit(llvm::Function& f) {
    auto [it, fresh] = info_.try_emplace(&f);
    if (!fresh) {
      if (it->second.open)
        throw spirv::CompileError("SPIR-V: recursive function");
      return it->second;
    }
    it->second.open = true;
    if (++depth_ > 256)
      throw spirv::CompileError("SPIR-V: calls are nested deeper than 256");
    Info sum;
    for (llvm::Instruction& i : llvm::instructions(f)) {
      ++sum.size;
      sum.uses_markers |= markers_.asQuery(&i) || markers_.asSync(&i) || markers_.asLocalVariable(&i);
      auto* call = llvm::dyn_cast<llvm::CallInst>(&i);
      if (call && call->getCalledFunction() && !call->getCalledFunction()->isDeclaration()) {
        const Info& callee = visit(*call->getCalledFunction());
        sum.size += callee.size;
        sum.uses_markers |= callee.uses_markers;
      }
      if (sum.size > kMaxInlinedInstructions)
        throw spirv::CompileError("SPIR-V: more than " + std::to_string(kMaxInlinedInstructions) +
                                  " instructions after inlining");
    }
    --depth_;
    return info_[&f] = sum;
  }

private:
  const spirv::Markers& markers_;
  std::map<llvm::Function*, Info> info_;
  unsigned depth_ = 0;
};

CompileResult compileModule(std::span<const uint32_t> words, const CompileOptions& options) {
  CompileResult result;
  spirv::SpirvModule source = spirv::parseSpirv(words);
  if (!source.validation.empty())
    result.log = "warning: not valid SPIR-V by SPIRV-Tools: " + source.validation + "\n";

  llvm::LLVMContext context;
  std::string diagnostics;
  context.setDiagnosticHandler(std::make_unique<DiagnosticLog>(diagnostics));
  llvm::Module module("kernels", context);
  auto target = createTargetMachine(options.isa, options.opt_level);
  module.setTargetTriple(target->getTargetTriple());
  module.setDataLayout(target->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);

  spirv::Markers markers(module);
  spirv::Reader reader(source, module, markers, options.spec_constants);
  reader.read();
  checkIr(module, "reading SPIR-V");

  CallGraphSizes sizes(markers);
  std::set<llvm::Function*> kernel_functions;
  uint64_t total = 0;
  for (spirv::KernelSource& k : reader.kernels) {
    total += sizes.visit(*k.function).size;
    k.function->setLinkage(llvm::GlobalValue::ExternalLinkage);
    kernel_functions.insert(k.function);
  }
  if (total > 4 * kMaxInlinedInstructions)
    throw spirv::CompileError("SPIR-V: more than " + std::to_string(4 * kMaxInlinedInstructions) +
                              " instructions after inlining");
  std::vector<spirv::ExportedFunction> functions;
  for (const spirv::ExportedFunction& f : reader.exported_functions) {
    // Outside of a kernel there is no work-item: such a function has no address.
    if (sizes.visit(*f.function).uses_markers)
      continue;
    f.function->setLinkage(llvm::GlobalValue::ExternalLinkage);
    functions.push_back(f);
  }
  for (llvm::Function& f : module)
    if (!f.isDeclaration() && !kernel_functions.count(&f))
      f.addFnAttr(llvm::Attribute::AlwaysInline);

  Container c;
  auto* pointer = llvm::PointerType::get(context, 0);
  module.getOrInsertGlobal(kRuntimeSymbol, pointer)->setInitializer(llvm::ConstantPointerNull::get(pointer));
  for (size_t i = 0; i < reader.exported_globals.size(); ++i) {
    auto& g = reader.exported_globals[i];
    g.variable->setName(globalSymbol(i));
    g.variable->setLinkage(llvm::GlobalValue::ExternalLinkage);
    c.globals.push_back({g.name, g.size});
  }
  for (size_t i = 0; i < functions.size(); ++i) {
    functions[i].function->setName(functionSymbol(i));
    c.functions.push_back(functions[i].name);
  }
  prepareKernels(module, *target);
  markers.forgetDeleted();
  for (size_t i = 0; i < reader.kernels.size(); ++i) {
    buildWorkGroup(reader.kernels[i], markers, reader.local_variables, kernelSymbol(i));
    c.kernels.push_back(reader.kernels[i].info);
  }
  markers.eraseAll();
  checkIr(module, "laying out work-items");
  linkMathLibrary(module, options.isa);
  setTargetAttributes(module, options.isa);
  optimize(module, *target, options.opt_level, reader.kernels.size() > kManyKernels);
  useMaxInstructions(module);
  std::vector<char> object = emitObject(module, *target);
  if (!diagnostics.empty())
    throw spirv::CompileError("LLVM: " + diagnostics);
  c.elf = linkSharedObject(object);

  c.isa = options.isa;
  c.build_flags = options.build_flags;
  c.opt_level = options.opt_level;
  c.spec_constants = options.spec_constants;
  c.imports = reader.imports;
  c.spirv.assign(words.begin(), words.end());
  result.native = writeContainer(c);
  result.ok = true;
  return result;
}

}  // namespace

CompileResult compileSpirv(std::span<const uint32_t> words, const CompileOptions& options) {
  CompileResult failure;
  try {
    return compileModule(words, options);
  } catch (const std::exception& e) {
    failure.log = e.what();
  } catch (...) {
    failure.log = "unknown failure in the compiler";
  }
  return failure;
}

}  // namespace zefuse::cpu
