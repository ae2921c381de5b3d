#include "train/loss_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

#include "core/rng.h"

namespace hognose::train {
namespace {

using Points = std::vector<CurvePoint>;
using Ticks = std::vector<double>;

// Every tag that opens closes, in order; no '<' or quote is left open.
bool IsBalanced(std::string_view svg) {
  std::vector<std::string_view> open;
  for (size_t at = svg.find('<'); at != std::string_view::npos; at = svg.find('<', at)) {
    const size_t end = svg.find('>', at);
    if (end == std::string_view::npos) return false;
    const std::string_view tag = svg.substr(at + 1, end - at - 1);
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return false;
    if (tag.find('<') != std::string_view::npos) return false;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    at = end;
  }
  return open.empty();
}

size_t Count(std::string_view text, std::string_view what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + 1)) {
    ++count;
  }
  return count;
}

// The places in the picture of a series' line.
std::vector<std::pair<double, double>> Line(std::string_view svg, const std::string& name) {
  const std::string start = "<polyline class=\"line " + name + "\" points=\"";
  std::vector<std::pair<double, double>> places;
  const size_t at = svg.find(start);
  if (at == std::string_view::npos) return places;
  const std::string text(svg.substr(at + start.size(), svg.find('"', at + start.size()) - at));
  for (const char* next = text.c_str();;) {
    char* end = nullptr;
    const double x = std::strtod(next, &end);
    if (end == next || *end != ',') return places;
    const double y = std::strtod(end + 1, &end);
    places.emplace_back(x, y);
    next = end;
  }
}

TEST(RoundTicksTest, AreRound) {
  EXPECT_EQ(RoundTicks(0, 10, 5), (Ticks{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(RoundTicks(-1, 1, 4), (Ticks{-1, -0.5, 0, 0.5, 1}));
  EXPECT_EQ(RoundTicks(3, 997, 5), (Ticks{200, 400, 600, 800}));
  EXPECT_EQ(RoundTicks(1000, 1001, 1), (Ticks{1000, 1001}));
  core::Rng rng(1);
  for (int i = 0; i < 1000; ++i) {
    const double lo = rng.Uniform(-5, 5), hi = lo + std::pow(10, rng.Uniform(-6, 6));
    const auto ticks = RoundTicks(lo, hi, 6);
    EXPECT_GE(ticks.size(), 3u) << lo << " " << hi;
    EXPECT_LE(ticks.size(), 11u) << lo << " " << hi;
    EXPECT_TRUE(std::is_sorted(ticks.begin(), ticks.end()));
  }
}

TEST(LossCurveTest, DrawsEveryPoint) {
  const Points training = {{0, 4}, {10, 2}, {20, 1}}, evaluation = {{10, 3}, {20, 2}};
  const std::string svg = DrawLossCurve(training, evaluation);
  EXPECT_TRUE(IsBalanced(svg)) << svg;
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"800\""));
  // The first point lies in the upper left corner of the plot, the last in the lower right one.
  const auto line = Line(svg, "training");
  ASSERT_EQ(line.size(), 3u);
  EXPECT_EQ(line.front(), std::make_pair(70.0, 40.0));
  EXPECT_EQ(line.back(), std::make_pair(780.0, 350.0));
  EXPECT_EQ(Line(svg, "evaluation").size(), 2u);
  EXPECT_EQ(Count(svg, "<circle class=\"dot training\""), 3u);
  for (const char* tick : {">1<", ">2<", ">3<", ">4<", ">0<", ">10<", ">20<"}) {
    EXPECT_GE(Count(svg, tick), 1u) << tick;
  }
  EXPECT_EQ(Count(svg, ">training<"), 1u);
  EXPECT_EQ(Count(svg, ">evaluation<"), 1u);
  EXPECT_EQ(Count(DrawLossCurve(training, {}), ">evaluation<"), 0u);
  EXPECT_EQ(svg, DrawLossCurve(training, evaluation));
}

TEST(LossCurveTest, LeavesOutWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg =
      DrawLossCurve(Points{{0, 4}, {1, nan}, {2, HUGE_VAL}, {3, -HUGE_VAL}, {4, 1}}, {});
  EXPECT_TRUE(IsBalanced(svg));
  EXPECT_EQ(Line(svg, "training").size(), 2u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(LossCurveTest, DrawsStrangeCurves) {
  const double huge = std::numeric_limits<double>::max();
  for (const Points& points :
       {Points{}, Points{{5, 2}}, Points{{0, 0}, {1, 0}}, Points{{0, 3}, {1, 3}},
        Points{{7, 1}, {7, 2}}, Points{{0, huge}, {1, -huge}}, Points{{0, 1e-310}, {1, 2e-310}},
        Points{{0, HUGE_VAL}}, Points{{SIZE_MAX - 1, 1}, {SIZE_MAX, 2}}}) {
    const std::string svg = DrawLossCurve(points, points);
    EXPECT_TRUE(IsBalanced(svg));
    EXPECT_EQ(svg.find("nan"), std::string::npos) << svg;
    EXPECT_EQ(svg.find("inf\""), std::string::npos) << svg;
    for (const auto& [x, y] : Line(svg, "training")) {
      EXPECT_TRUE(x >= 70 && x <= 780 && y >= 40 && y <= 350);
    }
  }
  EXPECT_EQ(Count(DrawLossCurve({}, {}), "no finite loss"), 1u);
}

TEST(LossCurveTest, ThinsLongCurvesButKeepsPeaks) {
  Points points;
  for (size_t step = 0; step < 100000; ++step) points.push_back({step, 1 + (step % 7) * 0.01});
  points[31234].loss = 5;
  points[61234].loss = 0;
  const auto line = Line(DrawLossCurve(points, {}), "training");
  EXPECT_LE(line.size(), 4u * 711);
  EXPECT_GE(line.size(), 2u * 700);
  const auto by_height = [](const auto& a, const auto& b) { return a.second < b.second; };
  EXPECT_EQ(std::min_element(line.begin(), line.end(), by_height)->second, 40);
  EXPECT_EQ(std::max_element(line.begin(), line.end(), by_height)->second, 350);
}

}  // namespace
}  // namespace hognose::train
