// The random part of an image that training uses: TensorFlow's sample_distorted_bounding_box.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "utils/data/image.h"
#include "utils/data/random.h"

namespace official::resnet {

// The box of an object in an image; 0 is the image's top or left edge, 1 the bottom or right one.
struct BoundingBox {
  float ymin, xmin, ymax, xmax;
};

// Returns a window of 5 % to 100 % of the image's area, 0.75 to 1.33 times as wide as high, that covers at least a
// tenth of some box (without boxes, of the image); the whole image if 100 attempts find no such window. The algorithm
// and its float arithmetic are those of TensorFlow 2.15 (sample_distorted_bounding_box_op.cc), the random numbers are
// our own. As there, a window smaller than the image never touches its far edges.
data::ImageWindow SampleDistortedBox(const data::ImageSize& image, absl::Span<const BoundingBox> boxes,
                                     data::Random& random);

}  // namespace official::resnet
