// Reductions over outer dims, on the CPU: a strip of several vectors of rows walks the reduced dims together, so that
// memory is read as it lies. Partial results lie in private memory, one slot per value and vector of the strip. The
// order in which a row's elements are combined is that of one vector at a time: strips change no bit.
#include "lowering/schedule/core/long_sums.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "lowering/schedule/core/stages.h"
#include "lowering/schedule/cpu/cpu.h"
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

// The rest of a long total of floats lies behind the others: only the ends of blocks touch it.
struct HeldTotal {
  Held high, low;
};

struct StripLayout {
  SmallVector<Held> instances;            // as Domain::instances
  std::vector<SmallVector<Held>> values;  // as Strategy::strip_values
  // Per instance, where it is a long sum of floats.
  SmallVector<std::optional<HeldTotal>> totals;
  int64_t bytes = 0;
};

// Of the reductions of a level over an axis set.
std::optional<SumBlocks> blocksOf(const ScheduleContext& context, unsigned level, unsigned axes) {
  IndexSpace& space = context.domain.space;
  auto rounds = llvm::map_to_vector(context.domain.axis_sets[axes].dims,
                                    [&](unsigned dim) { return constantOf(space.size(dim)); });
  return sumBlocks(rounds, instancesOf(context.domain, level, axes));
}

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
  for (auto [instance, held] : llvm::zip(context.domain.instances, layout.instances)) {
    layout.totals.emplace_back();
    if (sumsFloats(instance) && blocksOf(context, instance.level, instance.axes))
      layout.totals.back() = HeldTotal{hold(held.node, held.type), hold(held.node, held.type)};
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
    const unsigned levels = c_.domain.levels;
    auto storeRows = [&](ArrayRef<const DomainOutput*> outputs) {
      if (c_.strategy.interleaved)
        return storeOfRows(outputs);
      overStrip([&](Value block) {
        bindResults(levels, block);
        c_.storeOutputs(outputs);
      });
    };
    auto storeColumns = [&](ArrayRef<const DomainOutput*> outputs) {
      holdValues(levels);
      sweep(0, levels, [&](Value) { c_.storeOutputs(outputs); });
    };
    auto begin = [&](unsigned level) { holdValues(level); };
    auto end = [&](unsigned) {
      for (Kept& kept : c_.strategy.kept)
        kept.written |= kept.stored;
    };
    emitStages(c_, {.reduce = [&](unsigned level, unsigned axes, auto instances) { reduce(level, axes, instances); },
                    .storeRows = storeRows,
                    .storeColumns = storeColumns,
                    .begin = begin,
                    .end = end});
    e_.closeLoop(strips);
  }

