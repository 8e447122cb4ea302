#include "lowering/schedule/core/evaluator.h"

#include <numeric>

#include "lowering/schedule/core/builtin_call.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

// The evaluator's lower half: index expressions, and how lanes step through memory.
using namespace mlir;

namespace zefuse {

constexpr int64_t cache_line = 64;
// One thread, a virtual machine's Xeon, int8 rows of 1536 from memory: 6.7 GB/s without, 7.8 at 1 KiB, 8.7 at 2, 9.8
// at 8. Another (Sapphire Rapids), int4 in huge pages: 12 without, 25 at 2, 28 at 4, 29 at 8 and 16.
constexpr int32_t fetched_ahead = 8 << 10;
constexpr int64_t least_streamed = 32 << 10;  // bytes of a tensor: less is read before what is fetched arrives

//===-- indices --------------------------------------------------------------------------------===//

// floor(lhs / rhs), or what is left of it, for a positive rhs. Most indices cannot be negative: unsigned division.
// Those behind a pad can, before it is known that they are outside.
static Value divide(OpBuilder& b, AffineExpr expr, Value lhs, Value rhs) {
  Location loc = b.getUnknownLoc();
  bool quotient = expr.getKind() == AffineExprKind::FloorDiv;
  if (neverNegative(cast<AffineBinaryOpExpr>(expr).getLHS())) {
    if (quotient)
      return arith::DivUIOp::create(b, loc, lhs, rhs);
    return arith::RemUIOp::create(b, loc, lhs, rhs);
  }
  unsigned lanes = lanesOf(lhs);
  Value zero = constantIndex(b, loc, 0, lanes), one = constantIndex(b, loc, 1, lanes);
  Value negative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, lhs, zero);
  Value up = arith::SubIOp::create(b, loc, arith::SubIOp::create(b, loc, rhs, one), lhs);  // -lhs, rounded up
  Value magnitude = arith::SelectOp::create(b, loc, negative, up, lhs);
  Value divided = arith::DivUIOp::create(b, loc, magnitude, rhs);
  Value below = arith::SubIOp::create(b, loc, zero, divided);
  Value result = arith::SelectOp::create(b, loc, negative, below, divided);
  if (quotient)
    return result;
  return arith::SubIOp::create(b, loc, lhs, arith::MulIOp::create(b, loc, result, rhs));
}

Value Evaluator::index(AffineExpr expr) { return emitIndex(space_.simplify(expr)).value; }

Evaluator::Placed Evaluator::emitIndex(AffineExpr expr) {
  for (unsigned depth = scopes_.size(); depth-- > 0;)
    if (auto it = scopes_[depth].indices.find(expr); it != scopes_[depth].indices.end())
      return it->second;
  Location loc = builder_.getUnknownLoc();
  Placed result;
  if (auto constant = constantOf(expr)) {
    insertAt(0);
    result = {constantIndex(builder_, loc, *constant), 0};
  } else if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    auto it = dims_.find(dim.getPosition());
    if (it == dims_.end())
      return fail(nullptr, "an index uses a dim that no loop of the schedule binds");
    return {it->second.value, it->second.depth};
  } else if (auto symbol = dyn_cast<AffineSymbolExpr>(expr)) {
    if (auto bound = symbols_.find(symbol.getPosition()); bound != symbols_.end())
      return {bound->second.value, bound->second.depth};
    if (!space_.isOpaque(expr)) {
      Value value =
          symbol.getPosition() < arguments_.symbols.size() ? arguments_.symbols[symbol.getPosition()] : Value();
      if (!value)
        return fail(nullptr, "an index uses a symbol that is not an argument");
      return {value, 0};
    }
    if (auto it = bound_opaques_.find(expr); it != bound_opaques_.end() && lanesOf(it->second) == 1)
      return {it->second, unsigned(scopes_.size() - 1)};
    const auto opaque = space_.opaqueOf(expr);
    Placed placed = emit({opaque.value, opaque.at});
    if (failed())
      return {};
    if (lanesOf(placed.value) > 1)
      return fail(opaque.value.getDefiningOp(), "a computed index differs per lane where one is needed");
    if (!placed.value.getType().isIndex()) {
      insertAt(placed.depth);
      placed.value = arith::IndexCastOp::create(builder_, placed.value.getLoc(), builder_.getIndexType(), placed.value);
    }
    result = placed;
  } else {
    auto binary = cast<AffineBinaryOpExpr>(expr);
    Placed lhs = emitIndex(binary.getLHS()), rhs = emitIndex(binary.getRHS());
    if (failed())
      return {};
    result.depth = std::max({lhs.depth, rhs.depth});
    insertAt(result.depth);
    switch (expr.getKind()) {
    case AffineExprKind::Add: result.value = arith::AddIOp::create(builder_, loc, lhs.value, rhs.value); break;
    case AffineExprKind::Mul: result.value = arith::MulIOp::create(builder_, loc, lhs.value, rhs.value); break;
    case AffineExprKind::FloorDiv:
    case AffineExprKind::Mod: result.value = divide(builder_, expr, lhs.value, rhs.value); break;
    default: {
      Value one = constantIndex(builder_, loc, 1);
      Value up = arith::AddIOp::create(builder_, loc, lhs.value, arith::SubIOp::create(builder_, loc, rhs.value, one));
      result.value = arith::DivUIOp::create(builder_, loc, up, rhs.value);
    }
    }
  }
  scopes_[result.depth].indices[expr] = result;
  return result;
}

