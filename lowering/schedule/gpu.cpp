// The Intel GPU schedule. Scalar code: the device's compiler vectorises over work-items.
//
//   pointwise          one element per work-item, neighbouring work-items on the best dim; groups of max_group_size,
//   exact reduction, axes    one work-group per row; work-items stride over the row, partial results meet in local
//   memory reduction, rows    (reduced dims are outer dims) one row per work-item, reduced dims are loops
#include "lowering/schedule/scalar_ops.h"
#include "lowering/schedule/schedule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace zefuse {
namespace {

class GpuSchedule {
public:
  explicit GpuSchedule(const ScheduleContext& context)
      : c_(context), e_(context.evaluator), space_(context.domain.space), b_(context.builder()),
        loc_(context.builder().getUnknownLoc()), group_size_(context.target.max_group_size) {}

  void run() {
    Domain& domain = c_.domain;
    c_.launch.chunked = false;
    c_.launch.group_size = {uint32_t(group_size_), 1, 1};
    // The work-group's size is fixed, so that row reductions know their tree.
    c_.function->setAttr("zefuse.group_size", b_.getI64IntegerAttr(group_size_));
    group_ = c_.workItem("_Z12get_group_idj");
    local_ = c_.workItem("_Z12get_local_idj");
    if (domain.instances.empty() || c_.strategy.lanes_in_rows)
      perItem();
    else
      perGroup();
  }

private:
  // Neighbouring work-items get neighbouring indices of the dim that suits the accesses.
  SmallVector<unsigned> ordered(ArrayRef<unsigned> dims, unsigned innermost) const {
    SmallVector<unsigned> order;
    for (unsigned dim : dims)
      if (dim != innermost)
        order.push_back(dim);
    if (innermost != Strategy::none)
      order.push_back(innermost);
    return order;
  }

  void perItem() {
    Domain& domain = c_.domain;
    c_.launch.extent = space_.simplify(domain.rowCount());
    c_.launch.grain = group_size_;
    c_.launch.schedule += ", one per work-item";
    Value extent = e_.index(c_.launch.extent);
    e_.toInnermost();
    Value item = arith::AddIOp::create(
        b_, loc_, arith::MulIOp::create(b_, loc_, group_, constantIndex(b_, loc_, group_size_)), local_);
    Value inside = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, item, extent);
    e_.openIf(inside);
    c_.bindPosition(ordered(domain.rows, c_.strategy.row_lanes), item);
    for (const Instance& instance : domain.instances)
      if (!e_.failed())
        reduceAlone(instance);
    for (const DomainOutput& output : domain.outputs)
      if (output.per_row || domain.instances.empty())
        c_.storeOutput(output);
    columnLoop(constantIndex(b_, loc_, 0), constantIndex(b_, loc_, 1));
    e_.closeIf();
  }

