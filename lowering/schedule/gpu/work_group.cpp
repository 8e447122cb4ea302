#include "lowering/schedule/gpu/work_group.h"

#include "lowering/schedule/core/builtin_call.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace zefuse {

WorkGroup::WorkGroup(OpBuilder& builder, func::FuncOp function, LoweredKernel& launch, int64_t size, int64_t subgroup)
    : b_(builder), function_(function), loc_(builder.getUnknownLoc()), size_(size), subgroup_(subgroup) {
  launch.chunked = false;
  launch.group_size = {uint32_t(size), 1, 1};
  function->setAttr("zefuse.group_size", b_.getI64IntegerAttr(size));
  if (subgroup > 0)
    function->setAttr("zefuse.subgroup_size", b_.getI64IntegerAttr(subgroup));
  auto index = [&](Value id) -> Value { return arith::IndexCastUIOp::create(b_, loc_, b_.getIndexType(), id); };
  Value x = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(0));
  group_ = index(call("_Z12get_group_idj", b_.getI64Type(), x));
  if (launch.schedule.batch > 1)
    group_ = arith::DivUIOp::create(b_, loc_, group_, constantIndex(b_, loc_, launch.schedule.batch));
  if (subgroup == 0) {
    item_ = index(call("_Z12get_local_idj", b_.getI64Type(), x));
    return;
  }
  lane_ = index(call("_Z22get_sub_group_local_idv", b_.getI32Type(), {}));
  subgroup_index_ = index(call("_Z16get_sub_group_idv", b_.getI32Type(), {}));
  Value first = arith::MulIOp::create(b_, loc_, subgroup_index_, constantIndex(b_, loc_, subgroup));
  item_ = arith::AddIOp::create(b_, loc_, first, lane_);
}

Value WorkGroup::call(StringRef name, Type result, ValueRange operands) {
  return callBuiltin(b_, function_->getParentOfType<ModuleOp>(), name, result, operands);
}

void WorkGroup::barrier(bool global) {
  Value fence = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(global ? 3 : 1));
  call("_Z7barrierj", Type(), fence);
}

Value WorkGroup::localArray(Type element, int64_t count, unsigned alignment) {
  std::string name = function_.getName().str() + "_local_" + std::to_string(arrays_++);
  auto module = function_->getParentOfType<ModuleOp>();
  auto type = LLVM::LLVMArrayType::get(element, count);
  {
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(module.getBody());
    auto global = LLVM::GlobalOp::create(b_, loc_, type, /*isConstant=*/false, LLVM::Linkage::Internal, name,
                                         Attribute(), alignment, /*addrSpace=*/3);
    Block* init = b_.createBlock(&global.getInitializerRegion());
    b_.setInsertionPointToStart(init);
    Value undefined = LLVM::UndefOp::create(b_, loc_, type);
    LLVM::ReturnOp::create(b_, loc_, undefined);
  }
  return LLVM::AddressOfOp::create(b_, loc_, LLVM::LLVMPointerType::get(b_.getContext(), 3), name);
}

Value WorkGroup::at(Value array, Type element, Value index) {
  Value at = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), index);
  return LLVM::GEPOp::create(b_, loc_, array.getType(), element, array, ArrayRef<LLVM::GEPArg>{at},
                             LLVM::GEPNoWrapFlags::inbounds);
}

// A function of OpenCL for one value: sub_group_<operation>(value), for the types that it has.
Value WorkGroup::subgroupCall(StringRef operation, Value value) {
  Type type = value.getType();
  const char* code = type.isF32() ? "f" : type.isF64() ? "d" : type.isInteger(32) ? "i" : "l";
  return call(mangled("sub_group_" + operation.str(), code), type, value);
}

Value WorkGroup::multiplyMatrices(const MatrixOperation& operation, Value a, Value b, Value c) {
  bool narrow = cast<VectorType>(a.getType()).getElementType().isInteger(16);
  std::string rows = std::to_string(lanesOf(c)), column = "Dv" + std::to_string(lanesOf(b)) + "_i";
  // Mangled: (short or int a[rows], int b[k / 2], float c[rows]); S_ repeats the first type.
  std::string row = "Dv" + rows + (narrow ? "_s" : "_i");
  std::string types = row + (column == row ? "S_" : column) + "Dv" + rows + "_f";
  return call(mangled(operation.multiply, types), c.getType(), {a, b, c});
}

Value WorkGroup::multiplyFragments(const MatrixOperation& operation, Value a, Value b, Value c) {
  return call(mangled(operation.multiply, "Dv4_iDv2_iDv4_f"), c.getType(), {a, b, c});
}

Value WorkGroup::loadFragments(Value line, bool transposed) {
  return call(mangled(transposed ? "zefuse_load_fragments_transposed" : "zefuse_load_fragments", "PU3AS3t"),
              VectorType::get({4}, b_.getI32Type()), line);
}

void WorkGroup::copyToLocal(Value to, Value from, Value inside) {
  copy("zefuse_copy_to_local", "PU3AS3tPU3AS1Ktj", to, from, inside);
}