bool Evaluator::dependsOnLanes(AffineExpr expr) {
  if (lanes_.count == 1)
    return false;
  bool depends = false;
  expr.walk([&](AffineExpr part) {
    if (auto dim = dyn_cast<AffineDimExpr>(part))
      depends |= dim.getPosition() == lanes_.dim;
    else if (space_.isOpaque(part))
      depends |= space_.opaqueOf(part).dims.test(lanes_.dim) || bound_opaques_.contains(part);
  });
  return depends;
}

AffineExpr Evaluator::laneStep(AffineExpr expr) {
  AffineExpr step = space_.constant(0);
  for (const LinearForm::Term& term : space_.linear(expr).terms) {
    if (!dependsOnLanes(term.atom))
      continue;
    if (lanes_.limit)
      return AffineExpr();
    if (isa<AffineDimExpr>(term.atom)) {
      step = step + term.coefficient;
      continue;
    }
    // Aligned lanes never straddle a multiple of a divisor that is a multiple of their count.
    auto binary = dyn_cast<AffineBinaryOpExpr>(term.atom);
    auto divisor = binary ? constantOf(binary.getRHS()) : std::nullopt;
    if (!lanes_.aligned || !divisor || *divisor % lanes_.count != 0)
      return AffineExpr();
    for (const LinearForm::Term& inner : space_.linear(binary.getLHS()).terms)
      if (inner.atom != space_.dim(lanes_.dim) || inner.coefficient != 1) {
        auto multiple = constantOf(inner.coefficient);
        if (dependsOnLanes(inner.atom) || !multiple || *multiple % lanes_.count != 0)
          return AffineExpr();
      }
    if (auto offset = constantOf(space_.linear(binary.getLHS()).constant); !offset || *offset % lanes_.count != 0)
      return AffineExpr();
    if (term.atom.getKind() == AffineExprKind::Mod)
      step = step + term.coefficient;
    else if (term.atom.getKind() != AffineExprKind::FloorDiv)
      return AffineExpr();
  }
  return space_.simplify(step);
}

