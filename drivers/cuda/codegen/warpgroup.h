// Matrix products of four sub-groups together (wgmma of PTX), which run beside the work-items that ask for them.
//
// Kernels call functions of these names with "zefuse_" before, where all items of a warpgroup (four sub-groups of 32,
// the first one's number a multiple of 4) come together; numbers are constants. Tiles of 16 bits lie in local memory as
// panels of 64 elements: line r of a panel is the 128 bytes from r * 128 on, its pieces of 16 bytes in the order of
// their number xor r % 8 (the swizzle of 128 bytes); a panel begins at a multiple of 1024 bytes.
//
//   warpgroup_multiply_T(sums, a, at_a, b, at_b, columns, more)   sums (+)= a * b^T of 64 rows and of 16 along the
//     lines: `a` and `b` are panels, whose lines are rows and columns of the product, at_a and at_b the bytes from
//     there to where the 16 begin. `sums` is private memory, as a lane's part of mma.sync's 16 x 8 blocks, one after
//     the other: 4 numbers each. `more`: 1 adds to them, 0 begins.
//   warpgroup_multiply_rows_T(sums, rows, b, at_b, columns, panel, more)   the same of 64 x 16 `rows` in private memory
//     (4 integers, mma.sync's fragments), and 16 lines of b, which are along the sum; its columns go on in the panel
//     that begins `panel` bytes later.
//   warpgroup_begin()     before the first product after private memory that they read was written
//   warpgroup_commit()    those since the last one are a batch
//   warpgroup_wait(sums, count, rows, count of rows, n)   all batches but the last n are done: nobody may touch what
//     they were given before; these sums may be read and rows be written now
//   warpgroup_computed(number)   nobody waits, behind this, before this f32 is computed, which is not below zero: what
//     products run beside is to stay before the wait for them
//   warpgroup_take_turn(number, items)   waits until others gave the turn of this number, which all items of this
//     warpgroup take: `items` are both together
//   warpgroup_give_turn(number, items)
//   warpgroup_registers(count, more)   a lane of this warpgroup has so many registers from here on: more (1, which
//   waits
//     until others have given theirs) or fewer than before; a multiple of 8
//   warpgroup_publish()   what this item wrote to local memory (copies that it waited for) is seen by products that
//     begin behind a barrier
#pragma once

#include "llvm/IR/Module.h"

namespace zefuse::cuda {

// Replaces these functions in the module's kernels, into which all is inlined. False: there were none. What they have
// of private memory must become registers (promotePrivate). Throws CompileError.
bool lowerWarpgroups(llvm::Module& module);

}  // namespace zefuse::cuda
