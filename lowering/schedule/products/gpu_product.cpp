#include "lowering/schedule/products/gpu_product.h"

#include "lowering/schedule/products/product_splits.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace zefuse {

const MatrixOperation* matrixOperation(Type a, Type b, const TargetDescription& target) {
  if (a != b || !(a.isF16() || a.isBF16()))
    return nullptr;
  const MatrixOperation* operation = target.matrix.find(a.isF16() ? "f16" : "bf16");
  if (!operation || operation->k != engine_depth)
    return nullptr;
  const bool fits = target.matrix.form == MatrixForm::fragments
                        ? operation->m == 16 && operation->n == 8 && target.matrix.lanes == 32
                        : operation->m == column_rows && operation->n == target.matrix.lanes;
  return fits ? operation : nullptr;
}

const MatrixOperation* splitOperation(Type a, Type b, const TargetDescription& target) {
  if (!a.isF32() || !b.isF32() || target.matrix.form != MatrixForm::fragments)
    return nullptr;
  return target.matrix.find("tf32");
}

namespace {

// Unknown sizes count as `unknown` rows or columns.
constexpr int64_t unknown = 256;

// Of a sub-group, per k: multiplications, reads of local memory, its share of the copy.
double workOf(const ProductTile& tile) {
  return double(tile.blocks_m * tile.block_rows * tile.blocks_n) + 2.0 * double(tile.blocks_m + tile.blocks_n) +
         4.0 * double(tile.rows() + tile.columns()) / double(tile.items());
}

double tilesOf(const ProductTile& tile, std::optional<int64_t> m, std::optional<int64_t> n,
               std::optional<int64_t> batches) {
  return std::ceil(double(m.value_or(unknown)) / double(tile.rows())) *
         std::ceil(double(n.value_or(unknown)) / double(tile.columns())) * double(batches.value_or(1));
}

// The same of fragments and of tiles in registers, in cycles of an engine that keeps its sub-groups' operands in local
// memory.
double stagedCostOf(const ProductTile& tile, double tiles, const TargetDescription& target) {
  constexpr double local_bytes = 128, memory_bytes = 24;  // of a cycle; memory: what the second cache gives
  const double multiplications = tile.wide        ? 170
                                 : tile.fragments ? 1024
                                                  : 128,
               bytes = tile.fragments && !tile.wide ? 2 : 4;
  constexpr double step_cycles = 3;  // per k, of a group alone: it waits at barriers and for its operands
  const double subgroups = double(tile.subgroups_m * tile.subgroups_n), sides = double(tile.rows() + tile.columns());
  const double of_subgroup = double(tile.blocks_m * tile.block_rows + tile.blocks_n * tile.block_columns);
  // Loads of operands take the place of multiplications where no engine makes those.
  const double loads =
      tile.fragments ? 0
                     : double(tile.blocks_m + tile.blocks_n) / double(tile.blocks_m * tile.block_rows * tile.blocks_n);
  const double work = std::max({double(tile.rows() * tile.columns()) / multiplications * (1 + loads),
                                bytes * (subgroups * of_subgroup + sides) / local_bytes, bytes * sides / memory_bytes});
  const double together = double(groupsTogether(tile));
  const double rounds = std::ceil(tiles / double(target.engines));
  return rounds * (work + step_cycles / std::min(rounds, together));
}

// Per k, of all tiles: as often as the device is filled.
double costOf(const ProductTile& tile, double tiles, const TargetDescription& target) {
  if (tile.fragments || tile.registers)
    return stagedCostOf(tile, std::max(1.0, tiles), target);
  double at_once = std::max(1.0, double(target.resident_items) / double(tile.items()));
  return std::max(1.0, tiles / at_once) * workOf(tile);
}

}  // namespace