Evaluator::Placed Evaluator::emitLaneIndex(AffineExpr expr) {
  if (!dependsOnLanes(expr))
    return emitIndex(expr);
  for (unsigned depth = scopes_.size(); depth-- > 0;)
    if (auto it = scopes_[depth].lane_indices.find(expr); it != scopes_[depth].lane_indices.end())
      return it->second;
  Location loc = builder_.getUnknownLoc();
  Placed result;
  AffineExpr step = laneStep(expr);
  if (step && constantOf(step)) {
    Placed base = emitIndex(expr);
    if (failed())
      return {};
    if (*constantOf(step) == 0)
      return base;
    result.depth = std::max(base.depth, lanes_.depth);
    insertAt(result.depth);
    SmallVector<int64_t> steps;
    for (unsigned lane = 0; lane < lanes_.count; ++lane)
      steps.push_back(lane * *constantOf(step));
    auto type = VectorType::get({int64_t(lanes_.count)}, builder_.getIndexType());
    Value offsets = arith::ConstantOp::create(
        builder_, loc, cast<TypedAttr>(Attribute(DenseIntElementsAttr::get(type, ArrayRef(steps)))));
    result.value = arith::AddIOp::create(builder_, loc, splat(builder_, base.value, lanes_.count), offsets);
  } else if (isa<AffineDimExpr>(expr)) {  // the laned dim itself, stopped at its limit
    result.depth = lanes_.depth;
    Placed base = emitIndex(expr);
    insertAt(result.depth);
    auto type = VectorType::get({int64_t(lanes_.count)}, builder_.getIndexType());
    SmallVector<int64_t> steps = llvm::to_vector(llvm::seq<int64_t>(0, lanes_.count));
    Value offsets = arith::ConstantOp::create(
        builder_, loc, cast<TypedAttr>(Attribute(DenseIntElementsAttr::get(type, ArrayRef(steps)))));
    Value last = arith::SubIOp::create(builder_, loc, lanes_.limit, constantIndex(builder_, loc, 1));
    Value lanes = arith::AddIOp::create(builder_, loc, splat(builder_, base.value, lanes_.count), offsets);
    Value stop = splat(builder_, last, lanes_.count);
    Value inside = arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::slt, lanes, stop);
    result.value = arith::SelectOp::create(builder_, loc, inside, lanes, stop);
  } else if (space_.isOpaque(expr)) {
    if (auto it = bound_opaques_.find(expr); it != bound_opaques_.end())
      return {it->second, unsigned(scopes_.size() - 1)};
    const auto opaque = space_.opaqueOf(expr);
    result = emit({opaque.value, opaque.at});
    if (failed())
      return {};
    if (!getElementTypeOrSelf(result.value.getType()).isIndex()) {
      insertAt(result.depth);
      result.value = arith::IndexCastOp::create(
          builder_, loc, withLanes(builder_.getIndexType(), lanesOf(result.value)), result.value);
    }
  } else {
    auto binary = cast<AffineBinaryOpExpr>(expr);
    Placed lhs = emitLaneIndex(binary.getLHS()), rhs = emitLaneIndex(binary.getRHS());
    if (failed())
      return {};
    result.depth = std::max({lhs.depth, rhs.depth});
    unsigned lanes = std::max(lanesOf(lhs.value), lanesOf(rhs.value));
    Value a = splatAt(lhs, lanes), b = splatAt(rhs, lanes);
    insertAt(result.depth);
    switch (expr.getKind()) {
    case AffineExprKind::Add: result.value = arith::AddIOp::create(builder_, loc, a, b); break;
    case AffineExprKind::Mul: result.value = arith::MulIOp::create(builder_, loc, a, b); break;
    case AffineExprKind::FloorDiv:
    case AffineExprKind::Mod: result.value = divide(builder_, expr, a, b); break;
    default: return fail(nullptr, "a ceiling division of an index that differs per lane");
    }
  }
  scopes_[result.depth].lane_indices[expr] = result;
  return result;
}

Value Evaluator::splatAt(Placed placed, unsigned lanes) {
  if (lanes == 1 || lanesOf(placed.value) == lanes)
    return placed.value;
  for (unsigned depth = scopes_.size(); depth-- > 0;)
    if (auto it = scopes_[depth].splats.find({placed.value, lanes}); it != scopes_[depth].splats.end())
      return it->second;
  insertAt(placed.depth);
  Value vector = splat(builder_, placed.value, lanes);
  scopes_[placed.depth].splats[{placed.value, lanes}] = vector;
  return vector;
}

//===-- memory ---------------------------------------------------------------------------------===//

