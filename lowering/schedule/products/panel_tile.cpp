#include "lowering/schedule/products/panel_tile.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace zefuse {

void PanelTile::copy(OpBuilder& b, WorkGroup& group, const Copiers& by, Value array, const Extent& all_rows,
                     Value first_row, const Extent& all_columns) const {
  constexpr int64_t piece = 8;  // elements of 16 bytes
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  const Type type = b.getI16Type();
  const TileSide row_side{all_rows, first_row, together > 0 ? together : rows},
      column_side{all_columns, i.number(0), columns};
  const bool along_columns = source.columns_contiguous;
  const int64_t run = along_columns ? source.run : 1, line = (along_columns ? columns : rows) / run;
  const int64_t accesses = rows * columns / run, rounds = (accesses + by.count - 1) / by.count;
  const bool whole = by.count % line == 0;  // each round stays in the same place of its lines
  for (int64_t round = 0; round < rounds; ++round) {
    OpBuilder::InsertionGuard guard(b);
    Value number = i.add(by.item, round * by.count);
    if ((round + 1) * by.count > accesses) {
      auto branch = scf::IfOp::create(b, loc, i.less(number, i.number(accesses)), /*withElseRegion=*/false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    Value along = i.multiply(i.modulo(whole ? by.item : number, line), run);
    Value across = whole ? i.add(i.divide(by.item, line), round * (by.count / line)) : i.divide(number, line);
    Value in_row = along_columns ? across : along, in_column = along_columns ? along : across;
    // What is outside is not read, so that its place need not be inside: all rounds' are constants apart.
    Value row = i.add(first_row, in_row), column = in_column, clamped = row, inside;
    bound(i, clamped, row_side, 1, inside);
    clamped = column;
    bound(i, clamped, column_side, run, inside);
    // The row's number within 8, of what the rounds share where they do: then the place advances by a constant.
    const bool fixed = whole && along_columns && by.count / line % 8 == 0;
    Value turn = i.modulo(fixed ? i.divide(by.item, line) : in_row, 8);
    Value number_of_piece = i.divide(i.modulo(in_column, PanelShape::columns), piece);
    Value turned = arith::XOrIOp::create(b, loc, number_of_piece, turn);
    Value place = i.add(i.multiply(i.divide(in_column, PanelShape::columns), shape().elements()),
                        i.multiply(in_row, PanelShape::columns));
    place = i.add(i.add(place, i.multiply(turned, piece)), i.modulo(in_column, piece));
    Value to = group.at(array, type, place);
    if (source.address && run == piece)
      if (Value from = source.address(row, column, run)) {
        group.copyToLocal(to, from, inside);
        continue;
      }
    auto store = [&](Value value) { LLVM::StoreOp::create(b, loc, value, to, unsigned(2 * run)); };
    if (!inside) {
      store(source.load(row, column, run));
      continue;
    }
    auto branch = scf::IfOp::create(b, loc, inside, /*withElseRegion=*/true);
    b.setInsertionPointToStart(branch.thenBlock());
    store(source.load(row, column, run));
    b.setInsertionPointToStart(branch.elseBlock());
    store(constantOfType(b, loc, cast<TypedAttr>(b.getZeroAttr(type)), unsigned(run)));
  }
}

}  // namespace zefuse
