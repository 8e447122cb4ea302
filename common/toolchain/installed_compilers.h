// The vendors' offline compilers that are installed here, and what each answers when it is asked what it is.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "common/base/api.h"
#include "common/base/cancel_check.h"
#include "common/base/status.h"
#include "common/toolchain/vendor_compilers.h"

namespace zefuse {

// How long a compiler may take to say what it is when a device waits for code. A healthy one takes some 30 ms; with one
// that hangs, "nothing compiles for this device" must still be said within a second.
constexpr std::chrono::milliseconds compiler_answer_deadline{800};

struct InstalledCompiler {
  std::string command;
  std::string version;               // "22.43.24595"; empty where `problem` says why
  std::vector<std::string> devices;  // "dg2-g11", "acm-g11", ...
  Status problem;
  const VendorCompiler* vendor = nullptr;  // what to call; never null in an answer

  // "ocloc 22.43.24595": of cache keys, since another version's code is another.
  std::string identity() const { return std::string(vendor->name) + " " + version; }
};

// The commands of all vendors that exist, in their order. All questions are asked at the same time, so the whole takes
// `deadline` at most (and what it takes to end a process), however many of them hang. The answers of a compiler stay
// for the process as long as its file is the same one; one that hung is asked again only by those who wait longer.
// Thread-safe. Compilers whose questions were cancelled have that problem, and are asked again by the next.
ZEFUSE_API std::vector<InstalledCompiler>
installedCompilers(std::chrono::milliseconds deadline = compiler_answer_deadline, const CancelCheck& cancelled = {});

// How they are listed for people: "ocloc 22.43, /opt/ocloc (no answer within 800 ms)"; "none".
std::string describe(const std::vector<InstalledCompiler>& compilers);

// The first of the device's vendor that knows it; none does: not_found, with what is installed; cancelled: not all were
// asked.
ZEFUSE_API Result<InstalledCompiler> installedCompilerFor(const std::string& device,
                                                          std::chrono::milliseconds deadline = compiler_answer_deadline,
                                                          const CancelCheck& cancelled = {});

}  // namespace zefuse
