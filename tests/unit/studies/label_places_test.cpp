// SPDX-License-Identifier: Apache-2.0
#include "studies/label_places.hpp"

#include <gtest/gtest.h>

namespace orrery::studies {
namespace {

constexpr PixelBox kArea{0, 0, 200, 100};

bool apart(const PixelBox& a, const PixelBox& b) {
  return a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
}

TEST(LabelPlacesTest, CrowdedLabelsLieInsideAndApart) {
  LabelPlaces places(kArea);
  const PixelBox dot{96, 2, 104, 10};
  places.keep_free(dot);
  std::vector<PixelBox> labels;
  for (int i = 0; i < 20; ++i) {
    const auto place = places.place(100, 6, 14, 10, 200);
    ASSERT_TRUE(place);
    EXPECT_TRUE(place->left >= kArea.left && place->right <= kArea.right);
    EXPECT_TRUE(place->top >= kArea.top && place->bottom <= kArea.bottom);
    EXPECT_NEAR(place->right - place->left, 14, 1e-9);
    EXPECT_TRUE(apart(*place, dot));
    for (const PixelBox& other : labels) {
      EXPECT_TRUE(apart(*place, other));
    }
    labels.push_back(*place);
  }
  EXPECT_EQ(label_line(100, 6, labels.front()), "");
  EXPECT_NE(label_line(100, 6, labels.back()), "");
}

TEST(LabelPlacesTest, NothingIsPlacedOutOfReach) {
  LabelPlaces places(kArea);
  places.keep_free({80, 0, 120, 40});
  EXPECT_FALSE(places.place(100, 20, 10, 10, 12));
  EXPECT_TRUE(places.place(100, 20, 10, 10, 40));
}

}  // namespace
}  // namespace orrery::studies
