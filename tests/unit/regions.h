// How many OpenMP regions this process opened: this program's entry points come before libgomp's, which they call.
#pragma once

namespace zefuse::testing {

int regionsOpened();

}  // namespace zefuse::testing
