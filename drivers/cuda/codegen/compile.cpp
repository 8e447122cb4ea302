// The stages of a module, one per line (compileModule).
#include "drivers/cuda/codegen/backend.h"
#include "drivers/cuda/codegen/codegen.h"
#include "drivers/cuda/codegen/lower_markers.h"
#include "drivers/cuda/codegen/streamed_loads.h"
#include "drivers/cuda/codegen/warpgroup.h"
#include "drivers/spirv/module_checks.h"
#include "drivers/spirv/reader.h"

#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/Transforms/Utils/Cloning.h"

#include <cctype>
#include <cstring>
#include <set>

namespace zefuse::cuda {
namespace {

// dp4a, an element at a time.
llvm::Value* dot4(llvm::IRBuilderBase& builder, llvm::Value* a, llvm::Value* b, llvm::Value* sum) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(sum->getType());
  if (!vector)
    return builder.CreateIntrinsic(llvm::Intrinsic::nvvm_idp4a_u_s, {}, {a, b, sum});
  llvm::Value* all = llvm::PoisonValue::get(vector);
  for (unsigned i = 0; i < vector->getNumElements(); ++i) {
    auto element = [&](llvm::Value* of) { return builder.CreateExtractElement(of, i); };
    all = builder.CreateInsertElement(all, dot4(builder, element(a), element(b), element(sum)), i);
  }
  return all;
}

// Constants stay in global memory: what an argument names as __constant is memory of the application, and the 64 KiB of
// constant memory hold no table of any size.
constexpr spirv::ReaderTarget kReaderTarget{.global_space = 1,
                                            .constant_space = 1,
                                            .local_space = 3,
                                            .device_scope = "device",
                                            .group_scope = "block",
                                            .vector_math = false,
                                            .remainders = false,
                                            .prefetches = false,
                                            .bfloat = true,
                                            .native_math = true,
                                            .asynchronous_copies = true,
                                            .warpgroups = true,
                                            .images = false,
                                            .dot4 = dot4};

// The kernel's name, so that profilers show it; numbered where PTX could not write it: an underscore in front is a name
// if more follows (_to_copy).
std::string symbolOf(const std::string& name, size_t number, std::set<std::string>& used) {
  const bool begins =
      !name.empty() && (std::isalpha(static_cast<unsigned char>(name[0])) != 0 || (name[0] == '_' && name.size() > 1));
  bool plain = begins && name.size() < 512;
  for (char c : name)
    plain &= std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
  std::string symbol = plain && !name.starts_with("zf_") ? name : "zf_kernel_" + std::to_string(number);
  return used.insert(symbol).second ? symbol : "zf_kernel_" + std::to_string(number);
}

// Parameters of the global offset that nobody reads cost a launch's bytes: the kernel goes without.
void dropOffsets(llvm::Function& kernel) {
  const unsigned kept = unsigned(kernel.arg_size()) - 3;
  std::vector<llvm::Type*> types(kernel.getFunctionType()->param_begin(),
                                 kernel.getFunctionType()->param_begin() + kept);
  auto* fresh = llvm::Function::Create(llvm::FunctionType::get(kernel.getReturnType(), types, false),
                                       kernel.getLinkage(), "", kernel.getParent());
  fresh->takeName(&kernel);
  fresh->setCallingConv(kernel.getCallingConv());
  llvm::AttributeList old = kernel.getAttributes();
  llvm::SmallVector<llvm::AttributeSet> parameters;
  for (unsigned i = 0; i < kept; ++i)
    parameters.push_back(old.getParamAttrs(i));
  fresh->setAttributes(llvm::AttributeList::get(kernel.getContext(), old.getFnAttrs(), old.getRetAttrs(), parameters));
  fresh->splice(fresh->begin(), &kernel);
  for (unsigned i = 0; i < kept; ++i)
    kernel.getArg(i)->replaceAllUsesWith(fresh->getArg(i));
  kernel.eraseFromParent();
}

CompileResult compileModule(std::span<const uint32_t> words, const CompileOptions& options) {
  CompileResult result;
  llvm::LLVMContext context;
  std::string diagnostics;
  context.setDiagnosticHandler(std::make_unique<spirv::DiagnosticLog>(diagnostics));
  auto target = createTargetMachine(options.architecture, options.opt_level);
  auto module = lowerToLlvm(words, options, context, *target, result);
  if (result.own)
    target = createTargetMachine(options.architecture, options.opt_level, /*own=*/true);
  streamLoads(*module);
  const std::string ptx = emitPtx(*module, *target);
  if (!diagnostics.empty())
    throw spirv::CompileError("LLVM: " + diagnostics);
  auto* bytes = reinterpret_cast<const std::byte*>(ptx.c_str());
  result.program.image.assign(bytes, bytes + ptx.size() + 1);
  result.ok = true;
  return result;
}

}  // namespace

