#include "tests/unit/lowering/kernel_text.h"

#include <gtest/gtest.h>

#include "drivers/cpu/codegen/arena.h"
#include "lowering/dialect/Zefuse.h"
#include "lowering/dialect/shape.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

namespace zefuse::test {

std::string elementOf(const std::string& type) {
  std::string shape = type.substr(7, type.find_first_of(",>") - 7);
  size_t cut = shape.rfind('x');
  return cut == std::string::npos ? shape : shape.substr(cut + 1);
}

static std::string join(const std::vector<Operand>& operands, std::string Operand::* field) {
  std::string text;
  for (const Operand& operand : operands)
    text += (text.empty() ? "" : ", ") + operand.*field;
  return text;
}

void KernelText::generic(const std::string& result, const std::string& iterators, const std::vector<Operand>& ins,
                         const Operand& out, const std::string& body) {
  std::string maps, kinds, arguments;
  for (const Operand& in : ins)
    maps += "affine_map<" + in.map + ">, ";
  maps += "affine_map<" + out.map + ">";
  for (char kind : iterators)
    kinds += std::string(kinds.empty() ? "" : ", ") + (kind == 'p' ? "\"parallel\"" : "\"reduction\"");
  for (size_t i = 0; i < ins.size(); ++i)
    arguments += "%" + std::to_string(i) + ": " + elementOf(ins[i].type) + ", ";
  line(result + " = linalg.generic {indexing_maps = [" + maps + "], iterator_types = [" + kinds + "]}");
  if (!ins.empty())
    line("  ins(" + join(ins, &Operand::name) + " : " + join(ins, &Operand::type) + ")");
  line("  outs(" + out.name + " : " + out.type + ") {");
  line("^bb0(" + arguments + "%o: " + elementOf(out.type) + "):");
  // The body's last statement is its linalg.yield.
  std::string text = body;
  size_t at = text.rfind("yield");
  text.insert(at, "linalg.");
  line(text);
  line("} -> " + out.type);
}

void KernelText::empty(const std::string& result, const std::string& type, const std::string& sizes) {
  line(result + " = tensor.empty(" + sizes + ") : " + type);
}

void KernelText::fill(const std::string& result, const std::string& type, const std::string& value,
                      const std::string& sizes) {
  std::string element = elementOf(type);
  empty(result + "_e", type, sizes);
  line(result + "_c = arith.constant " + value + " : " + element);
  line(result + " = linalg.fill ins(" + result + "_c : " + element + ") outs(" + result + "_e : " + type + ") -> " +
       type);
}

std::string KernelText::module() const {
  std::string layouts, arguments;
  for (auto* list : {&inputs_, &outputs_})
    for (const Operand& operand : *list)
      layouts += (layouts.empty() ? "affine_map<" : ", affine_map<") + operand.map + ">";
  std::vector<Operand> outer = inputs_;
  std::string parameters, block;
  for (size_t i = 0; i < outer.size(); ++i) {
    outer[i].name = "%arg" + std::to_string(i);
    parameters += (i ? ", " : "") + outer[i].name + ": " + outer[i].type;
    block += (i ? ", " : "") + inputs_[i].name + ": " + inputs_[i].type;
  }
  std::string results = join(outputs_, &Operand::type);
  return "func.func @graph(" + parameters + ") {\n  %r:" + std::to_string(outputs_.size()) + " = zefuse.kernel \"" +
         name + "\"(" + join(outer, &Operand::name) + ") attributes {layouts = [" + layouts + "]} : (" +
         join(outer, &Operand::type) + ") -> (" + results + ") {\n  ^bb0(" + block + "):\n" + body_ +
         "    zefuse.yield " + join(outputs_, &Operand::name) + " : " + results + "\n  }\n  return\n}\n";
}

namespace {

struct Context {
  mlir::MLIRContext context;
  Context() : context(registry(), mlir::MLIRContext::Threading::DISABLED) { context.loadAllAvailableDialects(); }
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }
};

int64_t evaluate(mlir::AffineExpr expr, const std::vector<unsigned>& symbols, const std::vector<int64_t>& values) {
  mlir::MLIRContext* context = expr.getContext();
  unsigned count = 1;
  for (unsigned symbol : symbols)
    count = std::max(count, symbol + 1);
  llvm::SmallVector<mlir::AffineExpr> constants(count, mlir::getAffineConstantExpr(0, context));
  for (size_t i = 0; i < symbols.size(); ++i)
    constants[symbols[i]] = mlir::getAffineConstantExpr(values[i], context);
  auto result = mlir::dyn_cast<mlir::AffineConstantExpr>(expr.replaceSymbols(constants));
  EXPECT_TRUE(result) << "a launch expression holds more than the kernel's symbols";
  return result ? result.getValue() : 0;
}

}  // namespace

