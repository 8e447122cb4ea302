// Reductions over outer dims, on the CPU: a strip of several vectors of rows walks the reduced dims together, so that
// memory is read as it lies. Partial results lie in private memory, one slot per value and vector of the strip. The
// order in which a row's elements are combined is that of one vector at a time: strips change no bit.
#include "lowering/schedule/scalar_ops.h"
#include "lowering/schedule/schedule.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace zefuse {
namespace {

// What a slot holds: a reduction's partial result, then its result; or a value that depends on rows alone.
struct Held {
  Node node;
  Type type;
  int64_t offset;  // bytes, of the strip's first vector
};

struct StripLayout {
  SmallVector<Held> instances;            // as Domain::instances
  std::vector<SmallVector<Held>> values;  // as Strategy::strip_values
  int64_t bytes = 0;
};

StripLayout layOut(const ScheduleContext& context) {
  StripLayout layout;
  int64_t lanes = lanesFor(context.domain.space, context.strategy.row_lanes, context.target);
  auto hold = [&](Node node, Type type) {
    Held held{node, registerType(type), layout.bytes};
    layout.bytes += lanes * held.type.getIntOrFloatBitWidth() / 8 * context.strategy.strip;
    return held;
  };
  for (const Instance& instance : context.domain.instances)
    layout.instances.push_back(hold(instance.result(), combinerOf(instance.op).op->getResult(0).getType()));
  for (const auto& nodes : context.strategy.strip_values) {
    layout.values.emplace_back();
    for (Node node : nodes)
      layout.values.back().push_back(hold(node, cast<RankedTensorType>(node.value.getType()).getElementType()));
  }
  return layout;
}

class StripSchedule {
public:
  StripSchedule(const ScheduleContext& context, Value memory)
      : c_(context), e_(context.evaluator), b_(context.builder()), loc_(context.builder().getUnknownLoc()),
        memory_(memory), layout_(layOut(context)),
        lanes_(lanesFor(context.domain.space, context.strategy.row_lanes, context.target)) {}

  void run(Value first, Value last) {
    Value size = constantIndex(b_, loc_, c_.strategy.strip);
    auto strips = e_.openLoop(first, last, size);
    first_ = strips.index();
    last_ = arith::MinSIOp::create(b_, loc_, arith::AddIOp::create(b_, loc_, first_, size), last);
    Domain& domain = c_.domain;
    for (unsigned level = 0; level < domain.levels; ++level) {
      holdValues(level);
      for (unsigned axes = 0; axes < domain.axis_sets.size(); ++axes)
        reduce(level, axes);
    }
    if (llvm::any_of(domain.outputs, [](const DomainOutput& output) { return output.per_row; }))
      overStrip([&](Value block) {
        bindResults(domain.levels, block);
        for (const DomainOutput& output : domain.outputs)
          if (output.per_row)
            c_.storeOutput(output);
      });
    if (auto outputs = c_.columnOutputs(domain.levels); !outputs.empty()) {
      holdValues(domain.levels);
      sweep(0, domain.levels, [&](Value) { storeAll(outputs); });
    }
    e_.closeLoop(strips);
  }

private:
  void overStrip(llvm::function_ref<void(Value)> body) {
    if (!e_.failed())
      overBlocks(c_, c_.strategy.row_lanes, first_, last_, body);
  }

  void storeAll(ArrayRef<const DomainOutput*> outputs) {
    for (const DomainOutput* output : outputs)
      c_.storeOutput(*output);
  }