void WorkGroup::copyWordToLocal(Value to, Value from, Value inside) {
  copy("zefuse_copy_word_to_local", "PU3AS3fPU3AS1Kfj", to, from, inside);
}

void WorkGroup::copy(StringRef function, StringRef types, Value to, Value from, Value inside) {
  Value one = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1));
  Value some = inside ? arith::ExtUIOp::create(b_, loc_, b_.getI32Type(), inside).getResult() : one;
  call(mangled(function.str(), types.str()), Type(), {to, from, some});
}

void WorkGroup::commitCopies() { call(mangled("zefuse_commit_copies", "v"), Type(), {}); }

void WorkGroup::waitForCopies(int64_t but_last) {
  call(mangled("zefuse_wait_for_copies", "j"), Type(),
       arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(but_last))).getResult());
}

static Value int32(OpBuilder& b, int64_t value) {
  return arith::ConstantOp::create(b, b.getUnknownLoc(), b.getI32IntegerAttr(int32_t(value)));
}

void WorkGroup::multiplyTogether(const MatrixOperation& operation, Value sums, Value a, Value b, int64_t k,
                                 const PanelShape& a_shape, const PanelShape& b_shape, bool more) {
  auto bytes = [&](const PanelShape& shape) {
    return int32(b_, 2 * (k / PanelShape::columns * shape.elements() + k % PanelShape::columns));
  };
  call(mangled("zefuse_warpgroup_multiply_" + std::string(operation.element), "PfPU3AS3tiS1_iii"), Type(),
       {sums, a, bytes(a_shape), b, bytes(b_shape), int32(b_, b_shape.lines), int32(b_, more)});
}

void WorkGroup::multiplyRowsTogether(const MatrixOperation& operation, Value sums, Value rows, Value b, int64_t k,
                                     int64_t columns, const PanelShape& b_shape) {
  call(mangled("zefuse_warpgroup_multiply_rows_" + std::string(operation.element), "PfPiPU3AS3tiiii"), Type(),
       {sums, rows, b, int32(b_, 2 * k * PanelShape::columns), int32(b_, columns), int32(b_, 2 * b_shape.elements()),
        int32(b_, 1)});
}

void WorkGroup::beginTogether() { call(mangled("zefuse_warpgroup_begin", "v"), Type(), {}); }
void WorkGroup::commitTogether() { call(mangled("zefuse_warpgroup_commit", "v"), Type(), {}); }
void WorkGroup::publishToProducts() { call(mangled("zefuse_warpgroup_publish", "v"), Type(), {}); }

void WorkGroup::takeTurn(Value number, int64_t items) {
  call(mangled("zefuse_warpgroup_take_turn", "ii"), Type(), {number, int32(b_, items)});
}
void WorkGroup::giveTurn(Value number, int64_t items) {
  call(mangled("zefuse_warpgroup_give_turn", "ii"), Type(), {number, int32(b_, items)});
}

void WorkGroup::keepRegisters(int64_t count, bool more) {
  call(mangled("zefuse_warpgroup_registers", "ii"), Type(), {int32(b_, count), int32(b_, more)});
}

void WorkGroup::computedBeforeWait(Value number) { call(mangled("zefuse_warpgroup_computed", "f"), Type(), number); }

void WorkGroup::waitTogether(Value sums, int64_t count, Value rows, int64_t rows_count, int64_t but_last) {
  call(mangled("zefuse_warpgroup_wait", "PfiPiii"), Type(),
       {sums, int32(b_, count), rows, int32(b_, rows_count), int32(b_, but_last)});
}

Value WorkGroup::nativeExp2(Value value) { return call(mangled("native_exp2", "f"), value.getType(), value); }

Value WorkGroup::exchanged(Value value, int64_t mask) {
  Value other = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(int32_t(mask)));
  return call(mangled("zefuse_shuffle_xor", "fj"), value.getType(), {value, other});
}

Value WorkGroup::broadcast(Value value, int64_t lane) {
  Type type = value.getType();
  const char* code = type.isF32() ? "f" : type.isF64() ? "d" : type.isInteger(32) ? "i" : "l";
  Value from = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(lane));
  return call("_Z19sub_group_broadcast" + std::string(code) + "j", type, {value, from});
}

Value WorkGroup::anyOfSubgroup(Value condition) {
  Value wide = arith::ExtUIOp::create(b_, loc_, b_.getI32Type(), condition);
  Value found = call("_Z13sub_group_anyi", b_.getI32Type(), wide);
  Value zero = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(0));
  return arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::ne, found, zero);
}

static Value combine(OpBuilder& builder, Operation* combiner, Value lhs, Value rhs) {
  return emitScalarOp(builder, combiner, {lhs, rhs}, lanesOf(lhs));
}

