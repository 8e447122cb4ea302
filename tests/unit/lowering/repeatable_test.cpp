// The same kernel gives the same bytes, whatever else the process lowers.
#include "tests/unit/lowering/numerics.h"

#include <atomic>
#include <thread>

namespace zefuse::test {
namespace {

TEST(Lowering, SameBytesEachTime) {
  // The back end's static tables once made ids depend on what the process had lowered before.
  KernelText text;
  RowOps ops{text, type(5, 200), type("5")};
  text.input({"%x", ops.full, flat(200)});
  text.output({ops.softmax("%x"), ops.full, flat(200)});
  std::string module = text.module();
  std::vector<uint32_t> first = wordsOf(module);
  ASSERT_FALSE(first.empty());
  for (int i = 0; i < 200; ++i)
    ASSERT_EQ(wordsOf(module), first) << "round " << i;
}

TEST(Lowering, SeveralThreadsAtOnce) {
  std::vector<std::string> modules;
  for (int m : {16, 50, 200, 1000}) {
    KernelText text;
    RowOps ops{text, type(5, m), type("5")};
    text.input({"%x", ops.full, flat(m)});
    text.output({ops.softmax("%x"), ops.full, flat(m)});
    modules.push_back(text.module());
  }
  std::vector<std::vector<uint32_t>> expected(modules.size());
  for (size_t i = 0; i < modules.size(); ++i)
    expected[i] = wordsOf(modules[i]);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t i = 0; i < modules.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round)
        wrong += wordsOf(modules[i]) != expected[i];
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace zefuse::test
