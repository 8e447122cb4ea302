#include "drivers/cpu/codegen/collective.h"

#include "drivers/cpu/codegen/region.h"

namespace zefuse::cpu {
namespace {

using llvm::Value;
using spirv::GroupOp;
using spirv::SyncKind;

Value* combine(llvm::IRBuilder<>& b, GroupOp op, Value* x, Value* y) {
  switch (op) {
  case GroupOp::iadd: return b.CreateAdd(x, y);
  case GroupOp::fadd: return b.CreateFAdd(x, y);
  case GroupOp::imul: return b.CreateMul(x, y);
  case GroupOp::fmul: return b.CreateFMul(x, y);
  case GroupOp::fmin: return b.CreateBinaryIntrinsic(llvm::Intrinsic::minnum, x, y);
  case GroupOp::fmax: return b.CreateBinaryIntrinsic(llvm::Intrinsic::maxnum, x, y);
  case GroupOp::umin: return b.CreateBinaryIntrinsic(llvm::Intrinsic::umin, x, y);
  case GroupOp::umax: return b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, x, y);
  case GroupOp::smin: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, x, y);
  case GroupOp::smax: return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, x, y);
  case GroupOp::bit_and:
  case GroupOp::logical_and: return b.CreateAnd(x, y);
  case GroupOp::bit_or:
  case GroupOp::logical_or: return b.CreateOr(x, y);
  case GroupOp::bit_xor:
  case GroupOp::logical_xor: return b.CreateXor(x, y);
  case GroupOp::none: break;
  }
  return x;
}

Value* identity(GroupOp op, llvm::Type* t) {
  unsigned w = t->getScalarSizeInBits();
  switch (op) {
  case GroupOp::imul: return llvm::ConstantInt::get(t, 1);
  case GroupOp::fmul: return llvm::ConstantFP::get(t, 1.0);
  case GroupOp::fadd: return llvm::ConstantFP::get(t, 0.0);
  case GroupOp::fmin: return llvm::ConstantFP::getInfinity(t);
  case GroupOp::fmax: return llvm::ConstantFP::getInfinity(t, true);
  case GroupOp::umin:
  case GroupOp::bit_and:
  case GroupOp::logical_and: return llvm::Constant::getAllOnesValue(t);
  case GroupOp::smin: return llvm::ConstantInt::get(t, llvm::APInt::getSignedMaxValue(w));
  case GroupOp::smax: return llvm::ConstantInt::get(t, llvm::APInt::getSignedMinValue(w));
  default: return llvm::Constant::getNullValue(t);
  }
}

class Emitter {
public:
  Emitter(llvm::IRBuilder<>& b, const Collective& c) : b_(b), c_(c) {}