Value Evaluator::address(Location loc, Type element, Value pointer, Value index, int64_t plus) {
  Value at = arith::IndexCastOp::create(builder_, loc, builder_.getI64Type(), index);
  Value base = LLVM::GEPOp::create(builder_, loc, pointer.getType(), element, pointer, ArrayRef<LLVM::GEPArg>{at},
                                   LLVM::GEPNoWrapFlags::inbounds);
  if (plus == 0)
    return base;
  return LLVM::GEPOp::create(builder_, loc, pointer.getType(), element, base, ArrayRef<LLVM::GEPArg>{int32_t(plus)},
                             LLVM::GEPNoWrapFlags::inbounds);
}

/// Bytes of which the address of lane 0 is surely a multiple: the element's, or more (up to the whole vector) where
/// buffers begin at known boundaries and each term of the offset is a multiple of a power of two.
unsigned Evaluator::alignmentAt(AffineExpr offset, Type type, bool kept) {
  const int64_t element = bytesInMemory(type);
  if (kept || !dependsOnLanes(offset) || arguments_.alignment <= element)
    return unsigned(element);
  int64_t known = arguments_.alignment;
  auto meet = [&](AffineExpr factor, int64_t times) {
    known = std::gcd(known, factor.getLargestKnownDivisor() * times * element);  // of the constant 0 it is 0
  };
  const LinearForm form = space_.linear(offset);
  meet(form.constant, 1);
  for (const LinearForm::Term& term : form.terms) {
    const AffineExpr atom = term.atom;
    // laneStep() takes a remainder only where lane 0 is at a multiple of their count.
    const bool at_lanes = lanes_.aligned && dependsOnLanes(atom) &&
                          (isa<AffineDimExpr>(atom) || (atom.getKind() == AffineExprKind::Mod && laneStep(atom)));
    meet(term.coefficient, at_lanes ? lanes_.count : atom.getLargestKnownDivisor());
  }
  while (known > element * lanes_.count)
    known /= 2;
  return unsigned(std::max(element, known));
}

Evaluator::Placed Evaluator::emitLoadAt(Location loc, Value pointer, AffineExpr offset, Type type, bool kept,
                                        bool once) {
  Type memory = memoryType(type);
  const unsigned align = alignmentAt(offset, type, kept), element_align = bytesInMemory(type);
  bool laned = kept ? lanes_.count > 1 : dependsOnLanes(offset);
  if (!laned) {
    Placed at = emitIndex(offset);
    if (failed())
      return {};
    unsigned depth = std::max(kept ? unsigned(scopes_.size() - 1) : at.depth, barrier());
    insertAt(depth);
    Value loaded = LLVM::LoadOp::create(builder_, loc, memory, address(loc, memory, pointer, at.value), align);
    return {toRegister(builder_, loc, loaded, type), depth};
  }
  AffineExpr step = kept ? space_.constant(1) : laneStep(offset);
  Type vector = VectorType::get({int64_t(lanes_.count)}, memory);
  if (step && constantOf(step)) {
    Placed at = emitIndex(offset);
    if (failed())
      return {};
    unsigned depth = std::max({kept ? unsigned(scopes_.size() - 1) : at.depth, lanes_.depth, barrier()});
    insertAt(depth);
    if (*constantOf(step) == 0) {
      Value loaded = LLVM::LoadOp::create(builder_, loc, memory, address(loc, memory, pointer, at.value), align);
      return {toRegister(builder_, loc, loaded, type), depth};
    }
    Value loaded;
    if (*constantOf(step) == 1) {
      loaded = LLVM::LoadOp::create(builder_, loc, vector, address(loc, memory, pointer, at.value), align,
                                    /*isVolatile=*/false, /*isNonTemporal=*/once);
    } else {
      SmallVector<Value> elements;
      Value base = address(loc, memory, pointer, at.value);
      for (unsigned lane = 0; lane < lanes_.count; ++lane) {
        Value place = base;
        if (lane != 0) {
          Value plus = constantIndex(builder_, loc, lane * *constantOf(step));
          place = address(loc, memory, base, plus);
        }
        elements.push_back(LLVM::LoadOp::create(builder_, loc, memory, place, element_align));
      }
      loaded = vector::FromElementsOp::create(builder_, loc, cast<VectorType>(vector), elements);
    }
    return {toRegister(builder_, loc, loaded, type), depth};
  }
  Placed at = emitLaneIndex(offset);
  if (failed())
    return {};
  unsigned depth = std::max({at.depth, barrier()});
  insertAt(depth);
  if (lanesOf(at.value) == 1) {
    Value loaded = LLVM::LoadOp::create(builder_, loc, memory, address(loc, memory, pointer, at.value), align);
    return {toRegister(builder_, loc, loaded, type), depth};
  }
  SmallVector<Value> elements;
  for (int64_t lane = 0; lane < lanes_.count; ++lane) {
    Value place = vector::ExtractOp::create(builder_, loc, at.value, lane);
    elements.push_back(
        LLVM::LoadOp::create(builder_, loc, memory, address(loc, memory, pointer, place), element_align));
  }
  Value loaded = vector::FromElementsOp::create(builder_, loc, cast<VectorType>(vector), elements);
  return {toRegister(builder_, loc, loaded, type), depth};
}

