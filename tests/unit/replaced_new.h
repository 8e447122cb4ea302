// For a program whose test counts its allocations, or says which of them fail: linked with replaced_new.cpp, which
// replaces operator new. Not under a sanitizer, which has one of its own.
#pragma once

namespace zefuse::test {

// Each such program defines it. Asked before every allocation, from any thread; false: it throws std::bad_alloc. Must
// not allocate.
bool mayAllocate();

}  // namespace zefuse::test