static mlir::FailureOr<LoweredKernel> lowerOnly(mlir::ModuleOp module, const TargetDescription& target,
                                                const StageDump& dump = nullptr, const Tuning& tuning = {}) {
  mlir::FailureOr<LoweredKernel> lowered = mlir::failure();
  module.walk([&](KernelOp kernel) { lowered = lowerKernel(kernel, target, dump, tuning); });
  return lowered;
}

struct Parsed {
  Context context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

// What a test hands over begins anywhere; the executor keeps the promise of a real call.
static TargetDescription withAnyBuffers(TargetDescription target) {
  target.buffer_alignment = 1;
  return target;
}

Program::Program(const std::string& text, const TargetDescription& target, bool aligned, const Tuning& tuning) {
  static auto* keep = new std::vector<std::unique_ptr<Parsed>>;  // launch expressions live in their context
  keep->push_back(std::make_unique<Parsed>());
  Parsed& parsed = *keep->back();
  parsed.module = mlir::parseSourceString<mlir::ModuleOp>(text, &parsed.context.context);
  if (!parsed.module) {
    ADD_FAILURE() << "the test's module does not parse:\n" << text;
    return;
  }
  auto dump = [&](std::string_view stage, std::string_view text) { stages_.emplace_back(stage, text); };
  auto lowered = lowerOnly(*parsed.module, aligned ? target : withAnyBuffers(target), dump, tuning);
  if (failed(lowered)) {
    ADD_FAILURE() << "the kernel does not lower:\n" << text.substr(0, 4000);
    return;
  }
  lowered_ = std::move(*lowered);
  load(target);
}

void Program::load(const TargetDescription& target) {
  // What the host makes of a device's large kernel (hundreds of unrolled statements, seconds of LLVM) is only what runs
  // the test: not optimised it is what the SPIR-V says. Smaller ones of the same families are optimised, which shows
  // wrong promises about aliasing and overflow.
  constexpr size_t large = 3000;  // words
  const bool optimised = target.on_host || lowered_.spirv.size() < large;
  cpu::CompileResult native = cpu::compileSpirv(lowered_.spirv, {.opt_level = optimised ? 3 : 0});
  if (!native.ok) {
    ADD_FAILURE() << native.log << "\n" << stage("kernel.spvasm");
    return;
  }
  std::string log;
  module_ = cpu::LoadedModule::load(native.native, log);
  if (!module_ || module_->kernels().size() != 1) {
    ADD_FAILURE() << log;
    return;
  }
  entry_ = module_->entry(0);
}

// A derivative.
static mlir::FailureOr<LoweredKernel> lower(const AttentionCase& c, mlir::MLIRContext* context,
                                            const TargetDescription& target, const StageDump& dump) {
  unsigned symbols = c.symbolic ? 2 : 0;
  auto number = [&](int64_t value) { return mlir::getAffineConstantExpr(value, context); };
  mlir::AffineExpr rows = number(c.rows), keys = number(c.keys);
  if (c.symbolic)
    rows = mlir::getAffineSymbolExpr(0, context), keys = mlir::getAffineSymbolExpr(1, context);
  mlir::OpBuilder builder(context);
  AttentionGradientCall gradient;
  auto tensor = [&](llvm::ArrayRef<mlir::AffineExpr> sizes, mlir::Type element) {
    auto type = shapedTensor(sizes, element, symbols);
    gradient.layouts.push_back(contiguousLayout(type, symbols));
    return type;
  };
  mlir::Type f32 = builder.getF32Type();
  mlir::Type element = c.element == "f32"   ? f32
                       : c.element == "f16" ? mlir::Type(builder.getF16Type())
                                            : mlir::Type(builder.getBF16Type());
  auto module = mlir::OwningOpRef<mlir::ModuleOp>(mlir::ModuleOp::create(builder.getUnknownLoc()));
  gradient.of_keys = c.gradient == "keys";
  gradient.q = tensor({number(c.heads), rows, number(c.depth)}, element);
  gradient.k = tensor({number(c.key_heads), keys, number(c.depth)}, element);
  gradient.v = tensor({number(c.key_heads), keys, number(c.columns)}, element);
  gradient.grad = tensor({number(c.heads), rows, number(c.columns)}, element);
  gradient.log_sums = tensor({number(c.heads), rows}, f32);
  gradient.delta = tensor({number(c.heads), rows}, f32);
  if (!c.mask.empty())
    gradient.mask = tensor({rows, keys}, c.mask == "i1" ? mlir::Type(builder.getI1Type()) : f32);
  gradient.all = c.gradient == "all";
  if (!gradient.of_keys)
    gradient.results.push_back(tensor({number(c.heads), rows, number(c.depth)}, f32));
  if (gradient.of_keys || gradient.all) {
    gradient.results.push_back(tensor({number(c.key_heads), keys, number(c.depth)}, f32));
    gradient.results.push_back(tensor({number(c.key_heads), keys, number(c.columns)}, f32));
  }
  gradient.scale = c.scale;
  gradient.causal = c.causal;
  return lowerAttentionGradient(*module, gradient, target, dump);
}

Program::Program(const AttentionCase& derivative, const TargetDescription& target) {
  static auto* keep = new std::vector<std::unique_ptr<Context>>;  // launch expressions live in their context
  keep->push_back(std::make_unique<Context>());
  auto dump = [&](std::string_view stage, std::string_view text) { stages_.emplace_back(stage, text); };
  auto lowered = lower(derivative, &keep->back()->context, withAnyBuffers(target), dump);
  if (failed(lowered)) {
    ADD_FAILURE() << "the derivative does not lower";
    return;
  }
  lowered_ = std::move(*lowered);
  load(target);
}

const std::string& Program::stage(const std::string& name) const {
  static const std::string none;
  for (auto& [stage, text] : stages_)
    if (stage == name)
      return text;
  return none;
}

int32_t Program::run(const std::vector<void*>& arguments, const std::vector<int64_t>& symbols, unsigned groups) {
  int32_t status = 0;
  void* status_pointer = &status;
  std::vector<void*> pointers = arguments;
  std::vector<int64_t> values = symbols;
  std::vector<std::byte> scratch;
  if (!lowered_.checks.empty())
    pointers.push_back(status_pointer);
  int64_t units = evaluate(lowered_.extent, lowered_.symbols, values);
  if (!lowered_.chunked)
    groups = (units + lowered_.grain - 1) / lowered_.grain;
  if (lowered_.scratch_bytes) {
    scratch.resize(groups * evaluate(lowered_.scratch_bytes, lowered_.symbols, values) + 64);
    pointers.push_back(scratch.data());
  }
  std::vector<const void*> slots;
  for (void*& pointer : pointers)
    slots.push_back(&pointer);
  for (int64_t& value : values)
    slots.push_back(&value);
  cpu::LaunchContext launch{
      {groups, 1, 1}, {lowered_.group_size[0], lowered_.group_size[1], lowered_.group_size[2]}, {0, 0, 0}, 1};
  std::vector<std::byte> local(module_->kernels()[0].local_bytes + 64);
  void* aligned = local.data() + (64 - reinterpret_cast<uintptr_t>(local.data()) % 64) % 64;
  for (uint64_t group = 0; group < groups; ++group) {
    uint64_t id[3] = {group, 0, 0};
    entry_(slots.data(), &launch, id, aligned);
  }
  EXPECT_EQ(cpu::takeRefusedBytes(), 0u) << "a group found no memory and did nothing";
  return status;
}

std::optional<LoweredKernel> loweredOf(const std::string& text, const TargetDescription& target,
                                       const SpillCheck& spills, const Tuning& tuning) {
  Context context;
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context.context);
  if (!module)
    return {};
  auto lowered = lowerWithoutSpills(
      target, spills, [&](const TargetDescription& fitting) { return lowerOnly(*module, fitting, nullptr, tuning); });
  if (failed(lowered))
    return {};
  lowered->extent = lowered->scratch_bytes = mlir::AffineExpr();
  return std::move(*lowered);
}