ProductTile chooseTile(std::optional<int64_t> m, std::optional<int64_t> n, std::optional<int64_t> batches,
                       int64_t bytes, const TargetDescription& target, bool engine, Decisions* decisions, bool wide) {
  constexpr ProductTile ordinary[] = {{4, 4, 2, 2}, {4, 2, 2, 2}, {2, 2, 2, 2}, {2, 4, 1, 2},
                                      {2, 4, 1, 1}, {1, 8, 1, 1}, {1, 4, 1, 1}};
  // An engine multiplies faster than local memory reads, so its blocks are larger.
  constexpr ProductTile on_engine[] = {{4, 4, 2, 4}, {4, 2, 2, 4}, {2, 4, 2, 4}, {2, 2, 2, 4}, {4, 2, 2, 2},
                                       {2, 2, 2, 2}, {2, 4, 1, 2}, {1, 4, 1, 4}, {1, 4, 1, 2}, {1, 4, 1, 1}};
  // Blocks of 16 x 8: 64 x 64 of a sub-group read local memory least.
  constexpr ProductTile of_fragments[] = {{2, 2, 4, 8}, {2, 4, 4, 8}, {2, 4, 4, 4}, {2, 2, 4, 4}, {2, 2, 2, 8},
                                          {2, 2, 2, 4}, {4, 1, 1, 4}, {2, 2, 1, 4}, {1, 4, 1, 4}, {1, 4, 1, 2}};
  // Blocks of 16 x 32: 16 or 8 rows by 8 columns of a work-item, and less where the tiles are few.
  constexpr ProductTile in_registers[] = {{4, 2, 2, 2}, {2, 2, 2, 2}, {2, 2, 2, 1}, {2, 2, 1, 1},
                                          {4, 1, 1, 1}, {1, 4, 1, 1}, {2, 1, 1, 1}};
  const bool fragments = engine && target.matrix.form == MatrixForm::fragments;
  // Fewer rows than a block's would leave most of it idle.
  const bool registers = !engine && target.native.asynchronous_copies && target.subgroup_size == 32 && bytes == 4 &&
                         m.value_or(unknown) > column_rows;
  SmallVector<ProductTile> candidates(fragments   ? ArrayRef(of_fragments)
                                      : engine    ? ArrayRef(on_engine)
                                      : registers ? ArrayRef(in_registers)
                                                  : ArrayRef(ordinary));
  for (ProductTile& tile : candidates) {
    tile.lanes = tile.block_columns = engine ? target.matrix.lanes : target.subgroup_size;
    if (engine)
      tile.depth = 2 * engine_depth;
    if (fragments) {
      tile.fragments = true;
      tile.wide = wide;
      tile.block_rows = 16;
      tile.block_columns = 8;
      tile.depth = fragmentDepth(tile, target);
    }
    if (registers) {
      tile.registers = true;
      tile.block_rows = 16;
      tile.block_columns = 32;
      tile.depth = registerDepth(tile, target);
    }
  }
  std::optional<int64_t> best;
  double best_cost = 0;
  SmallVector<int64_t> fitting;
  for (auto [number, tile] : llvm::enumerate(candidates)) {
    // A stage's sums of a wide tile are apart.
    if (tile.accumulatorBytes(bytes) * (wide ? 2 : 1) >
            (engine ? target.engine_accumulator_bytes : target.accumulator_bytes) ||
        tile.items() > target.max_group_size)
      continue;
    fitting.push_back(int64_t(number));
    double cost = costOf(tile, tilesOf(tile, m, n, batches), target);
    if (!best || cost < best_cost * 0.999) {
      best = int64_t(number);
      best_cost = cost;
    }
  }
  if (!best)
    return candidates.back();  // the smallest: nothing fits, so its accumulators spill
  if (decisions)
    best = decisions->take("tile", *best, fitting, [&](int64_t number) {
      const ProductTile& tile = candidates[size_t(number)];
      return std::to_string(tile.rows()) + " x " + std::to_string(tile.columns()) + " by " +
             std::to_string(tile.subgroups_m * tile.subgroups_n);
    });
  return candidates[size_t(*best)];
}

int64_t groupsTogether(const ProductTile& tile) {
  constexpr int64_t registers = 65536;
  const int64_t others = tile.fragments ? 80 : 60;  // of a work-item beside its sums
  const int64_t sums = tile.accumulatorBytes(4) / 4 / tile.lanes * (tile.wide ? 2 : 1);
  return std::max<int64_t>(1, registers / (tile.items() * (sums + others)));
}

choice::Registers registersOf(const ProductTile& tile, int64_t bytes, const TargetDescription& target, bool engine) {
  return {tile.accumulatorBytes(bytes), engine ? target.engine_accumulator_bytes : target.accumulator_bytes};
}