private:
  void overStrip(llvm::function_ref<void(Value)> body) {
    if (!e_.failed())
      overBlocks(c_, c_.strategy.row_lanes, first_, last_, body);
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

  struct Mine {
    const Instance* instance;
    const Held* held;
    const std::optional<HeldTotal>* total;
  };

  void reduce(unsigned level, unsigned axes, ArrayRef<const Instance*> instances) {
    auto mine = llvm::map_to_vector(instances, [&](const Instance* instance) {
      size_t number = instance - c_.domain.instances.data();
      return Mine{instance, &layout_.instances[number], &layout_.totals[number]};
    });
    auto neutral = [&](const Mine& of) {
      return constantOfType(b_, loc_, neutralElement(combinerOf(of.instance->op).op), lanes_);
    };
    overStrip([&](Value block) {
      for (const Mine& of : mine) {
        store(*of.held, block, neutral(of));
        if (*of.total) {
          store((*of.total)->high, block, neutral(of));
          store((*of.total)->low, block, neutral(of));
        }
      }
    });
    auto outputs = axes == 0 ? c_.columnOutputs(level) : SmallVector<const DomainOutput*>();
    auto step = [&](Value block) {
      for (const Mine& of : mine) {
        Value element = e_.evaluate(of.instance->element());
        if (!element)
          return;
        Value total = load(*of.held, block);
        store(*of.held, block, c_.combine(*of.instance, total, splat(b_, element, lanes_)));
      }
      c_.storeOutputs(outputs);
    };
    // Moves what was summed since the last time into the long totals.
    auto end_block = [&] {
      overStrip([&](Value block) {
        for (const Mine& of : mine)
          if (*of.total) {
            LongTotal total{load((*of.total)->high, block), load((*of.total)->low, block)};
            total.add(b_, load(*of.held, block));
            store((*of.total)->high, block, total.high);
            store((*of.total)->low, block, total.low);
            store(*of.held, block, neutral(of));
          }
      });
    };
    sweep(axes, level, step, blocksOf(c_, level, axes), end_block);
    overStrip([&](Value block) {
      for (const Mine& of : mine) {
        Value whole = *of.total ? LongTotal{load((*of.total)->high, block), load((*of.total)->low, block)}.value(b_)
                                : load(*of.held, block);
        store(*of.held, block, c_.strategy.interleaved ? whole : c_.finish(*of.instance, whole));
      }
    });
    if (c_.strategy.interleaved)
      for (const Mine& of : mine)
        if (!e_.failed())
          joinParts(*of.instance, *of.held);
  }

  //===-- interleaved rows ---------------------------------------------------------------------===//

  // Calls `body` with each row's first place among those of the strip's lanes.
  void overRows(llvm::function_ref<void(Value first)> body) {
    e_.toInnermost();
    const InterleavedRows& rows = *c_.strategy.interleaved;
    Value first = arith::MulIOp::create(b_, loc_, first_, number(lanes_));
    Value last = arith::MulIOp::create(b_, loc_, last_, number(lanes_));
    last = arith::MinSIOp::create(b_, loc_, last, number(rows.size));
    auto loop = e_.openLoop(first, last, number(rows.piece));
    body(loop.index());
    e_.closeLoop(loop);
  }

  Value number(int64_t value) { return constantIndex(b_, loc_, value); }

  // A last vector that overlaps the one before has slots of its own.
  bool overlaps() const { return c_.strategy.interleaved->size % lanes_ != 0 && !c_.in_place; }

  Value slot(const Held& held, Value element) {
    int64_t bytes = held.type.getIntOrFloatBitWidth() / 8;
    Value of_strip = arith::SubIOp::create(b_, loc_, element, arith::MulIOp::create(b_, loc_, first_, number(lanes_)));
    Value at =
        arith::AddIOp::create(b_, loc_, arith::MulIOp::create(b_, loc_, of_strip, number(bytes)), number(held.offset));
    Value at64 = arith::IndexCastOp::create(b_, loc_, b_.getI64Type(), at);
    return LLVM::GEPOp::create(b_, loc_, memory_.getType(), b_.getI8Type(), memory_, ArrayRef<LLVM::GEPArg>{at64},
                               LLVM::GEPNoWrapFlags::inbounds);
  }

  // The slot of an element of the lanes' dim, or, from `from` on, the one that the last vector has for it.
  Value slotFrom(const Held& held, Value element, int64_t from) {
    if (!overlaps())
      return slot(held, element);
    const int64_t size = c_.strategy.interleaved->size, full = size / lanes_ * lanes_;
    Value of_last = arith::AddIOp::create(b_, loc_, element, number(full + lanes_ - size));
    Value in_last = arith::CmpIOp::create(b_, loc_, arith::CmpIPredicate::sge, element, number(from));
    return slot(held, arith::SelectOp::create(b_, loc_, in_last, of_last, element));
  }

  Value loadElement(const Held& held, Value element) {
    const int64_t full = c_.strategy.interleaved->size / lanes_ * lanes_;
    return LLVM::LoadOp::create(b_, loc_, held.type, slotFrom(held, element, full), alignment(held));
  }

  // The partial results of a row's parts become one, which all of its lanes have.
  void joinParts(const Instance& instance, const Held& held) {
    const InterleavedRows& rows = *c_.strategy.interleaved;
    const Instance* only = &instance;
    const LongTotals totals(c_, ArrayRef(&only, 1));
    overRows([&](Value first) {
      Value last = arith::AddIOp::create(b_, loc_, first, number(rows.piece));
      auto parts = e_.openLoop(first, last, number(1), totals.start(1));
      Value part = loadElement(held, parts.index());
      e_.toInnermost();
      auto joined = SmallVector<Value>(e_.closeLoop(parts, totals.add(parts.carried(), part)));
      e_.toInnermost();
      Value whole = c_.finish(instance, totals.values(joined).front());
      auto lanes = e_.openLoop(first, last, number(1));
      const int64_t full = rows.size / lanes_ * lanes_;
      LLVM::StoreOp::create(b_, loc_, whole, slotFrom(held, lanes.index(), full), alignment(held));
      if (overlaps())
        LLVM::StoreOp::create(b_, loc_, whole, slotFrom(held, lanes.index(), rows.size - lanes_), alignment(held));
      e_.closeLoop(lanes);
    });
  }

  void storeOfRows(ArrayRef<const DomainOutput*> outputs) {
    overRows([&](Value first) {
      e_.bind(c_.strategy.row_lanes, first);
      for (auto [instance, held] : llvm::zip(c_.domain.instances, layout_.instances))
        e_.bindValue(held.node, loadElement(held, first));
      c_.storeOutputs(outputs);
    });
  }

  // Calls `body` with each vector of the strip at each place of the axis set, the vectors innermost.
  void sweep(
      unsigned axes, unsigned level, llvm::function_ref<void(Value)> body,
      std::optional<SumBlocks> blocks = std::nullopt, llvm::function_ref<void()> end_block = [] {}) {
    overDims(c_.domain.axis_sets[axes].dims, 0, blocks, end_block, [&] {
      overStrip([&](Value block) {
        bindResults(level, block);
        for (const Held& held : layout_.values[level])
          e_.bindValue(held.node, load(held, block));
        body(block);
      });
    });
  }

  // Calls `end_block` whenever `blocks` ends one.
  void overDims(ArrayRef<unsigned> dims, unsigned number, const std::optional<SumBlocks>& blocks,
                llvm::function_ref<void()> end_block, llvm::function_ref<void()> body) {
    bool here = blocks && number == blocks->loop;
    if (number == dims.size())
      body();
    if (number < dims.size() && !e_.failed()) {
      Value size = e_.index(c_.domain.space.size(dims[number]));
      e_.toInnermost();
      auto over = [&](Value first, Value last) {
        auto loop = e_.openLoop(first, last, constantIndex(b_, loc_, 1));
        e_.bind(dims[number], loop.index());
        overDims(dims, number + 1, blocks, end_block, body);
        e_.closeLoop(loop);
      };
      if (here && blocks->rounds) {
        Value step = constantIndex(b_, loc_, *blocks->rounds);
        auto loop = e_.openLoop(constantIndex(b_, loc_, 0), size, step);
        e_.toInnermost();
        Value end = arith::AddIOp::create(b_, loc_, loop.index(), step);
        over(loop.index(), arith::MinSIOp::create(b_, loc_, end, size));
        end_block();
        return e_.closeLoop(loop), void();
      }
      over(constantIndex(b_, loc_, 0), size);
    }
    if (here)
      end_block();
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