std::vector<uint32_t> wordsOf(const std::string& text, const TargetDescription& target) {
  auto lowered = loweredOf(text, target);
  return lowered ? lowered->spirv : std::vector<uint32_t>();
}

std::optional<LoweredKernel> loweredOf(const AttentionCase& derivative, const TargetDescription& target,
                                       const SpillCheck& spills) {
  Context context;
  auto lowered = lowerWithoutSpills(target, spills, [&](const TargetDescription& fitting) {
    return lower(derivative, &context.context, fitting, nullptr);
  });
  if (failed(lowered))
    return {};
  lowered->extent = lowered->scratch_bytes = mlir::AffineExpr();
  return std::move(*lowered);
}

std::string refusalOf(const std::string& text) {
  Context context;
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler handler(&context.context, [&](mlir::Diagnostic& diagnostic) {
    llvm::raw_string_ostream stream(diagnostics);
    stream << diagnostic << "\n";
    for (auto& note : diagnostic.getNotes())
      stream << note << "\n";
    return mlir::success();
  });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context.context);
  if (!module)
    return "does not parse: " + diagnostics;
  KernelOp kernel;
  module->walk([&](KernelOp op) { kernel = op; });
  if (succeeded(lowerKernel(kernel, TargetDescription::cpu())))
    return "";
  return diagnostics;
}

}  // namespace zefuse::test
