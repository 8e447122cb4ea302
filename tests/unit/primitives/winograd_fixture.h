// Tests of what Winograd's filtering computes, on processors that have the vectors; threads are as before after each.
#pragma once

#include <gtest/gtest.h>

#include "runtime/primitives/convolution/winograd.h"
#include "runtime/primitives/core/team.h"

namespace zefuse::primitives::testing {

class WinogradFixture : public ::testing::Test {
protected:
  void SetUp() override {
    if (!winogradAvailable())
      GTEST_SKIP() << "this processor has no AVX2";
    threads_ = maxThreads();
  }
  void TearDown() override { setMaxThreads(threads_); }

private:
  int threads_ = 1;
};

}  // namespace zefuse::primitives::testing
