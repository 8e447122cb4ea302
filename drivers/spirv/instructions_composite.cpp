// Vectors and aggregates, part by part.
#include "drivers/spirv/reader.h"

#include <spirv/unified1/spirv.hpp>

#include <algorithm>
#include <optional>

namespace zefuse::spirv {

bool Reader::readComposite(const SpirvInst& inst) {
  auto vectorLength = [](llvm::Type* t) -> uint64_t {
    auto* v = llvm::dyn_cast<llvm::FixedVectorType>(t);
    return v ? v->getNumElements() : 0;
  };
  // Splits a literal path into the aggregate part and, last, a vector's element.
  struct Path {
    std::vector<unsigned> aggregate;
    std::optional<unsigned> element;
    llvm::Type* type;
  };
  auto walk = [&](llvm::Type* t, size_t first) {
    Path p{{}, std::nullopt, t};
    for (size_t i = first; i < inst.operands.size(); ++i) {
      uint32_t index = inst.op(i);
      if (p.element)
        fail(inst, "index into a scalar");
      if (uint64_t n = vectorLength(p.type)) {
        if (index >= n)
          fail(inst, "index " + std::to_string(index) + " is out of range");
        p.element = index;
        p.type = p.type->getScalarType();
      } else if (auto* a = llvm::dyn_cast<llvm::ArrayType>(p.type)) {
        if (index >= a->getNumElements())
          fail(inst, "index " + std::to_string(index) + " is out of range");
        p.aggregate.push_back(index);
        p.type = a->getElementType();
      } else if (auto* s = llvm::dyn_cast<llvm::StructType>(p.type)) {
        if (index >= s->getNumElements())
          fail(inst, "index " + std::to_string(index) + " is out of range");
        p.aggregate.push_back(index);
        p.type = s->getElementType(index);
      } else {
        fail(inst, "index into a scalar");
      }
    }
    return p;
  };
  llvm::Value* v = nullptr;
  switch (inst.opcode) {
  case spv::OpCompositeExtract: {
    v = value(inst, inst.op(0));
    Path p = walk(v->getType(), 1);
    if (!p.aggregate.empty())
      v = builder_.CreateExtractValue(v, p.aggregate);
    if (p.element)
      v = builder_.CreateExtractElement(v, *p.element);
    break;
  }
  case spv::OpCompositeInsert: {
    llvm::Value *part = value(inst, inst.op(0)), *whole = value(inst, inst.op(1));
    Path p = walk(whole->getType(), 2);
    if (p.type != part->getType())
      fail(inst, "inserted part has the wrong type");
    if (p.element) {
      llvm::Value* vec = p.aggregate.empty() ? whole : builder_.CreateExtractValue(whole, p.aggregate);
      part = builder_.CreateInsertElement(vec, part, *p.element);
    }
    v = p.aggregate.empty() ? part : builder_.CreateInsertValue(whole, part, p.aggregate);
    break;
  }
  case spv::OpCompositeConstruct: {
    const Type& t = type(inst, inst.type_id);
    checkFirstClass(inst, t);
    valueType(inst, inst.type_id);
    v = llvm::PoisonValue::get(t.llvm);
    if (uint64_t n = vectorLength(t.llvm)) {
      uint64_t at = 0;
      for (size_t i = 0; i < inst.operands.size(); ++i) {
        llvm::Value* part = value(inst, inst.op(i));
        uint64_t m = vectorLength(part->getType());
        if (part->getType()->getScalarType() != t.llvm->getScalarType() || at + std::max<uint64_t>(m, 1) > n)
          fail(inst, "part " + std::to_string(i) + " does not fit the vector");
        if (m == 0)
          v = builder_.CreateInsertElement(v, part, at++);
        for (uint64_t e = 0; e < m; ++e)
          v = builder_.CreateInsertElement(v, builder_.CreateExtractElement(part, e), at++);
      }
      if (at != n)
        fail(inst, "too few parts for the vector");
    } else if (t.llvm->isAggregateType()) {
      uint64_t n = t.llvm->isArrayTy() ? t.llvm->getArrayNumElements() : t.llvm->getStructNumElements();
      if (inst.operands.size() != n)
        fail(inst, "number of parts does not fit the type");
      for (size_t i = 0; i < n; ++i) {
        llvm::Value* part = value(inst, inst.op(i));
        if (part->getType() != llvm::ExtractValueInst::getIndexedType(t.llvm, {static_cast<unsigned>(i)}))
          fail(inst, "part " + std::to_string(i) + " has the wrong type");
        v = builder_.CreateInsertValue(v, part, i);
      }
    } else {
      fail(inst, "result is not a composite");
    }
    break;
  }
  case spv::OpVectorShuffle: {
    llvm::Value *a = value(inst, inst.op(0)), *b = value(inst, inst.op(1));
    uint64_t na = vectorLength(a->getType()), nb = vectorLength(b->getType());
    if (na == 0 || nb == 0 || a->getType()->getScalarType() != b->getType()->getScalarType())
      fail(inst, "operands are not vectors of one type");
    uint64_t n = std::max(na, nb);
    auto widen = [&](llvm::Value* x, uint64_t m) {
      if (m == n)
        return x;
      llvm::SmallVector<int> mask(n, -1);
      for (uint64_t i = 0; i < m; ++i)
        mask[i] = i;
      return builder_.CreateShuffleVector(x, mask);
    };
    llvm::SmallVector<int> mask;
    for (size_t i = 2; i < inst.operands.size(); ++i) {
      uint32_t index = inst.op(i);
      if (index != 0xffffffff && index >= na + nb)
        fail(inst, "index " + std::to_string(index) + " is out of range");
      mask.push_back(index == 0xffffffff ? -1 : index < na ? index : n + (index - na));
    }
    if (mask.empty())
      fail(inst, "shuffle without indices");
    v = builder_.CreateShuffleVector(widen(a, na), widen(b, nb), mask);
    if (std::find(mask.begin(), mask.end(), -1) != mask.end())
      v = builder_.CreateFreeze(v);  // undefined, not poison
    break;
  }
  case spv::OpVectorExtractDynamic:
  case spv::OpVectorInsertDynamic: {
    llvm::Value* vec = value(inst, inst.op(0));
    bool insert = inst.opcode == spv::OpVectorInsertDynamic;
    llvm::Value* index = value(inst, inst.op(insert ? 2 : 1));
    uint64_t n = vectorLength(vec->getType());
    if (n == 0 || !index->getType()->isIntegerTy())
      fail(inst, "operands are not a vector and an index");
    // An index out of range gives an undefined value; LLVM would give poison.
    index = builder_.CreateZExtOrTrunc(index, builder_.getInt64Ty());
    index = n == 3 ? builder_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, index, builder_.getInt64(2))
                   : builder_.CreateAnd(index, n - 1);
    if (insert) {
      llvm::Value* part = value(inst, inst.op(1));
      if (part->getType() != vec->getType()->getScalarType())
        fail(inst, "inserted part has the wrong type");
      v = builder_.CreateInsertElement(vec, part, index);
    } else {
      v = builder_.CreateExtractElement(vec, index);
    }
    break;
  }
  default: return false;
  }
  setValue(inst, v);
  return true;
}

}  // namespace zefuse::spirv
