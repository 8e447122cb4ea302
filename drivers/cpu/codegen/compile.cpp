// The road of a module, one stage per line (compileModule).
#include "drivers/cpu/codegen/backend.h"
#include "drivers/cpu/codegen/codegen.h"
#include "drivers/cpu/codegen/container.h"
#include "drivers/cpu/codegen/workgroup.h"
#include "drivers/spirv/module_checks.h"
#include "drivers/spirv/reader.h"

#include <set>

namespace zefuse::cpu {
namespace {

constexpr size_t kManyKernels = 64;

CompileResult compileModule(std::span<const uint32_t> words, const CompileOptions& options) {
  CompileResult result;
  spirv::SpirvModule source = spirv::parseSpirv(words);
  if (!source.validation.empty())
    result.log = "warning: not valid SPIR-V by SPIRV-Tools: " + source.validation + "\n";

  llvm::LLVMContext context;
  std::string diagnostics;
  context.setDiagnosticHandler(std::make_unique<spirv::DiagnosticLog>(diagnostics));
  llvm::Module module("kernels", context);
  auto target = createTargetMachine(options.isa, options.opt_level);
  module.setTargetTriple(target->getTargetTriple());
  module.setDataLayout(target->createDataLayout());
  module.setPICLevel(llvm::PICLevel::BigPIC);

  spirv::Markers markers(module);
  spirv::Reader reader(source, module, markers, options.spec_constants, {.dot4 = dot4Of(options.isa)});
  reader.read();
  spirv::checkIr(module, "reading SPIR-V");

  spirv::CallGraphSizes sizes(markers);
  std::set<llvm::Function*> kernel_functions;
  for (spirv::KernelSource& k : reader.kernels) {
    sizes.addKernel(*k.function);
    k.function->setLinkage(llvm::GlobalValue::ExternalLinkage);
    kernel_functions.insert(k.function);
  }
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
  spirv::checkIr(module, "laying out work-items");
  linkLibraries(module, options.isa);
  setTargetAttributes(module, options.isa);
  optimize(module, *target, options.opt_level, reader.kernels.size() > kManyKernels);
  useMaxInstructions(module);
  addUpInOneWidth(module);
  keepRepeatedLanes(module);
  keepWholeStores(module);
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