int64_t chooseSplits(std::optional<int64_t> m, std::optional<int64_t> n, std::optional<int64_t> batches, int64_t k,
                     int64_t bytes, const TargetDescription& target, bool engine, bool wide) {
  constexpr int64_t shortest = 128;       // slices of k: shorter ones only start and end
  constexpr double launch_cycles = 10e3;  // of the second launch: some microseconds
  constexpr double access_cycles = 8;     // of a work-item, per partial sum written and read: from memory, not caches
  const double elements =
      double(m.value_or(unknown)) * double(n.value_or(unknown)) * double(batches.value_or(1)) * double(bytes) / 4;
  int64_t best = 1;
  double best_cost = 0;
  for (int64_t splits = 1; splits == 1 || (k % splits == 0 && k / splits >= shortest); splits *= 2) {
    const int64_t copies = batches.value_or(1) * splits;
    const ProductTile tile = chooseTile(m, n, copies, bytes, target, engine, nullptr, wide);
    double cost = costOf(tile, tilesOf(tile, m, n, copies), target) * double(k / splits);
    if (splits > 1)
      cost += launch_cycles + 2 * elements * double(splits) * access_cycles / double(target.resident_items);
    if (splits == 1 || cost < best_cost * 0.9) {
      best = splits;
      best_cost = cost;
    }
  }
  return best;
}

int64_t accessRun(AffineExpr stride, AffineExpr size, Type element) {
  if (constantOf(stride) != 1 || !constantOf(size))
    return 1;
  for (int64_t run = std::min<int64_t>(8, 16 / bytesInMemory(element)); run > 1; run /= 2)
    if (*constantOf(size) % run == 0)
      return run;
  return 1;
}

void bound(const IndexMath& i, Value& index, const TileSide& side, int64_t access, Value& inside) {
  if (side.extent.constant && *side.extent.constant % side.count == 0)
    return;
  inside = i.both(inside, i.less(index, side.extent.value));
  index = i.smaller(index, i.subtract(side.extent.value, i.number(access)));
}

