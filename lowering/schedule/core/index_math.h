// Arithmetic on index values, for schedules that are written out by hand. Indices are not negative.
#pragma once

#include "lowering/schedule/core/scalar_ops.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AffineExpr.h"

namespace zefuse {

struct IndexMath {
  mlir::OpBuilder& b;
  mlir::Location loc;

  mlir::Value number(int64_t value) const { return constantIndex(b, loc, value); }
  mlir::Value add(mlir::Value x, mlir::Value y) const { return mlir::arith::AddIOp::create(b, loc, x, y); }
  mlir::Value add(mlir::Value x, int64_t y) const { return y == 0 ? x : add(x, number(y)); }
  mlir::Value subtract(mlir::Value x, mlir::Value y) const { return mlir::arith::SubIOp::create(b, loc, x, y); }
  mlir::Value multiply(mlir::Value x, mlir::Value y) const { return mlir::arith::MulIOp::create(b, loc, x, y); }
  mlir::Value multiply(mlir::Value x, int64_t y) const { return y == 1 ? x : multiply(x, number(y)); }
  mlir::Value divide(mlir::Value x, mlir::Value y) const { return mlir::arith::DivUIOp::create(b, loc, x, y); }
  mlir::Value divide(mlir::Value x, int64_t y) const { return y == 1 ? x : divide(x, number(y)); }
  mlir::Value modulo(mlir::Value x, mlir::Value y) const { return mlir::arith::RemUIOp::create(b, loc, x, y); }
  mlir::Value modulo(mlir::Value x, int64_t y) const { return y == 1 ? number(0) : modulo(x, number(y)); }
  mlir::Value smaller(mlir::Value x, mlir::Value y) const { return mlir::arith::MinSIOp::create(b, loc, x, y); }
  mlir::Value larger(mlir::Value x, mlir::Value y) const { return mlir::arith::MaxSIOp::create(b, loc, x, y); }
  mlir::Value less(mlir::Value x, mlir::Value y) const {
    return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::slt, x, y);
  }
  mlir::Value equal(mlir::Value x, mlir::Value y) const {
    return mlir::arith::CmpIOp::create(b, loc, mlir::arith::CmpIPredicate::eq, x, y);
  }
  mlir::Value both(mlir::Value x, mlir::Value y) const {  // either may be null: true
    return !x ? y : !y ? x : mlir::arith::AndIOp::create(b, loc, x, y).getResult();
  }

  mlir::Value either(mlir::Value x, mlir::Value y) const {  // x may be null: false
    return !x ? y : mlir::arith::OrIOp::create(b, loc, x, y).getResult();
  }

  // The value of an expression over symbols.
  mlir::Value expression(mlir::AffineExpr expr, llvm::ArrayRef<mlir::Value> symbols) const;
};

}  // namespace zefuse
