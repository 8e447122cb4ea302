#include "drivers/cuda/codegen/warpgroup.h"

#include "drivers/spirv/module_checks.h"
#include "drivers/spirv/reader_target.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"

namespace zefuse::cuda {
namespace {

constexpr unsigned lines_bytes = 8 * 128;  // of 8 lines, the swizzle's pattern

class Call {
public:
  explicit Call(llvm::CallInst& call) : call_(call), b_(&call) {}

  void lower(llvm::StringRef name) {
    if (name == "begin") {
      assembly("wgmma.fence.sync.aligned;");
    } else if (name == "commit") {
      assembly("wgmma.commit_group.sync.aligned;");
    } else if (name == "publish") {
      assembly("fence.proxy.async.shared::cta;");
    } else if (name == "take_turn" || name == "give_turn") {
      // Barriers of their own, of which 0 is the group's.
      const std::string items = std::to_string(constant(1));
      assembly((name == "take_turn" ? "bar.sync $0, " : "bar.arrive $0, ") + items + ";", nullptr, 0, false,
               b_.CreateAdd(operand(0), b_.getInt32(1)), "r");
    } else if (name == "registers") {
      assembly((constant(1) ? "setmaxnreg.inc.sync.aligned.u32 " : "setmaxnreg.dec.sync.aligned.u32 ") +
               std::to_string(constant(0)) + ";");
    } else if (name == "computed") {
      // ptxas moves waits up as far as it may, above all that needs no result of theirs. It does not move one into
      // another block, and this branch, which is never taken, ends one.
      assembly("{\n.reg .pred never;\nsetp.lt.f32 never, $0, 0f00000000;\n@never nanosleep.u32 0;\n}", nullptr, 0,
               false, operand(0), "f");
    } else if (name == "wait") {
      wait();
    } else if (name.consume_front("multiply_")) {
      const bool rows = name.consume_front("rows_");
      multiply(name, rows);
    } else {
      throw spirv::CompileError("unknown function of warpgroups");
    }
    call_.eraseFromParent();
  }

private:
  llvm::Value* operand(unsigned number) { return call_.getArgOperand(number); }
  unsigned constant(unsigned number) {
    auto* value = llvm::dyn_cast<llvm::ConstantInt>(operand(number));
    if (!value)
      throw spirv::CompileError("a product of warpgroups whose sizes are no constants");
    return unsigned(value->getZExtValue());
  }

  // "{$3, $4}"
  static std::string list(unsigned first, unsigned count) {
    std::string text = "{";
    for (unsigned i = 0; i < count; ++i)
      text += (i == 0 ? "$" : ", $") + std::to_string(first + i);
    return text + "}";
  }

  llvm::SmallVector<llvm::Value*> load(llvm::Value* memory, llvm::Type* type, unsigned count) {
    llvm::SmallVector<llvm::Value*> values;
    for (unsigned i = 0; i < count; ++i)
      values.push_back(b_.CreateAlignedLoad(type, b_.CreateConstInBoundsGEP1_32(type, memory, i), llvm::Align(4)));
    return values;
  }

  // `text` with `results` registers of `memory` as $0 and on, which it also reads where `tied`, and then `operands` of
  // these constraints.
  void assembly(const std::string& text, llvm::Value* memory = nullptr, unsigned results = 0, bool tied = false,
                llvm::ArrayRef<llvm::Value*> operands = {}, llvm::StringRef kinds = "") {
    llvm::SmallVector<llvm::Value*> given;
    std::string constraints;
    for (unsigned i = 0; i < results; ++i)
      constraints += "=f,";
    if (tied) {
      given = load(memory, b_.getFloatTy(), results);
      for (unsigned i = 0; i < results; ++i)
        constraints += std::to_string(i) + ",";
    }
    for (auto [value, kind] : llvm::zip(operands, kinds)) {
      given.push_back(value);
      constraints += std::string(1, kind) + ",";
    }
    constraints += "~{memory}";
    llvm::SmallVector<llvm::Type*> types;
    for (llvm::Value* value : given)
      types.push_back(value->getType());
    llvm::Type* result = b_.getVoidTy();
    if (results > 0)
      result = llvm::StructType::get(b_.getContext(), llvm::SmallVector<llvm::Type*>(results, b_.getFloatTy()));
    auto* type = llvm::FunctionType::get(result, types, false);
    llvm::CallInst* made = b_.CreateCall(llvm::InlineAsm::get(type, text, constraints, /*hasSideEffects=*/true), given);
    made->setConvergent();
    made->setDoesNotThrow();
    for (unsigned i = 0; i < results; ++i)
      b_.CreateAlignedStore(b_.CreateExtractValue(made, i), b_.CreateConstInBoundsGEP1_32(b_.getFloatTy(), memory, i),
                            llvm::Align(4));
  }