  void run() {

    switch (c_.sync.kind) {
    case SyncKind::barrier: return;
    case SyncKind::reduce: {
      if (!c_.output)
        return;
      Value* r = fold(identityOrFirst(), [&](Value* acc, Value* i) { return combine(b_, c_.sync.op, acc, in(i)); });
      forEach([&](Value* i) { out(i, r); });
      return;
    }
    case SyncKind::inclusive_scan:
      fold(identity(c_.sync.op, c_.input_type), [&](Value* acc, Value* i) {
        Value* r = combine(b_, c_.sync.op, acc, in(i));
        out(i, r);
        return r;
      });
      return;
    case SyncKind::exclusive_scan:
      fold(identity(c_.sync.op, c_.input_type), [&](Value* acc, Value* i) {
        Value* v = in(i);
        out(i, acc);
        return combine(b_, c_.sync.op, acc, v);
      });
      return;
    case SyncKind::broadcast: {
      Value* lane = b_.CreateLoad(b_.getInt64Ty(), element(c_.index, c_.index_stride, c_.begin));
      Value* last = b_.CreateSub(b_.CreateSub(c_.end, c_.begin), b_.getInt64(1));
      lane = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, lane, last);
      Value* v = in(b_.CreateAdd(c_.begin, lane));
      forEach([&](Value* i) { out(i, v); });
      return;
    }
    case SyncKind::broadcast_first: {
      Value* v = in(c_.begin);
      forEach([&](Value* i) { out(i, v); });
      return;
    }
    case SyncKind::all:
    case SyncKind::any: {
      bool all = c_.sync.kind == SyncKind::all;
      Value* r = fold(b_.getInt1(all),
                      [&](Value* acc, Value* i) { return all ? b_.CreateAnd(acc, in(i)) : b_.CreateOr(acc, in(i)); });
      forEach([&](Value* i) { out(i, r); });
      return;
    }
    case SyncKind::ballot: {
      Value* bits = fold(b_.getInt64(0), [&](Value* acc, Value* i) {
        return b_.CreateOr(
            acc, b_.CreateShl(b_.CreateZExt(in(i), b_.getInt64Ty()), b_.CreateAnd(b_.CreateSub(i, c_.begin), 63)));
      });
      Value* v = llvm::Constant::getNullValue(c_.output_type);
      v = b_.CreateInsertElement(v, b_.CreateTrunc(bits, b_.getInt32Ty()), uint64_t{0});
      v = b_.CreateInsertElement(v, b_.CreateTrunc(b_.CreateLShr(bits, 32), b_.getInt32Ty()), 1);
      forEach([&](Value* i) { out(i, v); });
      return;
    }
    case SyncKind::elect: forEach([&](Value* i) { out(i, b_.CreateICmpEQ(i, c_.begin)); }); return;
    case SyncKind::shuffle:
    case SyncKind::shuffle_xor:
    case SyncKind::shuffle_up:
    case SyncKind::shuffle_down: {
      Value* count = b_.CreateSub(c_.end, c_.begin);
      forEach([&](Value* i) {
        Value* lane = b_.CreateSub(i, c_.begin);
        Value* x = b_.CreateLoad(b_.getInt64Ty(), element(c_.index, c_.index_stride, i));
        Value* from = c_.sync.kind == SyncKind::shuffle       ? x
                      : c_.sync.kind == SyncKind::shuffle_xor ? b_.CreateXor(lane, x)
                      : c_.sync.kind == SyncKind::shuffle_up  ? b_.CreateSub(lane, x)
                                                              : b_.CreateAdd(lane, x);
        // A lane that does not exist gives an undefined value: the own one, never memory of others.
        from = b_.CreateSelect(b_.CreateICmpULT(from, count), from, lane);
        out(i, in(b_.CreateAdd(c_.begin, from)));
      });
      return;
    }
    case SyncKind::matrix_mad_f16:
    case SyncKind::matrix_mad_bf16: matrixMad(c_.sync.kind == SyncKind::matrix_mad_f16); return;
    case SyncKind::multiply_fragments_f16:
    case SyncKind::multiply_fragments_bf16: multiplyFragments(c_.sync.kind == SyncKind::multiply_fragments_f16); return;
    case SyncKind::multiply_fragments_tf32: multiplyWideFragments(); return;
    case SyncKind::load_fragments: loadFragments(false); return;
    case SyncKind::load_fragments_transposed: loadFragments(true); return;
    }
  }

