// Sizes of one attention over [heads, rows or keys, depth or columns], contiguous.
#pragma once

#include <string>

namespace zefuse::test {

struct AttentionCase {
  int heads, key_heads, rows, keys, depth, columns;
  double scale = 0.5;
  bool causal = false;
  std::string element = "f32";
  std::string mask = "";      // element type of a [rows, keys] mask; empty: none
  bool symbolic = false;      // rows and keys are s0 and s1
  bool log_sums = false;      // the rows' log-sum-exps are a second result
  bool around = false;        // half the queries, the negated keys and twice the mask (of i1 its opposite) are taken,
                              // the results are |result| + an addend of its shape, and the negated sums
  std::string gradient = "";  // "queries", "keys" or "all": that derivative instead
};

// A kernel that holds it, of f32 results; not of a derivative.
std::string moduleOf(const AttentionCase& attention);

}  // namespace zefuse::test
