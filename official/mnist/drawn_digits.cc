// A digit is one of several written forms (hands): strokes through control points in a box of width 1.2 and height 2, y
// down. Drawing one: move the points a little, smooth them (Catmull-Rom), bend, slant, rotate and scale the result, and
// cover the pixels near it, more or less of the pen's width away.
#include "official/mnist/drawn_digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "utils/data/random.h"
#include "utils/data/worker_pool.h"

namespace official::mnist {
namespace {

using compute::DType;
using data::Random;

constexpr int kSize = 28;
constexpr int kPixels = kSize * kSize;
constexpr int64_t kDigitsPerTask = 256;

struct Point {
  float x, y;
  bool corner = false;  // the pen changes its direction at once
};
using Stroke = std::vector<Point>;
using Hand = std::vector<Stroke>;

// Points on an ellipse, from and to in degrees, clockwise from the right.
Stroke Arc(Point center, float radius_x, float radius_y, float from, float to) {
  const int steps = static_cast<int>(std::ceil(std::abs(to - from) / 40));
  Stroke stroke;
  for (int i = 0; i <= steps; ++i) {
    const float angle = (from + (to - from) * i / steps) * std::numbers::pi_v<float> / 180;
    stroke.push_back({center.x + radius_x * std::cos(angle), center.y + radius_y * std::sin(angle)});
  }
  return stroke;
}

Stroke operator+(Stroke a, const Stroke& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr bool kCorner = true;

std::array<std::vector<Hand>, 10> MakeHands() {
  std::array<std::vector<Hand>, 10> hands;
  hands[0] = {
      {Arc({0, 0}, 0.6f, 1, -90, 270)},
      {Arc({0, 0}, 0.55f, 1, -65, 285)},  // not quite closed
      {Arc({0, 0}, 0.45f, 1, -100, 290)},
  };
  hands[1] = {
      {{{0, -1}, {0, 1}}},
      {{{-0.35f, -0.55f}, {0.05f, -1, kCorner}, {0.05f, 1}}},                   // with a serif
      {{{-0.3f, -0.6f}, {0, -1, kCorner}, {0, 1}}, {{-0.35f, 1}, {0.35f, 1}}},  // and a base
  };
  hands[2] = {
      {{{-0.5f, -0.55f},
        {-0.3f, -0.92f},
        {0.1f, -1},
        {0.45f, -0.7f},
        {0.4f, -0.3f},
        {0, 0.3f},
        {-0.55f, 1, kCorner},
        {0.6f, 1}}},
      {{{-0.5f, -0.6f},
        {-0.2f, -0.97f},
        {0.3f, -0.9f},
        {0.45f, -0.5f},
        {0.2f, 0.1f},
        {-0.25f, 0.7f},
        {-0.5f, 0.9f},
        {-0.55f, 0.65f},
        {-0.3f, 0.6f},
        {0.1f, 0.85f},
        {0.6f, 0.95f}}},  // with a loop
      {{{-0.55f, -0.7f},
        {-0.1f, -1},
        {0.45f, -0.75f},
        {0.35f, -0.25f},
        {-0.5f, 0.95f, kCorner},
        {-0.1f, 0.85f},
        {0.6f, 1}}},
  };
  hands[3] = {
      {{{-0.45f, -0.75f},
        {-0.05f, -1},
        {0.4f, -0.75f},
        {0.35f, -0.3f},
        {-0.1f, -0.05f, kCorner},
        {0.4f, 0.15f},
        {0.5f, 0.6f},
        {0.1f, 1},
        {-0.5f, 0.75f}}},
      {{{-0.45f, -1},
        {0.45f, -1, kCorner},
        {-0.05f, -0.2f, kCorner},
        {0.4f, 0.05f},
        {0.5f, 0.55f},
        {0.1f, 1},
        {-0.5f, 0.8f}}},  // with a flat top
      {{{-0.45f, -0.8f},
        {0, -1},
        {0.42f, -0.7f},
        {0.2f, -0.2f},
        {-0.15f, -0.05f},
        {-0.12f, 0.1f},
        {0.25f, 0.1f},
        {0.5f, 0.5f},
        {0.15f, 1},
        {-0.5f, 0.8f}}},  // with a loop
  };
  hands[4] = {
      {{{-0.35f, -1}, {-0.5f, 0.15f, kCorner}, {0.55f, 0.15f}}, {{0.3f, -0.6f}, {0.2f, 1}}},           // open
      {{{0.25f, 1}, {0.25f, -1, kCorner}, {-0.6f, 0.3f, kCorner}, {0.6f, 0.3f}}},                      // closed
      {{{-0.5f, -0.95f}, {-0.5f, -0.2f}, {-0.2f, 0.05f}, {0.4f, -0.05f}}, {{0.45f, -1}, {0.35f, 1}}},  // round
  };
  hands[5] = {
      {{{0.5f, -1},
        {-0.4f, -1, kCorner},
        {-0.45f, -0.15f, kCorner},
        {0, -0.3f},
        {0.45f, 0},
        {0.5f, 0.5f},
        {0.1f, 1},
        {-0.5f, 0.8f}}},
      {{{-0.35f, -1}, {-0.42f, -0.2f, kCorner}, {0.1f, -0.3f}, {0.5f, 0.1f}, {0.4f, 0.75f}, {-0.05f, 1}, {-0.5f, 0.8f}},
       {{-0.35f, -1}, {0.5f, -0.95f}}},  // the bar last
      {{{0.5f, -1},
        {-0.1f, -0.95f},
        {-0.45f, -0.6f},
        {-0.2f, -0.2f},
        {0.3f, 0.05f},
        {0.45f, 0.5f},
        {0.1f, 0.95f},
        {-0.5f, 0.85f}}},  // in one go, like an S
  };
  hands[6] = {
      {{{0.4f, -1},
        {-0.1f, -0.7f},
        {-0.5f, 0},
        {-0.45f, 0.65f},
        {0, 1},
        {0.45f, 0.7f},
        {0.4f, 0.25f},
        {0, 0.05f},
        {-0.42f, 0.4f}}},
      {Stroke{{0.1f, -1}, {-0.38f, -0.2f}} + Arc({0, 0.5f}, 0.48f, 0.48f, 180, -170)},
      {{{0.2f, -1},
        {-0.35f, -0.5f},
        {-0.5f, 0.35f},
        {-0.2f, 0.95f},
        {0.3f, 0.9f},
        {0.42f, 0.5f},
        {0.1f, 0.2f},
        {-0.35f, 0.35f}}},
  };
  hands[7] = {
      {{{-0.55f, -1}, {0.5f, -1, kCorner}, {-0.15f, 1}}},
      {{{-0.55f, -1}, {0.5f, -1, kCorner}, {-0.15f, 1}}, {{-0.35f, 0}, {0.4f, -0.05f}}},         // with a bar
      {{{-0.5f, -0.7f}, {-0.5f, -1, kCorner}, {0.5f, -1, kCorner}, {0.1f, -0.2f}, {-0.1f, 1}}},  // with a serif
      {{{-0.55f, -0.85f}, {-0.1f, -1}, {0.5f, -0.95f, kCorner}, {0.15f, -0.1f}, {-0.2f, 1}}},
  };
  hands[8] = {
      {{{0.4f, -0.75f},
        {0, -1},
        {-0.4f, -0.7f},
        {-0.2f, -0.2f},
        {0.3f, 0.15f},
        {0.5f, 0.6f},
        {0, 1},
        {-0.48f, 0.6f},
        {-0.25f, 0.15f},
        {0.25f, -0.25f},
        {0.42f, -0.7f}}},                                                               // crossing in the middle
      {Arc({0, -0.5f}, 0.38f, 0.48f, 90, 450), Arc({0, 0.48f}, 0.5f, 0.5f, -90, 270)},  // two rings
      {{{0.3f, -0.9f},
        {-0.1f, -1},
        {-0.35f, -0.65f},
        {0, -0.1f},
        {0.38f, 0.45f},
        {0.2f, 0.95f},
        {-0.25f, 0.9f},
        {-0.38f, 0.5f},
        {0, -0.05f},
        {0.35f, -0.5f},
        {0.3f, -0.9f}}},
  };
  hands[9] = {
      {Arc({-0.05f, -0.48f}, 0.45f, 0.5f, 0, -350), {{0.42f, -0.55f}, {0.3f, 1}}},
      {Arc({-0.05f, -0.48f}, 0.45f, 0.5f, -20, -360), {{0.42f, -0.6f}, {0.42f, 0.4f}, {0.1f, 1}, {-0.4f, 0.85f}}},
      {{{0.45f, -0.8f},
        {0, -1},
        {-0.45f, -0.6f},
        {-0.2f, -0.15f},
        {0.3f, -0.3f},
        {0.45f, -0.85f, kCorner},
        {0.4f, 0},
        {0.2f, 1}}},
  };
  return hands;
}

// How one digit is written: everything but its form.
class Style {
 public:
  explicit Style(Random& random)
      : radius(random.Uniform(0.7f, 1.8f)),
        ink(random.Uniform(0.75f, 1)),
        noise(random.Uniform(0, 0.15f)),
        jitter(random.Uniform(0.03f, 0.08f)),
        bend_x_(random),
        bend_y_(random) {
    const float scale = random.Uniform(8.4f, 10.2f);  // pixels
    const float width = scale * random.Uniform(0.75f, 1.15f);
    const float slant = std::clamp(0.12f + 0.22f * random.Normal(), -0.4f, 0.6f);
    const float rotation = 0.12f * random.Normal();
    const float cos = std::cos(rotation), sin = std::sin(rotation);
    xx_ = cos * width, xy_ = -cos * slant * scale - sin * scale;
    yx_ = sin * width, yy_ = -sin * slant * scale + cos * scale;
    center_x_ = kSize / 2.0f + random.Uniform(-2, 2);
    center_y_ = kSize / 2.0f + random.Uniform(-2, 2);
  }

  // Where a point of the written form lies in the image, in pixels.
  Point InPixels(float x, float y) const {
    const float bent_x = x + bend_x_.At(y), bent_y = y + bend_y_.At(x);
    return {center_x_ + xx_ * bent_x + xy_ * bent_y, center_y_ + yx_ * bent_x + yy_ * bent_y};
  }

  float radius;  // of the pen, in pixels
  float ink;     // brightness of the stroke
  float noise;   // largest brightness added to a pixel
  float jitter;  // standard deviation of a control point's place

 private:
  struct Bend {
    explicit Bend(Random& random)
        : amplitude(0.09f * random.Normal()),
          frequency(random.Uniform(1.5f, 3)),
          phase(random.Uniform(0, 2 * std::numbers::pi_v<float>)) {}
    float At(float t) const { return amplitude * std::sin(frequency * t + phase); }
    float amplitude, frequency, phase;
  };

  Bend bend_x_, bend_y_;
  float xx_, xy_, yx_, yy_, center_x_, center_y_;
};

class Canvas {
 public:
  // Covers the pixels within `radius` of the line from a to b; their edge is one pixel soft.
  void Line(Point a, Point b, float radius) {
    const float reach = radius + 0.5f;
    const int left = Clamp(std::min(a.x, b.x) - reach), right = Clamp(std::max(a.x, b.x) + reach + 1);
    const int top = Clamp(std::min(a.y, b.y) - reach), bottom = Clamp(std::max(a.y, b.y) + reach + 1);
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float inverse_square = 1 / std::max(dx * dx + dy * dy, 1e-6f);
    for (int row = top; row < bottom; ++row) {
      for (int column = left; column < right; ++column) {
        const float px = column + 0.5f - a.x, py = row + 0.5f - a.y;
        const float along = std::clamp((px * dx + py * dy) * inverse_square, 0.0f, 1.0f);
        const float ex = px - along * dx, ey = py - along * dy;
        float& cover = cover_[row * kSize + column];
        cover = std::max(cover, std::min(reach - std::sqrt(ex * ex + ey * ey), 1.0f));
      }
    }
  }
  float cover(int pixel) const { return cover_[pixel]; }

 private:
  static int Clamp(float x) { return std::clamp(static_cast<int>(std::floor(x)), 0, kSize); }
  std::array<float, kPixels> cover_ = {};
};

// The point a fraction t of the way from `b` to `c` on the Catmull-Rom spline with the neighbours `a` and `d`.
Point Between(const Point& a, const Point& b, const Point& c, const Point& d, float t) {
  const auto spline = [t](float p0, float p1, float p2, float p3) {
    return p1 + 0.5f * t * (p2 - p0 + t * (2 * p0 - 5 * p1 + 4 * p2 - p3 + t * (3 * (p1 - p2) + p3 - p0)));
  };
  return {spline(a.x, b.x, c.x, d.x), spline(a.y, b.y, c.y, d.y)};
}

void DrawStroke(const Stroke& stroke, const Style& style, Random& random, Canvas& canvas) {
  constexpr int kSteps = 6;  // straight pieces between two control points
  Stroke points = stroke;
  for (Point& point : points) {
    point.x += style.jitter * random.Normal();
    point.y += style.jitter * random.Normal();
  }
  Point last = style.InPixels(points[0].x, points[0].y);
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    const Point &from = points[i], &to = points[i + 1];
    const Point& before = i == 0 || from.corner ? from : points[i - 1];
    const Point& after = i + 2 == points.size() || to.corner ? to : points[i + 2];
    for (int step = 1; step <= kSteps; ++step) {
      const Point between = Between(before, from, to, after, static_cast<float>(step) / kSteps);
      const Point next = style.InPixels(between.x, between.y);
      canvas.Line(last, next, style.radius);
      last = next;
    }
  }
}

void DrawDigit(const std::vector<Hand>& hands, Random& random, uint8_t* pixels) {
  const Hand& hand = hands[random.UniformInt(hands.size())];
  const Style style(random);
  Canvas canvas;
  for (const Stroke& stroke : hand) DrawStroke(stroke, style, random, canvas);
  for (int i = 0; i < kPixels; i += 4) {
    uint32_t bits = random.Bits();
    for (int pixel = i; pixel < i + 4; ++pixel, bits >>= 8) {
      const float noise = style.noise * static_cast<float>(bits & 255);
      pixels[pixel] = static_cast<uint8_t>(std::min(255 * style.ink * canvas.cover(pixel) + noise, 255.0f));
    }
  }
}

}  // namespace

DrawnDigits DrawDigits(uint64_t seed, int64_t first, int64_t count, int num_threads) {
  static const std::array<std::vector<Hand>, 10>& hands = *new std::array<std::vector<Hand>, 10>(MakeHands());
  DrawnDigits digits = {compute::Tensor(DType::kUInt8, {count, kSize, kSize}), compute::Tensor(DType::kInt32, {count})};
  data::WorkerPool(num_threads).ForEach((count + kDigitsPerTask - 1) / kDigitsPerTask, [&](int64_t task) {
    const int64_t begin = task * kDigitsPerTask, end = std::min(begin + kDigitsPerTask, count);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t label = (first + i) % 10;
      Random random(seed, /*epoch=*/0, first + i);
      DrawDigit(hands[label], random, digits.images.data<uint8_t>() + i * kPixels);
      digits.labels.data<int32_t>()[i] = static_cast<int32_t>(label);
    }
  });
  return digits;
}

}  // namespace official::mnist