private:
  // c[m, lane] += sum over k of a[m, k] * b[k, lane], k = 0..15, in this order. A lane holds one column of a (two, the
  // lower half first, where its elements are 32 bits wide and the sub-group has 8 lanes) and one of b, as 16 halves.
  // Products of two halves are exact in f32.
  void matrixMad(bool f16) {
    auto* rows = llvm::cast<llvm::FixedVectorType>(c_.output_type);
    auto* narrow = llvm::FixedVectorType::get(b_.getInt16Ty(), rows->getNumElements());
    unsigned per_lane = c_.input_type->getScalarSizeInBits() / 16;
    auto widen = [&](Value* bits) -> Value* {
      auto* type = bits->getType();
      if (f16)
        return b_.CreateFPExt(b_.CreateBitCast(bits, type->getWithNewType(b_.getHalfTy())),
                              type->getWithNewType(b_.getFloatTy()));
      Value* wide = b_.CreateShl(b_.CreateZExt(bits, type->getWithNewType(b_.getInt32Ty())), 16);
      return b_.CreateBitCast(wide, type->getWithNewType(b_.getFloatTy()));
    };
    Value* last = b_.CreateSub(c_.end, b_.getInt64(1));
    forEach([&](Value* i) {
      Value* start = loadSlot(b_, rows, element(c_.addend, c_.addend_stride, i));
      Value* column = element(c_.index, c_.index_stride, i);
      Value* total = fold(b_.getInt64(0), b_.getInt64(16 / per_lane), start, [&](Value* acc, Value* j) {
        // A sub-group that is smaller than the operation wants has undefined results, and reads no memory of others.
        Value* a = in(b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateAdd(c_.begin, j), last));
        for (unsigned half = 0; half < per_lane; ++half) {
          Value* part = per_lane == 1 ? a : b_.CreateTrunc(b_.CreateLShr(a, 16 * half), narrow);
          Value* k = b_.CreateAdd(b_.CreateMul(j, b_.getInt64(per_lane)), b_.getInt64(half));
          Value* b = b_.CreateLoad(b_.getInt16Ty(), b_.CreateGEP(b_.getInt16Ty(), column, k));
          acc = b_.CreateFAdd(acc, b_.CreateFMul(widen(part), b_.CreateVectorSplat(rows->getNumElements(), widen(b))));
        }
        return acc;
      });
      out(i, total);
    });
  }

  // An element's 16 bits as a number.
  Value* number(Value* bits, bool f16) {
    if (f16)
      return b_.CreateFPExt(b_.CreateBitCast(bits, b_.getHalfTy()), b_.getFloatTy());
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(bits, b_.getInt32Ty()), 16), b_.getFloatTy());
  }

  // NVIDIA's m16n8k16 (PTX, "Matrix fragments for mma.m16n8k16"): lane 4 * g + t has, in pairs of neighbours, of a the
  // rows g and g + 8 at k = 2t and 2t + 8, of b the column g there, of c the rows g and g + 8 in columns 2t, 2t + 1.
  // Sums in the order of k.
  void multiplyFragments(bool f16) {
    Value* last = b_.CreateSub(c_.end, b_.getInt64(1));
    auto i16 = b_.getInt16Ty();
    // The k-th of 16 elements of a lane of four (its group begins at `lane`), from `slots`, whose registers of the
    // first half of k begin at `first`, `step` after each other.
    auto at = [&](Value* slots, uint64_t stride, Value* lane, Value* k, Value* first, uint64_t step) {
      Value* holder = b_.CreateAdd(lane, b_.CreateAnd(b_.CreateLShr(k, 1), b_.getInt64(3)));
      holder = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateAdd(c_.begin, holder), last);
      Value* reg = b_.CreateAdd(first, b_.CreateMul(b_.CreateLShr(k, 3), b_.getInt64(step)));
      Value* half = b_.CreateAdd(b_.CreateShl(reg, 1), b_.CreateAnd(k, b_.getInt64(1)));
      return number(b_.CreateLoad(i16, b_.CreateGEP(i16, element(slots, stride, holder), half)), f16);
    };
    forEach([&](Value* i) {
      Value* lane = b_.CreateSub(i, c_.begin);
      Value *row = b_.CreateAnd(lane, b_.getInt64(~3ull)), *t = b_.CreateAnd(lane, b_.getInt64(3));
      Value* sums = loadSlot(b_, c_.output_type, element(c_.addend, c_.addend_stride, i));
      sums = fold(b_.getInt64(0), b_.getInt64(16), sums, [&](Value* acc, Value* k) {
        Value* columns[2];
        for (unsigned c = 0; c < 2; ++c)
          columns[c] = at(c_.index, c_.index_stride, b_.CreateShl(b_.CreateAdd(b_.CreateShl(t, 1), b_.getInt64(c)), 2),
                          k, b_.getInt64(0), 1);
        for (unsigned r = 0; r < 2; ++r) {
          Value* a = at(c_.input, c_.input_stride, row, k, b_.getInt64(r), 2);
          for (unsigned c = 0; c < 2; ++c) {
            const uint64_t number = r * 2 + c;
            Value* sum = b_.CreateFAdd(b_.CreateExtractElement(acc, number), b_.CreateFMul(a, columns[c]));
            acc = b_.CreateInsertElement(acc, sum, number);
          }
        }
        return acc;
      });
      out(i, sums);
    });
  }

  // m16n8k8 of tf32: lane 4 * g + t has of a the rows g and g + 8 at k = t, then at t + 4, of b the column g there, of
  // c as above. The operands' last 13 bits do not count.
  void multiplyWideFragments() {
    Value* last = b_.CreateSub(c_.end, b_.getInt64(1));
    auto* i32 = b_.getInt32Ty();
    auto at = [&](Value* slots, uint64_t stride, Value* lane, Value* k, Value* first, uint64_t step) {
      Value* holder = b_.CreateAdd(lane, b_.CreateAnd(k, b_.getInt64(3)));
      holder = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateAdd(c_.begin, holder), last);
      Value* reg = b_.CreateAdd(first, b_.CreateMul(b_.CreateLShr(k, 2), b_.getInt64(step)));
      Value* bits = b_.CreateLoad(i32, b_.CreateGEP(i32, element(slots, stride, holder), reg));
      return b_.CreateBitCast(b_.CreateAnd(bits, b_.getInt32(0xffffe000)), b_.getFloatTy());
    };
    forEach([&](Value* i) {
      Value* lane = b_.CreateSub(i, c_.begin);
      Value *row = b_.CreateAnd(lane, b_.getInt64(~3ull)), *t = b_.CreateAnd(lane, b_.getInt64(3));
      Value* sums = loadSlot(b_, c_.output_type, element(c_.addend, c_.addend_stride, i));
      sums = fold(b_.getInt64(0), b_.getInt64(8), sums, [&](Value* acc, Value* k) {
        for (unsigned number = 0; number < 4; ++number) {
          Value* a = at(c_.input, c_.input_stride, row, k, b_.getInt64(number / 2), 2);
          Value* column = b_.CreateShl(b_.CreateAdd(b_.CreateShl(t, 1), b_.getInt64(number % 2)), 2);
          Value* product = b_.CreateFMul(a, at(c_.index, c_.index_stride, column, k, b_.getInt64(0), 1));
          Value* sum = b_.CreateFAdd(b_.CreateExtractElement(acc, uint64_t{number}), product);
          acc = b_.CreateInsertElement(acc, sum, uint64_t{number});
        }
        return acc;
      });
      out(i, sums);
    });
  }

  // ldmatrix.x4: the lines of block m are where lanes 8m to 8m + 7 point to. Lane 4 * g + t gets elements 2t and 2t + 1
  // of line g of each; transposed, element g of lines 2t and 2t + 1.
  void loadFragments(bool transposed) {
    Value* last = b_.CreateSub(c_.end, b_.getInt64(1));
    auto i16 = b_.getInt16Ty();
    forEach([&](Value* i) {
      Value* lane = b_.CreateSub(i, c_.begin);
      Value* g = b_.CreateAnd(b_.CreateLShr(lane, 2), b_.getInt64(7));
      Value* pair = b_.CreateShl(b_.CreateAnd(lane, b_.getInt64(3)), 1);
      Value* blocks = llvm::PoisonValue::get(llvm::FixedVectorType::get(i16, 8));
      for (unsigned block = 0; block < 4; ++block)
        for (unsigned half = 0; half < 2; ++half) {
          Value* of_pair = b_.CreateAdd(pair, b_.getInt64(half));
          Value* line = b_.CreateAdd(b_.CreateAdd(c_.begin, b_.getInt64(block * 8)), transposed ? of_pair : g);
          line = in(b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, line, last));
          Value* loaded = b_.CreateLoad(i16, b_.CreateGEP(i16, line, transposed ? g : of_pair));
          blocks = b_.CreateInsertElement(blocks, loaded, uint64_t{block * 2 + half});
        }
      out(i, b_.CreateBitCast(blocks, c_.output_type));
    });
  }

  Value* element(Value* base, uint64_t stride, Value* i) {
    return b_.CreateGEP(b_.getInt8Ty(), base, b_.CreateMul(i, b_.getInt64(stride), "", true, true));
  }
  Value* in(Value* i) { return loadSlot(b_, c_.input_type, element(c_.input, c_.input_stride, i)); }
  void out(Value* i, Value* v) {
    if (c_.output)
      storeSlot(b_, v, element(c_.output, c_.output_stride, i));
  }
  // -0.0 is the identity that keeps the sign of a sum of negative zeros.
  Value* identityOrFirst() {
    return c_.sync.op == GroupOp::fadd ? llvm::ConstantFP::getNegativeZero(c_.input_type)
                                       : identity(c_.sync.op, c_.input_type);
  }

  template <typename Step> Value* fold(Value* start, Step step) { return fold(c_.begin, c_.end, start, step); }
  // At least one step. A step may add blocks.
  template <typename Step> Value* fold(Value* first, Value* limit, Value* start, Step step) {
    auto* from = b_.GetInsertBlock();
    auto* loop = llvm::BasicBlock::Create(b_.getContext(), "items", from->getParent());
    auto* end = llvm::BasicBlock::Create(b_.getContext(), "items.end", from->getParent());
    b_.CreateBr(loop);
    b_.SetInsertPoint(loop);
    auto* i = b_.CreatePHI(b_.getInt64Ty(), 2);
    i->addIncoming(first, from);
    auto* acc = b_.CreatePHI(start->getType(), 2);
    acc->addIncoming(start, from);
    Value* next_acc = step(acc, i);
    Value* next = b_.CreateAdd(i, b_.getInt64(1), "", true, true);
    i->addIncoming(next, b_.GetInsertBlock());
    acc->addIncoming(next_acc, b_.GetInsertBlock());
    markLoop(b_.CreateCondBr(b_.CreateICmpULT(next, limit), loop, end), LoopSize::small, nullptr);
    b_.SetInsertPoint(end);
    return next_acc;
  }
  template <typename Step> void forEach(Step step) {
    if (!c_.output)
      return;
    fold(b_.getInt1(false), [&](Value* acc, Value* i) {
      step(i);
      return acc;
    });
  }

  llvm::IRBuilder<>& b_;
  const Collective& c_;
};

}  // namespace

void markLoop(llvm::Instruction* back_edge, LoopSize size, llvm::MDNode* parallel_accesses) {
  auto& context = back_edge->getContext();
  auto name = [&](const char* s) { return llvm::MDString::get(context, s); };
  llvm::SmallVector<llvm::Metadata*> parts{nullptr};
  if (parallel_accesses)
    parts.push_back(llvm::MDNode::get(context, {name("llvm.loop.parallel_accesses"), parallel_accesses}));
  if (size == LoopSize::small) {
    parts.push_back(llvm::MDNode::get(context, {name("llvm.loop.unroll.disable")}));
    auto* one = llvm::ConstantAsMetadata::get(llvm::ConstantInt::get(llvm::Type::getInt32Ty(context), 1));
    parts.push_back(llvm::MDNode::get(context, {name("llvm.loop.interleave.count"), one}));
  }
  if (parts.size() == 1)
    return;
  auto* id = llvm::MDNode::getDistinct(context, parts);
  id->replaceOperandWith(0, id);
  back_edge->setMetadata(llvm::LLVMContext::MD_loop, id);
}

void emitCollective(llvm::IRBuilder<>& b, const Collective& c) { Emitter(b, c).run(); }

}  // namespace zefuse::cpu