std::unique_ptr<llvm::Module> lowerToLlvm(std::span<const uint32_t> words, const CompileOptions& options,
                                          llvm::LLVMContext& context, llvm::TargetMachine& target,
                                          CompileResult& result) {
  spirv::SpirvModule source = spirv::parseSpirv(words);
  if (!source.validation.empty())
    result.log = "warning: not valid SPIR-V by SPIRV-Tools: " + source.validation + "\n";

  auto owned = std::make_unique<llvm::Module>("kernels", context);
  llvm::Module& module = *owned;
  module.setTargetTriple(target.getTargetTriple());
  module.setDataLayout(target.createDataLayout());

  spirv::Markers markers(module, kReaderTarget.local_space);
  spirv::Reader reader(source, module, markers, options.spec_constants, kReaderTarget);
  reader.read();
  spirv::checkIr(module, "reading SPIR-V");
  spirv::CallGraphSizes sizes(markers);
  for (spirv::KernelSource& kernel : reader.kernels)
    sizes.addKernel(*kernel.function);

  Program& program = result.program;
  std::set<std::string> symbols;
  for (size_t i = 0; i < reader.exported_globals.size(); ++i) {
    auto& global = reader.exported_globals[i];
    program.variables.push_back({global.name, "zf_global_" + std::to_string(i), global.size});
    global.variable->setName(program.variables.back().symbol);
    global.variable->setLinkage(llvm::GlobalValue::ExternalLinkage);
  }
  std::vector<llvm::Function*> kernels;
  for (size_t i = 0; i < reader.kernels.size(); ++i)
    kernels.push_back(makeKernel(reader.kernels[i], symbolOf(reader.kernels[i].info.name, i, symbols)));
  for (llvm::Function& f : module)
    if (!f.isDeclaration() && f.getCallingConv() != llvm::CallingConv::PTX_Kernel)
      f.addFnAttr(llvm::Attribute::AlwaysInline);
  prepareKernels(module, target);
  markers.forgetDeleted();
  for (size_t i = 0; i < kernels.size(); ++i) {
    ProgramKernel made;
    made.symbol = kernels[i]->getName().str();
    lowerMarkers(*kernels[i], reader.kernels[i], markers, reader.local_variables, made);
    if (!made.takes_offset)
      dropOffsets(*kernels[i]);
    program.kernels.push_back(std::move(made));
  }
  markers.eraseAll();
  result.own = lowerWarpgroups(module);
  if (result.own && codeArchitecture(options.architecture) != 90)
    throw spirv::CompileError("products of warpgroups are instructions of compute capability 9.0 alone");
  spirv::checkIr(module, "laying out work-items");
  if (result.own)
    promotePrivate(module, target);
  linkMathLibrary(module);
  optimize(module, target, options.opt_level);
  spirv::checkIr(module, "optimising");
  program.architecture = codeArchitecture(options.architecture);
  program.opt_level = options.opt_level;
  program.build_flags = options.build_flags;
  program.imports = reader.imports;
  return owned;
}

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

}  // namespace zefuse::cuda
