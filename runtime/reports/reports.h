// What commands and `explain` say of plans, packages, the cache and this machine, as JSON: for Python, which gives it
// its shape, and needs neither torch nor an extension module for it. Thread-safe. Hostile files give an error.
#pragma once

#include <string>

#include "common/base/api.h"
#include "common/base/status.h"
#include "common/plan/plan_generated.h"

namespace zefuse::reports {

// Steps, notes and counts of a plan that was verified; "details" is what the compiler noted, JSON as a string.
ZEFUSE_API std::string ofPlan(const plan::Plan& plan);

// What a package holds; every hash is checked. Errors: Reader::open's and Manifest::read's.
Result<std::string> ofPackage(const std::string& path);
// ofPlan of the plan in a package's section. Errors: Reader::open's; not_found; damaged.
Result<std::string> ofPlanIn(const std::string& path, const std::string& section);

std::string ofTargets();    // common/toolchain/targets.h as data: {"cpu": [...], "gpu": [...]}
std::string ofCompilers();  // Intel's offline compilers that run here
// As Level Zero describes them. Errors: why not even the CPU is one, where there is no other either.
Result<std::string> ofDevices();
std::string ofCache(const std::string& directory);  // sound entries, newest first
std::string ofRecentEntries(const std::string& directory, const std::string& kind, size_t count);  // listRecent

}  // namespace zefuse::reports