Value WorkGroup::reduceInSubgroup(Operation* combiner, Value value) {
  StringRef name = combiner->getName().getStringRef();
  Type type = value.getType();
  Type i32 = b_.getI32Type();
  if (isa<FloatType>(type)) {
    if (name == "arith.addf")
      return subgroupCall("reduce_add", value);
    if (name == "arith.maxnumf" || name == "arith.minnumf")
      return subgroupCall(name == "arith.maxnumf" ? "reduce_max" : "reduce_min", value);
    if (name == "arith.maximumf" || name == "arith.minimumf") {
      Value number = subgroupCall(name == "arith.maximumf" ? "reduce_max" : "reduce_min", value);
      Value nan = anyOfSubgroup(arith::CmpFOp::create(b_, loc_, arith::CmpFPredicate::UNO, value, value));
      auto real = cast<FloatType>(type);
      Value poison =
          arith::ConstantOp::create(b_, loc_, b_.getFloatAttr(real, APFloat::getNaN(real.getFloatSemantics())));
      return arith::SelectOp::create(b_, loc_, nan, poison, number);
    }
  } else if (type.isInteger(32) || type.isInteger(64)) {
    if (name == "arith.addi")
      return subgroupCall("reduce_add", value);
    if (name == "arith.maxsi" || name == "arith.minsi")
      return subgroupCall(name == "arith.maxsi" ? "reduce_max" : "reduce_min", value);
  } else if (type.isInteger(1)) {
    if (name == "arith.ori" || name == "arith.maxui")
      return anyOfSubgroup(value);
    if (name == "arith.andi" || name == "arith.minui") {
      Value yes = arith::ConstantOp::create(b_, loc_, b_.getBoolAttr(true));
      Value found = anyOfSubgroup(arith::XOrIOp::create(b_, loc_, value, yes));
      return arith::XOrIOp::create(b_, loc_, found, yes);
    }
  }
  // Any other: each lane in turn, in order. Narrow values travel as 32 bits.
  bool narrow = type.isInteger() && type.getIntOrFloatBitWidth() < 32;
  Value travelling = narrow ? arith::ExtUIOp::create(b_, loc_, i32, value) : value;
  Value total;
  for (int64_t lane = 0; lane < subgroup_; ++lane) {
    Value other = broadcast(travelling, lane);
    if (narrow && type.isInteger(1))
      other = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::ne, other,
                                    arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(0)));
    else if (narrow)
      other = arith::TruncIOp::create(b_, loc_, type, other);
    total = total ? combine(b_, combiner, total, other) : other;
  }
  return total;
}

Value WorkGroup::scanInSubgroup(Operation* combiner, Value value) {
  StringRef name = combiner->getName().getStringRef();
  bool sum = name == "arith.addf" || name == "arith.addi";
  return subgroupCall(sum                     ? "scan_exclusive_add"
                      : name == "arith.maxsi" ? "scan_exclusive_max"
                                              : "scan_exclusive_min",
                      value);
}

SmallVector<Value> WorkGroup::reduceInGroup(ArrayRef<const Instance*> instances, ArrayRef<Value> values) {
  SmallVector<Value> totals;
  for (auto [instance, value] : llvm::zip(instances, values))
    totals.push_back(reduceInSubgroup(combinerOf(instance->op).op, value));
  int64_t count = subgroups();
  if (count == 1)
    return totals;
  // Each instance has its own array, so one barrier is enough: nobody writes there again.
  SmallVector<Value> arrays;
  Value zero = constantIndex(b_, loc_, 0);
  Value first = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, lane_, zero);
  auto elementType = [](const Instance* instance) {
    return cast<RankedTensorType>(instance->op->getResult(0).getType()).getElementType();
  };
  for (const Instance* instance : instances)
    arrays.push_back(localArray(memoryType(elementType(instance)), count));
  auto branch = scf::IfOp::create(b_, loc_, first, false);
  {
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(branch.thenBlock());
    for (auto [i, instance] : llvm::enumerate(instances)) {
      Type type = elementType(instance);
      LLVM::StoreOp::create(b_, loc_, toMemory(b_, loc_, totals[i], type),
                            at(arrays[i], memoryType(type), subgroup_index_), unsigned(bytesInMemory(type)));
    }
  }
  barrier();
  for (auto [i, instance] : llvm::enumerate(instances)) {
    Type type = elementType(instance);
    Type memory = memoryType(type);
    auto load = [&](Value index) {
      Value loaded =
          LLVM::LoadOp::create(b_, loc_, memory, at(arrays[i], memory, index), unsigned(bytesInMemory(type)));
      return toRegister(b_, loc_, loaded, type);
    };
    Value partial;
    if (count < subgroup_) {  // a power of two: lanes past it read what exists and do not count
      Value inside = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, lane_, constantIndex(b_, loc_, count));
      Value found = load(arith::RemUIOp::create(b_, loc_, lane_, constantIndex(b_, loc_, count)));
      Value neutral = constantOfType(b_, loc_, neutralElement(combinerOf(instance->op).op), 1);
      partial = arith::SelectOp::create(b_, loc_, inside, found, neutral);
    } else {
      for (int64_t start = 0; start < count; start += subgroup_) {
        Value found = load(arith::AddIOp::create(b_, loc_, lane_, constantIndex(b_, loc_, start)));
        partial = partial ? combine(b_, combinerOf(instance->op).op, partial, found) : found;
      }
    }
    totals[i] = reduceInSubgroup(combinerOf(instance->op).op, partial);
  }
  return totals;
}

}  // namespace zefuse
