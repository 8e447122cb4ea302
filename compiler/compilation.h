// What became of a compilation.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace zefuse {

struct StageTime {
  std::string name;
  double seconds;
};

struct Compilation {
  bool ok = false;
  std::vector<std::byte> plan;   // plan.fbs
  std::string error;             // when not ok: first line says what and where
  std::string dump_folder;       // empty: no dump
  std::vector<StageTime> times;  // those of earlier stages, then compileModule's own
};

}  // namespace zefuse
