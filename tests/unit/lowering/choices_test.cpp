// The words that explain, the dumps and zefuse-opt have for what schedules chose.
#include "lowering/schedule/core/choices.h"

#include <gtest/gtest.h>

namespace zefuse::test {
namespace {

TEST(Choices, Words) {
  ScheduleRecord record;
  record.add(choice::Reduction{true, 1, 2});
  record.add(choice::Kept{2, false, 4096, 16384});
  EXPECT_EQ(describe(record), "reduction, lanes across rows, keeps 2 of a row's values in private memory");
  record.batch = 3;
  record.in_place = true;
  record.parts.push_back({choice::Scan{true}});
  EXPECT_EQ(describe(record),
            "side by side: reduction, lanes across rows, keeps 2 of a row's values in private memory; "
            "scan, parallel over the other dims, a row at a time, in place, batch of 3");

  ScheduleRecord product;
  product.parts = {{choice::Product{64, 64, 8, true, {2048, 2048}}}};
  EXPECT_TRUE(product.onMatrixEngine());
  product.given_up.emplace_back(std::vector<Choices>{{choice::Product{128, 64, 8, true, {4096, 4096}}}}, 12);
  product.spilled = 3;
  product.spilled_on = "dg2-g11";
  EXPECT_EQ(describe(product),
            "product, tiles of 64 x 64 by 8 sub-groups on the matrix engine; rescheduled, since this "
            "spilled 12 on dg2-g11: product, tiles of 128 x 64 by 8 sub-groups on the matrix engine; "
            "spills 3 on dg2-g11");

  ScheduleRecord packed;
  packed.add(choice::PackedProduct{32, 16});
  EXPECT_FALSE(packed.onMatrixEngine());
  EXPECT_EQ(describe(packed), "product, blocks of 32 x 16");
  ScheduleRecord inner;
  inner.add(choice::InnerProducts{2, 3, 16});
  EXPECT_FALSE(inner.onMatrixEngine());
  EXPECT_EQ(describe(inner), "product, 2 x 3 sums at a time, along 16 lanes");
  EXPECT_EQ(describe(ScheduleRecord()), "");
}

TEST(Choices, AreFoundByTheirKind) {
  ScheduleRecord record;
  record.parts = {{choice::Pointwise{}}, {choice::Reduction{}, choice::RowTeam{choice::RowTeam::Of::group, 64}}};
  ASSERT_NE(record.find<choice::RowTeam>(), nullptr);
  EXPECT_EQ(record.find<choice::RowTeam>()->size, 64);
  EXPECT_EQ(record.find<choice::Product>(), nullptr);
  EXPECT_FALSE(record.onMatrixEngine());
}

TEST(Decisions, TakeWhatWasMeasuredWhereItIsAChoice) {
  Decisions decisions({{"lanes", 8}, {"group", 3}, {"2: lanes", 16}});
  EXPECT_EQ(decisions.take("lanes", 16, {8}), 8);
  EXPECT_EQ(decisions.take("lanes", 16, {4}), 8);           // the same question, the same answer
  EXPECT_EQ(decisions.take("group", 256, {512, 64}), 256);  // 3 is none of them
  EXPECT_TRUE(decisions.take("keeps", true));               // nobody measured it
  decisions.beginPart(1);
  EXPECT_EQ(decisions.take("lanes", 8, {16}), 16);
  ASSERT_EQ(decisions.made().size(), 4u);
  EXPECT_EQ(decisions.made()[1].choices, (std::vector<int64_t>{64, 256, 512}));
  EXPECT_EQ(decisions.made()[3].name, "2: lanes");

  ScheduleRecord record;
  record.add(choice::Pointwise{});
  record.noteTuned(decisions.made(), 12.34, 9.87);
  EXPECT_EQ(describe(record), "pointwise; tuned: lanes 8 instead of 16, 2: lanes 16 instead of 8, 12.3 -> 9.9 µs");
}

}  // namespace
}  // namespace zefuse::test