  void perGroup() {
    Domain& domain = c_.domain;
    c_.launch.extent = space_.simplify(domain.rowCount());
    c_.launch.grain = 1;
    c_.launch.schedule += ", one row per work-group";
    c_.bindPosition(domain.rows, group_);
    for (const Instance& instance : domain.instances)
      if (!e_.failed())
        reduceTogether(instance);
    Value first = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::eq, local_, constantIndex(b_, loc_, 0));
    e_.openIf(first);
    for (const DomainOutput& output : domain.outputs)
      if (output.per_row)
        c_.storeOutput(output);
    e_.closeIf();
    columnLoop(local_, constantIndex(b_, loc_, group_size_));
  }

  Value product(ArrayRef<unsigned> dims) {
    AffineExpr size = space_.constant(1);
    for (unsigned dim : dims)
      size = size * space_.size(dim);
    Value value = e_.index(size);
    e_.toInnermost();
    return value;
  }

  // Stores the outputs that vary within a row, from column `first` on in steps.
  void columnLoop(Value first, Value step) {
    bool any = llvm::any_of(c_.domain.outputs, [](auto& output) { return !output.per_row; });
    if (!any || c_.domain.instances.empty() || e_.failed())
      return;
    SmallVector<unsigned> dims = ordered(c_.domain.axis_sets[0].dims, c_.strategy.axis_lanes[0]);
    Value size = product(dims);
    auto loop = e_.openLoop(first, size, step);
    c_.bindPosition(dims, loop.index());
    for (const DomainOutput& output : c_.domain.outputs)
      if (!output.per_row)
        c_.storeOutput(output);
    e_.closeLoop(loop);
  }

  // The combination of the row's elements first, first + step, ...
  Value partial(const Instance& instance, Value first, Value step) {
    SmallVector<unsigned> dims =
        ordered(c_.domain.axis_sets[instance.axes].dims, c_.strategy.axis_lanes[instance.axes]);
    Value size = product(dims);
    Value neutral = constantOfType(b_, loc_, neutralElement(combinerOf(instance.op).op), 1);
    auto loop = e_.openLoop(first, size, step, neutral);
    c_.bindPosition(dims, loop.index());
    Value element = e_.evaluate(instance.element());
    if (!element)
      return {};
    e_.toInnermost();
    Value next = c_.combine(instance, loop.carried()[0], element);
    return e_.closeLoop(loop, next)[0];
  }

  void reduceAlone(const Instance& instance) {
    e_.toInnermost();
    Value total = partial(instance, constantIndex(b_, loc_, 0), constantIndex(b_, loc_, 1));
    if (total)
      e_.bindValue(instance.result(), c_.finish(instance, total));
  }

  void reduceTogether(const Instance& instance) {
    e_.toInnermost();
    Value mine = partial(instance, local_, constantIndex(b_, loc_, group_size_));
    if (!mine)
      return;
    Type type = cast<RankedTensorType>(instance.op->getResult(0).getType()).getElementType();
    Type memory = memoryType(type);
    Value shared = sharedArray(memory);
    auto place = [&](Value index) -> Value {
      Value at = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), index);
      return LLVM::GEPOp::create(b_, loc_, shared.getType(), memory, shared, ArrayRef<LLVM::GEPArg>{at},
                                 LLVM::GEPNoWrapFlags::inbounds);
    };
    unsigned align = bytesInMemory(type);
    LLVM::StoreOp::create(b_, loc_, toMemory(b_, loc_, mine, type), place(local_), align);
    barrier();
    for (int64_t half = group_size_ / 2; half > 0; half /= 2) {
      Value active = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::slt, local_, constantIndex(b_, loc_, half));
      auto branch = scf::IfOp::create(b_, loc_, active, false);
      {
        OpBuilder::InsertionGuard guard(b_);
        b_.setInsertionPointToStart(branch.thenBlock());
        Value other = arith::AddIOp::create(b_, loc_, local_, constantIndex(b_, loc_, half));
        Value a = toRegister(b_, loc_, LLVM::LoadOp::create(b_, loc_, memory, place(local_), align), type);
        Value b = toRegister(b_, loc_, LLVM::LoadOp::create(b_, loc_, memory, place(other), align), type);
        LLVM::StoreOp::create(b_, loc_, toMemory(b_, loc_, c_.combine(instance, a, b), type), place(local_), align);
      }
      barrier();
    }
    Value total = LLVM::LoadOp::create(b_, loc_, memory, place(constantIndex(b_, loc_, 0)), align);
    total = c_.finish(instance, toRegister(b_, loc_, total, type));
    e_.toInnermost();
    barrier();  // the next reduction may use this memory again
    e_.bindValue(instance.result(), total);
  }

  // One array in local memory per element type, shared by the reductions one after the other.
  Value sharedArray(Type element) {
    std::string name = c_.launch.name + "_shared_" + std::to_string(element.getIntOrFloatBitWidth()) +
                       (isa<FloatType>(element) ? "f" : "i");
    ModuleOp module = c_.module;
    auto type = LLVM::LLVMArrayType::get(element, group_size_);
    if (!module.lookupSymbol<LLVM::GlobalOp>(name)) {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(module.getBody());
      auto global = LLVM::GlobalOp::create(b_, loc_, type, /*isConstant=*/false, LLVM::Linkage::Internal, name,
                                           Attribute(), /*alignment=*/16, /*addrSpace=*/3);
      Block* init = b_.createBlock(&global.getInitializerRegion());
      b_.setInsertionPointToStart(init);
      Value undefined = LLVM::UndefOp::create(b_, loc_, type);
      LLVM::ReturnOp::create(b_, loc_, undefined);
    }
    return LLVM::AddressOfOp::create(b_, loc_, LLVM::LLVMPointerType::get(b_.getContext(), 3), name);
  }

  void barrier() {
    constexpr llvm::StringLiteral name = "_Z7barrierj";
    ModuleOp module = c_.module;
    if (!module.lookupSymbol<func::FuncOp>(name)) {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(module.getBody());
      func::FuncOp::create(b_, loc_, name, b_.getFunctionType({b_.getI32Type()}, {})).setPrivate();
    }
    Value local_fence = arith::ConstantOp::create(b_, loc_, b_.getI32IntegerAttr(1));
    func::CallOp::create(b_, loc_, name, TypeRange{}, ValueRange{local_fence});
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  IndexSpace& space_;
  OpBuilder& b_;
  Location loc_;
  int64_t group_size_;
  Value group_, local_;
};

}  // namespace

void scheduleGpu(const ScheduleContext& context) { GpuSchedule(context).run(); }

}  // namespace zefuse
