#include "lowering/schedule/gpu/subgroup_totals.h"

#include "lowering/schedule/core/index_math.h"
#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {
namespace {

// Vectors are stored in pieces of an access, each piece beside that of the next work-item: no bank of local memory is
// asked twice at a time.
struct AccessPiece {
  int64_t first, size;  // elements
};

SmallVector<AccessPiece> piecesOf(const ScheduleContext& context, Type type, int64_t lanes) {
  int64_t size = std::clamp<int64_t>(context.target.access_bytes / bytesInMemory(type), 1, lanes);
  SmallVector<AccessPiece> pieces;
  for (int64_t first = 0; first < lanes; first += size)
    pieces.push_back({first, size});
  return pieces;
}

Value placeOf(const ScheduleContext& context, WorkGroup& group, Value array, Type memory, Value subgroup,
              AccessPiece piece, int64_t lanes) {
  IndexMath i{context.builder(), context.builder().getUnknownLoc()};
  Value line = i.add(i.multiply(subgroup, lanes * group.subgroup()), i.number(piece.first * group.subgroup()));
  return group.at(array, memory, i.add(line, i.multiply(group.lane(), piece.size)));
}

Type elementOf(const Instance* instance) {
  return cast<RankedTensorType>(instance->op->getResult(0).getType()).getElementType();
}

}  // namespace

SmallVector<Value> shareTotals(const ScheduleContext& context, WorkGroup& group, ArrayRef<const Instance*> instances,
                               ArrayRef<Value> totals) {
  OpBuilder& b = context.builder();
  Location loc = b.getUnknownLoc();
  SmallVector<Value> arrays;
  for (auto [instance, total] : llvm::zip_equal(instances, totals)) {
    const int64_t lanes = lanesOf(total);
    Type type = elementOf(instance), memory = memoryType(type);
    arrays.push_back(group.localArray(memory, group.size() * lanes));
    Value stored = toMemory(b, loc, total, type);
    for (AccessPiece piece : piecesOf(context, type, lanes)) {
      Value part = stored;
      if (piece.size == 1 && lanes > 1)
        part = vector::ExtractOp::create(b, loc, stored, piece.first);
      else if (piece.size < lanes)
        part = vector::ShuffleOp::create(b, loc, stored, stored,
                                         llvm::to_vector(llvm::seq(piece.first, piece.first + piece.size)));
      LLVM::StoreOp::create(b, loc, part,
                            placeOf(context, group, arrays.back(), memory, group.subgroupIndex(), piece, lanes),
                            unsigned(bytesInMemory(type) * piece.size));
    }
  }
  group.barrier();
  return arrays;
}

SmallVector<Value> combineTotals(const ScheduleContext& context, WorkGroup& group, ArrayRef<const Instance*> instances,
                                 ArrayRef<Value> arrays, int64_t lanes) {
  OpBuilder& b = context.builder();
  Location loc = b.getUnknownLoc();
  SmallVector<Value> totals;
  for (auto [instance, array] : llvm::zip_equal(instances, arrays)) {
    Type type = elementOf(instance), memory = memoryType(type);
    SmallVector<Value> elements;
    Value part;
    for (AccessPiece piece : piecesOf(context, type, lanes)) {
      part = {};
      for (int64_t subgroup = 0; subgroup < group.subgroups(); ++subgroup) {
        Value place = placeOf(context, group, array, memory, constantIndex(b, loc, subgroup), piece, lanes);
        Value loaded = LLVM::LoadOp::create(b, loc, withLanes(memory, piece.size), place,
                                            unsigned(bytesInMemory(type) * piece.size));
        Value partial = toRegister(b, loc, loaded, type);
        part = part ? context.combine(*instance, part, partial) : partial;
      }
      for (int64_t lane = 0; lane < piece.size && piece.size < lanes; ++lane)
        elements.push_back(piece.size == 1 ? part : vector::ExtractOp::create(b, loc, part, lane).getResult());
    }
    if (!elements.empty())
      part = vector::FromElementsOp::create(b, loc, VectorType::get({lanes}, elements[0].getType()), elements);
    totals.push_back(part);
  }
  return totals;
}

}  // namespace zefuse