Evaluator::Placed Evaluator::emitLoad(Node node) {
  Value pointer = arguments_.inputs.lookup(node.value);
  if (!pointer)
    return fail(nullptr, "a tensor is read that is not an argument");
  Type type = cast<RankedTensorType>(node.value.getType()).getElementType();
  const AffineExpr offset = graph_.offset(space_, node);
  const bool once = once_.any() && space_.dimsOf(offset).containsAll(once_);
  Placed loaded = emitLoadAt(builder_.getUnknownLoc(), pointer, offset, type, false, once);
  if (!failed() && isStreamed(node, offset)) {
    Placed at = emitIndex(offset);
    insertAt(loaded.depth);
    emitPrefetch(builder_.getUnknownLoc(), pointer, memoryType(type), at.value);
  }
  return loaded;
}

bool Evaluator::isStreamed(Node node, AffineExpr offset) {
  auto type = cast<RankedTensorType>(node.value.getType());
  const int64_t element = bytesInMemory(type.getElementType());
  if (!streamed_.any() || !type.hasStaticShape() || type.getNumElements() * element < least_streamed ||
      !space_.dimsOf(offset).anyCommon(streamed_))
    return false;
  if (stream_step_) {
    const auto step = constantOf(space_.strideAlong(offset, *stream_step_)),
               first = constantOf(space_.linear(offset).constant);
    if (!step || !first || *step <= 0)
      return false;
    const int64_t stepped = *step * element, within = (*first % *step) * element;
    if (stepped > cache_line ? stepped % cache_line != 0 || within % cache_line != 0 : within != 0)
      return false;
  } else if (stream_number_ * lanes_.count * element % cache_line != 0) {
    return false;
  }
  const AffineExpr step = dependsOnLanes(offset) ? laneStep(offset) : AffineExpr();
  return step && constantOf(step) == 1;
}

void Evaluator::emitPrefetch(Location loc, Value pointer, Type memory, Value index) {
  // Past the buffer's end nothing is fetched; but the address is none of the buffer's, so it is not "in bounds".
  Value at = arith::IndexCastOp::create(builder_, loc, builder_.getI64Type(), index);
  Value here = LLVM::GEPOp::create(builder_, loc, pointer.getType(), memory, pointer, ArrayRef<LLVM::GEPArg>{at});
  Value ahead = LLVM::GEPOp::create(builder_, loc, pointer.getType(), builder_.getI8Type(), here,
                                    ArrayRef<LLVM::GEPArg>{fetched_ahead});
  Value count = arith::ConstantOp::create(builder_, loc, builder_.getI64IntegerAttr(cache_line));
  auto module = builder_.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  callBuiltin(builder_, module, mangled("prefetch", "PU3AS1Kcm"), Type(), {ahead, count});
}