namespace {

// Elements of 4 bytes past the registers, to lines along the other dimension than memory's or of any size. A sub-group
// takes 8 neighbours of 4 lines at a time: whole sectors of memory, and of lines that are padded by 4 different banks.
// False, and nothing: they are no plain elements.
bool copyWords(OpBuilder& b, WorkGroup& group, const ProductSource& source, Type type, const TileSide& rows,
               const TileSide& columns, Value array) {
  constexpr int64_t neighbours = 8, lines = 4;
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  const TileSide &along = source.columns_contiguous ? columns : rows,
                 &across = source.columns_contiguous ? rows : columns;
  if (!source.address || bytesInMemory(type) != 4 || group.subgroup() != neighbours * lines ||
      along.count % neighbours != 0 || across.count % lines != 0 || !source.address(rows.first, columns.first, 1))
    return false;
  const int64_t pieces = along.count / neighbours, all = pieces * across.count / lines, teams = group.subgroups();
  const Value first = group.subgroupIndex();
  for (int64_t done = 0; done < all; done += teams) {
    OpBuilder::InsertionGuard guard(b);
    Value number = i.add(first, done);
    if (all - done < teams) {
      auto branch = scf::IfOp::create(b, loc, i.less(number, i.number(all)), /*withElseRegion=*/false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    const bool whole = teams % pieces == 0;  // each round stays in the same place of its lines
    Value piece = i.modulo(whole ? first : number, pieces);
    Value line = whole ? i.add(i.divide(first, pieces), done / pieces) : i.divide(number, pieces);
    Value in_along = i.add(i.multiply(piece, neighbours), i.modulo(group.lane(), neighbours));
    Value in_across = i.add(i.multiply(line, lines), i.divide(group.lane(), neighbours));
    Value in_row = source.columns_contiguous ? in_across : in_along;
    Value in_column = source.columns_contiguous ? in_along : in_across;
    Value row = i.add(rows.first, in_row), column = i.add(columns.first, in_column), inside;
    bound(i, row, rows, 1, inside);
    bound(i, column, columns, 1, inside);
    Value place = i.add(i.multiply(in_row, rows.step), i.multiply(in_column, columns.step));
    group.copyWordToLocal(group.at(array, type, place), source.address(row, column, 1), inside);
  }
  return true;
}

}  // namespace

void stageTile(OpBuilder& b, WorkGroup& group, const ProductSource& source, Type type, const TileSide& rows,
               const TileSide& columns, Value array, std::optional<TileCopy> again, bool asynchronous) {
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  int64_t inner = source.columns_contiguous ? columns.count : rows.count, run = source.run;
  const unsigned align = unsigned(bytesInMemory(type));
  const int64_t step = source.columns_contiguous ? columns.step : rows.step;
  const int64_t lines = source.columns_contiguous ? rows.step : columns.step;
  const bool whole_accesses =
      asynchronous && source.address && run * align == 16 && step == 1 && lines % run == 0 && inner % run == 0;
  if (asynchronous && !whole_accesses && copyWords(b, group, source, type, rows, columns, array))
    return;
  int64_t accesses = rows.count * columns.count / run, rounds = (accesses + group.size() - 1) / group.size();
  OpBuilder::InsertionGuard guard(b);
  Value start = group.item(), first_line = i.divide(group.item(), inner / run), base = i.number(0);
  if (rounds > source.together && rounds % source.together == 0) {
    auto loop = scf::ForOp::create(b, loc, i.number(0), i.number(rounds * group.size()),
                                   i.number(source.together * group.size()));
    b.setInsertionPointToStart(loop.getBody());
    start = i.add(start, loop.getInductionVar());
    base = i.divide(loop.getInductionVar(), inner / run);
    rounds = source.together;
  }
  for (int64_t round = 0; round < rounds; ++round) {
    OpBuilder::InsertionGuard inside_branch(b);
    Value number = i.add(start, round * group.size());
    if (accesses % group.size() != 0) {
      auto branch = scf::IfOp::create(b, loc, i.less(number, i.number(accesses)), false);
      b.setInsertionPointToStart(branch.thenBlock());
    }
    // A whole number of lines at once leaves every round in the same place of its line.
    int64_t line = inner / run;
    bool whole = group.size() % line == 0;
    Value along = i.multiply(i.modulo(whole ? group.item() : number, line), run);
    Value across = whole ? i.add(i.add(first_line, base), round * (group.size() / line)) : i.divide(number, line);
    Value in_row = source.columns_contiguous ? across : along, in_column = source.columns_contiguous ? along : across;
    Value row = i.add(rows.first, in_row), column = i.add(columns.first, in_column);
    Value inside;
    bound(i, row, rows, source.columns_contiguous ? 1 : run, inside);
    bound(i, column, columns, source.columns_contiguous ? run : 1, inside);
    if (whole_accesses) {
      if (Value from = source.address(row, column, run)) {
        Value place = i.add(i.multiply(in_row, rows.step), i.multiply(in_column, columns.step));
        group.copyToLocal(group.at(array, type, place), from, inside);
        continue;
      }
    }
    Value value = source.load(row, column, run);
    if (inside) {
      Value zero = constantOfType(b, loc, cast<TypedAttr>(b.getZeroAttr(type)), unsigned(run));
      value = arith::SelectOp::create(b, loc, splat(b, inside, unsigned(run)), value, zero);
    }
    auto store = [&](const TileCopy& to) {
      const int64_t step = source.columns_contiguous ? to.column_step : to.row_step;
      const int64_t other = source.columns_contiguous ? to.row_step : to.column_step;
      Value place = i.add(i.multiply(in_row, to.row_step), i.multiply(in_column, to.column_step));
      if (run == 1 || step == 1) {
        bool aligned = other % run == 0 && inner % run == 0;
        LLVM::StoreOp::create(b, loc, value, group.at(to.array, type, place), align * (aligned ? unsigned(run) : 1));
        return;
      }
      for (int64_t lane = 0; lane < run; ++lane)
        LLVM::StoreOp::create(b, loc, vector::ExtractOp::create(b, loc, value, lane),
                              group.at(to.array, type, i.add(place, lane * step)), align);
    };
    store({array, rows.step, columns.step});
    if (again)
      store(*again);
  }
}

namespace {

class TileEmitter {
public:
  TileEmitter(OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product)
      : b_(builder), loc_(builder.getUnknownLoc()), i_{builder, loc_}, group_(group), tile_(tile), product_(product) {}

  void run(Value first_row, Value first_column, ProductStore store) {
    // In local memory: the distances of neighbours, lines padded so that a's start in different banks.
    TileSide a_rows{product_.m, first_row, tile_.rows(), 1}, a_columns{product_.k, {}, tile_.depth, tile_.rows() + 4};
    TileSide b_rows{product_.k, {}, tile_.depth, tile_.columns()};
    TileSide b_columns{product_.n, first_column, tile_.columns(), 1};
    Type local = product_.type;
    if (product_.engine) {
      local = b_.getI16Type();
      a_rows.step = b_columns.step = tile_.depth + engine_pad;
      a_columns.step = b_rows.step = 1;
    }
    a_ld_ = std::max(a_rows.step, a_columns.step);
    b_ld_ = std::max(b_rows.step, b_columns.step);
    a_ = group_.localArray(local, product_.engine ? tile_.rows() * a_ld_ : tile_.depth * a_ld_);
    b_local_ = group_.localArray(local, product_.engine ? tile_.columns() * b_ld_ : tile_.depth * b_ld_);
    Value subgroup_m = i_.divide(group_.subgroupIndex(), tile_.subgroups_n);
    Value subgroup_n = i_.modulo(group_.subgroupIndex(), tile_.subgroups_n);
    Value row = i_.multiply(subgroup_m, tile_.blocks_m * column_rows);
    Value column = i_.add(i_.multiply(subgroup_n, tile_.blocks_n * tile_.block_columns), group_.lane());

    auto vector = VectorType::get({column_rows}, product_.type);
    Value zero = arith::ConstantOp::create(b_, loc_, vector, cast<TypedAttr>(b_.getZeroAttr(vector)));
    SmallVector<Value> totals(tile_.blocks_m * tile_.blocks_n, zero);
    auto loop =
        scf::ForOp::create(b_, loc_, i_.number(0), product_.k.value, i_.number(tile_.depth), ValueRange(totals));
    {
      OpBuilder::InsertionGuard guard(b_);
      b_.setInsertionPointToStart(loop.getBody());
      Value k = loop.getInductionVar();
      a_columns.first = b_rows.first = k;
      stageTile(b_, group_, product_.a, local, a_rows, a_columns, a_);
      stageTile(b_, group_, product_.b, local, b_rows, b_columns, b_local_);
      group_.barrier();
      totals = (this->*(product_.engine ? &TileEmitter::multiplyOnEngine : &TileEmitter::multiply))(
          row, column, SmallVector<Value>(loop.getRegionIterArgs()));
      group_.barrier();  // before the next step overwrites what is read here
      scf::YieldOp::create(b_, loc_, totals);
    }
    for (int64_t block_m = 0; block_m < tile_.blocks_m; ++block_m)
      for (int64_t block_n = 0; block_n < tile_.blocks_n; ++block_n)
        store({i_.add(first_row, i_.add(row, block_m * column_rows)),
               i_.add(first_column, i_.add(column, block_n * tile_.block_columns)),
               loop.getResult(unsigned(block_m * tile_.blocks_n + block_n))});
  }

private:
  // One step along k: c += a * b for all blocks.
  SmallVector<Value> multiply(Value row, Value column, SmallVector<Value> totals) {
    // A loop of its own: unrolled over the whole depth, the device's compiler reads so far ahead that it spills.
    constexpr int64_t unrolled = 4;
    auto loop = scf::ForOp::create(b_, loc_, i_.number(0), i_.number(tile_.depth), i_.number(unrolled), totals);
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(loop.getBody());
    totals = SmallVector<Value>(loop.getRegionIterArgs());
    auto vector = VectorType::get({column_rows}, product_.type);
    unsigned align = unsigned(bytesInMemory(product_.type));
    Value a_start = i_.add(row, i_.multiply(loop.getInductionVar(), a_ld_));
    Value b_start = i_.add(column, i_.multiply(loop.getInductionVar(), b_ld_));
    for (int64_t k = 0; k < unrolled; ++k) {
      SmallVector<Value> as, bs;
      for (int64_t block = 0; block < tile_.blocks_m; ++block) {
        Value place = i_.add(a_start, k * a_ld_ + block * column_rows);
        as.push_back(LLVM::LoadOp::create(b_, loc_, vector, group_.at(a_, product_.type, place), align));
      }
      for (int64_t block = 0; block < tile_.blocks_n; ++block) {
        Value place = i_.add(b_start, k * b_ld_ + block * tile_.block_columns);
        Value b = LLVM::LoadOp::create(b_, loc_, product_.type, group_.at(b_local_, product_.type, place), align);
        bs.push_back(splat(b_, b, column_rows));
      }
      for (int64_t block_m = 0; block_m < tile_.blocks_m; ++block_m)
        for (int64_t block_n = 0; block_n < tile_.blocks_n; ++block_n) {
          Value& total = totals[block_m * tile_.blocks_n + block_n];
          total = math::FmaOp::create(b_, loc_, as[block_m], bs[block_n], total);
        }
    }
    scf::YieldOp::create(b_, loc_, totals);
    return SmallVector<Value>(loop.getResults());
  }

  SmallVector<Value> multiplyOnEngine(Value row, Value column, SmallVector<Value> totals) {
    auto loop =
        scf::ForOp::create(b_, loc_, i_.number(0), i_.number(tile_.depth), i_.number(engine_depth), ValueRange(totals));
    OpBuilder::InsertionGuard guard(b_);
    b_.setInsertionPointToStart(loop.getBody());
    totals = SmallVector<Value>(loop.getRegionIterArgs());
    Value k = loop.getInductionVar();
    SmallVector<Value> columns;
    for (int64_t block = 0; block < tile_.blocks_n; ++block)
      columns.push_back(engineColumn(b_, group_, b_local_, b_ld_, i_.add(column, block * tile_.block_columns), k));
    for (int64_t block_m = 0; block_m < tile_.blocks_m; ++block_m) {
      constexpr int64_t count = column_rows;
      Value rows = engineRows(b_, group_, a_, a_ld_, count, i_.add(row, block_m * count), k);
      for (int64_t block_n = 0; block_n < tile_.blocks_n; ++block_n) {
        Value& total = totals[block_m * tile_.blocks_n + block_n];
        total = group_.multiplyMatrices(*product_.engine, rows, columns[block_n], total);
      }
    }
    scf::YieldOp::create(b_, loc_, totals);
    return SmallVector<Value>(loop.getResults());
  }

  OpBuilder& b_;
  Location loc_;
  IndexMath i_;
  WorkGroup& group_;
  const ProductTile& tile_;
  const Product& product_;
  int64_t a_ld_ = 0, b_ld_ = 0;
  Value a_, b_local_;
};

}  // namespace

Value engineRows(OpBuilder& b, WorkGroup& group, Value array, int64_t line, int64_t rows, Value row, Value k) {
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  int64_t per_lane = engine_depth / group.subgroup();
  Type whole = b.getIntegerType(unsigned(16 * per_lane));
  Value start = i.add(i.add(i.multiply(row, line), k), i.multiply(group.lane(), per_lane));
  SmallVector<Value> loaded;
  for (int64_t r = 0; r < rows; ++r)
    loaded.push_back(LLVM::LoadOp::create(b, loc, whole, group.at(array, b.getI16Type(), i.add(start, r * line)),
                                          unsigned(2 * per_lane)));
  return vector::FromElementsOp::create(b, loc, VectorType::get({rows}, whole), loaded);
}

Value engineColumn(OpBuilder& b, WorkGroup& group, Value array, int64_t line, Value column, Value k) {
  Location loc = b.getUnknownLoc();
  IndexMath i{b, loc};
  auto type = VectorType::get({engine_depth / 2}, b.getI32Type());
  return LLVM::LoadOp::create(b, loc, type, group.at(array, b.getI16Type(), i.add(i.multiply(column, line), k)), 16);
}

void emitProduct(OpBuilder& builder, WorkGroup& group, const ProductTile& tile, const Product& product,
                 const TargetDescription& target, Value first_row, Value first_column, ProductStore store) {
  if (tile.fragments) {
    const bool copies = product.a.address || product.b.address;
    emitFragmentProduct(builder, group, tile, product, copies ? stagesOf(tile, target) : 2, first_row, first_column,
                        store);
  } else if (tile.registers) {
    emitRegisterProduct(builder, group, tile, product, target, first_row, first_column, store);
  } else {
    TileEmitter(builder, group, tile, product).run(first_row, first_column, store);
  }
}

}  // namespace zefuse
