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
  bool zero = false;          // rows that see nothing are 0
  bool symbolic = false;      // rows and keys are s0 and s1
  bool log_sums = false;      // the rows' log-sum-exps are a second result
  std::string gradient = "";  // "queries" or "keys": that derivative instead
};

}  // namespace zefuse::test