Value Evaluator::addressOf(Node node) {
  Value pointer = arguments_.inputs.lookup(node.value);
  if (!pointer || !graph_.is_input(node.value))
    return {};
  Type type = cast<RankedTensorType>(node.value.getType()).getElementType();
  AffineExpr offset = graph_.offset(space_, node);
  const bool laned = dependsOnLanes(offset);
  AffineExpr step = laned ? laneStep(offset) : AffineExpr();
  if ((laned ? !step || constantOf(step) != 1 : lanes_.count > 1) ||
      alignmentAt(offset, type, /*kept=*/false) < lanes_.count * bytesInMemory(type))
    return {};
  Placed at = emitIndex(offset);
  if (failed())
    return {};
  toInnermost();
  return address(builder_.getUnknownLoc(), memoryType(type), pointer, at.value);
}

void Evaluator::store(Value pointer, AffineExpr offset, Value value, Type type) {
  storeAt(value.getLoc(), pointer, space_.simplify(offset), value, type, false);
}

void Evaluator::modify(Value pointer, AffineExpr offset, Type type, llvm::function_ref<Value(Value)> next) {
  Location loc = builder_.getUnknownLoc();
  offset = space_.simplify(offset);
  bool laned = dependsOnLanes(offset);
  AffineExpr step = laned ? laneStep(offset) : AffineExpr();
  if (laned && (!step || constantOf(step) != 1)) {
    fail(nullptr, "lanes change elements that are no neighbours");
    return;
  }
  Placed at = emitIndex(offset);
  if (failed())
    return;
  toInnermost();
  Type memory = memoryType(type);
  const unsigned align = alignmentAt(offset, type, false), lanes = laned ? lanes_.count : 1;
  Value place = address(loc, memory, pointer, at.value);
  Value present = LLVM::LoadOp::create(builder_, loc, withLanes(memory, lanes), place, align);
  Value changed = next(toRegister(builder_, loc, present, type));
  if (changed)
    LLVM::StoreOp::create(builder_, loc, toMemory(builder_, loc, splat(builder_, changed, lanes), type), place, align);
}

void Evaluator::storeAt(Location loc, Value pointer, AffineExpr offset, Value value, Type type, bool kept) {
  Type memory = memoryType(type);
  const unsigned align = alignmentAt(offset, type, kept);
  if (!(kept ? lanes_.count > 1 : dependsOnLanes(offset))) {
    Placed at = emitIndex(offset);
    if (failed())
      return;
    if (lanesOf(value) > 1) {
      fail(value.getDefiningOp(), "several lanes store to one element");
      return;
    }
    toInnermost();
    LLVM::StoreOp::create(builder_, loc, toMemory(builder_, loc, value, type), address(loc, memory, pointer, at.value),
                          align);
    return;
  }
  AffineExpr step = kept ? space_.constant(1) : laneStep(offset);
  unsigned lanes = lanes_.count;
  if (step && constantOf(step) == 1) {
    Placed at = emitIndex(offset);
    if (failed())
      return;
    toInnermost();
    Value vector = toMemory(builder_, loc, splat(builder_, value, lanes), type);
    LLVM::StoreOp::create(builder_, loc, vector, address(loc, memory, pointer, at.value), align);
    return;
  }
  Placed at = emitLaneIndex(offset);
  if (failed())
    return;
  toInnermost();
  Value vector = toMemory(builder_, loc, splat(builder_, value, lanes), type);
  Value places = splat(builder_, at.value, lanes);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    OpBuilder::InsertionGuard guard(builder_);
    if (lanes_.limit && lane > 0) {
      Value base = dims_[lanes_.dim].value;
      Value mine = arith::AddIOp::create(builder_, loc, base, constantIndex(builder_, loc, lane));
      Value inside = arith::CmpIOp::create(builder_, loc, arith::CmpIPredicate::slt, mine, lanes_.limit);
      auto guarded = scf::IfOp::create(builder_, loc, inside, false);
      builder_.setInsertionPointToStart(guarded.thenBlock());
    }
    Value element = vector::ExtractOp::create(builder_, loc, vector, lane);
    Value place = vector::ExtractOp::create(builder_, loc, places, lane);
    LLVM::StoreOp::create(builder_, loc, element, address(loc, memory, pointer, place), bytesInMemory(type));
  }
}

}  // namespace zefuse