  Value address(const Held& held, Value block) {
    e_.toInnermost();
    Value number = arith::SubIOp::create(b_, loc_, block, first_);
    int64_t bytes = lanes_ * held.type.getIntOrFloatBitWidth() / 8;
    Value at = arith::AddIOp::create(b_, loc_, arith::MulIOp::create(b_, loc_, number, constantIndex(b_, loc_, bytes)),
                                     constantIndex(b_, loc_, held.offset));
    Value at64 = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), at);
    return LLVM::GEPOp::create(b_, loc_, memory_.getType(), b_.getI8Type(), memory_, ArrayRef<LLVM::GEPArg>{at64},
                               LLVM::GEPNoWrapFlags::inbounds);
  }

  Value load(const Held& held, Value block) {
    return LLVM::LoadOp::create(b_, loc_, withLanes(held.type, lanes_), address(held, block), alignment(held));
  }

  void store(const Held& held, Value block, Value value) {
    Value pointer = address(held, block);
    LLVM::StoreOp::create(b_, loc_, splat(b_, value, lanes_), pointer, alignment(held));
  }

  unsigned alignment(const Held& held) const { return held.type.getIntOrFloatBitWidth() / 8; }

  // The results of the reductions before this level, for the vector of rows that is bound.
  void bindResults(unsigned level, Value block) {
    for (auto [instance, held] : llvm::zip(c_.domain.instances, layout_.instances))
      if (instance.level < level)
        e_.bindValue(held.node, load(held, block));
  }

  void holdValues(unsigned level) {
    if (!layout_.values[level].empty())
      overStrip([&](Value block) {
        bindResults(level, block);
        for (const Held& held : layout_.values[level])
          if (Value value = e_.evaluate(held.node))
            store(held, block, value);
      });
  }

  void reduce(unsigned level, unsigned axes) {
    SmallVector<std::pair<const Instance*, const Held*>> mine;
    for (auto [instance, held] : llvm::zip(c_.domain.instances, layout_.instances))
      if (instance.level == level && instance.axes == axes)
        mine.push_back({&instance, &held});
    if (mine.empty() || e_.failed())
      return;
    overStrip([&](Value block) {
      for (auto [instance, held] : mine)
        store(*held, block, constantOfType(b_, loc_, neutralElement(combinerOf(instance->op).op), lanes_));
    });
    auto outputs = axes == 0 ? c_.columnOutputs(level) : SmallVector<const DomainOutput*>();
    sweep(axes, level, [&](Value block) {
      for (auto [instance, held] : mine) {
        Value element = e_.evaluate(instance->element());
        if (!element)
          return;
        Value total = load(*held, block);
        store(*held, block, c_.combine(*instance, total, splat(b_, element, lanes_)));
      }
      storeAll(outputs);
    });
    overStrip([&](Value block) {
      for (auto [instance, held] : mine)
        store(*held, block, c_.finish(*instance, load(*held, block)));
    });
  }

  // Calls `body` with each vector of the strip at each place of the axis set, the vectors innermost.
  void sweep(unsigned axes, unsigned level, llvm::function_ref<void(Value)> body) {
    overDims(c_.domain.axis_sets[axes].dims, [&] {
      overStrip([&](Value block) {
        bindResults(level, block);
        for (const Held& held : layout_.values[level])
          e_.bindValue(held.node, load(held, block));
        body(block);
      });
    });
  }

  void overDims(ArrayRef<unsigned> dims, llvm::function_ref<void()> body) {
    if (dims.empty())
      return body();
    if (e_.failed())
      return;
    Value size = e_.index(c_.domain.space.size(dims.front()));
    e_.toInnermost();
    auto loop = e_.openLoop(constantIndex(b_, loc_, 0), size, constantIndex(b_, loc_, 1));
    e_.bind(dims.front(), loop.index());
    overDims(dims.drop_front(), body);
    e_.closeLoop(loop);
  }

  const ScheduleContext& c_;
  Evaluator& e_;
  OpBuilder& b_;
  Location loc_;
  Value memory_, first_, last_;
  StripLayout layout_;
  int64_t lanes_;
};

}  // namespace

Value makeStripMemory(const ScheduleContext& context) {
  OpBuilder& b = context.builder();
  Location loc = b.getUnknownLoc();
  context.evaluator.toInnermost();
  Value count = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1));
  Type array = LLVM::LLVMArrayType::get(b.getI8Type(), layOut(context).bytes);
  return LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), array, count, /*alignment=*/64);
}

void scheduleStrips(const ScheduleContext& context, Value memory, Value first, Value last) {
  StripSchedule(context, memory).run(first, last);
}

}  // namespace zefuse
