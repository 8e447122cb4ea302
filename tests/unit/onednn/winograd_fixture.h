// Tests of what Winograd's filtering computes, on processors that have the vectors; threads are as before after each.
#pragma once

#include <gtest/gtest.h>

#include "runtime/onednn/team.h"
#include "runtime/onednn/winograd.h"

namespace zefuse::onednn::testing {

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

}  // namespace zefuse::onednn::testing