  void wait() {
    const unsigned sums = constant(1), rows = constant(3);
    // The rows are operands, so that their registers stay as they are until here.
    assembly("wgmma.wait_group.sync.aligned " + std::to_string(constant(4)) + ";", operand(0), sums, /*tied=*/true,
             load(operand(2), b_.getInt32Ty(), rows), std::string(rows, 'r'));
  }

  // PTX, "Matrix descriptor": in units of 16 bytes the start in bits 0 to 13, the leading dimension's offset in 16 to
  // 29, the stride dimension's in 32 to 45; 1 in bits 62 and 63 is the swizzle of 128 bytes. `start` is where the
  // pattern repeats, so the base offset (bits 49 to 51) is 0; `bytes` from there on stay below 2^18.
  llvm::Value* descriptor(llvm::Value* start, unsigned bytes, unsigned leading) {
    llvm::Value* address = b_.CreatePtrToInt(start, b_.getInt32Ty());
    llvm::Value* low = b_.CreateAnd(b_.CreateLShr(address, 4), b_.getInt32(0x3fff));
    low = b_.CreateAdd(low, b_.getInt32(bytes >> 4), "", /*HasNUW=*/true, /*HasNSW=*/true);
    const uint64_t rest = uint64_t(leading >> 4) << 16 | uint64_t(lines_bytes >> 4) << 32 | uint64_t(1) << 62;
    return b_.CreateOr(b_.CreateZExt(low, b_.getInt64Ty()), b_.getInt64(rest));
  }

  void multiply(llvm::StringRef element, bool rows) {
    const unsigned columns = constant(rows ? 4 : 5), more = constant(6), sums = columns / 2;
    if (columns % 8 != 0 || columns == 0 || columns > 256)
      throw spirv::CompileError("a product of warpgroups of " + std::to_string(columns) + " columns");
    llvm::SmallVector<llvm::Value*> operands;
    std::string kinds;
    if (rows) {
      operands = load(operand(1), b_.getInt32Ty(), 4);
      kinds = "rrrr";
      operands.push_back(descriptor(operand(2), constant(3), constant(5)));
    } else {
      // Along the lines the leading dimension's offset is not read: an instruction stays within a panel.
      operands.push_back(descriptor(operand(1), constant(2), 16));
      kinds = "l";
      operands.push_back(descriptor(operand(3), constant(4), 16));
    }
    kinds += 'l';
    const unsigned first = more ? 2 * sums : sums;
    // The predicate: whether the sums are added to. Then the operands' signs; then 1 for what is not along the lines.
    std::string text =
        "{\n.reg .pred more;\nsetp.ne.b32 more, " + std::to_string(more) + ", 0;\nwgmma.mma_async.sync.aligned.m64n" +
        std::to_string(columns) + "k16.f32." + element.str() + "." + element.str() + " " + list(0, sums) + ", " +
        (rows ? list(first, 4) : "$" + std::to_string(first)) + ", $" +
        std::to_string(first + unsigned(kinds.size()) - 1) + ", more, 1, 1" + (rows ? ", 1" : ", 0, 0") + ";\n}";
    assembly(text, operand(0), sums, more != 0, operands, kinds);
  }

  llvm::CallInst& call_;
  llvm::IRBuilder<> b_;
};

}  // namespace

bool lowerWarpgroups(llvm::Module& module) {
  std::vector<llvm::CallInst*> calls;
  for (llvm::Function& f : module)
    for (llvm::Instruction& i : llvm::instructions(f))
      if (auto* call = llvm::dyn_cast<llvm::CallInst>(&i))
        if (llvm::Function* callee = call->getCalledFunction();
            callee && callee->getName().starts_with(spirv::warpgroup_markers))
          calls.push_back(call);
  for (llvm::CallInst* call : calls)
    Call(*call).lower(call->getCalledFunction()->getName().substr(std::strlen(spirv::warpgroup_markers)));
  return !calls.empty();
}

}  // namespace zefuse::cuda
